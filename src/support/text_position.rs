//! Positions in a text.

/// Returns the line number of a position, counted from one. `before` is the text before the
/// position.
pub(crate) fn line_number(before: &str) -> usize {
    before.matches('\n').count() + 1
}

/// Returns the byte offset at which the line of a position starts. `before` is the text before the
/// position.
pub(crate) fn line_start(before: &str) -> usize {
    before.rfind('\n').map_or(0, |newline| newline + 1)
}
