//! Counts the values in a JSON text before the text is parsed, so that expensive messages can be
//! rejected.

/// The maximum number of JSON values in a message.
///
/// Parsing takes about 50 bytes of memory and 50 nanoseconds per value, and more if rmcp tries
/// several message types. Without the limit, a message of 4 MiB with a million empty arrays would
/// take hundreds of MiB. It would block a worker thread of the runtime for half a second.
pub(crate) const MAX_VALUES: usize = 1 << 18;

/// A counter of the values in a JSON text that is received in pieces.
///
/// Each opening bracket, comma and colon outside a string counts as one value. A member of an
/// object therefore counts as two values: its key and its value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ValueCount {
    values: usize,
    place: LexerState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LexerState {
    #[default]
    Outside,
    String,
    /// Inside a string, directly after a backslash.
    Escape,
}

// === impl ValueCount ===

impl ValueCount {
    pub(crate) fn add(&mut self, text: &[u8]) {
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match (self.place, byte) {
                (LexerState::Outside, b'{' | b'[' | b',' | b':') => self.values += 1,
                (LexerState::Outside, b'"') => self.place = LexerState::String,
                (LexerState::Outside, _) => {}
                (LexerState::Escape, _) => self.place = LexerState::String,
                (LexerState::String, b'"') => self.place = LexerState::Outside,
                (LexerState::String, b'\\') => self.place = LexerState::Escape,
                (LexerState::String, _) => {
                    let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                    rest = &rest[end.unwrap_or(rest.len())..];
                }
            }
        }
    }

    pub(crate) const fn is_too_large(self) -> bool {
        self.values > MAX_VALUES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pieces: &[&str]) -> usize {
        let mut count = ValueCount::default();
        for piece in pieces {
            count.add(piece.as_bytes());
        }
        count.values
    }

    #[test]
    fn string_counts_as_one_value_whatever_it_contains() {
        assert_eq!(count(&[r#"{"a":"x"}"#]), 2);
        assert_eq!(count(&[r#"{"a":"[,,,{:\"[[,\\"}"#]), 2);
        assert_eq!(count(&[r#"{"a":"\\","b":[1,2]}"#]), 6);
    }

    #[test]
    fn value_count_does_not_depend_on_chunk_boundaries() {
        let text = r#"{"a\"":[1,{"b":"\\\","},"],["],"c":""}"#;
        let whole = count(&[text]);
        for middle in 0..text.len() {
            let (before, after) = text.split_at(middle);
            assert_eq!(count(&[before, after]), whole, "{before} | {after}");
        }
    }
}
