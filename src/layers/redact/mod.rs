//! What of results nobody sees.
//!
//! A [`RedactLayer`] takes parts out of the results of tools, before anything above
//! gets them: composites work without them, logs do not have them, clients do not see
//! them. It belongs below all that uses results, and speaks of tools by the names that
//! their servers gave them.
//!
//! # Pointers
//!
//! What is taken out is said by JSON Pointers ([RFC 6901]) into the structured content:
//! `/user/email` is the member `email` of the member `user`, and an empty pointer is
//! all of it. A step `*` is any one member or element, and `**` is any number of steps,
//! also none: `/rows/*/ssn`, `/**/password`. A member that is called `*` or `**` has no
//! pointer of its own.
//!
//! - [`Redaction::new`] puts `"[redacted]"` in the place of what is pointed to, whatever
//!   it was: with all that is in it, names of members included. Its own name stays; if
//!   that is what nobody may see, point to what it is in.
//! - [`Redaction::only`] leaves nothing but what is pointed to, and the arrays and
//!   objects on the way there. Members in which nothing is pointed to are gone with
//!   their names, such elements are `"[redacted]"`.
//!
//! An object of which all is taken out is `{}` where it is the structured content:
//! clients before 2026-07-28 know only objects there.
//!
//! # What else could say it
//!
//! What was taken out must not be said elsewhere, so of a tool that is selected:
//!
//! - A text that is the JSON of the structured content is made again of what is left.
//!   Where there is no structured content, a text that is the JSON of an array or an
//!   object is taken for it. Every other text, image, sound, link and resource is
//!   replaced by the text `[redacted]`.
//! - `_meta` of the result and its blocks is dropped, and so are the annotations of the
//!   blocks: `lastModified`, `priority` and `audience`.
//! - The same holds for a result with `isError`. A JSON-RPC error keeps its code, says
//!   that the tool failed, and has no `data`. Error -32021 keeps the client capabilities
//!   that the tool requires.
//! - A question for a person, a task, and what is no result of a tool are replaced by an
//!   error. The task itself goes on: nothing is called here, so nobody cancels it.
//!
//! With [`keep_texts`](Redaction::keep_texts), texts that are no JSON pass, also those
//! of errors, and images, links, resources, questions and, but for `only`, `_meta` and the
//! annotations of all of these; JSON that differs from the structured content is redacted by the same
//! pointers.
//!
//! Even so, a text that begins with `{` or `[` and cannot be read as JSON is replaced by
//! `[redacted]`, as others might read it: two values behind each other, numbers such as
//! `1e999`, arrays within arrays more than 127 levels deep, but also words in brackets.
//! An error says that the tool failed if its message begins like that.
//!
//! # What is not looked at
//!
//! Resources that are read, prompts, what a server asks or tells while a call is under
//! way, the results of tasks, and the arguments of calls. A call that is redacted never
//! becomes a task, but whoever knows the id of one that was begun elsewhere can ask for
//! its result with `tasks/get`. What a tool put into some other place of its structured
//! content stays there. A result that was changed may no longer fit the tool's output
//! schema, which is advertised as it is: a string stands where it may promise a number,
//! and members that it requires may be gone.
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

/// Takes parts out of results.
///
/// By default there are no redactions, and the layer changes nothing. If several
/// select a tool, its results are subject to all of them.
///
/// See the [module docs](self) for what becomes of a result, and for an example.
#[derive(Clone, Debug, Default)]
pub struct RedactLayer(Vec<Redaction>);

/// Middleware that [`RedactLayer`] puts in front of a service.
pub type Redact<S> = Intercepted<RedactRule, S>;

/// What is taken out of the results of some tools.
#[derive(Clone, Debug)]
pub struct Redaction {
    tools: Selection,
    pointers: Pointers,
    keeping: Keeping,
    keeps_texts: bool,
}

/// What stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    /// What is not pointed to.
    Others,
    /// What is pointed to.
    These,
}

// === impl Redaction ===

impl Redaction {
    /// Takes out of the results of these tools what the [pointers](self#pointers) point
    /// to.
    ///
    /// # Errors
    ///
    /// Returns an error if one is no pointer.
    pub fn new<P: AsRef<str>>(
        tools: Selection,
        pointers: impl IntoIterator<Item = P>,
    ) -> Result<Self, PointerError> {
        let pointers = Pointers::parse(pointers)?;
        Ok(Self { tools, pointers, keeping: Keeping::Others, keeps_texts: false })
    }

    /// Takes out of the results of these tools everything but what the
    /// [pointers](self#pointers) point to.
    ///
    /// # Errors
    ///
    /// Returns an error if one is no pointer.
    pub fn only<P: AsRef<str>>(
        tools: Selection,
        pointers: impl IntoIterator<Item = P>,
    ) -> Result<Self, PointerError> {
        Ok(Self { keeping: Keeping::These, ..Self::new(tools, pointers)? })
    }

    /// Lets texts that are no JSON pass, and [what else](self#what-else-could-say-it)
    /// no pointer can point into: for tools that do not repeat in it what is taken out.
    ///
    /// Without [`only`](Self::only), that includes `_meta` and annotations such as
    /// `lastModified`.
    #[must_use]
    pub const fn keep_texts(mut self) -> Self {
        self.keeps_texts = true;
        self
    }
}

// === impl RedactLayer ===

impl RedactLayer {
    /// Changes nothing, until there are redactions.
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
    /// Which tools are spoken of, each with the setting that does.
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
