//! Moves the readiness of a service.

use std::mem;

/// Takes a service that is ready, and leaves a clone that is not ready.
///
/// Dropping the returned service releases its readiness, such as the slot of a concurrency limit.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let later = service.clone();
    mem::replace(service, later)
}
