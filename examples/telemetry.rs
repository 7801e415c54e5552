//! A workflow over two servers, and its OpenTelemetry spans.
//!
//! `cargo run --example telemetry --features opentelemetry` calls a composite and prints the tree
//! of its trace, as it is exported: the request, the run, and each call of a server, one of which
//! is made twice. The client has begun the trace, and both servers receive their parent spans. All
//! of it runs in this process; there is no network.

#![expect(clippy::print_stdout, reason = "it is an example")]

use std::{
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mcp_composite::{
    adapter::{HandlerService, Router, router::Backend},
    composite::{CompositeLayer, CompositeTool, OnError, Retry, Step},
    message::{Context, Request},
    stack::StackLayer,
    trace::{OpenTelemetry, TraceLayer},
};
use opentelemetry::trace::{SpanId, SpanKind, Status, TracerProvider};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use rmcp::{
    RoleServer, ServerHandler,
    model::{CallToolResult, ContentBlock},
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use tower::{Layer, ServiceExt};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

/// The trace context of a client with its own span for the call.
const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A real program uses one of `opentelemetry-otlp` instead of this exporter.
    let exported = Exported::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
    let tracer = provider.tracer("telemetry");
    tracing_subscriber::registry().with(tracing_opentelemetry::layer().with_tracer(tracer)).init();

    let parents = ParentSpans::default();
    let router = Router::builder()
        .backend(Backend::new("shop", HandlerService::new(Shop { parents: parents.clone() })))
        .backend(Backend::new("mail", HandlerService::new(Mail::new(&parents))))
        .build()?;
    let again = OnError::Retry(Retry::times(2).delay(Duration::from_millis(10)));
    let steps = [Step::new("price", "shop_price"), Step::new("send", "mail_send").on_error(again)];
    let offer = CompositeTool::pipeline("offer", "Sends an offer", steps);
    let stack = StackLayer::new()
        .trace(TraceLayer::new().propagate(OpenTelemetry))
        .composite(CompositeLayer::new([offer])?)
        .layer(router);

    let mut request = Request::call_tool("offer");
    request.context_mut().meta_mut().set_traceparent(CALLER);
    stack.oneshot(request).await?;
    provider.shutdown()?;

    let spans = exported.spans();
    let tree = tree(&spans);
    println!("{}", tree.join("\n"));
    let expected = [
        "tools/call offer (server, ok)",
        "  invoke_workflow offer (internal, ok)",
        "    tools/call shop_price (client, ok)",
        "    tools/call mail_send (client, tool_error)",
        "    tools/call mail_send (client, ok)",
    ];
    assert_eq!(tree, expected);

    // The parent spans that the servers received are the exported spans.
    let calls = spans.iter().filter(|span| span.span_kind == SpanKind::Client);
    let calls: Vec<_> = calls.map(|span| span.span_context.span_id()).collect();
    assert_eq!(*parents.lock(), calls);
    Ok(())
}

/// Returns the spans, each below its parent, in the order in which they began.
fn tree(spans: &[SpanData]) -> Vec<String> {
    let mut lines = Vec::new();
    let is_known = |id| spans.iter().any(|span| span.span_context.span_id() == id);
    for root in spans.iter().filter(|span| !is_known(span.parent_span_id)) {
        add(root, spans, 0, &mut lines);
    }
    lines
}

fn add(span: &SpanData, spans: &[SpanData], depth: usize, lines: &mut Vec<String>) {
    let kind = format!("{:?}", span.span_kind).to_lowercase();
    let error = span.attributes.iter().find(|pair| pair.key.as_str() == "error.type");
    let end = match (&span.status, error) {
        (Status::Error { .. }, Some(error)) => error.value.to_string(),
        (Status::Error { .. }, None) => "failed".to_owned(),
        _ => "ok".to_owned(),
    };
    lines.push(format!("{}{} ({kind}, {end})", "  ".repeat(depth), span.name));
    let id = span.span_context.span_id();
    for child in spans.iter().filter(|child| child.parent_span_id == id) {
        add(child, spans, depth + 1, lines);
    }
}

// === The exporter ===

/// Keeps the spans that have ended.
#[derive(Clone, Debug, Default)]
struct Exported(Arc<Mutex<Vec<SpanData>>>);

impl Exported {
    fn spans(&self) -> Vec<SpanData> {
        let mut spans = self.0.lock().map(|spans| spans.clone()).unwrap_or_default();
        spans.sort_by_key(|span| span.start_time);
        spans
    }
}

impl SpanExporter for Exported {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        if let Ok(mut spans) = self.0.lock() {
            spans.extend(batch);
        }
        Ok(())
    }
}

// === The servers ===

/// The parent spans that servers received.
#[derive(Clone, Default)]
struct ParentSpans(Arc<Mutex<Vec<SpanId>>>);

struct Shop {
    parents: ParentSpans,
}

/// Fails the first time.
struct Mail {
    parents: ParentSpans,
    is_up: AtomicBool,
}

impl ParentSpans {
    fn record(&self, context: RequestContext<RoleServer>) {
        let context = Context::from(context);
        if let (Some(trace), Ok(mut spans)) = (context.trace(), self.0.lock()) {
            spans.push(SpanId::from_bytes(trace.span_id()));
        }
    }

    fn lock(&self) -> impl std::ops::Deref<Target = Vec<SpanId>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[tool_router]
impl Shop {
    #[tool(description = "The price")]
    fn price(&self, context: RequestContext<RoleServer>) -> String {
        self.parents.record(context);
        "5 €".to_owned()
    }
}

#[tool_handler]
impl ServerHandler for Shop {}

#[tool_router]
impl Mail {
    fn new(parents: &ParentSpans) -> Self {
        Self { parents: parents.clone(), is_up: AtomicBool::new(false) }
    }

    #[tool(description = "Sends an offer")]
    fn send(&self, context: RequestContext<RoleServer>) -> CallToolResult {
        self.parents.record(context);
        if self.is_up.swap(true, Ordering::Relaxed) {
            CallToolResult::success(vec![ContentBlock::text("sent")])
        } else {
            CallToolResult::error(vec![ContentBlock::text("busy")])
        }
    }
}

#[tool_handler]
impl ServerHandler for Mail {}
