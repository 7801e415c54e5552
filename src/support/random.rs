//! Random strings in hexadecimal.

use std::fmt::Write as _;

/// Returns a string of `BYTES` random bytes in hexadecimal.
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
