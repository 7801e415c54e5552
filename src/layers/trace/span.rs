//! The span of a client request.

use std::borrow::Cow;

use serde_json::Value;
use tracing::{Span, field::Empty};

use super::names::{KnownNames, is_fit};
use crate::{
    message::{Context, ItemKind, Reply, Request, Subject, known_method},
    spans::{End, MAX_CONTENT, json, name, record_result},
};

/// Maximum length, in bytes, of a request ID or protocol version that is recorded. Clients can send
/// texts of any length.
const MAX_CLIENT_ID: usize = 128;

/// Creates the span of a request. Fields that are known only after the reply are declared as empty.
///
/// The values of the other fields are computed only if a subscriber has enabled the span.
pub(super) fn server(request: &Request, names: &KnownNames) -> Span {
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
        jsonrpc.request.id = short_text(context.id_within(MAX_CLIENT_ID)).as_deref(),
        gen_ai.operation.name = request.tool_call().map(|_| "execute_tool"),
        gen_ai.tool.name = named(request, ItemKind::Tool),
        gen_ai.prompt.name = named(request, ItemKind::Prompt),
        gen_ai.tool.call.arguments = arguments(request).as_deref(),
        gen_ai.tool.call.result = Empty,
        rpc.response.status_code = Empty,
        "error.type" = Empty,
        mcp_composite.view = context.view().map(|view| &**view),
        mcp_composite.cache = Empty,
        mcp_composite.status = Empty,
    )
}

/// Records the content of a reply in the span of its request: the tool result, or the message of
/// the error.
///
/// The message of an error is recorded only if `end` contains an error. Otherwise, exporters would
/// show the request as failed, because they mark every span with a status description as failed.
pub(super) fn record_answer(span: &Span, reply: &Reply, end: &End) {
    if let Some(result) = reply.tool_result() {
        record_result(span, result);
    } else if end.error.is_some()
        && let Some(error) = reply.error()
        && error.message.len() <= MAX_CONTENT
    {
        span.record("otel.status_description", &*error.message);
    }
}

/// Returns the method of a request. For `tools/call` and `prompts/get`, also returns the called
/// tool or requested prompt. Replaces a method that the protocol does not define with `_OTHER`, so
/// that clients cannot add any number of methods to spans and metrics.
pub(super) fn operation(request: &Request) -> (&'static str, Option<(ItemKind, &str)>) {
    let method = known_method(request.method()).unwrap_or("_OTHER");
    let target = match (method, request.subject()) {
        ("tools/call" | "prompts/get", Subject::Item(kind, name)) => Some((kind, name)),
        _ => None,
    };
    (method, target)
}

/// Returns the name of the span, for example `tools/call search`. The name contains the tool or
/// prompt only if it is in `names`, because clients can send any name.
fn known_name(request: &Request, names: &KnownNames) -> Cow<'static, str> {
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

/// Returns the protocol version of the client: the version in the `_meta` of the request or, if
/// there is none, the version in the client's `initialize` request.
fn protocol_version(context: &Context) -> Option<Cow<'_, str>> {
    match context.meta().get("io.modelcontextprotocol/protocolVersion") {
        Some(Value::String(version)) => {
            short_text(Some(version)).map(|version| version.as_str().into())
        }
        Some(_) => None,
        None => {
            let info = context.peer()?.peer_info()?;
            let version = short_text(Some(info.protocol_version.as_str()))?;
            Some(Cow::Owned(version.to_owned()))
        }
    }
}

/// Returns `text`, which a client has sent, unless it is too long to be recorded or contains
/// control characters. Otherwise, returns `None`.
fn short_text<T: AsRef<str>>(text: Option<T>) -> Option<T> {
    text.filter(|text| text.as_ref().len() <= MAX_CLIENT_ID && is_fit(text.as_ref()))
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
    short_text(parts.headers.get("mcp-session-id")?.to_str().ok())
}

#[cfg(not(feature = "http"))]
const fn session_id(_: &Context) -> Option<&str> {
    None
}
