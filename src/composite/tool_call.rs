//! Tool calls in steps and targets.

use serde_json::{Value, json};

use super::encoding::encode_optional;
use crate::engine::plan::Parse;

/// A tool call that a composite makes: the name of a tool and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The name of the tool as clients see it, such as `backend/tool`, or the name of another
    /// composite.
    pub(crate) tool: String,
    /// If `true`, the tool of the inner service is called even if a composite of the layer has the
    /// same name.
    pub(crate) behind: bool,
    /// The arguments of the call, such as `{ q = "$input.query" }`. If `None`, a step calls its
    /// tool without arguments, and a target passes the arguments of the composite to its tool.
    pub(crate) arguments: Option<Value>,
    /// The format in which a text result is parsed, such as JSON. `None` if the result is not
    /// parsed.
    pub(crate) parse: Option<Parse>,
}

// === impl ToolCall ===

impl ToolCall {
    /// The value of `type` in a configuration file for a step that calls a tool.
    pub(crate) const TYPE: &'static str = "tool";

    /// Creates a call of `tool` without arguments.
    ///
    /// If the layer has a composite with the name `tool`, the composite is called. To call a tool
    /// of the inner service with the same name, use [`behind`](Self::behind).
    pub fn new(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), behind: false, arguments: None, parse: None }
    }

    /// Creates a call like [`new`](Self::new), but always calls the tool of the inner service, even
    /// if a composite has the same name.
    pub fn behind(tool: impl Into<String>) -> Self {
        Self { behind: true, ..Self::new(tool) }
    }

    /// Sets the arguments of the tool call: an object whose strings can be [references and
    /// templates](crate::expr), such as `$input.query`.
    #[must_use]
    pub fn arguments(mut self, arguments: Value) -> Self {
        self.arguments = Some(arguments);
        self
    }

    /// Parses the result of the tool call as JSON if it contains only text. The parsed value
    /// becomes the output of the step, so that other steps can refer to parts of it. If the text is
    /// not valid JSON, the step fails.
    ///
    /// If the tool result has several texts, each of them is parsed as JSON, and the output of the
    /// step is an array of the parsed values.
    #[must_use]
    pub const fn parse_json(mut self) -> Self {
        self.parse = Some(Parse::Json);
        self
    }

    /// Parses the result of the tool call as comma-separated values (RFC 4180) if its only content
    /// is text. The first line contains the names of the columns. The output of the step is an
    /// array with an object for each further line, whose members are strings.
    ///
    /// The step fails if a line of the comma-separated values does not have a field for each
    /// column, or if the name of a column is not unique.
    #[must_use]
    pub const fn parse_csv(mut self) -> Self {
        self.parse = Some(Parse::Csv);
        self
    }

    /// Encodes all settings of the call as JSON. The fingerprint of the composite is computed from
    /// them.
    pub(super) fn encode(&self) -> Value {
        let Self { tool, behind, arguments, parse } = self;
        json!({
            "tool": tool,
            "behind": behind,
            "arguments": encode_optional(arguments.as_ref()),
            // A boolean if possible, as in earlier fingerprints.
            "parse_json": match parse {
                None => json!(false),
                Some(Parse::Json) => json!(true),
                Some(other) => other.name().into(),
            },
        })
    }
}

impl From<&str> for ToolCall {
    fn from(tool: &str) -> Self {
        Self::new(tool)
    }
}

impl From<String> for ToolCall {
    fn from(tool: String) -> Self {
        Self::new(tool)
    }
}
