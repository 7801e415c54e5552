//! Finds the cause of a service error, without details that clients must not see.

use std::{any::Any, error::Error};

use tower::{BoxError, load_shed::error::Overloaded, timeout::error::Elapsed};

use super::{BackendError, BackendErrorKind};

/// The cause of a service error. Clients may see it. The message of the error is not included,
/// because it may contain addresses, paths and other internal details.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'e> {
    TimedOut,
    Overloaded,
    /// A backend did not reply. The message of this error names only the backend and the kind of
    /// failure.
    Backend(&'e BackendError),
    Unknown,
}

impl<'e> Cause<'e> {
    /// Returns the cause of `error`: the first [`BackendError`], timeout or overload error of Tower
    /// in `error` and its sources.
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

/// Returns `true` if the request was not sent, so that it is safe to send it again. The backend was
/// not connected or was overloaded, or Tower's load shedding rejected the request.
///
/// Returns `false` for error types other than [`BoxError`] and [`BackendError`], which are not
/// inspected.
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
