//! Labels the results of tools, and denies the publication of data in sessions that have received
//! private and untrusted data.
//!
//! [`CompositeLayer::check_flow`](crate::composite::CompositeLayer::check_flow) proves how data
//! flows through composites. It does not cover the tools that a client calls directly: a model that
//! reads private mail and a hostile web page can follow the instructions of the page, and send the
//! mail to a server. A [`FlowLayer`] uses the same [`FlowPolicy`](crate::composite::FlowPolicy) for
//! the results that clients receive.
//!
//! # Labels of results
//!
//! The `_meta` of a tool result contains its labels under the key [`FLOW_LABELS`], as an array with
//! the texts `"private"` and `"untrusted"`. The key is missing if the result has no label. Results
//! of a tool have the labels of the tool in the policy. Results of a composite have the labels that
//! follow from its steps. The layer replaces all labels that a server has put there.
//!
//! # Sessions
//!
//! With [`SessionMode::Deny`], the layer denies calls of [egress](crate::composite::FlowLabel)
//! tools in a session that has received both private and untrusted data. A client that has both
//! could publish the private data, because the untrusted data can contain instructions. A denied
//! call is rejected with [`Refusal::EgressDenied`](crate::message::Refusal::EgressDenied). The tool
//! does not run. With [`SessionMode::Warn`], the call is logged and forwarded. With
//! [`SessionMode::Ask`], the user of the client decides.
//!
//! - The layer decides about a call when the call arrives. Results that arrive later do not affect
//!   the call.
//! - The layer decides about a composite as a whole, before its first step. A composite counts as
//!   an egress tool if a step calls one, unless the step has
//!   [`allow_flow`](crate::composite::Step::allow_flow), or a person approves all its arguments.
//!   See the [guide](crate::guide::flow#at-run-time).
//! - The result of a composite adds its labels to the session. The results that the composite reads
//!   within its run do not.
//! - An error of a tool adds labels to the session like a result. A refusal and a question of a
//!   tool do not. A task adds its labels when it is created.
//!
//! With [`SessionMode::Ask`], the reply to the call is a question (`InputRequired`), whose message
//! contains the tool and the first 2000 characters of its arguments. The client repeats the call
//! with the answer. The answer is valid for a call with the same tool, arguments and session, in
//! this process, for an hour. [`ServeService`](crate::adapter::ServeService) supports clients with
//! protocol version 2025-11-25 or older, to which it sends the question during the call.
//!
//! The function that [`FlowLayer::session`] sets identifies the session of a request. The labels of
//! a session expire if it has received no labeled result for an [hour](FlowLayer::expires_after).
//! They are stored in the memory of the process, for at most 10 000 sessions. If there are more,
//! each session whose labels are not stored is treated as if it had the labels of all evicted
//! sessions.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     composite::{FlowLabel, FlowPolicy},
//!     flow::{FLOW_LABELS, FlowLayer, SessionMode},
//!     message::{Reply, Request},
//!     pattern::Selection,
//! };
//! use rmcp::model::CallToolResult;
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! async fn server(_: Request) -> Result<Reply, Infallible> {
//!     Ok(CallToolResult::success(vec![]).into())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = FlowPolicy::new()
//!     .label(Selection::default().allow(["read_mail"])?, [FlowLabel::Private])
//!     .label(Selection::default().allow(["get_page"])?, [FlowLabel::Untrusted])
//!     .label(Selection::default().allow(["send"])?, [FlowLabel::Egress]);
//! let service = ServiceBuilder::new()
//!     .layer(FlowLayer::new(policy).mode(SessionMode::Deny))
//!     .service_fn(server);
//! let call = |tool| service.clone().oneshot(Request::call_tool(tool));
//!
//! let mail = call("read_mail").await?;
//! let meta = mail.tool_result().unwrap().meta.as_ref().unwrap();
//! assert_eq!(meta[FLOW_LABELS], json!(["private"]));
//! assert!(call("send").await?.error().is_none());
//!
//! call("get_page").await?;
//! let denied = call("send").await?;
//! assert!(denied.error().unwrap().message.starts_with("tool `send` is denied"));
//! # Ok(())
//! # }
//! ```

mod approval;
mod layer;
mod rule;
mod service;
mod sessions;

use serde::Deserialize;
use serde_json::Value;

pub use self::{layer::FlowLayer, service::Flow};
/// The key in the `_meta` of a tool result that contains the labels of the result.
pub const FLOW_LABELS: &str = "mcp-composite/flow-labels";

/// Returns `true` if an entry of the `_meta` of a result contains the labels of the result.
pub(crate) fn are_labels(key: &str, value: &Value) -> bool {
    let is_label = |label: &Value| label == "private" || label == "untrusted";
    key == FLOW_LABELS
        && value.as_array().is_some_and(|labels| labels.len() <= 2 && labels.iter().all(is_label))
}

/// Futures of the service in this module.
pub mod future {
    pub use crate::response_future::ResponseFuture;
}

/// How to handle a call of an egress tool in a session that has received private and untrusted
/// data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SessionMode {
    /// Allow the call, and do not record which data a session has received.
    #[default]
    Off,
    /// Allow the call. At most one warning is logged in ten seconds.
    Warn,
    /// Deny the call. At most one warning is logged in ten seconds.
    Deny,
    /// Ask the user, who sees the arguments. The call is forwarded if the user accepts. It is
    /// denied if the user does not accept, or if the client does not support elicitation. Either
    /// way, at most one warning is logged in ten seconds.
    Ask,
}
