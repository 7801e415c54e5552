//! Builder calls for keys that a file may leave out.

/// Calls the setters of a builder for optional values.
pub(super) trait SetSome: Sized {
    /// Calls `setter` with the value if there is one. Otherwise, returns the builder unchanged.
    fn set_some<T>(self, value: Option<T>, setter: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => setter(self, value),
            None => self,
        }
    }
}

impl<B> SetSome for B {}
