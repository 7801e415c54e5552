//! Checks that the `Mcp-Param-*` headers of a tool call over HTTP match its arguments (SEP-2243).
//!
//! rmcp makes the same check, but only for tools that it can look up synchronously. Its function is
//! not public, so this module accepts and rejects the same values as rmcp.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::HeaderMap;
use rmcp::model::{ErrorData, JsonObject, ProtocolVersion};
use serde_json::Value;

use super::tools::HEADER_KEYWORD;

/// The common prefix of the headers in which a client repeats call arguments.
const PREFIX: &str = "Mcp-Param-";
const VERSION: &str = "MCP-Protocol-Version";
/// The delimiters around a header value that is encoded in base64.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

/// Returns `true` if the request's protocol version requires `Mcp-Param-*` headers.
pub(super) fn are_required(headers: &HeaderMap) -> bool {
    let version = headers.get(VERSION).and_then(|version| version.to_str().ok());
    version.is_some_and(|version| version >= ProtocolVersion::STANDARD_HEADERS.as_str())
}

/// Compares each `Mcp-Param-*` header with the call argument that it repeats. The tool's input
/// schema names the header of each argument.
///
/// # Errors
///
/// Returns an error for the client if a header is missing, unexpected, or differs from its
/// argument.
pub(super) fn check(
    headers: &HeaderMap,
    schema: &JsonObject,
    arguments: Option<&JsonObject>,
) -> Result<(), ErrorData> {
    check_properties(headers, schema, arguments, "")
        .map_err(|mismatch| ErrorData::header_mismatch(mismatch, None))
}

/// Compares headers with the properties of an object in the call arguments. `path` is the text
/// before the names of the properties in error messages, such as `filter.`. It is empty for the
/// properties of the arguments themselves.
fn check_properties(
    headers: &HeaderMap,
    schema: &JsonObject,
    arguments: Option<&JsonObject>,
    path: &str,
) -> Result<(), String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let Some(property) = property.as_object() else { continue };
        let argument = arguments.and_then(|arguments| arguments.get(name));
        let header = property.get(HEADER_KEYWORD).and_then(Value::as_str);
        if let Some(header) = header.filter(|header| !header.is_empty()) {
            compare(headers, &format!("{PREFIX}{header}"), argument, &format!("{path}{name}"))?;
        }
        let inner = argument.and_then(Value::as_object);
        check_properties(headers, property, inner, &format!("{path}{name}."))?;
    }
    Ok(())
}

fn compare(
    headers: &HeaderMap,
    header: &str,
    argument: Option<&Value>,
    path: &str,
) -> Result<(), String> {
    let mut values = headers.get_all(header).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(format!("duplicate {header} header"));
    }
    let expected = match argument {
        Some(Value::String(text)) => Some(text.clone()),
        Some(primitive @ (Value::Bool(_) | Value::Number(_))) => Some(primitive.to_string()),
        _ => None,
    };
    match (value, expected) {
        (None, None) => Ok(()),
        (Some(_), None) => Err(format!("unexpected {header} header for absent or null `{path}`")),
        (None, Some(_)) => Err(format!("missing {header} header for `{path}`")),
        (Some(value), Some(expected)) => {
            let value = value.to_str();
            let value =
                value.map_err(|_| format!("{header} header contains invalid characters"))?;
            let value =
                decode(value).ok_or_else(|| format!("{header} header is not valid Base64"))?;
            if value == expected {
                return Ok(());
            }
            Err(format!("{header} header `{value}` does not match body value `{expected}`"))
        }
    }
}

fn decode(value: &str) -> Option<String> {
    let (before, after) = ENCODED;
    match value.strip_prefix(before).and_then(|value| value.strip_suffix(after)) {
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}
