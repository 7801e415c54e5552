//! The causes of a service error that may be shown to a client.

use std::{any::Any, error::Error};

use tower::{BoxError, load_shed::error::Overloaded, timeout::error::Elapsed};

use super::{BackendError, BackendErrorKind};

/// The part of a service's error that may be shown to a client.
///
/// Other details may contain addresses, paths and other internals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'e> {
    TimedOut,
    Overloaded,
    /// A backend failed; the error's text names it and the failure.
    Backend(&'e BackendError),
    Unknown,
}

impl<'e> Cause<'e> {
    /// Searches an error and its sources for the errors of this crate and of Tower's own layers.
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

/// Returns `true` if the error of a service proves that the request was not sent to a server: a
/// backend is not connected, or Tower's load shedding refused it.
///
/// The error must be a [`BoxError`] or a [`BackendError`]; returns `false` for other types.
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
