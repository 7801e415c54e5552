//! Parses strings that contain JSON, and limits the memory of the parsed values. They can need much
//! more memory than the strings.

use serde_json::Value;

/// The maximum memory of a value that is parsed from a JSON string, in bytes.
const MAX_READ_BYTES: usize = 16 << 20;

pub(crate) const TOO_LARGE: &str = "a text whose value is too large";

/// Returns an upper bound for the memory of the value in the JSON string `text`, in bytes.
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
            // The first member of an object allocates space for eleven members.
            b'{' => bytes += 640,
            b'[' | b',' | b':' => bytes += 32,
            _ => (),
        }
    }
    bytes
}

/// Returns `true` if the value in the JSON string `text` could exceed the maximum memory.
pub(crate) fn is_too_large(text: &str) -> bool {
    bytes_of(text) > MAX_READ_BYTES
}

/// Parses the JSON string `text`. Returns `None` if it is invalid, or if its value could exceed the
/// maximum memory.
pub(crate) fn read(text: &str) -> Option<Value> {
    if is_too_large(text) { None } else { serde_json::from_str(text).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_size_is_estimated_from_punctuation_outside_strings() {
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
    fn text_is_parsed_unless_its_value_is_too_large() {
        let of = |count: usize| format!("[{}0]", r#"{"":0},"#.repeat(count));
        assert_eq!(read(&of(20_000)).and_then(|value| Some(value.as_array()?.len())), Some(20_001));
        assert_eq!(read(&of(30_000)), None);
        assert_eq!(read("[0"), None);
        // Each comma counts as 33 bytes.
        let commas = ",".repeat(MAX_READ_BYTES / 33) + &"1".repeat(MAX_READ_BYTES % 33);
        assert!(!is_too_large(&commas) && is_too_large(&(commas + "1")));
    }
}
