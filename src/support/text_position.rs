//! Positions in a text.

/// Returns the line number of a position in a text, counted from one. `before` is the text before
/// the position.
pub(crate) fn line_number(before: &str) -> usize {
    before.matches('\n').count() + 1
}

/// Returns the byte offset of the start of the line that contains a position. `before` is the text
/// before the position.
pub(crate) fn line_start(before: &str) -> usize {
    before.rfind('\n').map_or(0, |newline| newline + 1)
}
