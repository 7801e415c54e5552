//! An exporter that keeps spans for tests.

use std::sync::{Arc, Mutex};

use mcp_composite::message::Request;
use opentelemetry::trace::{SpanId, SpanKind, Status, TracerProvider};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt};

use crate::support::subscribe;

/// The spans that have ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exported(Arc<Mutex<Vec<SpanData>>>);

/// Collects spans until it is dropped.
pub(crate) struct Collecting {
    exported: Exported,
    _provider: SdkTracerProvider,
    _subscriber: DefaultGuard,
}

impl SpanExporter for Exported {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

// === impl Collecting ===

impl Collecting {
    /// Exports all spans of this thread.
    pub(crate) fn begin() -> Self {
        Self::filtered("info")
    }

    pub(crate) fn filtered(filter: &str) -> Self {
        let exported = Exported::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(EnvFilter::new(filter)).with(layer);
        let subscriber = subscribe(subscriber);
        Self { exported, _provider: provider, _subscriber: subscriber }
    }

    /// Returns the spans that have ended, in the order in which they began.
    pub(crate) fn spans(&self) -> Vec<SpanData> {
        let mut spans = self.exported.0.lock().unwrap().clone();
        spans.sort_by_key(|span| span.start_time);
        spans
    }

    pub(crate) fn span(&self, name: &str) -> SpanData {
        let spans = self.spans();
        let found = spans.iter().find(|span| span.name == name);
        found.unwrap_or_else(|| panic!("no `{name}` in {:?}", self.names())).clone()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.spans().iter().map(|span| span.name.to_string()).collect()
    }

    /// Returns all spans as an indented tree, with kinds and errors; siblings are sorted by name.
    pub(crate) fn tree(&self) -> Vec<String> {
        let spans = self.spans();
        let is_root = |span: &&SpanData| !spans.iter().any(|other| is_parent(other, span));
        let mut lines = Vec::new();
        for root in spans.iter().filter(is_root) {
            branch(root, &spans, 0, &mut lines);
        }
        lines
    }
}

fn is_parent(parent: &SpanData, child: &SpanData) -> bool {
    parent.span_context.span_id() == child.parent_span_id
}

fn branch(span: &SpanData, spans: &[SpanData], depth: usize, lines: &mut Vec<String>) {
    let kind = match span.span_kind {
        SpanKind::Server => "server",
        SpanKind::Client => "client",
        _ => "internal",
    };
    let failed = if matches!(span.status, Status::Error { .. }) { " ERROR" } else { "" };
    let error = attribute(span, "error.type").map(|error| format!(": {error}"));
    let error = error.unwrap_or_default();
    lines.push(format!("{}{} {kind}{failed}{error}", "  ".repeat(depth), span.name));
    let mut below: Vec<_> = spans.iter().filter(|child| is_parent(span, child)).collect();
    below.sort_by_key(|child| child.name.clone());
    for child in below {
        branch(child, spans, depth + 1, lines);
    }
}

/// Returns the value of a span's attribute.
pub(crate) fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let mut attributes = span.attributes.iter();
    attributes.find(|pair| pair.key.as_str() == key).map(|pair| pair.value.to_string())
}

/// Returns the id of the parent span in a request.
pub(crate) fn parent_span_id(request: &Request) -> Option<SpanId> {
    request.context().trace().map(|trace| SpanId::from_bytes(trace.span_id()))
}
