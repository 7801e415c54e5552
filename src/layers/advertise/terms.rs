//! Texts as the words that are searched for.

/// How many characters of a word tell it from others.
const MAX_LENGTH: usize = 64;

/// The words of a text, in lower case: what stands between other characters than
/// letters and digits, its parts, and as a whole if it has several.
///
/// `GitHub` is `git`, `hub` and `github`; `list_issues` is `list` and `issues`.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    runs(text).flat_map(|run| {
        let parts = parts(run);
        let whole = (parts.len() > 1).then_some(run);
        parts.into_iter().chain(whole).map(lower)
    })
}

/// A text as nothing but its words, in their order: the same for `createIssue`,
/// `create_issue` and `Create issue`.
pub(super) fn plain(text: &str) -> String {
    let words: Vec<String> = runs(text).flat_map(parts).map(lower).collect();
    words.join(" ")
}

/// The beginning of a text, of no more bytes than `most`.
pub(super) fn beginning(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty())
}

/// `getHTTPResponse2` is `get`, `HTTP`, `Response` and `2`.
fn parts(run: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut before = None;
    let mut characters = run.char_indices().peekable();
    while let Some((place, character)) = characters.next() {
        let after = characters.peek().map(|(_, after)| *after);
        if before.is_some_and(|before| begins_part(before, character, after)) {
            parts.push(&run[start..place]);
            start = place;
        }
        before = Some(character);
    }
    parts.push(&run[start..]);
    parts
}

/// Whether a new part of a word begins with `character`.
fn begins_part(before: char, character: char, after: Option<char>) -> bool {
    before.is_numeric() != character.is_numeric()
        || before.is_lowercase() && character.is_uppercase()
        // The last capital of several belongs to what follows them.
        || before.is_uppercase() && character.is_uppercase() && after.is_some_and(char::is_lowercase)
        || is_word_alone(before)
        || is_word_alone(character)
}

/// Whether the character is of a script that is written without spaces.
const fn is_word_alone(character: char) -> bool {
    matches!(character,
        '\u{3040}'..='\u{30ff}' // Kana.
        | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}') // Han.
}

fn lower(word: &str) -> String {
    word.chars().take(MAX_LENGTH).flat_map(char::to_lowercase).collect()
}
