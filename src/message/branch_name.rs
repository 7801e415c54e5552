//! The names of branches.

use std::{fmt, sync::Arc};

/// The name of a branch of a composite, such as `search` or, for a loop element, `read[2]`. It is
/// formatted on demand, because the names of most branches are never read.
#[derive(Clone, Debug)]
pub(crate) struct BranchName {
    name: Arc<str>,
    /// The index of the loop element. `None` if the branch is not a loop element.
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
