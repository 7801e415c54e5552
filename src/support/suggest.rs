//! Finds the nearest match of a misspelled word.

use std::fmt;

/// The maximum number of characters of a word. No suggestion is made for a longer word.
const MAX_MISSPELLED_WORD: usize = 64;

/// Displays a suggestion for the end of an error message. Displays nothing if there is no
/// suggestion.
pub(crate) struct DidYouMean<'a>(pub(crate) Option<&'a str>);

/// Returns the candidate that a misspelled `word` most likely means, or `None` if no candidate is
/// similar.
pub(crate) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    // The time grows with the product of both lengths, and a longer word is not a typo of a key.
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

/// Returns the maximum number of typos that a word may have for the candidate to be suggested.
fn slips(candidate: &str) -> usize {
    candidate.len().max(3) / 3
}

/// Returns the number of typos between a word and a candidate, or `None` if their lengths differ
/// too much.
fn distance(plain_word: &str, candidate: &str) -> Option<usize> {
    // Up to four bytes per character, and as many again for the characters that `plain` removes.
    if candidate.len() > 8 * MAX_MISSPELLED_WORD {
        return None;
    }
    let candidate_plain = plain(candidate);
    // Each additional character of the longer word is a typo.
    let more = candidate_plain.chars().count().abs_diff(plain_word.chars().count());
    (more <= slips(candidate)).then(|| strsim::damerau_levenshtein(plain_word, &candidate_plain))
}

/// Returns the word in lower case without separators, so that `maxParallel` and `max-parallel`
/// become equal.
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

    /// A server can list a name of any length.
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
