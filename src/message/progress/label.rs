//! The messages of progress notifications, and the labels of a request's parts in these messages,
//! for example `step 2/5 fetch_logs`.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    sync::Arc,
};

/// The maximum length of a server's progress message in characters. Longer messages are truncated.
const MAX_DETAIL: usize = 200;

/// The labels that name the parts of a request in progress messages.
#[derive(Debug)]
pub(crate) enum Labels {
    /// The kind of the parts, and the name of each part. Formatted as `step 2/5 fetch_logs`.
    Named(&'static str, Box<[Arc<str>]>),
    /// The kind and the number of the parts, which have no names. Formatted as `element 3/10`.
    Numbered(&'static str, usize),
}

/// The message of a progress notification. To save time, it is formatted only when it is sent.
pub(super) struct Message {
    /// The part of the request to which the message belongs. `None` if the message is about the
    /// whole request.
    part: Option<(Arc<Labels>, usize)>,
    text: Cow<'static, str>,
}

/// The label of one part of a request, formatted for example as `step 2/5 fetch_logs`.
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
    /// Creates a message about one part of a request. The label of the part precedes `text`.
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

/// Truncates a text to [`MAX_DETAIL`] characters. If characters are removed, appends `…`.
pub(super) fn cut(text: &str) -> Box<str> {
    match text.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
