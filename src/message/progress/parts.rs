//! The progress of a request that has several steps.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::Instant;

use super::{Progress, Stream};

/// The maximum length of a server's progress message, in characters. Longer ones are truncated.
const MAX_DETAIL: usize = 200;
/// The maximum completed fraction of a running part, whatever the server reports, so that the value
/// can still increase.
const MOST: f64 = 0.99;
/// The maximum number of running parts that a message names.
const MAX_NAMED: usize = 3;

/// The parts of a request, such as the steps of a workflow, each of which counts as one.
pub(crate) struct Parts {
    whole: Progress,
    labels: Arc<Labels>,
    /// The completed fraction of each part, from zero to one.
    done: Mutex<Box<[f64]>>,
}

/// The names of parts in messages.
#[derive(Debug)]
pub(crate) enum Labels {
    /// The kind of the parts and their names in order: `step 2/5 fetch_logs`.
    Named(&'static str, Box<[Arc<str>]>),
    /// The kind of the parts and their number: `element 3/10`.
    Numbered(&'static str, usize),
}

/// The message of a notification. It is formatted only if it is sent.
pub(super) struct Message {
    /// The part that the message is about.
    part: Option<(Arc<Labels>, usize)>,
    text: Cow<'static, str>,
}

/// The label of one part.
pub(super) struct Label<'p> {
    labels: &'p Labels,
    part: usize,
}

// === impl Parts ===

impl Parts {
    pub(super) fn new(whole: Progress, labels: Arc<Labels>) -> Self {
        let done = Mutex::new(vec![0.0; labels.count()].into_boxed_slice());
        Self { whole, labels, done }
    }

    /// Returns the progress of one part.
    pub(crate) fn part(self: &Arc<Self>, part: usize) -> Progress {
        Progress(Stream::Part { whole: self.clone(), part })
    }

    /// Reports that a part begins.
    pub(crate) fn begin(&self, part: usize) {
        self.update(part, 0.0, "");
    }

    /// Reports that a part is done, and its outcome.
    pub(crate) fn end(&self, part: usize, how: &'static str) {
        self.update(part, 1.0, how);
    }

    /// Counts a skipped part without reporting it.
    pub(crate) fn skip(&self, part: usize) {
        self.with(|done| done[part] = 1.0);
    }

    /// Reports that these parts are still running.
    pub(crate) fn still(&self, running: &[usize]) {
        let (named, more) = running.split_at(running.len().min(MAX_NAMED));
        let named: Vec<_> = named.iter().map(|&part| self.label(part).to_string()).collect();
        let more = match more.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let done = self.with(|done| done.iter().sum());
        let message = format!("still running: {}{more}", named.join(", "));
        self.whole.push(done, self.labels.count_as_value(), Message::text(message));
    }

    /// Returns the time of the last notification, if these are the parts of a whole request.
    pub(crate) fn sent(&self) -> Option<Instant> {
        self.whole.sent()
    }

    /// Reports a server's progress on a part, if it increased.
    pub(super) fn report(&self, part: usize, fraction: f64, message: Option<String>) {
        let fraction = fraction.min(MOST);
        if self.with(|done| fraction > done[part]) {
            let message = message.map_or_else(String::new, |message| cut(&message).into());
            self.update(part, fraction, message);
        }
    }

    /// Forwards a part's report about its own parts.
    pub(super) fn push(&self, part: usize, fraction: f64, message: &Message) {
        self.update(part, fraction.min(MOST), message.to_string());
    }

    fn update(&self, part: usize, fraction: f64, text: impl Into<Cow<'static, str>>) {
        let done = self.with(|done| {
            done[part] = done[part].max(fraction);
            done.iter().sum()
        });
        let message = Message { part: Some((self.labels.clone(), part)), text: text.into() };
        self.whole.push(done, self.labels.count_as_value(), message);
    }

    pub(super) fn label(&self, part: usize) -> Label<'_> {
        Label { labels: &self.labels, part }
    }

    fn with<T>(&self, look: impl FnOnce(&mut [f64]) -> T) -> T {
        // No code panics while the lock is held, and the values would be consistent if it did.
        look(&mut self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Labels ===

impl Labels {
    fn count(&self) -> usize {
        match self {
            Self::Named(_, names) => names.len(),
            Self::Numbered(_, count) => *count,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 parts")]
    fn count_as_value(&self) -> f64 {
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

/// Truncates a text to [`MAX_DETAIL`] characters.
fn cut(text: &str) -> Box<str> {
    match text.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}
