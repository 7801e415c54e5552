//! Finds the cause of a service error, in a form that may be shown to clients.

use std::{any::Any, error::Error};

use tower::{BoxError, load_shed::error::Overloaded, timeout::error::Elapsed};

use super::{BackendError, BackendErrorKind};

/// The cause of a service error, without details that clients must not see.
///
/// Does not contain the message of the error, which may include addresses, paths and other internal
/// details.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'e> {
    TimedOut,
    Overloaded,
    /// A backend failed to answer. This error may be shown to clients, because its message names
    /// only the backend and the kind of failure.
    Backend(&'e BackendError),
    Unknown,
}

impl<'e> Cause<'e> {
    /// Returns the cause of `error`. Searches `error` and its chain of sources for the first
    /// [`BackendError`], timeout error or overload error. Tower's layers return the latter two.
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

/// Returns `true` if the error shows that the request was not sent, so that it can safely be sent
/// again. This is the case if the backend was not connected or overloaded, or if Tower's load
/// shedding rejected the request.
///
/// Returns `false` if `E` is neither [`BoxError`] nor [`BackendError`], because other error types
/// are not inspected.
pub(crate) fn is_unsent<E: 'static>(error: &E) -> bool {
    let any: &dyn Any = error;
    let error: &(dyn Error + 'static) = match any.downcast_ref::<BoxError>() {
        Some(error) => &**error,
        None => match any.downcast_ref::<BackendError>() {
            Some(error) => error,
            None => return false,
        },
    };
    match Cause::of(error) {
        Cause::Overloaded => true,
        Cause::Backend(error) => {
            matches!(error.kind(), BackendErrorKind::NotConnected | BackendErrorKind::Overloaded)
        }
        Cause::TimedOut | Cause::Unknown => false,
    }
}
