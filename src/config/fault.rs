//! Mistakes in a file, with their spans.

use std::ops::Range;

use crate::composite::Segment;

/// Maximum number of mistakes in one report.
pub(super) const MAX_MISTAKES: usize = 100;

/// A mistake and its span in the file.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) path: Vec<Segment>,
    pub(super) message: String,
    pub(super) span: Range<usize>,
}
