//! Plain words: the texts that a message may quote, since they are unlikely to be secrets.

/// Maximum length of a plain word.
const MAX_WORD: usize = 64;

/// Returns `true` if `text` is a plain word.
pub(super) fn is_word(text: &str) -> bool {
    (1..=MAX_WORD).contains(&text.len()) && text.chars().all(is_word_character)
}

/// Returns `true` if a plain word may contain the character.
pub(super) const fn is_word_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}
