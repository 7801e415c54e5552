//! The context of a request: its id, `_meta`, extensions and connection.

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

/// The key of `_meta` under which a client of 2026-07-28 declares its capabilities.
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The key of `_meta` under which a client of 2026-07-28 declares its protocol version.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The key of `_meta` that holds the client's progress token.
const PROGRESS_TOKEN: &str = "progressToken";

/// The context of a [`Request`](super::Request): everything beside the message.
///
/// A request made in code has an empty one: no client, no `_meta`, id `0`, and it can only be
/// canceled by dropping the call.
#[derive(Clone, Debug)]
pub struct Context {
    id: RequestId,
    /// The branch of the request with this id; `None` for the request itself.
    branch: Option<Arc<str>>,
    pub(crate) meta: Shared<RequestMetaObject>,
    pub(crate) extensions: Shared<Extensions>,
    pub(crate) cancellation: Option<CancellationToken>,
    pub(crate) peer: Option<Peer<RoleServer>>,
    pub(crate) progress: Option<Progress>,
    pub(crate) logs: Option<Logs>,
    /// The client, if [`note_live_client`](Self::note_live_client) found that it can be asked.
    pub(super) live_client: Option<LiveClient>,
    pub(super) delegation: Delegation,
    /// Tracing settings; `None` for the default.
    pub(crate) tracing: Option<Arc<Tracing>>,
    /// Whether a span of this process represents the trace position in `meta`.
    pub(super) is_in_span: bool,
}

/// The parts of a [`Context`] that all branches of a run share.
pub(crate) struct BranchParts {
    meta: Option<Arc<RequestMetaObject>>,
    extensions: Option<Arc<Extensions>>,
}

/// A function that returns a key of a request, such as its caller.
pub(crate) type ContextKey = Arc<dyn Fn(&Context) -> Option<String> + Send + Sync>;

// === impl Context ===

impl Context {
    /// Returns the JSON-RPC id of the request.
    ///
    /// A branch of a composite has the id of the composite's request with the branch appended, such
    /// as `7#search`.
    #[must_use]
    pub fn id(&self) -> RequestId {
        // Formatted on demand: most branches never need it.
        match &self.branch {
            None => self.id.clone(),
            Some(branch) => RequestId::String(format!("{}#{branch}", self.id).into()),
        }
    }

    /// Returns the JSON-RPC id of the request without the branch suffix.
    pub(super) const fn plain_id(&self) -> &RequestId {
        &self.id
    }

    /// Returns the JSON-RPC id of the request as text, or `None` if it is longer than `bytes`. A
    /// longer id is not formatted.
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

    /// Returns the `_meta` of the request.
    #[must_use]
    pub fn meta(&self) -> &RequestMetaObject {
        &self.meta
    }

    /// Returns the `_meta` of the request for modification.
    pub fn meta_mut(&mut self) -> &mut RequestMetaObject {
        &mut self.meta
    }

    /// Returns values that travel with the request inside this process, such as the HTTP request.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the extensions for modification.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Returns the token that is canceled when the client cancels the request, if there is one.
    ///
    /// Layers need not watch it: the server that runs the stack drops the call.
    #[must_use]
    pub const fn cancellation(&self) -> Option<&CancellationToken> {
        self.cancellation.as_ref()
    }

    /// Sets the token that is canceled when the caller cancels the request.
    ///
    /// Dropping the call does the same; handlers are notified in either case.
    pub fn set_cancellation(&mut self, token: CancellationToken) {
        self.cancellation = Some(token);
    }

    /// Returns the connection to the client, if the request came over one.
    #[must_use]
    pub const fn peer(&self) -> Option<&Peer<RoleServer>> {
        self.peer.as_ref()
    }

    /// Returns the progress reporter of the request, if the client asked for progress.
    #[must_use]
    pub const fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// Sets the progress reporter of the request.
    pub fn set_progress(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    /// Returns the sender of log messages about the request, if the client receives them.
    ///
    /// `None` for a branch of a composite: a log message cannot name its branch.
    #[must_use]
    pub const fn logs(&self) -> Option<&Logs> {
        self.logs.as_ref()
    }

    /// Returns what the client can be asked for.
    ///
    /// A client of 2026-07-28 and a caller in code declare it in `_meta`; an older client declared
    /// it during initialization.
    pub(crate) fn abilities(&self) -> Abilities {
        match (self.meta.get(CLIENT_CAPABILITIES), &self.live_client) {
            (Some(Value::Object(capabilities)), _) => Abilities::of(capabilities),
            (Some(_), _) => Abilities::default(),
            (None, Some(client)) => client.abilities(),
            (None, None) => self.client().map(|client| client.abilities()).unwrap_or_default(),
        }
    }

    /// Returns the client if it uses an older protocol and can be asked during the request.
    fn client(&self) -> Option<LiveClient> {
        let peer = self.peer.as_ref()?;
        // A client of 2026-07-28 declares its protocol version with each request.
        let is_old = self.meta.get(PROTOCOL_VERSION).is_none();
        if is_old { LiveClient::new(peer, &self.id) } else { None }
    }

    /// Returns the client if it can be asked during its request.
    pub(crate) fn live_client(&self) -> Option<LiveClient> {
        self.live_client.clone().or_else(|| self.client())
    }

    /// Returns the client if it is already known that it can be asked during its request.
    pub(crate) const fn known_live_client(&self) -> Option<&LiveClient> {
        self.live_client.as_ref()
    }

    /// Checks once, for all later branches, whether the client can be asked during its request.
    pub(crate) fn note_live_client(&mut self) {
        self.live_client = self.live_client();
    }

    /// Returns the context of one branch of a composite that was called in this one.
    ///
    /// It has no progress token, since all branches would report under the same one, and no
    /// connection. Of the declared capabilities it keeps those that the composite relays for the
    /// branch. Its progress is a part of the progress of the request.
    pub(crate) fn branch(&self, branch: Arc<str>, progress: Option<Progress>) -> Self {
        self.branch_charged(&self.branch_parts(), branch, progress, None)
    }

    /// Copies the parts that all [branches](Self::branch) share.
    pub(crate) fn branch_parts(&self) -> BranchParts {
        // Most clients send only a progress token, and an empty map allocates nothing.
        let mut meta: Map<String, Value> = self
            .meta
            .iter()
            .filter(|(key, _)| *key != PROGRESS_TOKEN)
            .map(|(key, value)| match &**key {
                CLIENT_CAPABILITIES => {
                    let declared = value.as_object();
                    let askable = declared.map(|declared| members(declared, ASKABLE));
                    (key.clone(), askable.unwrap_or_default().into())
                }
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

    /// Returns a [branch](Self::branch) that is charged to `account`, if given.
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

    /// Returns the account of the request's run, if it belongs to one.
    pub(crate) const fn account(&self) -> Option<&Arc<Account>> {
        self.delegation.account.as_ref()
    }

    /// Sets the account that is charged for the request and its inner requests.
    #[cfg(test)]
    pub(crate) fn set_account(&mut self, account: Arc<Account>) {
        self.delegation.account = Some(account);
    }
}

/// Copies the members of an object that have these keys.
pub(crate) fn members<'k>(
    object: &Map<String, Value>,
    keys: impl IntoIterator<Item = &'k str>,
) -> Map<String, Value> {
    let member = |key: &str| object.get(key).map(|value| (key.to_owned(), value.clone()));
    keys.into_iter().filter_map(member).collect()
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
