//! Converts the composite tools of a ToolHive configuration to TOML tables.

use std::{cell::Cell, collections::HashSet, ops::Range};

use serde_json::{Map, Value, json};

use super::{
    go_template::Result,
    import::{Fields, Import},
    translate::{self, Scope},
    write::Table,
    yaml::{Content, Node},
};

/// ToolHive's maximum number of retries. The import reduces larger numbers to this one.
const MAX_TOOLHIVE_RETRIES: u64 = 10;

/// A converted composite tool, and the tool calls in its steps.
#[derive(Debug, Default)]
pub(super) struct Composite {
    /// The name and its byte range in the YAML file.
    pub(super) name: Option<(String, Range<usize>)>,
    pub(super) tables: Vec<Table>,
    pub(super) calls: Vec<Call>,
}

/// A tool call of a step.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) tool: String,
    /// The byte range of the arguments in the YAML file. `None` if no argument contains a string
    /// that may be converted to another type, such as `"42"`.
    pub(super) texts: Option<Range<usize>>,
}

/// A function that translates a Go template to a template or expression of this crate.
type Translate = fn(&str, Scope<'_>) -> Result<String>;

/// Converts one composite tool, and reports mistakes to `import`.
pub(super) fn composite(import: &mut Import<'_>, node: &Node) -> Composite {
    let known = ["name", "description", "parameters", "timeout", "steps", "output", "annotations"];
    let mut composite = Composite::default();
    let Some(fields) = import.fields(node, &known, &["failureMode"]) else { return composite };
    let mut table = Table::from_fields("[[composite_tools]]", &fields);
    let name = import.required(&fields, "name");
    composite.name = name.map(|name| (name.to_owned(), fields.key_span("name")));
    table.set_some("name", name);
    table.set_some("description", import.required(&fields, "description").map(str::trim_end));
    table.set("strategy", "workflow");
    let optional = parameters(import, &fields, &mut table);
    table.set_some("annotations", fields.get("annotations").map(Node::to_json));
    table.set_some("timeout", import.duration(fields.get("timeout")));
    composite.tables.push(table);

    let steps = import.list(fields.get("steps"));
    if steps.is_empty() {
        import.mistake("`steps` must have at least one step", &fields.key_span("steps"));
    }
    let scope = Scope { optional: Some(&optional), ..Scope::default() };
    for node in steps {
        let step = step(import, node, scope, &mut composite.calls);
        composite.tables.extend(step);
    }
    if let Some(node) = fields.get("output") {
        composite.tables.extend(output(import, node, scope));
    }
    composite
}

/// Converts the JSON Schema of the parameters. Returns the names of optional parameters without a
/// default.
fn parameters(import: &mut Import<'_>, fields: &Fields<'_>, table: &mut Table) -> HashSet<String> {
    let Some(node) = fields.get("parameters") else { return HashSet::new() };
    reject_nulls(import, node);
    let schema = node.to_json();
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        import.mistake("`parameters` must have `type: object`", &node.span);
        return HashSet::new();
    }
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| {
        required.is_some_and(|required| required.iter().any(|other| other.as_str() == Some(name)))
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let optional = properties.into_iter().flatten();
    let optional = optional
        .filter(|(name, schema)| !is_required(name) && schema.get("default").is_none())
        .map(|(name, _)| name.clone())
        .collect();
    table.set("parameters", schema);
    optional
}

/// Reports each null in a value, because TOML has no null.
fn reject_nulls(import: &mut Import<'_>, node: &Node) {
    match &node.content {
        Content::Scalar(Value::Null) => {
            import.mistake("a schema in TOML cannot have null: remove it", &node.span);
        }
        Content::Scalar(_) => {}
        Content::List(list) => list.iter().for_each(|node| reject_nulls(import, node)),
        Content::Map(map) => map.iter().for_each(|member| reject_nulls(import, &member.value)),
    }
}

/// The keys that a step of any type can have.
const STEP: [&str; 7] =
    ["id", "type", "condition", "dependsOn", "onError", "timeout", "defaultResults"];
/// The types of steps, each with its further keys.
const TYPES: [(&str, &[&str]); 3] = [
    ("tool", &["tool", "arguments"]),
    ("elicitation", &["message", "schema", "onDecline", "onCancel"]),
    ("forEach", &["collection", "itemVar", "maxParallel", "maxIterations", "step"]),
];

fn step(
    import: &mut Import<'_>,
    node: &Node,
    scope: Scope<'_>,
    calls: &mut Vec<Call>,
) -> Option<Table> {
    let own = TYPES.iter().flat_map(|(_, keys)| *keys);
    let known: Vec<_> = STEP.iter().chain(own).copied().collect();
    let fields = import.fields(node, &known, &["defaultResponse"])?;
    let mut table = Table::from_fields("[[composite_tools.steps]]", &fields);
    table.set_some("id", import.required(&fields, "id"));
    let kind = match fields.get("type") {
        Some(node) => import.word(node, &TYPES.map(|(name, _)| name))?,
        None if fields.get("message").is_some() && fields.get("tool").is_none() => "elicitation",
        None => "tool",
    };
    let word = if kind == "forEach" { "for_each" } else { kind };
    table.set_some("type", (kind != "tool").then_some(word));
    let depends_on = import.texts(fields.get("dependsOn"));
    table.set_some("depends_on", (!depends_on.is_empty()).then_some(depends_on));
    // The empty condition is true.
    if let Some(node) = fields.get("condition").filter(|node| node.as_text() != Some("")) {
        table.set_some("condition", template(import, node, scope, translate::condition));
    }
    match kind {
        "tool" => {
            call(import, &fields, scope, calls, &mut table);
            table.set_some("timeout", import.duration(fields.get("timeout")));
            table.set_some("on_error", on_error(import, fields.get("onError")));
        }
        "elicitation" => elicitation(import, &fields, scope, &mut table),
        _ => for_each(import, &fields, scope, calls, &mut table),
    }
    let others = TYPES.iter().filter(|(name, _)| *name != kind).flat_map(|(_, keys)| *keys);
    for key in others.filter(|key| fields.get(key).is_some()) {
        let message = format!("`{key}` has no effect in a step with `type: {kind}`");
        import.mistake(message, &fields.key_span(key));
    }
    table.set_some("default_results", fields.get("defaultResults").map(Node::to_json));
    Some(table)
}

/// Converts the tool name and the arguments of a step.
fn call(
    import: &mut Import<'_>,
    fields: &Fields<'_>,
    scope: Scope<'_>,
    calls: &mut Vec<Call>,
    table: &mut Table,
) {
    let tool = import.required(fields, "tool");
    let arguments = fields.get("arguments");
    let texts = arguments.filter(|node| has_convertible_text(node));
    let texts = texts.map(|_| fields.key_span("arguments"));
    calls.extend(tool.map(|tool| Call { tool: tool.to_owned(), texts }));
    table.set_some("tool", tool);
    if let Some(node) = arguments {
        import.map(Some(node));
        table.set("arguments", values(import, node, scope));
    }
}

/// Returns `true` if a value contains a template, or a text that is JSON such as `42`. The schema
/// of a tool can convert both to another type.
fn has_convertible_text(node: &Node) -> bool {
    match &node.content {
        Content::Scalar(Value::String(text)) => {
            text.contains("{{") || serde_json::from_str::<Value>(text).is_ok()
        }
        Content::Scalar(_) => false,
        Content::List(list) => list.iter().any(has_convertible_text),
        Content::Map(map) => map.iter().any(|member| has_convertible_text(&member.value)),
    }
}

/// Translates the templates in a value, also in nested lists and maps.
fn values(import: &mut Import<'_>, node: &Node, scope: Scope<'_>) -> Value {
    match &node.content {
        Content::Scalar(Value::String(_)) => {
            template(import, node, scope, translate::value).unwrap_or_default().into()
        }
        Content::Scalar(value) => value.clone(),
        Content::List(list) => list.iter().map(|node| values(import, node, scope)).collect(),
        Content::Map(map) => {
            let pairs = map.iter();
            let pairs =
                pairs.map(|member| (member.key.clone(), values(import, &member.value, scope)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
    }
}

fn template(
    import: &mut Import<'_>,
    node: &Node,
    scope: Scope<'_>,
    translate: Translate,
) -> Option<String> {
    // `condition: true` is a boolean in YAML.
    let text = match &node.content {
        Content::Scalar(Value::Bool(value)) => value.to_string(),
        _ => import.text(node)?.to_owned(),
    };
    let reads_text = Cell::new(false);
    let translated = translate(&text, Scope { reads_text: Some(&reads_text), ..scope });
    if reads_text.get() {
        let message = "if a tool returns structured content that is a list, the list is the \
                       output of its step; ToolHive ignores it and uses the text";
        import.differs_once(message, &node.span);
    }
    match translated {
        Ok(translated) => Some(translated),
        Err(error) => {
            import.template(error, node);
            None
        }
    }
}

fn on_error(import: &mut Import<'_>, node: Option<&Node>) -> Option<Value> {
    let node = node?;
    let known = ["action", "retryCount", "retryDelay", "maxRetries"];
    let fields = import.fields(node, &known, &[])?;
    let action = import.word(fields.get("action")?, &["abort", "continue", "retry"])?;
    let mut count = import.number(fields.get("retryCount"));
    if let Some(node) = fields.get("maxRetries") {
        let span = fields.key_span("maxRetries");
        if action == "retry" && count.is_none() {
            count = import.number(Some(node));
            import.differs("`maxRetries` is read as `retryCount`; ToolHive ignores it", &span);
        } else {
            import.differs("`maxRetries` has no effect in ToolHive and is left out", &span);
        }
    }
    let delay = import.duration(fields.get("retryDelay"));
    match action {
        "continue" => Some("continue".into()),
        "retry" => {
            let mut retry = json!({ "action": "retry" });
            match count {
                None | Some(0) => {
                    let span = fields.key_span("action");
                    import.mistake("`retry` needs a `retryCount` of at least 1", &span);
                }
                Some(count) => retry["retry_count"] = count.min(MAX_TOOLHIVE_RETRIES).into(),
            }
            if count.is_some_and(|count| count > MAX_TOOLHIVE_RETRIES) {
                let message =
                    format!("`retryCount` is reduced to {MAX_TOOLHIVE_RETRIES}, as in ToolHive");
                import.differs(message, &fields.key_span("retryCount"));
            }
            if let Some(delay) = delay {
                retry["delay"] = delay.into();
            }
            Some(retry)
        }
        _ => None,
    }
}

fn elicitation(import: &mut Import<'_>, fields: &Fields<'_>, scope: Scope<'_>, table: &mut Table) {
    match fields.get("message") {
        Some(node) => table.set_some("message", template(import, node, scope, translate::text)),
        None => {
            import.required(fields, "message");
        }
    }
    match fields.get("schema") {
        Some(node) => {
            reject_nulls(import, node);
            table.set("schema", node.to_json());
        }
        None => import.mistake("`schema` is required for a question", &fields.key_span("id")),
    }
    table.set_some("timeout", import.duration(fields.get("timeout")));
    for (key, own) in [("onDecline", "on_decline"), ("onCancel", "on_cancel")] {
        let Some(node) = fields.get(key) else { continue };
        let Some(inner) = import.fields(node, &["action"], &[]) else { continue };
        let words = ["abort", "continue", "skip_remaining"];
        let action = inner.get("action").and_then(|node| import.word(node, &words));
        if action == Some("skip_remaining") {
            let message = "`skip_remaining` skips the remaining steps; ToolHive runs them";
            import.differs(message, &node.span);
        }
        table.set_some(own, action.filter(|action| *action != "abort"));
    }
    table.set_some("on_error", on_error(import, fields.get("onError")));
}

fn for_each(
    import: &mut Import<'_>,
    fields: &Fields<'_>,
    scope: Scope<'_>,
    calls: &mut Vec<Call>,
    table: &mut Table,
) {
    match fields.get("collection") {
        Some(node) => {
            table.set_some("collection", template(import, node, scope, translate::value));
        }
        None => import.mistake("`collection` is required", &fields.key_span("id")),
    }
    let item_var = import.optional(fields, "itemVar");
    table.set_some("item_var", item_var.filter(|name| *name != "item"));
    table.set_some("max_parallel", import.number(fields.get("maxParallel")));
    table.set_some("max_iterations", import.number(fields.get("maxIterations")));
    let Some(node) = fields.get("step") else {
        import.mistake("`step` is required for a `forEach`", &fields.key_span("id"));
        return;
    };
    let ignored = ["condition", "timeout", "defaultResults", "dependsOn"];
    let known = ["id", "type", "tool", "arguments", "onError"];
    let Some(inner) = import.fields(node, &known, &ignored) else { return };
    if let Some(node) = inner.get("type") {
        import.word(node, &["tool"]);
    }
    let scope = Scope { item_var: Some(item_var.unwrap_or("item")), ..scope };
    table.locate(&inner);
    call(import, &inner, scope, calls, table);
    if let Some(timeout) = import.duration(fields.get("timeout")) {
        let message = "`timeout` applies to each call of the loop; in ToolHive, to all together";
        import.differs(message, &fields.key_span("timeout"));
        table.set("timeout", timeout);
    }
    let mut each = on_error(import, inner.get("onError")).filter(Value::is_object);
    let outer = on_error(import, fields.get("onError"));
    let goes_on = outer.as_ref().and_then(Value::as_str) == Some("continue");
    if outer.as_ref().is_some_and(Value::is_object) {
        let message =
            "`retry` of a `forEach` has no effect in ToolHive and is left out; retry its step";
        import.differs(message, &fields.key_span("onError"));
    }
    match &mut each {
        Some(retry) if goes_on => retry["then"] = "continue".into(),
        Some(_) => {}
        None => each = goes_on.then(|| "continue".into()),
    }
    table.set_some("on_error", each);
}

fn output(import: &mut Import<'_>, node: &Node, scope: Scope<'_>) -> Option<Table> {
    let fields = import.fields(node, &["properties", "required"], &[])?;
    let mut table = Table::from_fields("[composite_tools.output]", &fields);
    let required = import.texts(fields.get("required"));
    table.set_some("required", (!required.is_empty()).then_some(required));
    for member in import.map(fields.get("properties")) {
        if let Some(property) = property(import, &member.value, scope) {
            table.set_in("properties", &member.key, property, &member.key_span);
        }
    }
    if table.is_empty() {
        import.mistake("`properties` must have at least one property", &node.span);
    }
    Some(table)
}

fn property(import: &mut Import<'_>, node: &Node, scope: Scope<'_>) -> Option<Value> {
    let known = ["type", "description", "value", "properties", "default"];
    let fields = import.fields(node, &known, &[])?;
    let mut property = json!({ "type": import.required(&fields, "type")? });
    if let Some(description) = import.optional(&fields, "description") {
        property["description"] = description.trim_end().into();
    }
    if let Some(node) = fields.get("value") {
        let value = template(import, node, scope, translate::value);
        property["value"] = value.unwrap_or_default().into();
    }
    if let Some(node) = fields.get("properties") {
        let inner = import.map(Some(node)).iter();
        let inner = inner.filter_map(|member| {
            Some((member.key.clone(), self::property(import, &member.value, scope)?))
        });
        property["properties"] = Value::Object(inner.collect::<Map<_, _>>());
    }
    if let Some(node) = fields.get("default") {
        property["default"] = node.to_json();
    }
    Some(property)
}
