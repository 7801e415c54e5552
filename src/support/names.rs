//! What tools may be called.

/// How long a tool's name may be.
const MAX_NAME: usize = 128;
/// How long a separator may be.
pub(crate) const MAX_SEPARATOR: usize = 8;
/// How long the name and the prefix of a backend may be: half of what the name of a tool
/// may have.
pub(crate) const MAX_PREFIX: usize = 64;

/// Whether a router can put it between the name of a server and that of its
/// tool: 1 to 8 visible ASCII characters.
pub(crate) fn is_separator(text: &str) -> bool {
    (1..=MAX_SEPARATOR).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether an operator may give the name to a tool: one that is legal, and of
/// which each part is a name.
///
/// If the protocol does not allow all of the separator, each part between two
/// of it must begin and end with what is allowed. So `a/` and `a//b` are no
/// names.
pub(crate) fn is_tool_name(name: &str, separator: &str) -> bool {
    is_legal(name, separator)
        && (separator.chars().all(is_plain)
            || name
                .split(separator)
                .all(|part| part.starts_with(is_plain) && part.ends_with(is_plain)))
}

/// Whether clients take the name of a tool: 1 to 128 of the characters that the
/// protocol allows ([SEP-986]) and those of the separator.
///
/// [SEP-986]: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names
pub(crate) fn is_legal(name: &str, separator: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && is_spelled(name, separator)
}

/// Whether a name has only characters that it may have.
pub(crate) fn is_spelled(name: &str, separator: &str) -> bool {
    name.chars().all(|character| is_plain(character) || separator.contains(character))
}

/// Whether the protocol allows it in the names of tools.
pub(crate) const fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}
