//! Metrics for Prometheus, on a listener of their own.

use std::{collections::HashMap, convert::Infallible, net::SocketAddr, time::Duration};

use axum::{Router, http::header::CONTENT_TYPE, middleware, routing::get};
use mcp_composite::config::Gateway;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    guard::Guard,
    listener::{Limits, Listener},
    probes,
};

/// The upper bounds in seconds of the buckets of durations: those that OpenTelemetry recommends for
/// operations of MCP.
const BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// The interval at which measured durations are added to their buckets, which frees memory.
const UPKEEP: Duration = Duration::from_secs(5);
/// The limits of the listener, which has few clients. Connections are short, so that clients cannot
/// keep probes out.
const LIMITS: Limits = Limits {
    connections: 64,
    idle: Duration::from_secs(10),
    body: Duration::from_secs(10),
    keep_alive: false,
};

/// The beginning of the label with the path of a view. A path has no character that is escaped.
const VIEW_LABEL: &str = "mcp_composite_view=\"";

/// The recorder of the process, which receives all metrics.
#[derive(Clone)]
pub(crate) struct Metrics(PrometheusHandle);

// === impl Metrics ===

impl Metrics {
    /// Installs a recorder. Without one, metrics cost nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has a recorder.
    pub(crate) fn install() -> Result<Self, String> {
        let recorder = PrometheusBuilder::new()
            .with_recommended_naming(true)
            .set_buckets(&BUCKETS)
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| format!("cannot record metrics: {error}"))?;
        mcp_composite::metrics::describe();
        Ok(Self(recorder))
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` of a gateway, or of one view of it, and keeps
    /// serving them while the process drains. The process is not ready after `stop` is cancelled.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be bound.
    pub(crate) async fn listen(
        self,
        address: SocketAddr,
        gateway: &Gateway,
        view: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<impl Future<Output = Infallible>, String> {
        let listener = Listener::bind(address, LIMITS).await?;
        let address = listener.address().map_err(|error| error.to_string())?;
        tracing::info!("serving metrics at http://{address}/metrics");
        let Self(recorder) = self;
        let (rendered, views) = (recorder.clone(), gateway.clone());
        let own = view.map(str::to_owned);
        let render = async move || {
            let is_running =
                |path: &str| own.as_deref() == Some(path) || views.view(path).is_some();
            let text = of_running_views(&rendered.render(), is_running);
            ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
        };
        let mut metrics = Router::new().route("/metrics", get(render));
        // Other machines use any name of this one.
        if address.ip().is_loopback() {
            let guard = Guard::new(false);
            let guarded = middleware::from_fn(move |request, next| guard.check(request, next));
            metrics = metrics.layer(guarded);
        }
        let app = metrics.merge(probes::routes(gateway, stop));
        let upkeep = async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                recorder.run_upkeep();
            }
        };
        Ok(async move {
            tokio::select! {
                never = listener.serve_forever(app) => never,
                never = upkeep => never,
            }
        })
    }
}

/// Returns the exposition without the metrics of removed views, so that the number of values of the
/// label is bounded.
fn of_running_views(text: &str, is_running: impl Fn(&str) -> bool) -> String {
    let mut known = HashMap::new();
    let mut is_kept = |line: &str| {
        let Some((_, rest)) = line.split_once(VIEW_LABEL) else { return true };
        let path = rest.split('"').next().unwrap_or_default();
        *known.entry(path.to_owned()).or_insert_with(|| is_running(path))
    };
    text.split_inclusive('\n').filter(|line| line.starts_with('#') || is_kept(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_removed_views_are_left_out() {
        let text = "# TYPE a counter\na 1\na{mcp_composite_view=\"/a\"} 2\n\
                    a{b=\"c\",mcp_composite_view=\"/b\",d=\"e\"} 3\n";
        let kept = of_running_views(text, |path| path == "/b");
        assert_eq!(kept, text.replace("a{mcp_composite_view=\"/a\"} 2\n", ""));
        assert_eq!(of_running_views(text, |_| true), text);
    }
}
