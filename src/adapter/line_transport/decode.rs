//! Decodes tool calls and tool results faster than rmcp's decoder, which tries one message type
//! after another.

#[cfg(feature = "remote")]
use std::fmt;

#[cfg(feature = "remote")]
use rmcp::{
    RoleClient,
    model::{CallToolResult, ErrorData, InputRequiredResult, ResultType, ServerResult},
};
use rmcp::{
    RoleServer,
    model::{
        CallToolRequest, CallToolRequestParams, ClientRequest, JsonRpcMessage, JsonRpcVersion2_0,
        RequestId,
    },
    service::{RxJsonRpcMessage, ServiceRole},
};
use serde::{Deserialize, de::IgnoredAny};
#[cfg(feature = "remote")]
use serde::{
    Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::line::MAX_LINE_BYTES;
#[cfg(feature = "remote")]
use crate::message::client::MAX_QUESTIONS;

/// The maximum size in bytes of a request or notification that is accepted from a server.
///
/// An elicitation request of a server may contain 1 MiB of text. The message can be three times as
/// large, because some servers escape all characters that are not ASCII.
#[cfg(feature = "remote")]
const MAX_SERVER_REQUEST_BYTES: usize = 3 << 20;

/// A role of an rmcp connection, `RoleClient` or `RoleServer`, that a `LineTransport` supports.
///
/// The transport decodes `tools/call` requests and their results faster than rmcp, because it
/// copies arguments and results fewer times. The decoded messages are the same.
#[expect(unnameable_types, reason = "it is sealed: implemented for the roles of rmcp")]
pub trait Decode: ServiceRole {
    /// Returns the maximum size in bytes of a request or notification from the peer.
    fn max_request() -> usize;

    /// Decodes a tool call or a tool result. Returns `None` for any other message and for a
    /// malformed message, which rmcp's decoder must then decode.
    ///
    /// If a tool result contains too many elicitation requests, returns a JSON-RPC error instead of
    /// the result. The error message names `peer`.
    fn decode(line: &[u8], peer: &str) -> Option<RxJsonRpcMessage<Self>>;
}

/// The members of a JSON-RPC request or response. The values of `params` and `result` are not
/// parsed yet.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: JsonRpcVersion2_0,
    id: RequestId,
    method: Option<&'a str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<IgnoredAny>,
}

/// The fields of a tool result. A result with any other field is decoded by rmcp's decoder instead.
#[cfg(feature = "remote")]
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CallFields {
    result_type: Option<ResultType>,
    #[serde(rename = "content")]
    _content: Option<IgnoredAny>,
    #[serde(rename = "structuredContent")]
    _structured_content: Option<IgnoredAny>,
    #[serde(rename = "isError")]
    _is_error: Option<IgnoredAny>,
    input_requests: Option<Members>,
    #[serde(rename = "requestState")]
    _request_state: Option<IgnoredAny>,
    #[serde(rename = "_meta")]
    _meta: Option<IgnoredAny>,
}

/// Counts the members of a JSON object while it is deserialized, without storing them.
#[cfg(feature = "remote")]
struct Members(usize);

#[cfg(feature = "remote")]
impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;

        impl<'de> Visitor<'de> for Count {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members, A::Error> {
                let mut count = 0;
                while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Members(count))
            }
        }

        deserializer.deserialize_map(Count)
    }
}

impl Decode for RoleServer {
    fn max_request() -> usize {
        MAX_LINE_BYTES
    }

    fn decode(line: &[u8], _peer: &str) -> Option<RxJsonRpcMessage<Self>> {
        let envelope: Envelope<'_> = serde_json::from_slice(line).ok()?;
        let Envelope { id, method: Some("tools/call"), params, result: None, error: None, .. } =
            envelope
        else {
            return None;
        };
        let mut params: CallToolRequestParams = serde_json::from_str(params?.get()).ok()?;
        let meta = params.meta.take();
        let mut request = CallToolRequest::new(params);
        if let Some(meta) = meta {
            request.extensions.insert(meta);
        }
        Some(JsonRpcMessage::request(ClientRequest::CallToolRequest(request), id))
    }
}

#[cfg(feature = "remote")]
impl Decode for RoleClient {
    fn max_request() -> usize {
        MAX_SERVER_REQUEST_BYTES
    }

    fn decode(line: &[u8], peer: &str) -> Option<RxJsonRpcMessage<Self>> {
        let envelope: Envelope<'_> = serde_json::from_slice(line).ok()?;
        let Envelope { id, method: None, params: None, result, error: None, .. } = envelope else {
            return None;
        };
        let result = result?.get();
        let fields: CallFields = serde_json::from_str(result).ok()?;
        let result = match fields.result_type {
            Some(result_type) if result_type.is_input_required() => {
                // Checked before the questions are decoded, because decoding a question takes as
                // long as decoding 40 other values.
                if fields.input_requests.is_some_and(|Members(count)| count > MAX_QUESTIONS) {
                    let text = format!(
                        "{peer} requested input, which was rejected: too many questions at once"
                    );
                    let error = ErrorData::internal_error(text, None);
                    return Some(JsonRpcMessage::error(error, Some(id)));
                }
                let result: InputRequiredResult = serde_json::from_str(result).ok()?;
                ServerResult::InputRequiredResult(result)
            }
            _ => {
                let result: CallToolResult = serde_json::from_str(result).ok()?;
                ServerResult::CallToolResult(result)
            }
        };
        Some(JsonRpcMessage::response(result, id))
    }
}
