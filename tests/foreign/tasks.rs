//! A third-party client of the tasks extension.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    clients::Client,
    gateway::{Gateway, gateway},
    programs::PROGRAM,
    releases::Releases,
    replicas::TOOL,
    support::{Folder, example_file, machine},
};

/// Returns the file of the example, whose calls are tasks.
fn file(folder: &Folder) -> PathBuf {
    let text = fs::read_to_string(example_file("replicas/gateway.toml")).unwrap();
    assert!(text.contains("task = \"never\""), "{text}");
    folder.write("gateway.toml", &text.replace("task = \"never\"", "task = \"always\""))
}

#[test]
fn foreign_client_answers_the_question_of_a_task() {
    let _machine = machine();
    let folder = Folder::new();
    let file = file(&folder);
    let runtime = Runtime::new().unwrap();
    let releases = Releases::default();
    let served = runtime.block_on(releases.serve()).unwrap();
    let env =
        json!({ "RELEASES_URL": served.url, "STATE_KEY": "a key of at least thirty-two bytes" });
    let mut command = gateway(&file);
    for (name, value) in env.as_object().unwrap() {
        command.env(name, value.as_str().unwrap());
    }
    let over_http = Gateway::run(&mut command);
    let over_stdio = json!({ "command": [PROGRAM, "serve", file], "env": env });

    for connect in [over_stdio, over_http.connect()] {
        let call = |elicit: Value, cancel: bool| {
            let before = releases.calls().len();
            let arguments = json!({ "service": "shop" });
            let call = json!({ "name": TOOL, "arguments": arguments, "cancel": cancel });
            let steps = [json!({ "call_task": call })];
            let script = json!({ "connect": connect, "elicit": elicit, "steps": steps });
            let line = Client::TypeScript2.perform(script)[1].take();
            let task = line["result"].clone();
            assert_eq!(task["kind"], "task", "{line}");
            (task, releases.calls().split_off(before))
        };
        let waits = json!(["working", "input_required", "completed"]);

        let yes = json!({ "action": "accept", "content": { "environment": "staging" } });
        let (task, calls) = call(yes.clone(), false);
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(task["statuses"], waits, "{task}");
        let question = &task["questions"][0];
        assert_eq!(question["kind"], "elicitation", "{task}");
        let message = question["params"]["message"].as_str().unwrap();
        assert!(message.starts_with("Deploy shop 1.4.0"), "{task}");
        assert_eq!(task["questions"].as_array().unwrap().len(), 1, "{task}");
        let text = &task["result"]["content"][0]["text"];
        assert_eq!(text, "shop 1.4.0 is in staging", "{task}");
        assert_eq!(calls, ["get_release shop", "deploy_release shop"], "{connect}");

        let (task, calls) = call(json!({ "action": "decline" }), false);
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(task["statuses"], waits, "{task}");
        assert_eq!(calls, ["get_release shop"], "{connect}");

        let (task, calls) = call(yes, true);
        assert_eq!(task["status"], "cancelled", "{task}");
        assert!(!calls.contains(&"deploy_release shop".to_owned()), "{calls:?}");
    }
}
