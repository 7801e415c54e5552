//! Propagates the trace contexts of spans that `tracing-opentelemetry` records.

use opentelemetry::{
    Context as OtelContext,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{Propagate, TraceContext};

/// Propagates the trace contexts of spans that `tracing-opentelemetry` records. Backends then
/// receive the IDs of the spans that are exported.
///
/// With `OpenTelemetry`, the trace context of a request determines the parent of the request's
/// span. If a local span is active, such as the span of an HTTP request, the new span has a link to
/// it. If a span is not recorded, backends receive the trace context of its closest recorded
/// ancestor, which may be a span of the caller. So backends only receive IDs of spans that are
/// exported.
///
/// `OpenTelemetry` always uses the W3C Trace Context format, as MCP does. It ignores the
/// propagators of the `opentelemetry` crate.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use mcp_composite::{
///     stack::StackLayer,
///     testing::{self, Server},
///     trace::{OpenTelemetry, TraceLayer},
/// };
/// use opentelemetry::trace::TracerProvider;
/// use opentelemetry_sdk::trace::SdkTracerProvider;
/// use serde_json::json;
/// use tower::Layer;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let provider = SdkTracerProvider::builder().build(); // with an exporter
/// let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("gateway"));
/// let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(spans));
///
/// let server = Server::new().says("search", "found");
/// let trace = TraceLayer::new().propagate(OpenTelemetry);
/// testing::call(&StackLayer::new().trace(trace).layer(server.clone()), "search", json!({})).await;
///
/// // The server is told of the trace that begins with the span of the request.
/// assert!(server.requests()[0].context().trace().is_some());
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "there is nothing to set")]
pub struct OpenTelemetry;

// === impl OpenTelemetry ===

impl Propagate for OpenTelemetry {
    fn extract(&self, incoming: &TraceContext, span: &Span) {
        let around = Span::current().context().span().span_context().clone();
        let parent = OtelContext::new().with_remote_span_context(incoming.into());
        // Setting the parent fails if the span is not recorded. In this case, do not add a link.
        let is_set = span.set_parent(parent).is_ok();
        if is_set && around.span_id() != SpanId::from_bytes(incoming.span_id()) {
            span.add_link(around);
        }
    }

    fn inject(&self, incoming: Option<&TraceContext>, span: &Span) -> Option<TraceContext> {
        TraceContext::of(span)
            .or_else(|| incoming.cloned())
            .or_else(|| TraceContext::of(&Span::current()))
    }
}

// === impl TraceContext ===

impl TraceContext {
    /// Returns the trace context of a span. Returns `None` if the span is not recorded.
    fn of(span: &Span) -> Option<Self> {
        let context = span.context();
        let span = context.span();
        let span = span.span_context();
        let flags = span.trace_flags().to_u8();
        let context = Self::new(span.trace_id().to_bytes(), span.span_id().to_bytes(), flags)?;
        Some(context.with_state(&span.trace_state().header()))
    }
}

impl From<&TraceContext> for SpanContext {
    fn from(context: &TraceContext) -> Self {
        let state = context.state().and_then(|state| state.parse().ok());
        Self::new(
            TraceId::from_bytes(context.trace_id()),
            SpanId::from_bytes(context.span_id()),
            TraceFlags::new(context.flags()),
            true,
            state.unwrap_or(TraceState::NONE),
        )
    }
}
