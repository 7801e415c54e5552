//! Progress notifications of one request.

mod parts;

use std::{
    fmt,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, poll_fn},
    task::AtomicWaker,
};
#[expect(deprecated, reason = "older clients and servers log")]
use rmcp::model::LoggingMessageNotification;
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotification, ProgressNotificationParam, ProgressToken, ServerNotification},
};
use tokio::time::{Instant, Sleep, sleep_until};

use self::parts::Message;
pub(crate) use self::parts::{Labels, Parts};
use super::Logs;

/// The interval between two notifications of the progress of a composite, and between the
/// request and the first of them.
///
/// A composite that ends sooner sends none. Both parties [should limit the rate][rate], and a
/// notification takes a client as long as the answer of a short call.
///
/// [rate]: https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/progress
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
/// The smallest increase of a value, in steps, for a notification without a completed step.
const NUDGE: f64 = 1e-6;

/// The progress reporter of one request.
///
/// A request from a client that sent a progress token has one in its [`Context`](super::Context). A
/// server that receives progress other than through rmcp's own handlers reports it here, such as
/// the notifications of a remote server under a token of its own.
///
/// The client gets one stream whose values only [increase], and none after the answer. While the
/// client is slow, the latest notification replaces the previous ones, and no caller waits for it.
///
/// [increase]: https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/progress
#[derive(Clone)]
pub struct Progress(Stream);

#[derive(Clone)]
enum Stream {
    Client(Arc<Client>),
    /// A part of a request that is reported as one.
    Part {
        whole: Arc<Parts>,
        part: usize,
    },
}

/// The progress of a client's request, sent by a [`Pump`].
struct Client {
    token: ProgressToken,
    state: Mutex<State>,
    /// Woken when there is a notification to send.
    pump: AtomicWaker,
}

struct State {
    /// The value of the last notification.
    last: Option<f64>,
    /// The actual progress at that time, and how often the value was nudged since.
    reached: f64,
    nudges: u32,
    /// When the last notification was sent, or the request arrived.
    sent: Instant,
    next: Option<Next>,
}

/// The next notification. A later one replaces it.
struct Next {
    value: f64,
    total: Option<f64>,
    message: Option<Message>,
    /// Whether a composite reports its steps, which waits for the [`INTERVAL`].
    is_of_parts: bool,
}

/// The next notification to send, if any.
enum Due {
    Now(ProgressNotificationParam),
    At(Instant),
    Nothing,
}

/// Sends a client the progress and the log messages of one request.
pub(crate) struct Pump {
    progress: Option<Arc<Client>>,
    logs: Option<Logs>,
    peer: Peer<RoleServer>,
    sending: Option<BoxFuture<'static, ()>>,
    /// Fires when the next notification is due.
    timer: Option<Pin<Box<Sleep>>>,
}

// === impl Progress ===

impl Progress {
    /// Creates the progress of a request with this token; a [`Pump`] sends it.
    pub(crate) fn new(token: ProgressToken) -> Self {
        let state = State { last: None, reached: 0.0, nudges: 0, sent: Instant::now(), next: None };
        let client = Client { token, state: Mutex::new(state), pump: AtomicWaker::new() };
        Self(Stream::Client(Arc::new(client)))
    }

    /// Reports the progress of the request, in any unit, and the total if it is known.
    ///
    /// Ignores values that are not finite or do not increase. This only stores the next
    /// notification, so it is cheap and never blocks.
    pub fn report(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        if !progress.is_finite() {
            return;
        }
        match &self.0 {
            Stream::Client(client) => client.report(progress, total, message),
            Stream::Part { whole, part } => whole.report(*part, fraction(progress, total), message),
        }
    }

    /// Splits the request into parts, each of which counts as one.
    pub(crate) fn split(&self, labels: Arc<Labels>) -> Arc<Parts> {
        Arc::new(Parts::new(self.clone(), labels))
    }

    /// Reports that the request, which has this number of parts, is still running.
    pub(crate) fn still(&self, parts: usize, message: String) {
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 parts")]
        self.push(0.0, parts as f64, Message::text(message));
    }

    /// Reports the number of completed parts; if it did not increase, the value is nudged so that
    /// the message is sent.
    fn push(&self, done: f64, total: f64, message: Message) {
        match &self.0 {
            Stream::Client(client) => client.push(done, total, message),
            Stream::Part { whole, part } => {
                whole.push(*part, fraction(done, Some(total)), &message)
            }
        }
    }

    /// Returns the time of the last notification, if this is the progress of a whole request.
    fn sent(&self) -> Option<Instant> {
        match &self.0 {
            Stream::Client(client) => Some(client.with(|state| state.sent)),
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

// === impl Client ===

impl Client {
    fn report(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        self.with(|state| {
            if state.last.is_none_or(|last| progress > last) {
                let value = state.reach(progress);
                let total = total.filter(|total| total.is_finite());
                let message = message.map(Message::text);
                self.replace(state, Next { value, total, message, is_of_parts: false });
            }
        });
    }

    fn push(&self, done: f64, total: f64, message: Message) {
        if done >= total {
            // The answer reports it.
            return;
        }
        self.with(|state| {
            let value = match state.last {
                // Replaces a notification that was not sent, with the same value.
                Some(last) if done <= last && state.next.is_some() => Some(last),
                Some(last) if done <= last => state.nudge(total),
                _ => Some(state.reach(done)),
            };
            if let Some(value) = value {
                let (total, message) = (Some(total), Some(message));
                self.replace(state, Next { value, total, message, is_of_parts: true });
            }
        });
    }

    fn replace(&self, state: &mut State, next: Next) {
        state.last = Some(next.value);
        state.next = Some(next);
        self.pump.wake();
    }

    /// Takes the next notification if it can be sent now.
    ///
    /// The answer replaces a notification that still waits for the interval.
    fn due(&self, is_answered: bool) -> Due {
        self.with(|state| {
            let Some(next) = state.next.take() else { return Due::Nothing };
            let (now, due) = (Instant::now(), state.sent + INTERVAL);
            if next.is_of_parts && now < due {
                if is_answered {
                    return Due::Nothing;
                }
                state.next = Some(next);
                return Due::At(due);
            }
            state.sent = now;
            let mut notification = ProgressNotificationParam::new(self.token.clone(), next.value);
            notification.total = next.total;
            notification.message = next.message.map(|message| message.to_string());
            Due::Now(notification)
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        // No code panics while the lock is held, and the state would be consistent if it did.
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl State ===

impl State {
    fn reach(&mut self, value: f64) -> f64 {
        self.reached = value;
        self.nudges = 0;
        value
    }

    /// Returns a value for a notification without a completed step: the protocol requires a larger
    /// value than the last.
    ///
    /// It is a millionth of a step larger, and less than the next whole number of steps and the
    /// total, so it never reports an incomplete step as done. After a million of them without a
    /// completed step, it returns `None`.
    fn nudge(&mut self, total: f64) -> Option<f64> {
        let value = f64::from(self.nudges + 1).mul_add(NUDGE, self.reached);
        let is_more = self.last.is_none_or(|last| value > last);
        if !is_more || value >= total.min(self.reached.floor() + 1.0) {
            return None;
        }
        self.nudges += 1;
        Some(value)
    }
}

// === impl Pump ===

impl Pump {
    /// Returns a sender of the progress and the log messages of a request, or `None` if it has
    /// neither.
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

    /// Runs `work` while sending notifications to the client.
    ///
    /// When the work is done, the last report and all log messages are sent before this returns, so
    /// no notification follows the answer.
    pub(crate) async fn beside<F: Future>(mut self, work: F) -> F::Output {
        let output = {
            let mut work = pin!(work);
            poll_fn(|cx| {
                let output = work.as_mut().poll(cx);
                if output.is_pending() {
                    // Whether a report is pending does not matter here: the task is registered for both.
                    let _ = self.poll(cx, false);
                }
                output
            })
            .await
        };
        poll_fn(|cx| self.poll(cx, true)).await;
        output
    }

    /// Sends the pending report and log messages. Ready once nothing is pending.
    fn poll(&mut self, cx: &mut Context<'_>, is_answered: bool) -> Poll<()> {
        loop {
            match &mut self.sending {
                Some(sending) => {
                    ready!(sending.poll_unpin(cx));
                    self.sending = None;
                }
                None => {
                    // The waker is registered before the check, so that no wakeup is missed.
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
}

impl Pump {
    /// Returns the next notification to send; without one, the task is woken when there is one.
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

/// Returns the completed fraction.
///
/// Without a total it is an estimate that increases each time and never reaches 1.
fn fraction(progress: f64, total: Option<f64>) -> f64 {
    let fraction = match total {
        Some(total) if total > 0.0 => progress / total,
        _ => progress / (progress + 1.0),
    };
    // Turns NaN into zero.
    fraction.clamp(0.0, 1.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::{NUDGE, State, fraction};

    #[test]
    fn a_fraction_is_between_nothing_and_one_whatever_a_server_says() {
        assert_eq!(fraction(1.0, Some(4.0)), 0.25);
        assert_eq!(fraction(5.0, Some(4.0)), 1.0);
        assert_eq!(fraction(-1.0, Some(4.0)), 0.0);
        assert_eq!(fraction(1.0, Some(0.0)), 0.5);
        assert_eq!(fraction(3.0, None), 0.75);
        assert_eq!(fraction(f64::NAN, Some(4.0)), 0.0);
        assert_eq!(fraction(f64::INFINITY, None), 0.0);
    }

    #[test]
    fn nudges_only_increase_and_never_reach_the_next_step() {
        for (reached, most) in
            [(0.0, 999_999), (2.0, 999_999), (2.9999985, 1), (2.5, 499_999), (3.0, 0)]
        {
            let sent = tokio::time::Instant::now();
            let mut state = State { last: Some(reached), reached, nudges: 0, sent, next: None };
            let mut last = reached;
            let mut count = 0;
            while let Some(value) = state.nudge(3.0) {
                assert!(value > last && value < reached.floor() + 1.0, "{value} after {last}");
                assert!(value - last < 2.0 * NUDGE, "{value} after {last}");
                state.last = Some(value);
                last = value;
                count += 1;
            }
            assert_eq!(count, most, "from {reached}");
        }
    }
}
