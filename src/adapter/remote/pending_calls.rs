//! Relays the questions of a server with protocol version 2025-11-25 or older to the client that
//! made the call.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
};

/// The maximum size in bytes, as JSON, of all questions in one `InputRequired` result, including
/// its request state. Also the maximum size of a single question from a server with protocol
/// version 2025-11-25 or older.
pub(super) const MAX_QUESTION_BYTES: usize = 1 << 20;
/// The maximum total size in bytes, as JSON, of the unanswered questions from one server with
/// protocol version 2025-11-25 or older.
const MAX_OPEN_BYTES: usize = 32 << 20;

/// The pending calls on a connection to a server with protocol version 2025-11-25 or older. The
/// server may ask questions about each call.
pub(super) struct Calls {
    /// Locked from before a call is sent until its id is known, because a question about the call
    /// may arrive earlier.
    registering: tokio::sync::Mutex<()>,
    by_id: Mutex<HashMap<RequestId, Call>>,
    /// Limits the total size of the unanswered questions.
    open: ByteBudget,
}

/// The registration of a pending call in [`Calls`]. Dropping it ends the call and withdraws the
/// unanswered questions about it.
pub(super) struct CallOnItsWay {
    calls: Arc<Calls>,
    id: RequestId,
}

/// The exclusive right to send and register a call. Questions from the server wait until this right
/// is used or dropped.
pub(super) struct Registering<'c> {
    calls: &'c Arc<Calls>,
    _held: tokio::sync::MutexGuard<'c, ()>,
}

struct Call {
    /// The client that made the call. `None` if this client cannot be asked during the call.
    client: Option<LiveClient>,
    over: CancellationToken,
}

// === impl Calls ===

impl Calls {
    /// Waits for the right to send the request. Returns `None` if the server may not ask for input
    /// while it handles this request.
    pub(super) async fn registering(
        self: &Arc<Self>,
        request: &ClientRequest,
    ) -> Option<Registering<'_>> {
        if !may_ask(request) {
            return None;
        }
        Some(Registering { calls: self, _held: self.registering.lock().await })
    }

    /// Reserves room for a question of this size until it is answered or withdrawn. Returns an
    /// error if the question is too large, or if there is no room.
    fn reserve(&self, bytes: usize) -> Result<SemaphorePermit<'_>, ErrorData> {
        if bytes > MAX_QUESTION_BYTES {
            let why = format!("a question has more than {MAX_QUESTION_BYTES} bytes");
            return Err(unanswered(why));
        }
        self.open.reserve(bytes).ok_or_else(|| {
            unanswered(format!("the open questions have more than {MAX_OPEN_BYTES} bytes"))
        })
    }

    /// Relays a question of the server to the client that made the call, and waits for the answer.
    /// Fails if the call ends or the server withdraws the question.
    pub(super) async fn relay(
        &self,
        request: InputRequest,
        context: &RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let _reserved = self.reserve(json_bytes(&request))?;
        let (client, over) = {
            let _registering = self.registering.lock().await;
            self.asked(context.extensions.get()).map_err(unanswered)?
        };
        tokio::select! {
            answer = client.relay(request) => answer,
            _ = join_all(over.iter().map(CancellationToken::cancelled)) => {
                Err(unanswered("the call has ended"))
            }
            () = context.ct.cancelled() => Err(unanswered("the question was withdrawn")),
        }
    }

    /// Returns the client to ask, and the calls that the server's question may belong to.
    ///
    /// A question that arrives on the response stream of a call belongs to this call. Otherwise its
    /// call is unknown, as over pipes. If the pending calls then do not all belong to one request
    /// of one client, returns an error, since no client may see a question about another client's
    /// call.
    fn asked(
        &self,
        origin: Option<&InboundStreamOrigin>,
    ) -> Result<(LiveClient, Vec<CancellationToken>), &'static str> {
        let by_id = self.by_id();
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

    fn by_id(&self) -> MutexGuard<'_, HashMap<RequestId, Call>> {
        // The lock is never held across a panic, and the map would be consistent if it were.
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Registers a call that was sent, and the client that receives questions about it.
    pub(super) fn sent(self, id: RequestId, client: Option<LiveClient>) -> CallOnItsWay {
        let call = Call { client, over: CancellationToken::new() };
        self.calls.by_id().insert(id.clone(), call);
        CallOnItsWay { calls: self.calls.clone(), id }
    }
}

// === impl CallOnItsWay ===

impl Drop for CallOnItsWay {
    fn drop(&mut self) {
        let call = self.calls.by_id().remove(&self.id);
        // The lock is released first, since a woken task may lock the calls.
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
