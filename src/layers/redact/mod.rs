//! Redaction of tool results by JSON Pointers.
//!
//! A [`RedactLayer`] removes parts of tool results before any layer above receives them: they
//! reach no composite, log or client. Place it below everything that uses results; it selects
//! tools by the names that their servers gave them.
//!
//! # Pointers
//!
//! Redacted values are selected by JSON Pointers ([RFC 6901]) into the structured content:
//! `/user/email` is the member `email` of the member `user`, and an empty pointer is the whole
//! value. A segment `*` matches any one member or element, and `**` matches any number of
//! segments, including none: `/rows/*/ssn`, `/**/password`. A member named `*` or `**` cannot
//! be addressed on its own.
//!
//! - [`Redaction::new`] replaces each selected value by `"[redacted]"`, including everything
//!   in it and the names of its members. The name of the value itself stays; if the name is
//!   secret, point to the enclosing object.
//! - [`Redaction::only`] keeps only the selected values, and the arrays and objects that
//!   contain them. Other members are removed with their names, and other elements are
//!   replaced by `"[redacted]"`.
//!
//! If the structured content is an object and redacted as a whole, it becomes `{}`: clients
//! before 2026-07-28 accept only objects there.
//!
//! # What else could say it
//!
//! Redacted values must not appear elsewhere in the result, so for a selected tool:
//!
//! - A text that is the JSON of the structured content is regenerated from the redacted
//!   content. If there is no structured content, a text that is the JSON of an array or an
//!   object is redacted instead. Every other text, image, audio, link and resource is
//!   replaced by the text `[redacted]`.
//! - `_meta` of the result and its blocks is dropped, and so are the annotations of the
//!   blocks: `lastModified`, `priority` and `audience`.
//! - The same applies to a result with `isError`. A JSON-RPC error keeps its code, but its
//!   message only states that the tool failed, and its `data` is dropped. Error -32021 keeps
//!   the client capabilities that the tool requires.
//! - Requests for input, tasks, and any other replies are replaced by an error. The task itself
//!   continues, since this layer makes no calls to cancel it.
//!
//! With [`keep_texts`](Redaction::keep_texts), texts that are not JSON pass, including those
//! of errors, and so do images, links, resources, requests for input and, except with `only`,
//! `_meta` and the annotations of all of these. JSON that differs from the structured content
//! is redacted by the same pointers.
//!
//! Even then, a text that begins with `{` or `[` and does not parse as JSON is replaced by
//! `[redacted]`, since other parsers might accept it: concatenated values, numbers such as
//! `1e999`, arrays nested more than 127 levels deep, but also words in brackets. If the message
//! of an error begins like that, it is replaced by one that states that the tool failed.
//!
//! # What is not looked at
//!
//! Read resources, prompts, requests and notifications of a server during a call, the results
//! of tasks, and the arguments of calls. A redacted call never becomes a task, but a client
//! that knows the id of a task created elsewhere can fetch its result with `tasks/get`. Values
//! that a tool repeats elsewhere in its structured content stay there. A redacted result may
//! no longer match the tool's output schema, which is advertised unchanged: a string may
//! replace a number, and required members may be missing.
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
//! assert_eq!(error.to_string(), "`rows/ssn` is no JSON Pointer: expected `/` at byte 0");
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

/// Redacts parts of tool results.
///
/// Defaults to no redactions; then the layer changes nothing. If several redactions select a
/// tool, all of them apply to its results.
///
/// See the [module docs](self) for the changes to a result, and for an example.
#[derive(Clone, Debug, Default)]
pub struct RedactLayer(Vec<Redaction>);

/// Middleware that [`RedactLayer`] puts in front of a service.
pub type Redact<S> = Intercepted<RedactRule, S>;

/// A redaction of the results of the selected tools.
#[derive(Clone, Debug)]
pub struct Redaction {
    tools: Selection,
    pointers: Pointers,
    keeping: Keeping,
    keeps_texts: bool,
}

/// Which values a redaction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    /// Values that are not selected by the pointers.
    Others,
    /// Values that are selected by the pointers.
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

    /// Keeps texts that are not JSON, and [other parts](self#what-else-could-say-it) that
    /// pointers cannot address. Use it for tools that do not repeat redacted values there.
    ///
    /// Unless the redaction is [`only`](Self::only), this includes `_meta` and annotations such
    /// as `lastModified`.
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

    /// Adds a redaction.
    #[must_use]
    pub fn redaction(mut self, redaction: Redaction) -> Self {
        self.0.push(redaction);
        self
    }
}

impl RedactLayer {
    /// Returns the patterns for tool names, each with the setting that contains it.
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
