//! Calls the setters of builders for keys that a configuration file may omit.

/// Extends builders with a method that sets optional values.
pub(super) trait SetSome: Sized {
    /// Calls `setter` if there is a value. Otherwise, returns the builder unchanged.
    fn set_some<T>(self, value: Option<T>, setter: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => setter(self, value),
            None => self,
        }
    }
}

impl<B> SetSome for B {}
