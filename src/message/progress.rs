//! Progress notifications for a client while its request is running.

mod client;
mod label;

use std::{
    borrow::Cow,
    fmt,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

use futures::{
    FutureExt,
    future::{BoxFuture, poll_fn},
};
#[expect(deprecated, reason = "older clients and servers log")]
use rmcp::model::LoggingMessageNotification;
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotification, ProgressToken, ServerNotification},
};
use tokio::time::{Instant, Sleep, sleep_until};

pub(crate) use self::label::Labels;
use self::{
    client::{Client, Due},
    label::{Label, Message, cut},
};
use super::Logs;
use crate::mutex::lock;

/// The maximum progress of a running part, even if its server reports more, so that the progress
/// still increases when the part ends.
const MOST: f64 = 0.99;
/// The maximum number of running parts in the message of a notification.
const MAX_NAMED_PARTS: usize = 3;

/// Reports the progress of one request to the client that made it.
///
/// The [`Context`](super::Context) of a request contains a `Progress` reporter if the client sent a
/// progress token. rmcp handlers send progress notifications directly to the client. All other
/// services use the reporter, also to forward notifications of remote servers.
///
/// The client receives progress notifications with [increasing][increase] values, and none after
/// the reply. Reporting never waits for a slow client: a new notification replaces one that has not
/// been sent yet.
///
/// [increase]: https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/progress
#[derive(Clone)]
pub struct Progress(Stream);

#[derive(Clone)]
enum Stream {
    Client(Arc<Client>),
    /// The reporter of one part of a request, which updates the progress of the whole request.
    Part {
        whole: Arc<Parts>,
        part: usize,
    },
}

/// The parts of a request, such as the steps of a composite. Each completed part increases the
/// progress of the request by one.
pub(crate) struct Parts {
    whole: Progress,
    labels: Arc<Labels>,
    /// The progress of each part, from 0 to 1.
    done: Mutex<Box<[f64]>>,
}

/// Sends the progress notifications and log messages about one request to the client that made it.
pub(crate) struct Pump {
    progress: Option<Arc<Client>>,
    logs: Option<Logs>,
    peer: Peer<RoleServer>,
    sending: Option<BoxFuture<'static, ()>>,
    /// Fires when the next progress notification may be sent. `None` if no notification has been
    /// delayed yet.
    timer: Option<Pin<Box<Sleep>>>,
}

// === impl Progress ===

impl Progress {
    /// Creates the progress reporter of a request with the progress token `token`. A [`Pump`] must
    /// send its notifications.
    pub(crate) fn new(token: ProgressToken) -> Self {
        Self(Stream::Client(Arc::new(Client::new(token))))
    }

    /// Reports the current progress of the request and, if known, the total. Both can have any
    /// unit, for example bytes or percent.
    ///
    /// Ignores values of `progress` that are not finite or not larger than the previous one. Does
    /// not block: the notification is stored, and then sent in the background.
    pub fn report(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        if !progress.is_finite() {
            return;
        }
        match &self.0 {
            Stream::Client(client) => client.report(progress, total, message),
            Stream::Part { whole, part } => whole.report(*part, fraction(progress, total), message),
        }
    }

    /// Splits the request into parts, such as the steps of a composite. `labels` contains the
    /// labels of the parts. Each completed part increases the progress of the request by one.
    pub(crate) fn split(&self, labels: Arc<Labels>) -> Arc<Parts> {
        Arc::new(Parts::new(self.clone(), labels))
    }

    /// Sends a heartbeat: a notification that the request is still running. `parts` is the total
    /// number of parts. The number of completed parts does not change.
    pub(crate) fn still(&self, parts: usize, message: String) {
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 parts")]
        self.push(0.0, parts as f64, Message::text(message));
    }

    /// Reports that `done` of `total` parts are completed. If `done` has not increased, adds a tiny
    /// amount to it, because the protocol requires increasing values.
    fn push(&self, done: f64, total: f64, message: Message) {
        match &self.0 {
            Stream::Client(client) => client.push(done, total, message),
            Stream::Part { whole, part } => {
                whole.push(*part, fraction(done, Some(total)), &message)
            }
        }
    }

    /// Returns the time of the last notification or, before the first one, of the arrival of the
    /// request. Returns `None` for the reporter of a part.
    fn sent(&self) -> Option<Instant> {
        match &self.0 {
            Stream::Client(client) => Some(client.sent()),
            Stream::Part { .. } => None,
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Stream::Client(client) => f.debug_tuple("Progress").field(&client.token).finish(),
            Stream::Part { whole, part } => {
                let label = whole.label(*part).to_string();
                f.debug_tuple("Progress").field(&label).finish()
            }
        }
    }
}

// === impl Parts ===

impl Parts {
    fn new(whole: Progress, labels: Arc<Labels>) -> Self {
        let done = Mutex::new(vec![0.0; labels.count()].into_boxed_slice());
        Self { whole, labels, done }
    }

    pub(crate) fn part(self: &Arc<Self>, part: usize) -> Progress {
        Progress(Stream::Part { whole: self.clone(), part })
    }

    pub(crate) fn begin(&self, part: usize) {
        self.update(part, 0.0, "");
    }

    /// Reports that a part has ended. `how` describes the outcome, such as `failed`.
    pub(crate) fn end(&self, part: usize, how: &'static str) {
        self.update(part, 1.0, how);
    }

    /// Counts a skipped part as completed, without a notification.
    pub(crate) fn skip(&self, part: usize) {
        lock(&self.done)[part] = 1.0;
    }

    /// Sends a heartbeat: a notification that the parts with these indexes are still running.
    pub(crate) fn still(&self, running: &[usize]) {
        let (named, more) = running.split_at(running.len().min(MAX_NAMED_PARTS));
        let named: Vec<_> = named.iter().map(|&part| self.label(part).to_string()).collect();
        let more = match more.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let done = lock(&self.done).iter().sum();
        let message = format!("still running: {}{more}", named.join(", "));
        self.whole.push(done, self.labels.count_as_value(), Message::text(message));
    }

    /// Returns the time of the last notification or, before the first one, of the arrival of the
    /// request. Returns `None` if the request is itself a part of another request.
    pub(crate) fn sent(&self) -> Option<Instant> {
        self.whole.sent()
    }

    /// Reports the progress of a part, from 0 to 1, as received from its server. Does nothing if
    /// the progress has not increased.
    fn report(&self, part: usize, fraction: f64, message: Option<String>) {
        let fraction = fraction.min(MOST);
        if fraction > lock(&self.done)[part] {
            let message = message.map_or_else(String::new, |message| cut(&message).into());
            self.update(part, fraction, message);
        }
    }

    /// Reports the progress of a part that is itself split into parts, from 0 to 1. Sends a
    /// notification even if the progress has not increased, because the message may be new.
    fn push(&self, part: usize, fraction: f64, message: &Message) {
        self.update(part, fraction.min(MOST), message.to_string());
    }

    fn update(&self, part: usize, fraction: f64, text: impl Into<Cow<'static, str>>) {
        let mut done = lock(&self.done);
        done[part] = done[part].max(fraction);
        let sum = done.iter().sum();
        drop(done);
        let message = Message::of_part(self.labels.clone(), part, text.into());
        self.whole.push(sum, self.labels.count_as_value(), message);
    }

    fn label(&self, part: usize) -> Label<'_> {
        Label { labels: &self.labels, part }
    }
}

// === impl Pump ===

impl Pump {
    /// Creates the sender of the progress notifications and log messages of a request. Returns
    /// `None` if the client receives neither. A reporter of a part needs no sender, because the
    /// whole request has one.
    pub(crate) fn new(
        progress: Option<&Progress>,
        logs: Option<&Logs>,
        peer: Peer<RoleServer>,
    ) -> Option<Self> {
        let progress = progress.and_then(|progress| match &progress.0 {
            Stream::Client(client) => Some(client.clone()),
            Stream::Part { .. } => None,
        });
        let logs = logs.cloned();
        if progress.is_none() && logs.is_none() {
            return None;
        }
        Some(Self { progress, logs, peer, sending: None, timer: None })
    }

    /// Polls the future `work` to completion, and sends notifications to the client while it is
    /// pending.
    ///
    /// When `work` has completed, sends the remaining notifications before it returns the output,
    /// so that the client receives none after the reply.
    pub(crate) async fn beside<F: Future>(mut self, work: F) -> F::Output {
        let output = {
            let mut work = pin!(work);
            poll_fn(|cx| {
                let output = work.as_mut().poll(cx);
                if output.is_pending() {
                    // The result is ignored, because the task is registered for new notifications
                    // in any case.
                    let _ = self.poll(cx, false);
                }
                output
            })
            .await
        };
        poll_fn(|cx| self.poll(cx, true)).await;
        output
    }

    /// Sends the pending notifications. Returns `Ready` when none is left. `is_answered` is `true`
    /// if `work` has completed.
    fn poll(&mut self, cx: &mut Context<'_>, is_answered: bool) -> Poll<()> {
        loop {
            match &mut self.sending {
                Some(sending) => {
                    ready!(sending.poll_unpin(cx));
                    self.sending = None;
                }
                None => {
                    // `next` registers the waker before it checks, so that no wakeup is missed.
                    let Some(next) = self.next(cx, is_answered) else {
                        return Poll::Ready(());
                    };
                    let peer = self.peer.clone();
                    let sending = async move {
                        if let Err(error) = peer.send_notification(next).await {
                            tracing::debug!(%error, "failed to send a notification of a request");
                        }
                    };
                    self.sending = Some(sending.boxed());
                }
            }
        }
    }

    /// Returns the next notification to send. If there is none, returns `None`, and registers the
    /// current task to be woken by the next one.
    #[expect(deprecated, reason = "older clients and servers log")]
    fn next(&mut self, cx: &mut Context<'_>, is_answered: bool) -> Option<ServerNotification> {
        while let Some(client) = &self.progress {
            client.pump.register(cx.waker());
            match client.due(is_answered) {
                Due::Now(next) => return Some(ProgressNotification::new(next).into()),
                Due::Nothing => break,
                Due::At(due) => {
                    let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
                    if timer.deadline() != due {
                        timer.as_mut().reset(due);
                    }
                    if timer.poll_unpin(cx).is_pending() {
                        break;
                    }
                }
            }
        }
        let logs = self.logs.as_ref()?;
        logs.register(cx);
        let next = logs.next(is_answered)?;
        Some(LoggingMessageNotification::new(next).into())
    }
}

/// Returns `progress` as a fraction of `total`, between 0 and 1.
///
/// If the total is unknown, returns an estimate that increases with `progress` and never reaches 1.
fn fraction(progress: f64, total: Option<f64>) -> f64 {
    let fraction = match total {
        Some(total) if total > 0.0 => progress / total,
        _ => progress / (progress + 1.0),
    };
    // `max` turns NaN into zero.
    fraction.clamp(0.0, 1.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::fraction;

    #[test]
    fn fraction_is_between_zero_and_one_for_any_server_value() {
        assert_eq!(fraction(1.0, Some(4.0)), 0.25);
        assert_eq!(fraction(5.0, Some(4.0)), 1.0);
        assert_eq!(fraction(-1.0, Some(4.0)), 0.0);
        assert_eq!(fraction(1.0, Some(0.0)), 0.5);
        assert_eq!(fraction(3.0, None), 0.75);
        assert_eq!(fraction(f64::NAN, Some(4.0)), 0.0);
        assert_eq!(fraction(f64::INFINITY, None), 0.0);
    }
}
