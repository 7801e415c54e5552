//! Controls which tools clients see, and whether they see a list of tools or a search tool.
//!
//! A common use is to show clients a composite tool, and to hide the tools that it calls: place an
//! [`AdvertiseLayer`] above the layer that runs composites. An `AdvertiseLayer` does not restrict
//! the calls of composites. To restrict them as well, place a [filter](crate::filter) below the
//! composites.
//!
//! - Tools that the [`Selection`](crate::pattern::Selection) excludes are not listed. If a client
//!   calls such a tool, the layer rejects the call as if the tool did not exist, unless
//!   [`Calls::Allow`] is set. Composites can still call the tool, because their calls do not pass
//!   through this layer.
//! - [Composites](AdvertiseLayer::composites) are advertised even if the patterns exclude them. A
//!   composite is hidden only if its exact name is denied, so `deny = ["*"]` shows only composites.
//!
//! If a pattern of an [`AdvertiseLayer`] matches none of the listed tools, the layer logs a
//! [warning](AdvertiseLayer::warnings) once. It checks patterns against complete lists only, not
//! against single pages.
//!
//! # Search
//!
//! A list of hundreds of tools fills the context of a model. With [`Mode::Search`], clients see
//! only two tools: one that searches the advertised tools, and one that calls a tool that was
//! found:
//!
//! | tool | arguments | result |
//! |---|---|---|
//! | `search_tools` | `query`, a string; `limit`, 1 to 50, by default 10 | `{ "tools": [{ "name", "title"?, "description"?, "inputSchema", "annotations"? }], "total" }`, best first |
//! | `call_tool` | `name`, a string; `arguments`, an object, if it takes any | the result of the tool |
//!
//! `search_tools` and `call_tool` cover all advertised tools, including composites. The layer
//! replaces a call to `call_tool` with a call to the named tool, so the layers below treat it like
//! a direct call. Clients can still call the advertised tools directly. If a tool below the layer
//! is itself named `search_tools` or `call_tool`, clients cannot call it, and the layer logs a
//! warning.
//!
//! In search mode, an [`AdvertiseLayer`] lists the tools of the wrapped service when a client first
//! searches, and caches the list in a [catalog](crate::catalog). If listing fails, the layer
//! rejects the search as temporarily unavailable. Calls to tools other than `search_tools` still
//! work.
//!
//! # Search results
//!
//! The search index splits names, titles and descriptions into lower-case words of letters and
//! digits. A compound such as `GitHub` or `oauth2` is indexed as a whole and in its parts. In
//! scripts without spaces, each character is a word.
//!
//! A search uses only the first 1024 bytes and the first 32 distinct words of the query. The index
//! contains the first 8192 bytes and the first 512 words of each name, title and description, and
//! at most a million words for all tools together. When the index has reached this limit, a search
//! finds further tools only by their full names.
//!
//! A search finds each tool that contains at least one word of the query. The score of a tool is
//! the sum of *weight × closeness × rarity* over the words of the query:
//!
//! - *weight* depends on the best field of the tool that contains the word: `3 + 2/n` for a name of
//!   *n* words, 2 for a title, and 1 for a description. Repetitions do not increase the weight.
//! - *closeness* is 1 if the query word equals the indexed word. If one word is a prefix of the
//!   other and has at least 3 characters, the closeness is half the ratio of their lengths, such as
//!   0.42 for `issue` and `issues`.
//! - *rarity* is `ln(1 + (N − m + ½) / (m + ½))` as in BM25, where *N* is the number of all tools,
//!   and *m* is the number of tools that contain the word, a prefix of it, or a longer word that
//!   begins with it.
//!
//! In the search result, a tool whose name equals the query ranks first. It is followed by tools
//! whose names consist of the words of the query: `create issue` finds `create_issue`. Tools with
//! equal scores keep the listing order. A query without words finds all tools, in listing order.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     advertise::{AdvertiseLayer, Mode},
//!     message::{Reply, Request},
//!     pattern::Selection,
//! };
//! use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject, ListToolsResult, Tool};
//! use serde_json::json;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! async fn server(request: Request) -> Result<Reply, Infallible> {
//!     let tools = ["get_price", "get_stock", "reset"];
//!     let tools = tools.map(|name| Tool::new(name, "A tool", JsonObject::new()));
//!     Ok(match request.tool_call() {
//!         None => ListToolsResult::with_all_items(tools.into()).into(),
//!         Some(_) => CallToolResult::success(vec![]).into(),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = AdvertiseLayer::new().tools(Selection::default().deny(["reset"])?);
//! let service = layer.layer(service_fn(server));
//! let reply = service.clone().oneshot(Request::list_tools()).await?;
//! assert_eq!(reply.tools().unwrap().tools.len(), 2);
//! let reply = service.oneshot(Request::call_tool("reset")).await?;
//! assert_eq!(reply.error().unwrap().message, "unknown tool `reset`");
//!
//! let service = layer.mode(Mode::Search).layer(service_fn(server));
//! let reply = service.clone().oneshot(Request::list_tools()).await?;
//! assert_eq!(reply.tools().unwrap().tools[0].name, "search_tools");
//! let arguments = json!({ "query": "the stock" });
//! let search = CallToolRequestParams::new("search_tools")
//!     .with_arguments(arguments.as_object().unwrap().clone());
//! let reply = service.oneshot(search.into()).await?;
//! let found = reply.tool_result().unwrap().structured_content.clone().unwrap();
//! assert_eq!(found["tools"][0]["name"], "get_stock");
//! assert_eq!(found["total"], 1);
//! # Ok(())
//! # }
//! ```

mod index;
mod layer;
mod rule;
mod terms;
mod tools;

pub use self::{
    index::Index,
    layer::{Advertise, AdvertiseLayer},
    rule::{AdvertiseRule, Calls, Memo, Mode},
};

#[cfg(test)]
mod tests;
