//! Prints the plan of a composite.

use std::{error::Error, io};

use futures::future::join_all;
use mcp_composite::config::{Config, Gateway};
use rmcp::model::JsonObject;

use crate::log::Redacted;

/// Connects all backends, and prints the calls of the composite with this input.
pub(crate) async fn plan(
    config: &Config,
    gateway: &Gateway,
    composite: &str,
    input: JsonObject,
    mut out: impl io::Write,
) -> Result<(), Box<dyn Error>> {
    let backends = gateway.backends();
    let connected = join_all(backends.remotes().iter().map(|remote| remote.connected())).await;
    let redacted = Redacted::of(config);
    let mut troubles = Vec::new();
    for (remote, connected) in backends.remotes().iter().zip(connected) {
        if let Err(trouble) = connected {
            troubles.push(format!("backend `{}` is not connected: {trouble}", remote.name()));
        }
    }
    match gateway.preview(composite, input).await {
        Ok(preview) => out.write_all(redacted.text(&preview.to_string()).as_bytes())?,
        Err(error) => troubles.push(error.to_string()),
    }
    out.flush()?;
    if troubles.is_empty() { Ok(()) } else { Err(redacted.text(&troubles.join("\n")).into()) }
}
