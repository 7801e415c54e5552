//! Truncates tool results to a maximum size.
//!
//! Every byte of a tool result costs model tokens. A [`TruncateLayer`] shortens the results of
//! `tools/call` that are larger than [`max_result_bytes`], measured as JSON, and reports to the
//! client which parts it omits. Put the layer above a
//! [`CompositeLayer`](crate::composite::CompositeLayer), so that the steps of composites receive
//! full results, and only results that leave the stack are shortened.
//!
//! # How results are shortened
//!
//! - A [`TruncateLayer`] shares the available bytes fairly among the parts of a result: small parts
//!   stay whole, and the largest parts are cut first. The parts of a result are its structured
//!   content, `content` and `_meta`. Each part divides its own bytes in the same way, among the
//!   branches of a fan-out, content blocks, object members or array elements.
//! - An object keeps all its members if the minimum sizes of all members fit. Otherwise it keeps
//!   only the first members that fit.
//! - Arrays and `content` keep their first elements, and omit the others. In a list of many
//!   elements, an element of up to 1 KiB is kept whole or omitted, because a few whole elements are
//!   more useful than many fragments.
//! - Numbers, `true`, `false`, `null` and keys are never cut.
//! - A cut text ends in `…`. A text is only cut between characters, and so remains valid UTF-8.
//! - Servers often repeat structured content as JSON in a text block. The layer renders such a text
//!   again from the shortened value, without spaces. It does so, too, if the text repeats the
//!   output of a fan-out branch. Any other JSON in a text is cut like plain text.
//! - Images, audio, blobs and links cannot be cut. If one of them does not fit, a short text that
//!   describes it replaces it.
//! - Each entry of `_meta` is kept whole or omitted. The [labels](crate::flow) of the result are
//!   always kept. A cut text block always keeps the `_meta`
//!   entries that name its branch and its tool.
//! - `isError` is unchanged.
//!
//! # Output schemas
//!
//! A [`TruncateLayer`] shortens structured content so that it still matches the tool's
//! `outputSchema`. If the first attempt does not match, the layer cuts the original again. This
//! time it keeps required members, the minimum number of elements, and texts that have a `pattern`,
//! a `format` or an `enum` in the schema. If the value still does not match, the layer omits the
//! structured content.
//!
//! If a [`TruncateLayer`] omits the structured content of a tool that has an `outputSchema`, some
//! clients report an error. For such tools, set a limit that their results do not exceed, or use a
//! schema with fewer requirements.
//!
//! To read the output schema of a tool, a [`TruncateLayer`] sends `tools/list` to the wrapped
//! service. It does so only when it has to shorten structured content. If listing fails, the layer
//! does not check the shortened content against the schema.
//!
//! # Omission notices
//!
//! A [`TruncateLayer`] adds two notices to each shortened result, which inform models and programs
//! about the omitted data. The notices do not count toward the size limit:
//!
//! - a text block of up to half a KiB that describes the omissions
//! - an object of up to 8 KiB in `_meta`, with the key [`SHORTENED`]. Its member `omissions` lists
//!   up to 32 omissions as `{ pointer, reason, kept, of, unit }`, and its member `count` is the
//!   number of all omissions.
//!
//! In each entry of `omissions`, `pointer` is a JSON Pointer to the shortened part of the result.
//! `of` is the original size of the part, and `kept` is the size that remains. The `unit` of both
//! sizes is `bytes`, `elements`, `members` or `blocks`. The `reason` is `size` if the part was too
//! large, or `schema` if a shorter part would not match the output schema. If the limit is too
//! small for any part of the result, only the notices remain.
//!
//! # Storing full results
//!
//! To let clients read the full version of a shortened result, set a [`Store`] with [`keep`]. The
//! [`TruncateLayer`] then puts the full result into the store, and adds a link to the reply: a
//! resource of type `application/json` with a URI that begins with `mcp-composite://results/`. The
//! text notice ends with the same URI. The link and the URI do not count toward the limit. If the
//! result cannot be stored, the reply has no link, and the layer logs a warning.
//!
//! A client reads the stored full version of a shortened result with a `resources/read` request for
//! its URI. Only the caller whose tool call created the result can read it. The [`TruncateLayer`]
//! replies to all other callers that the resource is unknown. After the result has expired, it
//! replies to the owner in the same way.
//!
//! Clients read resources only if the server declares the resources capability. If a
//! [`TruncateLayer`] stores results, it adds this capability to the results of `initialize` and
//! `server/discover` that pass through it. If a service above the layer answers these requests,
//! call [`declare`](TruncateLayer::declare) instead.
//!
//! # Cost
//!
//! A [`TruncateLayer`] measures a large result, and then copies only the parts that it keeps. If
//! the limit is small compared to the result, this takes less than twice as long as serializing the
//! result to JSON. It can take longer if the layer keeps about half of many small members or
//! elements, because it copies each of them as a separate value.
//!
//! # What is not shortened
//!
//! A [`TruncateLayer`] forwards errors, requests for user input, results of tasks, prompts and
//! resources in full, whatever their size.
//!
//! # Examples
//!
//! ```
//! use std::{convert::Infallible, sync::Arc};
//!
//! use mcp_composite::{truncate::TruncateLayer, message::{Reply, Request}, store::MemoryStore};
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
//! let truncate = TruncateLayer::new().max_result_bytes(4_096).keep(Arc::new(MemoryStore::for_results()));
//! let service = ServiceBuilder::new().layer(truncate).service_fn(server);
//!
//! let reply = service.oneshot(Request::call_tool("status")).await?;
//! let result = reply.tool_result().unwrap();
//! let content = result.structured_content.as_ref().unwrap();
//! assert_eq!(content["warnings"], 0);
//! assert!(content["log"].as_str().unwrap().ends_with("…"));
//! // The same as text, the note, and the link to the whole.
//! assert_eq!(result.content[0].as_text().unwrap().text, content.to_string());
//! assert!(result.content[1].as_text().unwrap().text.starts_with("this result was truncated"));
//! assert!(result.content[2].as_resource_link().unwrap().uri.starts_with("mcp-composite://results/"));
//! # Ok(())
//! # }
//! ```
//!
//! [`max_result_bytes`]: TruncateLayer::max_result_bytes
//! [`keep`]: TruncateLayer::keep

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

pub use self::{service::Truncate, stored_results::RESULTS};
use crate::{
    catalog::{CatalogSettings, catalog_setters},
    message::{Context, ContextKey, identified_by},
    store::{Store, caller_key},
};

/// The key in `_meta` under which a shortened result lists its [omissions](self#omission-notices).
pub const SHORTENED: &str = "mcp-composite/shortened";

/// The response futures of the services in this module.
pub mod future {
    pub use crate::response_future::ResponseFuture;
}

/// A layer that shortens tool results that exceed a maximum size.
///
/// A new `TruncateLayer` has no limit and forwards all results unchanged. See the [module
/// docs](self) for details and an example.
#[derive(Clone, Debug, Default)]
pub struct TruncateLayer(pub(crate) Settings);

#[derive(Clone, Default)]
pub(crate) struct Settings {
    max_result_bytes: Option<usize>,
    store: Option<Arc<dyn Store>>,
    caller: Option<ContextKey>,
    pub(crate) catalogs: CatalogSettings,
}

// === impl TruncateLayer ===

impl TruncateLayer {
    /// Creates a layer without a limit, which forwards all results unchanged.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum size of a tool result, in bytes of JSON. The [omission
    /// notices](self#omission-notices) do not count toward it. Defaults to no limit.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.0.max_result_bytes = Some(bytes);
        self
    }

    /// Puts the full version of each shortened result into `store`, so that clients can read it as
    /// a resource. By default, full results are discarded.
    #[must_use]
    pub fn keep(mut self, store: Arc<dyn Store>) -> Self {
        self.0.store = Some(store);
        self
    }

    /// Sets the function that identifies callers. It returns the identity of the caller of a
    /// request, or `None` if the caller is anonymous. A stored result can be read only by the
    /// caller whose tool call created it.
    ///
    /// Callers for which the function returns `None` can read each other's results. If no function
    /// is set, all callers can. A caller can only read a result if it knows the URI of the result,
    /// which cannot be guessed.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.0.caller = Some(identified_by(caller));
        self
    }

    /// Adds the resources capability to `capabilities`. Does nothing if the layer does not
    /// [store](Self::keep) full results.
    ///
    /// Call `declare` on the capabilities of a server description that you pass to a
    /// [`ServeService`](crate::adapter::ServeService). If the wrapped service reports its
    /// capabilities itself, the layer adds the capability to its replies.
    pub fn declare(&self, capabilities: &mut ServerCapabilities) {
        if self.0.store.is_some() {
            stored_results::declare(capabilities);
        }
    }
}

catalog_setters! {
    /// If no epoch is set, the layer lists the tools again when its cached list is a minute old. It
    /// detects a changed output schema only then.
    TruncateLayer: 0.catalogs
}

// === impl Settings ===

impl Settings {
    /// Returns `true` if the layer has no limit and no store, so that it has nothing to do.
    #[inline]
    fn are_idle(&self) -> bool {
        self.max_result_bytes.is_none() && self.store.is_none()
    }

    /// Returns the key of the owner of a stored result: the identity of the caller of the request.
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
