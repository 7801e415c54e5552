//! A pool of connections to one server, in which each connection belongs to one caller.

use std::{
    collections::HashMap,
    fmt, mem,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use rmcp::model::{ErrorData, GetExtensions};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tower::ServiceExt;

use super::{
    bearer::{Bearer, RequestToken},
    endpoint::TokenEndpoint,
    grant::Grant,
    refusals::Refusals,
    token_error::TokenError,
    token_exchange::TokenExchange,
    token_source::TokenSource,
};
use crate::{
    adapter::{
        AuthenticatedCaller, CallerToken,
        remote::{RemoteService, callers::Callers, redaction::About, sent_tokens::SentTokens},
    },
    log_pause::LogPause,
    message::{BackendError, BackendErrorKind, Context, Reply, Request},
    mutex::lock,
};

/// The maximum number of tokens that are remembered per caller. A caller can have several tokens,
/// because it renews its token or runs several clients.
const MAX_TOKENS: usize = 4;

/// A function that opens a connection to the server on behalf of one caller. The connection uses
/// the caller's tokens.
pub(in crate::adapter::remote) type Connect =
    Box<dyn Fn(Bearer, SentTokens) -> RemoteService + Send + Sync>;

/// A pool of connections to one server, in which each connection belongs to one caller.
///
/// The number of connections is limited, and unused connections are closed after a timeout.
pub(in crate::adapter::remote) struct CallerPool {
    pool: Arc<Pool>,
    /// The task that closes unused connections.
    _closing: JoinSet<()>,
}

struct Pool {
    about: About,
    endpoint: Arc<TokenEndpoint>,
    connect: Connect,
    max_callers: usize,
    idle_timeout: Duration,
    entries: Mutex<Entries>,
    refusals: Refusals,
    /// Limits the warnings about failed token exchanges. Otherwise, each request would cause a
    /// warning while the authorization server is unavailable.
    warnings: LogPause,
}

#[derive(Default)]
struct Entries {
    of_callers: HashMap<Arc<str>, Entry>,
    is_closed: bool,
}

struct Entry {
    caller: Arc<Caller>,
    /// The number of the caller's pending requests.
    pending: usize,
    last_use: Instant,
}

/// A caller with its connection and its tokens.
struct Caller {
    name: Arc<str>,
    sent: SentTokens,
    state: Mutex<CallerState>,
}

#[derive(Default)]
struct CallerState {
    /// The caller's tokens, each with the source of the tokens that are issued in exchange for it.
    /// Sorted by their last use: the most recently used token is the last.
    tokens: Vec<(CallerToken, Arc<TokenSource>)>,
    connection: Option<(RemoteService, Bearer)>,
}

/// A guard for a pending request of a caller. The caller's connection is not closed while the guard
/// exists.
struct InUse {
    pool: Arc<Pool>,
    caller: Arc<Caller>,
}

// === impl CallerPool ===

impl CallerPool {
    /// Creates a pool without connections. Must be called within a Tokio runtime.
    pub(in crate::adapter::remote) fn new(
        about: About,
        exchange: &TokenExchange,
        endpoint: Arc<TokenEndpoint>,
        connect: Connect,
    ) -> Self {
        let pool = Arc::new(Pool {
            about,
            endpoint,
            connect,
            max_callers: exchange.max_callers,
            idle_timeout: exchange.idle_timeout,
            entries: Mutex::default(),
            refusals: Refusals::default(),
            warnings: LogPause::default(),
        });
        let mut closing = JoinSet::new();
        closing.spawn(close_unused(Arc::downgrade(&pool)));
        Self { pool, _closing: closing }
    }
}

impl Callers for CallerPool {
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Reply, BackendError>> {
        self.pool.clone().answer(request).boxed()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let mut entries = lock(&self.pool.entries);
        entries.is_closed = true;
        let entries = mem::take(&mut entries.of_callers);
        let connections: Vec<_> =
            entries.into_values().filter_map(|entry| entry.caller.disconnect()).collect();
        async move {
            join_all(connections.iter().map(RemoteService::close)).await;
        }
        .boxed()
    }
}

impl fmt::Debug for CallerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerPool").finish_non_exhaustive()
    }
}

/// Closes connections that have been unused for the idle timeout. Ends when the pool is dropped.
async fn close_unused(pool: Weak<Pool>) {
    while let Some(next) = pool.upgrade().map(|pool| pool.close_unused()) {
        sleep_until(next).await;
    }
}

// === impl Pool ===

impl Pool {
    async fn answer(self: Arc<Self>, mut request: Request) -> Result<Reply, BackendError> {
        let name = &self.about.name;
        let Some((caller, token)) = caller_of(request.context()) else {
            let text = format!(
                "backend `{name}` needs an authenticated caller with a bearer token, and this \
                 request has none"
            );
            return Ok(ErrorData::invalid_request(text, None).into());
        };
        let in_use = self.clone().enter(&caller)?;
        let no_access = || {
            let text = format!("the caller has no access to backend `{name}`");
            Ok(ErrorData::invalid_request(text, None).into())
        };
        if self.refusals.contain(caller.name(), token.value()) {
            return no_access();
        }
        let source = in_use.caller.source(&token, &self.endpoint);
        if let Err(error) = source.token().await {
            let reason = self.about.redact_text(&error.to_string());
            if matches!(error, TokenError::Refusal(_)) {
                // Logged once, because concurrent requests receive the same refusal.
                if self.refusals.keep(caller.name(), token.value()) {
                    self.log(&reason, true);
                }
                return no_access();
            }
            self.log(&reason, self.warnings.is_due_now());
            let error = BackendError::new(name.clone(), BackendErrorKind::NotConnected);
            return Err(error.with_source(reason));
        }
        let connection = in_use.caller.connection(&source, &self.connect);
        request.message_mut().extensions_mut().insert(RequestToken(source));
        connection.oneshot(request).await
    }

    fn log(&self, reason: &str, is_warning: bool) {
        let (backend, message) = (&*self.about.name, "the token of a caller was not exchanged");
        if is_warning {
            tracing::warn!(backend, reason, "{message}");
        } else {
            tracing::debug!(backend, reason, "{message}");
        }
    }

    /// Marks the connection of the named caller as in use, and returns a guard for it. If the pool
    /// is full and the caller is new, first closes the connection that was unused for the longest
    /// time.
    ///
    /// # Errors
    ///
    /// Returns an error if all connections are in use, or if the pool is closed.
    fn enter(self: Arc<Self>, name: &AuthenticatedCaller) -> Result<InUse, BackendError> {
        let name: Arc<str> = name.name().into();
        let mut entries = lock(&self.entries);
        let error = |kind| BackendError::new(self.about.name.clone(), kind);
        if entries.is_closed {
            return Err(error(BackendErrorKind::NotConnected));
        }
        let mut removed = None;
        if !entries.of_callers.contains_key(&name) && entries.of_callers.len() >= self.max_callers {
            let Some(unused) = entries.longest_unused() else {
                let max = self.max_callers;
                let reason = format!("the connections of all {max} callers are in use");
                return Err(error(BackendErrorKind::Overloaded).with_source(reason));
            };
            removed = entries.of_callers.remove(&unused);
        }
        let entry = entries.of_callers.entry(name.clone()).or_insert_with(|| {
            let caller = Caller { name, sent: SentTokens::default(), state: Mutex::default() };
            Entry { caller: Arc::new(caller), pending: 0, last_use: Instant::now() }
        });
        entry.pending += 1;
        let caller = entry.caller.clone();
        drop(entries);
        drop(removed);
        Ok(InUse { pool: self, caller })
    }

    /// Closes connections that were unused for the idle timeout. Returns the earliest time at which
    /// a remaining connection must be closed.
    fn close_unused(&self) -> Instant {
        let now = Instant::now();
        let mut entries = lock(&self.entries);
        let mut next = now + self.idle_timeout;
        let removed: Vec<_> = entries
            .of_callers
            .extract_if(|_, entry| {
                let until = entry.last_use + self.idle_timeout;
                let is_unused = entry.pending == 0 && until <= now;
                if entry.pending == 0 && !is_unused {
                    next = next.min(until);
                }
                is_unused
            })
            .collect();
        drop(entries);
        if !removed.is_empty() {
            let (backend, count) = (&*self.about.name, removed.len());
            tracing::debug!(backend, count, "closing the connections of callers");
        }
        next
    }
}

/// Returns the caller of a request and the caller's bearer token, which the server has inserted
/// into the extensions of the HTTP request.
fn caller_of(context: &Context) -> Option<(AuthenticatedCaller, CallerToken)> {
    let parts = context.extensions().get::<http::request::Parts>()?;
    let caller = parts.extensions.get::<AuthenticatedCaller>()?;
    Some((caller.clone(), parts.extensions.get::<CallerToken>()?.clone()))
}

// === impl Entries ===

impl Entries {
    /// Returns the name of the caller whose connection was unused for the longest time. Returns
    /// `None` if all connections are in use.
    fn longest_unused(&self) -> Option<Arc<str>> {
        let unused = self.of_callers.iter().filter(|(_, entry)| entry.pending == 0);
        unused.min_by_key(|(_, entry)| entry.last_use).map(|(name, _)| name.clone())
    }
}

// === impl Caller ===

impl Caller {
    /// Returns the token source that exchanges this token of the caller. Creates the source if the
    /// token is new.
    fn source(&self, token: &CallerToken, endpoint: &Arc<TokenEndpoint>) -> Arc<TokenSource> {
        let mut state = lock(&self.state);
        let place = state.tokens.iter().position(|(known, _)| known.value() == token.value());
        let known = match place {
            Some(place) => state.tokens.remove(place),
            None => {
                let grant = Grant::Exchange(token.clone());
                (token.clone(), TokenSource::new(endpoint.clone(), grant, self.sent.clone()))
            }
        };
        if state.tokens.len() == MAX_TOKENS {
            state.tokens.remove(0);
        }
        let source = known.1.clone();
        state.tokens.push(known);
        source
    }

    /// Returns the caller's connection, and opens it if necessary. Messages on the connection that
    /// do not belong to a request then use tokens of `source`.
    fn connection(&self, source: &Arc<TokenSource>, connect: &Connect) -> RemoteService {
        let mut state = lock(&self.state);
        if let Some((connection, bearer)) = &state.connection {
            let is_same = Arc::ptr_eq(&bearer.source(), source);
            // If the connection is down, reconnecting may have failed because the previous token
            // has expired.
            if is_same || !connection.is_down() {
                bearer.replace(source.clone());
                return connection.clone();
            }
        }
        let bearer = Bearer::new(source.clone());
        let connection = connect(bearer.clone(), self.sent.clone());
        let before = state.connection.replace((connection.clone(), bearer));
        drop(state);
        drop(before);
        connection
    }

    fn disconnect(&self) -> Option<RemoteService> {
        lock(&self.state).connection.take().map(|(connection, _)| connection)
    }
}

// === impl InUse ===

impl Drop for InUse {
    fn drop(&mut self) {
        let has_connection = lock(&self.caller.state).connection.is_some();
        let mut entries = lock(&self.pool.entries);
        let Some(entry) = entries.of_callers.get_mut(&self.caller.name) else { return };
        if !Arc::ptr_eq(&entry.caller, &self.caller) {
            return;
        }
        entry.pending -= 1;
        entry.last_use = Instant::now();
        // A caller without a connection is removed, because the number of callers is limited.
        if entry.pending == 0 && !has_connection {
            entries.of_callers.remove(&self.caller.name);
        }
    }
}
