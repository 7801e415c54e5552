//! A minimal client of 2025-11-25, which sees every message that a server sends, also those an SDK
//! would drop.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Display,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf},
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tower::BoxError;

use crate::invariants::{Invariant, Invariants, markers};

/// A connection and its pending requests.
pub(crate) struct Wire {
    lines: mpsc::UnboundedSender<String>,
    calls: Arc<Calls>,
    tasks: Mutex<JoinSet<()>>,
}

/// The sent requests, by their ids, which count from 0.
struct Calls {
    invariants: Arc<Invariants>,
    sent: Mutex<Sent>,
    /// The number of questions the server has asked, and of notifications it has sent.
    questions: AtomicU64,
    notified: AtomicU64,
}

#[derive(Default)]
struct Sent {
    count: usize,
    waiting: HashMap<usize, Waiting>,
    /// Their markers. They may be answered and ask, since the messages can cross; once.
    cancelled: HashMap<usize, String>,
}

struct Waiting {
    marker: String,
    answer: oneshot::Sender<Value>,
}

/// A pending call. If dropped, it is cancelled at the server.
pub(crate) struct Pending {
    wire: Arc<Wire>,
    id: usize,
    answer: oneshot::Receiver<Value>,
    is_answered: bool,
}

// === impl Wire ===

impl Wire {
    /// Connects as a client that can be asked.
    pub(crate) async fn connect(
        stream: DuplexStream,
        invariants: Arc<Invariants>,
    ) -> Result<Arc<Self>, BoxError> {
        let (read, write) = tokio::io::split(stream);
        let (lines, to_write) = mpsc::unbounded_channel();
        let calls = Arc::new(Calls {
            invariants,
            sent: Mutex::default(),
            questions: AtomicU64::default(),
            notified: AtomicU64::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(write_lines(write, to_write));
        tasks.spawn(read_lines(read, lines.clone(), calls.clone()));
        let wire = Arc::new(Self { lines, calls, tasks: Mutex::new(tasks) });
        let introduction = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "soak", "version": "0" },
        });
        let answer = wire.send("", "initialize", &introduction).answer().await;
        if answer["result"]["protocolVersion"].is_null() {
            return Err(format!("no handshake, but {answer}").into());
        }
        wire.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        Ok(wire)
    }

    /// Sends a call with this marker.
    pub(crate) fn call(self: &Arc<Self>, marker: &str, tool: &str, arguments: &Value) -> Pending {
        self.send(marker, "tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Sends a request whose parameters are this JSON.
    pub(crate) fn send(
        self: &Arc<Self>,
        marker: &str,
        method: &str,
        params: &dyn Display,
    ) -> Pending {
        let (tell, answer) = oneshot::channel();
        let id = self.calls.begin(marker, tell);
        self.write(&format_args!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
        Pending { wire: self.clone(), id, answer, is_answered: false }
    }

    fn write(&self, message: &dyn Display) {
        // The receiver is dropped only once the connection is closed.
        let _ = self.lines.send(format!("{message}\n"));
    }

    /// Returns the number of calls that wait for their answer.
    pub(crate) fn waiting(&self) -> usize {
        self.calls.sent().waiting.len()
    }

    /// Returns the number of questions the server has asked.
    #[allow(dead_code, reason = "not every program that has connections counts them")]
    pub(crate) fn questions(&self) -> u64 {
        self.calls.questions.load(Ordering::Relaxed)
    }

    /// Returns the number of notifications the server has sent.
    #[allow(dead_code, reason = "not every program that has connections counts them")]
    pub(crate) fn notified(&self) -> u64 {
        self.calls.notified.load(Ordering::Relaxed)
    }

    /// Closes the connection, which the server takes for the end of its client.
    pub(crate) async fn close(&self) {
        let mut tasks = mem::take(&mut *self.tasks());
        tasks.shutdown().await;
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write_lines(
    mut write: WriteHalf<DuplexStream>,
    mut lines: mpsc::UnboundedReceiver<String>,
) {
    while let Some(line) = lines.recv().await {
        if write.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read_lines(
    read: ReadHalf<DuplexStream>,
    answers: mpsc::UnboundedSender<String>,
    calls: Arc<Calls>,
) {
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            calls.invariants.check(Invariant::AnsweredOnce, false, || "no JSON".to_owned());
            continue;
        };
        match (message.get("method"), message.get("id")) {
            (None, Some(_)) => calls.end(message),
            (Some(_), Some(id)) => {
                calls.questions.fetch_add(1, Ordering::Relaxed);
                calls.check_question(&message);
                // Accepts four times out of five.
                let action = ["accept", "accept", "accept", "accept", "decline"];
                let answer = json!({
                    "jsonrpc": "2.0",
                    "id": id,
                    "result": { "action": action[fastrand::usize(0..5)], "content": {} },
                });
                let _ = answers.send(format!("{answer}\n"));
            }
            (Some(_), None) => drop(calls.notified.fetch_add(1, Ordering::Relaxed)),
            (None, None) => (),
        }
    }
}

// === impl Calls ===

impl Calls {
    fn begin(&self, marker: &str, answer: oneshot::Sender<Value>) -> usize {
        let mut sent = self.sent();
        let id = sent.count;
        sent.count += 1;
        sent.waiting.insert(id, Waiting { marker: marker.to_owned(), answer });
        id
    }

    /// Forwards an answer to its pending call.
    fn end(&self, message: Value) {
        let id = message["id"].as_u64().and_then(|id| usize::try_from(id).ok());
        let mut sent = self.sent();
        let waiting = id.and_then(|id| sent.waiting.remove(&id));
        let was_cancelled = id.is_some_and(|id| sent.cancelled.remove(&id).is_some());
        let was_sent = id.is_some_and(|id| id < sent.count);
        drop(sent);
        let is_awaited = waiting.is_some() || was_cancelled;
        self.invariants.check(Invariant::AnsweredOnce, is_awaited, || match was_sent {
            true => format!("a second answer to {}", message["id"]),
            false => format!("an answer to {}, which nobody asked", message["id"]),
        });
        if let Some(Waiting { answer, .. }) = waiting {
            // A call dropped at this very moment has no receiver.
            let _ = answer.send(message);
        }
    }

    fn cancel(&self, id: usize) {
        let mut sent = self.sent();
        if let Some(Waiting { marker, .. }) = sent.waiting.remove(&id) {
            sent.cancelled.insert(id, marker);
        }
    }

    /// Checks that a question belongs to one call of this connection, without data of another.
    fn check_question(&self, message: &Value) {
        let text = message.to_string();
        let found: BTreeSet<_> = markers(&text).collect();
        let sent = self.sent();
        let waiting = sent.waiting.values().map(|waiting| &waiting.marker);
        let mut own = waiting.chain(sent.cancelled.values());
        let is_own = found.first().is_none_or(|marker| own.any(|own| own == marker));
        drop(sent);
        self.invariants.check(Invariant::OwnMarker, is_own && found.len() <= 1, || {
            format!("a question of no call of this connection: {text}")
        });
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Pending ===

impl Pending {
    pub(crate) async fn answer(&mut self) -> Value {
        let answer = (&mut self.answer).await;
        self.is_answered = true;
        // Without an answer the connection is gone.
        answer.unwrap_or_default()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_answered {
            self.wire.calls.cancel(self.id);
            let params = json!({ "requestId": self.id, "reason": "nobody wants to know" });
            let method = "notifications/cancelled";
            self.wire.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
        }
    }
}
