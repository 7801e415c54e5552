//! Which tools clients are shown, and how.
//!
//! [`AdvertiseLayer`] stands above composites: it can hide the parts and expose
//! the whole. It is about visibility, and about tools only; who must not be able
//! to call a tool needs a filter below.
//!
//! - A tool that the [`Selection`](crate::pattern::Selection) leaves out is not
//!   listed, and a client that calls it is answered as if there were none, unless
//!   [`Calls::Allow`]. Composites call their targets below this layer, where all
//!   tools are.
//! - [Composites](AdvertiseLayer::composites) are advertised whatever the patterns
//!   match. Only denying the exact text of its name hides one, so `deny = ["*"]`
//!   shows composites and nothing else.
//!
//! A pattern that matches no tool of a whole list is
//! [warned about](AdvertiseLayer::warnings), once.
//!
//! # Search
//!
//! A list of hundreds of tools fills the context of a model before it has begun.
//! With [`Mode::Search`] clients are shown two tools instead, on one page:
//!
//! | tool | arguments | answers |
//! |---|---|---|
//! | `search_tools` | `query`, a string; `limit`, 1 to 50, by default 10 | `{ "tools": [{ "name", "title"?, "description"?, "inputSchema", "annotations"? }], "total" }`, best first |
//! | `call_tool` | `name`, a string; `arguments`, an object, if it takes any | what the tool answers |
//!
//! Both speak of the tools that are advertised, composites among them. A call
//! through `call_tool` becomes a call of the tool itself, so everything below
//! this layer holds for it, and the tools can still be called by their own names.
//! Tools behind the layer that are named like the two cannot be reached, and are
//! warned about.
//!
//! The tools that a search finds are listed when it is first needed, and kept as
//! any [catalog](crate::catalog). If they cannot be listed, `search_tools` is
//! refused as being unavailable; calls go on.
//!
//! # What is found
//!
//! Names, titles and descriptions are read as words: what stands between other
//! characters than letters and digits, in lower case. A word written as several,
//! such as `GitHub` or `oauth2`, is that word and each of its parts; characters of
//! scripts without spaces are words of their own. The first 1024 bytes of a query
//! and 32 different words of it are read, and the first 8192 bytes and 512 words
//! of a text. After a million words of all tools together, further tools are found by
//! their names alone.
//!
//! A tool is found if it has any word of the query. Its score is the sum, over the
//! words of the query, of *weight × closeness × rarity*:
//!
//! - *weight* is that of the best place where the tool has the word: `3 + 2/n` in
//!   a name of *n* words, 2 in a title, 1 in a description. To repeat a word gains
//!   nothing.
//! - *closeness* is 1 for the same word. Where one of two words of 3 characters or
//!   more is the beginning of the other, it is half of what they share: 0.42 for
//!   `issue` and `issues`.
//! - *rarity* is `ln(1 + (N − m + ½) / (m + ½))`, where *m* of all *N* tools have
//!   the word or one like it, as in BM25.
//!
//! Before all others come the tool whose name is the query, and then those whose
//! names have the very words of the query: `create issue` finds `create_issue`.
//! Of equals the one that is listed first comes first. A query without a word
//! finds all tools, in the order they are listed.
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
    layer::{Advertise, AdvertiseLayer, Calls, Mode},
    rule::{AdvertiseRule, Memo},
};

#[cfg(test)]
mod tests;
