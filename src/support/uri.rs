//! Finds alternative spellings of a URI, which a server may treat as the same resource. Without
//! them, a client could bypass a rule about `file:///secret` with the spelling
//! `file:///a/../secret`.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Alternative spellings of a URI, which a server may treat as the same resource.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Readings {
    /// The forms of the URI after normalization by URL parsers and by file systems. The rules must
    /// allow all of these forms before a client can access the URI.
    pub(crate) forms: Vec<String>,
    /// Other spellings, which only some servers treat as the same URI. A rule that denies one of
    /// them also denies the URI. A rule that allows the URI need not allow them.
    pub(crate) others: Vec<String>,
}

impl Readings {
    /// Returns the alternative spellings of a URI.
    ///
    /// Returns `None` if the URI contains characters that some parsers remove, because it could
    /// then stand for any other URI. These are control characters, and whitespace at the beginning,
    /// at the end or before a `#`.
    ///
    /// In `forms`, the scheme is in lower case, needless escapes are decoded, and each `\` is
    /// replaced by `/` ([RFC 3986, section 6.2.2], and the [URL standard]). The path contains no
    /// `.` and `..` segments. URL parsers and file systems resolve these segments differently, so
    /// there is a form for each. In file systems, `//` is equivalent to `/`, and `?` is an ordinary
    /// character.
    ///
    /// `others` contains the [canonical](canonical) spellings, and variants of `forms`. In the
    /// variants, the host is [normalized](with_usual_host). Some variants have `/` instead of `//`,
    /// no fragment, or no `/` at the end. Some have all escapes decoded, or all characters escaped
    /// that a URI does not allow.
    ///
    /// [RFC 3986, section 6.2.2]: https://www.rfc-editor.org/rfc/rfc3986#section-6.2.2
    /// [URL standard]: https://url.spec.whatwg.org/#url-parsing
    pub(crate) fn of(uri: &str) -> Option<Self> {
        let before_fragment = uri.split('#').next().unwrap_or_default();
        if uri.trim() != uri || before_fragment.trim_end() != before_fragment {
            return None;
        }
        if uri.contains(char::is_control) {
            return None;
        }
        let (scheme, rest) = split_scheme(uri);
        if is_plain(scheme, rest) {
            return Some(Self::default());
        }
        let (scheme, written) = (scheme.to_ascii_lowercase(), rest);
        let rest = without_escapes(written);
        let is_new = |known: &[String], new: &str| new != uri && !known.iter().any(|it| it == new);
        let mut forms = Vec::new();
        for form in forms_of(&scheme, &rest, false) {
            if is_new(&forms, &form) {
                forms.push(form);
            }
        }
        let mut others = Vec::new();
        let mut note = |other: String| {
            if is_new(&forms, &other) && is_new(&others, &other) {
                others.push(other);
            }
        };
        for form in forms_of(&scheme, &with_usual_host(&scheme, &rest), true) {
            let before_fragment = form.split_once('#').map(|(before, _)| before);
            for spelling in [Some(&*form), before_fragment].into_iter().flatten() {
                let ends_path = scheme == "file:" || !spelling.contains('?');
                let trimmed = ends_path.then(|| without_last_slashes(&scheme, spelling));
                for spelling in [Some(spelling), trimmed].into_iter().flatten() {
                    note(escaped(spelling));
                    note(unescaped(spelling));
                    note(spelling.to_owned());
                }
            }
        }
        canonical_spellings(&scheme, written).into_iter().for_each(note);
        Some(Self { forms, others })
    }

    /// Iterates over all alternative spellings: first those in `forms`, then those in `others`.
    pub(crate) fn all(self) -> impl Iterator<Item = String> {
        self.forms.into_iter().chain(self.others)
    }
}

/// Returns the canonical spellings of a URI: one for each way to parse the URI. If two URIs are
/// equivalent, they have at least one canonical spelling in common.
///
/// A canonical spelling has no fragment, and its host is [normalized](with_usual_host). Its path
/// contains no `//`, `.` and `..`, and does not end with `/`. A character is escaped only if a URI
/// does not allow it, or if it would have another meaning without the escape.
///
/// Most URIs have a single canonical spelling. A URI has several if it contains escaped slashes, or
/// both `//` and `..`, because URL parsers and file systems normalize these differently.
pub(crate) fn canonical(uri: &str) -> Vec<String> {
    let (scheme, rest) = split_scheme(uri);
    canonical_spellings(&scheme.to_ascii_lowercase(), rest)
}

fn canonical_spellings(scheme: &str, rest: &str) -> Vec<String> {
    let mut spellings = Vec::new();
    for rest in [without_escapes(rest), with_escaped_slashes(scheme, rest)] {
        let rest = with_usual_host(scheme, &rest);
        let (authority, rest) = authority(&rest);
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let start = format!("{scheme}{}", with_needed_escapes(authority, b"%"));
        let query = with_needed_escapes(query, b"#%");
        // URL parsers resolve `..` first, which may remove an empty segment. File systems merge
        // slashes first.
        let as_url = with_single_slashes(&without_dots(path));
        let as_file = without_dots(&with_single_slashes(path));
        for path in [as_url, as_file] {
            let uri = format!("{start}{}", with_needed_escapes(&path, b"?#%/\\"));
            let spelling = format!("{}{query}", without_last_slashes(scheme, &uri));
            if !spellings.contains(&spelling) {
                spellings.push(spelling);
            }
        }
    }
    spellings
}

/// Splits a URI after the colon of its scheme, for example into `https:` and `//host/path`. If the
/// URI contains no colon, the returned scheme is empty.
fn split_scheme(uri: &str) -> (&str, &str) {
    uri.split_at(uri.find(':').map_or(0, |colon| colon + 1))
}

/// Returns `true` if a URI certainly has no alternative spellings. The URI is given as its scheme
/// and the rest, and must not contain control characters. The check is fast, because it does not
/// allocate.
fn is_plain(scheme: &str, rest: &str) -> bool {
    let needs_reading =
        |byte: u8| !byte.is_ascii() || needs_escape(byte) || b"%\\#".contains(&byte);
    if scheme.contains(|c: char| c.is_ascii_uppercase())
        || rest.bytes().any(needs_reading)
        || rest.contains("/.")
        || rest.starts_with('.')
    {
        return false;
    }
    if scheme == "file:" {
        return rest.strip_prefix("///").is_some_and(|path| {
            !path.starts_with('/')
                && !path.contains("//")
                && !path.contains('?')
                && !path.ends_with('/')
        });
    }
    let (authority, after) = authority(rest);
    let (path, query) = after.split_at(after.find('?').unwrap_or(after.len()));
    let has_usual_path = match usual_port(scheme) {
        Some(_) => authority.len() > 2 && (path == "/" || !path.ends_with('/') && !path.is_empty()),
        None => !path.ends_with('/'),
    };
    has_usual_path
        && !path.contains("//")
        && !query.starts_with("?..")
        && is_usual_authority(scheme, authority)
}

/// Returns `true` if the authority is already normalized, so that [`with_usual_host`] would not
/// change it.
fn is_usual_authority(scheme: &str, authority: &str) -> bool {
    let Some(server) = authority.strip_prefix("//") else { return authority.is_empty() };
    let (host, port) = split_port(server);
    let is_number = |host: &str| {
        // If the last label of a host is a number, URL parsers treat the host as an IPv4 address.
        let last = host.rsplit('.').next().unwrap_or_default();
        last.starts_with(|c: char| c.is_ascii_digit())
    };
    !authority.contains(|c: char| c.is_ascii_uppercase() || c == '@')
        && !host.ends_with('.')
        && port.is_none_or(|port| usual_digits(scheme, port) == Some(port))
        && (usual_port(scheme).is_none() || !host.starts_with('[') && !is_number(host))
}

/// Splits a URI without its scheme into the authority, such as `//host:80`, and the rest. The
/// authority is empty unless the URI without its scheme begins with `//`.
fn authority(rest: &str) -> (&str, &str) {
    let end = match rest.strip_prefix("//") {
        Some(after) => 2 + after.find(['/', '?', '#']).unwrap_or(after.len()),
        None => 0,
    };
    rest.split_at(end)
}

/// Returns the default port of a web scheme, such as 443 for `https:`. Returns `None` for other
/// schemes.
fn usual_port(scheme: &str) -> Option<&'static str> {
    match scheme {
        "http:" | "ws:" => Some("80"),
        "https:" | "wss:" => Some("443"),
        "ftp:" => Some("21"),
        _ => None,
    }
}

/// Splits a string such as `host:80` into the host and the port. The port is `None` if the string
/// contains no port.
fn split_port(server: &str) -> (&str, Option<&str>) {
    match server.rsplit_once(':') {
        // A colon within brackets belongs to an IPv6 address.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (server, None),
    }
}

/// Removes leading zeros from a port. Returns `None` if the port can be omitted, because it is
/// empty or the default port of the scheme.
fn usual_digits<'p>(scheme: &str, port: &'p str) -> Option<&'p str> {
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(port);
    }
    let digits = port.trim_start_matches('0');
    let digits = if digits.is_empty() && !port.is_empty() { "0" } else { digits };
    (!digits.is_empty() && Some(digits) != usual_port(scheme)).then_some(digits)
}

/// Normalizes the host of a URI, so that equivalent hosts become equal.
///
/// The result has no user information. The host is in lower case, and does not end with a dot. The
/// port has no leading zeros, and is omitted if it is empty or the default port of the scheme. In
/// web addresses, IP addresses are normalized too, and an empty path becomes `/`. In `file:` URIs,
/// the host `localhost` is removed.
fn with_usual_host(scheme: &str, rest: &str) -> String {
    if usual_port(scheme).is_some() {
        let rest = format!("//{}", rest.trim_start_matches('/'));
        let (authority, path) = authority(&rest);
        let server = &authority[2..];
        let slash = if path.starts_with('/') { "" } else { "/" };
        return format!("//{}{slash}{path}", usual_server(scheme, server));
    }
    let (authority, path) = authority(rest);
    let server = authority.strip_prefix("//").map(|server| usual_server(scheme, server));
    if scheme != "file:" {
        let slashes = if server.is_some() { "//" } else { "" };
        return format!("{slashes}{}{path}", server.unwrap_or_default());
    }
    let server = server.filter(|server| server != "localhost").unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("//{server}{slash}{path}")
}

fn usual_server(scheme: &str, server: &str) -> String {
    let server = server.rsplit('@').next().unwrap_or_default();
    let (host, port) = split_port(server);
    let host = host.to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    let address = usual_port(scheme).and_then(|_| address(host));
    let host = address.as_deref().unwrap_or(host);
    match port.and_then(|port| usual_digits(scheme, port)) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Parses the host as an IP address, and returns its canonical form. Returns `None` if the host is
/// not an IP address.
fn address(host: &str) -> Option<String> {
    match host.strip_prefix('[') {
        Some(host) => {
            let address: Ipv6Addr = host.strip_suffix(']')?.parse().ok()?;
            Some(format!("[{address}]"))
        }
        None => Some(ipv4(host)?.to_string()),
    }
}

/// Parses an IPv4 address as the [URL standard] defines. The address consists of up to four
/// numbers, which may be decimal, octal or hexadecimal. The last number determines all remaining
/// bytes, so `127.1` stands for `127.0.0.1`.
///
/// [URL standard]: https://url.spec.whatwg.org/#concept-ipv4-parser
fn ipv4(host: &str) -> Option<Ipv4Addr> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some("") => Some(0),
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    };
    let numbers = host.split('.').map(number).collect::<Option<Vec<_>>>()?;
    let (last, first) = numbers.split_last()?;
    if first.len() > 3 || first.iter().any(|number| *number > 255) {
        return None;
    }
    let bits = 32 - 8 * first.len();
    if u64::from(*last) >= 1 << bits {
        return None;
    }
    let first = first.iter().enumerate().map(|(index, number)| number << (24 - 8 * index));
    Some(Ipv4Addr::from_bits(first.sum::<u32>() + last))
}

/// Returns the normalized forms of a URI in URL parsers, file systems and some other servers.
/// Needless escapes in the URI must already be decoded.
///
/// The first form is that of URL parsers. If the URI contains `..`, the second form is that of file
/// systems. If `joins_slashes` is `true`, another form has `/` instead of `//`. If a `file:` URI
/// has a query or a fragment, another form omits them.
fn forms_of(scheme: &str, rest: &str, joins_slashes: bool) -> Vec<String> {
    let (authority, rest) = authority(rest);
    let (path, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let form = |path: &str| format!("{scheme}{authority}{path}");
    let mut forms = vec![form(&format!("{}{query}", without_dots(path)))];
    let is_file = scheme == "file:";
    if is_file && joins_slashes || rest.split('/').any(|segment| segment == "..") {
        forms.push(form(&without_dots(&with_single_slashes(rest))));
    }
    if joins_slashes && !is_file {
        let path = without_dots(&with_single_slashes(path));
        forms.push(form(&format!("{path}{query}")));
    }
    if is_file && !query.is_empty() {
        forms.push(form(&without_dots(&with_single_slashes(path))));
    }
    forms
}

/// Removes all slashes at the end of a URI without query and fragment. In web addresses and `file:`
/// URIs, keeps the slash at the beginning of the path.
fn without_last_slashes<'u>(scheme: &str, uri: &'u str) -> &'u str {
    let has_root = usual_port(scheme).is_some() || scheme == "file:";
    let (before, rest) = split_scheme(uri);
    let (authority, path) = authority(rest);
    let start = before.len() + authority.len();
    let root = usize::from(has_root && path.starts_with('/'));
    &uri[..start + root + path[root..].trim_end_matches('/').len()]
}

fn with_single_slashes(path: &str) -> String {
    let mut single = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !single.ends_with('/') {
            single.push(c);
        }
    }
    single
}

/// Decodes needless escapes. Replaces backslashes, escaped slashes and escaped backslashes with
/// `/`, because some servers treat all of them as path separators.
fn without_escapes(text: &str) -> String {
    without_escapes_of(text, |byte| is_unreserved(byte) || matches!(byte, b'/' | b'\\'))
        .replace('\\', "/")
}

/// Decodes needless escapes, except for escaped slashes. In web addresses and `file:` URIs, also
/// replaces each unescaped backslash with `/`.
fn with_escaped_slashes(scheme: &str, text: &str) -> String {
    let text = without_escapes_of(text, is_unreserved);
    let is_special = scheme == "file:" || usual_port(scheme).is_some();
    if is_special { text.replace('\\', "/") } else { text }
}

fn without_escapes_of(text: &str, is_read: impl Fn(u8) -> bool) -> String {
    // The bytes are still valid UTF-8, because only ASCII characters were inserted.
    rewritten(text, |read, byte, written| {
        if is_read(byte) {
            read.push(byte);
        } else {
            read.extend(written);
        }
    })
}

/// Decodes all percent-escapes.
pub(crate) fn unescaped(text: &str) -> String {
    rewritten(text, |read, byte, _| read.push(byte))
}

/// Escapes all characters that a URI does not allow. The hexadecimal digits of escapes become upper
/// case.
fn escaped(text: &str) -> String {
    escaped_unless(text, |byte, is_escape| !is_escape && byte.is_ascii() && !needs_escape(byte))
}

/// Normalizes the escapes in a part of a URI. Escapes characters that a URI does not allow, keeps
/// the escapes of characters in `reserved`, and decodes all others.
fn with_needed_escapes(text: &str, reserved: &[u8]) -> String {
    escaped_unless(text, |byte, is_escape| {
        let is_reserved = reserved.contains(&byte) && (is_escape || byte == b'%');
        byte.is_ascii_graphic() && !needs_escape(byte) && !is_reserved
    })
}

/// Escapes each byte for which `is_allowed` returns `false`. `is_allowed` receives the byte, and
/// whether it is escaped in the text.
fn escaped_unless(text: &str, is_allowed: impl Fn(u8, bool) -> bool) -> String {
    rewritten(text, |read, byte, written| {
        if is_allowed(byte, written.len() > 1) {
            read.push(byte);
        } else {
            read.extend(escape(byte));
        }
    })
}

/// Calls `write` with each byte of a text, decoded if it is escaped, and with the text of the byte.
/// Returns the text that `write` has written to its first argument.
fn rewritten(text: &str, mut write: impl FnMut(&mut Vec<u8>, u8, &[u8])) -> String {
    let mut read = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, written)) = next(&mut rest) {
        write(&mut read, byte, written);
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// Returns the percent-escape of a byte, such as `%2F`, with hexadecimal digits in upper case.
fn escape(byte: u8) -> [u8; 3] {
    let digit = |digit: u8| b"0123456789ABCDEF"[usize::from(digit)];
    [b'%', digit(byte >> 4), digit(byte & 15)]
}

/// Removes the first byte from `rest`, or the first percent-escape such as `%2F`. Returns the byte
/// or the decoded byte, and the removed text. Returns `None` if `rest` is empty.
fn next<'t>(rest: &mut &'t [u8]) -> Option<(u8, &'t [u8])> {
    let text = *rest;
    let (byte, length) = match text {
        [] => return None,
        [b'%', high, low, ..] => match digit(*high).zip(digit(*low)) {
            Some((high, low)) => (high * 16 + low, 3),
            None => (b'%', 1),
        },
        [byte, ..] => (*byte, 1),
    };
    let (written, after) = text.split_at(length);
    *rest = after;
    Some((byte, written))
}

fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// Returns `true` if a byte is unreserved (RFC 3986, section 2.3). Its escaped form then has the
/// same meaning as the byte itself.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Returns `true` if a URI must not contain the ASCII character without escaping it.
const fn needs_escape(byte: u8) -> bool {
    matches!(byte, b' ' | b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}')
}

/// Resolves the `.` and `..` segments of a path, for example `/a/../b` to `/b`.
fn without_dots(path: &str) -> String {
    // The root, which is the empty segment before the first `/`, is never removed by `..`.
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

    fn forms(uri: &str) -> Vec<String> {
        Readings::of(uri).unwrap().forms
    }

    #[test]
    fn alternative_spelling_resolves_to_the_same_place() {
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
            ("docs://host/../a?b=/c", "docs://host/a?b=/c"),
            ("urn:a/../b", "urn:b"),
            ("urn:../b", "urn:b"),
        ] {
            assert_eq!(forms(uri), [read], "{uri}");
        }
    }

    #[test]
    fn path_is_resolved_like_a_url_and_like_a_file_path() {
        for (uri, read) in [
            ("file:///a//../secret", &["file:///a/secret", "file:///secret"][..]),
            ("docs://h/a//../b", &["docs://h/a/b", "docs://h/b"]),
            ("file:///a/?/../../b", &["file:///b", "file:///a/"]),
            ("docs://h/a/?/../../b", &["docs://h/b"]),
            ("docs://h/../a?b=/../c", &["docs://h/a?b=/../c", "docs://h/c"]),
            ("file:///a?b#c", &["file:///a"]),
            ("docs://h/https://x//y", &[]),
            ("file:////x/y", &[]),
        ] {
            assert_eq!(forms(uri), read, "{uri}");
        }
    }

    #[test]
    fn readings_include_the_normalized_uri() {
        for (uri, read) in [
            ("file:/secret", "file:///secret"),
            ("file:////secret", "file:///secret"),
            ("file:secret", "file:///secret"),
            ("file://localhost/secret", "file:///secret"),
            ("FILE://LocalHost/a/..//%73ecret", "file:///secret"),
            ("file:///a%20b", "file:///a b"),
            ("file:///a b", "file:///a%20b"),
            ("file:///a%3Ab", "file:///a:b"),
            ("docs://h/%c3%a9", "docs://h/é"),
            ("docs://h/é", "docs://h/%C3%A9"),
            ("docs://h/%c3%a9", "docs://h/%C3%A9"),
            ("docs://H/x", "docs://h/x"),
            ("docs://h/x#y", "docs://h/x"),
            ("ftp://h:21/x", "ftp://h/x"),
            ("docs://h/%C3%A9#y", "docs://h/é"),
            ("https://H/x", "https://h/x"),
            ("https:/h/x", "https://h/x"),
            ("https:h/x", "https://h/x"),
            ("https:///h/x", "https://h/x"),
            ("https:\\\\h\\x", "https://h/x"),
            ("https://h:443/x", "https://h/x"),
            ("https://me@h/x", "https://h/x"),
            ("docs://me@h/x", "docs://h/x"),
            ("file:/%2fx/../secret", "file:///secret"),
            ("file:///a//b/..//..//secret", "file:///a/secret"),
            ("https://h/a//x/../b", "https://h/a/b"),
            ("https://h", "https://h/"),
            ("https://h?x", "https://h/?x"),
            ("http://h:80/a/../x", "http://h/x"),
            ("file:///secret/", "file:///secret"),
            ("file:///secret/.", "file:///secret"),
            ("file:///secret//", "file:///secret"),
            ("file:///a//secret", "file:///a/secret"),
            ("docs://h/a//b/", "docs://h/a/b"),
            ("docs://h/x/#y", "docs://h/x"),
            ("docs://h/x/?y", "docs://h/x?y"),
            ("docs://h./x", "docs://h/x"),
            ("docs://h:/x", "docs://h/x"),
            ("https://h./x", "https://h/x"),
            ("https://h:/x", "https://h/x"),
            ("https://h:0443/x", "https://h/x"),
            ("https://h:00443/x/", "https://h/x"),
            ("https://h:08080/x", "https://h:8080/x"),
            ("https://me@H.:0443//x/./", "https://h/x"),
            ("https://127.1/x", "https://127.0.0.1/x"),
            ("https://0x7f.0.0.1/x", "https://127.0.0.1/x"),
            ("https://017700000001/x", "https://127.0.0.1/x"),
            ("https://[0:0:0::1]/x", "https://[::1]/x"),
        ] {
            let readings = Readings::of(uri).unwrap();
            let all: Vec<_> = readings.forms.iter().chain(&readings.others).collect();
            assert!(all.iter().any(|reading| **reading == read), "{uri}: {all:?}");
            assert!(all.iter().all(|reading| **reading != uri), "{uri}: {all:?}");
        }
    }

    #[test]
    fn canonical_spelling_is_shared_by_all_spellings() {
        for spellings in [
            &["file:///a%20b", "file:/a b/", "FILE://localhost//a%20b/.#c"][..],
            &["docs://h/%C3%A9?q=1", "docs://H.:/é/?q=1", "docs://h/x/..//%c3%a9?q=1"],
            &["https://h/", "https://h", "https:h#x", "https:\\\\u@h:443//"],
            &["https://[::1]:8080/%3F", "https://[0::1]:08080/./%3f/"],
            &["https://0.0.0.255/a%25", "https://0xff/%61%", "https://255/a%25/"],
            &["urn:a:b", "URN:a:b/"],
        ] {
            for spelling in spellings {
                let canonical = canonical(spelling);
                assert!(canonical.iter().any(|it| it == spellings[0]), "{spelling}: {canonical:?}");
            }
            assert_eq!(canonical(spellings[0]), [spellings[0]]);
        }
    }

    #[test]
    fn canonical_spelling_differs_for_different_resources() {
        for [one, other] in [
            ["docs://h/a%3Fb", "docs://h/a?b"],
            ["docs://h/a%0Ab", "docs://h/ab"],
            ["docs://h/a%23b", "docs://h/a#b"],
            ["docs://h/a%2561", "docs://h/a%61"],
            ["docs://h/a?b=1", "docs://h/a?b=2"],
            ["docs://h/A", "docs://h/a"],
            ["docs://h:1/", "docs://h/"],
            ["https://1.2.3.4.5/", "https://1.2.3.4/"],
            ["https://256.1.1.1/", "https://0.1.1.1/"],
        ] {
            assert!(canonical(one).iter().all(|it| !canonical(other).contains(it)), "{one}");
        }
    }

    #[test]
    fn unambiguous_uri_has_no_other_readings() {
        for uri in [
            "",
            "file:///a",
            "file:///.hidden/..a/b...",
            "db://table/1?a=b&c=/d//e",
            "https://h/x:443/@/Y",
            "https://h:80/",
            "urn:X:y",
            "x",
        ] {
            assert_eq!(Readings::of(uri), Some(Readings::default()), "{uri}");
        }
    }

    #[test]
    fn encoded_or_mixed_case_uri_leads_to_no_other_place() {
        for uri in [
            "file:///a%20b",
            "file:///a%2",
            "file:///%zz",
            "file:///100%",
            "db://Table",
            "docs://größe/%C3%A9",
            "docs://host/%c3%a9",
        ] {
            assert_eq!(forms(uri), [""; 0], "{uri}");
        }
    }

    #[test]
    fn uri_with_characters_parsers_strip_is_unreadable() {
        for uri in [
            "file:///sec\tret",
            "file:///open/.\t./secret",
            "file:///sec\r\nret",
            "file:///secret\0",
            "file:///secret\u{7f}",
            " file:///secret",
            "file:///secret ",
            "file:///secret #x",
            "\u{a0}file:///secret",
            "\u{1}file:///secret",
        ] {
            assert_eq!(Readings::of(uri), None, "{uri:?}");
        }
    }

    #[test]
    fn plain_uris_have_no_other_readings() {
        let parts = ["/", "//", "..", ".", "?", "a", "H", "@", ":443", ":", ":0", "[::1]", "0x7f"];
        let count = parts.len();
        let mut plain = 0;
        for number in 0..count.pow(4) {
            let choose = |digit| parts[number / count.pow(digit) % count];
            let rest = [0, 1, 2, 3].map(choose).concat();
            for scheme in ["file:", "https:", "db:", ""] {
                if !is_plain(scheme, &rest) {
                    continue;
                }
                plain += 1;
                let uri = format!("{scheme}{rest}");
                let usual = with_usual_host(scheme, &rest);
                let mut read = forms_of(scheme, &rest, false);
                read.extend(forms_of(scheme, &usual, true));
                read.extend(canonical_spellings(scheme, &rest));
                read.retain(|reading| *reading != uri);
                assert_eq!(read, [""; 0], "{uri}");
            }
        }
        assert!(plain > 1000, "{plain}");
    }
}
