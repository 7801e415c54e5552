//! Renames tools, prompts, resources and arguments, and replaces their texts.
//!
//! Clients list and request tools, prompts and resources by the names of an [`AliasLayer`]; the
//! server receives its own names only. Items without an alias pass unchanged.
//!
//! # Names
//!
//! An item that an alias renames is not available under its original name: requests for that name
//! are rejected as unknown. If an alias gives a name that another item has, the name refers to the
//! alias, and the other item is not listed. So two names can be swapped. Tool names must be valid
//! in the protocol; with a [separator](AliasLayer::separator), its characters may stand between
//! their parts.
//!
//! An alias of a URI template applies to all resources whose URIs match the template. They are
//! listed, requested and linked to under the prefix that clients see, and are not available under
//! the server's prefix, unless a resource has an alias of its own. A resource with an alias is not
//! available under another spelling of its original URI either, by the rules of a
//! [filter](crate::filter#uris).
//!
//! The layer translates calls, gets, reads, subscriptions and completions. It also translates the
//! URIs of contents that are read, and of resources that results embed or link to, including
//! results of finished tasks. Refusals of layers below use the client's names. Input requests of
//! the server, JSON-RPC errors, texts and structured content stay unchanged, whatever names they
//! contain.
//!
//! # Arguments
//!
//! An argument of a tool can be hidden, or have another name, a default or another description. A
//! call that sets an argument by a name that the client cannot see is rejected. The server always
//! receives the default of a hidden argument. Clients can guess original names: if a tool accepts
//! any argument, unknown arguments pass, and only hidden and renamed ones are rejected. Hide an
//! argument to set or omit it, not to keep it secret.
//!
//! The input schema that clients see has the `properties`, `required` and `additionalProperties` of
//! the root, under the clients' names. Its other keywords about the arguments, such as `allOf` and
//! `if`, are omitted. The schema of an argument is copied with the definitions that it refers to;
//! if a part of it is not understood, such as a reference to another document, or if the copies
//! exceed 1 MiB, only its type, title and description are. It contains nothing else about hidden
//! arguments and original names; texts of `title` and `description`, and the output schema, stay
//! unchanged.
//!
//! The schema may allow more than the tool accepts, but never less; a layer below, or the tool,
//! rejects the rest. If a violation concerns a value that the client did not send, the client
//! receives only that fact, and the details are logged.
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
