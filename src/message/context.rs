//! What a request came with, beside its message.

use std::sync::Arc;

use rmcp::{
    Peer, RoleServer,
    model::{Extensions, RequestId, RequestMetaObject},
    service::RequestContext,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{
    Account, Logs, Progress, Tracing,
    client::{ASKABLE, Abilities, LiveClient},
    delegation::Delegation,
    shared::Shared,
};

/// Under which key of `_meta` a client of 2026-07-28 declares what it can do.
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Under which key of `_meta` a client of 2026-07-28 says that it is one.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Under which key of `_meta` a client names the token of its progress.
const PROGRESS_TOKEN: &str = "progressToken";

/// What a [`Request`](super::Request) came with, beside the message.
///
/// A request made in code has an empty one: no client, no `_meta`, id `0`, and
/// nobody who could cancel it but by dropping the call.
#[derive(Clone, Debug)]
pub struct Context {
    id: RequestId,
    /// Which branch of the request of this id it is, if it is one.
    branch: Option<Arc<str>>,
    pub(crate) meta: Shared<RequestMetaObject>,
    pub(crate) extensions: Shared<Extensions>,
    pub(crate) cancellation: Option<CancellationToken>,
    pub(crate) peer: Option<Peer<RoleServer>>,
    pub(crate) progress: Option<Progress>,
    pub(crate) logs: Option<Logs>,
    /// The client, if it was found that it can be asked meanwhile.
    pub(super) live_client: Option<LiveClient>,
    pub(super) delegation: Delegation,
    /// How it is traced, other than by default.
    pub(crate) tracing: Option<Arc<Tracing>>,
    /// Whether a span here stands for the place in a trace that `meta` tells.
    pub(super) is_in_span: bool,
}

/// The parts of a [`Context`] that all branches of a run share.
pub(crate) struct BranchParts {
    meta: Option<Arc<RequestMetaObject>>,
    extensions: Option<Arc<Extensions>>,
}

// === impl Context ===

impl Context {
    /// The JSON-RPC id of the request.
    ///
    /// A branch of a composite has the id of its composite's request with the
    /// branch appended, such as `7#search`.
    #[must_use]
    pub fn id(&self) -> RequestId {
        // Put together when it is asked for, which most branches never are.
        match &self.branch {
            None => self.id.clone(),
            Some(branch) => RequestId::String(format!("{}#{branch}", self.id).into()),
        }
    }

    /// The JSON-RPC id of the request without what a branch appends.
    pub(super) const fn plain_id(&self) -> &RequestId {
        &self.id
    }

    /// The JSON-RPC id of the request as a text, unless that has more than so many bytes:
    /// then it is not put together.
    pub(crate) fn id_within(&self, bytes: usize) -> Option<String> {
        let plain = match &self.id {
            RequestId::Number(_) => 0,
            RequestId::String(id) => id.len(),
        };
        let branch = self.branch.as_ref().map_or(0, |branch| branch.len());
        if plain > bytes || branch > bytes {
            return None;
        }
        Some(self.id().to_string()).filter(|id| id.len() <= bytes)
    }

    /// The `_meta` of the request.
    #[must_use]
    pub fn meta(&self) -> &RequestMetaObject {
        &self.meta
    }

    /// The `_meta` of the request, to change it.
    pub fn meta_mut(&mut self) -> &mut RequestMetaObject {
        &mut self.meta
    }

    /// Values that travel with the request inside this process, such as the
    /// HTTP request it came in.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Values that travel with the request inside this process, to change them.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// The token that is cancelled when the client gives up, if there is one.
    ///
    /// Layers need not watch it: whoever serves the stack drops the call.
    #[must_use]
    pub const fn cancellation(&self) -> Option<&CancellationToken> {
        self.cancellation.as_ref()
    }

    /// Sets the token that is cancelled when whoever makes the request gives up.
    ///
    /// Dropping the call does the same; handlers are told in either case.
    pub fn set_cancellation(&mut self, token: CancellationToken) {
        self.cancellation = Some(token);
    }

    /// The connection to the client, if the request came over one.
    #[must_use]
    pub const fn peer(&self) -> Option<&Peer<RoleServer>> {
        self.peer.as_ref()
    }

    /// Where to tell how far the request is, if anybody wants to know.
    #[must_use]
    pub const fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// Sets where to tell how far the request is.
    pub fn set_progress(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    /// Where to send log messages about the request, if the client receives them.
    ///
    /// A branch of a composite has none, since a message does not say which branch it is of.
    #[must_use]
    pub const fn logs(&self) -> Option<&Logs> {
        self.logs.as_ref()
    }

    /// What the client can be asked for.
    ///
    /// A client of 2026-07-28, and whoever calls in code, says so in `_meta`; an
    /// older one has said so when it introduced itself.
    pub(crate) fn abilities(&self) -> Abilities {
        match (self.meta.get(CLIENT_CAPABILITIES), &self.live_client) {
            (Some(Value::Object(capabilities)), _) => Abilities::of(capabilities),
            (Some(_), _) => Abilities::default(),
            (None, Some(client)) => client.abilities(),
            (None, None) => self.client().map(|client| client.abilities()).unwrap_or_default(),
        }
    }

    /// The client of the request, if it is an older one that can be asked meanwhile.
    fn client(&self) -> Option<LiveClient> {
        let peer = self.peer.as_ref()?;
        // Who speaks 2026-07-28 says so with each request.
        let is_old = self.meta.get(PROTOCOL_VERSION).is_none();
        if is_old { LiveClient::new(peer, &self.id) } else { None }
    }

    /// The client, if it can be asked while its request goes on.
    pub(crate) fn live_client(&self) -> Option<LiveClient> {
        self.live_client.clone().or_else(|| self.client())
    }

    /// The client, if it was found that it can be asked while its request goes on.
    pub(crate) const fn known_live_client(&self) -> Option<&LiveClient> {
        self.live_client.as_ref()
    }

    /// Finds out once, for all branches to come, whether the client can be asked
    /// while its request goes on.
    pub(crate) fn note_live_client(&mut self) {
        self.live_client = self.live_client();
    }

    /// The context of one branch of a composite that was called in this one.
    ///
    /// What belongs to the client alone stays behind: its progress token (each
    /// branch would report under the same one), its connection, and of its
    /// declared capabilities all but what the composite asks it for in the name of
    /// the branch. Its own progress is a part of that of the request.
    pub(crate) fn branch(&self, branch: Arc<str>, progress: Option<Progress>) -> Self {
        self.branch_charged(&self.branch_parts(), branch, progress, None)
    }

    /// Copies what each [branch](Self::branch) gets, once for all of them.
    pub(crate) fn branch_parts(&self) -> BranchParts {
        // Most clients send a progress token and nothing else, and an empty map allocates
        // nothing.
        let mut meta: Map<String, Value> = self
            .meta
            .iter()
            .filter(|(key, _)| *key != PROGRESS_TOKEN)
            .map(|(key, value)| match &**key {
                CLIENT_CAPABILITIES => (key.clone(), askable(value)),
                _ => (key.clone(), value.clone()),
            })
            .collect();
        if let Some(client) = &self.live_client
            && !meta.contains_key(CLIENT_CAPABILITIES)
        {
            meta.insert(CLIENT_CAPABILITIES.to_owned(), client.capabilities().clone().into());
        }
        let meta = (!meta.is_empty()).then(|| Arc::new(meta.into()));
        let extensions = (!self.extensions.is_empty()).then(|| self.extensions.to_shared());
        BranchParts { meta, extensions }
    }

    /// A [branch](Self::branch) that is charged to this account, if there is one.
    pub(crate) fn branch_charged(
        &self,
        parts: &BranchParts,
        branch: Arc<str>,
        progress: Option<Progress>,
        account: Option<&Arc<Account>>,
    ) -> Self {
        Self {
            id: self.id(),
            branch: Some(branch),
            meta: Shared::of(parts.meta.as_ref()),
            extensions: Shared::of(parts.extensions.as_ref()),
            cancellation: self.cancellation.clone(),
            peer: None,
            progress,
            logs: None,
            live_client: self.live_client.clone(),
            delegation: self.delegation.charged(account),
            tracing: self.tracing.clone(),
            is_in_span: self.is_in_span,
        }
    }

    /// What the run is charged that the request is of, if it is of one.
    pub(crate) const fn account(&self) -> Option<&Arc<Account>> {
        self.delegation.account.as_ref()
    }

    /// Sets what is charged for the request and all that it leads to.
    #[cfg(test)]
    pub(crate) fn set_account(&mut self, account: Arc<Account>) {
        self.delegation.account = Some(account);
    }
}

/// What of a client's capabilities is to be asked for something.
fn askable(capabilities: &Value) -> Value {
    let relayed = ASKABLE
        .into_iter()
        .filter_map(|name| capabilities.get(name).map(|value| (name.to_owned(), value.clone())));
    Value::Object(relayed.collect())
}

impl Default for Context {
    fn default() -> Self {
        Self {
            id: RequestId::Number(0),
            branch: None,
            meta: Shared::default(),
            extensions: Shared::default(),
            cancellation: None,
            peer: None,
            progress: None,
            logs: None,
            live_client: None,
            delegation: Delegation::default(),
            tracing: None,
            is_in_span: false,
        }
    }
}

impl From<RequestContext<RoleServer>> for Context {
    fn from(context: RequestContext<RoleServer>) -> Self {
        Self {
            id: context.id,
            branch: None,
            meta: Shared::Owned(context.meta),
            extensions: Shared::Owned(context.extensions),
            cancellation: Some(context.ct),
            peer: Some(context.peer),
            progress: None,
            logs: None,
            live_client: None,
            delegation: Delegation::default(),
            tracing: None,
            is_in_span: false,
        }
    }
}
