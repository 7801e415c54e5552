use std::error::Error;

use tower::{load_shed::error::Overloaded, timeout::error::Elapsed};

use super::BackendError;

/// What a service's error says that may be told to a client.
///
/// Anything else may hold addresses, paths and more that is nobody's business.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'e> {
    TimedOut,
    Overloaded,
    /// A backend could not answer; the error's text says which and how.
    Backend(&'e BackendError),
    Unknown,
}

impl<'e> Cause<'e> {
    /// Looks for our error and those of Tower's own layers in an error and its
    /// sources.
    pub(crate) fn of(error: &'e (dyn Error + 'static)) -> Self {
        let mut source = Some(error);
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref::<BackendError>() {
                return Self::Backend(error);
            }
            if error.is::<Elapsed>() {
                return Self::TimedOut;
            }
            if error.is::<Overloaded>() {
                return Self::Overloaded;
            }
            source = error.source();
        }
        Self::Unknown
    }
}
