use regex::Regex;

/// What begins an expression that stands for more than a part of a path.
const OPERATORS: [char; 7] = ['+', '#', '.', '/', ';', '?', '&'];

/// A template of URIs that clients see with another beginning.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// What the server's begin with.
    original: String,
    /// What clients' begin with.
    shown: String,
    /// What both end with.
    end: Regex,
}

// === impl Template ===

impl Template {
    /// Two templates that differ in their beginning only; `None` if they differ in
    /// more, or either is none.
    pub(super) fn new(original: &str, shown: &str) -> Option<Self> {
        let (original, end) = original.split_at(original.find('{')?);
        let (shown, end_shown) = shown.split_at(shown.find('{')?);
        if end != end_shown {
            return None;
        }
        let end = Regex::new(&expression(end)).ok()?;
        Some(Self { original: original.to_owned(), shown: shown.to_owned(), end })
    }

    /// The server's URI, if clients' is one of the template.
    pub(super) fn original_of(&self, shown: &str) -> Option<String> {
        self.swap(shown, &self.shown, &self.original)
    }

    /// The clients' URI, if the server's is one of the template.
    pub(super) fn client_uri(&self, original: &str) -> Option<String> {
        self.swap(original, &self.original, &self.shown)
    }

    fn swap(&self, uri: &str, from: &str, to: &str) -> Option<String> {
        let end = uri.strip_prefix(from)?;
        self.end.is_match(end).then(|| format!("{to}{end}"))
    }
}

/// A regular expression for what a template expands to ([RFC 6570]), not stricter
/// than that.
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
