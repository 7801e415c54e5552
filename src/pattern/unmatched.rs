use std::sync::atomic::{AtomicBool, Ordering};

use super::Patterns;
use crate::{complaints::Complaints, near::nearest};

/// Which patterns of a rule have matched nothing so far.
#[derive(Debug)]
pub(crate) struct Unmatched {
    patterns: Patterns,
    matched: Box<[AtomicBool]>,
}

// === impl Unmatched ===

impl Unmatched {
    pub(crate) fn new(patterns: Patterns) -> Self {
        let matched = patterns.iter().map(|_| AtomicBool::new(false)).collect();
        Self { patterns, matched }
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
        for (pattern, matched) in self.patterns.iter().zip(&self.matched) {
            if !matched.load(Ordering::Relaxed) {
                let hint = nearest(pattern, names).map(|near| format!(": did you mean `{near}`?"));
                let hint = hint.unwrap_or_default();
                complaints.tell(format_args!("`{pattern}` in `{setting}` matches no {kind}{hint}"));
            }
        }
    }
}
