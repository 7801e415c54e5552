//! Validates HTTP headers in a configuration file.

/// The names of the headers that a configuration file cannot set, in lower case. rmcp's transport
/// or its HTTP client sets them.
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

/// The prefix of HTTP headers that contain arguments of a tool call, in lower case. rmcp's
/// transport sets these headers, so a configuration file cannot.
const MCP_PARAM: &str = "mcp-param-";

/// Returns `true` if `name` is a valid HTTP header name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Returns `true` if `value` is a valid HTTP header value.
pub(super) fn is_value(value: &str) -> bool {
    value.chars().all(|c| c == '\t' || !c.is_ascii_control())
}

pub(super) fn is_set_by_transport(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SET_BY_TRANSPORT.contains(&name.as_str()) || name.starts_with(MCP_PARAM)
}
