//! JSON that stands in texts, whose value takes more memory than they do.

use serde_json::Value;

/// How much memory a value may take that is read from a text of data.
const MAX_READ_BYTES: usize = 16 << 20;

/// What the value of a text that is JSON is called if it would be too large.
pub(crate) const TOO_LARGE: &str = "a text whose value is too large";

/// How much memory the value of a JSON text takes at most; what is no JSON is read
/// up to where it is none.
pub(crate) fn bytes_of(text: &str) -> usize {
    let mut bytes = text.len();
    let mut in_string = false;
    let mut is_escaped = false;
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => (),
            // Room for eleven members is made for the first.
            b'{' => bytes += 640,
            b'[' | b',' | b':' => bytes += 32,
            _ => (),
        }
    }
    bytes
}

/// Whether the value of a JSON text may take more memory than one may.
pub(crate) fn is_too_large(text: &str) -> bool {
    bytes_of(text) > MAX_READ_BYTES
}

/// The value of a text, unless it is no JSON or too large.
pub(crate) fn read(text: &str) -> Option<Value> {
    if is_too_large(text) { None } else { serde_json::from_str(text).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_value_large_is_counted_outside_of_strings() {
        for (text, more) in [
            ("1", 0),
            (r#""{[,:""#, 0),
            (r#""\"{\\\"{""#, 0),
            ("[1,2]", 64),
            (r#"{"a":1}"#, 672),
            (r#"["\\",{}]"#, 32 + 32 + 640),
        ] {
            assert_eq!(bytes_of(text), text.len() + more, "{text}");
        }
    }

    #[test]
    fn a_text_is_read_unless_its_value_is_too_large() {
        let of = |count: usize| format!("[{}0]", r#"{"":0},"#.repeat(count));
        assert_eq!(read(&of(20_000)).and_then(|value| Some(value.as_array()?.len())), Some(20_001));
        assert_eq!(read(&of(30_000)), None);
        assert_eq!(read("[0"), None);
        // Each comma counts 33.
        let commas = ",".repeat(MAX_READ_BYTES / 33) + &"1".repeat(MAX_READ_BYTES % 33);
        assert!(!is_too_large(&commas) && is_too_large(&(commas + "1")));
    }
}
