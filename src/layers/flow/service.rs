//! The service that labels the results of tools, and decides whether egress tools may be called.

use std::task::{Context, Poll};

use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::{FlowLayer, rule::FlowRule};
use crate::{
    catalog::ListError,
    intercept::Informed,
    message::{Reply, Request, ToolService},
    response_future::ResponseFuture,
};

/// Middleware that adds labels to the results of the wrapped service, and can deny calls of egress
/// tools. Created by [`FlowLayer`].
///
/// The middleware is ready when the wrapped service is ready.
#[derive(Clone, Debug)]
pub struct Flow<S>(Informed<FlowRule, S>);

// === impl FlowLayer ===

impl<S> Layer<S> for FlowLayer {
    type Service = Flow<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let rule = FlowRule::new(self.settings.clone());
        Flow(Informed::with_catalogs(rule, inner, self.catalogs.clone()))
    }
}

// === impl Flow ===

impl<S> Flow<S> {
    /// Returns a reference to the inner service.
    pub const fn get_ref(&self) -> &S {
        self.0.get_ref()
    }
}

impl<S> Flow<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    /// Lists the tools of the wrapped service in advance, if the policy trusts their annotations.
    ///
    /// # Errors
    ///
    /// Returns an error if the tools cannot be listed now. In this case, the first call lists them.
    pub async fn warm(&self) -> Result<(), ListError> {
        self.0.warm().await
    }
}

impl<S> Service<Request> for Flow<S>
where
    S: ToolService,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        if self.0.rule().is_idle {
            ResponseFuture::forwarded(self.0.inner_mut().call(request))
        } else {
            ResponseFuture::boxed(Box::pin(self.0.call(request)))
        }
    }
}
