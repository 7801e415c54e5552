//! Limits the size and nesting depth of requests.
//!
//! A [`LimitLayer`] rejects requests that are too large or nested too deeply, before any part of
//! them is copied. Place the layer above a [`CompositeLayer`](crate::composite::CompositeLayer), so
//! that an oversized call to a composite is rejected once, instead of once for each of its targets.
//! The layer measures requests without serializing them, and stops measuring as soon as a limit is
//! exceeded.
//!
//! # What counts
//!
//! - The size of a request is the total size of the data that the client can choose: arguments,
//!   values to complete, parameters of unknown methods, and the `inputResponses` and `requestState`
//!   of requests to call a tool, get a prompt or read a resource.
//! - Each string and key counts with its length in bytes, without quotes and escapes. A string
//!   value counts with at least 4 bytes. Each number, `true`, `false`, `null` and pair of brackets
//!   counts with 4 bytes. The outermost brackets of the arguments do not count, so a call without
//!   arguments, or with the arguments `{}`, has the size zero.
//! - Some fields count only if they exceed a certain length, so that normal requests pass even
//!   small limits, but none of these fields can be used to bypass a limit. This length is 1024
//!   bytes for each name, URI, cursor and ID. It is 16 KiB for `_meta`, for the client information
//!   that is sent on connect, and for the URIs of subscriptions.
//! - The depth of a request is the number of nested levels of arrays and objects: the arguments
//!   `{}` have 1 level, and `{"a": [1]}` has 2. `_meta` and the client information may always have
//!   up to 16 levels.
//!
//! A [size limit](LimitLayer::max_argument_bytes) of zero rejects every call with arguments.
//!
//! A new [`LimitLayer`] has no limits, so that only the transport limits the size of requests: with
//! rmcp, to 16 MiB over pipes and to 4 MiB over HTTP. In a [configuration file](crate::config), the
//! size limit defaults to 4 MiB. Every size limit also limits the depth to 128 levels.
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

/// A layer that rejects requests that are too large or nested too deeply.
///
/// A new `LimitLayer` has no limits and forwards all requests. See the [module docs](crate::limit)
/// for how size and depth are measured, and for an example.
#[derive(Clone, Debug, Default)]
pub struct LimitLayer(Bounds);

/// Middleware that rejects requests that are too large or nested too deeply. Created by
/// [`LimitLayer`].
pub type Limit<S> = Intercepted<LimitLayer, S>;

// === impl LimitLayer ===

impl LimitLayer {
    /// Creates a layer without limits.
    #[must_use]
    pub const fn new() -> Self {
        Self(Bounds::new())
    }

    /// Sets the maximum size of a request in bytes. The size includes the arguments and [other
    /// data](crate::limit#what-counts) from the client. Defaults to no limit.
    #[must_use]
    pub const fn max_argument_bytes(self, bytes: usize) -> Self {
        Self(self.0.max_argument_bytes(bytes))
    }

    /// Sets the maximum nesting depth of the arrays and objects in a request. Defaults to no limit.
    /// The effective limit is at most 128 levels, even if `levels` is greater. It is 128 levels if
    /// you set only a size limit.
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
