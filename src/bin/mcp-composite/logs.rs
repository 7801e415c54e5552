//! The logs of the program, on standard error.

use std::{
    env,
    error::Error,
    io::{self, IsTerminal, Write},
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

/// Writes the error with which the program ends to standard error, in the format of the log.
pub(crate) fn write_error(error: &dyn Error, format: LogFormat) {
    match format {
        LogFormat::Text => {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "{error}");
        }
        LogFormat::Json => {
            // The filter of the log does not apply, and the log may not have started.
            let layer = tracing_subscriber::fmt::layer().json().flatten_event(true);
            let layer = layer.with_span_list(false).with_writer(io::stderr);
            let subscriber = tracing_subscriber::registry().with(layer);
            tracing::subscriber::with_default(subscriber, || tracing::error!("{error}"));
        }
    }
}

/// Returns whether standard error shows colors; see <https://no-color.org>.
fn has_colors() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
