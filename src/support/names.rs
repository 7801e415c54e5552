//! Rules for tool names.

/// Maximum length of a tool name in characters.
const MAX_TOOL_NAME: usize = 128;
/// Maximum length of a separator in characters.
pub(crate) const MAX_SEPARATOR: usize = 8;
/// Maximum length of a backend name, and of the prefix that the router adds to the backend's tool
/// names. It is half the maximum length of a tool name.
pub(crate) const MAX_PREFIX: usize = 64;

/// Returns `true` if a router can use `text` as the separator between a backend's prefix and a tool
/// name. A valid separator consists of 1 to 8 visible ASCII characters.
pub(crate) fn is_separator(text: &str) -> bool {
    (1..=MAX_SEPARATOR).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Returns `true` if an operator can choose `name` as the name of a tool.
///
/// The name must be [legal](is_legal). There is another rule for separators with a character that
/// the protocol does not allow in names, such as `/`: the parts of the name between separators must
/// begin and end with an allowed character. For example, the names `a/` and `a//b` are rejected.
pub(crate) fn is_tool_name(name: &str, separator: &str) -> bool {
    is_legal(name, separator)
        && (separator.chars().all(is_plain)
            || name
                .split(separator)
                .all(|part| part.starts_with(is_plain) && part.ends_with(is_plain)))
}

/// Returns `true` if clients accept `name` as a tool name. A legal name has 1 to 128 characters.
/// Each character is allowed by the protocol ([SEP-986]) or occurs in the separator.
///
/// [SEP-986]: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names
pub(crate) fn is_legal(name: &str, separator: &str) -> bool {
    (1..=MAX_TOOL_NAME).contains(&name.len()) && is_spelled(name, separator)
}

/// Returns `true` if each character of the name is allowed by the protocol or occurs in the
/// separator.
pub(crate) fn is_spelled(name: &str, separator: &str) -> bool {
    name.chars().all(|character| is_plain(character) || separator.contains(character))
}

/// Returns `true` if the protocol allows the character in tool names.
pub(crate) const fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}
