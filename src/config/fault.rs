//! Mistakes in a configuration file, with their positions.

use std::ops::Range;

use crate::composite::Segment;

/// Maximum number of mistakes that one error lists. Reading stops after this number.
pub(super) const MAX_MISTAKES: usize = 100;

/// A mistake in a configuration file: the error message, the path of the invalid value, and its
/// span in the text.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) path: Vec<Segment>,
    pub(super) message: String,
    pub(super) span: Range<usize>,
}
