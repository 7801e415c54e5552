//! Renames tools, prompts, resources and arguments, and replaces their texts.
//!
//! An *alias* changes the name or texts of a tool, prompt or resource of the server. Clients list
//! and request items by the names that an [`AliasLayer`] gives them. The server receives only the
//! original names. Items without an alias are unchanged.
//!
//! # Names
//!
//! A renamed item is not available under its original name: a request for that name is rejected as
//! unknown. If an alias has the name of another item, the name refers to the alias, and the other
//! item is not listed. So aliases can swap two names.
//!
//! The name of a tool may only contain characters that the protocol allows. If a
//! [separator](AliasLayer::separator) is set, a name may also consist of several legal parts with
//! the separator between them.
//!
//! An alias of a URI template renames all resources whose URIs match the template. Clients list,
//! request and receive links to these resources under the prefix of the alias. The resources are
//! not available under the server's prefix, except for a resource that has an alias of its own.
//!
//! A renamed resource is not available under other spellings of its original URI either. The docs
//! of the filter layer [list these spellings](crate::filter#uris).
//!
//! The layer translates the names in requests to call, get, read, subscribe and complete, and in
//! refusals of the layers below. It also translates the URIs of contents that clients read, and of
//! resources that results embed or link to, including the results of finished tasks. Names in the
//! server's requests for input, JSON-RPC errors, texts and structured content are not translated.
//!
//! # Arguments
//!
//! An alias can hide an argument of a tool, or give the argument another name, a default or another
//! description. The layer rejects a call that sets a hidden argument, or a renamed argument by its
//! original name. The server always receives the default of a hidden argument.
//!
//! Hiding fixes or omits the value of an argument, but does not keep the name of the argument
//! secret. If a tool accepts any argument, the layer forwards unknown arguments, and rejects only
//! hidden ones and the original names of renamed ones. So clients can guess these names.
//!
//! # Input schemas
//!
//! The input schema that clients see contains the `properties`, `required` and
//! `additionalProperties` of the tool's schema, with the clients' names. Other keywords for the
//! arguments as a whole, such as `allOf` and `if`, are omitted.
//!
//! The schema of an argument is copied with the definitions that it refers to. If the layer does
//! not understand a part of the schema, such as a reference to another document, it copies only the
//! type, title and description of the argument. It does the same if the copies exceed 1 MiB.
//!
//! The copied schemas do not mention hidden arguments or original names, except in the texts of
//! `title` and `description`. The output schema is unchanged.
//!
//! The input schema that clients see may allow arguments that the tool does not accept, but it
//! never forbids arguments that the tool accepts. The tool, or a layer below, rejects invalid
//! arguments. If it rejects a value that the client did not send, such as a default, the client
//! receives only a general error, and the details are logged.
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
