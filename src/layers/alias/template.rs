//! Translates URIs between two URI templates that differ only in their prefix.

use regex::Regex;

/// The operators of template expressions, such as `+` in `{+path}`, whose expansions may contain
/// several path segments.
const OPERATORS: [char; 7] = ['+', '#', '.', '/', ';', '?', '&'];

/// A resource template that has one prefix on the server and another for clients. The prefix is the
/// part of the template before its first `{`.
#[derive(Clone, Debug)]
pub(super) struct Template {
    original: String,
    /// The prefix that clients use, for example `data://`.
    client: String,
    /// A regular expression that matches the part of a URI after the prefix. This part of the
    /// template is the same on the server and for clients.
    end: Regex,
}

// === impl Template ===

impl Template {
    /// Creates a template from the server's template `original` and the client's template `client`.
    /// Returns `None` if they differ in more than the prefix, or if one of them contains no `{`.
    pub(super) fn new(original: &str, client: &str) -> Option<Self> {
        let (original, end) = original.split_at(original.find('{')?);
        let (client, client_end) = client.split_at(client.find('{')?);
        if end != client_end {
            return None;
        }
        let end = Regex::new(&expression(end)).ok()?;
        Some(Self { original: original.to_owned(), client: client.to_owned(), end })
    }

    /// Translates a client's URI to the server's URI. Returns `None` if the URI does not match the
    /// template.
    pub(super) fn original_of(&self, uri: &str) -> Option<String> {
        self.swap(uri, &self.client, &self.original)
    }

    /// Translates a server's URI to the client's URI. Returns `None` if the URI does not match the
    /// template.
    pub(super) fn client_uri(&self, original: &str) -> Option<String> {
        self.swap(original, &self.original, &self.client)
    }

    fn swap(&self, uri: &str, from: &str, to: &str) -> Option<String> {
        let end = uri.strip_prefix(from)?;
        self.end.is_match(end).then(|| format!("{to}{end}"))
    }
}

/// Returns a regular expression that matches all expansions of `template`, the part of a URI
/// template after the prefix ([RFC 6570]). It may also match other texts.
///
/// [RFC 6570]: https://www.rfc-editor.org/rfc/rfc6570
fn expression(mut template: &str) -> String {
    let mut expression = String::from(r"\A(?s:");
    while let Some((literal, rest)) = template.split_once('{') {
        expression.push_str(&regex::escape(literal));
        let Some((variables, rest)) = rest.split_once('}') else {
            template = rest;
            break;
        };
        expression.push_str(if variables.starts_with(OPERATORS) { ".*" } else { "[^/?#]*" });
        template = rest;
    }
    expression.push_str(&regex::escape(template));
    expression.push_str(r")\z");
    expression
}
