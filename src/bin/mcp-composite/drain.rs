//! The end of the service over HTTP: waits for the calls in flight.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Error,
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::{HeaderValue, Method, header::CONNECTION},
    middleware::Next,
    response::Response,
};
use http_body::{Frame, SizeHint};
use mcp_composite::config::Gateway;
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

/// The progress of draining, and the calls in flight. Clones share them.
///
/// Draining starts when the process is asked to end. It ends when no call is in flight, or after a
/// time limit.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    started: CancellationToken,
    ended: CancellationToken,
    /// Has a token for each call in flight.
    calls: TaskTracker,
}

/// The body of the response to a call, which is in flight until the body is dropped.
struct CallBody {
    inner: Body,
    _call: TaskTrackerToken,
}

// === impl Drain ===

impl Drain {
    /// Creates a value that starts to drain when `started` is cancelled.
    pub(crate) fn new(started: &CancellationToken) -> Self {
        Self {
            started: started.clone(),
            ended: CancellationToken::new(),
            calls: TaskTracker::new(),
        }
    }

    /// Completes when draining starts.
    pub(crate) async fn started(&self) {
        self.started.cancelled().await;
    }

    /// Returns whether draining has started.
    pub(crate) fn has_started(&self) -> bool {
        self.started.is_cancelled()
    }

    /// Returns a token that is cancelled when draining has ended.
    pub(crate) const fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Waits until draining starts, and then until no call is in flight and the tasks of `gateway`
    /// have ended, but not longer than `limit`.
    pub(crate) async fn run(&self, gateway: &Gateway, limit: Duration) {
        self.started().await;
        self.calls.close();
        if !self.calls.is_empty() {
            let (calls, limit) = (self.calls.len(), humantime::format_duration(limit));
            tracing::info!("draining: waiting up to {limit} for calls in flight: {calls}");
        }
        let ended = async { tokio::join!(self.calls.wait(), gateway.tasks_finished()) };
        if tokio::time::timeout(limit, ended).await.is_err() {
            tracing::warn!("the drain limit was reached, cancelling calls: {}", self.calls.len());
        }
        self.ended.cancel();
    }
}

/// Counts a request as a call in flight until its response is sent, and closes its connection if
/// draining has started. A middleware for axum.
pub(crate) async fn track(State(drain): State<Drain>, request: Request, next: Next) -> Response {
    let call = is_call(&request).then(|| drain.calls.token());
    let mut response = next.run(request).await;
    if drain.has_started() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    match call {
        Some(call) => response.map(|inner| Body::new(CallBody { inner, _call: call })),
        None => response,
    }
}

/// Returns whether a request ends by itself. Event streams of notifications do not: before
/// 2026-07-28, clients open them with `GET`.
fn is_call(request: &Request) -> bool {
    let method = request.headers().get("mcp-method");
    request.method() == Method::POST && method.is_none_or(|method| method != "subscriptions/listen")
}

// === impl CallBody ===

impl HttpBody for CallBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
