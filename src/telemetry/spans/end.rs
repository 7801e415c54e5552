//! The outcomes of client requests, runs and tool calls, with the values that the OpenTelemetry
//! conventions define.

use std::{borrow::Cow, ops::RangeInclusive};

use rmcp::model::ErrorCode;
use tracing::Span;

use crate::message::Reply;

/// The range of error codes that the [JSON-RPC
/// specification](https://www.jsonrpc.org/specification#error_object) reserves.
const RESERVED: RangeInclusive<i32> = -32768..=-32000;

/// The outcome of a client request, a run or a tool call, as it is recorded in spans and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The status: `completed`, `failed`, `timed_out`, `suspended` or `cancelled`.
    pub(crate) status: &'static str,
    /// The error kind, for the attribute `error.type`, for example `tool_error`. There are only a
    /// few different values. `None` if the operation did not fail, or if the client caused the
    /// failure.
    pub(crate) error: Option<Cow<'static, str>>,
    /// The code of the JSON-RPC error with which the operation ended, for the attribute
    /// `rpc.response.status_code`. `None` if it did not end with a JSON-RPC error.
    pub(crate) code: Option<i32>,
}

// === impl End ===

impl End {
    pub(crate) const CANCELLED: Self = Self::of("cancelled");
    pub(crate) const SUSPENDED: Self = Self::of("suspended");
    pub(crate) const PANICKED: Self = Self::failed("panic");
    /// The outcome of an operation for which the Tower service returned an error instead of a
    /// reply.
    pub(crate) const UNANSWERED: Self = Self::failed("_OTHER");
    pub(crate) const TOOL_ERROR: Self = Self::failed("tool_error");

    /// Returns the outcome of an operation that ended with this reply.
    ///
    /// For a JSON-RPC error, the outcome contains an error kind only if the server caused the
    /// error, for example an internal error. An error that the client caused, such as invalid
    /// parameters, has no error kind.
    pub(crate) fn of_reply(reply: &Reply) -> Self {
        match reply.error() {
            Some(error) => {
                let ErrorCode(code) = error.code;
                let is_server_error = matches!(code, -32603 | -32099..=-32000);
                let error = is_server_error.then(|| Self::of_code(code));
                Self { status: "failed", error, code: Some(code) }
            }
            None if reply.asks() => Self::SUSPENDED,
            None => {
                Self::of_result(reply.tool_result().is_some_and(|it| it.is_error == Some(true)))
            }
        }
    }

    /// Returns the outcome of a tool call whose result has the given `isError` flag.
    pub(crate) const fn of_result(is_error: bool) -> Self {
        if is_error { Self::TOOL_ERROR } else { Self::of("completed") }
    }

    pub(crate) fn record(&self, span: &Span) {
        if span.is_none() {
            return;
        }
        span.record("mcp_composite.status", self.status);
        if let Some(code) = self.code {
            span.record("rpc.response.status_code", code.to_string());
        }
        if let Some(error) = &self.error {
            span.record("error.type", &**error);
            span.record("otel.status_code", "ERROR");
        }
    }

    /// Returns the JSON-RPC error code for a label in metrics. Codes that JSON-RPC does not reserve
    /// become `_OTHER`, so that the number of possible values is small. Returns `None` if there is
    /// no error code.
    #[cfg(feature = "metrics")]
    pub(crate) fn low_code(&self) -> Option<Cow<'static, str>> {
        self.code.map(Self::of_code)
    }

    /// Returns a JSON-RPC error code as a string if the specification reserves the code, and
    /// `_OTHER` for any other code. Servers may return any code, and this limits the number of
    /// different values in metrics.
    pub(crate) fn of_code(code: i32) -> Cow<'static, str> {
        if RESERVED.contains(&code) { code.to_string().into() } else { "_OTHER".into() }
    }

    const fn of(status: &'static str) -> Self {
        Self { status, error: None, code: None }
    }

    const fn failed(error: &'static str) -> Self {
        Self { status: "failed", error: Some(Cow::Borrowed(error)), code: None }
    }
}
