//! Computes the number of bytes that each part of a JSON value takes in a tool result.

use serde_json::Value;

use crate::json_size::{json_bytes, record_inspected};

/// The character that is appended to a cut text.
pub(super) const MARK: &str = "…";

/// Computes the cost of parts of a JSON value: the number of bytes that a part takes in the tool
/// result. The part may occur several times in the result, in the value itself and in text blocks
/// that repeat the value as JSON. Its cost includes all of them.
///
/// A text block that repeats the value contains JSON within a JSON string, so its characters are
/// escaped twice. The cost includes the escapes, so that the text need not be rendered to measure
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// `true` if the result contains the value itself. `false` if only text blocks repeat it.
    stands: bool,
    /// The number of text blocks that repeat the value as JSON.
    texts: usize,
}

/// The cost of one byte of a string, in bytes. It depends on the escape that JSON requires. `plain`
/// is the cost of a byte without an escape.
#[derive(Clone, Copy)]
struct Prices {
    plain: usize,
    /// The cost of a quotation mark or a backslash, which are escaped with a backslash.
    slashed: usize,
    /// The cost of a control character with a short escape, such as `\n`.
    short: usize,
    /// The cost of any other control character, which needs a long escape such as `\u0000`.
    long: usize,
}

// === impl Cost ===

impl Cost {
    /// The cost of a value that the result contains once, and that no text block repeats.
    pub(super) const STANDING: Self = Self { stands: true, texts: 0 };
    /// The cost of a value that occurs only in text blocks that repeat it as JSON.
    /// [`and_texts`](Self::and_texts) sets the number of these blocks.
    pub(super) const TEXT_ONLY: Self = Self { stands: false, texts: 0 };

    /// Increases the number of text blocks that repeat the value by `texts`.
    pub(super) const fn and_texts(self, texts: usize) -> Self {
        Self { texts: self.texts + texts, ..self }
    }

    /// Returns the cost of one punctuation character, such as a bracket, comma or colon.
    pub(super) const fn mark(self) -> usize {
        self.prices().plain
    }

    /// Returns the cost of the brackets of an array or object.
    pub(super) const fn brackets(self) -> usize {
        2 * self.mark()
    }

    /// Returns the cost of an object key, including its quotes and the colon after it.
    pub(super) fn key(self, key: &str) -> usize {
        self.text(key) + self.mark()
    }

    /// Returns the cost of the shortest cut string, which consists of quotes and the [`MARK`].
    pub(super) const fn cut_text(self) -> usize {
        2 * self.quote() + MARK.len() * self.prices().plain
    }

    /// Returns the cost of a whole string, including its quotes.
    pub(super) fn text(self, text: &str) -> usize {
        record_inspected(text.len());
        let prices = self.prices();
        // Count each kind of character in a pass that the compiler can vectorize. Most texts
        // contain few escapes.
        let bytes = text.as_bytes();
        let slashed = count(bytes, |byte| byte == b'"' || byte == b'\\');
        let control = count(bytes, |byte| byte < 0x20);
        let short = if control == 0 { 0 } else { count(bytes, is_short) };
        (bytes.len() - slashed - control) * prices.plain
            + slashed * prices.slashed
            + short * prices.short
            + (control - short) * prices.long
            + 2 * self.quote()
    }

    /// Returns the cost of a number, a boolean or `null`. Returns zero for other values.
    pub(super) fn scalar(self, value: &Value) -> usize {
        let bytes = match value {
            Value::Null | Value::Bool(true) => 4,
            Value::Bool(false) => 5,
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => digits(number),
                (None, Some(number)) => 1 + digits(number.unsigned_abs()),
                (None, None) => json_bytes(number),
            },
            Value::String(_) | Value::Array(_) | Value::Object(_) => 0,
        };
        record_inspected(bytes);
        bytes * self.prices().plain
    }

    /// Returns the longest prefix of `text` that costs at most `budget` bytes, not including
    /// quotes.
    pub(super) fn beginning(self, text: &str, budget: usize) -> &str {
        let prices = self.prices();
        let mut left = budget;
        for (at, character) in text.char_indices() {
            let cost = match character {
                '"' | '\\' => prices.slashed,
                '\0'..='\u{1f}' if is_short(character as u8) => prices.short,
                '\0'..='\u{1f}' => prices.long,
                _ => character.len_utf8() * prices.plain,
            };
            match left.checked_sub(cost) {
                Some(rest) => left = rest,
                None => {
                    record_inspected(at);
                    return &text[..at];
                }
            }
        }
        record_inspected(text.len());
        text
    }

    /// Cuts a string and appends the [`MARK`], so that the result costs at most `budget` bytes,
    /// including quotes. Also returns the number of bytes of `text` that are kept.
    pub(super) fn cut(self, text: &str, budget: usize) -> (String, usize) {
        let beginning = self.beginning(text, budget.saturating_sub(self.cut_text()));
        (format!("{beginning}{MARK}"), beginning.len())
    }

    const fn quote(self) -> usize {
        self.stands as usize + 2 * self.texts
    }

    const fn prices(self) -> Prices {
        let (here, texts) = (self.stands as usize, self.texts);
        Prices {
            plain: here + texts,
            slashed: 2 * here + 4 * texts,
            short: 2 * here + 3 * texts,
            long: 6 * here + 7 * texts,
        }
    }
}

/// Returns the number of bytes for which `is` returns `true`. Counts in chunks of 255 bytes, so
/// that a `u8` counter cannot overflow and the compiler can vectorize the loop.
fn count(bytes: &[u8], is: impl Fn(u8) -> bool) -> usize {
    let pieces = bytes.chunks(usize::from(u8::MAX));
    pieces.map(|piece| usize::from(piece.iter().map(|byte| u8::from(is(*byte))).sum::<u8>())).sum()
}

const fn is_short(byte: u8) -> bool {
    matches!(byte, b'\x08' | b'\t' | b'\n' | b'\x0c' | b'\r')
}

const fn digits(number: u64) -> usize {
    match number.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}
