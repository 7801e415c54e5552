//! Creates the tracing spans of runs and tool calls, and records outcomes in them.
//!
//! The spans have the target `mcp_composite::run`, like the logs of [`observe`](crate::observe).
//! When a span is created, all fields that may be recorded later are declared, because `tracing`
//! cannot add fields to a span.

mod end;

use std::borrow::Cow;

use rmcp::model::{CallToolResult, JsonObject};
use tracing::{Span, field::Empty};

pub(crate) use self::end::End;
use crate::{
    message::{ItemKind, content_size},
    observe::{Branch, RunId},
};

/// The maximum size of the arguments or results in a span, in bytes as measured by `content_size`.
/// Larger arguments and results are not recorded.
pub(crate) const MAX_CONTENT: usize = 8 * 1024;

/// Creates the tracing span for a run of a composite.
pub(crate) fn run(
    composite: &str,
    run: RunId,
    branch: Option<Branch<'_>>,
    view: Option<&str>,
) -> Span {
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
        mcp_composite.view = view,
        "error.type" = Empty,
        mcp_composite.status = Empty,
    )
}

/// Creates the tracing span for an attempt of a branch to call its tool.
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
        mcp.method.name = "tools/call",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
        gen_ai.tool.call.arguments = arguments.and_then(json).as_deref(),
        gen_ai.tool.call.result = Empty,
        rpc.response.status_code = Empty,
        "error.type" = Empty,
        mcp_composite.branch = %branch,
        mcp_composite.attempt = attempt,
        mcp_composite.cache = Empty,
        mcp_composite.status = Empty,
    )
}

/// Records a tool result in the tracing span of the call. Does nothing if the result is too large.
pub(crate) fn record_result(span: &Span, result: &CallToolResult) {
    if content_size::of_result(result) <= MAX_CONTENT
        && let Ok(result) = serde_json::to_string(result)
    {
        span.record("gen_ai.tool.call.result", result);
    }
}

/// Records how a tool call used the cache, such as `hit` or `miss`. The current tracing span must
/// be the span of the call.
#[cfg(feature = "cache")]
pub(crate) fn record_cache(used: &'static str) {
    Span::current().record("mcp_composite.cache", used);
}

/// Returns the name of the tracing span for a request. It consists of the method and the tool or
/// prompt that the request names, if any, as in `tools/call search`.
pub(crate) fn name(method: &'static str, target: Option<(ItemKind, &str)>) -> Cow<'static, str> {
    match target {
        Some((_, target)) => format!("{method} {target}").into(),
        None => method.into(),
    }
}

/// Returns the arguments of a tool call as a JSON string. Returns `None` if they are too large for
/// a tracing span.
pub(crate) fn json(arguments: &JsonObject) -> Option<String> {
    let size: usize =
        arguments.iter().map(|(key, value)| key.len() + content_size::of_value(value)).sum();
    (size <= MAX_CONTENT).then(|| serde_json::to_string(arguments).ok())?
}
