//! How large a result may be that clients get.
//!
//! A model pays for every byte that a tool answers. A [`BoundLayer`] shortens the
//! results of `tools/call` that are larger than [`max_result_bytes`], measured as
//! JSON, and says what it left out. It belongs above a
//! [`CompositeLayer`](crate::composite::CompositeLayer): pipelines work with all that
//! their steps gave, and only what leaves the stack is shortened.
//!
//! # What is left
//!
//! - What there is room for is shared so that nobody has more while another, who
//!   could use it, has less: between structured content, content and `_meta`; in each
//!   of these between branches of a fan-out, blocks, members and elements. So small
//!   parts stay whole, and the largest are cut first.
//! - Objects keep all their members as long as there is room for something of each,
//!   then the first ones. Of arrays and of `content` the first elements are kept; one
//!   of up to 1 KiB is whole or left out, if there are many. Numbers, `true`, `false`
//!   and `null` are never cut, and neither are keys.
//! - Texts end in `…` where they were cut, never within a character. A text block
//!   that is the JSON of the structured content, or of the output of its branch, is
//!   made again of what is left of that, without spaces. Other JSON in a text is a text
//!   like others.
//! - Images, sounds, blobs and links are whole, or a text says that they were left out.
//! - Entries of `_meta` are whole or left out. Of the `_meta` of a text that is cut,
//!   the names of branch and tool stay in any case.
//! - `isError` stays as it is.
//!
//! Structured content still fits the tool's `outputSchema`. If what was cut does not,
//! it is cut again so that required members, enough elements, and texts with a
//! pattern, a format or an enumeration stay; if it then still does not fit, it is left
//! out. Some clients take it for an error if a tool with an `outputSchema` gives no
//! structured content: set a limit that such tools keep, or keep a schema that allows
//! for less. Tools are listed for that when a result has to be shortened, and at no
//! other time. If they cannot be listed, there is no schema.
//!
//! # What is told
//!
//! Two things are added, which do not count: a text of up to half a KiB that says what
//! is missing, and under [`SHORTENED`] in `_meta` the same for programs, `omissions` of
//! `{ pointer, reason, kept, of, unit }` and their `count`; of at most 32 of them, 8 KiB
//! at most. The pointers are into the result. A reason is `size` or `schema`, a unit
//! `bytes`, `elements`, `members` or `blocks`. With a limit that is smaller than any
//! result, these are all that is left.
//!
//! # Keeping the whole
//!
//! With [`keep`], the whole result is put into a [`ResultStore`] and the answer links
//! to it: `mcp-composite://results/…`, of type `application/json`. The layer answers
//! `resources/read` of these URIs, whole, to the caller that it was made for; for
//! others, and when it has expired, there is no such resource. If it cannot be kept,
//! the result is shortened without a link, and a warning is logged.
//!
//! Where `initialize` and `server/discover` pass through the layer, it adds that there
//! are resources. Where something else answers them,
//! [`declare`](BoundLayer::declare) says it.
//!
//! # What it takes
//!
//! What is large is measured, and only what is left is copied: with a limit that is
//! small beside the result, that takes less than twice as long as to write the result
//! as JSON once. Where a limit leaves half of very many small members or elements, it
//! can take longer, as each is a value of its own in the copy.
//!
//! # What is not shortened
//!
//! Errors, questions for a person, results of tasks, prompts and resources.
//!
//! # Examples
//!
//! ```
//! use std::{convert::Infallible, sync::Arc};
//!
//! use mcp_composite::{bound::BoundLayer, message::{Reply, Request}, results::StoredResults};
//! use rmcp::model::CallToolResult;
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! async fn server(_: Request) -> Result<Reply, Infallible> {
//!     let log = "All is well. ".repeat(10_000);
//!     Ok(CallToolResult::structured(json!({ "log": log, "warnings": 0 })).into())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let bound = BoundLayer::new().max_result_bytes(4_096).keep(Arc::new(StoredResults::new()));
//! let service = ServiceBuilder::new().layer(bound).service_fn(server);
//!
//! let reply = service.oneshot(Request::call_tool("status")).await?;
//! let result = reply.tool_result().unwrap();
//! let content = result.structured_content.as_ref().unwrap();
//! assert_eq!(content["warnings"], 0);
//! assert!(content["log"].as_str().unwrap().ends_with("…"));
//! // The same as text, the note, and the link to the whole.
//! assert_eq!(result.content[0].as_text().unwrap().text, content.to_string());
//! assert!(result.content[1].as_text().unwrap().text.starts_with("this result was shortened"));
//! assert!(result.content[2].as_resource_link().unwrap().uri.starts_with("mcp-composite://results/"));
//! # Ok(())
//! # }
//! ```
//!
//! [`max_result_bytes`]: BoundLayer::max_result_bytes
//! [`keep`]: BoundLayer::keep

mod block;
mod cost;
mod fair_share;
mod json_eq;
mod omissions;
mod schema_form;
mod service;
mod shorten;
mod stored_results;
mod value;

use std::{fmt, sync::Arc};

use rmcp::model::ServerCapabilities;
use tower_layer::Layer;

pub use self::{service::Bound, stored_results::RESULTS};
use crate::{
    catalog::VaryBy, changes::Epoch, expiring_store::caller_key, message::Context,
    results::ResultStore,
};

/// Under which key of a result's `_meta` it says what was left out.
pub const SHORTENED: &str = "mcp-composite/shortened";

/// Futures of the services in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}

/// Shortens results that are too large.
///
/// By default there is no limit, and the layer changes nothing.
///
/// See the [module docs](self) for how, and for an example.
#[derive(Clone, Debug, Default)]
pub struct BoundLayer(Settings);

#[derive(Clone, Default)]
struct Settings {
    max_result_bytes: Option<usize>,
    store: Option<Arc<dyn ResultStore>>,
    caller: Option<VaryBy>,
    epoch: Epoch,
    vary_by: Option<VaryBy>,
}

// === impl BoundLayer ===

impl BoundLayer {
    /// Changes nothing, until there is a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many bytes the result of a tool may have, as JSON, beside what is
    /// [told](self#what-is-told) of what was left out; any number by default.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.0.max_result_bytes = Some(bytes);
        self
    }

    /// Keeps each whole result that was shortened, as a resource.
    #[must_use]
    pub fn keep(mut self, store: Arc<dyn ResultStore>) -> Self {
        self.0.store = Some(store);
        self
    }

    /// Sets who calls; nobody else can read what is kept.
    ///
    /// By default everybody is the same caller, and so are all of whom it is not known:
    /// then whoever has a URI can read the result, and nobody can guess one.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.0.caller = Some(Arc::new(caller));
        self
    }

    /// Makes what the layer knows of tools outdated whenever `epoch` is bumped.
    ///
    /// Without it, a change of a schema is noticed within a minute.
    #[must_use]
    pub fn epoch(mut self, epoch: Epoch) -> Self {
        self.0.epoch = epoch;
        self
    }

    /// Keeps what the layer knows of tools apart by a key of the request's context,
    /// for servers that show different tools to different callers.
    ///
    /// Tools are then listed in the context of the first caller of each key; without a
    /// key they are listed without any. The catalogs of the last 1000 keys are kept.
    #[must_use]
    pub fn vary_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.0.vary_by = Some(Arc::new(key));
        self
    }

    /// Adds to what a server says that it can do that it has resources, if the layer
    /// [keeps](Self::keep) results.
    ///
    /// It is for servers whose description does not pass through the layer, such as
    /// that of a [`ServeService`](crate::adapter::ServeService) with a description of
    /// its own.
    pub fn declare(&self, capabilities: &mut ServerCapabilities) {
        if self.0.store.is_some() {
            stored_results::declare(capabilities);
        }
    }
}

impl<S> Layer<S> for BoundLayer {
    type Service = Bound<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Bound::new(Arc::new(self.0.clone()), inner)
    }
}

// === impl Settings ===

impl Settings {
    /// Whether results stay as they are, and are not stored.
    #[inline]
    fn are_idle(&self) -> bool {
        self.max_result_bytes.is_none() && self.store.is_none()
    }

    /// Whom results are kept for, as the caller of a request.
    fn owner(&self, context: &Context) -> Vec<u8> {
        let caller = self.caller.as_ref().and_then(|caller| caller(context));
        caller_key(caller.as_deref())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("max_result_bytes", &self.max_result_bytes)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
