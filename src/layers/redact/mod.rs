//! Removes secret or personal data from tool results.
//!
//! A [`RedactLayer`] removes values from tool results. You select the values with JSON Pointers.
//! Place the layer below all layers that use results, so that the removed values reach no
//! composite, log or client. The layer selects tools by the names that they have in the wrapped
//! service.
//!
//! # Pointers
//!
//! JSON Pointers ([RFC 6901]) select the values to redact in the structured content: `/user/email`
//! selects the member `email` of the member `user`, and the empty pointer selects the whole
//! content. The segment `*` matches any single member or element, as in `/rows/*/ssn`. The segment
//! `**` matches any number of segments, including none, as in `/**/password`. It is not possible to
//! select only a member whose name is `*` or `**`.
//!
//! - [`Redaction::new`] replaces each selected value with `"[redacted]"`. If the value is an
//!   object, its member names are removed as well, but the name of the selected value is kept. If
//!   that name is secret, too, select the enclosing object.
//! - [`Redaction::only`] keeps only the selected values, and the arrays and objects that contain
//!   them. It removes all other members together with their names, and replaces all other array
//!   elements with `"[redacted]"`.
//!
//! If the whole structured content is redacted and is an object, it becomes `{}`. This is because
//! clients of protocol versions before 2026-07-28 accept only objects as structured content.
//!
//! # Other parts of the result
//!
//! Servers may repeat redacted values outside of the structured content. If a redaction selects a
//! tool, the [`RedactLayer`] therefore also changes these parts of the tool's results:
//!
//! - A text that repeats the structured content as JSON is rendered again from the redacted
//!   content. If there is no structured content, a text that is a JSON array or object is redacted
//!   with the same pointers. All other texts, images, audio, links and resources are replaced with
//!   the text `[redacted]`.
//! - The `_meta` of the result and of its content blocks is removed. The annotations of content
//!   blocks (`lastModified`, `priority` and `audience`) are removed, too.
//! - A result with `isError` is changed in the same way. In a JSON-RPC error, only the code is
//!   kept. The layer removes `data`, and replaces the message with "the tool failed". An error with
//!   the code -32021 also keeps the list of client capabilities that the tool requires.
//! - A request for input, a task or any other kind of reply is replaced with an error. If the reply
//!   was a task, the task continues on the server, because the layer cannot send a request to
//!   cancel it. A [`PollTasksLayer`](crate::poll_tasks::PollTasksLayer) below waits for tasks, so
//!   that their results are redacted.
//!
//! By default, a redaction also removes the parts of a result that pointers cannot select. If these
//! parts contain no secrets, call [`keep_texts`](Redaction::keep_texts). The [`RedactLayer`] then
//! keeps images, links, resources, requests for input, and texts that are not JSON, including error
//! messages. It also keeps `_meta` and annotations, except with [`only`](Redaction::only). A text
//! that is JSON but does not repeat the structured content is redacted with the same pointers.
//!
//! Even with [`keep_texts`](Redaction::keep_texts), a text that begins with `{` or `[` but does not
//! parse as JSON is replaced with `[redacted]`, because other parsers might accept it. Examples are
//! concatenated values, numbers such as `1e999`, arrays nested more than 127 levels deep, and words
//! in brackets. An error message of this form is replaced with a message that says that the tool
//! failed.
//!
//! # What is not redacted
//!
//! A [`RedactLayer`] does not change prompts, resources that clients read, results of tasks,
//! arguments of tool calls, and requests and notifications that a server sends during a tool call.
//!
//! - If a redaction selects a tool, a call of the tool never becomes a task. However, a client that
//!   knows the ID of another task can fetch the result of this task with `tasks/get`.
//! - If a tool repeats a redacted value at another position in the structured content, the value is
//!   not removed there unless a pointer selects that position.
//! - A redacted result may violate the tool's output schema, which clients receive unchanged. For
//!   example, a string may replace a number, and required members may be missing.
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

/// A layer that removes selected values from tool results.
///
/// A new `RedactLayer` has no redactions and changes nothing. If several redactions select a tool,
/// all of them apply to the tool's results. See the [module docs](self) for an example, and for the
/// changes that the layer makes to results.
#[derive(Clone, Debug, Default)]
pub struct RedactLayer(Vec<Redaction>);

/// Middleware that removes selected values from the tool results of the wrapped service. Created
/// by [`RedactLayer`].
pub type Redact<S> = Intercepted<RedactRule, S>;

/// Defines which values are redacted in the results of the selected tools.
#[derive(Clone, Debug)]
pub struct Redaction {
    tools: Selection,
    pointers: Pointers,
    keeping: Keeping,
    keeps_texts: bool,
}

/// The values that a redaction keeps: those that its pointers select, or the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    /// The redaction keeps the values that no pointer selects, and redacts the selected values.
    Others,
    /// The redaction keeps only the values that a pointer selects, and redacts all others.
    These,
}

// === impl Redaction ===

impl Redaction {
    /// Creates a redaction that removes the values that the [pointers](self#pointers) select, and
    /// keeps all other values.
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

    /// Creates a redaction that keeps only the values that the [pointers](self#pointers) select,
    /// and removes all other values.
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

    /// Keeps the [parts of a result](self#other-parts-of-the-result) that pointers cannot select,
    /// such as texts that are not JSON. By default, the layer redacts these parts as well. Call
    /// this method only if the parts never contain redacted values.
    ///
    /// `keep_texts` also keeps `_meta` and annotations such as `lastModified`, unless the redaction
    /// was created with [`only`](Self::only), which removes them.
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

    /// Adds a redaction. If several redactions select a tool, all of them apply to its results.
    #[must_use]
    pub fn redaction(mut self, redaction: Redaction) -> Self {
        self.0.push(redaction);
        self
    }
}

impl RedactLayer {
    /// Returns the tool patterns of all redactions, for warnings. Each pattern comes with the name
    /// of the setting that contains it, such as `redactions.tools`.
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
