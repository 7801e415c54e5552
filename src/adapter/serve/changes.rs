//! Telling clients that something has changed.

use std::{
    collections::HashSet,
    convert::Infallible,
    mem,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use futures::{
    future::{self, Either},
    stream::{self, StreamExt},
};
#[expect(deprecated, reason = "backends of any age understand it")]
use rmcp::model::{SubscribeRequest, SubscribeRequestParams};
use rmcp::{
    Peer, RoleServer, ServerHandler,
    model::{
        ConstString, ErrorCode, ErrorData, ResourceUpdatedNotificationParam, ServerCapabilities,
        SubscriptionFilter,
    },
    service::{RequestContext, SubscriptionContext, SubscriptionSink},
};
use tower::BoxError;
use tower_service::Service;

use super::{
    ServeService,
    subscriptions::{Claims, MAX_URI, MOST_SUBSCRIPTIONS, Subscriptions, Uris},
};
use crate::{
    changes::{Bumps, Changes, Updates, Wanted},
    message::{LogLevel, Reply, Request},
    warnings::sanitize::{Reason, Sanitized},
};

/// How often a connection is looked at, since nothing tells that it has ended.
const LOOK: Duration = Duration::from_secs(2);
/// How many streams of a connection may be asked for and not have begun, of which it is
/// known what has changed since.
const MOST_ASKED: usize = 64;
/// How many subscriptions of one stream are on their way at a time.
const SUBSCRIBING: usize = 8;
/// The pause between notifications of updated resources, in which updates of one count as
/// one.
const UPDATES_PAUSE: Duration = Duration::from_millis(100);
/// Under which key of `_meta` a client names the token of its progress.
pub(super) const PROGRESS_TOKEN: &str = "progressToken";

/// What all connections share where clients are told of changes.
#[derive(Clone)]
pub(super) struct Changing {
    pub(super) changes: Changes,
    pub(super) subscriptions: Arc<Subscriptions>,
}

/// What belongs to one connection alone.
#[derive(Default)]
pub(super) struct Connection {
    claims: OnceLock<Claims>,
    log_level: OnceLock<Arc<LogLevel>>,
    opened: Mutex<Opened>,
    /// The streams that were asked for and have not begun.
    asked: Mutex<Vec<PendingStream>>,
}

/// A requested stream, and the changes since the request.
pub(super) struct PendingStream {
    watch: Watch,
    /// The resources that it is notified of.
    uris: Uris,
}

/// How far the opening of a connection of 2025-11-25 or older is.
#[derive(Default)]
enum Opened {
    #[default]
    Not,
    /// What has changed since the client introduced itself.
    Initialized(Box<Watch>),
    /// The client is being told.
    Told,
}

/// What changes from some moment on.
pub(super) struct Watch {
    tools: Bumps,
    prompts: Bumps,
    resources: Bumps,
    updates: Updates,
}

/// A change that a client can be told of.
#[derive(Clone)]
pub(super) enum Change {
    Tools,
    Prompts,
    Resources,
    Content(Arc<str>),
}

/// Somebody who is told of changes.
pub(super) trait Listener: Sync {
    fn wants(&self, change: &Change) -> bool;
    /// Tells the client, if it is still there.
    fn tell(&self, change: Change) -> impl Future<Output = ()> + Send;
}

/// A client of 2025-11-25 or older, which is told of everything there is.
pub(super) struct Older<'a> {
    pub(super) peer: &'a Peer<RoleServer>,
    pub(super) claims: &'a Claims,
    pub(super) capabilities: &'a (dyn Fn() -> ServerCapabilities + Sync),
}

/// A stream of `subscriptions/listen`, with what its client may hear of.
pub(super) struct Stream {
    sink: SubscriptionSink,
    /// The resources that it asked for and that were not refused.
    uris: Uris,
}

// === impl ServeService ===

impl<S> ServeService<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>,
    S: Clone + Send + 'static,
{
    /// Tells an older client of changes until it is gone.
    pub(super) async fn tell(&self, peer: &Peer<RoleServer>) {
        let Some(changing) = &self.changing else { return };
        let Some(watch) = self.connection.begin() else { return };
        let claims = self.connection.claims(changing);
        let capabilities = || self.get_info().capabilities;
        let client = Older { peer, claims, capabilities: &capabilities };
        let (gone, telling) = (pin!(client.gone()), pin!(watch.tell(&client)));
        future::select(gone, telling).await;
        // Whoever runs the server may keep it for longer.
        claims.clear();
    }

    /// Streams changes to a newer client, and what the handler streams.
    pub(super) async fn stream(
        &self,
        changing: &Changing,
        context: SubscriptionContext,
    ) -> Result<(), ErrorData> {
        let PendingStream { watch, uris } =
            self.connection.asked().pop().unwrap_or_else(|| changing.ask());
        let stream = Stream { sink: context.sink().clone(), uris };
        let claims = Claims::new(Arc::clone(&changing.subscriptions));
        let mut request = context.request_context().clone();
        let caller = self.caller_in(&request);
        let asked = stream.asked();
        let shares = asked.iter().map(|uri| changing.subscriptions.share(caller.as_ref(), uri));
        let _shares = shares.collect::<Result<Vec<_>, _>>()?;
        request.meta.remove(PROGRESS_TOKEN);

        let ours = pin!(future::join(
            watch.tell(&stream),
            self.subscribe_to(asked, &stream, &claims, &request)
        ));
        let handlers = pin!(self.shared.aside.listen(context));
        let cancelled = pin!(request.ct.cancelled());
        match future::select(cancelled, future::select(handlers, ours)).await {
            // rmcp sends no response to a cancelled request.
            Either::Left(_) => Ok(()),
            Either::Right((Either::Left((ended, _)), _)) => ended,
            Either::Right((Either::Right(((never, ()), _)), _)) => match never {},
        }
    }

    /// Subscribes to what a stream asked for, and lets it hear of what was not
    /// refused. A server that knows no subscriptions may still tell of changes.
    #[expect(deprecated, reason = "backends of any age understand it")]
    async fn subscribe_to(
        &self,
        asked: HashSet<Arc<str>>,
        stream: &Stream,
        claims: &Claims,
        request: &RequestContext<RoleServer>,
    ) {
        let subscribing = asked.into_iter().map(|uri| async move {
            let message = SubscribeRequest::new(SubscribeRequestParams::new(&*uri));
            let subscribed = self.acknowledge(message.method.as_str(), message, request.clone());
            let refused = claims.add(&uri, None, subscribed).await.err();
            if let Some(error) = &refused {
                let (uri, error) = (Sanitized(&uri), Reason(error));
                tracing::warn!(%uri, %error, "failed to subscribe to a resource");
            }
            if refused.is_none_or(|error| error.code == ErrorCode::METHOD_NOT_FOUND) {
                stream.uris.lock().insert(uri, ());
            }
        });
        stream::iter(subscribing).buffer_unordered(SUBSCRIBING).collect::<()>().await;
    }
}

// === impl Changing ===

impl Changing {
    /// Watches for changes from now on, and for updates of wanted resources.
    pub(super) fn watch(&self, wanted: Arc<Wanted>) -> Watch {
        Watch {
            tools: self.changes.tools().watch(),
            prompts: self.changes.prompts().watch(),
            resources: self.changes.resources().watch(),
            updates: self.changes.watch_wanted(wanted),
        }
    }

    fn ask(&self) -> PendingStream {
        let uris = Uris::default();
        PendingStream { watch: self.watch(uris.wanted()), uris }
    }
}

// === impl Connection ===

impl Connection {
    /// The log level that the client has set.
    pub(super) fn log_level(&self) -> &Arc<LogLevel> {
        self.log_level.get_or_init(Arc::default)
    }

    /// The resources that the client has subscribed to, with requests.
    pub(super) fn claims(&self, changing: &Changing) -> &Claims {
        self.claims.get_or_init(|| Claims::new(Arc::clone(&changing.subscriptions)))
    }

    pub(super) fn initialized(&self, watch: Watch) {
        let mut opened = self.opened();
        if !matches!(*opened, Opened::Told) {
            *opened = Opened::Initialized(Box::new(watch));
        }
    }

    /// What to tell the client from now on; nothing if it is told already or has
    /// never introduced itself.
    pub(super) fn begin(&self) -> Option<Watch> {
        let mut opened = self.opened();
        match mem::take(&mut *opened) {
            Opened::Not => None,
            Opened::Initialized(watch) => {
                *opened = Opened::Told;
                Some(*watch)
            }
            Opened::Told => {
                *opened = Opened::Told;
                None
            }
        }
    }

    /// Notes that a stream is asked for, which tells of what changes from now on.
    ///
    /// One whose request is cancelled never begins, so there is an end to them; of those
    /// beyond it, a change in the moment before they begin is not told.
    pub(super) fn ask(&self, changing: &Changing) {
        let mut asked = self.asked();
        if asked.len() < MOST_ASKED {
            asked.push(changing.ask());
        }
    }

    /// What may have changed since a stream was asked for.
    ///
    /// Of several, any will do: at worst it tells of a change twice.
    fn asked(&self) -> MutexGuard<'_, Vec<PendingStream>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Watch ===

impl Watch {
    /// Tells of all changes, for ever.
    pub(super) async fn tell(self, listener: &impl Listener) -> Infallible {
        let ((never, _), _) = future::join(
            future::join(
                tell_of(self.tools, Change::Tools, listener),
                tell_of(self.prompts, Change::Prompts, listener),
            ),
            future::join(
                tell_of(self.resources, Change::Resources, listener),
                tell_of_updates(self.updates, listener),
            ),
        )
        .await;
        never
    }
}

/// Tells of one kind of changes; those that come meanwhile count as one.
async fn tell_of(mut bumps: Bumps, change: Change, listener: &impl Listener) -> Infallible {
    loop {
        bumps.bumped().await;
        if listener.wants(&change) {
            listener.tell(change.clone()).await;
        }
    }
}

/// Notifies a listener of updated resources; updates of one that arrive in the pause count
/// as one.
async fn tell_of_updates(mut updates: Updates, listener: &impl Listener) -> Infallible {
    loop {
        for uri in updates.recv_all().await {
            let change = Change::Content(uri);
            // The client may have unsubscribed meanwhile.
            if listener.wants(&change) {
                listener.tell(change).await;
            }
        }
        tokio::time::sleep(UPDATES_PAUSE).await;
    }
}

// === impl Older ===

impl Older<'_> {
    /// Returns when the client is gone, a moment later.
    pub(super) async fn gone(&self) {
        while !self.peer.is_transport_closed() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Listener for Older<'_> {
    fn wants(&self, change: &Change) -> bool {
        let declared = || {
            SubscriptionFilter::builder()
                .tools_list_changed()
                .prompts_list_changed()
                .resources_list_changed()
                .build()
                .supported_by(&(self.capabilities)())
        };
        match change {
            Change::Tools => declared().tools_list_changed == Some(true),
            Change::Prompts => declared().prompts_list_changed == Some(true),
            Change::Resources => declared().resources_list_changed == Some(true),
            Change::Content(uri) => self.claims.contains(uri),
        }
    }

    async fn tell(&self, change: Change) {
        // Who is gone will be noticed elsewhere.
        let _ = match change {
            Change::Tools => self.peer.notify_tool_list_changed().await,
            Change::Prompts => self.peer.notify_prompt_list_changed().await,
            Change::Resources => self.peer.notify_resource_list_changed().await,
            Change::Content(uri) => {
                let params = ResourceUpdatedNotificationParam::new(&*uri);
                self.peer.notify_resource_updated(params).await
            }
        };
    }
}

// === impl Stream ===

impl Stream {
    /// The resources that its client asked for.
    fn asked(&self) -> HashSet<Arc<str>> {
        let uris = self.sink.accepted().resource_subscriptions.iter().flatten();
        uris.map(|uri| uri.as_str().into()).collect()
    }
}

impl Listener for Stream {
    fn wants(&self, change: &Change) -> bool {
        let accepted = self.sink.accepted();
        match change {
            Change::Tools => accepted.tools_list_changed == Some(true),
            Change::Prompts => accepted.prompts_list_changed == Some(true),
            Change::Resources => accepted.resources_list_changed == Some(true),
            Change::Content(uri) => self.uris.lock().contains_key(uri),
        }
    }

    async fn tell(&self, change: Change) {
        // A stream that has ended will be noticed elsewhere.
        let _ = match change {
            Change::Tools => self.sink.notify_tool_list_changed().await,
            Change::Prompts => self.sink.notify_prompt_list_changed().await,
            Change::Resources => self.sink.notify_resource_list_changed().await,
            Change::Content(uri) => self.sink.notify_resource_updated(&*uri).await,
        };
    }
}

/// Declares that clients will be told of changes.
pub(super) fn declare(capabilities: &mut ServerCapabilities) {
    // A server may begin without any tools and get some later.
    capabilities.tools.get_or_insert_default().list_changed = Some(true);
    if let Some(prompts) = &mut capabilities.prompts {
        prompts.list_changed = Some(true);
    }
    if let Some(resources) = &mut capabilities.resources {
        resources.list_changed = Some(true);
    }
}

/// What is streamed of what was asked for.
pub(super) fn accepted(
    requested: &SubscriptionFilter,
    capabilities: &ServerCapabilities,
) -> SubscriptionFilter {
    let mut accepted = requested.supported_by(capabilities);
    if let Some(uris) = &mut accepted.resource_subscriptions {
        uris.retain(|uri| uri.len() <= MAX_URI);
        uris.truncate(MOST_SUBSCRIPTIONS);
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_never_begin_leave_no_more_than_a_few_watches() {
        let nothing = Box::new(|_| Box::pin(future::ready(Ok(()))) as _);
        let subscriptions = Arc::new(Subscriptions::new(nothing));
        let changing = Changing { changes: Changes::default(), subscriptions };
        let connection = Connection::default();
        for _ in 0..10_000 {
            connection.ask(&changing);
        }
        assert_eq!(connection.asked().len(), MOST_ASKED);
    }
}
