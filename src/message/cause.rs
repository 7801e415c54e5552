use std::error::Error;

use tower::{load_shed::error::Overloaded, timeout::error::Elapsed};

/// What a service's error says that may be told to a client.
///
/// Anything else may hold addresses, paths and more that is nobody's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    TimedOut,
    Overloaded,
    Unknown,
}

impl Cause {
    /// Looks for the errors of Tower's own layers in an error and its sources.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let mut source = Some(error);
        while let Some(error) = source {
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
