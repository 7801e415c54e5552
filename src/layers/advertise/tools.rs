//! The tools `search_tools` and `call_tool` of search mode.

use std::sync::{Arc, LazyLock};

use rmcp::{
    model::{CallToolResult, JsonObject, ListToolsResult, Tool, ToolAnnotations},
    object,
};
use serde_json::{Map, Value, json};

use super::index::Index;
use crate::{
    catalog::Known,
    message::{Refusal, Violation},
    suggest::nearest,
};

/// The name of the tool that searches the advertised tools.
pub(super) const SEARCH: &str = "search_tools";
/// The name of the tool that calls an advertised tool.
pub(super) const CALL: &str = "call_tool";
/// In a call to [`CALL`], this JSON Pointer refers to the arguments of the tool that the client
/// wants to call.
pub(super) const ARGUMENTS: &str = "/arguments";

const MAX_LIMIT: u64 = 50;
const DEFAULT_LIMIT: u64 = 10;
/// Maximum number of unknown arguments that one error reports.
const MAX_UNKNOWN: usize = 64;
/// Maximum length, in bytes, of an unknown argument's name in an error message. Longer names are
/// omitted.
const MAX_DISPLAYED_ARGUMENT: usize = 64;

/// The parsed arguments of a call to [`SEARCH`].
#[derive(Debug)]
pub(super) struct Search<'a> {
    query: &'a str,
    limit: usize,
}

/// The parsed arguments of a call to [`CALL`].
#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Option<JsonObject>,
}

static TOOLS: LazyLock<[Tool; 2]> = LazyLock::new(|| [search_tool(), call_tool()]);

pub(super) fn is_own_tool(name: &str) -> bool {
    matches!(name, SEARCH | CALL)
}

/// Returns the list of the two tools that clients see in search mode.
pub(super) fn list() -> ListToolsResult {
    ListToolsResult::with_all_items(TOOLS.to_vec())
}

fn search_tool() -> Tool {
    let input = object!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "Words of what the tool should do, or a tool's name; \
                                empty to see the first tools there are",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "default": DEFAULT_LIMIT,
                "description": "How many tools to answer at most",
            },
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let output = object!({
        "type": "object",
        "properties": {
            "tools": {
                "type": "array",
                "description": "The tools that fit best, best first",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": { "type": "string" },
                        "title": { "type": "string" },
                        "description": { "type": "string" },
                        "inputSchema": { "type": "object" },
                        "annotations": { "type": "object" },
                    },
                    "required": ["name", "inputSchema"],
                },
            },
            "total": {
                "type": "integer",
                "minimum": 0,
                "description": "How many tools fit, also beyond the limit",
            },
        },
        "required": ["tools", "total"],
    });
    let description = "Searches the tools of this server by their names, titles and descriptions. \
                       Answers what the best ones do and which arguments they take. \
                       Call them with `call_tool`.";
    Tool::new(SEARCH, description, input)
        .with_title("Search tools")
        .with_raw_output_schema(Arc::new(output))
        .with_annotations(
            ToolAnnotations::new()
                .read_only(true)
                .destructive(false)
                .idempotent(true)
                .open_world(false),
        )
}

fn call_tool() -> Tool {
    let input = object!({
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "description": "The name of the tool, as `search_tools` answers it",
            },
            "arguments": {
                "type": "object",
                "description": "Its arguments, by the `inputSchema` that `search_tools` answers",
            },
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    let description = "Calls a tool of this server by its name and answers what it answers. \
                       Look for tools with `search_tools` first.";
    // Because the effects depend on the called tool, the annotations assume the worst case.
    Tool::new(CALL, description, input).with_title("Call a tool").with_annotations(
        ToolAnnotations::new()
            .read_only(false)
            .destructive(true)
            .idempotent(false)
            .open_world(true),
    )
}

// === impl Search ===

impl<'a> Search<'a> {
    /// Parses the arguments of a call to [`SEARCH`].
    ///
    /// # Errors
    ///
    /// Returns a refusal that lists all invalid arguments.
    pub(super) fn read(arguments: Option<&'a JsonObject>) -> Result<Self, Refusal> {
        let mut violations = unknown_keys(arguments, ["query", "limit"]);
        let given = |key| arguments.and_then(|arguments| arguments.get(key));
        let query = match given("query") {
            Some(Value::String(query)) => query.as_str(),
            query => {
                violations.push(no_string("query", query));
                ""
            }
        };
        let limit = match given("limit") {
            None => Some(DEFAULT_LIMIT),
            Some(limit) => as_integer(limit).filter(|limit| (1..=MAX_LIMIT).contains(limit)),
        };
        if limit.is_none() {
            let expected = format!("expected an integer from 1 to {MAX_LIMIT}");
            violations.push(violation("/limit", expected));
        }
        match limit.and_then(|limit| usize::try_from(limit).ok()) {
            Some(limit) if violations.is_empty() => Ok(Self { query, limit }),
            _ => Err(Refusal::InvalidArguments { tool: SEARCH.into(), violations }),
        }
    }

    /// Runs the search, and returns the best matches as a tool result.
    pub(super) fn answer(&self, known: &Known<Index>) -> CallToolResult {
        let tools = known.tools();
        let exact = tools.position(self.query.trim());
        let found = known.derived().search(self.query, exact, self.limit);
        let tools = tools.iter().as_slice();
        let matches: Vec<Value> =
            found.positions.iter().map(|&position| summary(&tools[position])).collect();
        CallToolResult::structured(json!({ "tools": matches, "total": found.total }))
    }
}

/// Returns the description of a tool in the result of a search: a JSON object with, for example,
/// its `name` and `inputSchema`.
fn summary(tool: &Tool) -> Value {
    let mut summary = Map::new();
    summary.insert("name".to_owned(), tool.name.as_ref().into());
    if let Some(title) = &tool.title {
        summary.insert("title".to_owned(), title.as_str().into());
    }
    if let Some(description) = &tool.description {
        summary.insert("description".to_owned(), description.as_ref().into());
    }
    summary.insert("inputSchema".to_owned(), Value::Object((*tool.input_schema).clone()));
    let annotations = tool.annotations.as_ref().and_then(|all| serde_json::to_value(all).ok());
    if let Some(annotations) = annotations {
        summary.insert("annotations".to_owned(), annotations);
    }
    Value::Object(summary)
}

/// Returns the value as an integer if it is a non-negative integer. As in JSON Schema, a number
/// such as `5.0` also counts as an integer.
fn as_integer(value: &Value) -> Option<u64> {
    let float = value.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0);
    value.as_u64().or_else(|| float.map(|number| number as u64))
}

// === impl Call ===

impl Call {
    /// Parses the arguments of a call to [`CALL`].
    ///
    /// # Errors
    ///
    /// Returns a refusal that lists all invalid arguments.
    pub(super) fn take(arguments: Option<JsonObject>) -> Result<Self, Refusal> {
        let mut violations = unknown_keys(arguments.as_ref(), ["name", "arguments"]);
        let mut given = arguments.unwrap_or_default();
        let name = match given.remove("name") {
            Some(Value::String(name)) => name,
            name => {
                violations.push(no_string("name", name.as_ref()));
                String::new()
            }
        };
        let arguments = match given.remove("arguments") {
            None => None,
            Some(Value::Object(arguments)) => Some(arguments),
            Some(_) => {
                violations.push(violation(ARGUMENTS, "expected an object"));
                None
            }
        };
        if violations.is_empty() {
            Ok(Self { name, arguments })
        } else {
            Err(Refusal::InvalidArguments { tool: CALL.into(), violations })
        }
    }
}

fn violation(path: impl Into<String>, message: impl Into<String>) -> Violation {
    Violation { path: path.into(), message: message.into() }
}

/// Returns the violation for a required string argument that is missing, or whose value is not a
/// string.
fn no_string(key: &str, value: Option<&Value>) -> Violation {
    match value {
        None => violation("", format!("`{key}` is missing: expected a string")),
        Some(_) => violation(format!("/{key}"), "expected a string"),
    }
}

/// Returns a violation for each unknown argument, up to [`MAX_UNKNOWN`] violations.
fn unknown_keys(arguments: Option<&JsonObject>, known: [&str; 2]) -> Vec<Violation> {
    let keys = arguments.into_iter().flat_map(Map::keys);
    let unknown = keys.filter(|key| !known.contains(&key.as_str())).take(MAX_UNKNOWN);
    let expected = format!("expected `{}` or `{}`", known[0], known[1]);
    unknown
        .map(|key| {
            let hint = nearest(key, &known).map(|near| format!(": did you mean `{near}`?"));
            let hint = hint.unwrap_or_else(|| format!(": {expected}"));
            let named = key.len() <= MAX_DISPLAYED_ARGUMENT;
            let name = if named { format!(" `{key}`") } else { String::new() };
            violation("", format!("unknown argument{name}{hint}"))
        })
        .collect()
}
