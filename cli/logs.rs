//! The logs of the program, on standard error.

use std::{
    env,
    io::{self, IsTerminal},
};

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    redacted::{Redacted, RedactedJson},
    traces::Traces,
};

/// The format of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people, with colors on a terminal unless `NO_COLOR` is set.
    #[default]
    Text,
    /// A JSON object per line, for log collectors.
    Json,
}

/// Starts to log to standard error, without secrets, with the filter `RUST_LOG` or else
/// `default_filter`. Records spans, too, if there is an exporter; the filter does not affect them.
pub(crate) fn start(
    default_filter: &str,
    format: LogFormat,
    redacted: &Redacted,
    traces: Option<&Traces>,
) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| default_filter.into());
    let layer = tracing_subscriber::fmt::layer();
    let layer = match format {
        LogFormat::Text => layer.with_writer(redacted.clone()).with_ansi(has_colors()).boxed(),
        LogFormat::Json => {
            let layer = layer.json().flatten_event(true).with_span_list(false);
            layer.with_writer(RedactedJson(redacted.clone())).boxed()
        }
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .with(traces.map(Traces::layer))
        .init();
}

/// Returns whether standard error shows colors; see <https://no-color.org>.
fn has_colors() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
