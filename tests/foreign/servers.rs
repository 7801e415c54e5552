//! Four servers in two languages merged into one, for three clients.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    backends::{everything, files, sqlite, time},
    clients::{Client, by_command},
    gateway::{BOTH, Era, Gateway, Wire, gateway},
    support::{Folder, machine},
};

const COMPOSITE: &str = r#"
[[composite_tools]]
name = "overview"
description = "A little of everything"
targets = [
    { id = "sum", tool = "everything/get-sum", arguments = { a = "$input.a", b = 2 } },
    { id = "weather", tool = "everything/get-structured-content", arguments = { location = "New York" } },
    { id = "file", tool = "files/read_text_file", arguments = { path = "$input.path" } },
    { id = "time", tool = "time/convert_time", arguments = { source_timezone = "UTC", time = "12:00", target_timezone = "Asia/Tokyo" } },
    { id = "tables", tool = "sqlite/list_tables", arguments = {} },
]
"#;

/// Returns a gateway's file, and the call of its composite.
fn four_servers(folder: &Folder) -> (PathBuf, Value) {
    let greeting = folder.write("greeting.txt", "hello from a file");
    let sections = [everything(), files(folder), time(), sqlite(folder), COMPOSITE.to_owned()];
    let arguments = json!({ "a": 40, "path": fs::canonicalize(greeting).unwrap() });
    (folder.config(&sections), json!({ "name": "overview", "arguments": arguments }))
}

fn script(connect: &Value, call: &Value) -> Value {
    let prompt = json!({ "type": "ref/prompt", "name": "everything_completable-prompt" });
    let template = "demo://resource/dynamic/text/{resourceId}";
    let resource = json!({ "type": "ref/resource", "uri": template });
    json!({
        "connect": connect,
        "steps": [
            { "list_tools": {} },
            { "call_tool": call },
            { "call_tool": { "name": "overview", "arguments": { "a": "forty", "path": "" } } },
            { "list_prompts": {} },
            { "get_prompt": { "name": "everything_args-prompt", "arguments": { "city": "Rome" } } },
            { "list_resources": {} },
            { "list_resource_templates": {} },
            { "read_resource": { "uri": "demo://resource/dynamic/text/7" } },
            { "complete": {
                "ref": prompt, "argument": { "name": "department", "value": "E" },
            } },
            { "complete": { "ref": resource, "argument": { "name": "resourceId", "value": "7" } } },
        ],
    })
}

/// Checks the results of a client that has performed the script on four servers merged into one.
fn all_is_there(client: Client, steps: &[Value]) {
    let results = steps.iter().map(|step| step["result"].clone()).collect::<Vec<_>>();
    let [connected, tools, called, _, prompts, prompt, resources, templates, read, names, ids] =
        &*results
    else {
        panic!("{steps:?}")
    };

    assert_eq!(connected["serverInfo"]["name"], "mcp-composite");
    let capabilities = json!({
        "completions": {},
        "logging": {},
        "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "tools": { "listChanged": true },
    });
    assert_eq!(connected["capabilities"], capabilities, "{client:?}");
    let instructions = connected["instructions"].as_str().unwrap();
    assert!(instructions.starts_with("## everything\n\n"), "{instructions}");

    let listed = names_of(&tools["tools"]);
    for name in
        ["everything_echo", "files_read_text_file", "time_convert_time", "sqlite_read_query"]
    {
        assert_eq!(listed.iter().filter(|listed| **listed == name).count(), 1, "{listed:?}");
    }
    assert_eq!(listed.last(), Some(&"overview"));
    has_its_derived_definition(tools["tools"].as_array().unwrap().last().unwrap());
    has_the_answers_of_all(called);
    let refused = steps[3]["error"]["message"].as_str().unwrap();
    let mistake = "invalid arguments for `overview`: at `/a`: the value is not of type \"number\"";
    assert_eq!(refused, mistake, "{client:?}");

    let listed = names_of(&prompts["prompts"]);
    assert!(listed.contains(&"everything_args-prompt"), "{listed:?}");
    assert!(listed.contains(&"sqlite_mcp-demo"), "{listed:?}");
    assert_eq!(prompt["messages"][0]["content"]["text"], "What's weather in Rome?");
    let resources = resources["resources"].as_array().unwrap();
    let memo = resources.iter().find(|resource| resource["uri"] == "memo://insights");
    assert!(memo.is_some() && resources.len() > 1, "{resources:?}");
    let template = "demo://resource/dynamic/text/{resourceId}";
    assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], template);
    assert_eq!(read["contents"][0]["uri"], "demo://resource/dynamic/text/7");
    assert_eq!(names["completion"]["values"], json!(["Engineering"]));
    assert_eq!(ids["completion"]["values"], json!(["7"]));
}

fn names_of(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

fn has_its_derived_definition(overview: &Value) {
    let input = json!({
        "type": "object",
        "properties": {
            "a": { "type": "number", "description": "First number" },
            "path": { "type": "string" },
        },
        "required": ["a", "path"],
    });
    assert_eq!(overview["inputSchema"], input);
    let branches = &overview["outputSchema"]["properties"]["branches"];
    assert_eq!(branches["required"], json!(["sum", "weather", "file", "time", "tables"]));
    // The server of the tables has no read-only annotation.
    let annotations =
        json!({ "readOnlyHint": false, "destructiveHint": true, "openWorldHint": true });
    assert_eq!(overview["annotations"], annotations);
}

fn has_the_answers_of_all(called: &Value) {
    assert_eq!(called["isError"], false, "{called}");
    let blocks = called["content"].as_array().unwrap();
    assert!(blocks.iter().all(|block| block["type"] == "text"), "{called}");
    let names = ["sum", "weather", "file", "time", "tables"];
    for (name, blocks) in names.into_iter().zip(blocks.chunks(2)) {
        let owners = blocks.iter().map(|block| &block["_meta"]["mcp-composite/branch"]);
        assert!(owners.eq([name, name]), "{called}");
    }
    assert_eq!(blocks.len(), 2 * names.len());
    assert_eq!(blocks[0]["text"], "sum (tool `everything_get-sum`):");
    assert_eq!(blocks[1]["text"], "The sum of 40 and 2 is 42.");

    let branches = &called["structuredContent"]["branches"];
    let completed = |output: Value| json!({ "status": "completed", "output": output });
    assert_eq!(branches["sum"], completed("The sum of 40 and 2 is 42.".into()));
    let weather = json!({ "temperature": 33, "conditions": "Cloudy", "humidity": 82 });
    assert_eq!(branches["weather"], completed(weather));
    assert_eq!(branches["file"], completed(json!({ "content": "hello from a file" })));
    assert_eq!(branches["time"]["output"]["time_difference"], "+9.0h");
    assert_eq!(branches["tables"], completed("[]".into()));
}

#[test]
fn four_servers_act_as_one_to_any_client_over_stdio() {
    let _machine = machine();
    let folder = Folder::new();
    let (file, call) = four_servers(&folder);
    for client in Client::ALL {
        all_is_there(client, &client.perform(script(&by_command(&file), &call)));
    }
}

#[test]
fn four_servers_act_as_one_to_concurrent_clients_over_http() {
    let _machine = machine();
    let folder = Folder::new();
    let (file, call) = four_servers(&folder);
    let gateway = Gateway::start(&file);
    let script = script(&gateway.connect(), &call);
    std::thread::scope(|scope| {
        let performing = Client::ALL.map(|client| {
            let script = script.clone();
            (client, scope.spawn(move || client.perform(script)))
        });
        for (client, performing) in performing {
            all_is_there(client, &performing.join().unwrap());
        }
    });
}

#[test]
fn each_reply_uses_the_protocol_version_of_its_client() {
    let _machine = machine();
    let folder = Folder::new();
    let (file, call) = four_servers(&folder);
    for era in BOTH {
        let (mut wire, hello) = Wire::run(&mut gateway(&file), era);
        let modern = era == Era::Modern;
        let resource = json!({ "uri": "demo://resource/dynamic/text/7" });
        let prompt = json!({ "name": "everything_simple-prompt" });
        let answers = [
            hello,
            wire.request("tools/list", json!({})),
            wire.request("tools/call", call.clone()),
            wire.request("tools/call", json!({ "name": "sqlite_list_tables", "arguments": {} })),
            wire.request("prompts/get", prompt),
            wire.request("resources/read", resource),
        ];
        for answer in &answers {
            let result_type = answer["result"].get("resultType").and_then(Value::as_str);
            assert_eq!(result_type, modern.then_some("complete"), "{answer}");
        }
        has_the_answers_of_all(&answers[2]["result"]);

        let versions = &answers[0]["result"]["supportedVersions"];
        assert_eq!(*versions != Value::Null, modern, "{}", answers[0]);
        let text = [answers[1].to_string(), answers[2].to_string()].concat();
        // The backends are not visible to clients.
        assert!(!text.contains("mcp-time"), "{text}");
        assert!(wire.hang_up().success());
    }
}
