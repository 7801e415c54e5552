//! The supervisor task of a remote server, which connects to the server and reconnects if the
//! connection is lost.

use std::{convert::Infallible, future, pin::pin, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::{
    future::{BoxFuture, Either, OptionFuture, join_all, select},
    stream::{self, StreamExt},
};
use rmcp::{
    ServiceError,
    model::{
        ClientRequest, ErrorCode, PingRequest, ProtocolVersion, ServerNotification,
        SubscriptionFilter,
    },
    service::{ClientInitializeError, ClientLifecycleMode, Subscription},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use super::{
    call::{self, set_level, subscribe},
    client::{Client, Session},
    ordered_transport::Signals,
    state::{Connection, Remote, State},
};
use crate::{
    adapter::declared_changes,
    catalog,
    message::{Context, Request},
};

/// The delay after the first failed attempt to connect to a server. The delay doubles with each
/// further failure.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The maximum delay between two attempts to connect. Jitter may be added to it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The time after which a connection is considered stable. If a stable connection is lost, the next
/// attempt to connect starts immediately.
const GOOD_AFTER: Duration = Duration::from_secs(10);
/// The maximum time to wait for a connection to close completely.
const LONGEST_END: Duration = Duration::from_secs(20);
/// The timeout of a ping. The ping checks whether the server still knows the HTTP session.
const PING_TIMEOUT: Duration = Duration::from_secs(2);
/// The delay before a notification stream is reopened for the first time after the server has ended
/// it. The delay doubles each time.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// The maximum delay before reopening a notification stream that the server has ended. Jitter may
/// be added to it.
const LISTEN_AGAIN_WITHIN: Duration = Duration::from_secs(300);
/// The maximum number of concurrent unsubscribe requests to one server with protocol version
/// 2025-11-25 or older.
const UNSUBSCRIBING: usize = 8;

/// A function that opens a new connection to the server and performs the handshake.
pub(super) type Open =
    Box<dyn Fn(Attempt) -> BoxFuture<'static, Result<Session, BoxError>> + Send + Sync>;

/// The arguments that [`Open`] needs to open one connection and to perform the handshake.
pub(super) struct Attempt {
    pub(super) client: Client,
    pub(super) lifecycle: ClientLifecycleMode,
    pub(super) signals: Signals,
}

/// The kind of MCP handshake that opens a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// The first request of the handshake is `server/discover`, which asks the server for its
    /// protocol versions.
    Ask,
    /// The first request of the handshake is `initialize`, as protocol versions before 2026-07-28
    /// require.
    Initialize,
}

/// The reason why an attempt to connect to a server has failed.
struct Trouble {
    text: String,
    /// `true` if the server was reached but did not understand the handshake. The supervisor task
    /// then tries the other kind of handshake.
    misunderstood: bool,
}

/// A guard that is held by the supervisor task. When the task ends or panics, the guard marks the
/// connection as permanently closed, so that no call waits for it forever.
pub(super) struct Closes(pub(super) Arc<Remote>);

/// Connects to a server, and reconnects if the connection is lost, until `stop` is cancelled.
pub(super) async fn supervise(closes: Closes, open: Open, stop: CancellationToken) {
    let remote = &closes.0;
    let mut opening = Opening::Ask;
    let mut waits = waits(FIRST_WAIT, LONGEST_WAIT);
    loop {
        remote.state.send_replace(State::Connecting);
        let attempt = connect(remote, &open, &mut opening);
        let Some(attempt) = stop.run_until_cancelled(attempt).await else { break };
        match attempt {
            Ok((session, signals)) => {
                let good_since = stay_connected(remote, session, &signals, &stop).await;
                if stop.is_cancelled() {
                    break;
                }
                signals.last_words.or("the server stopped answering");
                let end = signals.last_words.take().unwrap_or_default();
                remote.trouble(format!(
                    "the connection was lost: {}",
                    remote.about.redact_text(&end)
                ));
                if good_since.is_some_and(|since| since.elapsed() >= GOOD_AFTER) {
                    waits = self::waits(FIRST_WAIT, LONGEST_WAIT);
                    continue;
                }
            }
            Err(trouble) => remote.trouble(trouble.text),
        }
        remote.state.send_replace(State::Down);
        let wait = waits.next().unwrap_or(LONGEST_WAIT);
        if stop.run_until_cancelled(sleep(wait)).await.is_none() {
            break;
        }
    }
}

/// Returns an endless iterator of delays between attempts to connect. The delays grow exponentially
/// up to `longest`, and have jitter so that several clients do not reconnect at the same time.
fn waits(first: Duration, longest: Duration) -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(first)
        .with_max_delay(longest)
        .with_jitter()
        .without_max_times()
        .build()
}

/// Attempts to connect with the kind of handshake in `opening`. If the server does not understand
/// it, tries the other kind. If that succeeds, stores the other kind in `opening`, so that the next
/// attempt begins with it.
///
/// The second handshake uses a new connection, because some servers of older protocol versions exit
/// or stop answering if the first request is not `initialize`.
async fn connect(
    remote: &Arc<Remote>,
    open: &Open,
    opening: &mut Opening,
) -> Result<(Session, Signals), Trouble> {
    match begin(remote, open, *opening).await {
        Err(trouble) if trouble.misunderstood => {
            let other = opening.other();
            let made = begin(remote, open, other).await;
            // If the server understood neither handshake, a different server may be running at the
            // next attempt.
            *opening = if made.is_ok() { other } else { Opening::Ask };
            made.map_err(|_| trouble)
        }
        made => made,
    }
}

async fn begin(
    remote: &Arc<Remote>,
    open: &Open,
    opening: Opening,
) -> Result<(Session, Signals), Trouble> {
    let signals = Signals::default();
    let opened = open(Attempt {
        client: Client::new(remote.clone()),
        lifecycle: opening.lifecycle(),
        signals: signals.clone(),
    });
    let patience = remote.connect_timeout;
    let (text, misunderstood) = match timeout(patience, opened).await {
        Ok(Ok(session)) => return Ok((session, signals)),
        Ok(Err(error)) => {
            let misunderstood = error.downcast_ref().is_some_and(is_misunderstanding);
            (remote.about.redact_chain(&*error), misunderstood)
        }
        Err(_) => (format!("it did not answer within {patience:?}"), true),
    };
    let text = match signals.last_words.take() {
        Some(words) => format!("{text}; {}", remote.about.redact_text(&words)),
        None => text,
    };
    Err(Trouble { text, misunderstood })
}

/// Returns `true` if the server was reached but did not understand the handshake.
fn is_misunderstanding(error: &ClientInitializeError) -> bool {
    use ClientInitializeError::{Cancelled, LegacyFallbackFailed, TransportError};
    !matches!(error, TransportError { .. } | LegacyFallbackFailed { .. } | Cancelled)
}

/// Serves calls over a connection until the connection is lost or `stop` is cancelled. Returns the
/// time from which calls could use the connection, or `None` if it was lost earlier.
async fn stay_connected(
    remote: &Arc<Remote>,
    session: Session,
    signals: &Signals,
    stop: &CancellationToken,
) -> Option<Instant> {
    let connection = Arc::new(Connection::new(remote, &session, signals.closed.clone()));
    let end = session.cancellation_token();
    let mut ended = pin!(session.waiting());
    let mut good_since = None;
    let serve = async {
        welcome(remote, &connection).await;
        good_since = Some(Instant::now());
        let ((), (), never) = tokio::join!(
            subscribe_again(remote, &connection),
            unsubscribe_abandoned(remote, &connection),
            listen(remote, &connection)
        );
        never
    };
    let has_ended = tokio::select! {
        () = stop.cancelled() => false,
        () = signals.closed.cancelled() => false,
        () = silence(&connection, &signals.doubt) => false,
        _ = &mut ended => true,
        never = serve => match never {},
    };
    // The state is set before the connection is closed, so that new calls do not use the connection
    // while it is closing.
    let next = if stop.is_cancelled() { State::Down } else { State::Connecting };
    remote.state.send_replace(next);
    connection.closed.cancel();
    if !has_ended {
        // If `ended` is ready, the transport has ended, and a child process has exited. Otherwise,
        // closing the transport may take a while.
        end.cancel();
        if timeout(LONGEST_END, ended).await.is_err() {
            tracing::warn!(backend = &*remote.about.name, "timed out closing a connection");
        }
    }
    good_since
}

/// Waits until a server with protocol version 2025-11-25 or older has apparently lost the HTTP
/// session. This is assumed if the server rejects a message without naming the request, and then
/// does not answer a ping.
///
/// HTTP servers that follow the examples of the TypeScript SDK behave in this way. For an unknown
/// session, they respond with a different status code than rmcp expects, so rmcp does not detect
/// that the session is lost.
async fn silence(connection: &Connection, doubt: &Notify) {
    if connection.modern {
        // Newer servers have neither sessions nor the ping method.
        return future::pending().await;
    }
    loop {
        doubt.notified().await;
        let ping = connection.peer.send_request(PingRequest::default().into());
        match timeout(PING_TIMEOUT, ping).await {
            Ok(Ok(_) | Err(ServiceError::McpError(_))) => (),
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Prepares a new connection: lists the server's tools, and then allows calls to use the
/// connection.
///
/// The tools are listed on every new connection, because they may have changed. Over HTTP, rmcp
/// also learns from the list which call arguments it must send as headers.
async fn welcome(remote: &Remote, connection: &Arc<Connection>) {
    let info = connection.peer.peer_info();
    let capabilities = info.as_ref().map(|info| &info.capabilities);
    let has_tools = capabilities.is_none_or(|capabilities| capabilities.tools.is_some());
    let changed = !has_tools || lists_others(remote, connection).await;

    let server = info.as_ref().and_then(|info| info.server_info.as_ref());
    tracing::info!(
        backend = &*remote.about.name,
        server = server
            .map(|server| remote.about.redact_text(&format!("{} {}", server.name, server.version))),
        protocol = info.as_ref().map(|info| info.protocol_version.as_str()),
        "connected a backend"
    );
    crate::metrics::connected(&remote.about.name);
    remote.connected(info);
    remote.state.send_replace(State::Connected(connection.clone()));
    if changed {
        remote.lists.tools.bump();
    }
    remote.lists.prompts.bump();
    remote.lists.resources.bump();
}

/// Lists the server's tools on this connection. Returns `true` if they differ from the previously
/// listed tools, or if listing fails.
async fn lists_others(remote: &Remote, connection: &Arc<Connection>) -> bool {
    let connection = connection.clone();
    let service = service_fn(move |request| {
        let connection = connection.clone();
        async move { connection.call(request).await }
    });
    match catalog::list_all(service, Context::default()).await {
        Ok(tools) => remote.has_changed(&tools),
        Err(error) => {
            let error = remote.about.redact_chain(&error);
            let backend = &*remote.about.name;
            tracing::warn!(backend, error, "failed to list the tools of a backend");
            true
        }
    }
}

/// Sends all resource subscriptions and the log level to a server with protocol version 2025-11-25
/// or older. Does so on each new connection, and again when subscriptions were copied from a server
/// that this server replaces.
async fn subscribe_again(remote: &Remote, connection: &Connection) {
    if connection.modern {
        return;
    }
    let subscribe = |uri| async move {
        let request = Request::new(subscribe(uri), Context::default());
        let subscribed = timeout(remote.connect_timeout, connection.call(request)).await;
        if !matches!(subscribed, Ok(Ok(reply)) if reply.error().is_none()) {
            tracing::debug!(
                backend = &*remote.about.name,
                "failed to restore the subscription to a resource"
            );
        }
    };
    loop {
        let subscribing = join_all(remote.subscriptions().into_iter().map(subscribe));
        tokio::join!(subscribing, set_level_again(remote, connection));
        remote.subscribe_again.notified().await;
    }
}

/// Sends the log level to a server with protocol version 2025-11-25 or older. The server receives
/// the lowest level that any client has set. Does nothing if no client has set a level.
async fn set_level_again(remote: &Remote, connection: &Connection) {
    let set = async {
        let _sending = remote.levels.sending.lock().await;
        let level = remote.levels.lowest()?;
        Some(connection.call(Request::new(set_level(level), Context::default())).await)
    };
    let set = timeout(remote.connect_timeout, set).await;
    if !matches!(&set, Ok(None)) && !matches!(&set, Ok(Some(Ok(reply))) if reply.error().is_none())
    {
        tracing::debug!(backend = &*remote.about.name, "failed to set the log level of a backend");
    }
}

/// Ends abandoned subscriptions at a server with protocol version 2025-11-25 or older. A
/// subscription is abandoned if its caller has cancelled the subscribe request. The server may have
/// created the subscription anyway.
async fn unsubscribe_abandoned(remote: &Remote, connection: &Connection) {
    if connection.modern {
        return;
    }
    let send = async |message: ClientRequest| {
        let sent = connection.call(Request::new(message, Context::default()));
        if timeout(remote.connect_timeout, sent).await.is_err() {
            let backend = &*remote.about.name;
            tracing::debug!(backend, "a backend did not confirm the end of a subscription");
        }
    };
    let unsubscribe = async |uri: Arc<str>| {
        if !remote.is_subscribed(&uri) {
            send(call::unsubscribe(&*uri).into()).await;
            // A caller may have subscribed again before the server received the unsubscribe
            // request.
            if remote.is_subscribed(&uri) {
                send(subscribe(&*uri).into()).await;
            }
        }
    };
    loop {
        let abandoned = stream::iter(remote.take_abandoned());
        abandoned.for_each_concurrent(UNSUBSCRIBING, &unsubscribe).await;
        remote.unsubscribe_abandoned.notified().await;
    }
}

/// Forwards the notifications of a server with protocol version 2026-07-28. Such a server sends
/// notifications only on a `subscriptions/listen` stream, which this function reopens when it ends.
async fn listen(remote: &Remote, connection: &Arc<Connection>) -> Infallible {
    if !connection.modern {
        return future::pending().await;
    }
    let mut listening: Option<Subscription> = None;
    let mut waits = waits(LISTEN_AGAIN_AFTER, LISTEN_AGAIN_WITHIN);
    // Whether changes may have been missed since the previous stream.
    let mut missed = false;
    loop {
        let filter = wanted(connection, remote.subscriptions());
        if filter == SubscriptionFilter::default() {
            listening = None;
            remote.listen_again.notified().await;
            continue;
        }
        let opening = connection.peer.listen(filter.clone());
        match timeout(remote.connect_timeout, opening).await {
            Ok(Ok(subscription)) => {
                // The previous stream ends only after the new one has started, so that no
                // notification is missed.
                let subscription = listening.insert(subscription);
                let since = Instant::now();
                // Run concurrently, so that notifications are read while the lists are compared.
                let catching_up =
                    OptionFuture::from(missed.then(|| catch_up(remote, connection, &filter)));
                let following = pin!(follow(remote, subscription));
                let (goes_on, caught_up) = match select(pin!(catching_up), following).await {
                    Either::Left((_, following)) => (following.await, true),
                    Either::Right((goes_on, _)) => (goes_on, false),
                };
                missed = !goes_on || !caught_up;
                if goes_on {
                    continue;
                }
                if since.elapsed() >= LISTEN_AGAIN_WITHIN {
                    waits = self::waits(LISTEN_AGAIN_AFTER, LISTEN_AGAIN_WITHIN);
                }
            }
            Ok(Err(ServiceError::McpError(error))) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                return future::pending().await;
            }
            Ok(Err(error)) => {
                let (backend, error) = (&*remote.about.name, remote.about.redact_chain(&error));
                tracing::debug!(backend, error, "failed to listen for changes of a backend");
            }
            Err(_) => tracing::debug!("timed out listening for changes of a backend"),
        }
        listening = None;
        sleep(waits.next().unwrap_or(LISTEN_AGAIN_WITHIN)).await;
    }
}

/// Reports changes of the server's lists that may have been missed while no notification stream was
/// open.
async fn catch_up(remote: &Remote, connection: &Arc<Connection>, filter: &SubscriptionFilter) {
    if filter.tools_list_changed.is_some() && lists_others(remote, connection).await {
        remote.lists.tools.bump();
    }
    if filter.prompts_list_changed.is_some() {
        remote.lists.prompts.bump();
    }
    if filter.resources_list_changed.is_some() {
        remote.lists.resources.bump();
    }
}

/// Returns the filter for a `subscriptions/listen` request. The filter requests updates of the
/// subscribed resources, and changes of all lists for which the server declares `listChanged`.
fn wanted(connection: &Connection, resources: Vec<String>) -> SubscriptionFilter {
    let Some(info) = connection.peer.peer_info() else { return SubscriptionFilter::default() };
    let mut filter = declared_changes(&info.capabilities);
    if !resources.is_empty() {
        filter.resource_subscriptions = Some(resources);
    }
    filter
}

/// Processes the notifications of an open stream. Returns `true` if the stream must be reopened
/// with a new filter, because the subscribed resources have changed. Returns `false` if the server
/// has ended the stream.
async fn follow(remote: &Remote, subscription: &mut Subscription) -> bool {
    loop {
        let next = tokio::select! {
            next = subscription.next() => next,
            () = remote.listen_again.notified() => return true,
        };
        match next {
            Ok(Some(ServerNotification::ToolListChangedNotification(_))) => {
                remote.tools_changed();
            }
            Ok(Some(ServerNotification::PromptListChangedNotification(_))) => {
                remote.lists.prompts.bump();
            }
            Ok(Some(ServerNotification::ResourceListChangedNotification(_))) => {
                remote.lists.resources.bump();
            }
            Ok(Some(ServerNotification::ResourceUpdatedNotification(updated))) => {
                remote.resource_updated(&updated.params.uri);
            }
            Ok(Some(_)) => (),
            Ok(None) | Err(_) => return false,
        }
    }
}

// === impl Closes ===

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.state.send_replace(State::Closed);
    }
}

// === impl Opening ===

impl Opening {
    const fn other(self) -> Self {
        match self {
            Self::Ask => Self::Initialize,
            Self::Initialize => Self::Ask,
        }
    }

    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Ask => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Self::Initialize => ClientLifecycleMode::Initialize,
        }
    }
}
