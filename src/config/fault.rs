//! Mistakes in a configuration file, with their positions.

use std::ops::Range;

use crate::composite::Segment;

/// Maximum number of mistakes that one error reports.
pub(super) const MAX_MISTAKES: usize = 100;

/// A mistake, with the path of keys to the invalid value, and its span in the file's text.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) path: Vec<Segment>,
    pub(super) message: String,
    pub(super) span: Range<usize>,
}
