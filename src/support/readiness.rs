//! Transfers the readiness of a Tower service.

use std::mem;

/// Replaces a ready service with a clone of itself, which is not ready yet, and returns the ready
/// service.
///
/// If the returned service is dropped, it releases what it has reserved when it became ready, for
/// example a slot of a concurrency limit.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let later = service.clone();
    mem::replace(service, later)
}
