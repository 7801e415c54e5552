//! The context of a request: its id, `_meta`, extensions, connection and other data.

#[cfg(feature = "cache")]
use std::sync::atomic::Ordering;
use std::sync::{Arc, atomic::AtomicBool};

use rmcp::{
    Peer, RoleServer,
    model::{Extensions, RequestId, RequestMetaObject},
    service::RequestContext,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "cache")]
use super::client::Questions;
use super::{
    Account, Logs, Progress, Tracing,
    client::{ASKABLE, Abilities, LiveClient},
    delegation::Delegation,
    shared::Shared,
};

/// The `_meta` key of the capabilities that a client declares in each request, starting with
/// protocol version 2026-07-28.
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The `_meta` key of the protocol version that a client declares in each request, starting with
/// protocol version 2026-07-28.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The `_meta` key of the token with which a client requests progress notifications.
const PROGRESS_TOKEN: &str = "progressToken";

/// The context of a [`Request`](super::Request): its id, `_meta`, connection, and everything else
/// except the message itself.
///
/// A request that is created in code has an empty context: no client, no `_meta` and the id `0`.
/// Such a request can only be canceled by dropping the call.
#[derive(Clone, Debug)]
pub struct Context {
    id: RequestId,
    /// The name of the branch, if the request belongs to a branch of a composite. In this case,
    /// `id` is the id of the composite's request.
    branch: Option<Arc<str>>,
    pub(crate) meta: Shared<RequestMetaObject>,
    pub(crate) extensions: Shared<Extensions>,
    pub(crate) cancellation: Option<CancellationToken>,
    pub(crate) peer: Option<Peer<RoleServer>>,
    pub(crate) progress: Option<Progress>,
    pub(crate) logs: Option<Logs>,
    /// The client, if servers can ask it questions during the request. Set by
    /// [`note_live_client`](Self::note_live_client).
    pub(super) live_client: Option<LiveClient>,
    pub(super) delegation: Delegation,
    /// The tracing settings. `None` if the defaults apply.
    pub(crate) tracing: Option<Arc<Tracing>>,
    /// Whether the trace context in `meta` identifies a span of this process.
    pub(super) is_in_span: bool,
    /// Set to `true` if a cache answers the request. `None` if the request is not observed.
    pub(crate) cached: Option<Arc<AtomicBool>>,
}

/// The `_meta` and extensions that the contexts of all branches of a run share. They are copied
/// once per run.
pub(crate) struct BranchParts {
    meta: Option<Arc<RequestMetaObject>>,
    extensions: Option<Arc<Extensions>>,
}

/// A function that computes a key from the context of a request, for example the name of the
/// caller.
pub(crate) type ContextKey = Arc<dyn Fn(&Context) -> Option<String> + Send + Sync>;

// === impl Context ===

impl Context {
    /// Returns the JSON-RPC id of the request.
    ///
    /// For a request of a composite's branch, the id is that of the composite's request with the
    /// name of the branch appended, for example `7#search`.
    #[must_use]
    pub fn id(&self) -> RequestId {
        // The id is formatted on demand, because the ids of most branches are never read.
        match &self.branch {
            None => self.id.clone(),
            Some(branch) => RequestId::String(format!("{}#{branch}", self.id).into()),
        }
    }

    /// Returns the JSON-RPC id of the request, without the name of a branch appended to it.
    pub(super) const fn plain_id(&self) -> &RequestId {
        &self.id
    }

    /// Formats the JSON-RPC id of the request. Returns `None` if the text is longer than `bytes`.
    /// An id that is obviously too long is not formatted at all.
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

    /// Returns a mutable reference to the `_meta` of the request.
    pub fn meta_mut(&mut self) -> &mut RequestMetaObject {
        &mut self.meta
    }

    /// Returns the extensions of the request: typed values that travel with it inside this process,
    /// such as the parts of the HTTP request in which it arrived.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns a mutable reference to the [`extensions`](Self::extensions) of the request.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Returns the token that is canceled when the client cancels the request. Returns `None` if
    /// the request was created in code and no token was [set](Self::set_cancellation).
    ///
    /// Layers need not observe the token: when it is canceled, the server that runs the stack drops
    /// the future of the call.
    #[must_use]
    pub const fn cancellation(&self) -> Option<&CancellationToken> {
        self.cancellation.as_ref()
    }

    /// Sets the token that is canceled when the caller cancels the request.
    ///
    /// Dropping the future of the call also cancels the request. The handler of the request learns
    /// of the cancellation in either case.
    pub fn set_cancellation(&mut self, token: CancellationToken) {
        self.cancellation = Some(token);
    }

    /// Returns the connection to the client. Returns `None` if the request did not arrive over a
    /// connection.
    #[must_use]
    pub const fn peer(&self) -> Option<&Peer<RoleServer>> {
        self.peer.as_ref()
    }

    /// Returns the progress reporter of the request. Returns `None` if the client did not request
    /// progress notifications.
    #[must_use]
    pub const fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// Sets the progress reporter of the request.
    pub fn set_progress(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    /// Returns the sender of log messages about the request. Returns `None` if the client does not
    /// receive log messages.
    ///
    /// Also returns `None` in a branch of a composite, because log messages cannot name the branch
    /// from which they come.
    #[must_use]
    pub const fn logs(&self) -> Option<&Logs> {
        self.logs.as_ref()
    }

    /// Returns the kinds of questions that servers can ask the client of the request.
    ///
    /// A client with protocol version 2026-07-28 and a caller in code declare their capabilities in
    /// the `_meta` of the request. A client with an older version has declared them in
    /// `initialize`.
    pub(crate) fn abilities(&self) -> Abilities {
        match (self.meta.get(CLIENT_CAPABILITIES), &self.live_client) {
            (Some(Value::Object(capabilities)), _) => Abilities::of(capabilities),
            (Some(_), _) => Abilities::default(),
            (None, Some(client)) => client.abilities(),
            (None, None) => self.client().map(|client| client.abilities()).unwrap_or_default(),
        }
    }

    /// Returns the client if its protocol version is older than 2026-07-28 and servers can ask it
    /// questions during the request. Otherwise, returns `None`.
    fn client(&self) -> Option<LiveClient> {
        let peer = self.peer.as_ref()?;
        // Only clients with protocol version 2026-07-28 declare their version in each request.
        let is_old = self.meta.get(PROTOCOL_VERSION).is_none();
        if is_old { LiveClient::new(peer, &self.id) } else { None }
    }

    /// Returns the client if servers can ask it questions during its request. Otherwise, returns
    /// `None`.
    pub(crate) fn live_client(&self) -> Option<LiveClient> {
        self.live_client.clone().or_else(|| self.client())
    }

    /// Returns the client that [`note_live_client`](Self::note_live_client) has stored. Returns
    /// `None` if that method was not called, or if servers cannot ask the client questions during
    /// the request.
    pub(crate) const fn known_live_client(&self) -> Option<&LiveClient> {
        self.live_client.as_ref()
    }

    /// Stores the client in the context if servers can ask it questions during its request.
    /// Contexts of branches that are created later inherit the client.
    pub(crate) fn note_live_client(&mut self) {
        self.live_client = self.live_client();
    }

    /// Informs observers that a cache answers the request.
    #[cfg(feature = "cache")]
    pub(crate) fn note_cached(&self) {
        if let Some(cached) = &self.cached {
            cached.store(true, Ordering::Relaxed);
        }
    }

    /// Detaches the context from its client, for a call whose result may be shared with other
    /// requests. Returns the observer of the call's questions. Returns `None` if servers cannot ask
    /// the client questions during the call.
    ///
    /// Afterward, the context has no connection and no cancellation token, and the call can only be
    /// canceled by dropping it. The progress reporter and the log sender remain, but send nothing
    /// once the client's own request has ended.
    #[cfg(feature = "cache")]
    pub(crate) fn detach(&mut self) -> Option<Questions> {
        let client = self.live_client();
        self.peer = None;
        self.cancellation = None;
        let client = client?;
        let questions = Questions::default();
        self.live_client = Some(client.observed(questions.clone()));
        Some(questions)
    }

    /// Creates the context of a composite's branch from the context of the composite's request.
    ///
    /// The context of a branch has no connection and no progress token, because all branches would
    /// report progress under the same token. It keeps only the client capabilities whose questions
    /// the composite forwards. `progress` reports the progress of the branch as a part of the
    /// request's progress.
    pub(crate) fn branch(&self, branch: Arc<str>, progress: Option<Progress>) -> Self {
        self.branch_charged(&self.branch_parts(), branch, progress, None)
    }

    /// Copies the `_meta` and extensions that all [branches](Self::branch) of a run share.
    pub(crate) fn branch_parts(&self) -> BranchParts {
        // This is usually cheap: most clients send only a progress token, and an empty map
        // allocates nothing.
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

    /// Creates the context of a [branch](Self::branch) whose costs are charged to `account`. If
    /// `account` is `None`, they are charged to the account of this context.
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
            cached: None,
        }
    }

    /// Returns the account of the run in which the request was made. Returns `None` if the request
    /// was made outside of a run.
    pub(crate) const fn account(&self) -> Option<&Arc<Account>> {
        self.delegation.account.as_ref()
    }

    /// Sets the account to which the costs of the request and its nested requests are charged.
    #[cfg(test)]
    pub(crate) fn set_account(&mut self, account: Arc<Account>) {
        self.delegation.account = Some(account);
    }
}

/// Copies the members of `object` whose keys are in `keys`.
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
            cached: None,
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
            cached: None,
        }
    }
}
