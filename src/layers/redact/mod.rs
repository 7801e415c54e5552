//! Redaction of tool results by JSON Pointers.
//!
//! A [`RedactLayer`] removes parts of tool results before any layer above receives them, so the
//! removed values reach no composite, log or client. Place the layer below all layers that use
//! results. The layer selects tools by their names in the wrapped service.
//!
//! # Pointers
//!
//! JSON Pointers ([RFC 6901]) select the redacted values in the structured content:
//! `/user/email` selects the member `email` of the member `user`, and an empty pointer selects
//! the whole value. A segment `*` matches any one member or element, as in `/rows/*/ssn`. A
//! segment `**` matches any number of segments, including none, as in `/**/password`. A member
//! named `*` or `**` cannot be selected on its own.
//!
//! - [`Redaction::new`] replaces each selected value with `"[redacted]"`. If the value is an
//!   object, the names of its members are replaced too. The name of the selected value itself is
//!   kept. If this name is secret, select the enclosing object.
//! - [`Redaction::only`] keeps only the selected values, and the arrays and objects that
//!   contain them. Other members are removed with their names, and other elements are
//!   replaced with `"[redacted]"`.
//!
//! If the structured content is an object and is redacted as a whole, it becomes `{}`, because
//! clients of protocol versions before 2026-07-28 accept only objects as structured content.
//!
//! # Other parts of the result
//!
//! Other parts of a result may repeat redacted values. So if a redaction selects a tool, the layer
//! also changes the following parts of the tool's results:
//!
//! - A text that is the JSON of the structured content is regenerated from the redacted
//!   content. If there is no structured content, a text that is the JSON of an array or an
//!   object is redacted instead. Every other text, image, audio, link and resource is
//!   replaced with the text `[redacted]`.
//! - `_meta` of the result and of its content blocks is removed. The annotations of the blocks are
//!   removed too: `lastModified`, `priority` and `audience`.
//! - A result with `isError` is changed in the same way. A JSON-RPC error keeps its code, but its
//!   message only states that the tool failed, and its `data` is removed. Error -32021 keeps
//!   the client capabilities that the tool requires.
//! - A request for input, a task or any other reply is replaced with an error. The task still
//!   continues on the server, because this layer makes no calls to cancel it.
//!
//! With [`keep_texts`](Redaction::keep_texts), the layer keeps images, links, resources, requests
//! for input, and texts that are not JSON, including error messages. It also keeps `_meta` and
//! annotations, except with [`only`](Redaction::only). A text that is JSON but differs from the
//! structured content is redacted by the same pointers.
//!
//! Even with `keep_texts`, a text that begins with `{` or `[` and does not parse as JSON is
//! replaced with `[redacted]`, because other parsers might accept it. Examples are concatenated
//! values, numbers such as `1e999`, and arrays nested more than 127 levels deep, but also words in
//! brackets. An error message that begins with `{` or `[` is replaced with a message that states
//! that the tool failed.
//!
//! # What is not redacted
//!
//! The layer does not change prompts, resources that a client reads, the results of tasks, the
//! arguments of calls, and the requests and notifications that a server sends during a call.
//!
//! - A redacted call never becomes a task. However, a client that knows the id of a task created
//!   elsewhere can fetch the result with `tasks/get`.
//! - If a tool repeats a redacted value in a part of the structured content that no pointer
//!   selects, the repetition is kept.
//! - A redacted result may no longer match the tool's output schema, which is advertised
//!   unchanged. For example, a string may replace a number, and required members may be missing.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     message::{Reply, Request},
//!     pattern::Selection,
//!     redact::{RedactLayer, Redaction},
//! };
//! use rmcp::model::CallToolResult;
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! async fn server(_: Request) -> Result<Reply, Infallible> {
//!     let rows = json!([{ "name": "Ada", "ssn": "078-05-1120" }, { "name": "Bob", "ssn": null }]);
//!     Ok(CallToolResult::structured(json!({ "rows": rows })).into())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let people = Selection::default().allow(["list_people"])?;
//! let redact = RedactLayer::new().redaction(Redaction::new(people, ["/rows/*/ssn"])?);
//! let service = ServiceBuilder::new().layer(redact).service_fn(server);
//!
//! let reply = service.oneshot(Request::call_tool("list_people")).await?;
//! let result = reply.tool_result().unwrap();
//! let rows = &result.structured_content.as_ref().unwrap()["rows"];
//! assert_eq!(rows[0], json!({ "name": "Ada", "ssn": "[redacted]" }));
//! assert!(!result.content[0].as_text().unwrap().text.contains("078"));
//!
//! let error = Redaction::new(Selection::default(), ["rows/ssn"]).unwrap_err();
//! assert_eq!(error.to_string(), "`rows/ssn` is not a JSON Pointer: expected `/` at byte 0");
//! # Ok(())
//! # }
//! ```
//!
//! [RFC 6901]: https://www.rfc-editor.org/rfc/rfc6901

mod pointer;
mod rule;

use tower_layer::Layer;

use self::pointer::Pointers;
pub use self::{
    pointer::PointerError,
    rule::{RedactRule, Selected},
};
use crate::{
    intercept::Intercepted,
    pattern::{Patterns, Selection},
};

/// A layer that redacts parts of tool results.
///
/// By default there are no redactions, and the layer changes nothing. If several redactions select
/// a tool, all of them change the tool's results.
///
/// See the [module docs](self) for the changes to a result, and for an example.
#[derive(Clone, Debug, Default)]
pub struct RedactLayer(Vec<Redaction>);

/// Middleware that [`RedactLayer`] puts in front of a service.
pub type Redact<S> = Intercepted<RedactRule, S>;

/// A redaction of the results of selected tools.
#[derive(Clone, Debug)]
pub struct Redaction {
    tools: Selection,
    pointers: Pointers,
    keeping: Keeping,
    keeps_texts: bool,
}

/// The values that a redaction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    /// The values that no pointer selects.
    Others,
    /// Only the values that a pointer selects.
    These,
}

// === impl Redaction ===

impl Redaction {
    /// Creates a redaction that replaces the values selected by the [pointers](self#pointers).
    ///
    /// # Errors
    ///
    /// Returns an error if a pointer is invalid.
    pub fn new<P: AsRef<str>>(
        tools: Selection,
        pointers: impl IntoIterator<Item = P>,
    ) -> Result<Self, PointerError> {
        let pointers = Pointers::parse(pointers)?;
        Ok(Self { tools, pointers, keeping: Keeping::Others, keeps_texts: false })
    }

    /// Creates a redaction that keeps only the values selected by the
    /// [pointers](self#pointers).
    ///
    /// # Errors
    ///
    /// Returns an error if a pointer is invalid.
    pub fn only<P: AsRef<str>>(
        tools: Selection,
        pointers: impl IntoIterator<Item = P>,
    ) -> Result<Self, PointerError> {
        Ok(Self { keeping: Keeping::These, ..Self::new(tools, pointers)? })
    }

    /// Keeps texts that are not JSON, and [other parts](self#other-parts-of-the-result) of a result
    /// that pointers cannot select. Call this only if the selected tools do not repeat redacted
    /// values in these parts.
    ///
    /// `_meta` and annotations such as `lastModified` are also kept, unless the redaction was
    /// created with [`only`](Self::only).
    #[must_use]
    pub const fn keep_texts(mut self) -> Self {
        self.keeps_texts = true;
        self
    }
}

// === impl RedactLayer ===

impl RedactLayer {
    /// Creates a layer without redactions, which changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a redaction. Earlier redactions are kept.
    #[must_use]
    pub fn redaction(mut self, redaction: Redaction) -> Self {
        self.0.push(redaction);
        self
    }
}

impl RedactLayer {
    /// Returns the tool patterns of all redactions, each with the name of its setting.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (&'static str, Patterns)> {
        let selections = self.0.iter().map(|redaction| &redaction.tools);
        selections.flat_map(Selection::parts).map(|patterns| ("redactions.tools", patterns))
    }
}

impl<S> Layer<S> for RedactLayer {
    type Service = Redact<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Intercepted::new(RedactRule(self.0.as_slice().into()), inner)
    }
}
