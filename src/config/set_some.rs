//! Builder calls for keys that a file may leave out.

/// Calls setters of a builder.
pub(super) trait SetSome: Sized {
    /// Calls the setter if there is a value.
    fn set_some<T>(self, value: Option<T>, setter: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => setter(self, value),
            None => self,
        }
    }
}

impl<B> SetSome for B {}
