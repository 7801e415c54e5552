//! Transfers the readiness of a Tower service.

use std::mem;

/// Replaces a service that is ready with its clone, which is not ready, and returns the ready
/// service.
///
/// If the returned service is dropped, its readiness is released, for example its slot in a
/// concurrency limit.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let later = service.clone();
    mem::replace(service, later)
}
