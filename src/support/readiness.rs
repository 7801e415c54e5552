//! Transfers the readiness of a Tower service.

use std::mem;

/// Returns a ready service, and leaves a clone of it in its place. The clone is not ready yet.
///
/// Dropping the returned service releases what its readiness has reserved, for example a slot of a
/// concurrency limit.
pub(crate) fn take_ready<S: Clone>(service: &mut S) -> S {
    let later = service.clone();
    mem::replace(service, later)
}
