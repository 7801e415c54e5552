use std::{
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
};
use tokio::{sync::Notify, time::timeout};

/// How long an answer waits for the progress before it.
const LAST_WORD: Duration = Duration::from_millis(100);

/// Where the progress of one request is told.
///
/// A request from a client that gave a progress token has one in its
/// [`Context`](super::Context). A server that learns of progress in another way
/// than through rmcp's own handlers tells it here, such as what a remote server
/// sends under a token of its own.
///
/// The client gets one stream whose values only [increase], and none after the
/// answer. While it is slow to take them, the latest replaces the ones before.
///
/// [increase]: https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/progress
#[derive(Clone)]
pub struct Progress(Stream);

#[derive(Clone)]
enum Stream {
    Client(Arc<Client>),
    /// A part of a request that is told as one.
    Part {
        whole: Arc<Parts>,
        part: usize,
        name: Arc<str>,
    },
}

struct Client {
    token: ProgressToken,
    peer: Peer<RoleServer>,
    state: Mutex<Told>,
    /// Notified when nobody tells the client anything any more.
    told: Notify,
}

/// What a client was told.
#[derive(Default)]
struct Told {
    progress: Option<f64>,
    /// What comes next; somebody is telling the client something before it.
    waiting: Option<ProgressNotificationParam>,
    telling: bool,
    over: bool,
}

/// The branches of a composite, each of which counts for one.
pub(crate) struct Parts {
    whole: Progress,
    done: Mutex<Box<[f64]>>,
}

// === impl Progress ===

impl Progress {
    /// The progress of a request that came from this client with this token.
    pub(crate) fn new(token: ProgressToken, peer: Peer<RoleServer>) -> Self {
        Self(Stream::Client(Arc::new(Client {
            token,
            peer,
            state: Mutex::default(),
            told: Notify::new(),
        })))
    }

    /// Tells how far the request is, in any unit, and of how many if that is known.
    ///
    /// What is no step forward is not told. Returns when the client was told, or
    /// at once if it is still being told something else.
    pub async fn report(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        match &self.0 {
            Stream::Client(client) => client.report(progress, total, message).await,
            Stream::Part { whole, part, name } => {
                let message = match message {
                    Some(message) => format!("{name}: {message}"),
                    None => name.to_string(),
                };
                whole.report(*part, fraction(progress, total), message).await;
            }
        }
    }

    /// Takes the request apart into this many parts.
    pub(crate) fn split(&self, parts: usize) -> Arc<Parts> {
        let done = Mutex::new(vec![0.0; parts].into_boxed_slice());
        Arc::new(Parts { whole: self.clone(), done })
    }

    /// Ends the stream, since the request was answered. Waits a moment for what
    /// the client is being told, which would come after the answer otherwise.
    pub(crate) async fn end(&self) {
        let Stream::Client(client) = &self.0 else { return };
        let told = client.told.notified();
        let mut told = pin!(told);
        // Waits from now on, so that it is not missed.
        told.as_mut().enable();
        let is_telling = {
            let mut state = client.state();
            state.over = true;
            state.waiting = None;
            state.telling
        };
        if is_telling {
            let _ = timeout(LAST_WORD, told).await;
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Stream::Client(client) => f.debug_tuple("Progress").field(&client.token).finish(),
            Stream::Part { name, .. } => f.debug_tuple("Progress").field(name).finish(),
        }
    }
}

// === impl Client ===

impl Client {
    async fn report(&self, progress: f64, total: Option<f64>, message: Option<String>) {
        let mut next = Some({
            let mut told = self.state();
            let forward = told.progress.is_none_or(|before| progress > before);
            if told.over || !forward || !progress.is_finite() {
                return;
            }
            told.progress = Some(progress);
            let mut params = ProgressNotificationParam::new(self.token.clone(), progress);
            params.total = total;
            params.message = message;
            if told.telling {
                told.waiting = Some(params);
                return;
            }
            told.telling = true;
            // Whoever was told something else was given up, and this is further on.
            told.waiting = None;
            params
        });
        let mut turn = Turn(Some(self));
        while let Some(params) = next {
            if let Err(error) = self.peer.notify_progress(params).await {
                tracing::debug!(%error, "the client was not told of progress");
            }
            next = turn.next();
        }
    }

    fn state(&self) -> MutexGuard<'_, Told> {
        // Nothing panics while it is held, and if it did, the state would be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to tell a client something; who is dropped while it waits for the
/// client leaves it to the next.
struct Turn<'c>(Option<&'c Client>);

impl Turn<'_> {
    /// What comes next, or the end of the turn.
    fn next(&mut self) -> Option<ProgressNotificationParam> {
        let client = self.0?;
        let mut told = client.state();
        let next = told.waiting.take();
        if next.is_none() {
            // With the lock held, so that nobody leaves a word and goes.
            told.telling = false;
            client.told.notify_waiters();
            self.0 = None;
        }
        next
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.0 {
            client.state().telling = false;
            client.told.notify_waiters();
        }
    }
}

// === impl Parts ===

impl Parts {
    /// The progress of one part.
    pub(crate) fn part(self: &Arc<Self>, part: usize, name: Arc<str>) -> Progress {
        Progress(Stream::Part { whole: self.clone(), part, name })
    }

    /// Boxed, since a part can be a whole to others.
    fn report(&self, part: usize, fraction: f64, message: String) -> BoxFuture<'_, ()> {
        let (sum, parts) = {
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            done[part] = done[part].max(fraction);
            (done.iter().sum(), done.len())
        };
        #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 branches")]
        let total = parts as f64;
        Box::pin(async move { self.whole.report(sum, Some(total), Some(message)).await })
    }
}

/// How much of one is done.
///
/// Without a total nobody knows, but it is more each time, and never all.
fn fraction(progress: f64, total: Option<f64>) -> f64 {
    let fraction = match total {
        Some(total) if total > 0.0 => progress / total,
        _ => progress / (progress + 1.0),
    };
    // Not a number becomes zero.
    fraction.clamp(0.0, 1.0).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::fraction;

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
}
