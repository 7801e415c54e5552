//! Counts the values of a JSON text before it is parsed.

/// The maximum number of values in a message.
///
/// A parsed value takes some 50 bytes and as many nanoseconds, and several times that when rmcp
/// tries one type after another: a message of 4 MiB with a million empty arrays would take hundreds
/// of MiB, and keep a worker thread of the runtime busy for half a second.
pub(crate) const MAX_VALUES: usize = 1 << 18;

/// Counts values in a JSON text that arrives in pieces.
///
/// Each bracket that opens, comma and colon outside a string counts as a value. The key of a
/// member counts as one, and so does its value.
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
    /// After a backslash in a string.
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
