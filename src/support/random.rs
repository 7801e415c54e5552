//! Random hexadecimal texts.

use std::fmt::Write as _;

/// Returns `BYTES` random bytes as hexadecimal text.
pub(crate) fn text<const BYTES: usize>() -> Result<String, getrandom::Error> {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random)?;
    Ok(hex(&random))
}

/// Returns bytes as hexadecimal text, with two digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
