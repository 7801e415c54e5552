//! Log messages for a client while its request is running.

#![expect(deprecated, reason = "clients and servers before 2026-07-28 set log levels")]

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    task::Context,
    time::Duration,
};

use futures::task::AtomicWaker;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use serde_json::Value;
use tokio::time::Instant;

use crate::{json_size::json_bytes, mutex::lock};

/// The maximum number of queued log messages per request. The queue grows if the client reads
/// slowly.
const MAX_WAITING: usize = 64;
/// The maximum total size of the queued log messages per request, in bytes of JSON.
const MAX_LOG_BYTES: usize = 1 << 20;
/// The maximum number of log messages per request and second. Further messages are dropped.
const MAX_PER_SECOND: u32 = 100;
/// The logger name of the message about dropped messages.
const LOGGER: &str = env!("CARGO_PKG_NAME");

/// Sends log messages about one request to the client that made the request.
///
/// The [`Context`](super::Context) of a request contains a `Logs` sender if the client receives log
/// messages. A client with protocol version 2025-11-25 or older always receives them. A client with
/// a newer version receives them if it sets a level in the `_meta` of the request.
///
/// Log messages below the client's minimum level, by default `info`, are ignored. Sending never
/// waits for a slow client: messages that exceed a limit are dropped. A final message, before the
/// reply to the request, reports how many were dropped.
#[derive(Clone)]
pub struct Logs {
    client: Arc<LogLevel>,
    queue: Arc<Queue>,
}

/// The minimum level that the client has requested, plus one. Zero if it has requested no level.
#[derive(Debug, Default)]
pub(crate) struct LogLevel(AtomicU8);

/// The queued log messages of one request. A `Pump` sends them to the client.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    pump: AtomicWaker,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<(usize, LoggingMessageNotificationParam)>,
    bytes: usize,
    dropped: u64,
    /// The start of the current second, and the number of messages in it. `None` before the first
    /// message.
    second: Option<(Instant, u32)>,
}

// === impl Logs ===

impl Logs {
    pub(crate) fn new(client: Arc<LogLevel>) -> Self {
        Self { client, queue: Arc::default() }
    }

    /// Returns `true` if log messages of this level are sent to the client.
    #[must_use]
    pub fn wants(&self, level: LoggingLevel) -> bool {
        level as u8 >= self.level() as u8
    }

    /// Returns the minimum level of messages for the client, by default `info`.
    pub(crate) fn level(&self) -> LoggingLevel {
        self.client.get().unwrap_or(LoggingLevel::Info)
    }

    /// Queues a log message for the client. Ignores the message if its level is below the client's
    /// minimum level, and drops it if a limit is exceeded.
    pub fn send(&self, message: LoggingMessageNotificationParam) {
        if self.wants(message.level) {
            let bytes = json_bytes(&message);
            lock(&self.queue.waiting).push(bytes, message);
            self.queue.pump.wake();
        }
    }

    /// Returns the minimum level of the client, which all of its requests share.
    #[cfg(feature = "remote")]
    pub(crate) const fn client(&self) -> &Arc<LogLevel> {
        &self.client
    }

    /// Returns the level of the message about dropped messages: `warning`, or the client's minimum
    /// level if it is higher.
    fn report_level(&self) -> LoggingLevel {
        if self.wants(LoggingLevel::Warning) { LoggingLevel::Warning } else { self.level() }
    }

    /// Registers the current task to be woken by the next message.
    pub(super) fn register(&self, cx: &Context<'_>) {
        self.queue.pump.register(cx.waker());
    }

    /// Removes and returns the next message. If the queue is empty and `is_answered` is `true`,
    /// returns a final message with the number of dropped messages, if any.
    pub(super) fn next(&self, is_answered: bool) -> Option<LoggingMessageNotificationParam> {
        lock(&self.queue.waiting).next(is_answered.then(|| self.report_level()))
    }
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs").field("level", &self.client.get()).finish_non_exhaustive()
    }
}

// === impl LogLevel ===

impl LogLevel {
    pub(crate) fn of(level: LoggingLevel) -> Self {
        Self(AtomicU8::new(level as u8 + 1))
    }

    pub(crate) fn set(&self, level: LoggingLevel) {
        self.0.store(level as u8 + 1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<LoggingLevel> {
        use LoggingLevel::{Alert, Critical, Debug, Emergency, Error, Info, Notice, Warning};
        const LEVELS: [LoggingLevel; 8] =
            [Debug, Info, Notice, Warning, Error, Critical, Alert, Emergency];
        LEVELS.get(usize::from(self.0.load(Ordering::Relaxed)).checked_sub(1)?).copied()
    }
}

// === impl Waiting ===

impl Waiting {
    fn push(&mut self, bytes: usize, message: LoggingMessageNotificationParam) {
        let now = Instant::now();
        let (since, count) = match self.second {
            Some((since, count)) if now - since < Duration::from_secs(1) => (since, count),
            _ => (now, 0),
        };
        let is_full = self.messages.len() >= MAX_WAITING || count >= MAX_PER_SECOND;
        if is_full || bytes > MAX_LOG_BYTES - self.bytes {
            self.dropped += 1;
            return;
        }
        self.second = Some((since, count + 1));
        self.bytes += bytes;
        self.messages.push_back((bytes, message));
    }

    /// Removes and returns the next message. If the queue is empty and `report` is a level, returns
    /// a message of this level with the number of dropped messages, if any.
    fn next(&mut self, report: Option<LoggingLevel>) -> Option<LoggingMessageNotificationParam> {
        if let Some((bytes, message)) = self.messages.pop_front() {
            self.bytes -= bytes;
            return Some(message);
        }
        let level = report.filter(|_| self.dropped > 0)?;
        let why = Value::from(format!("{} log messages were dropped", self.dropped));
        self.dropped = 0;
        let message = LoggingMessageNotificationParam::new(level, why);
        Some(message.with_logger(LOGGER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(logs: &Logs, level: LoggingLevel, bytes: usize) {
        logs.send(LoggingMessageNotificationParam::new(level, Value::from("x".repeat(bytes))));
    }

    /// Removes all messages from the queue. Returns their number and the report of dropped
    /// messages.
    fn take(logs: &Logs) -> (usize, Option<Value>) {
        let sent = std::iter::from_fn(|| logs.next(false)).count();
        let report = logs.next(true).map(|report| report.data);
        assert!(logs.next(true).is_none());
        (sent, report)
    }

    fn dropped(messages: usize) -> Option<Value> {
        Some(format!("{messages} log messages were dropped").into())
    }

    #[tokio::test(start_paused = true)]
    async fn messages_below_the_level_of_the_client_are_ignored() {
        let level = Arc::<LogLevel>::default();
        let logs = Logs::new(level.clone());
        send(&logs, LoggingLevel::Debug, 1);
        send(&logs, LoggingLevel::Info, 1);
        assert_eq!(take(&logs), (1, None));
        level.set(LoggingLevel::Error);
        send(&logs, LoggingLevel::Warning, 1);
        send(&logs, LoggingLevel::Emergency, 1);
        assert_eq!(take(&logs), (1, None));
        assert_eq!(level.get(), Some(LoggingLevel::Error));
    }

    #[tokio::test(start_paused = true)]
    async fn messages_beyond_a_limit_are_dropped_and_counted() {
        let logs = Logs::new(Arc::default());
        for _ in 0..MAX_WAITING + 3 {
            send(&logs, LoggingLevel::Info, 1);
        }
        assert_eq!(take(&logs), (MAX_WAITING, dropped(3)));
        for _ in 0..3 {
            send(&logs, LoggingLevel::Info, MAX_LOG_BYTES / 2 - 100);
        }
        assert_eq!(take(&logs), (2, dropped(1)));
        send(&logs, LoggingLevel::Info, MAX_LOG_BYTES);
        assert_eq!(take(&logs), (0, dropped(1)));

        let left = MAX_PER_SECOND as usize - MAX_WAITING - 2;
        for _ in 0..left + 5 {
            send(&logs, LoggingLevel::Info, 1);
        }
        assert_eq!(take(&logs), (left, dropped(5)));
        tokio::time::advance(Duration::from_secs(1)).await;
        send(&logs, LoggingLevel::Info, 1);
        assert_eq!(take(&logs), (1, None));
    }
}
