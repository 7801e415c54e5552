//! Questions of definitions, and the use of their answers.

use std::time::Duration;

use mcp_composite::{
    composite::{
        CompositeLayer, CompositeTool, DefinitionErrors, Elicitation, ForEach, JsonType, OnError,
        OnRefusal, Output, OutputProperty, Plan, Retry, Step, ToolCall, Workflow,
    },
    message::Request,
    testing::Server,
};
use rmcp::model::{ElicitationSchema, JsonObject, Tool};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::scripted::object;

/// A workflow with these steps.
fn workflow(steps: impl IntoIterator<Item = Step>) -> CompositeTool {
    CompositeTool::workflow("deploy", "Deploys", steps)
}

/// A question whether to deploy, and to which environment.
fn ask() -> Step {
    Step::new("ask", elicitation())
}

fn elicitation() -> Elicitation {
    let form = json!({
        "properties": { "env": { "type": "string" }, "note": { "type": "string" } },
        "required": ["env"],
    });
    Elicitation::new("Deploy?", form)
}

fn mistakes(composite: CompositeTool) -> String {
    CompositeLayer::new([composite]).map_or_else(|errors| errors.to_string(), |_| String::new())
}

/// Returns the errors in the schema of a question, without their paths.
fn mistakes_of(schema: Value) -> Vec<String> {
    let composite = workflow([Step::new("ask", Elicitation::new("Deploy?", schema))]);
    let errors: Result<_, DefinitionErrors> = CompositeLayer::new([composite]);
    let prefix = "composite `deploy` at `steps[0].schema";
    let text = errors.map_or_else(|errors| errors.to_string(), |_| String::new());
    text.lines()
        .map(|line| line.strip_prefix(prefix).unwrap_or(line).trim_start_matches('.').to_owned())
        .collect()
}

fn remarks(steps: impl IntoIterator<Item = Step>) -> Vec<String> {
    let layer = CompositeLayer::new([workflow(steps)]).unwrap_or_else(|error| panic!("{error}"));
    layer.remarks()
}

async fn listed(composite: CompositeTool) -> Option<Tool> {
    let server = Server::new().says("go", "gone");
    let service = CompositeLayer::new([composite]).unwrap().layer(server);
    let reply = service.oneshot(Request::list_tools()).await.unwrap();
    reply.tools().unwrap().tools.iter().find(|tool| tool.name == "deploy").cloned()
}

/// A form with fields of all types.
fn everything() -> Value {
    json!({
        "type": "object",
        "title": "Deployment",
        "description": "Of {{ input.release }}",
        "properties": {
            "name": { "type": "string", "title": "Who", "minLength": 1, "maxLength": 20, "default": "Ann" },
            "mail": { "type": "string", "format": "email", "description": "$input.hint" },
            "page": { "type": "string", "format": "uri" },
            "day": { "type": "string", "format": "date" },
            "time": { "type": "string", "format": "date-time" },
            "count": { "type": "integer", "minimum": -1, "maximum": 5, "default": 3 },
            "share": { "type": "number", "minimum": 0.5, "maximum": 1.5, "default": 1.0 },
            "sure": { "type": "boolean", "default": false },
            "size": { "type": "string", "enum": ["s", "l"], "default": "s" },
            "price": { "type": "string", "enum": ["$$5", "$$9"], "enumNames": ["Five", "{{ input.release }}"] },
            "env": { "type": "string", "oneOf": [{ "const": "prod", "title": "Production" }] },
            "days": {
                "type": "array", "minItems": 1, "maxItems": 2, "default": ["mo"],
                "items": { "type": "string", "enum": ["mo", "tu"] },
            },
            "teams": {
                "type": "array",
                "items": { "anyOf": [{ "const": "a", "title": "$input.release" }] },
            },
        },
        "required": ["name", "teams"],
    })
}

#[test]
fn form_keywords_are_kept_and_only_texts_are_evaluated() {
    let composite =
        workflow([Step::new("ask", Elicitation::new("Deploy {{ input.release }}?", everything()))]);
    let input = object(json!({ "release": "1.2", "hint": "Yours" }));
    let preview = Plan::new(composite).unwrap().preview(input).unwrap();
    let asks = preview.waves[0].steps[0].asks.as_ref().unwrap();

    let mut expected = everything();
    expected["description"] = json!("Of 1.2");
    let properties = &mut expected["properties"];
    properties["mail"]["description"] = json!("Yours");
    properties["price"]["enum"] = json!(["$5", "$9"]);
    properties["price"]["enumNames"][1] = json!("1.2");
    properties["teams"]["items"]["anyOf"][0]["title"] = json!("1.2");
    assert_eq!(asks.message, "Deploy 1.2?");
    assert_eq!(asks.schema, expected);

    let sent: ElicitationSchema = serde_json::from_value(asks.schema.clone()).unwrap();
    assert_eq!(serde_json::to_value(sent).unwrap(), with_floats(expected));
}

/// Returns a schema with the bounds of numbers as floats, as they are sent.
fn with_floats(mut schema: Value) -> Value {
    let share = &mut schema["properties"]["share"];
    for key in ["minimum", "maximum", "default"] {
        share[key] = json!(share[key].as_f64());
    }
    schema
}

#[test]
fn omitted_form_keywords_are_filled_in() {
    for schema in [json!({}), json!({ "type": "object" }), json!({ "properties": {} })] {
        let composite = workflow([Step::new("ask", Elicitation::new("Deploy?", schema))]);
        let preview = Plan::new(composite).unwrap().preview(JsonObject::new()).unwrap();
        let asks = preview.waves[0].steps[0].asks.as_ref().unwrap();
        assert_eq!(asks.schema, json!({ "type": "object", "properties": {} }));
    }
}

#[test]
fn unsupported_form_schema_is_rejected() {
    let property = |property: Value| json!({ "properties": { "a": property } });
    for (schema, mistake) in [
        (json!([]), "`: `schema` is an array: expected an object"),
        (json!({ "type": "array" }), "type`: `type` is \"array\": expected \"object\""),
        (
            json!({ "a": { "type": "string" } }),
            "a`: unknown keyword `a` of a form: expected one of `$schema`, `type`, `title`, `description`, `properties`, `required`",
        ),
        (
            json!({ "require": [] }),
            "require`: unknown keyword `require` of a form: did you mean `required`?",
        ),
        (json!({ "properties": [] }), "properties`: `properties` is an array: expected an object"),
        (
            json!({ "properties": { "env": { "type": "string" } }, "required": ["enf", 1] }),
            "required[0]`: unknown property `enf`: did you mean `env`?\nrequired[1]`: an element of `required` is 1: expected a name",
        ),
        (json!({ "required": "a" }), "required`: `required` is \"a\": expected an array of names"),
        (property(json!("string")), "properties.a`: `a` is \"string\": expected an object"),
        (property(json!({})), "properties.a`: missing `type`: a property needs it"),
        (
            property(json!({ "type": "object", "properties": {} })),
            "properties.a.type`: unknown type `object` of a property: a form is flat, expected `string`, `number`, `integer`, `boolean`, or `array` for several choices",
        ),
        (
            property(json!({ "type": "strng" })),
            "properties.a.type`: unknown type `strng` of a property: did you mean `string`?: a form is flat, expected `string`, `number`, `integer`, `boolean`, or `array` for several choices",
        ),
        (
            property(json!({ "type": ["string", "null"] })),
            "properties.a.type`: `type` is an array: expected the name of a type",
        ),
        (
            property(json!({ "$ref": "#/$defs/a", "type": "string" })),
            "properties.a.\"$ref\"`: unknown keyword `$ref` of a string",
        ),
        (
            property(json!({ "type": "string", "pattern": "a+" })),
            "properties.a.pattern`: unknown keyword `pattern` of a string: expected one of `type`, `title`, `description`, `minLength`, `maxLength`, `format`, `default`, `enum`, `oneOf`",
        ),
        (
            property(json!({ "type": "string", "min_length": 1 })),
            "properties.a.min_length`: unknown keyword `min_length` of a string: did you mean `minLength`?",
        ),
        (
            property(json!({ "type": "string", "minLength": -1 })),
            "properties.a.minLength`: `minLength` is -1: expected an integer from 0 to 4294967295",
        ),
        (
            property(json!({ "type": "string", "minLength": 2, "maxLength": 1 })),
            "properties.a.minLength`: `minLength` is more than `maxLength`",
        ),
        (
            property(json!({ "type": "string", "format": "emial" })),
            "properties.a.format`: unknown format `emial`: did you mean `email`?",
        ),
        (
            property(json!({ "type": "string", "default": 1 })),
            "properties.a.default`: the default does not fit: ",
        ),
        (
            property(json!({ "type": "string", "title": 1 })),
            "properties.a.title`: `title` is 1: expected a string",
        ),
        (
            property(json!({ "type": "string", "enum": ["a"], "maxLength": 1 })),
            "properties.a.maxLength`: unknown keyword `maxLength` of a choice",
        ),
        (
            property(json!({ "type": "string", "enum": "a" })),
            "properties.a.enum`: `enum` is \"a\": expected an array of strings",
        ),
        (
            property(json!({ "type": "string", "enum": ["a"], "enumNames": "A" })),
            "properties.a.enumNames`: `enumNames` is \"A\": expected an array of strings",
        ),
        (
            property(json!({ "type": "string", "enum": ["a"], "enumNames": [1] })),
            "properties.a.enumNames[0]`: a name is 1: expected a string",
        ),
        (
            property(json!({ "type": "string", "oneOf": "a" })),
            "properties.a.oneOf`: `oneOf` is \"a\": expected an array of named choices",
        ),
        (
            property(json!({ "type": "string", "oneOf": [] })),
            "properties.a.oneOf`: no choices: expected at least one",
        ),
        (
            property(json!({ "type": "string", "oneOf": ["a"] })),
            "properties.a.oneOf[0]`: a choice is \"a\": expected an object with `const` and `title`",
        ),
        (
            property(json!({ "type": "string", "oneOf": [
                { "const": "a", "title": "A" }, { "const": "a", "title": "B" },
            ] })),
            "properties.a.oneOf[1].const`: duplicate choice `a`",
        ),
        (
            property(json!({ "type": "array", "items": "a" })),
            "properties.a.items`: `items` is \"a\": expected an object",
        ),
        (
            property(json!({ "type": "array", "items": { "enum": ["a"] } })),
            "properties.a.items`: missing `type`: `items` needs it",
        ),
        (
            property(json!({ "type": "string", "enum": [] })),
            "properties.a.enum`: no choices: expected at least one",
        ),
        (
            property(json!({ "type": "string", "enum": ["a", "a", 1] })),
            "properties.a.enum[1]`: duplicate choice `a`\nproperties.a.enum[2]`: a choice is 1: expected a string",
        ),
        (
            property(json!({ "type": "string", "enum": ["a"], "enumNames": [] })),
            "properties.a.enumNames`: 0 names of 1 choices: expected one for each",
        ),
        (
            property(json!({ "type": "string", "enum": ["a"], "default": "b" })),
            "properties.a.default`: the default does not fit: ",
        ),
        (
            property(json!({ "type": "string", "oneOf": [{ "const": "a" }] })),
            "properties.a.oneOf[0]`: missing `title`: a named choice needs it",
        ),
        (
            property(json!({ "type": "integer", "minimum": 0.5 })),
            "properties.a.minimum`: `minimum` is 0.5: expected an integer of 64 bits",
        ),
        (
            property(json!({ "type": "integer", "maximum": 1, "default": 2 })),
            "properties.a.default`: the default does not fit: ",
        ),
        (
            property(json!({ "type": "number", "minimum": "1" })),
            "properties.a.minimum`: `minimum` is \"1\": expected a number",
        ),
        (
            property(json!({ "type": "boolean", "enum": [true] })),
            "properties.a.enum`: unknown keyword `enum` of a boolean",
        ),
        (property(json!({ "type": "array" })), "properties.a`: missing `items`: an array needs it"),
        (
            property(json!({ "type": "array", "items": { "type": "object" } })),
            "properties.a.items`: missing `enum`: `items` needs it",
        ),
        (
            property(json!({ "type": "array", "items": { "type": "integer", "enum": ["a"] } })),
            "properties.a.items.type`: `type` is \"integer\": expected \"string\"",
        ),
        (
            property(json!({
                "type": "array", "maxItems": 1, "default": ["a", "b"],
                "items": { "type": "string", "enum": ["a", "b"] },
            })),
            "properties.a.default`: the default does not fit: ",
        ),
        (
            property(json!({ "type": "string", "minLength": "{{ input.a }}" })),
            "properties.a.minLength`: it must be constant: expected references and templates in `title`, `description`, `enum`, `default` and the names of choices, and `$$` for a literal `$`",
        ),
        (
            property(json!({ "type": "string", "oneOf": "$input.a" })),
            "properties.a.oneOf`: it must be constant: expected references",
        ),
        (
            property(json!({ "type": "string", "enum": ["$input.a"], "enumNames": "a" })),
            "properties.a.enumNames`: `enumNames` is \"a\": expected an array of strings",
        ),
        (
            property(json!({ "type": "string", "title": "$inptu.a" })),
            "properties.a.title`: unknown reference `$inptu.a`",
        ),
    ] {
        let errors = mistakes_of(schema.clone()).join("\n");
        // The omitted part of the error is tested elsewhere.
        assert!(errors.starts_with(mistake), "{schema}: {errors}");
        assert_eq!(errors.lines().count(), mistake.lines().count(), "{schema}: {errors}");
    }
}

#[test]
fn form_size_and_property_count_are_limited() {
    let properties = |count: usize| -> Value {
        let all = (0..count).map(|at| (format!("p{at}"), json!({ "type": "boolean" })));
        json!({ "properties": Value::Object(all.collect()) })
    };
    assert_eq!(mistakes_of(properties(100)), [""; 0]);
    assert_eq!(mistakes_of(properties(101)), ["properties`: 101 properties: expected at most 100"]);
    let long = json!({ "title": "a".repeat(64 * 1024) });
    assert_eq!(mistakes_of(long), ["`: 65548 bytes of JSON: expected at most 65536"]);
}

#[test]
fn elicitation_requires_a_message_and_rejects_delays() {
    let blank = workflow([Step::new("ask", Elicitation::new(" ", json!({})))]);
    assert_eq!(mistakes(blank), "composite `deploy` at `steps[0].message`: `message` is blank");

    let slowly = Retry::times(2).delay(Duration::from_secs(2));
    let expected = "composite `deploy` at `steps[0].on_error.delay`: `delay` cannot be used with `type = \"elicitation\"`";
    assert_eq!(mistakes(workflow([ask().on_error(OnError::Retry(slowly))])), expected);
    assert_eq!(mistakes(workflow([ask().on_error(OnError::Retry(Retry::times(2)))])), "");
}

#[test]
fn reference_to_an_unknown_answer_field_is_rejected() {
    for (reference, mistake) in [
        ("$steps.ask.output.content.env", None),
        ("$steps.ask.output.action", None),
        ("$steps.ask.status", None),
        (
            "$steps.ask.output.content.enf",
            Some("the answer to step `ask` has no `enf`: did you mean `env`?"),
        ),
        (
            "$steps.ask.output.env",
            Some("the answer to step `ask` has no `env`: did you mean `content.env`?"),
        ),
        (
            "$steps.ask.output.acton",
            Some("the answer to step `ask` has no `acton`: did you mean `action`?"),
        ),
        (
            "{{ steps.ask.content.env }}",
            Some(
                "step `ask` has no `content`, which only the result of one tool has: use `$steps.ask.output.content`",
            ),
        ),
        (
            "$steps.ask.text",
            Some(
                "step `ask` has no `text`, which only the result of one tool has: use `$steps.ask.output.content`",
            ),
        ),
    ] {
        let go = Step::new("go", ToolCall::new("go").arguments(json!({ "to": reference })));
        let errors = mistakes(workflow([ask(), go]));
        let prefix = "composite `deploy` at `steps[1].arguments.to`: ";
        assert_eq!(errors.strip_prefix(prefix), mistake, "{reference}: {errors}");
    }
}

#[test]
fn loop_has_an_output_but_no_tool_result() {
    for (reference, mistake) in [
        ("$steps.each.output.count", None),
        ("$steps.each.text?", None),
        (
            "$steps.each.text",
            Some(
                "step `each` has no `text`, which only the result of one tool has: use `$steps.each.output`",
            ),
        ),
        (
            "{{ steps.each.content }}",
            Some(
                "step `each` has no `content`, which only the result of one tool has: use `$steps.each.output`",
            ),
        ),
    ] {
        let each = Step::new("each", ForEach::new(json!([1, 2]), ToolCall::new("go")));
        let go = Step::new("go", ToolCall::new("go").arguments(json!({ "to": reference })));
        let errors = mistakes(workflow([each, go]));
        let prefix = "composite `deploy` at `steps[1].arguments.to`: ";
        assert_eq!(errors.strip_prefix(prefix), mistake, "{reference}: {errors}");
    }
}

#[test]
fn reference_to_a_skippable_question_needs_a_default() {
    let go = || {
        Step::new(
            "go",
            ToolCall::new("go").arguments(json!({ "to": "$steps.ask.output.content.env" })),
        )
    };
    let sometimes = || ask().condition("input.sure");
    let errors = mistakes(workflow([sometimes(), go()]));
    assert!(
        errors.contains("step `ask` can be skipped or fail, and has no `default_results`"),
        "{errors}"
    );
    let with_default = sometimes().default_results(json!({ "content": { "env": "staging" } }));
    assert_eq!(mistakes(workflow([with_default, go()])), "");
    let never = mistakes(workflow([ask().default_results(json!({})), go()]));
    assert!(never.contains("`default_results` are never used"), "{never}");
}

#[test]
fn references_to_missing_answers_are_reported() {
    let go = |reference: &str| {
        Step::new("go", ToolCall::new("go").arguments(json!({ "to": reference })))
    };
    let env = "$steps.ask.output.content.env";
    let goes_on = || Step::new("ask", elicitation().on_cancel(OnRefusal::Continue));
    let unanswered = "composite `deploy`: step `go` needs `$steps.ask.output.content.env`, but step `ask` can complete without an answer: end it in `?`, or let a condition look at the `action`";
    let left_out = "composite `deploy`: step `go` needs `$steps.ask.output.content.note`, but the user may leave it out when answering step `ask`: end it in `?`, or let a condition look at the `action`";
    for (question, then, remark) in [
        (ask(), go(env), None),
        (Step::new("ask", elicitation().on_decline(OnRefusal::SkipRemaining)), go(env), None),
        (goes_on(), go(env), Some(unanswered)),
        (goes_on(), go("$steps.ask.output.content.env?"), None),
        (goes_on(), go("{{ steps.ask.output.content.env | default('staging') }}"), None),
        (goes_on(), go(env).condition("steps.ask.output.action == 'accept'"), None),
        (goes_on(), go("$steps.ask.output.action"), None),
        (ask(), go("$steps.ask.output.content.note"), Some(left_out)),
        (ask(), go("$steps.ask.output.content.note?"), None),
    ] {
        let remarks = remarks([question, then]);
        assert_eq!(remarks.iter().map(String::as_str).collect::<Vec<_>>(), Vec::from_iter(remark));
    }
}

#[test]
fn question_that_no_step_waits_for_gets_a_remark() {
    let ask = || Step::new("ask", Elicitation::new("Deploy?", json!({})));
    let go = || Step::new("go", "deploy");
    let remark = "composite `deploy`: no step waits for the question of step `ask`: step `go` may call its tool before the user answers, unless its `depends_on` names the question";
    let ask_with = |change: fn(Elicitation) -> Elicitation| {
        Step::new("ask", change(Elicitation::new("Deploy?", json!({}))))
    };
    let goes_on =
        |ask: Elicitation| ask.on_decline(OnRefusal::Continue).on_cancel(OnRefusal::Continue);
    for (steps, expected) in [
        (vec![ask(), go()], Some(remark)),
        (vec![go(), ask()], Some(remark)),
        (vec![ask_with(|ask| ask.on_decline(OnRefusal::Continue)), go()], Some(remark)),
        (vec![ask_with(goes_on), go()], None),
        (vec![ask(), go().depends_on(["ask"])], None),
        (vec![ask(), go().condition("steps.ask.output.action == 'accept'")], None),
        // Another step waits, so the author knows the rule.
        (vec![ask(), go(), Step::new("tell", "mail").depends_on(["ask"])], None),
        // All calls have finished before.
        (
            vec![Step::new("first", "plan"), go().depends_on(["first"]), ask().depends_on(["go"])],
            None,
        ),
    ] {
        let remarks = remarks(steps);
        assert_eq!(
            remarks.iter().map(String::as_str).collect::<Vec<_>>(),
            Vec::from_iter(expected)
        );
    }
    let pipeline = CompositeTool::pipeline("deploy", "Deploys", [ask(), go()]);
    assert_eq!(CompositeLayer::new([pipeline]).unwrap().remarks(), [""; 0]);
}

#[test]
fn forms_that_ask_for_secrets_are_rejected() {
    let named = |name: &str| {
        let form = json!({ "properties": { name: { "type": "string" } } });
        remarks([Step::new("ask", Elicitation::new("Deploy?", form))])
    };
    for name in ["password", "api_key", "apiKey", "API-Key", "accessToken", "client secret", "PIN"]
    {
        let expected = format!(
            "composite `deploy`: step `ask` asks for `{name}`: MCP forbids to ask for passwords, keys and other secrets in a form"
        );
        assert_eq!(named(name), [expected]);
    }
    for name in ["env", "max_tokens", "secretary", "key", "pinned", "monkey"] {
        assert_eq!(named(name), [""; 0], "{name}");
    }
}

#[tokio::test]
async fn references_of_a_question_become_input_properties() {
    let form = json!({ "properties": { "env": { "type": "string", "title": "$input.label?" } } });
    let composite =
        workflow([Step::new("ask", Elicitation::new("Deploy {{ input.release }}?", form))]);
    let tool = listed(composite).await.unwrap();
    let expected = json!({
        "type": "object",
        "properties": { "label": {}, "release": {} },
        "required": ["release"],
    });
    assert_eq!(Value::Object((*tool.input_schema).clone()), expected);
}

#[tokio::test]
async fn workflow_of_questions_is_listed_as_read_only() {
    let question = Step::new("ask", Elicitation::new("Deploy?", json!({})));
    let tool = listed(workflow([question])).await.unwrap();
    let annotations = tool.annotations.unwrap();
    assert_eq!(annotations.read_only_hint, Some(true));
    assert_eq!(annotations.destructive_hint, Some(false));
    assert_eq!(annotations.open_world_hint, Some(false));
}

#[tokio::test]
async fn answer_of_the_last_step_determines_the_output_schema() {
    let form = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {
            "env": { "type": "string", "title": "{{ input.label }}", "description": "Where" },
            "size": { "type": "string", "enum": ["s"], "enumNames": ["$input.label"] },
        },
    });
    let question = || Step::new("ask", Elicitation::new("Deploy?", form.clone()));
    let tool = listed(workflow([question()])).await.unwrap();
    let expected = json!({
        "type": "object",
        "properties": {
            "action": { "enum": ["accept", "decline", "cancel", "timeout"] },
            "content": {
                "type": "object",
                "properties": {
                    // Values that are unknown before a run are not included.
                    "env": { "type": "string", "description": "Where" },
                    "size": { "type": "string", "enum": ["s"] },
                },
            },
        },
        "required": ["action"],
    });
    assert_eq!(tool.output_schema.map(|schema| Value::Object((*schema).clone())), Some(expected));

    let sometimes = workflow([question().condition("input.sure")]);
    assert_eq!(listed(sometimes).await.unwrap().output_schema, None);
}

#[tokio::test]
async fn last_step_skippable_by_a_person_has_no_output_schema() {
    for (on_decline, promises) in [(OnRefusal::Abort, true), (OnRefusal::SkipRemaining, false)] {
        let last = Step::new("last", Elicitation::new("Really?", json!({})));
        let steps =
            [Step::new("ask", elicitation().on_decline(on_decline)), last.depends_on(["ask"])];
        let tool = listed(workflow(steps)).await.unwrap();
        assert_eq!(tool.output_schema.is_some(), promises, "{on_decline:?}");
    }
}

#[test]
fn preview_shows_questions() {
    let form =
        json!({ "properties": { "env": { "type": "string", "title": "{{ steps.go.text }}" } } });
    let question = Step::new(
        "ask",
        Elicitation::new("Deploy {{ input.release }}?", form)
            .on_decline(OnRefusal::SkipRemaining)
            .on_cancel(OnRefusal::Continue),
    )
    .timeout(Duration::from_secs(60));
    let composite = workflow([Step::new("go", "go"), question]);
    let input = object(json!({ "release": "1.2" }));
    let preview = Plan::new(composite).unwrap().preview(input).unwrap();

    let expected = r#"deploy
   1  go   go {}
   2  ask  ask "Deploy 1.2?"
           to fill in {"properties":{"env":{"title":"{{ steps.go.text }}","type":"string"}},"type":"object"}
           if declined skip_remaining, if cancelled continue
"#;
    assert_eq!(preview.to_string(), expected);
    let asks = serde_json::to_value(&preview).unwrap()["waves"][1]["steps"][0]["asks"].take();
    assert_eq!(asks["on_decline"], "skip_remaining");
    assert_eq!(asks["timeout_ms"], 60_000);
}

#[test]
fn preview_shows_questions_that_cannot_be_asked() {
    let composite = workflow([Step::new(
        "ask",
        Elicitation::new("Deploy {{ input.release.name }}?", json!({})),
    )]);
    let input = object(json!({ "release": 1 }));
    let preview = Plan::new(composite).unwrap().preview(input).unwrap();
    let asks = preview.waves[0].steps[0].asks.as_ref().unwrap();
    assert_eq!(asks.message, "Deploy {{ input.release.name }}?");
    assert!(asks.error.is_some());
}

#[test]
fn output_with_a_default_may_refer_to_a_missing_answer() {
    let value = |default: Option<Value>| {
        let property = OutputProperty::new(JsonType::String, "$steps.ask.output.content.env");
        let property = property.description("Where");
        default.map_or(property.clone(), |default| property.default(default))
    };
    for (default, count) in [(None, 1), (Some(json!("nowhere")), 0)] {
        let output = Output::new().property("env", value(default));
        let workflow =
            Workflow::new([Step::new("ask", elicitation().on_decline(OnRefusal::Continue))]);
        let composite = CompositeTool::new("deploy", "Deploys", workflow.output(output));
        let layer = CompositeLayer::new([composite]).unwrap();
        assert_eq!(layer.remarks().len(), count, "{:?}", layer.remarks());
    }
}
