//! Truncates tool results to a maximum size.
//!
//! Every byte of a tool result costs model tokens. A [`TruncateLayer`] shortens the results of
//! `tools/call` that are larger than [`max_result_bytes`], measured as JSON, and reports the
//! omissions. It belongs above a [`CompositeLayer`](crate::composite::CompositeLayer): pipelines
//! work with the full results of their steps, and only results that leave the stack are shortened.
//!
//! # What is left
//!
//! - The available size is shared fairly, so that no part has more than another that could use it:
//!   between structured content, content and `_meta`; in each of these between branches of a
//!   fan-out, blocks, members and elements. So small parts stay whole, and the largest are cut
//!   first.
//! - Objects keep all members if the minimum of each fits, otherwise the first ones. Arrays and
//!   `content` keep the first elements; if there are many, an element of up to 1 KiB is kept whole
//!   or omitted. Numbers, `true`, `false`, `null` and keys are never cut.
//! - Cut texts end in `…`, and are never cut within a character. A text block that is the JSON of
//!   the structured content, or of the output of its branch, is rendered again from the shortened
//!   value, without spaces. Other JSON in a text is treated as plain text.
//! - Images, audio, blobs and links are kept whole or replaced by a text that reports the omission.
//! - Entries of `_meta` are kept whole or omitted. The `_meta` of a text that is cut always keeps
//!   the names of its branch and tool.
//! - `isError` is unchanged.
//!
//! Structured content still fits the tool's `outputSchema`. If the shortened value does not, it is
//! cut again so that required members, enough elements, and texts with a pattern, a format or an
//! enumeration are kept; if it still does not fit, it is omitted. Some clients report an error if a
//! tool with an `outputSchema` returns no structured content: set a limit that the results of such
//! tools do not exceed, or use a schema that allows less. Tools are listed for their schemas only
//! when a result has to be shortened. If listing fails, the result is not checked against a schema.
//!
//! # Omission notices
//!
//! Two additions do not count toward the limit: a text of up to half a KiB that lists the
//! omissions, and the same as data under [`SHORTENED`] in `_meta`. The data are `omissions`, a list
//! of at most 32 `{ pointer, reason, kept, of, unit }`, and their total `count`, together at most 8
//! KiB. The pointers refer to the result. A reason is `size` or `schema`, a unit `bytes`,
//! `elements`, `members` or `blocks`. If the limit is smaller than any result, only these additions
//! remain.
//!
//! # Keeping the whole
//!
//! With [`keep`], the full result is put into a [`Store`], and the reply links to it:
//! `mcp-composite://results/…`, of type `application/json`. The layer answers `resources/read` of
//! these URIs with the full result, for the caller that it was made for. For other callers, and
//! after it has expired, the resource does not exist. If it cannot be stored, the result is
//! shortened without a link, and a warning is logged.
//!
//! If `initialize` and `server/discover` pass through the layer, it adds the resources capability
//! to their results. If another service answers them, use [`declare`](TruncateLayer::declare).
//!
//! # What it takes
//!
//! The layer measures large results, and copies only the parts that are kept. With a limit that is
//! small compared to the result, this takes less than twice as long as serializing the result to
//! JSON once. If the limit keeps about half of very many small members or elements, it can take
//! longer, because each is a separate value in the copy.
//!
//! # What is not shortened
//!
//! Errors, requests for user input, results of tasks, prompts and resources.
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
//! assert!(result.content[1].as_text().unwrap().text.starts_with("this result was shortened"));
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

/// The key in a result's `_meta` that lists the omissions.
pub const SHORTENED: &str = "mcp-composite/shortened";

/// Futures of the services in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}

/// A layer that shortens results above a maximum size.
///
/// Defaults to no limit, in which case it changes nothing.
///
/// See the [module docs](self) for the rules and an example.
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

    /// Sets the maximum size of a tool's result, in bytes of JSON, without the [omission
    /// notices](self#omission-notices). Defaults to no limit.
    #[must_use]
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.0.max_result_bytes = Some(bytes);
        self
    }

    /// Stores the full result of each shortened one as a resource.
    #[must_use]
    pub fn keep(mut self, store: Arc<dyn Store>) -> Self {
        self.0.store = Some(store);
        self
    }

    /// Sets the function that returns the caller of a request. Only the same caller can read a
    /// stored result.
    ///
    /// By default, all callers are the same, as are all for which the function returns `None`: any
    /// of them can read a result if it has the URI, which cannot be guessed.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.0.caller = Some(Arc::new(caller));
        self
    }

    /// Adds the resources capability if the layer [stores](Self::keep) results.
    ///
    /// Use it for servers whose description does not pass through the layer, such as that of a
    /// [`ServeService`](crate::adapter::ServeService) with a description of its own.
    pub fn declare(&self, capabilities: &mut ServerCapabilities) {
        if self.0.store.is_some() {
            stored_results::declare(capabilities);
        }
    }
}

catalog_setters! {
    /// Without it, a change of a schema takes effect within a minute.
    TruncateLayer: 0.catalogs
}

// === impl Settings ===

impl Settings {
    /// Returns `true` if results are neither shortened nor stored.
    #[inline]
    fn are_idle(&self) -> bool {
        self.max_result_bytes.is_none() && self.store.is_none()
    }

    /// Returns the key of the caller of a request, which owns its stored results.
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
