//! Limits on the size and nesting depth of requests.
//!
//! A [`LimitLayer`] rejects requests that are too large or nested too deep, before any part of them
//! is copied. Place the layer above a [`CompositeLayer`](crate::composite::CompositeLayer), so that
//! an oversized call of a composite is rejected once, instead of for each of its targets. The layer
//! measures requests without serializing them, and stops as soon as a limit is exceeded.
//!
//! # What counts
//!
//! - The size of a request is the total size of all data that a client fills in: arguments, values
//!   to complete, the parameters of unknown methods, and the `inputResponses` and `requestState` of
//!   tool calls and of requests for prompts and resources.
//! - A text or a key counts as its number of bytes, without escapes and quotes. A text that is a
//!   value counts as at least 4 bytes. Each number, `true`, `false`, `null` and pair of brackets
//!   counts as 4 bytes. The outermost brackets of arguments are free, so a call without arguments,
//!   or with `{}`, has the size zero.
//! - Some fields are free up to a length. Each name, URI, cursor and id is free up to 1024 bytes.
//!   `_meta`, the client information sent on connect and the URIs of subscriptions are free up to
//!   16 KiB. So even small limits allow normal requests, and none of these fields can bypass a
//!   limit.
//! - The depth is the number of nested levels of arrays and objects: the arguments `{}` have 1
//!   level, and `{"a": [1]}` have 2. `_meta` and the client information may always have 16 levels.
//!
//! A limit of zero bytes rejects every call with arguments.
//!
//! If no limit is set, only the transport limits the size: with rmcp, to 16 MiB over pipes and 4
//! MiB over HTTP. In a [configuration file](crate::config), the size limit defaults to 4 MiB. Any
//! size limit also limits the depth to 128 levels.
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

/// A layer that rejects requests that are too large or nested too deep.
///
/// By default there are no limits, and the layer forwards all requests.
///
/// See the [module docs](crate::limit) for how size and depth are measured, and for an example.
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

    /// Sets the maximum size of a request in bytes. The module docs list [what
    /// counts](crate::limit#what-counts) besides the arguments. Defaults to no limit.
    #[must_use]
    pub const fn max_argument_bytes(self, bytes: usize) -> Self {
        Self(self.0.max_argument_bytes(bytes))
    }

    /// Sets the maximum nesting depth of arrays and objects.
    ///
    /// A request with more than 128 levels is rejected even if `levels` is higher or only a size
    /// limit is set, because no transport parses deeper JSON.
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
