//! Rules for the names of tools.

/// The maximum length of a tool's name.
const MAX_TOOL_NAME: usize = 128;
/// The maximum length of a separator.
pub(crate) const MAX_SEPARATOR: usize = 8;
/// The maximum length of a backend's name, and of the prefix of its tools' names: half the maximum
/// length of a tool's name.
pub(crate) const MAX_PREFIX: usize = 64;

/// Returns `true` if a router can use `text` as the separator between the names of a backend and a
/// tool. A separator must consist of 1 to 8 visible ASCII characters.
pub(crate) fn is_separator(text: &str) -> bool {
    (1..=MAX_SEPARATOR).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Returns `true` if an operator may give a tool this name.
///
/// The name must be [legal](is_legal). If the separator contains a character that the protocol does
/// not allow in names, the parts of the name around separators must also begin and end with an
/// allowed character. So with `/`, the names `a/` and `a//b` are rejected.
pub(crate) fn is_tool_name(name: &str, separator: &str) -> bool {
    is_legal(name, separator)
        && (separator.chars().all(is_plain)
            || name
                .split(separator)
                .all(|part| part.starts_with(is_plain) && part.ends_with(is_plain)))
}

/// Returns `true` if clients accept this name of a tool. The name must consist of 1 to 128
/// characters, each of which is allowed by the protocol ([SEP-986]) or occurs in the separator.
///
/// [SEP-986]: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names
pub(crate) fn is_legal(name: &str, separator: &str) -> bool {
    (1..=MAX_TOOL_NAME).contains(&name.len()) && is_spelled(name, separator)
}

/// Returns `true` if each character of a name is allowed by the protocol or occurs in the
/// separator.
pub(crate) fn is_spelled(name: &str, separator: &str) -> bool {
    name.chars().all(|character| is_plain(character) || separator.contains(character))
}

/// Returns `true` if the protocol allows the character in the names of tools.
pub(crate) const fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}
