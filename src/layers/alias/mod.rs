//! Other names, texts and arguments for what a server has.
//!
//! Clients see and ask for tools, prompts and resources under the names that an
//! [`AliasLayer`] gives them; the server behind sees its own names only. What has
//! no alias passes as it is.
//!
//! # Names
//!
//! What has an alias with another name is no longer there under its own: asking
//! for it is answered as asking for what does not exist. If an alias gives a name
//! that something else has, the name means the alias, and the other thing is not
//! listed. So two names can be swapped. Names of tools are those that the protocol
//! allows, and with a [separator](AliasLayer::separator) what it separates.
//!
//! A template of URIs with an alias stands for all resources whose URIs are of it:
//! they are listed, asked for and linked to under the clients' beginning, and are no
//! longer there under the server's, unless one has an alias of its own. Nor is a resource
//! with an alias there under another spelling of its own URI, as a
//! [filter](crate::filter#uris) understands it.
//!
//! Calls, gets, reads, subscriptions and completions are translated; so are the
//! URIs of what is read, and of resources that results have or link to, also those
//! of a task that has ended. Refusals of layers below come back in the client's words.
//! What a server asks of a client before it goes on stays as it is; so do JSON-RPC
//! errors, texts and structured content, whatever they name.
//!
//! # Arguments
//!
//! An argument of a tool can have another name, a default, another description, or
//! be hidden. A client that sends one by a name that it cannot see is refused. A
//! hidden argument with a default always has it. So a name can be guessed: if a tool
//! takes any argument, all that nobody knows pass, and only what is hidden or has
//! another name is refused. To hide is to set and to leave out, not to keep secret.
//!
//! The input schema that clients see is rewritten: `properties`, `required`, and all
//! that applies to the arguments as a whole, such as `allOf`, `if` and what a `$ref`
//! leads to there. Names of arguments that clients do not know are nowhere in it, nor
//! what it says of hidden ones; keywords that are not understood are left out where
//! they may speak of these. The texts of `title` and `description`, and what is inside
//! an argument, stay as they are, and so does the output schema.
//!
//! The schema may allow more than the tool takes, but forbids nothing that it does;
//! what the tool does not take is for a layer below, or the tool, to refuse. If what
//! does not fit is nothing that the client has sent, the client learns only that, and
//! the log the rest. Of a schema that would be larger than 1 MiB when it is written
//! out, only the names of arguments are shown.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     alias::{AliasLayer, ArgumentAlias, ToolAlias},
//!     message::{Reply, Request},
//! };
//! use rmcp::model::{CallToolRequestParams, CallToolResult};
//! use serde_json::json;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! async fn github(request: Request) -> Result<Reply, Infallible> {
//!     // The server is called in its own words.
//!     let call = request.tool_call().unwrap();
//!     assert_eq!(call.name, "search_code");
//!     assert_eq!(json!(call.arguments), json!({ "q": "ship", "organisation": "acme" }));
//!     Ok(CallToolResult::success(vec![]).into())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let search = ToolAlias::new("search_code")
//!     .name("search")
//!     .argument("q", ArgumentAlias::new().rename("query"))
//!     .argument("organisation", ArgumentAlias::new().hide().default(json!("acme")));
//! let service = AliasLayer::new().tools([search])?.layer(service_fn(github));
//!
//! // The client calls it in other words.
//! let arguments = json!({ "query": "ship" }).as_object().unwrap().clone();
//! let call = CallToolRequestParams::new("search").with_arguments(arguments);
//! let reply = service.clone().oneshot(call.into()).await?;
//! assert!(reply.error().is_none());
//!
//! let reply = service.oneshot(Request::call_tool("search_code")).await?;
//! assert_eq!(reply.error().unwrap().message, "unknown tool `search_code`");
//! # Ok(())
//! # }
//! ```

mod arguments;
mod check;
mod definition;
mod error;
mod layer;
mod names;
mod schema;
mod template;

pub use self::{
    definition::{ArgumentAlias, PromptAlias, ResourceAlias, ToolAlias},
    error::{AliasError, AliasErrorKind, AliasErrors},
    layer::{AliasLayer, Asked},
};
use crate::intercept::Intercepted;

/// Middleware that [`AliasLayer`] puts in front of a service.
pub type Alias<S> = Intercepted<AliasLayer, S>;
