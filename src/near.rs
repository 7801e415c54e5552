//! The near miss: what somebody most likely meant.

/// The candidate that `word` is most likely a slip of, if there is one.
pub(crate) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    // The distance takes time with the product of both lengths, and nothing
    // that is this long is a slip of a key.
    if word.chars().count() > 64 {
        return None;
    }
    let plain = plain(word);
    candidates
        .iter()
        .map(|candidate| (distance(&plain, candidate), *candidate))
        .filter(|(distance, candidate)| {
            *distance <= candidate.len().max(3) / 3 && *distance < candidate.len()
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn distance(plain_word: &str, candidate: &str) -> usize {
    strsim::damerau_levenshtein(plain_word, &plain(candidate))
}

/// The word without what only tells spellings apart, such as `maxParallel` from
/// `max-parallel`.
fn plain(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 6] = ["name", "tools", "targets", "timeout", "input_schema", "max_parallel"];

    #[test]
    fn slips_are_near() {
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

    #[test]
    fn other_words_are_not() {
        assert_eq!(nearest("b", &["a"]), None);
        let long = "tools".repeat(100);
        for word in ["", "x", "retries", "cache", "nope", "strategy", &long] {
            assert_eq!(nearest(word, &KEYS), None, "{word}");
        }
    }
}
