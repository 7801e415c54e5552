//! The response future of middleware that forwards most requests unchanged.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use pin_project_lite::pin_project;

use crate::message::Reply;

pin_project! {
    /// The response future of a middleware that forwards most requests unchanged.
    ///
    /// A forwarded request allocates no memory. The futures of all other requests are boxed, so
    /// that they do not enlarge the future of a forwarded request.
    pub struct ResponseFuture<F, E> {
        #[pin]
        state: State<F, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, E> {
        Forwarded {
            #[pin]
            reply: F,
        },
        Answered { reply: Option<Reply> },
        Boxed { reply: BoxFuture<'static, Result<Reply, E>> },
    }
}

// === impl ResponseFuture ===

impl<F, E> ResponseFuture<F, E> {
    /// Waits for the reply of the inner service.
    pub(crate) const fn forwarded(reply: F) -> Self {
        Self { state: State::Forwarded { reply } }
    }

    /// Returns `reply` immediately.
    pub(crate) const fn answered(reply: Reply) -> Self {
        Self { state: State::Answered { reply: Some(reply) } }
    }

    /// Waits for a future of the middleware.
    pub(crate) fn boxed(reply: BoxFuture<'static, Result<Reply, E>>) -> Self {
        Self { state: State::Boxed { reply } }
    }
}

impl<F, E> Future for ResponseFuture<F, E>
where
    F: Future<Output = Result<Reply, E>>,
{
    type Output = Result<Reply, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Forwarded { reply } => reply.poll(cx),
            StateProj::Answered { reply } => {
                Poll::Ready(Ok(reply.take().expect("polled after completion")))
            }
            StateProj::Boxed { reply } => reply.as_mut().poll(cx),
        }
    }
}

impl<F, E> fmt::Debug for ResponseFuture<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
