//! The time limit of request bodies.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Error,
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::{StatusCode, header::CONNECTION},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tower_http::timeout::TimeoutError;

/// A request body that fails if it is not complete in time.
struct TimedBody {
    inner: Body,
    end: Pin<Box<Sleep>>,
    /// Set when the body was not complete in time, or paused for too long.
    is_late: Arc<AtomicBool>,
}

/// Answers a request with the status 408 if its body is not complete within `limit`, and if the
/// body inside fails with the timeout of a pause. A middleware for axum.
pub(crate) async fn limit_body(
    State(limit): State<Duration>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let is_late = Arc::<AtomicBool>::default();
    let (of_body, end) = (is_late.clone(), Box::pin(sleep(limit)));
    let request = request.map(|inner| Body::new(TimedBody { inner, end, is_late: of_body }));
    let response = next.run(request).await;
    if is_late.load(Ordering::Relaxed) {
        let text = "the request body was not received in time\n";
        // The rest of the body is not read.
        return (StatusCode::REQUEST_TIMEOUT, [(CONNECTION, "close")], text).into_response();
    }
    response
}

// === impl TimedBody ===

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let error = match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Err(error))) => error.into_inner(),
            // Checked also if there is data: a client may send it faster than it is read.
            Poll::Ready(Some(Ok(frame))) if this.end.as_mut().poll(cx).is_pending() => {
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending if this.end.as_mut().poll(cx).is_pending() => return Poll::Pending,
            _ => {
                this.is_late.store(true, Ordering::Relaxed);
                "the body was not received in time".into()
            }
        };
        if error.is::<TimeoutError>() {
            this.is_late.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Some(Err(Error::new(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
