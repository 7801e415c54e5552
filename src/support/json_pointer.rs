//! Escapes and unescapes segments of JSON Pointers ([RFC
//! 6901](https://www.rfc-editor.org/rfc/rfc6901)).

use std::borrow::Cow;

/// Escapes the name of an object member for a JSON Pointer: replaces `~` with `~0` and `/` with
/// `~1`.
pub(crate) fn escape(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) {
        name.replace('~', "~0").replace('/', "~1").into()
    } else {
        name.into()
    }
}

/// Decodes a segment of a JSON Pointer: replaces `~1` with `/` and `~0` with `~`.
pub(crate) fn unescape(segment: &str) -> Cow<'_, str> {
    if segment.contains('~') {
        segment.replace("~1", "/").replace("~0", "~").into()
    } else {
        segment.into()
    }
}

/// Returns the byte offset of the first invalid escape in a JSON Pointer. An escape is invalid if
/// its `~` is not followed by `0` or `1`. Returns `None` if all escapes are valid.
pub(crate) fn invalid_escape(pointer: &str) -> Option<usize> {
    let mut escapes = pointer.match_indices('~').map(|(position, _)| position);
    escapes.find(|position| !pointer[position + 1..].starts_with(['0', '1']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_escaped_and_unescaped() {
        for (name, segment) in
            [("", ""), ("a", "a"), ("a/b", "a~1b"), ("~", "~0"), ("~1", "~01"), ("/~0/", "~1~00~1")]
        {
            assert_eq!(escape(name), segment);
            assert_eq!(unescape(segment), name);
        }
    }

    #[test]
    fn invalid_escape_is_found() {
        for (pointer, position) in
            [("/a~1b~0", None), ("/~", Some(1)), ("/~0~2", Some(3)), ("~é", Some(0))]
        {
            assert_eq!(invalid_escape(pointer), position, "{pointer}");
        }
    }
}
