//! Renames tools, prompts, resources and arguments, and replaces their texts.
//!
//! An *alias* changes the name or texts of a tool, prompt or resource. An [`AliasLayer`] shows
//! clients the new names and texts, for example to shorten names or to adapt descriptions to a
//! team. It translates the names in requests back, so that the server receives only its own names.
//! Items without an alias are unchanged.
//!
//! # Names
//!
//! When an alias renames a tool, prompt or resource, clients must use the new name: an
//! [`AliasLayer`] rejects a request with the original name as unknown. An alias can have the name
//! of another item. The name then refers to the item with the alias, and the other item is not
//! listed, unless it has an alias with a different name. Two aliases can therefore swap two names.
//!
//! The name that a tool's alias sets must be a tool name that MCP allows. If a
//! [separator](AliasLayer::separator) such as `/` is set, the name may also consist of several
//! valid parts with the separator between them.
//!
//! An alias for a URI template renames all resources whose URIs match the template. For example, it
//! can replace the prefix `db://` with `shop://`. Clients then see URIs with the new prefix in
//! lists and links. They use these URIs in requests, and cannot use the server's URIs. If a
//! resource also has its own alias, clients use the URI in that alias instead.
//!
//! URIs can be spelled in several ways. A renamed resource is not available under any spelling of
//! its original URI. The docs of the filter layer [list the spellings](crate::filter#uris).
//!
//! An [`AliasLayer`] translates names in requests that call a tool, get a prompt, read or subscribe
//! to a resource, or complete an argument. It also translates the names in the errors with which
//! the layers below refuse these requests. In results, including those of finished tasks, it
//! translates the URIs of resource contents, embedded resources and resource links. It forwards
//! everything else unchanged: a server's requests for user input, JSON-RPC errors, texts and
//! structured content.
//!
//! # Arguments
//!
//! An alias can hide an argument of a tool, or change the name, default value or description of an
//! argument. The [`AliasLayer`] rejects a tool call that sets a hidden argument, or that sets a
//! renamed argument by its original name. If a hidden argument has a default, the server always
//! receives the default.
//!
//! Hide an argument to fix or omit its value, but not to keep its name secret, because clients can
//! find out the name. If a tool accepts undeclared arguments, the [`AliasLayer`] forwards unknown
//! argument names, but rejects the names of hidden arguments and the original names of renamed
//! arguments. A client that tries names can distinguish them.
//!
//! # Input schemas
//!
//! For a tool whose arguments have aliases, clients receive an input schema that an [`AliasLayer`]
//! has rewritten. It contains `properties`, `required` and `additionalProperties` of the tool's
//! schema, with the argument names that the aliases set. The layer omits other keywords at the root
//! of the schema, such as `allOf` and `if`.
//!
//! The [`AliasLayer`] copies the schema of each argument together with the definitions that it
//! refers to. If an argument's schema contains parts that the layer does not understand, such as a
//! reference to another document, the layer copies only the type, title and description. It does
//! the same if the copied schemas exceed 1 MiB.
//!
//! The input schema that clients receive contains no hidden arguments and no original names, except
//! in the texts of `title` and `description`. The output schema of the tool is unchanged.
//!
//! The input schema that clients receive allows every argument that the tool accepts, and may allow
//! others. The tool, or a layer below the [`AliasLayer`], rejects invalid arguments. If the
//! rejected value is a default that the client did not send, the client receives only a general
//! error message, and the layer logs the details.
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
mod defaults;
mod definition;
mod error;
mod layer;
mod names;
mod schema;
mod template;

pub use self::{
    definition::{ArgumentAlias, PromptAlias, ResourceAlias, ToolAlias},
    error::{AliasError, AliasErrorKind, AliasErrors},
    layer::{AliasLayer, Memo},
};
use crate::intercept::Intercepted;

/// Middleware that renames the tools, prompts and resources of the wrapped service. Created by
/// [`AliasLayer`].
pub type Alias<S> = Intercepted<AliasLayer, S>;
