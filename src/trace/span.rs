//! The spans, each with all fields that it may ever have.

use std::borrow::Cow;

use rmcp::model::{JsonObject, ServerResult};
use serde_json::Value;
use tracing::{Span, field::Empty};

use super::names::{Names, is_fit};
use crate::{
    message::{Context, ItemKind, Reply, Request, Subject, known_method, size},
    observe::{Branch, RunId},
};

/// How large arguments and results are that spans have, in bytes as all messages are measured.
const MAX_CONTENT: usize = 8 * 1024;
/// How long an id or a version may be that a client gives.
const MAX_ID: usize = 128;

/// The span of a request of a client.
///
/// Nothing of it is looked at but for a subscriber that wants the span.
pub(super) fn server(request: &Request, names: &Names) -> Span {
    let context = request.context();
    tracing::info_span!(
        target: "mcp_composite::trace",
        "mcp.server",
        otel.name = &*known_name(request, names),
        otel.kind = "server",
        otel.status_code = Empty,
        otel.status_description = Empty,
        mcp.method.name = operation(request).0,
        mcp.protocol.version = protocol_version(context).as_deref(),
        mcp.session.id = session_id(context),
        mcp.resource.uri = resource(request),
        network.transport = is_http(context).then_some("tcp"),
        network.protocol.name = is_http(context).then_some("http"),
        jsonrpc.request.id = told(Some(context.id().to_string())).as_deref(),
        gen_ai.operation.name = request.tool_call().map(|_| "execute_tool"),
        gen_ai.tool.name = named(request, ItemKind::Tool),
        gen_ai.prompt.name = named(request, ItemKind::Prompt),
        gen_ai.tool.call.arguments = arguments(request).as_deref(),
        gen_ai.tool.call.result = Empty,
        rpc.response.status_code = Empty,
        "error.type" = Empty,
        mcp_composite.status = Empty,
    )
}

/// The span of a run of a composite.
pub(crate) fn run(composite: &str, run: RunId, branch: Option<Branch<'_>>) -> Span {
    tracing::info_span!(
        target: "mcp_composite::run",
        "gen_ai.workflow",
        otel.name = &*format!("invoke_workflow {composite}"),
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_workflow",
        gen_ai.workflow.name = composite,
        gen_ai.agent.name = composite,
        mcp_composite.run.id = %run,
        mcp_composite.branch = branch.map(tracing::field::display),
        mcp_composite.limit = Empty,
        "error.type" = Empty,
        mcp_composite.status = Empty,
    )
}

/// The span of an attempt to call the tool of a branch.
pub(crate) fn call(
    tool: &str,
    branch: Branch<'_>,
    attempt: u32,
    arguments: Option<&JsonObject>,
) -> Span {
    tracing::info_span!(
        target: "mcp_composite::run",
        "mcp.client",
        otel.name = &*name("tools/call", Some((ItemKind::Tool, tool))),
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        mcp.method.name = "tools/call",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
        gen_ai.tool.call.arguments = arguments.and_then(json).as_deref(),
        gen_ai.tool.call.result = Empty,
        rpc.response.status_code = Empty,
        "error.type" = Empty,
        mcp_composite.branch = %branch,
        mcp_composite.attempt = attempt,
        mcp_composite.status = Empty,
    )
}

/// Whether a subscriber wants spans of runs.
pub(crate) fn runs_are_wanted() -> bool {
    tracing::span_enabled!(target: "mcp_composite::run", tracing::Level::INFO)
}

/// Puts into the span of a request what it was answered, for those who want contents.
pub(super) fn record_answer(span: &Span, reply: &Reply) {
    match reply.result() {
        Some(ServerResult::CallToolResult(result)) => record_result(span, result),
        Some(_) => (),
        None => {
            if let Some(error) = reply.error() {
                span.record("otel.status_description", &*error.message);
            }
        }
    }
}

/// The same for what a tool has answered.
pub(crate) fn record_result(span: &Span, result: &rmcp::model::CallToolResult) {
    if size::of_result(result) <= MAX_CONTENT
        && let Ok(result) = serde_json::to_string(result)
    {
        span.record("gen_ai.tool.call.result", result);
    }
}

/// The method of a request, of which there are few, and what it is about if that has a name.
pub(super) fn operation(request: &Request) -> (&'static str, Option<(ItemKind, &str)>) {
    let method = known_method(request.method()).unwrap_or("_OTHER");
    let target = match (method, request.subject()) {
        ("tools/call" | "prompts/get", Subject::Item(kind, name)) => Some((kind, name)),
        _ => None,
    };
    (method, target)
}

/// What a span is called.
fn name(method: &'static str, target: Option<(ItemKind, &str)>) -> Cow<'static, str> {
    match target {
        Some((_, target)) => format!("{method} {target}").into(),
        None => method.into(),
    }
}

/// What the span of a request is called before it is answered.
fn known_name(request: &Request, names: &Names) -> Cow<'static, str> {
    let (method, target) = operation(request);
    name(method, target.filter(|(kind, name)| names.knows(*kind, name)))
}

fn named(request: &Request, wanted: ItemKind) -> Option<&str> {
    let (kind, name) = operation(request).1?;
    (kind == wanted && is_fit(name)).then_some(name)
}

fn arguments(request: &Request) -> Option<String> {
    let call = request.tool_call().filter(|_| request.context().is_traced_with_contents())?;
    json(call.arguments.as_ref()?)
}

fn json(arguments: &JsonObject) -> Option<String> {
    let size: usize = arguments.iter().map(|(key, value)| key.len() + size::of_value(value)).sum();
    (size <= MAX_CONTENT).then(|| serde_json::to_string(arguments).ok())?
}

fn resource(request: &Request) -> Option<&str> {
    match request.subject() {
        Subject::Item(ItemKind::Resource, uri)
            if request.context().is_traced_with_contents() && uri.len() <= MAX_CONTENT =>
        {
            Some(uri)
        }
        _ => None,
    }
}

/// What the client speaks, as it says now or said when it introduced itself.
fn protocol_version(context: &Context) -> Option<Cow<'_, str>> {
    match context.meta().get("io.modelcontextprotocol/protocolVersion") {
        Some(Value::String(version)) => told(Some(version)).map(|version| version.as_str().into()),
        Some(_) => None,
        None => {
            let info = context.peer()?.peer_info()?;
            told(Some(info.protocol_version.to_string())).map(Cow::Owned)
        }
    }
}

/// What a client says, unless that is no short text.
fn told<T: AsRef<str>>(text: Option<T>) -> Option<T> {
    text.filter(|text| text.as_ref().len() <= MAX_ID && is_fit(text.as_ref()))
}

#[cfg(feature = "http")]
fn is_http(context: &Context) -> bool {
    context.extensions().get::<http::request::Parts>().is_some()
}

#[cfg(not(feature = "http"))]
const fn is_http(_: &Context) -> bool {
    false
}

#[cfg(feature = "http")]
fn session_id(context: &Context) -> Option<&str> {
    let parts = context.extensions().get::<http::request::Parts>()?;
    told(parts.headers.get("mcp-session-id")?.to_str().ok())
}

#[cfg(not(feature = "http"))]
const fn session_id(_: &Context) -> Option<&str> {
    None
}
