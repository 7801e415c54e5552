/// A URI as servers may read it that do not take it as it is written, if that is another
/// one: its scheme in lower case, without escapes of what needs none and of `/`, and
/// without `.` and `..` in its path ([RFC 3986, section 6.2.2]).
///
/// [RFC 3986, section 6.2.2]: https://www.rfc-editor.org/rfc/rfc3986#section-6.2.2
pub(super) fn read_as(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_at(uri.find(':').map_or(0, |colon| colon + 1));
    let is_plain = !uri.contains(['%', '\\'])
        && !rest.contains("/.")
        && !rest.starts_with('.')
        && !scheme.contains(|c: char| c.is_ascii_uppercase());
    if is_plain {
        return None;
    }
    let rest = without_escapes(rest);
    let authority = match rest.strip_prefix("//") {
        Some(after) => 2 + after.find(['/', '?', '#']).unwrap_or(after.len()),
        None => 0,
    };
    let (authority, rest) = rest.split_at(authority);
    let (path, rest) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let scheme = scheme.to_ascii_lowercase();
    let read = format!("{scheme}{authority}{}{rest}", without_dots(path));
    (read != uri).then_some(read)
}

/// Without escapes of what needs none, and of what parts a path; `\` parts it for some.
fn without_escapes(text: &str) -> String {
    let mut read = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => {
                digit(*high).zip(digit(*low)).map(|(high, low)| high * 16 + low)
            }
            _ => None,
        };
        match escaped {
            Some(byte) if needs_no_escape(byte) => {
                read.push(byte);
                rest = &after[2..];
            }
            _ => read.push(*first),
        }
    }
    // Only ASCII was put in.
    String::from_utf8_lossy(&read).replace('\\', "/")
}

const fn needs_no_escape(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | b'\\')
}

fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// A path without `.` and `..`.
fn without_dots(path: &str) -> String {
    // Nothing is above the root, which stands before the first `/`.
    let root = usize::from(path.starts_with('/'));
    let mut segments = Vec::new();
    let mut parts = path.split('/').peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." => (),
            ".." => segments.truncate(root.max(segments.len().saturating_sub(1))),
            _ => {
                segments.push(part);
                continue;
            }
        }
        if is_last {
            segments.push("");
        }
    }
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_spelling_is_read_as_the_one() {
        for (uri, read) in [
            ("file:///a/../secret", "file:///secret"),
            ("file:///a/./b/../../secret", "file:///secret"),
            ("file:///../../secret", "file:///secret"),
            ("file:///%73ecret", "file:///secret"),
            ("file:///a/%2e%2E/secret", "file:///secret"),
            ("file:///a/..%2fsecret", "file:///secret"),
            ("file:///a/..%5Csecret", "file:///secret"),
            ("file:///a\\..\\secret", "file:///secret"),
            ("FILE:///secret", "file:///secret"),
            ("file:///a/..", "file:///"),
            ("file:///a/b/.", "file:///a/b/"),
            ("docs://host/../a?b=/../c", "docs://host/a?b=/../c"),
            ("urn:a/../b", "urn:b"),
            ("urn:../b", "urn:b"),
        ] {
            assert_eq!(read_as(uri).as_deref(), Some(read), "{uri}");
        }
    }

    #[test]
    fn what_has_no_other_spelling_is_read_as_it_is() {
        for uri in [
            "",
            "file:///a",
            "file:///a%20b",
            "file:///a%2",
            "file:///%zz",
            "file:///100%",
            "file:///.hidden/..a/b...",
            "db://Table",
            "docs://größe/%C3%A9",
            "x",
        ] {
            assert_eq!(read_as(uri), None, "{uri}");
        }
    }
}
