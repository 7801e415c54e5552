use std::sync::Arc;

use rmcp::{
    Peer, RoleServer,
    model::{Extensions, RequestId, RequestMetaObject},
    service::RequestContext,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::Progress;

/// Under which key of `_meta` a client of 2026-07-28 declares what it can do.
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
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
    pub(crate) meta: RequestMetaObject,
    pub(crate) extensions: Extensions,
    pub(crate) cancellation: Option<CancellationToken>,
    pub(crate) peer: Option<Peer<RoleServer>>,
    progress: Option<Progress>,
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

    /// The `_meta` of the request.
    #[must_use]
    pub const fn meta(&self) -> &RequestMetaObject {
        &self.meta
    }

    /// The `_meta` of the request, to change it.
    pub const fn meta_mut(&mut self) -> &mut RequestMetaObject {
        &mut self.meta
    }

    /// Values that travel with the request inside this process, such as the
    /// HTTP request it came in.
    #[must_use]
    pub const fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Values that travel with the request inside this process, to change them.
    pub const fn extensions_mut(&mut self) -> &mut Extensions {
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

    /// The context of one branch of a composite that was called in this one.
    ///
    /// What belongs to the client alone stays behind: its progress token (each
    /// branch would report under the same one), its connection and its
    /// declared capabilities (no branch may ask it for anything on its own).
    /// Its own progress is a part of that of the request.
    pub(crate) fn branch(&self, branch: Arc<str>, progress: Option<Progress>) -> Self {
        // Copied without what stays behind: most clients give a progress token and
        // nothing else, and an empty map costs nothing.
        let meta: Map<String, Value> = self
            .meta
            .iter()
            .filter(|(key, _)| *key != PROGRESS_TOKEN)
            .map(|(key, value)| match &**key {
                CLIENT_CAPABILITIES => (key.clone(), Value::Object(Map::new())),
                _ => (key.clone(), value.clone()),
            })
            .collect();
        Self {
            id: self.id(),
            branch: Some(branch),
            meta: meta.into(),
            extensions: self.extensions.clone(),
            cancellation: self.cancellation.clone(),
            peer: None,
            progress,
        }
    }
}

impl Default for Context {
    fn default() -> Self {
        Self {
            id: RequestId::Number(0),
            branch: None,
            meta: RequestMetaObject::default(),
            extensions: Extensions::default(),
            cancellation: None,
            peer: None,
            progress: None,
        }
    }
}

impl From<RequestContext<RoleServer>> for Context {
    fn from(context: RequestContext<RoleServer>) -> Self {
        Self {
            id: context.id,
            branch: None,
            meta: context.meta,
            extensions: context.extensions,
            cancellation: Some(context.ct),
            peer: Some(context.peer),
            progress: None,
        }
    }
}
