//! Random strings in hexadecimal.

use std::fmt::Write as _;

/// Generates `BYTES` random bytes, and returns them as a hexadecimal string.
pub(crate) fn text<const BYTES: usize>() -> Result<String, getrandom::Error> {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random)?;
    Ok(hex(&random))
}

/// Returns the bytes as a hexadecimal string, with two digits per byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
