//! The messages of progress notifications. A message about a part of a request contains a label,
//! for example `step 2/5 fetch_logs`.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    sync::Arc,
};

/// The maximum length, in characters, of a server's progress message that is part of another
/// message. Longer messages are truncated.
const MAX_DETAIL: usize = 200;

/// Labels for the parts into which a request is split. They appear in progress messages.
#[derive(Debug)]
pub(crate) enum Labels {
    /// The parts have names, such as the steps of a workflow. Contains the noun for a part, and the
    /// name of each part. A label looks like `step 2/5 fetch_logs`.
    Named(&'static str, Box<[Arc<str>]>),
    /// The parts have only numbers. Contains the noun for a part, and the number of parts. A label
    /// looks like `element 3/10`.
    Numbered(&'static str, usize),
}

/// The message of a progress notification. It is converted to a string only when it is sent,
/// because many notifications are replaced before they are sent.
pub(super) struct Message {
    /// The labels, and the index of the part that the message describes. `None` if the message
    /// describes the whole request.
    part: Option<(Arc<Labels>, usize)>,
    text: Cow<'static, str>,
}

/// Formats the label of one part of a request, for example as `step 2/5 fetch_logs`.
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
    /// Creates a message about one part of a request, for example `step 2/5 fetch_logs: failed`.
    /// `part` is the index of the part.
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

/// Truncates a text to [`MAX_DETAIL`] characters. Appends `…` if characters were removed.
pub(super) fn cut(text: &str) -> Box<str> {
    match text.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
