//! Notifies clients of changed lists and resources.

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

/// How often to check whether a connection has ended, since rmcp does not report it.
const LOOK: Duration = Duration::from_secs(2);
/// The maximum number of requested streams per connection that have not begun and whose changes are
/// tracked.
const MOST_ASKED: usize = 64;
/// The maximum number of concurrent subscribe requests of one stream.
const SUBSCRIBING: usize = 8;
/// The pause between notifications of updated resources. Updates of one resource during it count as
/// one.
const UPDATES_PAUSE: Duration = Duration::from_millis(100);
/// The key of a client's progress token in `_meta`.
pub(super) const PROGRESS_TOKEN: &str = "progressToken";

/// State for change notifications that all connections share.
#[derive(Clone)]
pub(super) struct Changing {
    pub(super) changes: Changes,
    pub(super) subscriptions: Arc<Subscriptions>,
}

/// State that belongs to one connection alone.
#[derive(Default)]
pub(super) struct Connection {
    claims: OnceLock<Claims>,
    log_level: OnceLock<Arc<LogLevel>>,
    opened: Mutex<Opened>,
    /// The streams that were requested and have not begun.
    asked: Mutex<Vec<PendingStream>>,
}

/// A requested stream, and the changes since the request.
pub(super) struct PendingStream {
    watch: Watch,
    /// The resources whose updates the stream receives.
    uris: Uris,
}

/// How far the connection of a client of 2025-11-25 or older is initialized.
#[derive(Default)]
enum Opened {
    #[default]
    Not,
    /// Initialized, with the changes since then.
    Initialized(Box<Watch>),
    /// The client is being notified.
    Told,
}

/// The changes since a certain moment.
pub(super) struct Watch {
    tools: Bumps,
    prompts: Bumps,
    resources: Bumps,
    updates: Updates,
}

/// A change that a client can be notified of.
#[derive(Clone)]
pub(super) enum Change {
    Tools,
    Prompts,
    Resources,
    Content(Arc<str>),
}

/// A receiver of change notifications.
pub(super) trait Listener: Sync {
    fn wants(&self, change: &Change) -> bool;
    /// Notifies the client if it is still connected.
    fn tell(&self, change: Change) -> impl Future<Output = ()> + Send;
}

/// A client of 2025-11-25 or older, which is notified of every declared change.
pub(super) struct Older<'a> {
    pub(super) peer: &'a Peer<RoleServer>,
    pub(super) claims: &'a Claims,
    pub(super) capabilities: &'a (dyn Fn() -> ServerCapabilities + Sync),
}

/// A `subscriptions/listen` stream, with the resources whose updates it receives.
pub(super) struct Stream {
    sink: SubscriptionSink,
    /// The requested resources that were not refused.
    uris: Uris,
}

// === impl ServeService ===

impl<S> ServeService<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>,
    S: Clone + Send + 'static,
{
    /// Notifies an older client of changes until it disconnects.
    pub(super) async fn tell(&self, peer: &Peer<RoleServer>) {
        let Some(changing) = &self.changing else { return };
        let Some(watch) = self.connection.begin() else { return };
        let claims = self.connection.claims(changing);
        let capabilities = || self.get_info().capabilities;
        let client = Older { peer, claims, capabilities: &capabilities };
        let (gone, telling) = (pin!(client.gone()), pin!(watch.tell(&client)));
        future::select(gone, telling).await;
        // The caller that runs the server may keep it for longer.
        claims.clear();
    }

    /// Streams changes, and the handler's own notifications, to a newer client.
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

    /// Subscribes to the resources that a stream requests, and forwards updates of those that were
    /// not refused. A server without `resources/subscribe` may still send updates.
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
    /// Returns the log level that the client has set.
    pub(super) fn log_level(&self) -> &Arc<LogLevel> {
        self.log_level.get_or_init(Arc::default)
    }

    /// Returns the resources that the client has subscribed to by requests.
    pub(super) fn claims(&self, changing: &Changing) -> &Claims {
        self.claims.get_or_init(|| Claims::new(Arc::clone(&changing.subscriptions)))
    }

    pub(super) fn initialized(&self, watch: Watch) {
        let mut opened = self.opened();
        if !matches!(*opened, Opened::Told) {
            *opened = Opened::Initialized(Box::new(watch));
        }
    }

    /// Returns the changes to notify the client of, or `None` if that has already begun or the
    /// client has not initialized.
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

    /// Registers a requested stream, which reports changes from now on.
    ///
    /// A stream whose request is cancelled never begins, so their number is limited. Streams beyond
    /// the limit miss changes between the request and their beginning.
    pub(super) fn ask(&self, changing: &Changing) {
        let mut asked = self.asked();
        if asked.len() < MOST_ASKED {
            asked.push(changing.ask());
        }
    }

    /// Returns the changes since streams were requested.
    ///
    /// If there are several, any one fits a stream: at worst it reports a change twice.
    fn asked(&self) -> MutexGuard<'_, Vec<PendingStream>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Watch ===

impl Watch {
    /// Notifies a listener of all changes, forever.
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

/// Notifies a listener of one kind of change; changes during a notification count as one.
async fn tell_of(mut bumps: Bumps, change: Change, listener: &impl Listener) -> Infallible {
    loop {
        bumps.bumped().await;
        if listener.wants(&change) {
            listener.tell(change.clone()).await;
        }
    }
}

/// Notifies a listener of updated resources. Updates of one resource during the pause count as one.
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
    /// Waits until the client has disconnected; returns up to two seconds later.
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
        // A disconnected client is detected elsewhere.
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
    /// Returns the resources that the client requested.
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
        // The end of a stream is detected elsewhere.
        let _ = match change {
            Change::Tools => self.sink.notify_tool_list_changed().await,
            Change::Prompts => self.sink.notify_prompt_list_changed().await,
            Change::Resources => self.sink.notify_resource_list_changed().await,
            Change::Content(uri) => self.sink.notify_resource_updated(&*uri).await,
        };
    }
}

/// Declares that clients are notified of changes.
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

/// Returns the part of a requested filter that is supported and within the limits.
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
