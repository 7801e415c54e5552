//! How much a client may send.
//!
//! A [`LimitLayer`] refuses requests that are too large or nested too deep, once
//! and before anything of them is copied: above a
//! [`CompositeLayer`](crate::composite::CompositeLayer), an oversized call is one
//! refusal, and not one failure of each target. It measures without building a
//! string, and stops as soon as a limit is passed.
//!
//! # What counts
//!
//! - Everything that a client fills: arguments, `inputResponses` and
//!   `requestState` of calls, prompts and resources, values to complete, the
//!   parameters of methods that nobody knows. Texts and keys count their bytes,
//!   without escapes and quotes; numbers, `true`, `false`, `null`, pairs of
//!   brackets and shorter texts count 4. The brackets around all arguments count
//!   nothing: a call without arguments, or with `{}`, measures zero.
//! - Names, URIs, cursors and ids count from their 1025th byte on. `_meta`, what a
//!   client says of itself when it connects, and the URIs that it listens to count
//!   from their 16 KiB on. So small limits work, and nothing is a way around them.
//! - The depth is that of arrays and objects: arguments `{}` have 1 level, and
//!   `{"a": [1]}` have 2. `_meta` may have 16 in any case.
//!
//! A limit of zero bytes lets nothing through but calls without arguments.
//!
//! Without a limit, a request is as large as its transport reads: with rmcp, 16 MiB over
//! pipes and 4 MiB over HTTP. A [file](crate::config) has a limit of 4 MiB, and so of 128
//! levels, unless it says otherwise.
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

/// Refuses requests that are too large.
///
/// By default there are no limits, and the layer changes nothing.
///
/// See the [module docs](crate::limit) for what counts and for an example.
#[derive(Clone, Debug, Default)]
pub struct LimitLayer(Bounds);

/// Middleware that [`LimitLayer`] puts in front of a service.
pub type Limit<S> = Intercepted<LimitLayer, S>;

// === impl LimitLayer ===

impl LimitLayer {
    /// A layer without limits.
    #[must_use]
    pub const fn new() -> Self {
        Self(Bounds::new())
    }

    /// Sets how many bytes of arguments, and of what else counts, a request may
    /// have.
    #[must_use]
    pub const fn max_argument_bytes(self, bytes: usize) -> Self {
        Self(self.0.max_argument_bytes(bytes))
    }

    /// Sets how deep arrays and objects may be nested.
    ///
    /// More than 128 levels are refused whatever this is, and when there is only a
    /// limit of bytes: no deeper JSON is read from any transport.
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
