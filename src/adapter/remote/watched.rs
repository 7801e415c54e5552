use std::{pin::pin, sync::Arc, task::Poll};

use futures::poll;
use rmcp::{
    RoleClient,
    model::JsonRpcMessage,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::last_words::LastWords;

/// A transport that says at once when nothing will come over it any more, and
/// that sends in order.
///
/// rmcp tells those who wait for an answer only when the transport is closed,
/// and closing a child process may take seconds. It sends each message in a task
/// of its own, so that a cancellation could overtake the request it cancels.
pub(super) struct Watched<T> {
    transport: T,
    /// Ends when the message before is on its way.
    before: Option<oneshot::Receiver<()>>,
    gone: CancellationToken,
    /// Told when the server refuses something without saying what, which rmcp
    /// cannot tell whoever waits for it.
    doubt: Arc<Notify>,
    last_words: LastWords,
}

// === impl Watched ===

impl<T> Watched<T> {
    pub(super) const fn new(
        transport: T,
        gone: CancellationToken,
        doubt: Arc<Notify>,
        last_words: LastWords,
    ) -> Self {
        Self { transport, before: None, gone, doubt, last_words }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
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
                // It fails when that is on its way, or given up.
                let _ = before.await;
            }
            let mut sent = pin!(sent);
            // Once polled it has its place in the queue of the transport.
            let polled = poll!(&mut sent);
            drop::<oneshot::Sender<()>>(after);
            match polled {
                Poll::Ready(sent) => sent,
                Poll::Pending => sent.await,
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let received = self.transport.receive().await;
        match &received {
            None => {
                self.last_words.or("the server closed it");
                self.gone.cancel();
            }
            Some(JsonRpcMessage::Error(error)) if error.id.is_none() => self.doubt.notify_one(),
            Some(_) => (),
        }
        received
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}
