//! Tool calls in the output of models, and results in the formats of models.
//!
//! This module is for hosts: programs that prompt a model and execute its tool calls. It is not a
//! layer. [`Provider::calls`] finds the calls in the output of a model, in the format of its
//! provider; [`dispatch`] executes them through any service of this crate, so composites, filters
//! and budgets apply; [`Provider::encode`] converts the results to the provider's format.
//! [`Provider::definitions`] converts the definitions of tools.
//!
//! # Examples
//!
//! One round: the output of a model, its calls, and the results.
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
//!         "error: malformed call of `shop_price`: the arguments end in the middle" }),
//! ]);
//! # Ok(())
//! # }
//! ```
//!
//! # What is a call
//!
//! - Arguments are a JSON object, or a text of one; blank or missing arguments are an empty object.
//!   Anything else is malformed.
//! - An incomplete call is malformed even if its arguments can be parsed: a call whose `status` is
//!   not `completed`, and the last call of an answer that was cut off.
//! - A call without an id gets a unique one, such as `call_0`. If several calls have the same id,
//!   only the first can be made.
//! - If there are several choices or candidates, only the calls of the first can be made.
//! - Calls that the provider executes itself, such as its own search, are ignored.
//! - Names are unchanged: `github/search` is a valid name.
//! - Calls that exceed the [`Limits`] are malformed.
//!
//! # Calls in texts
//!
//! A text may quote a call without requesting it, for example when a model explains its own format
//! or repeats what it has read. So a marker only counts at the beginning of a line, indented by at
//! most three spaces, or directly after another block of calls or after `</think>`. It does not
//! count in a fenced code block or in the model's thoughts: between `<think>` and `</think>`, and
//! before each unmatched `</think>`, since the prompt may have opened it. This also applies to a
//! `</think>` in prose, so that a call in a thought is never made. But a `</think>` does not end a
//! thought within a block of calls, such as in a string argument, or in a closed fenced code block.
//! A line that begins with `>`, a quotation mark or a backtick does not begin with a marker.
//!
//! An end marker within a string argument does not end the block, unless it is a Hermes block that
//! is not valid JSON. A block without an end is malformed, and the rest of the text is ignored. If
//! a list of calls cannot be parsed completely, the calls before the error are kept, and the rest
//! is one malformed call. So are all calls that exceed the limits, since they need not be answered
//! by id.
//!
//! This does not help against a model that is instructed to write calls at the beginning of a line.
//! If a server parses the calls of its models itself, by their special tokens, prefer its output.
//!
//! LFM calls use Python syntax, with named arguments and literals only, or JSON. `true`, `false`
//! and `null` are accepted for `True`, `False` and `None`. Numbers are written as in JSON; an
//! integer that does not fit into 64 bits is malformed.

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
    call::{CallId, MalformedCall, MalformedKind, ToolCall},
    dispatch::{DispatchOptions, Order, dispatch},
    error::OutputError,
    limits::Limits,
    names::ToolNames,
    outcome::{Dispatched, Failure, FailureKind, Outcome},
    provider::{Provider, normalize},
};
