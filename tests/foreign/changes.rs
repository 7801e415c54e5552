//! Tools that are added while clients are connected.

use serde_json::{Value, json};

use crate::{
    backends::misbehaving,
    clients::{Client, by_command},
    gateway::{Era, Gateway},
    support::Folder,
};

/// Adds a tool to each server, and waits for the notifications.
fn script(client: Client, connect: &Value) -> Value {
    let mut steps = vec![json!({ "list_tools": {} })];
    if client.era() == Era::Modern {
        steps.push(json!({ "listen": { "toolsListChanged": true } }));
    }
    for (add, name) in [("old_add_tool", "one"), ("new_add_tool", "two")] {
        let name = format!("{client:?}-{name}");
        steps.push(json!({ "call_tool": { "name": add, "arguments": { "name": name } } }));
        steps.push(json!({ "wait_for_tools_changed": { "within_ms": 60_000 } }));
    }
    steps.push(json!({ "list_tools": {} }));
    let call = json!({ "name": format!("new_{client:?}-two") });
    steps.push(json!({ "call_tool": call }));
    json!({ "connect": connect, "steps": steps })
}

#[test]
fn clients_are_notified_of_new_tools() {
    let folder = Folder::new();
    let file = folder.config(&[misbehaving("old", "good"), misbehaving("new", "modern")]);
    let gateway = Gateway::start(&file);
    for connect in [by_command(&file), gateway.connect()] {
        for client in Client::ALL {
            let steps = client.perform(script(client, &connect));
            let failed = steps.iter().find(|step| step.get("error").is_some());
            assert_eq!(failed, None, "{client:?}, {connect}");
            let called = &steps.last().unwrap()["result"];
            assert_eq!(called["content"][0]["text"], format!("called {client:?}-two"));
            let tools = steps[steps.len() - 2]["result"]["tools"].to_string();
            for tool in [format!("old_{client:?}-one"), format!("new_{client:?}-two")] {
                assert!(tools.contains(&format!("{tool:?}")), "{tools}");
            }
        }
    }
}
