//! Redacts secrets, such as passwords and tokens, in texts.

use std::{borrow::Cow, collections::BTreeSet, fmt, fmt::Write, ops::Range, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};

/// The minimum number of characters of a secret. Shorter secrets are not redacted, because they
/// would also match harmless words.
const MIN_CHARACTERS: usize = 4;

const MASK: &str = "***";

/// A set of secrets, such as passwords and tokens, to redact from texts.
///
/// A [`RemoteService`](super::remote) redacts `Secrets` in all errors and log messages about its
/// server. Clones share the secrets. `BackendConfig::secrets` returns the secrets of a backend in a
/// configuration file.
///
/// # Limits
///
/// A secret is found in four forms: unchanged, percent-encoded, in standard base64 (as in HTTP's
/// `Basic` authentication) and as a JSON string. Each line of a multi-line secret is also treated
/// as a separate secret. Parts of a secret, secrets in different letter case and other encodings
/// are not found. Secrets with less than four characters are ignored.
///
/// # Examples
///
/// ```
/// use mcp_composite::adapter::secrets::Secrets;
///
/// let secrets = Secrets::new(["hunter2".to_owned()]);
/// assert_eq!(secrets.redact("no user with hunter2"), "no user with ***");
/// assert_eq!(format!("{secrets:?}"), "Secrets(…)");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The texts to redact. They contain each secret in all its encodings, and are sorted from
    /// longest to shortest.
    texts: Arc<[String]>,
}

// === impl Secrets ===

impl Secrets {
    /// Creates a set of secrets from these values, such as passwords.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut texts = BTreeSet::new();
        for value in values {
            add(&value, &mut texts);
            add(value.trim(), &mut texts);
            for line in value.lines() {
                add(line.trim(), &mut texts);
            }
        }
        Self::of(texts)
    }

    /// Returns the union of both sets of secrets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self::of(self.texts.iter().chain(&*other.texts).cloned().collect())
    }

    fn of(texts: BTreeSet<String>) -> Self {
        let mut texts: Vec<_> = texts.into_iter().collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self { texts: texts.into() }
    }

    /// Replaces every secret in the text by `***`.
    ///
    /// If secrets in the text overlap or contain each other, they are replaced by a single `***`.
    #[must_use]
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let places = self.places(text);
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut redacted = String::with_capacity(text.len());
        let mut end = 0;
        for place in places {
            redacted.push_str(&text[end..place.start]);
            redacted.push_str(MASK);
            end = place.end;
        }
        redacted.push_str(&text[end..]);
        Cow::Owned(redacted)
    }

    /// Returns the byte ranges of all secrets in the text. The ranges are ordered and do not
    /// overlap.
    fn places(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for secret in self.texts.iter() {
            let step = secret.chars().next().map_or(1, char::len_utf8);
            let mut from = 0;
            while let Some(at) = text.get(from..).and_then(|rest| rest.find(secret.as_str())) {
                let start = from + at;
                let end = start + secret.len();
                match found.last_mut() {
                    // The match overlaps the previous one, for example because the secret overlaps
                    // itself.
                    Some(last) if last.start <= start && start <= last.end => {
                        last.end = last.end.max(end);
                    }
                    _ => found.push(start..end),
                }
                from = start + step;
            }
        }
        found.sort_by_key(|place| place.start);
        let mut places: Vec<Range<usize>> = Vec::new();
        for place in found {
            match places.last_mut() {
                Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
                _ => places.push(place),
            }
        }
        places
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

/// Returns the credentials in a header value such as `Bearer TOKEN`: the text after the first
/// space. Returns `None` if the value contains no space.
#[cfg(any(feature = "config", feature = "http"))]
pub(crate) fn credentials(value: &str) -> Option<&str> {
    value.trim().split_once(' ').map(|(_, credentials)| credentials.trim())
}

/// Adds a secret in all its encodings to `texts`. Ignores secrets that are too short.
fn add(secret: &str, texts: &mut BTreeSet<String>) {
    if secret.chars().nth(MIN_CHARACTERS - 1).is_none() {
        return;
    }
    let json = serde_json::Value::from(secret).to_string();
    let forms = [
        secret.to_owned(),
        percent_encoded(secret),
        BASE64_STANDARD_NO_PAD.encode(secret),
        // The JSON string without its quotes.
        json.get(1..json.len() - 1).unwrap_or_default().to_owned(),
    ];
    texts.extend(forms);
}

/// Percent-encodes a text as a URL component.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(secrets: &[&str], text: &str) -> String {
        Secrets::new(secrets.iter().map(|&secret| secret.to_owned())).redact(text).into_owned()
    }

    #[test]
    fn secrets_are_redacted_anywhere_in_a_text() {
        assert_eq!(redact(&["hunter2"], "hunter2 and hunter2, hunter2hunter2"), "*** and ***, ***");
        assert_eq!(redact(&["hunter2"], "hunter"), "hunter");
        assert_eq!(redact(&["schlüssel"], "ein schlüssel"), "ein ***");
        assert_eq!(redact(&[], "text"), "text");
    }

    #[test]
    fn text_without_secrets_is_not_copied() {
        let secrets = Secrets::new(["hunter2".to_owned()]);
        assert!(matches!(secrets.redact("nothing"), Cow::Borrowed("nothing")));
    }

    #[test]
    fn nested_and_overlapping_secrets_are_redacted_as_a_whole() {
        assert_eq!(redact(&["token", "my-token-1"], "my-token-1 token"), "*** ***");
        assert_eq!(redact(&["abcd1234", "1234efgh"], "<abcd1234efgh>"), "<***>");
        assert_eq!(redact(&["aaaa"], "<aaaaaa>"), "<***>");
        assert_eq!(redact(&["éaéa"], "<éaéaéa>"), "<***>");
    }

    #[test]
    fn short_texts_are_not_redacted() {
        assert_eq!(redact(&["", "a", "abc", "äöü"], "abc äöü YWJj"), "abc äöü YWJj");
        assert_eq!(redact(&["äöüß"], "äöüß"), "***");
    }

    #[test]
    fn secrets_are_redacted_in_encoded_forms_and_single_lines() {
        let text =
            "?t=p%40ss%2Fword Basic dXNlcjpwYXNz dXNlcjpwYXNzMQ== {\"a\":\"say \\\"hi\\\"\"}";
        assert_eq!(
            redact(&["p@ss/word", "user:pass", "user:pass1", "say \"hi\""], text),
            "?t=*** Basic *** ***== {\"a\":\"***\"}"
        );
        assert_eq!(redact(&["hunter2\n"], "with hunter2."), "with ***.");
        assert_eq!(redact(&["first line\nsecond line"], "second line"), "***");
    }
}
