//! Notifies clients of changed lists and updated resources.

use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};

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
    },
    service::{RequestContext, SubscriptionContext, SubscriptionSink},
};

use super::{
    changes::{Change, Changing, Listener, PendingStream},
    service::ServeService,
    subscriptions::{Claims, Uris},
};
use crate::{
    adapter::declared_changes,
    message::ToolService,
    warnings::sanitize::{Reason, Sanitized},
};

/// The interval at which the server checks whether a client is still connected. rmcp does not
/// report the end of a connection.
const LOOK: Duration = Duration::from_secs(2);
/// The maximum number of concurrent `resources/subscribe` requests for one stream.
const SUBSCRIBING: usize = 8;
pub(super) const PROGRESS_TOKEN: &str = "progressToken";

/// A client with protocol version 2025-11-25 or older. It need not request change notifications: it
/// is notified of changes of all lists for which the server declares `listChanged`, and of updates
/// of its subscribed resources.
struct Older<'a> {
    peer: &'a Peer<RoleServer>,
    claims: &'a Claims,
    capabilities: &'a (dyn Fn() -> ServerCapabilities + Sync),
}

/// A `subscriptions/listen` stream to a client, and the resources whose updates it sends.
struct Stream {
    sink: SubscriptionSink,
    /// The resources whose updates the stream sends: the resources that the client has requested,
    /// except those for which the service has rejected the subscription.
    uris: Uris,
}

// === impl ServeService ===

impl<S> ServeService<S>
where
    S: ToolService,
{
    /// Sends change notifications to a client with protocol version 2025-11-25 or older until the
    /// client disconnects.
    pub(super) async fn notify(&self, peer: &Peer<RoleServer>) {
        let Some(changing) = &self.changing else { return };
        let Some(watch) = self.connection.begin() else { return };
        let claims = self.connection.claims(changing);
        let capabilities = || self.get_info().capabilities;
        let client = Older { peer, claims, capabilities: &capabilities };
        let (disconnected, notifying) = (pin!(client.disconnected()), pin!(watch.notify(&client)));
        future::select(disconnected, notifying).await;
        // Ends the subscriptions immediately. The caller that runs the server might not drop this
        // value until later.
        claims.clear();
    }

    /// Sends notifications on a `subscriptions/listen` stream until the stream ends. These are the
    /// notifications of recorded changes, and the notifications of the wrapped handler.
    pub(super) async fn stream(
        &self,
        changing: &Changing,
        context: SubscriptionContext,
    ) -> Result<(), ErrorData> {
        let PendingStream { watch, uris } =
            self.connection.pending().pop().unwrap_or_else(|| changing.ask());
        let stream = Stream { sink: context.sink().clone(), uris };
        let claims = Claims::new(Arc::clone(&changing.subscriptions));
        let mut request = context.request_context().clone();
        let caller = self.caller_in(&request);
        let requested = stream.requested_uris();
        let shares = requested.iter().map(|uri| changing.subscriptions.share(caller.as_ref(), uri));
        let _shares = shares.collect::<Result<Vec<_>, _>>()?;
        request.meta.remove(PROGRESS_TOKEN);

        let notifying = pin!(future::join(
            watch.notify(&stream),
            self.subscribe_to(requested, &stream, &claims, &request)
        ));
        let handlers = pin!(self.shared.aside.listen(context));
        let cancelled = pin!(request.ct.cancelled());
        match future::select(cancelled, future::select(handlers, notifying)).await {
            // rmcp sends no response to a cancelled request.
            Either::Left(_) => Ok(()),
            Either::Right((Either::Left((ended, _)), _)) => ended,
            Either::Right((Either::Right(((never, ()), _)), _)) => match never {},
        }
    }

    /// Sends the service a subscribe request for each resource that a stream requests. The stream
    /// then sends the updates of the resource, unless the service has rejected the request. The
    /// error "method not found" is not a rejection, because a service without `resources/subscribe`
    /// may still report updates.
    #[expect(deprecated, reason = "backends of any age understand it")]
    async fn subscribe_to(
        &self,
        requested: HashSet<Arc<str>>,
        stream: &Stream,
        claims: &Claims,
        request: &RequestContext<RoleServer>,
    ) {
        let subscribing = requested.into_iter().map(|uri| async move {
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

// === impl Older ===

impl Older<'_> {
    /// Waits until the client has disconnected. Returns up to two seconds after the disconnection.
    async fn disconnected(&self) {
        while !self.peer.is_transport_closed() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Listener for Older<'_> {
    fn wants(&self, change: &Change) -> bool {
        let declared = || declared_changes(&(self.capabilities)());
        match change {
            Change::Tools => declared().tools_list_changed == Some(true),
            Change::Prompts => declared().prompts_list_changed == Some(true),
            Change::Resources => declared().resources_list_changed == Some(true),
            Change::Content(uri) => self.claims.contains(uri),
        }
    }

    async fn notify(&self, change: Change) {
        // An error means that the client has disconnected, which `disconnected` detects.
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
    /// Returns the URIs of the resources whose updates the client has requested for this stream.
    fn requested_uris(&self) -> HashSet<Arc<str>> {
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

    async fn notify(&self, change: Change) {
        // An error means that the stream has ended, which `stream` detects.
        let _ = match change {
            Change::Tools => self.sink.notify_tool_list_changed().await,
            Change::Prompts => self.sink.notify_prompt_list_changed().await,
            Change::Resources => self.sink.notify_resource_list_changed().await,
            Change::Content(uri) => self.sink.notify_resource_updated(&*uri).await,
        };
    }
}
