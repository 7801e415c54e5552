//! Calls for a profiler that collects within [`profiled`].

use std::{convert::Infallible, future::poll_fn, hint::black_box};

use tokio::runtime::Builder;
use tower::Service;

/// The number of calls that a profiler sees, after as many that it does not see.
pub(crate) const PROFILED_CALLS: usize = 32;

/// Makes [`PROFILED_CALLS`] calls within [`profiled`].
pub(crate) fn profile<S, R>(service: &S, request: &R)
where
    S: Service<R, Error = Infallible> + Clone,
    R: Clone,
{
    // Under valgrind everything takes longer, and slow calls are treated differently.
    let paused = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = paused.expect("a runtime starts");
    let mut service = service.clone();
    let mut requests = vec![request.clone(); 2 * PROFILED_CALLS].into_iter();
    for request in requests.by_ref().take(PROFILED_CALLS) {
        runtime.block_on(call(&mut service, request));
    }
    profiled(&mut || {
        runtime.block_on(async {
            for request in requests.by_ref() {
                call(&mut service, request).await;
            }
        });
    });
}

/// The function that a profiler collects in, by this name.
#[inline(never)]
fn profiled(calls: &mut dyn FnMut()) {
    calls();
    black_box(());
}

/// Makes a call, and drops the response.
pub(crate) async fn call<S, R>(service: &mut S, request: R)
where
    S: Service<R, Error = Infallible>,
{
    let Ok(()) = poll_fn(|cx| service.poll_ready(cx)).await;
    let Ok(response) = service.call(request).await;
    drop(black_box(response));
}
