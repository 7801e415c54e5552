//! Moves the readiness of a Tower service to another owner.

use std::mem;

/// Takes a ready service out of its place, and returns it. Leaves a clone, which is not ready yet.
///
/// Dropping the returned service releases the resources that it has reserved in `poll_ready`, such
/// as a slot of a concurrency limit.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let later = service.clone();
    mem::replace(service, later)
}
