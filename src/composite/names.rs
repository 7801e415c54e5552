//! What tools may be called.

/// How long a tool's name may be.
const MAX_NAME: usize = 128;
/// How long a separator may be.
pub(super) const MAX_SEPARATOR: usize = 8;

/// Whether a router can put it between the name of a server and that of its
/// tool: 1 to 8 visible ASCII characters.
pub(super) fn is_separator(text: &str) -> bool {
    (1..=MAX_SEPARATOR).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether a composite may have the name: 1 to 128 of the characters that the
/// protocol allows ([SEP-986]) and those of the separator.
///
/// If the protocol does not allow all of the separator, each part between two
/// of it must begin and end with what is allowed. So `a/` and `a//b` are no
/// names.
///
/// [SEP-986]: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-names
pub(super) fn is_tool_name(name: &str, separator: &str) -> bool {
    let is_spelled = |c: char| is_plain(c) || separator.contains(c);
    (1..=MAX_NAME).contains(&name.len())
        && name.chars().all(is_spelled)
        && (separator.chars().all(is_plain)
            || name
                .split(separator)
                .all(|part| part.starts_with(is_plain) && part.ends_with(is_plain)))
}

/// Whether the protocol allows it in the names of tools.
pub(super) const fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}
