//! The context of a request: the data that accompanies an MCP message, such as its id, `_meta` and
//! the connection.

#[cfg(feature = "cache")]
use std::sync::atomic::Ordering;
use std::sync::{Arc, atomic::AtomicBool};

use rmcp::{
    Peer, RoleServer,
    model::{ClientCapabilities, Extensions, RequestId, RequestMetaObject, TASKS_EXTENSION_ID},
    service::RequestContext,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "cache")]
use super::client::Questions;
use super::{
    Account, Logs, Progress, Tracing,
    branch_name::BranchName,
    client::{ASKABLE, Abilities, LiveClient},
    delegation::Delegation,
    shared::Shared,
};

/// The `_meta` key for the capabilities of the client. Clients send it in each request since
/// protocol version 2026-07-28.
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The `_meta` key for the client's protocol version. Clients send it in each request since
/// protocol version 2026-07-28.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The `_meta` key for the progress token, which requests progress notifications.
const PROGRESS_TOKEN: &str = "progressToken";

/// The context of an MCP [`Request`](super::Request): everything except the MCP message itself, for
/// example the id, `_meta` and the connection to the client.
///
/// A request that your code creates has an empty context: no connection, no `_meta`, and the id
/// `0`. To cancel such a request, drop the future of the call or [set](Self::set_cancellation) a
/// cancellation token.
#[derive(Clone, Debug)]
pub struct Context {
    id: RequestId,
    /// The name of the step that makes the request, or the name of the called tool if a tool makes
    /// the request while it answers another one. `id` is then the id of the outer request.
    branch: Option<BranchName>,
    pub(crate) meta: Shared<RequestMetaObject>,
    pub(crate) extensions: Shared<Extensions>,
    pub(crate) cancellation: Option<CancellationToken>,
    pub(crate) peer: Option<Peer<RoleServer>>,
    pub(crate) progress: Option<Progress>,
    pub(crate) logs: Option<Logs>,
    /// The client that sent the request, if servers can ask it questions during the request. Set by
    /// [`note_live_client`](Self::note_live_client).
    pub(super) live_client: Option<LiveClient>,
    pub(super) delegation: Delegation,
    /// `None` for the default settings.
    pub(crate) tracing: Option<Arc<Tracing>>,
    /// If `true`, the trace context in `meta` is a span of this process.
    pub(super) is_in_span: bool,
    /// The cache sets this flag to `true` when it answers the request. `None` if no observer needs
    /// it.
    pub(crate) cached: Option<Arc<AtomicBool>>,
    /// If `true`, a layer waits for the result if a server answers the request with a task. The
    /// request to the server then declares that the client supports tasks.
    pub(crate) polls_tasks: bool,
}

/// The `_meta` and the extensions for the steps of a run. They are copied once per run, and shared
/// by the contexts of all steps.
pub(crate) struct BranchParts {
    meta: Option<Arc<RequestMetaObject>>,
    extensions: Option<Arc<Extensions>>,
}

/// Computes a key from the context of a request, such as the name of the caller.
pub(crate) type ContextKey = Arc<dyn Fn(&Context) -> Option<String> + Send + Sync>;

// === impl Context ===

impl Context {
    /// Returns the JSON-RPC id of the request.
    ///
    /// The id of a request that is [nested](super::Request::within) in another request is derived
    /// from the outer request. For example, if the request with the id `7` calls a composite, its
    /// step `search` makes a request with the id `7#search`.
    #[must_use]
    pub fn id(&self) -> RequestId {
        // The id is formatted on demand, because the ids of most branches are never read.
        match &self.branch {
            None => self.id.clone(),
            Some(branch) => RequestId::String(format!("{}#{branch}", self.id).into()),
        }
    }

    /// Returns the id of the request without the name of its step.
    pub(super) const fn plain_id(&self) -> &RequestId {
        &self.id
    }

    /// Formats the id of the request. Returns `None` if it has more than `bytes` bytes. Obviously
    /// longer ids are not formatted at all.
    pub(crate) fn id_within(&self, bytes: usize) -> Option<String> {
        let plain = match &self.id {
            RequestId::Number(_) => 0,
            RequestId::String(id) => id.len(),
        };
        let branch = self.branch.as_ref().map_or(0, BranchName::min_len);
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

    /// Returns the extensions of the request: typed values that exist only inside this process. An
    /// example is the `http::request::Parts` of the HTTP request in which the MCP request arrived.
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
    /// Most layers do not need the token. If the client cancels the request, the server drops the
    /// future of the call, and thereby cancels all layers.
    #[must_use]
    pub const fn cancellation(&self) -> Option<&CancellationToken> {
        self.cancellation.as_ref()
    }

    /// Sets the cancellation token of the request. Your code cancels the token in order to cancel
    /// the request.
    ///
    /// Instead of canceling the token, you can also drop the future of the call. In both cases, the
    /// handler of the request is notified of the cancellation.
    pub fn set_cancellation(&mut self, token: CancellationToken) {
        self.cancellation = Some(token);
    }

    /// Returns the connection to the client. Returns `None` if the request did not arrive over a
    /// connection.
    #[must_use]
    pub const fn peer(&self) -> Option<&Peer<RoleServer>> {
        self.peer.as_ref()
    }

    /// Returns the progress reporter of the request, which sends progress notifications to the
    /// client. Returns `None` if the client did not request progress notifications.
    #[must_use]
    pub const fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// Sets the progress reporter of the request, which sends progress notifications to the client.
    pub fn set_progress(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    /// Returns the sender of log messages to the client that made the request. Returns `None` if
    /// the client does not receive log messages.
    ///
    /// Also returns `None` for the tool calls of a composite, because the client could not
    /// associate their log messages with a call.
    #[must_use]
    pub const fn logs(&self) -> Option<&Logs> {
        self.logs.as_ref()
    }

    /// Returns the kinds of questions that servers can ask the client during the request. They
    /// depend on the capabilities of the client. Clients with protocol version 2026-07-28, and code
    /// that creates a request, declare them in the `_meta` of the request. Older clients declare
    /// them in `initialize`.
    pub(crate) fn abilities(&self) -> Abilities {
        match (self.meta.get(CLIENT_CAPABILITIES), &self.live_client) {
            (Some(Value::Object(capabilities)), _) => Abilities::of(capabilities),
            (Some(_), _) => Abilities::default(),
            (None, Some(client)) => client.abilities(),
            (None, None) => self.client().map(|client| client.abilities()).unwrap_or_default(),
        }
    }

    /// Returns a handle to a client that can answer questions. Returns `None` for all other
    /// clients, and for clients with protocol version 2026-07-28 or newer.
    fn client(&self) -> Option<LiveClient> {
        let peer = self.peer.as_ref()?;
        // Only clients with protocol version 2026-07-28 declare their version in each request.
        let is_old = self.meta.get(PROTOCOL_VERSION).is_none();
        if is_old { LiveClient::new(peer, &self.id) } else { None }
    }

    /// Returns a handle with which servers can ask the client questions during the request. Returns
    /// `None` if this is not possible.
    pub(crate) fn live_client(&self) -> Option<LiveClient> {
        self.live_client.clone().or_else(|| self.client())
    }

    /// Returns the handle that [`note_live_client`](Self::note_live_client) has stored. Returns
    /// `None` if it was not called, or if the client cannot answer questions.
    pub(crate) const fn known_live_client(&self) -> Option<&LiveClient> {
        self.live_client.as_ref()
    }

    /// Stores a handle to the client in the context, if the client can answer questions. Contexts
    /// of steps that are created later receive a copy.
    pub(crate) fn note_live_client(&mut self) {
        self.live_client = self.live_client();
    }

    /// Records that a cache answers the request, for observers of the request.
    #[cfg(feature = "cache")]
    pub(crate) fn note_cached(&self) {
        if let Some(cached) = &self.cached {
            cached.store(true, Ordering::Relaxed);
        }
    }

    /// Separates the context from its client, for a call whose result other requests may share.
    /// Returns the record of questions during the call, or `None` if the client cannot answer
    /// questions.
    ///
    /// Afterwards, the context has no connection and no cancellation token. A call with this
    /// context can be canceled only by dropping it. Progress and log messages are still sent until
    /// the client's own request has ended.
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

    /// Returns a copy of the context without the cancellation token of the client's request.
    pub(crate) fn without_cancellation(&self) -> Self {
        Self { cancellation: None, ..self.clone() }
    }

    /// Returns a copy of the context without its client, for calls that continue after the client
    /// has cancelled its request. Such calls report no progress and cannot ask questions.
    pub(crate) fn without_client(&self) -> Self {
        let mut context = Self {
            peer: None,
            cancellation: None,
            progress: None,
            logs: None,
            live_client: None,
            ..self.clone()
        };
        if context.meta.contains_key(CLIENT_CAPABILITIES) {
            context.meta_mut().remove(CLIENT_CAPABILITIES);
        }
        context
    }

    /// Returns `true` if the client supports the MCP extension for tasks.
    pub(crate) fn supports_tasks(&self) -> bool {
        let declares = |capabilities: &ClientCapabilities| capabilities.supports_tasks();
        match self.meta.get(CLIENT_CAPABILITIES) {
            // Most clients do not declare the extension, so this is checked before all capabilities
            // are parsed.
            Some(declared) => {
                let extensions = declared.get("extensions");
                extensions.is_some_and(|extensions| extensions.get(TASKS_EXTENSION_ID).is_some())
                    && self.meta.client_capabilities().as_ref().is_some_and(declares)
            }
            // Only clients with protocol version 2026-07-28 declare their version in each request.
            None if self.meta.contains_key(PROTOCOL_VERSION) => false,
            None => {
                let info = self.peer.as_ref().and_then(Peer::peer_info);
                info.is_some_and(|info| declares(&info.capabilities))
            }
        }
    }

    /// Returns the context for a call that continues as a task after this request has ended. It has
    /// no connection and no cancellation token, and reports no progress. `_meta` still contains the
    /// kinds of questions that the client can answer, so that composites can return questions.
    pub(crate) fn for_task(&mut self) -> Self {
        self.note_live_client();
        let BranchParts { meta, extensions } = self.branch_parts();
        Self {
            meta: Shared::of(meta.as_ref()),
            extensions: Shared::of(extensions.as_ref()),
            cancellation: None,
            peer: None,
            progress: None,
            logs: None,
            live_client: None,
            cached: None,
            ..self.clone()
        }
    }

    /// Creates the context for a step of a composite from the context of the request that called
    /// the composite.
    ///
    /// The new context has no connection and no progress token, because all steps would report
    /// progress under the same token. It contains only those client capabilities for questions that
    /// composites forward. `progress` reports the progress of the step as a part of the request's
    /// progress.
    pub(crate) fn branch(&self, branch: Arc<str>, progress: Option<Progress>) -> Self {
        self.branch_charged(&self.branch_parts(), branch.into(), progress, None)
    }

    /// Copies the `_meta` and the extensions for the contexts of all [steps](Self::branch) of a
    /// run.
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
        let extensions = (!self.extensions.is_empty()).then(|| self.branch_extensions());
        BranchParts { meta, extensions }
    }

    /// Creates the context for a [step](Self::branch) of a composite. Its costs are charged to
    /// `account` or, if it is `None`, to the account of this context.
    pub(crate) fn branch_charged(
        &self,
        parts: &BranchParts,
        branch: BranchName,
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
            polls_tasks: false,
        }
    }

    /// Returns the account to which the costs of the request are charged. Returns `None` if the
    /// request belongs to no run.
    pub(crate) const fn account(&self) -> Option<&Arc<Account>> {
        self.delegation.account.as_ref()
    }

    /// Sets the account to which the costs of this request and its nested requests are charged.
    #[cfg(test)]
    pub(crate) fn set_account(&mut self, account: Arc<Account>) {
        self.delegation.account = Some(account);
    }
}

/// Returns a copy of the members of `object` with the keys in `keys`.
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
            polls_tasks: false,
        }
    }
}

impl From<RequestContext<RoleServer>> for Context {
    fn from(context: RequestContext<RoleServer>) -> Self {
        Self {
            id: context.id,
            meta: Shared::Owned(context.meta),
            extensions: Shared::Owned(context.extensions),
            cancellation: Some(context.ct),
            peer: Some(context.peer),
            ..Self::default()
        }
    }
}
