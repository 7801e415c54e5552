use std::sync::atomic::{AtomicBool, Ordering};

use super::{Patterns, REGEX, glob::SPECIAL};
use crate::{complaints::Complaints, near::nearest};

/// How many characters in front of its first `*` say what a glob may mean.
const MIN_STEM: usize = 3;

/// Which patterns of a rule have matched nothing so far.
#[derive(Debug)]
pub(crate) struct Unmatched {
    patterns: Patterns,
    matched: Box<[AtomicBool]>,
    of: Option<String>,
}

// === impl Unmatched ===

impl Unmatched {
    pub(crate) fn new(patterns: Patterns) -> Self {
        let matched = patterns.iter().map(|_| AtomicBool::new(false)).collect();
        Self { patterns, matched, of: None }
    }

    /// Says whose rule it is.
    pub(crate) fn of(mut self, whose: Option<&str>) -> Self {
        self.of = whose.map(str::to_owned);
        self
    }

    /// Whether there is anything left to look for.
    pub(crate) fn is_over(&self) -> bool {
        self.matched.iter().all(|matched| matched.load(Ordering::Relaxed))
    }

    /// Looks at a name that is there.
    pub(crate) fn see(&self, name: &str) {
        for place in self.patterns.which(name) {
            self.matched[place].store(true, Ordering::Relaxed);
        }
    }

    /// Tells what has matched nothing, when all there is was seen. `setting` says
    /// where the patterns stand, `kind` what they are for, and `names` what one of
    /// them may have meant.
    pub(crate) fn tell(
        &self,
        complaints: &Complaints,
        setting: &str,
        kind: impl std::fmt::Display,
        names: &[&str],
    ) {
        let of = self.of.as_ref().map(|whose| format!(" of {whose}")).unwrap_or_default();
        for (pattern, matched) in self.patterns.iter().zip(&self.matched) {
            if !matched.load(Ordering::Relaxed) {
                let hint = meant(pattern, names).map(|near| format!(": did you mean `{near}`?"));
                let hint = hint.unwrap_or_default();
                complaints
                    .tell(format_args!("`{pattern}` in `{setting}`{of} matches no {kind}{hint}"));
            }
        }
    }
}

/// The name that is most likely meant: one that is nearly the pattern's text, or
/// that begins nearly as a glob does.
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

/// The first so many characters.
fn head(name: &str, length: usize) -> &str {
    name.char_indices().nth(length).map_or(name, |(end, _)| &name[..end])
}
