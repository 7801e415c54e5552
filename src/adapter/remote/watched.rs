use rmcp::{
    RoleClient,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio_util::sync::CancellationToken;

use super::last_words::LastWords;

/// A transport that says at once when nothing will come over it any more.
///
/// rmcp tells those who wait for an answer only when the transport is closed,
/// and closing a child process may take seconds.
pub(super) struct Watched<T> {
    transport: T,
    gone: CancellationToken,
    last_words: LastWords,
}

// === impl Watched ===

impl<T> Watched<T> {
    pub(super) const fn new(transport: T, gone: CancellationToken, last_words: LastWords) -> Self {
        Self { transport, gone, last_words }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let received = self.transport.receive().await;
        if received.is_none() {
            self.last_words.or("the server closed it");
            self.gone.cancel();
        }
        received
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}
