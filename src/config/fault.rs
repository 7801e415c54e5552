//! Mistakes in a configuration file, with their positions.

use std::ops::Range;

use crate::composite::Segment;

/// Maximum number of mistakes that one error reports.
pub(super) const MAX_MISTAKES: usize = 100;

/// A mistake, with its path of keys and its span in the text of the file.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) path: Vec<Segment>,
    pub(super) message: String,
    pub(super) span: Range<usize>,
}
