//! The names of steps and loop elements, called branches.

use std::{fmt, sync::Arc};

/// The name of a step, such as `search`, or of a loop element, such as `read[2]`. Formatted on
/// demand, because most names are never read.
#[derive(Clone, Debug)]
pub(crate) struct BranchName {
    name: Arc<str>,
    /// The index of the loop element. `None` for a step that is not a loop.
    element: Option<usize>,
}

// === impl BranchName ===

impl BranchName {
    /// Creates the name of an element of the loop `step`.
    pub(crate) const fn element(step: Arc<str>, element: usize) -> Self {
        Self { name: step, element: Some(element) }
    }

    /// Returns the minimum length of the formatted name, in bytes.
    pub(super) fn min_len(&self) -> usize {
        self.name.len()
    }
}

impl From<Arc<str>> for BranchName {
    fn from(name: Arc<str>) -> Self {
        Self { name, element: None }
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.element {
            Some(element) => write!(f, "[{element}]"),
            None => Ok(()),
        }
    }
}
