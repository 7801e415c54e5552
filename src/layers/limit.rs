//! Limits on the size and nesting depth of requests.
//!
//! A [`LimitLayer`] rejects requests that are too large or nested too deep, before any part of
//! them is copied. Above a [`CompositeLayer`](crate::composite::CompositeLayer), an oversized
//! call is rejected once, and does not fail once for each target. The layer measures without
//! serializing, and stops as soon as a limit is exceeded.
//!
//! # What counts
//!
//! - Everything that a client fills in: arguments, `inputResponses` and `requestState` of
//!   calls, prompts and resources, values to complete, and the parameters of unknown methods.
//!   Texts and keys count their bytes, without escapes and quotes; numbers, `true`, `false`,
//!   `null`, pairs of brackets and shorter texts count 4. The outermost brackets of arguments
//!   are not counted: a call without arguments, or with `{}`, measures zero.
//! - Names, URIs, cursors and ids count from their 1025th byte on. `_meta`, the client
//!   information sent on connect, and the URIs of subscriptions count beyond their first
//!   16 KiB. So small limits work, and none of these fields can bypass them.
//! - The depth is that of arrays and objects: arguments `{}` have 1 level, and `{"a": [1]}`
//!   have 2. `_meta` may always have 16.
//!
//! A limit of zero bytes allows only calls without arguments.
//!
//! Without a limit, the transport limits the size: with rmcp, to 16 MiB over pipes and 4 MiB
//! over HTTP. In a [configuration file](crate::config), the limit defaults to 4 MiB, which
//! implies 128 levels.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{limit::LimitLayer, message::{Reply, Request}};
//! use rmcp::model::{CallToolRequestParams, CallToolResult};
//! use serde_json::Map;
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let service = ServiceBuilder::new()
//!     .layer(LimitLayer::new().max_argument_bytes(1024).max_depth(16))
//!     .service_fn(async |_: Request| Ok::<Reply, Infallible>(CallToolResult::success(vec![]).into()));
//!
//! let say = |text: String| {
//!     let arguments = Map::from_iter([("text".to_owned(), text.into())]);
//!     Request::call_tool_with(CallToolRequestParams::new("say").with_arguments(arguments))
//! };
//! let reply = service.clone().oneshot(say("hello".to_owned())).await?;
//! assert!(reply.error().is_none());
//!
//! let reply = service.oneshot(say("hello".repeat(1000))).await?;
//! let message = "the request has more than 1024 bytes (`max_argument_bytes`)";
//! assert_eq!(reply.error().unwrap().message, message);
//! # Ok(())
//! # }
//! ```

use std::ops::ControlFlow;

use tower_layer::Layer;

use crate::{
    intercept::{Intercept, Intercepted},
    message::{Bounds, Reply, Request},
};

/// Rejects requests that are too large.
///
/// Defaults to no limits; then the layer changes nothing.
///
/// See the [module docs](crate::limit) for the measure and an example.
#[derive(Clone, Debug, Default)]
pub struct LimitLayer(Bounds);

/// Middleware that [`LimitLayer`] puts in front of a service.
pub type Limit<S> = Intercepted<LimitLayer, S>;

// === impl LimitLayer ===

impl LimitLayer {
    /// Creates a layer without limits.
    #[must_use]
    pub const fn new() -> Self {
        Self(Bounds::new())
    }

    /// Sets the maximum size of a request in bytes, of arguments and everything else that
    /// [counts](crate::limit#what-counts).
    #[must_use]
    pub const fn max_argument_bytes(self, bytes: usize) -> Self {
        Self(self.0.max_argument_bytes(bytes))
    }

    /// Sets the maximum nesting depth of arrays and objects.
    ///
    /// More than 128 levels are always rejected, even if only a byte limit is set: no transport
    /// reads deeper JSON.
    #[must_use]
    pub const fn max_depth(self, levels: usize) -> Self {
        Self(self.0.max_depth(levels))
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Intercepted::new(self.clone(), inner)
    }
}

impl Intercept for LimitLayer {
    type Memo = ();

    #[inline]
    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply> {
        match self.0.check(request) {
            Ok(()) => ControlFlow::Continue(()),
            Err(refusal) => ControlFlow::Break(refusal.into()),
        }
    }

    #[inline]
    fn awaits_reply(&self, (): &()) -> bool {
        false
    }
}
