//! A transport that preserves the order of messages and progress notifications.

use std::{pin::pin, sync::Arc, task::Poll};

use futures::poll;
use rmcp::{
    RoleClient,
    model::{JsonRpcMessage, JsonRpcNotification, ProgressNotificationParam, ServerNotification},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::{exit_reason::ExitReason, tokens::Tokens};

/// The maximum length in bytes of the URI in a `notifications/resources/updated` message. Longer
/// URIs are dropped, because no client can have subscribed to them.
const MAX_QUEUED_URI: usize = 8 << 10;

/// A transport that delivers messages and progress notifications in order. It reports a lost
/// connection immediately, so that pending requests fail without delay.
///
/// rmcp alone has three problems. It fails pending requests only when the transport is closed,
/// which may take seconds for a child process. It sends each message in a separate task, so a
/// cancellation could overtake its request. It processes each notification in a separate task, so a
/// response could overtake the last progress notification.
pub(super) struct OrderedTransport<T> {
    transport: T,
    /// A channel that closes when the previous outgoing message was queued. The next message waits
    /// for this, so that messages are sent in order. `None` before the first message.
    before: Option<oneshot::Receiver<()>>,
    signals: Signals,
    tokens: Arc<Tokens>,
    /// A progress notification that was received but not forwarded yet, because it may belong to a
    /// request whose progress token is not known yet. `None` if no notification is waiting.
    progress: Option<ProgressNotificationParam>,
}

/// The signals with which the transport of a connection informs the supervisor task. Clones share
/// them.
#[derive(Clone, Default)]
pub(super) struct Signals {
    /// Cancelled when the connection is lost or closed.
    pub(super) closed: CancellationToken,
    /// Notified when the server has rejected a message with an error that contains no request id.
    /// rmcp cannot assign such an error to a pending request.
    pub(super) doubt: Arc<Notify>,
    pub(super) last_words: ExitReason,
}

// === impl OrderedTransport ===

impl<T> OrderedTransport<T> {
    pub(super) const fn new(transport: T, signals: Signals, tokens: Arc<Tokens>) -> Self {
        Self { transport, before: None, signals, tokens, progress: None }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for OrderedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (after, next) = oneshot::channel();
        let before = self.before.replace(next);
        let sent = self.transport.send(item);
        async move {
            if let Some(before) = before {
                // Waits until the sender is dropped, when the previous message was queued or
                // dropped.
                let _ = before.await;
            }
            let mut sent = pin!(sent);
            // The first poll adds the message to the transport's queue.
            let polled = poll!(&mut sent);
            drop::<oneshot::Sender<()>>(after);
            match polled {
                Poll::Ready(sent) => sent,
                Poll::Pending => sent.await,
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            // Stored in `self` during the await, because rmcp may drop this future and call the
            // function again.
            self.tokens.report(&mut self.progress).await;
            let received = self.transport.receive().await;
            match received {
                None => {
                    self.signals.last_words.or("the server closed it");
                    self.signals.closed.cancel();
                }
                Some(JsonRpcMessage::Error(ref error)) if error.id.is_none() => {
                    self.signals.doubt.notify_one();
                }
                Some(JsonRpcMessage::Notification(JsonRpcNotification {
                    notification: ServerNotification::ProgressNotification(progress),
                    ..
                })) => {
                    self.progress = Some(progress.params);
                    continue;
                }
                Some(JsonRpcMessage::Notification(JsonRpcNotification {
                    notification: ServerNotification::LoggingMessageNotification(ref logged),
                    ..
                })) => self.tokens.logs.relay(&logged.params),
                // No client can have subscribed to this resource, because its URI is longer than
                // any subscribed URI.
                Some(JsonRpcMessage::Notification(JsonRpcNotification {
                    notification: ServerNotification::ResourceUpdatedNotification(ref updated),
                    ..
                })) if updated.params.uri.len() > MAX_QUEUED_URI => continue,
                Some(_) => (),
            }
            return received;
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Mutex};

    use futures::FutureExt;
    use rmcp::model::{ClientJsonRpcMessage, PingRequest, RequestId};

    use super::*;

    /// A transport that records the ids of the requests that are sent over it.
    #[derive(Clone, Default)]
    struct Noted(Arc<Mutex<Vec<RequestId>>>);

    impl Transport<RoleClient> for Noted {
        type Error = Infallible;

        fn send(
            &mut self,
            item: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
            let noted = self.0.clone();
            async move {
                if let JsonRpcMessage::Request(request) = item {
                    noted.lock().unwrap().push(request.id);
                }
                Ok(())
            }
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            None
        }

        async fn close(&mut self) -> Result<(), Infallible> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn messages_are_sent_in_order_whichever_task_runs_first() {
        let noted = Noted::default();
        let mut watched = OrderedTransport::new(noted.clone(), Signals::default(), Arc::default());
        let mut pings = (1..=4).map(|id| {
            let id = RequestId::Number(id);
            let ping = ClientJsonRpcMessage::request(PingRequest::default().into(), id);
            watched.send(ping).boxed()
        });
        let mut next = || pings.next().unwrap();
        let (mut first, mut second, third, mut fourth) = (next(), next(), next(), next());
        assert!(poll!(&mut second).is_pending());
        assert!(poll!(&mut first).is_ready());
        assert!(poll!(&mut second).is_ready());
        // A message that is dropped before it was sent does not block the others.
        assert!(poll!(&mut fourth).is_pending());
        drop(third);
        assert!(poll!(&mut fourth).is_ready());
        assert_eq!(*noted.0.lock().unwrap(), [1, 2, 4].map(RequestId::Number));
    }

    #[tokio::test]
    async fn connection_end_is_reported_immediately() {
        let signals = Signals::default();
        let noted = Noted::default();
        let mut watched = OrderedTransport::new(noted, signals.clone(), Arc::default());
        assert!(watched.receive().await.is_none());
        assert!(signals.closed.is_cancelled());
        assert_eq!(signals.last_words.take().unwrap(), "the server closed it");
    }
}
