//! Positions in a text.

/// Returns the number of the line in which `before` ends, counted from one. `before` is the text
/// before the position.
pub(crate) fn line_number(before: &str) -> usize {
    before.matches('\n').count() + 1
}

/// Returns the offset in bytes at which the last line of `before` starts.
pub(crate) fn line_start(before: &str) -> usize {
    before.rfind('\n').map_or(0, |newline| newline + 1)
}
