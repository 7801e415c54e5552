//! Finds tool calls in the output of models, and encodes tool results for models.
//!
//! The module `normalize` is for hosts: programs that prompt a model and execute its tool calls. It
//! is not a layer. A host uses it in four steps:
//!
//! - [`Provider::definitions`] converts tools to definitions in the format of the model's provider.
//! - [`Provider::calls`] finds the tool calls in the output of the model.
//! - [`dispatch`] executes the calls through any service, such as a stack with composites, filters
//!   and budgets.
//! - [`Provider::encode`] converts the results to the format of the model's provider.
//!
//! # Examples
//!
//! The following example is one round with a model: the model's output, the calls in the output,
//! and their results.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     message::{Reply, Request},
//!     normalize::{DispatchOptions, Provider, ToolNames, dispatch},
//! };
//! use rmcp::model::{CallToolResult, ContentBlock};
//! use serde_json::json;
//! use tower::service_fn;
//!
//! async fn shop(request: Request) -> Result<Reply, Infallible> {
//!     Ok(match request.tool_call() {
//!         Some(call) if call.name == "shop/price" => {
//!             CallToolResult::success(vec![ContentBlock::text("5 €")]).into()
//!         }
//!         Some(call) => Reply::unknown_tool(call.name.clone()),
//!         None => Reply::method_not_found(request.method().to_owned()),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The model knows the tool by a name that its provider allows.
//! let names = ToolNames::new(["shop/price"]);
//! let written = json!({ "role": "assistant", "tool_calls": [
//!     { "id": "call_a", "type": "function",
//!       "function": { "name": "shop_price", "arguments": "{\"article\": 7}" } },
//!     { "id": "call_b", "type": "function",
//!       "function": { "name": "shop_price", "arguments": "{\"article\": " } },
//! ] });
//!
//! let calls = Provider::OpenAiChat.calls(&written)?;
//! assert_eq!(calls[0].as_ref().unwrap().arguments["article"], 7);
//! assert!(calls[1].is_err()); // It does not spoil the other.
//!
//! let options = DispatchOptions::new().names(names);
//! let ended = dispatch(service_fn(shop), calls, &options).await;
//! assert_eq!(Provider::OpenAiChat.encode(&ended), [
//!     json!({ "role": "tool", "tool_call_id": "call_a", "content": "5 €" }),
//!     json!({ "role": "tool", "tool_call_id": "call_b", "content":
//!         "error: malformed call of `shop_price`: the arguments are truncated" }),
//! ]);
//! # Ok(())
//! # }
//! ```
//!
//! # What is a call
//!
//! - Arguments are a JSON object, or a string that contains a JSON object. Blank or missing
//!   arguments are an empty object. A call with any other arguments is malformed.
//! - An incomplete call is malformed, even if its arguments can be parsed. A call is incomplete if
//!   its `status` is not `completed`, or if it is the last call of an output that was cut off.
//! - If a call has no ID, a unique ID is generated, such as `call_0`. If several calls have the
//!   same ID, only the first can be executed.
//! - If a model returns several choices or candidates, only the calls of the first can be executed.
//! - Calls that the provider executes itself, such as its own search, are ignored.
//! - Tool names are not changed. For example, `github/search` is a valid name.
//! - Calls that exceed the [`ParseLimits`] are malformed.
//!
//! # Calls in texts
//!
//! The text of a model may quote a tool call without requesting it, for example when the model
//! explains its own format or repeats what it has read. Therefore, a start marker, such as
//! `<tool_call>`, begins a block of calls only under these conditions:
//!
//! - The marker is at the beginning of a line, indented by at most three spaces, or directly after
//!   another block of calls or a `</think>`. For example, a marker after a `>`, a quotation mark or
//!   a backtick does not begin a block.
//! - The marker is not in a fenced code block.
//! - The marker is not in a thought of the model, which is enclosed in `<think>` and `</think>`. If
//!   a `</think>` has no `<think>`, the thought may have begun in the prompt, so everything before
//!   this `</think>` is a thought. This rule also applies to a `</think>` in prose, to make sure
//!   that a call in a thought is never executed.
//! - A `</think>` in a block of calls, such as in a string argument, does not end a thought.
//!   Neither does a `</think>` in a fenced code block that is closed.
//!
//! A block of calls in the text of a model extends to its end marker, such as `</tool_call>`. An
//! end marker within a string argument does not end the block, with one exception: a Hermes block
//! that is not valid JSON ends at its first end marker. A block without an end marker is malformed,
//! and the rest of the text is ignored. If a list of calls cannot be parsed completely, the calls
//! before the error are returned, and the rest is one malformed call. All calls that exceed the
//! limits are also one malformed call, because calls in a text need no individual answers.
//!
//! The rules for texts do not protect against a model that was instructed to write calls at the
//! beginning of a line. Some servers recognize the calls of their models themselves, by special
//! tokens. With such a server, use the calls in its structured output instead of searching its
//! text.
//!
//! LFM models write calls in Python syntax, with named arguments and literals only, or as JSON. In
//! Python syntax, `true`, `false` and `null` are accepted for `True`, `False` and `None`. Numbers
//! are written as in JSON. An integer that does not fit into 64 bits is malformed.

mod anthropic;
mod arguments;
mod call;
mod candidate;
mod chat;
mod content;
mod definitions;
mod detect;
mod dispatch;
mod encode;
mod error;
mod gemini;
mod limits;
mod names;
mod outcome;
mod provider;
mod responses;
mod text;

pub use self::{
    call::{CallId, MalformedCall, MalformedKind, ModelCall},
    dispatch::{DispatchOptions, DispatchOrder, dispatch},
    error::OutputError,
    limits::ParseLimits,
    names::ToolNames,
    outcome::{Dispatched, Failure, FailureKind, Outcome},
    provider::{Provider, normalize},
};
