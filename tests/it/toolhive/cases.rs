//! The behavior of imported workflows, as ToolHive's tests define it, and where it differs on
//! purpose.

use std::time::Duration;

use mcp_composite::{
    config::Config,
    testing::{self, Answer, Person, Server},
};
use rmcp::model::{CallToolResult, ContentBlock, Tool};
use serde_json::{Value, json};

/// Returns a file with the composite `run`, whose other keys are `body`.
fn file(body: &str) -> String {
    let mut lines = body.trim().lines();
    let first = lines.next().unwrap_or_default();
    let rest: Vec<_> = lines.collect();
    let indentation = rest.iter().map(|line| line.len() - line.trim_start().len()).min();
    let indentation = indentation.unwrap_or_default();
    let rest = rest.iter().map(|line| format!("  {}\n", &line[indentation..]));
    let head = format!("compositeTools:\n- name: run\n  description: A case\n  {first}\n");
    rest.fold(head, |file, line| file + &line)
}

fn config(body: &str) -> Config {
    let env = |_: &str| Some("http://be.example/mcp".to_owned());
    Config::from_toolhive_str_with_env(&file(body), env).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the messages of the mistakes in a composite.
fn mistakes(body: &str) -> Vec<String> {
    let error = Config::from_toolhive_str_with_env(&file(body), |_| None).unwrap_err();
    error.mistakes().iter().map(|mistake| mistake.message().to_owned()).collect()
}

async fn run(body: &str, server: &Server, input: Value) -> CallToolResult {
    let config = config(body);
    let service = testing::stack(&config, [("be", server.clone())]);
    testing::call(&service, "run", input).await
}

/// Returns the output of a run that completes.
async fn output(body: &str, server: &Server, input: Value) -> Value {
    let result = run(body, server, input).await;
    assert_eq!(result.is_error, Some(false), "{result:?}");
    result.structured_content.unwrap_or_default()
}

/// Returns the text of a run that fails.
async fn failure(body: &str, server: &Server, input: Value) -> String {
    let result = run(body, server, input).await;
    assert_eq!(result.is_error, Some(true), "{result:?}");
    result.content[0].as_text().unwrap().text.clone()
}

/// Returns the arguments that the tool `echo` receives.
async fn sent(arguments: &str, input: Value, answer: Value) -> Value {
    let server = Server::new().gives("first", answer).echoes("echo");
    let body = format!(
        "steps:\n- {{ id: first, tool: be.first }}\n\
         - {{ id: echo, tool: be.echo, dependsOn: [first], arguments: {arguments} }}"
    );
    output(&body, &server, input).await;
    server.arguments("echo").unwrap()
}

/// Adds tools that take a second.
fn slow(names: &[&str]) -> Server {
    names.iter().fold(Server::new(), |server, name| {
        server.tool(name, Answer::text(*name).after(Duration::from_secs(1)))
    })
}

// === Graph ===

#[tokio::test(start_paused = true)]
async fn independent_steps_overlap() {
    let server = slow(&["a", "b", "c"]);
    let body = "steps: [{ id: a, tool: be.a }, { id: b, tool: be.b }, { id: c, tool: be.c }]";
    run(body, &server, json!({})).await;
    assert_eq!(server.most_running(), 3);
}

#[tokio::test(start_paused = true)]
async fn dependent_steps_run_in_order() {
    let server = slow(&["a", "b", "c", "d", "e"]);
    let body = "
        steps:
        - { id: a, tool: be.a }
        - { id: b, tool: be.b }
        - { id: c, tool: be.c, dependsOn: [a] }
        - { id: d, tool: be.d, dependsOn: [a, b] }
        - { id: e, tool: be.e, dependsOn: [c, d] }
        ";
    run(body, &server, json!({})).await;
    let starts = ["a", "b", "c", "d", "e"].map(|tool| server.starts(tool)[0].as_secs());
    assert_eq!(starts, [0, 0, 1, 1, 2]);
}

/// The limit of steps that run at once is a constant in ToolHive, too.
#[tokio::test(start_paused = true)]
async fn ten_steps_run_at_once_at_most() {
    let server = slow(&["a"]);
    let steps = (0..25).map(|step| format!("- {{ id: s{step}, tool: be.a }}\n"));
    run(&format!("steps:\n{}", steps.collect::<String>()), &server, json!({})).await;
    assert_eq!((server.most_running(), server.called().len()), (10, 25));
}

/// Differs: in ToolHive, a slow step delays all steps of the next level.
#[tokio::test(start_paused = true)]
async fn slow_step_delays_only_its_dependants() {
    let server =
        slow(&["fast", "after"]).tool("slow", Answer::text("").after(Duration::from_secs(9)));
    let body = "
        steps:
        - { id: slow, tool: be.slow }
        - { id: fast, tool: be.fast }
        - { id: after, tool: be.after, dependsOn: [fast] }
        ";
    run(body, &server, json!({})).await;
    assert_eq!(server.starts("after"), [Duration::from_secs(1)]);
}

#[tokio::test(start_paused = true)]
async fn dropped_run_starts_no_further_step() {
    let server = slow(&["a", "b"]);
    let body = "steps: [{ id: a, tool: be.a }, { id: b, tool: be.b, dependsOn: [a] }]";
    let running = run(body, &server, json!({}));
    assert!(tokio::time::timeout(Duration::from_millis(500), running).await.is_err());
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!((server.called(), server.dropped()), (vec!["a".to_owned()], vec!["a".to_owned()]));
}

#[test]
fn invalid_graphs_are_rejected() {
    let expected = [
        ("steps: [{ id: a, tool: be.a, dependsOn: [a] }]", "a cycle of steps: `a`"),
        (
            "steps: [{ id: a, tool: be.a, dependsOn: [b] }, { id: b, tool: be.b, dependsOn: [a] }]",
            "a cycle of steps",
        ),
        ("steps: [{ id: a, tool: be.a, dependsOn: [none] }]", "`none`"),
        ("steps: [{ id: a, tool: be.a }, { id: a, tool: be.b }]", "`a`"),
        ("steps: [{ id: '', tool: be.a }]", "`id` is empty"),
        ("steps: []", "at least one step"),
    ];
    for (body, message) in expected {
        let mistakes = mistakes(body);
        assert!(mistakes[0].contains(message), "{body}: {mistakes:?}");
    }
    let steps = |count: usize| {
        let steps: Vec<_> =
            (0..count).map(|step| format!("{{ id: s{step}, tool: be.a }}")).collect();
        format!("steps: [{}]", steps.join(", "))
    };
    config(&steps(100));
    assert!(mistakes(&steps(101))[0].contains("100"));
}

// === Data ===

#[tokio::test(start_paused = true)]
async fn arguments_have_the_types_of_the_schema() {
    let schema = json!({
        "type": "object",
        "properties": {
            "integer": { "type": "integer" }, "number": { "type": "number" },
            "boolean": { "type": "boolean" }, "text": { "type": "string" },
            "nested": { "type": "object", "properties": {
                "ids": { "type": "array", "items": { "type": "integer" } },
                "on": { "type": "boolean" },
            } },
            "nullable": { "anyOf": [{ "type": "integer" }, { "type": "null" }] },
            "list": { "type": "array" },
        },
    });
    let tool = Tool::new("typed", "Has a schema", schema.as_object().unwrap().clone());
    let server = Server::new().tool_as(tool, Answer::echo());
    let body = r#"
        parameters: { type: object, properties: { x: {}, l: {}, big: {} } }
        steps:
        - id: typed
          tool: be.typed
          arguments:
            integer: "{{.params.x}}"
            number: "1.5"
            boolean: "true"
            text: "{{.params.big}}"
            nested: { ids: ["1", "{{.params.x}}"], "on": "false" }
            nullable: "42"
            list: "{{json .params.l}}"
        "#;
    output(body, &server, json!({ "x": "7", "l": [1, 2], "big": 1_234_567 })).await;
    // Differs: in ToolHive, a list is a text, and neither `42` nor 1234567 is converted.
    let expected = json!({
        "integer": 7, "number": 1.5, "boolean": true, "text": "1234567",
        "nested": { "ids": [1, 7], "on": false }, "nullable": 42, "list": [1, 2],
    });
    assert_eq!(server.arguments("typed"), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn templates_are_expanded_in_nested_values() {
    let arguments = r#"{ a: { b: ["{{.steps.first.output.x}}", 42] }, t: true, n: 1234567 }"#;
    let sent = sent(arguments, json!({}), json!({ "x": "deep" })).await;
    assert_eq!(sent, json!({ "a": { "b": ["deep", 42] }, "t": true, "n": 1_234_567 }));
}

#[tokio::test(start_paused = true)]
async fn outputs_keep_their_types() {
    let arguments = r#"{ n: "{{.steps.first.output.n}}", all: "{{.steps.first.output}}" }"#;
    let sent = sent(arguments, json!({}), json!({ "n": 1_234_567, "l": [1] })).await;
    // Differs: ToolHive sends the texts "1.234567e+06" and "map[l:[1] n:1.234567e+06]".
    assert_eq!(sent, json!({ "n": 1_234_567, "all": { "n": 1_234_567, "l": [1] } }));
}

#[tokio::test(start_paused = true)]
async fn content_has_a_key_per_block() {
    let answer = Answer::from_fn(|_| async {
        let blocks = vec![
            ContentBlock::text("one"),
            ContentBlock::text("two"),
            ContentBlock::image("aW1n", "image/png"),
            ContentBlock::embedded_text("file:///a", "inside"),
        ];
        Answer::from(CallToolResult::success(blocks))
    });
    let server = Server::new().tool("first", answer).echoes("echo");
    let body = r#"
        steps:
        - { id: first, tool: be.first }
        - id: echo
          tool: be.echo
          dependsOn: [first]
          arguments:
            text: "{{.steps.first.output.text}}"
            second: "{{.steps.first.content.text_1}}"
            image: "{{.steps.first.content.image_0}}"
            resource: "{{.steps.first.content.resource}}"
        "#;
    output(body, &server, json!({})).await;
    let expected = json!({ "text": "one", "second": "two", "image": "aW1n", "resource": "inside" });
    assert_eq!(server.arguments("echo"), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn output_and_content_are_separate() {
    let mut result = CallToolResult::success(vec![ContentBlock::text("in a text")]);
    result.structured_content = Some(json!({ "text": "structured" }));
    let server = Server::new().tool("first", Answer::from(result)).echoes("echo");
    let body = r#"
        steps:
        - { id: s, tool: be.first }
        - { id: echo, tool: be.echo, arguments: { o: "{{.steps.s.output.text}}", c: "{{.steps.s.content.text}}" } }
        "#;
    output(body, &server, json!({})).await;
    assert_eq!(server.arguments("echo"), Some(json!({ "o": "structured", "c": "in a text" })));
}

/// Differs: ToolHive ignores structured content that is an array, which MCP allows since
/// 2026-07-28, and uses the text.
#[tokio::test(start_paused = true)]
async fn structured_content_can_be_an_array() {
    let mut result = CallToolResult::success(vec![ContentBlock::text("two")]);
    result.structured_content = Some(json!(["a", { "id": 7 }]));
    let server = Server::new().tool("first", Answer::from(result)).echoes("echo");
    let body = r#"
        steps:
        - { id: s, tool: be.first }
        - id: echo
          tool: be.echo
          arguments: { all: "{{json .steps.s.output}}", text: "{{.steps.s.content.text}}" }
        "#;
    output(body, &server, json!({})).await;
    let expected = json!({ "all": ["a", { "id": 7 }], "text": "two" });
    assert_eq!(server.arguments("echo"), Some(expected));
}

/// Differs: ToolHive does not know the schema of a tool that clients do not see, and sends the
/// text.
#[tokio::test(start_paused = true)]
async fn arguments_of_a_hidden_tool_have_the_types_of_its_schema() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let tool = Tool::new("hidden", "Has a schema", schema.as_object().unwrap().clone());
    let server = Server::new().tool_as(tool, Answer::echo()).says("shown", "");
    let body = r#"steps: [{ id: s, tool: be.hidden, arguments: { n: "7" } }]"#;
    let filter = "aggregation: { tools: [{ workload: be, filter: [shown] }] }";
    let env = |_: &str| Some("http://be.example/mcp".to_owned());
    let config =
        Config::from_toolhive_str_with_env(&format!("{filter}\n{}", file(body)), env).unwrap();
    let service = testing::stack(&config, [("be", server.clone())]);
    let tools = testing::listed(&service).await;
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["be_shown", "run"]);
    testing::call(&service, "run", json!({})).await;
    assert_eq!(server.arguments("hidden"), Some(json!({ "n": 7 })));
}

/// Differs: ToolHive calls the tool with the text.
#[tokio::test(start_paused = true)]
async fn argument_of_a_wrong_type_fails_the_step() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let tool = Tool::new("typed", "Has a schema", schema.as_object().unwrap().clone());
    let server = Server::new().tool_as(tool, Answer::echo());
    let body = "steps: [{ id: typed, tool: be.typed, arguments: { n: abc } }]";
    assert!(failure(body, &server, json!({})).await.contains('n'));
    assert!(server.called().is_empty());
}

#[tokio::test(start_paused = true)]
async fn texts_with_json_are_parsed() {
    let body = r#"
        steps:
        - { id: s, tool: be.search }
        - { id: echo, tool: be.echo, dependsOn: [s], arguments: { id: "{{(index (fromJson .steps.s.output.text).papers 0).id}}" } }
        "#;
    let server = Server::new().says("search", r#"{"papers":[{"id":"x"}]}"#).echoes("echo");
    output(body, &server, json!({})).await;
    assert_eq!(server.arguments("echo"), Some(json!({ "id": "x" })));

    let server = Server::new().says("search", "no JSON").echoes("echo");
    assert!(failure(body, &server, json!({})).await.contains("JSON"));
    assert_eq!(server.called(), ["search"]);
}

#[tokio::test(start_paused = true)]
async fn parameters_have_defaults() {
    let server = Server::new().echoes("echo");
    let body = r#"
        parameters:
          type: object
          properties: { url: { type: string, default: "https://d" }, count: { type: integer, default: 42 } }
        steps:
        - { id: echo, tool: be.echo, arguments: { url: "{{.params.url}}", count: "{{.params.count}}" } }
        "#;
    output(body, &server, json!({})).await;
    assert_eq!(server.arguments("echo"), Some(json!({ "url": "https://d", "count": 42 })));
    output(body, &server, json!({ "count": 1 })).await;
    assert_eq!(server.arguments("echo"), Some(json!({ "url": "https://d", "count": 1 })));
}

/// Differs: ToolHive sends the text `<no value>`.
#[tokio::test(start_paused = true)]
async fn missing_values_are_left_out_or_an_error() {
    let server = Server::new().gives("first", json!({})).echoes("echo");
    let body = r#"
        parameters: { type: object, properties: { note: { type: string } } }
        steps: [{ id: echo, tool: be.echo, arguments: { note: "{{.params.note}}", in: "[{{.params.note}}]" } }]
        "#;
    output(body, &server, json!({})).await;
    assert_eq!(server.arguments("echo"), Some(json!({ "in": "[]" })));

    let body = r#"
        steps:
        - { id: first, tool: be.first }
        - { id: echo, tool: be.echo, arguments: { x: "{{.steps.first.output.gone}}" } }
        "#;
    let text = failure(body, &server, json!({})).await;
    assert!(text.contains("steps.first.output.gone"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn run_has_an_id_and_a_start() {
    let server = Server::new().echoes("echo");
    let body = r#"
        steps: [{ id: echo, tool: be.echo, arguments: { id: "{{.workflow.id}}", at: "{{.workflow.start_time}}" } }]
        output: { properties: { id: { type: string, description: The run, value: "{{.workflow.id}}" } } }
        "#;
    let output = output(body, &server, json!({})).await;
    let sent = server.arguments("echo").unwrap();
    assert_eq!(sent["id"], output["id"]);
    assert!(sent["at"].as_str().unwrap().ends_with('Z'), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn failures_do_not_repeat_arguments() {
    let server = Server::new().fails("login", "denied");
    let body = r#"
        parameters: { type: object, properties: { password: { type: string } } }
        steps: [{ id: login, tool: be.login, arguments: { password: "{{.params.password}}" } }]
        "#;
    let text = failure(body, &server, json!({ "password": "hunter2" })).await;
    assert!(text.contains("denied") && !text.contains("hunter2"), "{text}");
}

// === Conditions and default results ===

#[tokio::test(start_paused = true)]
async fn conditions_decide_whether_a_step_runs() {
    let expected = [
        (r#""""#, true),
        ("'true'", true),
        ("'True'", true),
        ("'false'", false),
        ("true", true),
        (r#""{{.params.yes}}""#, true),
        (r#""{{not .params.yes}}""#, false),
        (r#""{{if eq .params.yes true}}true{{else}}false{{end}}""#, true),
        (r#"'{{eq .steps.first.status "completed"}}'"#, true),
        // Differs: in ToolHive, `10` and the number of an output cannot be compared.
        (r#""{{ge .steps.first.output.count 10}}""#, true),
        (r#""{{and .params.yes (lt .steps.first.output.count 10.0)}}""#, false),
    ];
    for (condition, runs) in expected {
        let server = Server::new().gives("first", json!({ "count": 42 })).says("then", "ran");
        let body = format!(
            "parameters: {{ type: object, properties: {{ yes: {{ type: boolean }} }} }}\nsteps:\n\
             - {{ id: first, tool: be.first }}\n\
             - {{ id: then, tool: be.then, dependsOn: [first], condition: {condition} }}"
        );
        run(&body, &server, json!({ "yes": true })).await;
        assert_eq!(server.called().len(), 1 + usize::from(runs), "{condition}");
    }
    for condition in ["not_boolean", "'{{.params.x'", "'{{if .params.x}}yes{{end}}'"] {
        let body = format!("steps: [{{ id: a, tool: be.a, condition: {condition} }}]");
        assert_eq!(mistakes(&body).len(), 1, "{condition}");
    }
}

const OPTIONAL: &str = r#"
    parameters: { type: object, properties: { on: { type: boolean } }, required: ["on"] }
    steps:
    - id: maybe
      tool: be.maybe
      condition: "{{.params.on}}"
      onError: { action: continue }
      defaultResults: { text: fallback, user: { name: nobody } }
    output:
      properties:
        text: { type: string, description: The text, value: "{{.steps.maybe.output.text}}", default: unused }
    "#;

#[tokio::test(start_paused = true)]
async fn default_results_replace_skipped_and_failed_steps() {
    let server = Server::new().says("maybe", "real");
    assert_eq!(output(OPTIONAL, &server, json!({ "on": true })).await, json!({ "text": "real" }));
    assert_eq!(
        output(OPTIONAL, &server, json!({ "on": false })).await,
        json!({ "text": "fallback" })
    );
    assert_eq!(server.called(), ["maybe"]);
    let server = Server::new().fails("maybe", "broken");
    assert_eq!(
        output(OPTIONAL, &server, json!({ "on": true })).await,
        json!({ "text": "fallback" })
    );
}

#[test]
fn steps_that_can_be_skipped_need_default_results() {
    let body = |reference: &str, settings: &str| {
        format!(
            "parameters: {{ type: object, properties: {{ on: {{ type: boolean }} }} }}\nsteps:\n\
             - {{ id: maybe, tool: be.maybe, {settings} }}\n\
             - {{ id: next, tool: be.next, dependsOn: [maybe], arguments: {{ x: {{ y: '{reference}' }} }} }}"
        )
    };
    let skipped = r#"condition: "{{.params.on}}""#;
    let mistakes = mistakes(&body("{{.steps.maybe.output.data}}", skipped));
    let [mistake] = mistakes.as_slice() else { panic!("{mistakes:?}") };
    assert!(mistake.contains("`maybe`") && mistake.contains("default_results"), "{mistake}");
    config(&body("{{.steps.maybe.status}}", skipped));
    config(&body("{{.steps.maybe.output.data}}", "onError: { action: retry, retryCount: 2 }"));
    let given = format!("{skipped}, defaultResults: {{ data: null }}");
    config(&body("{{.steps.maybe.output.data}}", &given));
}

// === Errors ===

#[tokio::test(start_paused = true)]
async fn failed_step_ends_the_run() {
    let server = Server::new().fails("a", "no route").says("b", "ran");
    let body = "steps: [{ id: a, tool: be.a }, { id: b, tool: be.b, dependsOn: [a] }]";
    assert!(failure(body, &server, json!({})).await.contains("no route"));
    assert_eq!(server.called(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn failure_without_a_text_has_the_structured_error() {
    let body = "steps: [{ id: s, tool: be.fails }]";
    for (structured, expected) in [
        (json!({ "error": "no such page" }), "no such page"),
        (Value::Null, "the tool failed without an error message"),
    ] {
        let mut result = CallToolResult::error(vec![ContentBlock::text("")]);
        result.structured_content = Some(structured).filter(|value| !value.is_null());
        let server = Server::new().tool("fails", Answer::from(result));
        let failure = failure(body, &server, json!({})).await;
        assert!(failure.ends_with(expected), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_step_is_retried() {
    let body = "steps: [{ id: a, tool: be.a, onError: { action: retry, retryCount: 2, retryDelay: 10ms } }]";
    let server = Server::new().tool("a", Answer::failure("busy").times(2).then(Answer::text("ok")));
    output(body, &server, json!({})).await;
    assert_eq!(server.calls().len(), 3);
    let server = Server::new().fails("a", "busy");
    assert!(failure(body, &server, json!({})).await.contains("busy"));
    assert_eq!(server.calls().len(), 3);
    let body = body.replace("retryCount: 2", "retryCount: 1000");
    let server = Server::new().fails("a", "busy");
    failure(&body, &server, json!({})).await;
    assert_eq!(server.calls().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn output_is_that_of_the_last_attempt() {
    let body = r#"
        steps: [{ id: a, tool: be.a, onError: { action: retry, retryCount: 2 } }]
        output: { properties: { data: { type: string, description: The data, value: "{{.steps.a.output.data}}" } } }
        "#;
    let succeeds = Answer::structured(json!({ "data": "after a retry" }));
    let server = Server::new().tool("a", Answer::failure("busy").then(succeeds));
    let output = output(body, &server, json!({})).await;
    assert_eq!(output, json!({ "data": "after a retry" }));
}

#[tokio::test(start_paused = true)]
async fn failed_step_can_be_ignored() {
    let server = Server::new().fails("a", "no route").echoes("b");
    let body = r#"
        steps:
        - { id: a, tool: be.a, onError: { action: continue } }
        - { id: b, tool: be.b, dependsOn: [a], arguments: { status: "{{.steps.a.status}}", error: "{{.steps.a.error}}" } }
        "#;
    output(body, &server, json!({})).await;
    let sent = server.arguments("b").unwrap();
    assert_eq!(sent["status"], "failed");
    assert!(sent["error"].as_str().unwrap().contains("no route"), "{sent}");
    // Differs: ToolHive sends the text `<no value>` for the error.
    let server = Server::new().says("a", "fine").echoes("b");
    output(body, &server, json!({})).await;
    assert_eq!(server.arguments("b"), Some(json!({ "status": "completed" })));
}

#[tokio::test(start_paused = true)]
async fn run_has_a_timeout() {
    let body = "timeout: 1.5s\nsteps: [{ id: a, tool: be.a }]";
    let text = failure(body, &Server::new().hangs("a"), json!({})).await;
    assert!(text.contains("longer than its `timeout` of 1.5s"), "{text}");
}

/// Differs: in ToolHive, a panic ends the process.
#[tokio::test(start_paused = true)]
async fn panic_fails_the_step() {
    let server = Server::new().tool("a", Answer::panic("secret")).says("b", "ran");
    let body = "
        steps:
        - { id: a, tool: be.a, onError: { action: continue } }
        - { id: b, tool: be.b, dependsOn: [a] }
        ";
    run(body, &server, json!({})).await;
    assert_eq!(server.called(), ["a", "b"]);
}

// === Loops ===

const LOOP: &str = r#"
    steps:
    - { id: list, tool: be.list }
    - id: loop
      type: forEach
      dependsOn: [list]
      collection: "{{json .steps.list.output.items}}"
      maxParallel: 3
      maxIterations: 5
      step: { tool: be.each, arguments: { item: "{{.forEach.item}}", index: "{{.forEach.index}}" } }
    - { id: next, tool: be.next, dependsOn: [loop], arguments: { count: "{{.steps.loop.output.count}}" } }
    output:
      properties:
        count: { type: integer, description: How many, value: "{{.steps.loop.output.count}}" }
        completed: { type: integer, description: Completed ones, value: "{{.steps.loop.output.completed}}" }
        failed: { type: integer, description: Failed ones, value: "{{.steps.loop.output.failed}}" }
    "#;

fn looped(items: &Value) -> Server {
    let each = Answer::from_fn(|call| async move {
        match call.arguments()["item"].as_str() {
            Some("bad") => Answer::failure("bad item"),
            _ => Answer::text("done").after(Duration::from_secs(1)),
        }
    });
    Server::new().gives("list", json!({ "items": items })).tool("each", each).echoes("next")
}

#[tokio::test(start_paused = true)]
async fn loop_calls_its_tool_for_each_item() {
    let server = looped(&json!(["a", "b", "c", "d", "e"]));
    let expected = json!({ "count": 5, "completed": 5, "failed": 0 });
    assert_eq!(output(LOOP, &server, json!({})).await, expected);
    assert_eq!(server.most_running(), 3);
    assert_eq!(server.arguments("each"), Some(json!({ "item": "e", "index": 4 })));
    assert_eq!(server.arguments("next"), Some(json!({ "count": 5 })));

    let server = looped(&json!([]));
    assert_eq!(output(LOOP, &server, json!({})).await["count"], 0);
    assert_eq!(server.called(), ["list", "next"]);
}

#[tokio::test(start_paused = true)]
async fn loop_reads_json_in_a_text() {
    let body = LOOP.replace("{{json .steps.list.output.items}}", "{{.steps.list.output.items}}");
    let server = looped(&json!(r#"["a", "b"]"#));
    assert_eq!(output(&body, &server, json!({})).await["count"], 2);
    let text = failure(&body, &looped(&json!("not-json")), json!({})).await;
    assert!(text.contains("collection"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn loop_with_a_failed_item() {
    failure(LOOP, &looped(&json!(["a", "bad"])), json!({})).await;
    let body = LOOP.replace("maxParallel: 3", "onError: { action: continue }");
    let output = output(&body, &looped(&json!(["a", "bad"])), json!({})).await;
    assert_eq!(output, json!({ "count": 2, "completed": 1, "failed": 1 }));
}

#[tokio::test(start_paused = true)]
async fn loop_with_too_many_items_calls_nothing() {
    let server = looped(&json!([1, 2, 3, 4, 5, 6]));
    let text = failure(LOOP, &server, json!({})).await;
    assert!(text.contains('6') && text.contains('5'), "{text}");
    assert_eq!(server.called(), ["list"]);
}

#[test]
fn invalid_loops_are_rejected() {
    let valid = [("collection", "'[1]'"), ("step", "{ tool: be.a }")];
    let body = |changed: &str, value: &str| {
        let mut keys: Vec<_> = valid.iter().filter(|(key, _)| *key != changed).copied().collect();
        if !value.is_empty() {
            keys.push((changed, value));
        }
        let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        format!("steps: [{{ id: a, type: forEach, {} }}]", keys.join(", "))
    };
    config(&body("itemVar", "row"));
    let expected = [
        ("collection", ""),
        ("collection", "'{{.steps.x'"),
        ("step", ""),
        ("step", "{ type: elicitation, message: hello }"),
        ("step", "{ type: forEach }"),
        ("step", "{ type: tool }"),
        ("tool", "be.a"),
        ("message", "hello"),
        ("itemVar", "123x"),
        ("itemVar", "index"),
        ("maxIterations", "1001"),
        ("maxParallel", "51"),
    ];
    for (key, value) in expected {
        assert!(!mistakes(&body(key, value)).is_empty(), "{key}: {value}");
    }
}

// === Questions ===

/// Returns a workflow that asks, and then deploys.
fn asking(settings: &str) -> String {
    format!(
        r#"
        parameters: {{ type: object, properties: {{ name: {{ type: string }} }} }}
        steps:
        - id: ask
          type: elicitation
          message: "Deploy {{{{.params.name}}}}?"
          schema: {{ type: object, properties: {{ env: {{ type: string }} }} }}
          {settings}
        - {{ id: deploy, tool: be.deploy, dependsOn: [ask], arguments: {{ action: "{{{{.steps.ask.output.action}}}}" }} }}
        "#
    )
}

async fn run_asking(settings: &str, mut person: Person) -> (Option<bool>, Option<Value>) {
    let server = Server::new().echoes("deploy");
    let config = config(&asking(settings));
    let service = testing::stack(&config, [("be", server.clone())]);
    let result = person.call(&service, "run", json!({ "name": "shop" })).await;
    assert_eq!(person.asked(), [("ask".to_owned(), "Deploy shop?".to_owned())]);
    (result.is_error, server.arguments("deploy"))
}

#[tokio::test(start_paused = true)]
async fn answers_are_handled() {
    let accepts = || Person::new().accepts("ask", json!({ "env": "prod" }));
    let declines = || Person::new().declines("ask");
    let cancels = || Person::new().cancels("ask");
    let deployed = |action: &str| (Some(false), Some(json!({ "action": action })));
    let timeout = "timeout: 1m";
    assert_eq!(run_asking(timeout, accepts()).await, deployed("accept"));
    assert_eq!(run_asking(timeout, declines()).await, (Some(true), None));
    assert_eq!(run_asking("onDecline: { action: abort }", declines()).await, (Some(true), None));
    assert_eq!(
        run_asking("onDecline: { action: continue }", declines()).await,
        deployed("decline")
    );
    assert_eq!(run_asking("onCancel: { action: continue }", cancels()).await, deployed("cancel"));
    // Differs: in ToolHive, the next step runs.
    let skips = "onCancel: { action: skip_remaining }";
    assert_eq!(run_asking(skips, cancels()).await, (Some(false), None));
}

#[tokio::test(start_paused = true)]
async fn client_without_questions_fails_the_run() {
    let text = failure(&asking("timeout: 1m"), &Server::new().echoes("deploy"), json!({})).await;
    assert!(text.contains("ask"), "{text}");
}

// === Output ===

/// Returns the output of one property, for the output `first` of a step.
async fn property(property: &str, first: Value) -> Result<Value, String> {
    let body = format!(
        "steps: [{{ id: s, tool: be.first }}]\n\
         output: {{ properties: {{ p: {{ description: One, {property} }} }} }}"
    );
    let result = run(&body, &Server::new().gives("first", first), json!({})).await;
    match result.is_error {
        Some(false) => Ok(result.structured_content.unwrap()["p"].clone()),
        _ => Err(result.content[0].as_text().unwrap().text.clone()),
    }
}

#[tokio::test(start_paused = true)]
async fn output_has_the_declared_types() {
    let expected = [
        ("type: string", json!("x"), json!("x")),
        ("type: integer", json!("42"), json!(42)),
        ("type: number", json!("95.5"), json!(95.5)),
        ("type: boolean", json!("true"), json!(true)),
        ("type: object", json!(r#"{"a":1}"#), json!({ "a": 1 })),
        ("type: array", json!("[1, 2]"), json!([1, 2])),
        ("type: string, default: d", json!(""), json!("")),
        ("type: integer, default: 99", json!("no number"), json!(99)),
        ("type: object, default: { a: true }", json!("no JSON"), json!({ "a": true })),
    ];
    for (settings, given, output) in expected {
        let settings = format!(r#"{settings}, value: "{{{{.steps.s.output.v}}}}""#);
        assert_eq!(property(&settings, json!({ "v": given })).await, Ok(output), "{settings}");
    }
    let missing = r#"type: integer, value: "{{.steps.s.output.none}}", default: 1"#;
    assert_eq!(property(missing, json!({})).await, Ok(json!(1)));
    for settings in ["type: integer", "type: boolean", "type: object"] {
        let settings = format!(r#"{settings}, value: "{{{{.steps.s.output.v}}}}""#);
        assert!(property(&settings, json!({ "v": "maybe" })).await.is_err(), "{settings}");
    }
    // Differs: ToolHive returns the text `<no value>`.
    let missing = r#"type: string, value: "{{.steps.s.output.none}}""#;
    assert!(property(missing, json!({})).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn output_compares_and_nests() {
    let settings = r#"type: object, properties: {
        role: { type: string, description: R, value: '{{if eq .steps.s.output.role "admin"}}a{{else}}o{{end}}' },
        many: { type: string, description: M, value: '{{if ge .steps.s.output.count 10.0}}yes{{else}}no{{end}}' },
        seen: { type: boolean, description: S, value: "{{.steps.s.output.seen}}" } }"#;
    let first = json!({ "role": "admin", "count": 42, "seen": true });
    let expected = json!({ "role": "a", "many": "yes", "seen": true });
    assert_eq!(property(settings, first).await, Ok(expected));
}

/// Differs: in ToolHive, it is the result of the step that ended last.
#[tokio::test(start_paused = true)]
async fn result_without_output_is_that_of_the_last_step() {
    let slow = Answer::structured(json!({ "step": "a" })).after(Duration::from_secs(9));
    let server = Server::new().tool("a", slow).gives("b", json!({ "step": "b" }));
    let body = "steps: [{ id: a, tool: be.a }, { id: b, tool: be.b }]";
    assert_eq!(output(body, &server, json!({})).await, json!({ "step": "b" }));
}

#[test]
fn invalid_outputs_are_rejected() {
    let body = |output: &str| format!("steps: [{{ id: s, tool: be.a }}]\noutput: {output}");
    let expected = [
        "{ properties: {} }",
        "{ properties: { p: { type: string, description: P, value: x } }, required: [q] }",
        "{ properties: { p: { description: P, value: x } } }",
        "{ properties: { p: { type: text, description: P, value: x } } }",
        "{ properties: { p: { type: object, description: P } } }",
        "{ properties: { p: { type: string, description: P, properties: { q: { type: string, value: x } } } } }",
        "{ properties: { p: { type: string, description: P, value: '{{.steps.s.output}' } } }",
    ];
    for output in expected {
        assert!(!mistakes(&body(output)).is_empty(), "{output}");
    }
}

#[tokio::test]
async fn listed_output_schema_has_no_values() {
    let body = r#"
        steps: [{ id: s, tool: be.a }]
        output: { properties: { p: { type: integer, description: One, value: "{{.steps.s.output.n}}" } }, required: [p] }
        "#;
    let config = config(body);
    let service = testing::stack(&config, [("be", Server::new().says("a", ""))]);
    let tools = testing::listed(&service).await;
    let schema = tools[1].output_schema.as_deref().unwrap();
    assert_eq!(schema["required"], json!(["p"]));
    assert_eq!(schema["properties"]["p"], json!({ "type": "integer", "description": "One" }));
}

// === Names ===

#[tokio::test]
async fn annotations_are_derived_from_the_steps() {
    let tool = |name: &'static str, hints: Value| {
        let mut tool = Tool::new(name, "A tool", serde_json::Map::new());
        tool.annotations = serde_json::from_value(hints).unwrap();
        tool
    };
    let hints = json!({ "readOnlyHint": true, "destructiveHint": false, "openWorldHint": false });
    let body = "steps: [{ id: a, tool: be.a }, { id: b, tool: be.b }]";
    for (other, read_only) in [(hints.clone(), true), (json!({}), false)] {
        let server = Server::new()
            .tool_as(tool("a", hints.clone()), Answer::text(""))
            .tool_as(tool("b", other), Answer::text(""));
        let config = config(body);
        let service = testing::stack(&config, [("be", server)]);
        let tools = testing::listed(&service).await;
        let annotations = tools.iter().find(|tool| tool.name == "run").unwrap();
        let annotations = annotations.annotations.clone().unwrap();
        assert_eq!(annotations.read_only_hint, Some(read_only));
        assert_eq!(annotations.destructive_hint, Some(!read_only));
    }
}

#[tokio::test(start_paused = true)]
async fn composite_without_its_tool_is_not_listed() {
    let body = "steps: [{ id: a, tool: be.a }, { id: gone, tool: be.gone, dependsOn: [a] }]";
    let (config, server) = (config(body), Server::new().says("a", ""));
    let service = testing::stack(&config, [("be", server.clone())]);
    let names: Vec<_> = testing::listed(&service).await.into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["be_a"]);
    // Differs: in ToolHive, clients learn that there is no such tool.
    let error = testing::refused(&service, "run", json!({})).await;
    assert!(error.message.contains("`run` is not available at the moment"), "{error:?}");
    assert!(server.called().is_empty());

    // A composite that only asks needs no tool.
    let body = "steps: [{ id: ask, type: elicitation, message: Sure?, schema: { type: object } }]";
    let env = |_: &str| Some("http://be.example/mcp".to_owned());
    let config = Config::from_toolhive_str_with_env(&file(body), env).unwrap();
    let service = testing::stack(&config, []);
    assert_eq!(testing::listed(&service).await[0].name, "run");
}

/// Differs: in ToolHive, the tool of the backend is used, and all composites vanish.
#[tokio::test(start_paused = true)]
async fn composite_goes_before_the_tool_of_its_name() {
    let server = Server::new().says("a", "of the tool").says("b", "of the composite");
    let text = file("steps: [{ id: s, tool: be.b }]").replace("name: run", "name: be_a");
    let other = "- { name: other, description: Other, steps: [{ id: s, tool: be.a }] }\n";
    let env = |_: &str| Some("http://be.example/mcp".to_owned());
    let config = Config::from_toolhive_str_with_env(&(text + other), env).unwrap();
    let service = testing::stack(&config, [("be", server)]);
    let mut names: Vec<_> =
        testing::listed(&service).await.into_iter().map(|tool| tool.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["be_a", "be_b", "other"]);
    for (tool, expected) in [("be_a", "of the composite"), ("other", "of the tool")] {
        let result = testing::call(&service, tool, json!({})).await;
        assert_eq!(result.content[0].as_text().unwrap().text, expected, "{tool}");
    }
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn runs_are_counted_by_the_name_of_the_composite() {
    use mcp_composite::trace::TraceLayer;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let server = Server::new().tool("a", Answer::failure("no").times(1).then(Answer::text("yes")));
    let config = config("steps: [{ id: s, tool: be.a }]").trace(TraceLayer::new().metrics(true));
    let service = testing::stack(&config, [("be", server)]);
    for _ in 0..2 {
        testing::call(&service, "run", json!({})).await;
    }
    let mut runs = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        if key.key().name() == "mcp_composite.run.duration" {
            let labels = key.key().labels();
            let labels: Vec<_> =
                labels.map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
            let DebugValue::Histogram(values) = value else { panic!("{value:?}") };
            runs.push((labels, values.len()));
        }
    }
    runs.sort();
    let run = |status: &str| {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let labels =
            vec![label("gen_ai.workflow.name", "run"), label("mcp_composite.status", status)];
        (labels, 1)
    };
    assert_eq!(runs, [run("completed"), run("failed")]);
}

#[tokio::test(start_paused = true)]
async fn optimizer_finds_and_calls_composites() {
    let text = format!("optimizer: {{}}\n{}", file("steps: [{ id: a, tool: be.a }]"));
    let env = |_: &str| Some("http://be.example/mcp".to_owned());
    let config = Config::from_toolhive_str_with_env(&text, env).unwrap();
    let service = testing::stack(&config, [("be", Server::new().says("a", "ran"))]);
    let tools = testing::listed(&service).await;
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["search_tools", "call_tool"]);
    let call = json!({ "name": "run", "arguments": {} });
    let result = testing::call(&service, "call_tool", call).await;
    assert_eq!(result.content[0].as_text().unwrap().text, "ran");
}
