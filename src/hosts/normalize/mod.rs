//! What models write, made calls; and what came of them, made what models read.
//!
//! This is for hosts: programs that ask a model, and call the tools that it wants. It
//! is no layer. [`Provider::calls`] finds the calls in what a model has written, in the
//! form of its provider; [`dispatch`] makes them through any service of this crate, so
//! composites, filters and budgets apply; [`Provider::encode`] makes of the results what
//! goes back. [`Provider::definitions`] tells a model which tools there are.
//!
//! # Examples
//!
//! One round: what a model wrote, the calls, and what it gets back.
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
//! - Arguments are a JSON object, or a text of one; blank or missing, they are an empty
//!   object. Anything else is malformed.
//! - A call that the model did not finish is malformed, also where its arguments can be
//!   read: one whose `status` is not `completed`, and the last one of an answer that
//!   was cut off.
//! - A call without an id gets one that no other has, such as `call_0`. Of several with
//!   one id, only the first can be made.
//! - Of several choices or candidates, only the calls of the first can be made.
//! - What the provider calls by itself, such as its own search, is no call.
//! - Names are not changed: `github/search` is one.
//! - What is larger, deeper or more than the [`Limits`] allow is malformed.
//!
//! # Calls in texts
//!
//! A text may quote a call without asking for it: a model that explains its own format,
//! or tells what it has read somewhere. So a marker counts only at the beginning of a
//! line, indented by three spaces at most, or directly after another block of calls or
//! after `</think>`. It does not count in a fenced code block or in what the model
//! thinks: between `<think>` and `</think>`, and before each `</think>` that nothing opens,
//! since the prompt may have opened it. That goes for one in prose, too: what was only
//! thought must not be done. But a `</think>` ends no thought within a block of calls,
//! such as in a text of an argument, nor in a fenced code block that is closed. A line
//! that begins with `>`, a quotation mark or a backtick begins with no marker.
//!
//! An end marker within a text of an argument ends nothing, unless the block is one of
//! Hermes and no JSON; a block without an end is malformed, and nothing after it is
//! looked at. Where a list of calls cannot be read to its end, those before are calls,
//! and the rest is a malformed one. So is all that is more than the limits allow: it need
//! not be answered by ids.
//!
//! This does not help against a model that writes at the beginning of a line what it
//! was told to. Where a server reads the calls of its models itself, by their special
//! tokens, prefer what it says.
//!
//! Calls of LFM are in the syntax of Python, with named arguments and literals only, or
//! in JSON. `true`, `false` and `null` are taken for `True`, `False` and `None`. Numbers
//! are written as in JSON; an integer that does not fit into 64 bits is malformed.

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
