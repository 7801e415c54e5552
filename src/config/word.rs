//! Plain words: strings of up to 64 ASCII letters, digits, `_` and `-`. Error messages may quote
//! plain words, because they are unlikely to be secrets.

/// The maximum length of a plain word, in characters. [`is_word`] defines plain words.
const MAX_WORD: usize = 64;

/// Returns `true` if `text` is a plain word: 1 to 64 ASCII letters, digits, `_` and `-`.
pub(super) fn is_word(text: &str) -> bool {
    (1..=MAX_WORD).contains(&text.len()) && text.chars().all(is_word_character)
}

/// Returns `true` if a plain word may contain the character: an ASCII letter, an ASCII digit, `_`
/// or `-`.
pub(super) const fn is_word_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}
