//! Mistakes in a configuration file, with their positions.

use std::ops::Range;

use crate::composite::Segment;

/// Maximum number of mistakes that one error lists. Reading stops after this number.
pub(super) const MAX_MISTAKES: usize = 100;

/// A mistake in a configuration file: the error message, the path of the invalid value, and its
/// span. The span is that in the text that was read: the file, or a template in it.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) path: Vec<Segment>,
    pub(super) message: String,
    pub(super) span: Range<usize>,
}

/// All mistakes that were found in a configuration file.
pub(super) struct Faults {
    pub(super) all: Vec<Fault>,
    /// `true` if the whole file was checked. If `false`, the file may contain more mistakes.
    pub(super) is_complete: bool,
    /// The number of mistakes that are forbidden flows of data. All other parts of the file can be
    /// correct nevertheless.
    pub(super) forbidden_flows: usize,
}

// === impl Fault ===

impl Fault {
    /// Creates a mistake without a path.
    pub(super) fn new(message: impl Into<String>, span: Range<usize>) -> Self {
        Self { path: Vec::new(), message: message.into(), span }
    }
}

// === impl Faults ===

impl Faults {
    /// Returns `true` if the file has no mistakes.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.is_complete
    }

    /// Returns `true` if the file has no mistakes other than forbidden flows of data.
    pub(super) fn are_only_flows(&self) -> bool {
        self.all.len() == self.forbidden_flows && self.is_complete
    }
}
