//! Validation of HTTP headers.

/// Headers that a file cannot set, since rmcp's transport or its HTTP client sets them. All names
/// are in lower case.
const SET_BY_TRANSPORT: [&str; 10] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// The prefix of the headers that the transport adds to repeat arguments of a call.
const MCP_PARAM: &str = "mcp-param-";

/// Returns `true` if `name` is a valid header name, which HTTP calls a token.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Returns `true` if `value` is a valid value of an HTTP header.
pub(super) fn is_value(value: &str) -> bool {
    value.chars().all(|c| c == '\t' || !c.is_ascii_control())
}

pub(super) fn is_set_by_transport(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SET_BY_TRANSPORT.contains(&name.as_str()) || name.starts_with(MCP_PARAM)
}
