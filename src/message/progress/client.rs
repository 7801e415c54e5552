//! The progress of one request, whose values increase with each notification.

use std::{sync::Mutex, time::Duration};

use futures::task::AtomicWaker;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use tokio::time::Instant;

use super::label::Message;
use crate::mutex::lock;

/// The minimum time between two notifications about the steps of a composite, and before the first
/// one.
///
/// A composite that ends within this time sends no notification about its steps. The protocol asks
/// for a [limited rate][rate] of notifications, and handling one takes a client as much time as
/// handling the result of a short call.
///
/// [rate]: https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/progress
const INTERVAL: Duration = Duration::from_millis(20);
/// The increase of the progress value for an event that completes no step, such as the start of a
/// step.
const NUDGE: f64 = 1e-6;

/// The progress of one request, and its next notification, which a [`Pump`](super::Pump) sends to
/// the client.
pub(super) struct Client {
    pub(super) token: ProgressToken,
    state: Mutex<State>,
    /// Wakes the [`Pump`](super::Pump) to send a notification.
    pub(super) pump: AtomicWaker,
}

struct State {
    /// The progress value of the last notification, even if it was not sent. `None` before the
    /// first one.
    last: Option<f64>,
    /// The last reported progress, without the increases of [`nudge`](Self::nudge) since then.
    reached: f64,
    /// The number of increases by [`nudge`](Self::nudge) since `reached` was set.
    nudges: u32,
    /// The time of the last sent notification or, before the first one, of the arrival of the
    /// request.
    sent: Instant,
    next: Option<Next>,
}

/// A notification that has not been sent yet. A newer one replaces it.
struct Next {
    value: f64,
    total: Option<f64>,
    message: Option<Message>,
    /// If `true`, the notification is about the steps of a composite, and must be sent at least
    /// [`INTERVAL`] after the previous one.
    is_of_parts: bool,
}

/// The result of [`Client::due`]: a notification to send now, the time at which one may be sent, or
/// nothing.
pub(super) enum Due {
    Now(ProgressNotificationParam),
    At(Instant),
    Nothing,
}

// === impl Client ===

impl Client {
    pub(super) fn new(token: ProgressToken) -> Self {
        let state = State { last: None, reached: 0.0, nudges: 0, sent: Instant::now(), next: None };
        Self { token, state: Mutex::new(state), pump: AtomicWaker::new() }
    }

    /// Returns the time of the last sent notification or, before the first one, of the arrival of
    /// the request.
    pub(super) fn sent(&self) -> Instant {
        lock(&self.state).sent
    }

    pub(super) fn report(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        let mut state = lock(&self.state);
        if state.last.is_none_or(|last| progress > last) {
            let value = state.reach(progress);
            let total = total.filter(|total| total.is_finite());
            let message = message.map(Message::text);
            self.replace(&mut state, Next { value, total, message, is_of_parts: false });
        }
    }

    pub(super) fn push(&self, done: f64, total: f64, message: Message) {
        if done >= total {
            // No notification is needed, because the answer shows that all parts are completed.
            return;
        }
        let mut state = lock(&self.state);
        let value = match state.last {
            // Replaces a notification that is not sent yet, and keeps its value.
            Some(last) if done <= last && state.next.is_some() => Some(last),
            Some(last) if done <= last => state.nudge(total),
            _ => Some(state.reach(done)),
        };
        if let Some(value) = value {
            let (total, message) = (Some(total), Some(message));
            self.replace(&mut state, Next { value, total, message, is_of_parts: true });
        }
    }

    fn replace(&self, state: &mut State, next: Next) {
        state.last = Some(next.value);
        state.next = Some(next);
        self.pump.wake();
    }

    /// Removes and returns the next notification, or returns the time at which it may be sent.
    ///
    /// If `is_answered` is `true`, a notification that may not be sent yet is dropped, because none
    /// may follow the reply.
    pub(super) fn due(&self, is_answered: bool) -> Due {
        let mut state = lock(&self.state);
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
    }
}

// === impl State ===

impl State {
    fn reach(&mut self, value: f64) -> f64 {
        self.reached = value;
        self.nudges = 0;
        value
    }

    /// Returns a progress value slightly above the last one, for an event that completes no step.
    /// The protocol requires increasing values.
    ///
    /// The increase is about a millionth of a step. The value stays below `total` and the next
    /// whole number of steps, because an incomplete step would otherwise count as completed.
    /// Returns `None` if there is no such value left, after at most a million increases.
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

#[cfg(test)]
mod tests {
    use super::{NUDGE, State};

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
