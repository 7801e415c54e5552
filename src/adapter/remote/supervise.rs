//! Keeps a server connected, as long as somebody wants it.

use std::{convert::Infallible, future, pin::pin, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures::future::BoxFuture;
use rmcp::{
    RoleClient, ServiceError,
    model::{
        ErrorCode, ProtocolVersion, ServerCapabilities, ServerNotification, SubscriptionFilter,
    },
    service::{ClientInitializeError, ClientLifecycleMode, RunningService, Subscription},
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use super::{
    call::{Connection, is_modern, subscribe},
    client::Client,
    last_words::LastWords,
    state::{Remote, State},
};
use crate::{
    catalog,
    message::{Context, Request},
};

/// How long to wait before the second attempt to connect; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How long to wait at most between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// A connection that lived so long was a good one: if it is lost, it is made
/// again at once.
const GOOD_AFTER: Duration = Duration::from_secs(10);
/// How long to wait for the end of a connection that nobody wants any more.
const LONGEST_END: Duration = Duration::from_secs(20);
/// How long to wait before listening again to a server that ended it.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Makes a connection, each time anew.
pub(super) type Open =
    Box<dyn Fn(Attempt) -> BoxFuture<'static, Result<Session, BoxError>> + Send + Sync>;

/// What an attempt to connect is made with.
pub(super) struct Attempt {
    pub(super) client: Client,
    pub(super) lifecycle: ClientLifecycleMode,
    pub(super) last_words: LastWords,
    pub(super) gone: CancellationToken,
}

/// rmcp's side of a connection.
pub(super) type Session = RunningService<RoleClient, Client>;

/// How a connection begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// By asking which protocol the server speaks.
    Ask,
    /// As before 2026-07-28, when there was nothing to ask.
    Initialize,
}

/// Why there is no connection.
struct Trouble {
    text: String,
    /// Whether there was a server that did not understand how we began.
    misunderstood: bool,
}

/// Says that nobody will try again, however the supervisor ends.
struct Closes<'r>(&'r Remote);

/// Keeps a server connected until it is told to stop.
pub(super) async fn supervise(remote: Arc<Remote>, open: Open, stop: CancellationToken) {
    let _closes = Closes(&remote);
    let mut opening = Opening::Ask;
    let mut waits = waits();
    loop {
        remote.state.send_replace(State::Connecting);
        let last_words = LastWords::default();
        let attempt = connect(&remote, &open, opening, last_words.clone());
        let Some(attempt) = stop.run_until_cancelled(attempt).await else { break };
        match attempt {
            Ok((session, gone)) => {
                opening = Opening::of(&session);
                let since = Instant::now();
                stay_connected(&remote, session, gone, &stop).await;
                if stop.is_cancelled() {
                    break;
                }
                let end = last_words.take().unwrap_or_default();
                remote.trouble(format!("the connection was lost: {}", remote.tell(&end)));
                if since.elapsed() >= GOOD_AFTER {
                    waits = self::waits();
                    continue;
                }
            }
            Err(trouble) => {
                remote.trouble(trouble.text);
                opening = opening.after(trouble.misunderstood);
            }
        }
        remote.state.send_replace(State::Down);
        let wait = waits.next().unwrap_or(LONGEST_WAIT);
        if stop.run_until_cancelled(sleep(wait)).await.is_none() {
            break;
        }
    }
}

/// How long to wait between attempts; not the same for all, so that those who
/// have lost the same server do not come back at the same time.
fn waits() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(FIRST_WAIT)
        .with_max_delay(LONGEST_WAIT)
        .with_jitter()
        .without_max_times()
        .build()
}

/// Makes one attempt to connect.
async fn connect(
    remote: &Arc<Remote>,
    open: &Open,
    opening: Opening,
    last_words: LastWords,
) -> Result<(Session, CancellationToken), Trouble> {
    let gone = CancellationToken::new();
    let opened = open(Attempt {
        client: Client::new(remote.clone()),
        lifecycle: opening.lifecycle(),
        last_words: last_words.clone(),
        gone: gone.clone(),
    });
    let patience = remote.connect_timeout;
    let (text, misunderstood) = match timeout(patience, opened).await {
        Ok(Ok(session)) => return Ok((session, gone)),
        Ok(Err(error)) => (remote.tell_error(&*error), error.is::<ClientInitializeError>()),
        Err(_) => (format!("it did not answer within {patience:?}"), true),
    };
    let text = match last_words.take() {
        Some(words) => format!("{text}; {}", remote.tell(&words)),
        None => text,
    };
    Err(Trouble { text, misunderstood })
}

/// Serves a connection until it is lost or nobody wants it any more.
async fn stay_connected(
    remote: &Remote,
    session: Session,
    gone: CancellationToken,
    stop: &CancellationToken,
) {
    let connection = Arc::new(Connection::new(remote, &session, gone.clone()));
    let end = session.cancellation_token();
    let mut ended = pin!(session.waiting());
    let serve = async {
        welcome(remote, &connection).await;
        listen(remote, &connection).await
    };
    let has_ended = tokio::select! {
        () = stop.cancelled() => false,
        () = gone.cancelled() => false,
        _ = &mut ended => true,
        never = serve => match never {},
    };
    // Before it is closed, which may take a while: nobody else is to use it.
    let next = if stop.is_cancelled() { State::Down } else { State::Connecting };
    remote.state.send_replace(next);
    connection.gone.cancel();
    if !has_ended {
        // A child process has ended when this has. Some transports take their time.
        end.cancel();
        if timeout(LONGEST_END, ended).await.is_err() {
            tracing::warn!(backend = &*remote.name, "a connection does not end");
        }
    }
}

/// Takes up a new connection: lists its tools and makes it known.
///
/// Tools are listed on every connection, since rmcp takes from that which of
/// their arguments are headers over HTTP, and since they may be others.
async fn welcome(remote: &Remote, connection: &Arc<Connection>) {
    let info = connection.peer.peer_info();
    let capabilities = info.as_ref().map(|info| &info.capabilities);
    let has_tools = capabilities.is_none_or(|capabilities| capabilities.tools.is_some());
    let mut changed = true;
    if has_tools {
        let service = connection.clone();
        let service = service_fn(move |request| {
            let connection = service.clone();
            async move { connection.call(request).await }
        });
        match catalog::list_all(service, Context::default()).await {
            Ok(tools) => changed = remote.has_changed(&tools),
            Err(error) => {
                let error = remote.tell_error(&error);
                tracing::warn!(
                    backend = &*remote.name,
                    error,
                    "the tools of a backend are not known"
                );
            }
        }
    }
    if !connection.modern {
        for uri in remote.subscriptions() {
            let request = Request::new(subscribe(uri), Context::default());
            if let Err(error) = connection.call(request).await {
                tracing::debug!(%error, "a resource is not listened to any more");
            }
        }
    }

    let server = info.as_ref().and_then(|info| info.server_info.as_ref());
    tracing::info!(
        backend = &*remote.name,
        server = server.map(|server| remote.tell(&format!("{} {}", server.name, server.version))),
        protocol = info.as_ref().map(|info| info.protocol_version.as_str()),
        "connected a backend"
    );
    remote.connected(info);
    remote.state.send_replace(State::Connected(connection.clone()));
    if changed {
        remote.changes.tools().bump();
    }
    remote.changes.prompts().bump();
    remote.changes.resources().bump();
}

/// Listens to what changes at a server that must be asked to tell.
async fn listen(remote: &Remote, connection: &Connection) -> Infallible {
    if !connection.modern {
        return future::pending().await;
    }
    let mut listening: Option<Subscription> = None;
    loop {
        let filter = wanted(connection, remote.subscriptions());
        if filter == SubscriptionFilter::default() {
            listening = None;
            remote.listen_again.notified().await;
            continue;
        }
        let listened = timeout(remote.connect_timeout, connection.peer.listen(filter)).await;
        match listened {
            Ok(Ok(subscription)) => {
                // The one before ends only now, so that nothing is missed.
                let subscription = listening.insert(subscription);
                if follow(remote, subscription).await {
                    continue;
                }
            }
            Ok(Err(ServiceError::McpError(error))) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                return future::pending().await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a backend cannot be listened to"),
            Err(_) => tracing::debug!("a backend does not say whether it can be listened to"),
        }
        listening = None;
        sleep(LISTEN_AGAIN_AFTER).await;
        // Whatever was missed meanwhile.
        remote.changes.tools().bump();
        remote.changes.prompts().bump();
        remote.changes.resources().bump();
    }
}

/// What to ask a server to tell.
fn wanted(connection: &Connection, resources: Vec<String>) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    let Some(info) = connection.peer.peer_info() else { return filter };
    let ServerCapabilities { tools, prompts, resources: resource, .. } = &info.capabilities;
    let changes = |list_changed: Option<bool>| list_changed.filter(|&changes| changes);
    filter.tools_list_changed = tools.as_ref().and_then(|tools| changes(tools.list_changed));
    filter.prompts_list_changed =
        prompts.as_ref().and_then(|prompts| changes(prompts.list_changed));
    filter.resources_list_changed =
        resource.as_ref().and_then(|resources| changes(resources.list_changed));
    if !resources.is_empty() {
        filter.resource_subscriptions = Some(resources);
    }
    filter
}

/// Passes on what changes, until the server ends it or something else is wanted,
/// which is when it returns `true`.
async fn follow(remote: &Remote, subscription: &mut Subscription) -> bool {
    loop {
        let next = tokio::select! {
            next = subscription.next() => next,
            () = remote.listen_again.notified() => return true,
        };
        match next {
            Ok(Some(ServerNotification::ToolListChangedNotification(_))) => {
                remote.changes.tools().bump();
            }
            Ok(Some(ServerNotification::PromptListChangedNotification(_))) => {
                remote.changes.prompts().bump();
            }
            Ok(Some(ServerNotification::ResourceListChangedNotification(_))) => {
                remote.changes.resources().bump();
            }
            Ok(Some(ServerNotification::ResourceUpdatedNotification(updated))) => {
                remote.changes.resource_updated(updated.params.uri);
            }
            Ok(Some(_)) => (),
            Ok(None) | Err(_) => return false,
        }
    }
}

// === impl Closes ===

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.state.send_replace(State::Closed);
    }
}

// === impl Opening ===

impl Opening {
    /// How a connection began.
    fn of(session: &Session) -> Self {
        let info = session.peer().peer_info();
        match info.is_some_and(|info| is_modern(&info.protocol_version)) {
            true => Self::Ask,
            false => Self::Initialize,
        }
    }

    /// How to begin after an attempt failed.
    fn after(self, misunderstood: bool) -> Self {
        match self {
            // Some older servers end, or never answer, when they are asked something
            // before they are initialized.
            Self::Ask if misunderstood => Self::Initialize,
            // The server may be another one by now.
            Self::Initialize if misunderstood => Self::Ask,
            same => same,
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
