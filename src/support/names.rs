//! Rules for tool names.

/// Maximum length of a tool name in characters.
const MAX_TOOL_NAME: usize = 128;
/// Maximum length in characters of a separator, such as the `/` in `github/search`.
pub(crate) const MAX_SEPARATOR: usize = 8;
/// Maximum length in characters of a backend's name, and of the prefix that the router adds to the
/// names of the backend's tools. Half of the maximum length of a tool name is left for the original
/// name.
pub(crate) const MAX_PREFIX: usize = 64;

/// Returns `true` if `text` can be the separator between the prefix of a backend and a tool name,
/// such as `/`. A separator consists of 1 to 8 visible ASCII characters.
pub(crate) fn is_separator(text: &str) -> bool {
    (1..=MAX_SEPARATOR).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Returns `true` if `name` can be the name of a tool in the configuration.
///
/// The name must be [legal](is_legal). If MCP does not allow a character of the separator in names,
/// each part of the name between separators must begin and end with a character that MCP allows.
/// For example, with the separator `/`, the names `a/` and `a//b` are rejected.
pub(crate) fn is_tool_name(name: &str, separator: &str) -> bool {
    is_legal(name, separator)
        && (separator.chars().all(is_plain)
            || name
                .split(separator)
                .all(|part| part.starts_with(is_plain) && part.ends_with(is_plain)))
}

/// Returns `true` if clients accept `name` as a tool name. A legal name has 1 to 128 characters.
/// Each of them is either allowed by MCP ([SEP-986]), or a character of the separator.
///
/// [SEP-986]: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names
pub(crate) fn is_legal(name: &str, separator: &str) -> bool {
    (1..=MAX_TOOL_NAME).contains(&name.len()) && is_spelled(name, separator)
}

/// Returns `true` if MCP allows each character of the name, or the separator contains it.
pub(crate) fn is_spelled(name: &str, separator: &str) -> bool {
    name.chars().all(|character| is_plain(character) || separator.contains(character))
}

/// Returns `true` if MCP allows the character in tool names.
pub(crate) const fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}
