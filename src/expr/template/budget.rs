//! The limits on the memory and the steps of an evaluation, and the failures of evaluations.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    rc::Rc,
};

use super::pattern::Pattern;

/// The maximum size of a template's string, in bytes.
pub(crate) const MAX_RENDERED_BYTES: usize = 1 << 20;

/// The maximum memory of all values that one evaluation creates, in bytes.
pub(super) const MAX_MADE_BYTES: usize = 16 * MAX_RENDERED_BYTES;

/// The maximum number of elements in a list that an evaluation creates or passes to a filter.
pub(super) const MAX_ELEMENTS: usize = 100_000;

/// The maximum number of steps of one evaluation, which limits its duration. For example, each
/// access to a value costs at least one step.
pub(super) const MAX_EVALUATION_STEPS: usize = 2_000_000;

/// The maximum nesting depth of values. Each filter also counts as a level while it is applied.
const MAX_VALUE_DEPTH: usize = 200;

/// The number of bytes of a string that can be read in one evaluation step.
const BYTES_PER_STEP: usize = 256;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum Failure {
    #[error("`{0}` has no value")]
    Missing(String),
    #[error("`{0}` has no value: the array is in `result`")]
    WrappedArray(String),
    #[error("too much text")]
    TooLarge,
    /// A calculation without a result, such as a division by zero, or with a result that is too
    /// large.
    #[error("invalid operation for these values")]
    Incalculable,
    #[error("{0}")]
    Other(Cow<'static, str>),
}

pub(super) type Evaluated<T> = Result<T, Failure>;

/// The memory and the evaluation steps that are left for an evaluation.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: Cell<usize>,
    steps: Cell<usize>,
    depth: Cell<usize>,
    /// The last compiled regular expression, for reuse.
    pub(super) pattern: RefCell<Option<Rc<Pattern>>>,
}

// === impl Failure ===

impl Failure {
    pub(super) fn other(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Other(reason.into())
    }

    /// Returns the error for an undefined value where a value is needed.
    pub(super) const fn undefined() -> Self {
        Self::Other(Cow::Borrowed("a value is missing"))
    }
}

// === impl Budget ===

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: Cell::new(MAX_MADE_BYTES),
            steps: Cell::new(MAX_EVALUATION_STEPS),
            depth: Cell::new(0),
            pattern: RefCell::new(None),
        }
    }
}

impl Budget {
    /// Counts `bytes` of memory. Returns an error if the evaluation exceeds its limit.
    pub(super) fn spend(&self, bytes: usize) -> Evaluated<()> {
        let left = self.bytes.get().checked_sub(bytes).ok_or_else(|| {
            Failure::other(format!("intermediate values take more than {MAX_MADE_BYTES} bytes"))
        })?;
        self.bytes.set(left);
        Ok(())
    }

    /// Counts evaluation steps. Returns an error if the evaluation exceeds its limit.
    pub(super) fn step(&self, steps: usize) -> Evaluated<()> {
        let left = self.steps.get().checked_sub(steps).ok_or_else(|| {
            Failure::other(format!("the evaluation takes more than {MAX_EVALUATION_STEPS} steps"))
        })?;
        self.steps.set(left);
        Ok(())
    }

    /// Counts the evaluation steps for reading a string.
    pub(super) fn read(&self, text: &str) -> Evaluated<()> {
        self.step(text.len() / BYTES_PER_STEP)
    }

    /// Calls `evaluate` one nesting level deeper. Returns an error if the nesting is too deep.
    pub(super) fn nested<T>(&self, evaluate: impl FnOnce() -> Evaluated<T>) -> Evaluated<T> {
        let depth = self.depth.get();
        if depth == MAX_VALUE_DEPTH {
            let reason = format!("values are nested more than {MAX_VALUE_DEPTH} levels deep");
            return Err(Failure::other(reason));
        }
        self.depth.set(depth + 1);
        let evaluated = evaluate();
        self.depth.set(depth);
        evaluated
    }
}

pub(super) fn nothing() -> Failure {
    Failure::other("the result is undefined")
}

pub(super) fn too_many_elements() -> Failure {
    Failure::other(format!("a list has more than {MAX_ELEMENTS} elements"))
}
