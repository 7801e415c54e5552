//! Spans for a collector of OpenTelemetry, over OTLP.

use std::{env, time::Duration};

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing::Subscriber;
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

/// The time that the last spans have to reach the collector.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The exporter of the process. Spans are sent by a thread of its own, from a queue of limited
/// length: while the collector is unreachable, spans are dropped, and calls are not delayed.
#[derive(Clone)]
pub(crate) struct Traces(SdkTracerProvider);

// === impl Traces ===

impl Traces {
    /// Starts an exporter as the environment variables of OpenTelemetry define it. Returns `None`
    /// if they name no endpoint, or disable traces.
    ///
    /// Must not be called in an async context.
    ///
    /// # Errors
    ///
    /// Returns an error if a variable is invalid, or demands another protocol than `http/protobuf`.
    pub(crate) fn from_env() -> Result<Option<Self>, String> {
        let has = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is = |name, value| env::var(name).is_ok_and(|text| text.eq_ignore_ascii_case(value));
        let has_endpoint =
            has("OTEL_EXPORTER_OTLP_ENDPOINT") || has("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        if !has_endpoint || is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            match env::var(name) {
                Ok(protocol) if protocol.is_empty() || protocol == "http/protobuf" => (),
                Ok(protocol) => {
                    return Err(format!(
                        "cannot export spans: `{name}` is `{protocol}`, but this program supports \
                         `http/protobuf` only; collectors receive it at port 4318 by default"
                    ));
                }
                Err(_) => continue,
            }
            // The specific variable takes precedence.
            break;
        }
        let exporter = SpanExporter::builder().with_http().build();
        let exporter = exporter.map_err(|error| format!("cannot export spans: {error}"))?;
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter);
        Ok(Some(Self(provider.with_resource(resource()).build())))
    }

    /// Returns the layer that records the spans of requests and runs. It records no log messages:
    /// they may contain secrets, which only the log redacts.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'s> LookupSpan<'s>,
    {
        let layer = tracing_opentelemetry::layer().with_tracer(self.0.tracer("mcp-composite"));
        layer.with_filter(filter_fn(|metadata| {
            metadata.is_span()
                && matches!(metadata.target(), "mcp_composite::trace" | "mcp_composite::run")
        }))
    }

    /// Sends the remaining spans, for at most three seconds. Must not be called in an async
    /// context.
    pub(crate) fn close(&self) {
        if let Err(error) = self.0.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
            tracing::warn!("the last spans were not exported: {error}");
        }
    }
}

/// Returns the description of this process, with the default name of the service.
fn resource() -> Resource {
    let attributes = env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    let is_named = env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty())
        || attributes.contains("service.name=");
    let resource = Resource::builder();
    if is_named { resource.build() } else { resource.with_service_name("mcp-composite").build() }
}
