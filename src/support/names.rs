//! Rules for the names of tools.

/// The maximum length of a tool's name.
const MAX_TOOL_NAME: usize = 128;
/// The maximum length of a separator.
pub(crate) const MAX_SEPARATOR: usize = 8;
/// The maximum length of the name and the prefix of a backend: half of that of a tool's name.
pub(crate) const MAX_PREFIX: usize = 64;

/// Returns `true` if a router can use it between the names of a backend and its tool: 1 to 8
/// visible ASCII characters.
pub(crate) fn is_separator(text: &str) -> bool {
    (1..=MAX_SEPARATOR).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Returns `true` if an operator may give the name to a tool: a legal name, each part of which is a
/// name.
///
/// If the protocol does not allow all characters of the separator, each part between two separators
/// must begin and end with an allowed character. So `a/` and `a//b` are rejected.
pub(crate) fn is_tool_name(name: &str, separator: &str) -> bool {
    is_legal(name, separator)
        && (separator.chars().all(is_plain)
            || name
                .split(separator)
                .all(|part| part.starts_with(is_plain) && part.ends_with(is_plain)))
}

/// Returns `true` if clients accept the name of a tool: 1 to 128 of the characters that the
/// protocol allows ([SEP-986]) and those of the separator.
///
/// [SEP-986]: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names
pub(crate) fn is_legal(name: &str, separator: &str) -> bool {
    (1..=MAX_TOOL_NAME).contains(&name.len()) && is_spelled(name, separator)
}

/// Returns `true` if a name consists only of allowed characters.
pub(crate) fn is_spelled(name: &str, separator: &str) -> bool {
    name.chars().all(|character| is_plain(character) || separator.contains(character))
}

/// Returns `true` if the protocol allows the character in the names of tools.
pub(crate) const fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}
