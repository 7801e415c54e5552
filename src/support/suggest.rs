//! Suggests the valid word that is most similar to a misspelled word, for error messages.

use std::fmt;

/// Maximum number of characters of a misspelled word. Longer words get no suggestion.
const MAX_MISSPELLED_WORD: usize = 64;

/// The end of an error message with a suggestion. Displays `did you mean …?`, or nothing if the
/// suggestion is `None`.
pub(crate) struct DidYouMean<'a>(pub(crate) Option<&'a str>);

/// Returns the candidate that is most similar to the misspelled `word`. Returns `None` if no
/// candidate is similar enough.
pub(crate) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    // Skips long words, because they are not typos of a key, and because the time grows with the
    // product of both lengths.
    if word.chars().count() > MAX_MISSPELLED_WORD {
        return None;
    }
    let plain = plain(word);
    candidates
        .iter()
        .filter_map(|candidate| Some((distance(&plain, candidate)?, *candidate)))
        .filter(|(distance, candidate)| {
            *distance <= slips(candidate) && *distance < candidate.len()
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the maximum number of typos with which a word still suggests `candidate`: a third of the
/// length of the candidate, and at least one.
fn slips(candidate: &str) -> usize {
    candidate.len().max(3) / 3
}

/// Returns the number of typos by which a word differs from the candidate. `plain_word` is the
/// result of [`plain`] for the word. Returns `None` if the candidate is too long, or if the lengths
/// differ too much.
fn distance(plain_word: &str, candidate: &str) -> Option<usize> {
    // Skips long candidates early, by their length in bytes. The limit allows four bytes per
    // character, and twice as many characters, because `plain` removes separators.
    if candidate.len() > 8 * MAX_MISSPELLED_WORD {
        return None;
    }
    let candidate_plain = plain(candidate);
    // If one word is longer, each additional character is a typo.
    let more = candidate_plain.chars().count().abs_diff(plain_word.chars().count());
    (more <= slips(candidate)).then(|| strsim::damerau_levenshtein(plain_word, &candidate_plain))
}

/// Converts a word to lower case and removes `_`, `-` and spaces, so that spellings such as
/// `maxParallel` and `max-parallel` become equal.
pub(crate) fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(near) => write!(f, ": did you mean `{near}`?"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 6] = ["name", "tools", "targets", "timeout", "input_schema", "max_parallel"];

    #[test]
    fn misspelled_word_suggests_the_nearest_key() {
        for (word, key) in [
            ("tols", "tools"),
            ("tool", "tools"),
            ("naem", "name"),
            ("Timeout", "timeout"),
            ("maxParallel", "max_parallel"),
            ("input-schema", "input_schema"),
            ("target", "targets"),
        ] {
            assert_eq!(nearest(word, &KEYS), Some(key), "{word}");
        }
    }

    /// Servers can list names of any length, so comparing them must not be slow.
    #[test]
    fn long_candidates_are_compared_in_little_time() {
        let word = "a".repeat(MAX_MISSPELLED_WORD);
        let long = "a".repeat(16 << 20);
        let start = cpu_time::ThreadTime::now();
        assert_eq!(nearest(&word, &[&long, &word]), Some(&*word));
        assert!(start.elapsed() < std::time::Duration::from_secs(5));
    }

    #[test]
    fn unrelated_word_suggests_no_key() {
        assert_eq!(nearest("b", &["a"]), None);
        let long = "tools".repeat(100);
        for word in ["", "x", "retries", "cache", "nope", "strategy", &long] {
            assert_eq!(nearest(word, &KEYS), None, "{word}");
        }
    }
}
