//! Suggestions at the end of error messages.

use std::fmt;

/// Prints a suggestion.
pub(super) struct DidYouMean<'a>(pub(super) Option<&'a str>);

/// Prints a suggestion, or the keywords that are allowed.
pub(super) struct Instead<'a> {
    pub(super) near: Option<&'a str>,
    pub(super) expected: &'a [&'a str],
}

impl fmt::Display for DidYouMean<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(near) => write!(f, ": did you mean `{near}`?"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Instead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.near.is_some() {
            return DidYouMean(self.near).fmt(f);
        }
        for (place, word) in self.expected.iter().enumerate() {
            let before = if place == 0 { ": expected one of" } else { "," };
            write!(f, "{before} `{word}`")?;
        }
        Ok(())
    }
}
