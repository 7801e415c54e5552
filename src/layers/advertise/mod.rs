//! Controls which tools clients see, and how they are listed.
//!
//! An [`AdvertiseLayer`] belongs above composites: it can hide the parts and expose the whole. It
//! controls only the visibility of tools; to restrict access to tools, use a filter below.
//!
//! - A tool that the [`Selection`](crate::pattern::Selection) excludes is not listed, and a call to
//!   it is rejected as unknown, unless [`Calls::Allow`] is set. Composites call their targets below
//!   this layer, where all tools are available.
//! - [Composites](AdvertiseLayer::composites) are advertised regardless of the patterns. A
//!   composite is hidden only if its exact name is denied, so `deny = ["*"]` shows only composites.
//!
//! If a pattern matches no tool of a complete list, a [warning](AdvertiseLayer::warnings) is logged
//! once.
//!
//! # Search
//!
//! A list of hundreds of tools fills the context of a model. With [`Mode::Search`], clients see two
//! tools instead, on one page:
//!
//! | tool | arguments | result |
//! |---|---|---|
//! | `search_tools` | `query`, a string; `limit`, 1 to 50, by default 10 | `{ "tools": [{ "name", "title"?, "description"?, "inputSchema", "annotations"? }], "total" }`, best first |
//! | `call_tool` | `name`, a string; `arguments`, an object, if it takes any | the result of the tool |
//!
//! Both cover the advertised tools, including composites. A call through `call_tool` becomes a call
//! of the tool itself, so all layers below apply to it. The tools can still be called directly.
//! Tools below the layer with one of the two names cannot be called, and a warning is logged.
//!
//! The searchable tools are listed when first needed, and cached as any [catalog](crate::catalog).
//! If listing fails, `search_tools` is rejected as unavailable, and calls still work.
//!
//! # What is found
//!
//! Names, titles and descriptions are split into lower-case words of letters and digits. A compound
//! such as `GitHub` or `oauth2` counts as a whole and as each of its parts; each character of a
//! script without spaces is a word. Of a query, the first 1024 bytes and 32 distinct words are
//! used, and of a text, the first 8192 bytes and 512 words. After a million words of all tools
//! together, further tools are found by their full names only.
//!
//! A tool is found if it contains any word of the query. Its score is the sum, over the words of
//! the query, of *weight × closeness × rarity*:
//!
//! - *weight* is that of the best field that contains the word: `3 + 2/n` in a name of *n* words, 2
//!   in a title, 1 in a description. Repetitions do not count.
//! - *closeness* is 1 for an equal word. If one of two words is a prefix of the other and has at
//!   least 3 characters, it is half the ratio of their lengths: 0.42 for `issue` and `issues`.
//! - *rarity* is `ln(1 + (N − m + ½) / (m + ½))`, where *m* of all *N* tools contain the word or
//!   one like it, as in BM25.
//!
//! The tool whose name equals the query ranks first, then tools whose names have exactly the words
//! of the query: `create issue` finds `create_issue`. Ties keep the listing order. A query without
//! words finds all tools, in listing order.
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
