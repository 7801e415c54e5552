//! Rules for tool names.

/// Maximum length of a tool name in characters.
const MAX_TOOL_NAME: usize = 128;
/// Maximum length in characters of a separator, which the router puts between the prefix of a
/// backend and a tool name.
pub(crate) const MAX_SEPARATOR: usize = 8;
/// Maximum length in characters of a backend's name, and of the prefix that the router adds to the
/// names of the backend's tools. It is half the maximum length of a tool name, so that the other
/// half is left for the original name.
pub(crate) const MAX_PREFIX: usize = 64;

/// Returns `true` if `text` can be a separator, which the router puts between the prefix of a
/// backend and a tool name. A separator consists of 1 to 8 visible ASCII characters.
pub(crate) fn is_separator(text: &str) -> bool {
    (1..=MAX_SEPARATOR).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Returns `true` if the configuration may contain `name` as the name of a tool, given the
/// separator of the router.
///
/// The name must be [legal](is_legal). If the separator contains a character that MCP does not
/// allow in names, such as `/`, each part of the name between separators must also begin and end
/// with an allowed character. For example, with the separator `/`, the names `a/` and `a//b` are
/// rejected.
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

/// Returns `true` if each character of the name is either allowed by MCP, or a character of the
/// separator.
pub(crate) fn is_spelled(name: &str, separator: &str) -> bool {
    name.chars().all(|character| is_plain(character) || separator.contains(character))
}

/// Returns `true` if MCP allows the character in tool names.
pub(crate) const fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}
