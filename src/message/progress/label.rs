//! The messages of progress notifications. A message about a part of a request begins with a label,
//! such as `step 2/5 fetch_logs`.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    sync::Arc,
};

/// The maximum length of a server's progress message inside another message, in characters. Longer
/// messages are truncated.
const MAX_DETAIL: usize = 200;

/// The labels for the parts of a request in progress messages.
#[derive(Debug)]
pub(crate) enum Labels {
    /// Parts with names, such as `step 2/5 fetch_logs`. Contains the noun, such as `step`, and the
    /// names.
    Named(&'static str, Box<[Arc<str>]>),
    /// Parts without names, such as `element 3/10`. Contains the noun, such as `element`, and the
    /// number of parts.
    Numbered(&'static str, usize),
}

/// The message of a progress notification. Formatted only when it is sent, because newer
/// notifications replace many before that.
pub(super) struct Message {
    /// The labels and the index of the part. `None` if the message is about the whole request.
    part: Option<(Arc<Labels>, usize)>,
    text: Cow<'static, str>,
}

/// Formats the label of a part, such as `step 2/5 fetch_logs`.
pub(super) struct Label<'p> {
    pub(super) labels: &'p Labels,
    pub(super) part: usize,
}

// === impl Labels ===

impl Labels {
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Named(_, names) => names.len(),
            Self::Numbered(_, count) => *count,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 parts")]
    pub(super) fn count_as_value(&self) -> f64 {
        self.count() as f64
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self::Numbered("step", 0)
    }
}

// === impl Message ===

impl Message {
    /// Creates a message about a part, such as `step 2/5 fetch_logs: failed`. `part` is its index.
    pub(super) const fn of_part(labels: Arc<Labels>, part: usize, text: Cow<'static, str>) -> Self {
        Self { part: Some((labels, part)), text }
    }

    pub(super) fn text(text: String) -> Self {
        Self { part: None, text: text.into() }
    }
}

impl Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((labels, part)) = &self.part else { return f.write_str(&self.text) };
        Label { labels, part: *part }.fmt(f)?;
        match &*self.text {
            "" => Ok(()),
            text => write!(f, ": {text}"),
        }
    }
}

// === impl Label ===

impl Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.part + 1;
        match self.labels {
            Labels::Named(what, names) => {
                write!(f, "{what} {place}/{} {}", names.len(), names[self.part])
            }
            Labels::Numbered(what, count) => write!(f, "{what} {place}/{count}"),
        }
    }
}

/// Truncates a text to [`MAX_DETAIL`] characters, and marks the end of a truncated text with `…`.
pub(super) fn cut(text: &str) -> Box<str> {
    match text.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
