//! Finds the part of a service's error that may be shown to a client.

use std::{any::Any, error::Error};

use tower::{BoxError, load_shed::error::Overloaded, timeout::error::Elapsed};

use super::{BackendError, BackendErrorKind};

/// The cause of a service error in a form that may be shown to a client.
///
/// The original error message is not shown, because it may contain addresses, paths and other
/// internals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'e> {
    TimedOut,
    Overloaded,
    /// A backend failed. Its error message names the backend and the kind of failure, and may be
    /// shown.
    Backend(&'e BackendError),
    Unknown,
}

impl<'e> Cause<'e> {
    /// Returns the first known cause among an error and its sources. Known causes are a
    /// [`BackendError`], and the timeout and overload errors of Tower's layers.
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

/// Returns `true` if a service error proves that the request was not sent, so that it can safely be
/// sent again. This is the case if a backend was not connected or was overloaded, or if Tower's
/// load shedding rejected the request.
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
