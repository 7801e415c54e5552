//! Cancellations over HTTP that nobody can wait for for ever.

use std::time::Duration;

use rmcp::{
    RoleClient,
    model::{ClientNotification, JsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::time::timeout;

/// How long a server may take to be told that nobody waits for an answer any more.
const PATIENCE: Duration = Duration::from_secs(5);

/// A transport that gives up telling a server that a request was cancelled.
///
/// rmcp posts one cancellation after another, each with a request of its own. A server
/// that is slow to take them, or far away, is told later and later, and all that is still
/// to be told is kept. What comes that late helps nobody.
pub(super) struct Impatient<T>(pub(super) T);

impl<T: Transport<RoleClient>> Transport<RoleClient> for Impatient<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let cancels = cancels(&item);
        // This ends the request at our end, however late the server is told.
        let sent = self.0.send(item);
        async move {
            match cancels {
                // Dropped, it leaves the queue.
                true => timeout(PATIENCE, sent).await.unwrap_or(Ok(())),
                false => sent.await,
            }
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.0.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.0.close()
    }
}

fn cancels(message: &TxJsonRpcMessage<RoleClient>) -> bool {
    let JsonRpcMessage::Notification(notification) = message else { return false };
    matches!(notification.notification, ClientNotification::CancelledNotification(_))
}
