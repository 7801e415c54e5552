//! Splits texts into search terms.

/// Maximum number of characters of a word. Longer words are truncated to this length.
const MAX_LENGTH: usize = 64;

/// Returns the words of a text, in lower case.
///
/// Each run of letters and digits is split into parts, for example where the case changes from
/// lower to upper. The whole run is a word, and so is each of its parts: `GitHub` contains the
/// words `git`, `hub` and `github`. `list_issues` consists of two runs, and contains the words
/// `list` and `issues`.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    runs(text).flat_map(|run| {
        let parts = parts(run);
        let whole = (parts.len() > 1).then_some(run);
        parts.into_iter().chain(whole).map(lower)
    })
}

/// Returns the parts of a text in lower case, in order and separated by spaces. For example,
/// `createIssue`, `create_issue` and `Create issue` all become `create issue`.
pub(super) fn plain(text: &str) -> String {
    let words: Vec<String> = runs(text).flat_map(parts).map(lower).collect();
    words.join(" ")
}

/// Returns the longest prefix of `text` that has at most `most` bytes and ends between two
/// characters.
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

/// Splits a run of letters and digits into its parts. For example, `getHTTPResponse2` becomes
/// `get`, `HTTP`, `Response` and `2`.
fn parts(run: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut before = None;
    let mut characters = run.char_indices().peekable();
    while let Some((index, character)) = characters.next() {
        let after = characters.peek().map(|(_, after)| *after);
        if before.is_some_and(|before| begins_part(before, character, after)) {
            parts.push(&run[start..index]);
            start = index;
        }
        before = Some(character);
    }
    parts.push(&run[start..]);
    parts
}

/// Returns `true` if a new part of a word begins between the characters `before` and `character`,
/// for example between `e` and `I` in `createIssue`.
fn begins_part(before: char, character: char, after: Option<char>) -> bool {
    before.is_numeric() != character.is_numeric()
        || before.is_lowercase() && character.is_uppercase()
        // The last of several capital letters begins the next part, as the `R` in `HTTPResponse`.
        || before.is_uppercase() && character.is_uppercase() && after.is_some_and(char::is_lowercase)
        || is_word_alone(before)
        || is_word_alone(character)
}

/// Returns `true` if the script of the character is usually written without spaces between words.
const fn is_word_alone(character: char) -> bool {
    matches!(character,
        '\u{3040}'..='\u{30ff}' // Kana.
        | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}') // Han.
}

fn lower(word: &str) -> String {
    word.chars().take(MAX_LENGTH).flat_map(char::to_lowercase).collect()
}
