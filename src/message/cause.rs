//! Finds the cause of a service error, in a form that may be shown to clients.

use std::{any::Any, error::Error};

use tower::{BoxError, load_shed::error::Overloaded, timeout::error::Elapsed};

use super::{BackendError, BackendErrorKind};

/// The cause of a service error, in a form that may be shown to clients.
///
/// The message of the original error is omitted, because it may contain addresses, paths and other
/// internal details.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'e> {
    TimedOut,
    Overloaded,
    /// A backend failed to answer. The message of its error names only the backend and the kind of
    /// failure, so it may be shown to clients.
    Backend(&'e BackendError),
    Unknown,
}

impl<'e> Cause<'e> {
    /// Returns the cause of `error`: the first error of a known type among `error` and its chain of
    /// sources. The known types are [`BackendError`] and the timeout and overload errors of Tower's
    /// layers.
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

/// Returns `true` if the request was certainly not sent, so that it can safely be sent again. This
/// is the case if the backend was not connected or was overloaded, or if Tower's load shedding
/// rejected the request.
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
