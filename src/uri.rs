//! Other spellings of a URI, by which a server may know the same resource.

/// How servers may read a URI that do not take it as it is written, without that.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Readings {
    /// Where it leads: what is a rule for one of these is a rule for the URI, whether it
    /// allows or denies.
    pub(crate) places: Vec<String>,
    /// What else may be meant by it. Honest URIs have such readings, too, that nobody
    /// allows, so they are for rules that deny.
    pub(crate) others: Vec<String>,
}

impl Readings {
    /// Takes a URI as parsers and file systems do.
    ///
    /// `None` if they leave out some of its characters, so that it may be any other:
    /// control characters, and white space around it.
    ///
    /// The scheme is in lower case and what needs no escape has none; neither have `/` and
    /// `\`, which is one ([RFC 3986, section 6.2.2], and the [URL standard]). `.` and `..`
    /// are taken out of the path, once as URLs are read, and once as file systems read
    /// paths: with `//` for `/`, and to which `?` is a character like any other. Other
    /// readings are those with the host in lower case, without what `file:` and web
    /// addresses can do without, without the fragment, without any escape and with all that
    /// there can be.
    ///
    /// [RFC 3986, section 6.2.2]: https://www.rfc-editor.org/rfc/rfc3986#section-6.2.2
    /// [URL standard]: https://url.spec.whatwg.org/#url-parsing
    pub(crate) fn of(uri: &str) -> Option<Self> {
        if uri.trim() != uri || uri.contains(char::is_control) {
            return None;
        }
        let (scheme, rest) = uri.split_at(uri.find(':').map_or(0, |colon| colon + 1));
        if is_plain(scheme, rest) {
            return Some(Self::default());
        }
        let (scheme, rest) = (scheme.to_ascii_lowercase(), without_escapes(rest));
        let is_new = |known: &[String], new: &String| new != uri && !known.contains(new);
        let mut places = Vec::new();
        for place in places_of(&scheme, &rest, false) {
            if is_new(&places, &place) {
                places.push(place);
            }
        }
        let mut others = Vec::new();
        let mut note = |other: String| {
            if is_new(&places, &other) && !others.contains(&other) {
                others.push(other);
            }
        };
        for place in places_of(&scheme, &with_usual_host(&scheme, &rest), scheme == "file:") {
            note(escaped(&place));
            note(unescaped(&place));
            if let Some((before, _)) = place.split_once('#') {
                note(before.to_owned());
                note(escaped(before));
                note(unescaped(before));
            }
            note(place);
        }
        Some(Self { places, others })
    }

    /// All of them.
    pub(crate) fn all(self) -> impl Iterator<Item = String> {
        self.places.into_iter().chain(self.others)
    }
}

/// Whether a URI without control characters has no other reading. To ask costs no memory.
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
            !path.starts_with('/') && !path.contains("//") && !path.contains('?')
        });
    }
    let (authority, path) = authority(rest);
    let is_usual = match usual_port(scheme) {
        Some(port) => {
            authority.len() > 2
                && path.starts_with('/')
                && !authority.contains('@')
                && !authority.ends_with(port)
        }
        None => true,
    };
    is_usual && !authority.contains(|c: char| c.is_ascii_uppercase()) && !path.contains("?..")
}

/// Parts `//host` from what is behind it.
fn authority(rest: &str) -> (&str, &str) {
    let end = match rest.strip_prefix("//") {
        Some(after) => 2 + after.find(['/', '?', '#']).unwrap_or(after.len()),
        None => 0,
    };
    rest.split_at(end)
}

/// The port of a web address that has none, with its colon.
fn usual_port(scheme: &str) -> Option<&'static str> {
    match scheme {
        "http:" | "ws:" => Some(":80"),
        "https:" | "wss:" => Some(":443"),
        "ftp:" => Some(":21"),
        _ => None,
    }
}

/// With the host as it is usually written, where a URI can do with another or without.
fn with_usual_host(scheme: &str, rest: &str) -> String {
    if let Some(port) = usual_port(scheme) {
        let rest = format!("//{}", rest.trim_start_matches('/'));
        let (host, path) = authority(&rest);
        let host = host[2..].rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
        let host = host.strip_suffix(port).unwrap_or(&host);
        let slash = if path.starts_with('/') { "" } else { "/" };
        return format!("//{host}{slash}{path}");
    }
    let (host, path) = authority(rest);
    let host = host.to_ascii_lowercase();
    if scheme != "file:" {
        return format!("{host}{path}");
    }
    let host = if ["", "//localhost"].contains(&&*host) { "//" } else { &*host };
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{host}{slash}{path}")
}

/// Where a URI leads whose escapes are read, perhaps also if `//` is `/`.
fn places_of(scheme: &str, rest: &str, reads_slashes: bool) -> Vec<String> {
    let (authority, rest) = authority(rest);
    let (path, query) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    let place = |path: &str| format!("{scheme}{authority}{path}");
    let mut places = vec![place(&format!("{}{query}", without_dots(path)))];
    if reads_slashes || rest.split('/').any(|segment| segment == "..") {
        places.push(place(&without_dots(&with_single_slashes(rest))));
    }
    if scheme == "file:" && !query.is_empty() {
        places.push(place(&without_dots(&with_single_slashes(path))));
    }
    places
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

/// Without escapes of what needs none, and of what parts a path; `\` parts it for some.
fn without_escapes(text: &str) -> String {
    let mut read = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, written)) = next(&mut rest) {
        if needs_no_escape(byte) {
            read.push(byte);
        } else {
            read.extend(written);
        }
    }
    // Only ASCII was put in.
    String::from_utf8_lossy(&read).replace('\\', "/")
}

/// Without any escape.
fn unescaped(text: &str) -> String {
    let mut read = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, _)) = next(&mut rest) {
        read.push(byte);
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// With escapes of all that cannot stand in a URI, in upper case.
fn escaped(text: &str) -> String {
    let mut read = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, written)) = next(&mut rest) {
        if written.len() == 1 && byte.is_ascii() && !needs_escape(byte) {
            read.push(byte);
        } else {
            let digit = |digit: u8| b"0123456789ABCDEF"[usize::from(digit)];
            read.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// The next byte of a text, and how it is written.
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

const fn needs_no_escape(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/' | b'\\')
}

/// Whether an ASCII character cannot stand in a URI.
const fn needs_escape(byte: u8) -> bool {
    matches!(byte, b' ' | b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}')
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

    fn places(uri: &str) -> Vec<String> {
        Readings::of(uri).unwrap().places
    }

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
            ("docs://host/../a?b=/c", "docs://host/a?b=/c"),
            ("urn:a/../b", "urn:b"),
            ("urn:../b", "urn:b"),
        ] {
            assert_eq!(places(uri), [read], "{uri}");
        }
    }

    #[test]
    fn a_path_is_read_as_a_url_and_as_a_file_system_would() {
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
            assert_eq!(places(uri), read, "{uri}");
        }
    }

    #[test]
    fn what_a_uri_can_do_without_may_be_read_without_it() {
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
            ("https://h", "https://h/"),
            ("https://h?x", "https://h/?x"),
            ("http://h:80/a/../x", "http://h/x"),
        ] {
            let readings = Readings::of(uri).unwrap();
            let all: Vec<_> = readings.places.iter().chain(&readings.others).collect();
            assert!(all.iter().any(|reading| **reading == read), "{uri}: {all:?}");
            assert!(all.iter().all(|reading| **reading != uri), "{uri}: {all:?}");
        }
    }

    #[test]
    fn what_has_no_other_spelling_is_read_as_it_is() {
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
    fn what_stays_as_it_is_leads_where_it_says() {
        for uri in [
            "file:///a%20b",
            "file:///a%2",
            "file:///%zz",
            "file:///100%",
            "db://Table",
            "docs://größe/%C3%A9",
            "docs://host/%c3%a9",
        ] {
            assert_eq!(places(uri), [""; 0], "{uri}");
        }
    }

    #[test]
    fn a_uri_of_which_parsers_leave_something_out_is_read_as_nothing() {
        for uri in [
            "file:///sec\tret",
            "file:///open/.\t./secret",
            "file:///sec\r\nret",
            "file:///secret\0",
            "file:///secret\u{7f}",
            " file:///secret",
            "file:///secret ",
            "\u{a0}file:///secret",
            "\u{1}file:///secret",
        ] {
            assert_eq!(Readings::of(uri), None, "{uri:?}");
        }
    }

    #[test]
    fn plain_is_what_would_be_read_as_it_is() {
        let parts = ["/", "//", "..", ".", "?", "a", "H", "@", ":443"];
        let count = parts.len();
        let mut plain = 0;
        for number in 0..count.pow(4) {
            let choose = |place| parts[number / count.pow(place) % count];
            let rest = [0, 1, 2, 3].map(choose).concat();
            for scheme in ["file:", "https:", "db:", ""] {
                if !is_plain(scheme, &rest) {
                    continue;
                }
                plain += 1;
                let uri = format!("{scheme}{rest}");
                let usual = with_usual_host(scheme, &rest);
                let mut read = places_of(scheme, &rest, false);
                read.extend(places_of(scheme, &usual, scheme == "file:"));
                read.retain(|reading| *reading != uri);
                assert_eq!(read, [""; 0], "{uri}");
            }
        }
        assert!(plain > 1000, "{plain}");
    }
}
