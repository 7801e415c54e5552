//! Finds the cause of a service's error that may be shown to a client.

use std::{any::Any, error::Error};

use tower::{BoxError, load_shed::error::Overloaded, timeout::error::Elapsed};

use super::{BackendError, BackendErrorKind};

/// The cause of a service's error, as far as it may be shown to a client.
///
/// The error itself is not shown, since its text may contain addresses, paths and other internals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'e> {
    TimedOut,
    Overloaded,
    /// A backend failed. The text of its error names the backend and the kind of failure, so it may
    /// be shown.
    Backend(&'e BackendError),
    Unknown,
}

impl<'e> Cause<'e> {
    /// Returns the first known cause among an error and its sources: a [`BackendError`], or the
    /// timeout or overload error of Tower's layers.
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

/// Returns `true` if the error of a service proves that the request was not sent: a backend was not
/// connected or was overloaded, or Tower's load shedding rejected the request.
///
/// Returns `false` unless `E` is [`BoxError`] or [`BackendError`].
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
