//! Relays the questions of a server with protocol version 2025-11-25 or older to the client whose
//! call the server is processing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use futures::future::join_all;
use rmcp::{
    RoleClient,
    model::{ClientRequest, ClientResult, ErrorData, InputRequest, RequestId},
    service::{InboundStreamOrigin, RequestContext},
};
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::{
    json_size::{ByteBudget, json_bytes},
    message::client::{LiveClient, may_ask, unanswered},
    mutex::lock,
};

/// The maximum size in bytes, as JSON, of all questions in an `InputRequired` result, including its
/// request state. Also the maximum size of a single question from a server with protocol version
/// 2025-11-25 or older.
pub(super) const MAX_QUESTION_BYTES: usize = 1 << 20;
/// The maximum total size in bytes, as JSON, of the unanswered questions from one server with
/// protocol version 2025-11-25 or older.
const MAX_OPEN_BYTES: usize = 32 << 20;

/// The pending calls on a connection to a server with protocol version 2025-11-25 or older. Such a
/// server may ask the user questions during a call. The questions are relayed to the client that
/// made the call.
pub(super) struct Calls {
    /// A lock that is held from sending a call until the ID of the call is known. A question about
    /// the call may arrive earlier, and waits for the lock.
    registering: tokio::sync::Mutex<()>,
    by_id: Mutex<HashMap<RequestId, Call>>,
    /// A budget that limits the total size of the unanswered questions.
    open: ByteBudget,
}

/// The registration of a pending call in [`Calls`]. Dropping this value ends the registration and
/// withdraws the unanswered questions about the call.
pub(super) struct CallOnItsWay {
    calls: Arc<Calls>,
    id: RequestId,
}

/// The exclusive right to send a call and to register it in [`Calls`]. While this value exists,
/// questions from the server wait, because one of them may belong to the call that is being sent.
pub(super) struct Registering<'c> {
    calls: &'c Arc<Calls>,
    _held: tokio::sync::MutexGuard<'c, ()>,
}

struct Call {
    /// The client that made the call, to which the server's questions are relayed. `None` if this
    /// client cannot answer questions during a call.
    client: Option<LiveClient>,
    over: CancellationToken,
}

// === impl Calls ===

impl Calls {
    /// Waits for the exclusive right to send and register the request. Returns `None` if the server
    /// may not ask questions during a request of this kind.
    pub(super) async fn registering(
        self: &Arc<Self>,
        request: &ClientRequest,
    ) -> Option<Registering<'_>> {
        if !may_ask(request) {
            return None;
        }
        Some(Registering { calls: self, _held: self.registering.lock().await })
    }

    /// Reserves `bytes` for a question until the question is answered or withdrawn. Returns an
    /// error if the question is too large, or if the unanswered questions together would exceed the
    /// limit.
    fn reserve(&self, bytes: usize) -> Result<SemaphorePermit<'_>, ErrorData> {
        if bytes > MAX_QUESTION_BYTES {
            let why = format!("a question has more than {MAX_QUESTION_BYTES} bytes");
            return Err(unanswered(why));
        }
        self.open.reserve(bytes).ok_or_else(|| {
            unanswered(format!("the open questions have more than {MAX_OPEN_BYTES} bytes"))
        })
    }

    /// Relays a question of the server to the client that made the call, and waits for the client's
    /// answer. Returns an error if the call ends first, or if the server withdraws the question.
    pub(super) async fn relay(
        &self,
        request: InputRequest,
        context: &RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let _reserved = self.reserve(json_bytes(&request))?;
        let (client, over) = {
            let _registering = self.registering.lock().await;
            self.recipient(context.extensions.get()).map_err(unanswered)?
        };
        tokio::select! {
            answer = client.relay(request) => answer,
            _ = join_all(over.iter().map(CancellationToken::cancelled)) => {
                Err(unanswered("the call has ended"))
            }
            () = context.ct.cancelled() => Err(unanswered("the question was withdrawn")),
        }
    }

    /// Returns the client that receives a question of the server, and a token for each pending call
    /// that the question may belong to. The token is cancelled when the call ends.
    ///
    /// If the question arrives on the response stream of a call, it belongs to this call.
    /// Otherwise, for example over pipes, it may belong to any pending call. It is then relayed
    /// only if all pending calls belong to one request of one client. If they do not, an error is
    /// returned, because no client may see a question about another client's call.
    fn recipient(
        &self,
        origin: Option<&InboundStreamOrigin>,
    ) -> Result<(LiveClient, Vec<CancellationToken>), &'static str> {
        let by_id = lock(&self.by_id);
        let calls: Vec<&Call> = match origin {
            Some(InboundStreamOrigin::OutboundRequest(id)) => by_id.get(id).into_iter().collect(),
            Some(InboundStreamOrigin::Unassociated) | None => by_id.values().collect(),
        };
        let [first, others @ ..] = &*calls else {
            return Err("no call is in progress that the question could belong to");
        };
        let is_of_first = |other: &&Call| match (&first.client, &other.client) {
            (Some(first), Some(other)) => first.is_same(other),
            _ => false,
        };
        if !others.iter().all(is_of_first) {
            return Err("several calls are in progress, and the question does not name its call");
        }
        let client = first.client.clone();
        let client = client.ok_or("the caller cannot answer questions during a call")?;
        Ok((client, calls.iter().map(|call| call.over.clone()).collect()))
    }
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            registering: tokio::sync::Mutex::default(),
            by_id: Mutex::default(),
            open: ByteBudget::new(MAX_OPEN_BYTES),
        }
    }
}

// === impl Registering ===

impl Registering<'_> {
    /// Registers the call under its ID, after the call was sent. Questions about the call are
    /// relayed to `client`. They are rejected if `client` is `None`.
    pub(super) fn sent(self, id: RequestId, client: Option<LiveClient>) -> CallOnItsWay {
        let call = Call { client, over: CancellationToken::new() };
        lock(&self.calls.by_id).insert(id.clone(), call);
        CallOnItsWay { calls: self.calls.clone(), id }
    }
}

// === impl CallOnItsWay ===

impl Drop for CallOnItsWay {
    fn drop(&mut self) {
        let call = lock(&self.calls.by_id).remove(&self.id);
        // The lock on the calls is already released, because a woken task may lock them again.
        if let Some(call) = call {
            call.over.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_questions_of_a_server_share_a_byte_limit() {
        let calls = Calls::default();
        let open: Vec<_> = (0..MAX_OPEN_BYTES / MAX_QUESTION_BYTES)
            .map(|_| calls.reserve(MAX_QUESTION_BYTES).unwrap())
            .collect();
        let refused = calls.reserve(1).unwrap_err();
        assert_eq!(refused.message, "the open questions have more than 33554432 bytes");
        drop(open);
        assert!(calls.reserve(1).is_ok());
        let refused = calls.reserve(MAX_QUESTION_BYTES + 1).unwrap_err();
        assert_eq!(refused.message, "a question has more than 1048576 bytes");
    }
}
