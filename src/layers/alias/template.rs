//! Translates URIs between two URI templates with different prefixes.

use regex::Regex;

/// Operators of expressions that can expand to more than a path segment.
const OPERATORS: [char; 7] = ['+', '#', '.', '/', ';', '?', '&'];

/// A URI template that clients see with another prefix.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// The server's prefix.
    original: String,
    /// The clients' prefix.
    shown: String,
    /// The pattern of the rest of both templates.
    end: Regex,
}

// === impl Template ===

impl Template {
    /// Creates a pair of templates that differ only in their prefix. Returns `None` if they differ
    /// in more, or if either is not a template.
    pub(super) fn new(original: &str, shown: &str) -> Option<Self> {
        let (original, end) = original.split_at(original.find('{')?);
        let (shown, end_shown) = shown.split_at(shown.find('{')?);
        if end != end_shown {
            return None;
        }
        let end = Regex::new(&expression(end)).ok()?;
        Some(Self { original: original.to_owned(), shown: shown.to_owned(), end })
    }

    /// Returns the server's URI of a client's URI that matches the template.
    pub(super) fn original_of(&self, shown: &str) -> Option<String> {
        self.swap(shown, &self.shown, &self.original)
    }

    /// Returns the client's URI of a server's URI that matches the template.
    pub(super) fn client_uri(&self, original: &str) -> Option<String> {
        self.swap(original, &self.original, &self.shown)
    }

    fn swap(&self, uri: &str, from: &str, to: &str) -> Option<String> {
        let end = uri.strip_prefix(from)?;
        self.end.is_match(end).then(|| format!("{to}{end}"))
    }
}

/// Builds a regular expression that matches at least all expansions of a URI template ([RFC 6570]).
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
