use serde_json::Value;

use crate::json_size::{json_bytes, record_inspected};

/// What stands where something was cut off.
pub(super) const MARK: &str = "…";

/// What parts of a value cost: bytes of JSON, here and in texts that repeat it.
///
/// In a text, the JSON of a value is escaped once more. What a text costs that is made
/// again of the shortened value is so known of each part, and nothing has to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// Whether the value itself is part of the result.
    stands: bool,
    /// How many texts repeat it.
    texts: usize,
}

/// What one character costs, by how it is escaped.
#[derive(Clone, Copy)]
struct Prices {
    plain: usize,
    /// A quote or a backslash.
    slashed: usize,
    /// One that has a short escape, such as `\n`.
    short: usize,
    /// Any other control character, `\u0000`.
    long: usize,
}

// === impl Cost ===

impl Cost {
    /// Of a value that stands in the result.
    pub(super) const STANDING: Self = Self { stands: true, texts: 0 };
    /// Of one that only texts repeat.
    pub(super) const TOLD: Self = Self { stands: false, texts: 0 };

    /// The same, in so many texts more.
    pub(super) const fn and_texts(self, texts: usize) -> Self {
        Self { texts: self.texts + texts, ..self }
    }

    /// A bracket, a comma or a colon.
    pub(super) const fn mark(self) -> usize {
        self.prices().plain
    }

    /// An empty array or object.
    pub(super) const fn brackets(self) -> usize {
        2 * self.mark()
    }

    /// A key with its colon.
    pub(super) fn key(self, key: &str) -> usize {
        self.text(key) + self.mark()
    }

    /// A text of which nothing but the mark is left.
    pub(super) const fn cut_text(self) -> usize {
        2 * self.quote() + MARK.len() * self.prices().plain
    }

    /// A text with its quotes.
    pub(super) fn text(self, text: &str) -> usize {
        record_inspected(text.len());
        let prices = self.prices();
        // Counted in ways that compilers make fast: most texts need few escapes.
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

    /// What is neither text, array nor object.
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

    /// The beginning of a text that costs at most so much, without quotes.
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

    /// A text cut to what it may cost, with the mark and quotes, and how much of it is
    /// left.
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

/// How many bytes are like that, counted in pieces whose counts are bytes themselves.
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
