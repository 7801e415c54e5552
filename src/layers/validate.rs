//! Validates the arguments of tool calls against the input schemas of the called tools.
//!
//! A [`ValidateLayer`] checks the arguments of every `tools/call` request against the `inputSchema`
//! that the server lists for the tool, before it forwards the call. Schemas use JSON Schema
//! 2020-12, or the dialect named in `$schema`. The layer compiles a schema when its tool is first
//! called, and again only after the schema has changed. It never fetches remote references, and
//! evaluates regular expressions in linear time. A schema that contains a remote reference, or a
//! regular expression with look-around, therefore does not compile.
//!
//! # Bounded work
//!
//! A [`ValidateLayer`] checks arguments on the thread that calls the service, and cannot interrupt
//! a check. To keep checks below 50 ms, the layer counts the steps that a check needs before it
//! starts the check, and rejects the call if they exceed a [limit](crate::guide::limits).
//! Evaluating a schema or value, searching a text, copying a name and comparing a value take steps
//! of about ten nanoseconds each. The layer also rejects a call whose arguments are nested too
//! deeply. If a composite coerces arguments, a single limit covers the coercion and the validations
//! before and after it.
//!
//! A [`ValidateLayer`] limits the sizes of a schema, of its references and of its regular
//! expressions, so that it compiles the schema in less than 50 ms. A schema that exceeds one of
//! these limits does not compile.
//!
//! If a [`ValidateLayer`] spends more than a millisecond on compiling and checking, the response
//! future yields to other tasks once before it forwards the call. Without this, the checks of
//! several layers could block the thread one after another. The layer does not move checks to other
//! threads, because this would require a runtime, and the layer works with any executor.
//!
//! # Unchecked calls
//!
//! A [`ValidateLayer`] forwards a call without checking it in three cases: the server does not list
//! the tool, the tools cannot be listed, or the input schema does not compile. It logs a
//! [warning](ValidateLayer::warnings) once for each tool that was called without a check.
//!
//! # Composites
//!
//! If a [`ValidateLayer`] is below a [`CompositeLayer`](crate::composite::CompositeLayer), it also
//! checks the calls that composites make to other tools. In [strict mode](SchemaMode::Strict), a
//! call with invalid arguments fails and never reaches the server. Because a composite can create
//! arguments that are larger than its input, the layer can also
//! [limit](ValidateLayer::max_argument_bytes) their size.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     message::{Reply, Request},
//!     validate::{SchemaMode, ValidateLayer},
//! };
//! use rmcp::model::{CallToolResult, ListToolsResult, Tool};
//! use serde_json::{Map, json};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! async fn server(request: Request) -> Result<Reply, Infallible> {
//!     let schema = json!({ "type": "object", "required": ["query"] });
//!     let schema = schema.as_object().cloned().unwrap_or_default();
//!     Ok(match request.lists_tools() {
//!         true => ListToolsResult::with_all_items(vec![Tool::new("search", "Searches", schema)]).into(),
//!         false => CallToolResult::success(vec![]).into(),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let service = ServiceBuilder::new()
//!     .layer(ValidateLayer::new().schema(SchemaMode::Strict))
//!     .service_fn(server);
//!
//! let reply = service.oneshot(Request::call_tool("search")).await?;
//! let message = "invalid arguments for `search`: at `/query`: is required";
//! assert_eq!(reply.error().unwrap().message, message);
//! # Ok(())
//! # }
//! ```

mod schemas;

use std::{fmt, mem, ops::ControlFlow, sync::Arc};

use rmcp::model::CallToolRequestParams;
use serde::Deserialize;
use serde_json::Value;
use tower_layer::Layer;

use self::schemas::Compiled;
pub use self::schemas::Schemas;
use crate::{
    catalog::{CatalogSettings, Known, Needs, Tools, catalog_setters},
    intercept::{Informed, InterceptInformed},
    message::{Bounds, Refusal, Reply, Request},
    schema::InputSchema,
    warnings::Warnings,
};

/// Maximum number of characters of a tool name in a warning. Longer names are truncated.
const MAX_DISPLAYED_NAME: usize = 128;

/// How to handle a tool call whose arguments do not match the input schema of the tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SchemaMode {
    /// Forward the call. Arguments are not checked.
    #[default]
    Off,
    /// Log a warning, and forward the call.
    Warn,
    /// Reject the call.
    Strict,
}

/// A layer that checks the arguments of tool calls against the input schemas of the called tools.
///
/// A new `ValidateLayer` forwards all requests: its mode is [`SchemaMode::Off`], and it has no
/// limits. See the [module docs](crate::validate) for an example.
#[derive(Clone, Default)]
pub struct ValidateLayer {
    mode: SchemaMode,
    bounds: Bounds,
    warnings: Warnings,
    pub(crate) catalogs: CatalogSettings,
}

/// The implementation of a [`ValidateLayer`].
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct ValidateRule(Arc<Settings>);

#[derive(Debug)]
struct Settings {
    mode: SchemaMode,
    bounds: Bounds,
    warnings: Warnings,
    compiled: Compiled,
}

/// A tool call that the layer forwarded without a check, and the reason: the input schema of the
/// tool is unknown.
#[doc(hidden)]
#[derive(Debug)]
pub struct Unchecked {
    tool: String,
    why: &'static str,
}

/// Middleware that checks the arguments of tool calls to the wrapped service. Created by
/// [`ValidateLayer`].
pub type Validate<S> = Informed<ValidateRule, S>;

// === impl ValidateLayer ===

impl ValidateLayer {
    /// Creates a layer that does not check tool calls.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how the layer handles calls whose arguments do not match the input schema of the tool.
    /// Defaults to [`SchemaMode::Off`], which does not check arguments.
    #[must_use]
    pub const fn schema(mut self, mode: SchemaMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the maximum size of a request in bytes. The size includes the arguments and [other
    /// data](crate::limit#what-counts) from the client. Defaults to no limit.
    #[must_use]
    pub const fn max_argument_bytes(mut self, bytes: usize) -> Self {
        self.bounds = self.bounds.max_argument_bytes(bytes);
        self
    }

    /// Sets the maximum nesting depth of the arrays and objects in a request. Defaults to no limit.
    #[must_use]
    pub const fn max_depth(mut self, levels: usize) -> Self {
        self.bounds = self.bounds.max_depth(levels);
        self
    }

    /// Returns warnings for the operator about tools that were called without a check, each with
    /// the reason why the layer could not check the call. The layer logs each warning once, and
    /// keeps at most 1000 warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }
}

catalog_setters! {
    /// If no epoch is set, the layer lists the tools again when its cached list is a minute old. It
    /// detects a changed input schema only then.
    ValidateLayer: catalogs
}

impl<S> Layer<S> for ValidateLayer {
    type Service = Validate<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let rule = ValidateRule(Arc::new(Settings {
            mode: self.mode,
            bounds: self.bounds,
            warnings: self.warnings.clone(),
            compiled: Compiled::default(),
        }));
        Informed::with_catalogs(rule, inner, self.catalogs.clone())
    }
}

impl fmt::Debug for ValidateLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidateLayer")
            .field("schema", &self.mode)
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}

// === impl ValidateRule ===

impl ValidateRule {
    /// Validates the arguments of a tool call against the input schema of the tool. Returns an
    /// error reply if the call is rejected. Returns an [`Unchecked`] if the schema is unknown, and
    /// `None` otherwise.
    fn check_call(
        &self,
        call: &mut CallToolRequestParams,
        known: Option<&Arc<Known<Schemas>>>,
    ) -> ControlFlow<Reply, Option<Box<Unchecked>>> {
        let Some(schema) = known.and_then(|known| known.derived().get(&call.name)) else {
            let why = if known.is_none() { "tools cannot be listed" } else { "it is not listed" };
            let unchecked = Unchecked { tool: shorten(&call.name), why };
            return ControlFlow::Continue(Some(Box::new(unchecked)));
        };
        match self.check(schema, call) {
            Ok(()) => (),
            Err(refusal) if self.0.mode == SchemaMode::Strict => {
                return ControlFlow::Break(refusal.into());
            }
            Err(refusal) => {
                tracing::warn!(tool = ?call.name, refusal = ?refusal.to_string(), "forwarded a call with invalid arguments");
            }
        }
        ControlFlow::Continue(None)
    }

    fn check(&self, schema: &InputSchema, call: &mut CallToolRequestParams) -> Result<(), Refusal> {
        // Move the arguments into a `Value` during the check, to avoid copying them.
        let given = mem::take(&mut call.arguments);
        let is_given = given.is_some();
        let arguments = Value::Object(given.unwrap_or_default());
        let checked = schema.check(&call.name, &arguments, |unusable| {
            self.0.warnings.warn(format_args!(
                "calls of `{}` are not validated: its input schema cannot be used: {unusable}",
                shorten(&call.name)
            ));
        });
        if let Value::Object(arguments) = arguments
            && is_given
        {
            call.arguments = Some(arguments);
        }
        checked
    }
}

impl InterceptInformed for ValidateRule {
    type Derived = Schemas;
    /// `Some` if the arguments of the call were not validated. Boxed because the value is large and
    /// rarely exists.
    type Memo = Option<Box<Unchecked>>;

    fn derive(&self, tools: &Tools) -> Schemas {
        self.0.compiled.of(tools)
    }

    fn needs_tools(&self) -> bool {
        self.0.mode != SchemaMode::Off
    }

    #[inline]
    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        match request.tool_call() {
            Some(call) if self.0.mode != SchemaMode::Off => Needs::Tool(&call.name),
            _ => Needs::Nothing,
        }
    }

    #[inline]
    fn on_request(
        &self,
        request: &mut Request,
        known: Option<&Arc<Known<Schemas>>>,
    ) -> ControlFlow<Reply, Self::Memo> {
        if let Err(refusal) = self.0.bounds.check(request) {
            return ControlFlow::Break(refusal.into());
        }
        match request.tool_call_mut() {
            Some(call) if self.0.mode != SchemaMode::Off => self.check_call(call, known),
            _ => ControlFlow::Continue(None),
        }
    }

    #[inline]
    fn awaits_reply(&self, memo: &Self::Memo) -> bool {
        memo.is_some()
    }

    fn on_reply(&self, memo: Self::Memo, _: Option<&Arc<Known<Schemas>>>, reply: &mut Reply) {
        // Clients can call any name. Warn only about tools that exist, which a successful result
        // proves.
        let answered = || match reply.tool_result() {
            Some(result) => result.is_error != Some(true),
            None => reply.result().is_some(),
        };
        if let Some(unchecked) = memo
            && answered()
        {
            let Unchecked { tool, why } = *unchecked;
            self.0.warnings.warn(format_args!("calls of `{tool}` are not validated: {why}"));
        }
    }
}

/// Truncates a tool name for a warning, because clients can send names of any length and warnings
/// are kept in memory.
fn shorten(tool: &str) -> String {
    tool.chars().take(MAX_DISPLAYED_NAME).collect()
}
