//! The answers of a well-behaved server, in both versions of the protocol.

use serde_json::{Value, json};

use crate::{Refusal, Request, refusal};

pub(crate) const MODERN_VERSION: &str = "2026-07-28";
const LEGACY_VERSION: &str = "2025-11-25";
const INSTRUCTIONS: &str = "This server misbehaves on command.";

fn server_info() -> Value {
    json!({"name": "misbehaving", "version": "1.0.0"})
}

fn capabilities() -> Value {
    json!({
        "tools": {"listChanged": true},
        "prompts": {},
        "resources": {"subscribe": true},
        "completions": {},
    })
}

pub(crate) fn handshake() -> Value {
    json!({
        "protocolVersion": LEGACY_VERSION,
        "capabilities": capabilities(),
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    })
}

pub(crate) fn discovery() -> Value {
    json!({
        "supportedVersions": [MODERN_VERSION],
        "capabilities": capabilities(),
        "instructions": INSTRUCTIONS,
    })
}

/// Adds the fields that every result requires since 2026-07-28.
pub(crate) fn modernize(method: &str, result: &mut Value) {
    if result.get("resultType").is_none() {
        result["resultType"] = "complete".into();
    }
    result["_meta"]["io.modelcontextprotocol/serverInfo"] = server_info();
    let cacheable =
        method == "server/discover" || method == "resources/read" || method.ends_with("/list");
    if cacheable {
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
    }
}

/// Answers requests that need no state.
pub(crate) fn answer(request: &Request, modern: bool) -> Result<Value, Refusal> {
    let params = &request.params;
    match request.method.as_str() {
        "ping" => Ok(json!({})),
        "prompts/list" => Ok(json!({"prompts": [{
            "name": "greeting",
            "description": "Greets someone",
            "arguments": [{"name": "who", "description": "Whom to greet", "required": true}],
        }]})),
        "prompts/get" => prompt(params),
        "resources/list" => Ok(json!({"resources": [
            {"uri": "test://one", "name": "one", "mimeType": "text/plain"},
            {"uri": "test://two", "name": "two", "mimeType": "text/plain"},
        ]})),
        "resources/read" => resource(params, modern),
        "resources/templates/list" => Ok(json!({"resourceTemplates": [
            {"uriTemplate": "test://item/{id}", "name": "item", "mimeType": "text/plain"},
        ]})),
        "completion/complete" => Ok(completion(params)),
        method => Err(no_such_method(method)),
    }
}

pub(crate) fn no_such_method(method: &str) -> Refusal {
    refusal(-32601, format!("no such method: {method}"))
}

fn prompt(params: &Value) -> Result<Value, Refusal> {
    if params["name"] != "greeting" {
        return Err(refusal(-32602, format!("no such prompt: {}", params["name"])));
    }
    let Some(who) = params["arguments"]["who"].as_str() else {
        return Err(refusal(-32602, "whom to greet?"));
    };
    let text = format!("Hello, {who}!");
    Ok(json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}))
}

fn resource(params: &Value, modern: bool) -> Result<Value, Refusal> {
    let uri = params["uri"].as_str().unwrap_or_default();
    let text = match uri {
        "test://one" => "the first".to_owned(),
        "test://two" => "the second".to_owned(),
        _ => match uri.strip_prefix("test://item/") {
            Some(id) => format!("item {id}"),
            None => {
                // The code changed with 2026-07-28.
                let code = if modern { -32602 } else { -32002 };
                return Err((code, format!("no such resource: {uri}"), json!({"uri": uri})));
            }
        },
    };
    Ok(json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}))
}

fn completion(params: &Value) -> Value {
    let typed = params["argument"]["value"].as_str().unwrap_or_default();
    let values: Vec<_> = ["alpha", "alphabet", "beta"]
        .into_iter()
        .filter(|candidate| candidate.starts_with(typed))
        .collect();
    json!({"completion": {"values": values, "total": values.len(), "hasMore": false}})
}
