//! Limits the number of unsent messages to a slow HTTP server.

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::{ClientNotification, JsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::time::timeout;

use crate::json_size::{ByteBudget, json_bytes};

/// The time within which a cancellation must be sent to the server. After this time, it is dropped.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum total size in bytes, as JSON, of unsent answers to a server's requests.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// The minimum number of bytes with which an unsent answer counts toward [`MAX_ANSWER_BYTES`]. Even
/// a small answer needs this much memory for its HTTP request.
const MIN_ANSWER_BYTES: usize = 16 << 10;

/// A transport that limits the number of messages that wait to be sent to a slow server.
///
/// rmcp sends messages one after another, each in a separate HTTP request, and its queue of unsent
/// messages has no limit. This transport drops a cancellation that was not sent within its timeout.
/// If a server sends requests faster than it reads the answers, answers beyond a total size are
/// dropped.
pub(super) struct SendTimeout<T> {
    transport: T,
    answers: Arc<ByteBudget>,
}

/// The kind of an outgoing message, which determines the limit that applies to it.
enum Kind {
    Cancellation,
    /// A response or an error that answers a request from the server. The value is the number of
    /// bytes that count toward [`MAX_ANSWER_BYTES`] until the answer is sent.
    Answer(usize),
    Other,
}

// === impl SendTimeout ===

impl<T> SendTimeout<T> {
    pub(super) fn new(transport: T) -> Self {
        Self { transport, answers: Arc::new(ByteBudget::new(MAX_ANSWER_BYTES)) }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for SendTimeout<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let kind = Kind::of(&item);
        // For a cancellation, this call already ends the request locally, even if the server
        // receives the cancellation late.
        let sent = self.transport.send(item);
        let answers = self.answers.clone();
        async move {
            match kind {
                // Dropping the future removes the cancellation from the queue.
                Kind::Cancellation => timeout(PATIENCE, sent).await.unwrap_or(Ok(())),
                Kind::Answer(bytes) => {
                    let Some(_on_its_way) = answers.reserve(bytes) else {
                        tracing::warn!(
                            "dropped an answer: the server sends questions faster than it reads the answers"
                        );
                        return Ok(());
                    };
                    sent.await
                }
                Kind::Other => sent.await,
            }
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.transport.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}

// === impl Kind ===

impl Kind {
    fn of(message: &TxJsonRpcMessage<RoleClient>) -> Self {
        match message {
            JsonRpcMessage::Notification(notification)
                if matches!(
                    notification.notification,
                    ClientNotification::CancelledNotification(_)
                ) =>
            {
                Self::Cancellation
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                Self::Answer(json_bytes(message).clamp(MIN_ANSWER_BYTES, MAX_ANSWER_BYTES))
            }
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future};

    use futures::FutureExt;
    use rmcp::model::{ClientResult, CustomResult, RequestId};

    use super::*;

    /// A transport on which no message can ever be sent.
    struct Deaf;

    impl Transport<RoleClient> for Deaf {
        type Error = Infallible;

        fn send(
            &mut self,
            _: TxJsonRpcMessage<RoleClient>,
        ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
            future::pending()
        }

        async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
            future::pending().await
        }

        async fn close(&mut self) -> Result<(), Infallible> {
            Ok(())
        }
    }

    fn answer(id: usize, bytes: usize) -> TxJsonRpcMessage<RoleClient> {
        let id = RequestId::Number(i64::try_from(id).unwrap());
        let result = CustomResult::new("x".repeat(bytes).into());
        TxJsonRpcMessage::<RoleClient>::response(ClientResult::CustomResult(result), id)
    }

    #[tokio::test(start_paused = true)]
    async fn unread_answers_are_bounded_in_bytes() {
        let small = MAX_ANSWER_BYTES / MIN_ANSWER_BYTES;
        for (bytes, count) in [(0, small), (4 << 20, 3), (2 * MAX_ANSWER_BYTES, 1)] {
            let mut transport = SendTimeout::new(Deaf);
            let mut on_their_way = Vec::new();
            for id in 0..count {
                let mut sent = Box::pin(transport.send(answer(id, bytes)));
                assert!(sent.as_mut().now_or_never().is_none(), "{id} of {bytes} bytes");
                on_their_way.push(sent);
            }
            let dropped = transport.send(answer(0, bytes)).now_or_never();
            assert_eq!(dropped, Some(Ok(())), "one of {bytes} bytes");
            // After a message is dropped, there is room for another one.
            on_their_way.pop();
            assert_eq!(transport.send(answer(0, bytes)).now_or_never(), None);
        }
    }
}
