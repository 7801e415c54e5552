//! Helps to pass optional settings of a configuration file to builders.

/// Extends builders with a method that passes optional values to a setter.
pub(super) trait SetSome: Sized {
    /// Calls `setter` with the value if it is `Some`. Otherwise, returns the builder unchanged.
    fn set_some<T>(self, value: Option<T>, setter: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => setter(self, value),
            None => self,
        }
    }
}

impl<B> SetSome for B {}
