//! Logs a warning for each configured pattern that matches no listed item, for example because the
//! pattern is misspelled.

use std::fmt;

use super::{Patterns, REGEX, glob::SPECIAL};
use crate::{
    pattern_watch::{Missed, WatchedNames},
    suggest::{DidYouMean, nearest},
    warnings::Warnings,
};

/// The minimum length of a glob's prefix before its first wildcard, in characters. Names with a
/// similar prefix are suggested only if the prefix is at least this long.
const MIN_STEM: usize = 3;

/// The patterns of a setting, such as `allow`. Records for each pattern whether it has matched a
/// listed item.
#[derive(Debug)]
pub(crate) struct Unmatched {
    setting: &'static str,
    patterns: Patterns,
    matched: Box<[bool]>,
}

// === impl Unmatched ===

impl Unmatched {
    /// Creates a value that tracks the patterns of the setting named `setting`. Initially, no
    /// pattern has matched.
    pub(crate) fn new(setting: &'static str, patterns: Patterns) -> Self {
        let matched = patterns.iter().map(|_| false).collect();
        Self { setting, patterns, matched }
    }
}

impl WatchedNames for Vec<Unmatched> {
    fn see(&mut self, name: &str) {
        for unmatched in self {
            for index in unmatched.patterns.which(name) {
                unmatched.matched[index] = true;
            }
        }
    }

    fn is_found(&self) -> bool {
        self.iter().flat_map(|unmatched| &unmatched.matched).all(|matched| *matched)
    }
}

// === impl Missed ===

impl Missed<Vec<Unmatched>> {
    /// Logs a warning for each pattern that matches no item in the list, and suggests the most
    /// similar name in the list. `kind` is the kind of the items, such as `tool`. `of` describes
    /// the server that lists the items, if there is a description.
    pub(crate) fn warn(&self, warnings: &Warnings, kind: impl fmt::Display, of: Option<&str>) {
        let names = self.names();
        let of = of.map(|whose| format!(" of {whose}")).unwrap_or_default();
        for Unmatched { setting, patterns, matched } in &self.sought {
            for (pattern, _) in patterns.iter().zip(matched).filter(|(_, matched)| !**matched) {
                let hint = DidYouMean(meant(pattern, &names));
                warnings
                    .warn(format_args!("`{pattern}` in `{setting}`{of} matches no {kind}{hint}"));
            }
        }
    }
}

/// Returns the name that the operator probably meant with a misspelled pattern. For a glob, the
/// name may also begin like the text before the first wildcard, as `search_docs` does for `serch*`.
/// Returns `None` if no name is similar.
fn meant<'n>(pattern: &str, names: &[&'n str]) -> Option<&'n str> {
    if let Some(name) = nearest(pattern, names) {
        return Some(name);
    }
    let stem = &pattern[..pattern.find(SPECIAL)?];
    let length = stem.chars().count();
    if length < MIN_STEM || pattern.starts_with(REGEX) {
        return None;
    }
    let heads: Vec<_> = names
        .iter()
        .flat_map(|name| (length - 1..=length + 1).map(|length| head(name, length)))
        .collect();
    let near = nearest(stem, &heads)?;
    names.iter().copied().find(|name| name.starts_with(near))
}

/// Returns the first `length` characters of a name. Returns the whole name if it is shorter.
fn head(name: &str, length: usize) -> &str {
    name.char_indices().nth(length).map_or(name, |(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_suggests_a_name_with_a_similar_prefix() {
        for (pattern, name) in [
            ("abcd*", "abcdefgh"),
            ("abd*", "abcdefgh"),
            ("xabc*", "abcdefgh"),
            ("bcde*", "abcdefgh"),
            ("xbcd*", "abcdefgh"),
        ] {
            assert_eq!(meant(pattern, &["other", name]), Some(name), "{pattern}");
        }
        for pattern in ["xy*", "xyabc*", "cdef*", "re:abcd.*"] {
            assert_eq!(meant(pattern, &["other", "abcdefgh"]), None, "{pattern}");
        }
    }
}
