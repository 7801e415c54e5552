//! Prints the tools that clients would see, and the problems found.

use std::{error::Error, fmt::Write as _, io};

use futures::future::join_all;
use mcp_composite::{
    adapter::router::Problem,
    advertise::AdvertiseLayer,
    config::{Config, Gateway},
    message::{BackendError, Context, Reply, Request},
};
use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, Tool,
};
use serde::Serialize;
use tower::{Layer, Service, ServiceExt};

use crate::log::Redacted;

/// Connects all backends, prints the tools, and fails if there are problems.
#[expect(clippy::too_many_lines, reason = "the sections of one report, in order")]
pub(crate) async fn check(
    config: &Config,
    gateway: &Gateway,
    mut out: impl io::Write,
) -> Result<(), Box<dyn Error>> {
    let backends = gateway.backends();
    let (mut mistakes, mut absent) = (Vec::new(), Vec::new());
    let mut text = String::from("backends\n");
    let connected = join_all(backends.remotes().iter().map(|remote| remote.connected())).await;
    for (remote, connected) in backends.remotes().iter().zip(connected) {
        let name = remote.name();
        match (connected, remote.server_info()) {
            (Err(trouble), _) => {
                writeln!(text, "  {name}: not connected")?;
                absent.push(name);
                mistakes.push(format!("backend `{name}` is not connected: {trouble}"));
            }
            (Ok(()), info) => {
                let info = info.as_deref();
                let server = info.and_then(|info| info.server_info.as_ref());
                let server = server.map(|server| format!("{} {}, ", server.name, server.version));
                let protocol = info.map_or("?", |info| info.protocol_version.as_str());
                writeln!(text, "  {name}: {}MCP {protocol}", server.unwrap_or_default())?;
            }
        }
    }

    let tools = list(gateway.service()).await?;
    // The same, as if all of them were advertised.
    let everything = config.stack_layer().advertise(AdvertiseLayer::new());
    let mut hidden = list(everything.layer(backends.router().clone())).await?;
    hidden.retain(|tool| !tools.iter().any(|shown| shown.name == tool.name));
    let composites = config.composite_tools();
    let (composites, tools): (Vec<_>, Vec<_>) = tools
        .iter()
        .partition(|tool| composites.iter().any(|composite| composite.name() == tool.name));
    writeln!(text, "\ntools")?;
    for tool in tools {
        describe(tool, &mut text)?;
    }
    writeln!(text, "\ncomposites")?;
    for tool in composites {
        describe(tool, &mut text)?;
    }
    if !hidden.is_empty() {
        writeln!(text, "\nnot advertised")?;
        for tool in hidden {
            writeln!(text, "  {}", tool.name)?;
        }
    }
    list_the_rest(gateway).await?;
    let composite_layer = config.composite_layer();
    let mut remarks = composite_layer.remarks();
    for problem in backends.router().problems() {
        match &problem {
            // That a backend is not connected was already reported.
            Problem::NotListed { backend, .. } if absent.contains(&&**backend) => (),
            // Expected with `conflicts = "priority"`.
            Problem::Shadowed { .. } => remarks.push(problem.to_string()),
            _ => mistakes.push(problem.to_string()),
        }
    }
    mistakes.extend(gateway.warnings());
    if !remarks.is_empty() {
        writeln!(text, "\nremarks\n  {}", remarks.join("\n  "))?;
    }

    let redacted = Redacted::of(config);
    // Text from servers must not control the terminal.
    let text = text.replace(|c: char| c.is_control() && c != '\n', " ");
    out.write_all(redacted.text(&text).as_bytes())?;
    out.flush()?;
    if mistakes.is_empty() { Ok(()) } else { Err(redacted.text(&mistakes.join("\n")).into()) }
}

/// Lists prompts and resources too, since that finds their problems.
async fn list_the_rest(gateway: &Gateway) -> Result<(), BackendError> {
    let requests: [ClientRequest; 3] = [
        ListPromptsRequest::default().into(),
        ListResourcesRequest::default().into(),
        ListResourceTemplatesRequest::default().into(),
    ];
    for request in requests {
        let request = Request::new(request, Context::default());
        gateway.service().oneshot(request).await?;
    }
    Ok(())
}

/// Returns all tools that a service lists.
async fn list<S>(stack: S) -> Result<Vec<Tool>, Box<dyn Error>>
where
    S: Service<Request, Response = Reply, Error = BackendError> + Clone,
{
    let mut tools = Vec::new();
    let mut cursor = None;
    loop {
        let reply = stack.clone().oneshot(Request::list_tools_from(cursor)).await?;
        let page = reply.tools().ok_or("`tools/list` was answered with something else")?;
        tools.extend(page.tools.iter().cloned());
        cursor = page.next_cursor.clone();
        if cursor.is_none() {
            return Ok(tools);
        }
    }
}

fn describe(tool: &Tool, text: &mut String) -> Result<(), Box<dyn Error>> {
    writeln!(text, "  {}", tool.name)?;
    if let Some(description) = tool.description.as_deref().and_then(|text| text.lines().next()) {
        writeln!(text, "    {description}")?;
    }
    line("input", Some(&*tool.input_schema), text)?;
    line("output", tool.output_schema.as_deref(), text)?;
    line("annotations", tool.annotations.as_ref(), text)
}

fn line(
    what: &str,
    value: Option<&impl Serialize>,
    text: &mut String,
) -> Result<(), Box<dyn Error>> {
    if let Some(value) = value {
        writeln!(text, "    {what}: {}", serde_json::to_string(value)?)?;
    }
    Ok(())
}
