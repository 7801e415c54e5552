//! Truncates tool results to a maximum size.
//!
//! Every byte of a tool result costs model tokens. A [`TruncateLayer`] shortens the results of
//! `tools/call` that are larger than [`max_result_bytes`], measured as JSON, and reports what it
//! omits. Put the layer above a [`CompositeLayer`](crate::composite::CompositeLayer), so that the
//! steps of composites receive full results, and only results that leave the stack are shortened.
//!
//! # How results are shortened
//!
//! - The available size is shared fairly: small parts stay whole, and the largest parts are cut
//!   first. Structured content, content and `_meta` share the size of the result. Within each of
//!   them, branches of a fan-out, content blocks, members and elements share its size in the same
//!   way.
//! - An object keeps all members if there is room for the minimum size of each. Otherwise it keeps
//!   the first members.
//! - Arrays and `content` keep the first elements. In a list of many elements, an element of up to
//!   1 KiB is kept whole or omitted.
//! - Numbers, `true`, `false`, `null` and keys are never cut.
//! - A cut text ends in `…`, and is never cut within a character.
//! - A text block that repeats the JSON of the structured content, or of the output of its branch,
//!   is rendered again from the shortened value, without spaces. Any other JSON in a text is
//!   treated as plain text.
//! - Images, audio, blobs and links are kept whole or replaced with a text that reports the
//!   omission.
//! - Entries of `_meta` are kept whole or omitted. The `_meta` of a cut text block always keeps the
//!   names of the branch and the tool.
//! - `isError` is unchanged.
//!
//! # Output schemas
//!
//! Shortened structured content still matches the tool's `outputSchema`. If it does not match at
//! first, the layer cuts the original again, and this time keeps required members, the minimum
//! number of elements, and texts with a pattern, a format or an enumeration. If the value still
//! does not match, the structured content is omitted.
//!
//! Some clients report an error if a tool with an `outputSchema` returns no structured content. For
//! such tools, set a limit that their results do not exceed, or use a schema that requires less.
//!
//! The layer lists tools to read their schemas, but only when it has to shorten structured content.
//! If listing fails, the shortened content is not checked against a schema.
//!
//! # Omission notices
//!
//! The layer adds two notices to a shortened result. They do not count toward the limit:
//!
//! - a text block of up to half a KiB that describes the omissions
//! - an object of up to 8 KiB in `_meta`, with the key [`SHORTENED`]. Its member `omissions` lists
//!   up to 32 omissions as `{ pointer, reason, kept, of, unit }`, and its member `count` is the
//!   number of all omissions.
//!
//! In an omission, `pointer` is a JSON Pointer to a part of the result. `of` is the original size
//! of this part, and `kept` is the remaining size. The `unit` of both is `bytes`, `elements`,
//! `members` or `blocks`. The `reason` is `size` or `schema`. If the limit is smaller than any
//! result, only the notices remain.
//!
//! # Storing full results
//!
//! With [`keep`], the layer puts the full result into a [`Store`] whenever it shortens a result.
//! The reply then also contains a link to a resource of type `application/json` with the URI
//! `mcp-composite://results/…`, and the text notice ends with this URI. The link and the URI do not
//! count toward the limit. If the result cannot be stored, the reply has no link, and a warning is
//! logged.
//!
//! Only the caller whose call created a stored result can read it, by a `resources/read` request
//! for its URI. For other callers, and after the result has expired, the layer answers that the
//! resource is unknown.
//!
//! The layer adds the resources capability to the results of `initialize` and `server/discover`
//! that pass through it. If another service answers these requests, call
//! [`declare`](TruncateLayer::declare).
//!
//! # Cost
//!
//! The layer measures large results, and copies only the parts that are kept. If the limit is small
//! compared to the result, this takes less than twice as long as serializing the result to JSON
//! once. It can take longer if the layer keeps about half of very many small members or elements,
//! because each of them becomes a separate value in the copy.
//!
//! # What is not shortened
//!
//! The layer does not shorten errors, requests for user input, results of tasks, prompts and
//! resources.
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
    message::{Context, ContextKey},
    store::{Store, caller_key},
};

/// The `_meta` key that holds the list of omissions in a shortened result.
pub const SHORTENED: &str = "mcp-composite/shortened";

/// Futures of the services in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}

/// A layer that shortens tool results above a maximum size.
///
/// By default there is no limit, and the layer changes nothing.
///
/// See the [module docs](self) for details and an example.
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
    /// Creates a layer without a limit, which changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum size of a tool's result, in bytes of JSON. The [omission
    /// notices](self#omission-notices) do not count. Defaults to no limit.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.0.max_result_bytes = Some(bytes);
        self
    }

    /// Stores the full result in `store` whenever a result is shortened, so that clients can read
    /// it as a resource. By default, full results are discarded.
    #[must_use]
    pub fn keep(mut self, store: Arc<dyn Store>) -> Self {
        self.0.store = Some(store);
        self
    }

    /// Sets the function that identifies the caller of a request. A stored result can only be read
    /// by the caller whose call created it.
    ///
    /// All callers that the function does not identify (`None`) can read each other's results.
    /// Without a function, all callers can read each other's results. But a caller must know the
    /// URI of a result to read it, and the URI cannot be guessed.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.0.caller = Some(Arc::new(caller));
        self
    }

    /// Adds the resources capability to `capabilities` if the layer [stores](Self::keep) results.
    ///
    /// Call this method for a server whose capabilities do not pass through the layer, such as a
    /// [`ServeService`](crate::adapter::ServeService) with a description of its own.
    pub fn declare(&self, capabilities: &mut ServerCapabilities) {
        if self.0.store.is_some() {
            stored_results::declare(capabilities);
        }
    }
}

catalog_setters! {
    /// If no epoch is set, the layer notices a changed output schema within about a minute.
    TruncateLayer: 0.catalogs
}

// === impl Settings ===

impl Settings {
    /// Returns `true` if results are neither shortened nor stored.
    #[inline]
    fn are_idle(&self) -> bool {
        self.max_result_bytes.is_none() && self.store.is_none()
    }

    /// Returns the key that identifies the caller of a request as the owner of stored results.
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
