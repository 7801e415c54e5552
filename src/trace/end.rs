//! How what a span is of has ended, as the conventions tell it.

use std::{borrow::Cow, ops::RangeInclusive};

use rmcp::model::ErrorCode;
use tracing::Span;

use crate::{
    engine::outcome::{ErrorKind, Outcome, Status},
    message::Reply,
};

/// The codes that [JSON-RPC](https://www.jsonrpc.org/specification#error_object) reserves.
const RESERVED: RangeInclusive<i32> = -32768..=-32000;

/// How an operation has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// `completed`, `failed`, `timed_out`, `suspended` or `cancelled`.
    pub(crate) status: &'static str,
    /// What kind of error it is, if it has failed: of few values (`error.type`).
    pub(crate) error: Option<Cow<'static, str>>,
    /// The code of a JSON-RPC error (`rpc.response.status_code`).
    pub(crate) code: Option<i32>,
}

// === impl End ===

impl End {
    pub(crate) const CANCELLED: Self = Self::of("cancelled");
    pub(crate) const SUSPENDED: Self = Self::of("suspended");
    pub(super) const PANICKED: Self = Self::failed("panic");
    /// Of a service that could not answer.
    pub(super) const UNANSWERED: Self = Self::failed("_OTHER");
    const TOOL_ERROR: Self = Self::failed("tool_error");

    /// How a server has answered.
    ///
    /// What a client has done wrong is no failure of the server: of the codes of JSON-RPC,
    /// internal errors and those of servers are.
    pub(super) fn of_reply(reply: &Reply) -> Self {
        match reply.error() {
            Some(error) => {
                let ErrorCode(code) = error.code;
                let is_ours = matches!(code, -32603 | -32099..=-32000);
                let error = is_ours.then(|| of_code(code));
                Self { status: "failed", error, code: Some(code) }
            }
            None if reply.asks() => Self::SUSPENDED,
            None => {
                Self::of_result(reply.tool_result().is_some_and(|it| it.is_error == Some(true)))
            }
        }
    }

    /// How a tool has answered.
    pub(crate) const fn of_result(is_error: bool) -> Self {
        if is_error { Self::TOOL_ERROR } else { Self::of("completed") }
    }

    /// How a call has ended.
    pub(crate) fn of_outcome(outcome: &Outcome) -> Self {
        let error = outcome.error.as_ref().filter(|_| outcome.status != Status::Cancelled);
        let code = error.and_then(|error| error.code);
        let error = error.map(|error| match (error.kind, code) {
            (ErrorKind::Tool, _) => "tool_error".into(),
            (_, Some(code)) => of_code(code),
            (kind, None) => kind.name().into(),
        });
        Self { status: outcome.status.name(), error, code }
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

    /// The code as one of few values.
    #[cfg(feature = "metrics")]
    pub(crate) fn low_code(&self) -> Option<Cow<'static, str>> {
        self.code.map(of_code)
    }

    const fn of(status: &'static str) -> Self {
        Self { status, error: None, code: None }
    }

    const fn failed(error: &'static str) -> Self {
        Self { status: "failed", error: Some(Cow::Borrowed(error)), code: None }
    }
}

/// The code of a JSON-RPC error as one of few values: servers may answer with any.
fn of_code(code: i32) -> Cow<'static, str> {
    if RESERVED.contains(&code) { code.to_string().into() } else { "_OTHER".into() }
}
