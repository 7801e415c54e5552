//! Third-party clients with a person who answers.

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    clients::Client,
    gateway::{Gateway, gateway},
    programs::PROGRAM,
    releases::Releases,
    replicas::TOOL,
    support::{example_file, machine},
};

#[test]
fn foreign_clients_answer_elicitations_of_a_composite() {
    let _machine = machine();
    let runtime = Runtime::new().unwrap();
    let releases = Releases::default();
    let served = runtime.block_on(releases.serve()).unwrap();
    let env =
        json!({ "RELEASES_URL": served.url, "STATE_KEY": "a key of at least thirty-two bytes" });
    let file = example_file("replicas/gateway.toml");
    let mut command = gateway(&file);
    for (name, value) in env.as_object().unwrap() {
        command.env(name, value.as_str().unwrap());
    }
    let over_http = Gateway::run(&mut command);
    let over_stdio = json!({ "command": [PROGRAM, "serve", file], "env": env });

    let connections = [over_stdio, over_http.connect()];
    let modes = [
        (Client::TypeScript1, Value::Null),
        (Client::TypeScript2, Value::Null),
        (Client::TypeScript2, json!("legacy")),
        (Client::Python, Value::Null),
        (Client::Python, json!("legacy")),
    ];
    for (client, mode) in modes {
        for connect in &connections {
            let mut connect = connect.clone();
            if mode.is_string() {
                connect["mode"] = mode.clone();
            }
            let case = format!("{client:?}, {connect}");
            let before = releases.calls().len();
            let call = |elicit: Value| {
                let call = json!({ "name": TOOL, "arguments": { "service": "shop" } });
                let steps = [json!({ "call_tool": call })];
                let script = json!({ "connect": connect, "elicit": elicit, "steps": steps });
                client.perform(script)[1].take()
            };
            let yes = json!({ "action": "accept", "content": { "environment": "staging" } });
            let line = call(yes);
            let text = &line["result"]["content"][0]["text"];
            assert_eq!(text, "shop 1.4.0 is in staging", "{case}: {line}");
            let line = call(json!({ "action": "decline" }));
            assert_eq!(line["result"]["isError"], false, "{case}: {line}");
            let calls = &releases.calls()[before..];
            let expected = ["get_release shop", "deploy_release shop", "get_release shop"];
            assert_eq!(calls, expected, "{case}");
        }
    }
}
