//! Clients and servers of both protocol versions at the same time.

use serde_json::{Value, json};

use crate::{
    backends::{fan_out, misbehaving},
    clients::Client,
    gateway::Gateway,
    support::Folder,
};

#[test]
fn servers_of_both_eras_serve_clients_of_both_eras_at_once() {
    let folder = Folder::new();
    let file = folder.config(&[
        misbehaving("old", "good"),
        misbehaving("new", "modern"),
        fan_out("both", &["old/meta", "new/meta"]),
    ]);
    let gateway = Gateway::start(&file);
    // Each sends metadata that must not reach a server behind the gateway.
    let meta = json!({ "com.example/secret": "hunter2" });
    let call = |name: &str| json!({ "call_tool": { "name": name, "meta": meta } });
    let script = json!({
        "connect": gateway.connect(),
        "elicit": { "action": "decline" },
        "steps": [
            // Both are connected when it continues.
            { "call_tool": { "name": "old_slow", "arguments": { "ms": 1500 } } },
            { "together": [call("old_meta"), call("new_meta"), call("both")] },
        ],
    });

    std::thread::scope(|scope| {
        let performing = [Client::TypeScript1, Client::TypeScript2, Client::Python].map(|client| {
            let script = script.clone();
            scope.spawn(move || client.perform(script))
        });
        for performing in performing {
            let steps = performing.join().unwrap();
            let [_, slow, together] = &*steps else { panic!("{steps:?}") };
            assert_eq!(slow["result"]["content"][0]["text"], "at last");
            let results = &together["result"];
            let (old, new) = (results[0].clone(), results[1].clone());
            let branches = &results[2]["result"]["structuredContent"]["branches"];

            heard_by_the_older(&old["result"]["structuredContent"]);
            heard_by_the_older(&branches["old_meta"]["output"]);
            let direct = &new["result"]["structuredContent"];
            let branch = &branches["new_meta"]["output"];
            heard_by_the_newer(direct);
            heard_by_the_newer(branch);
            // A client with a person can be asked, also for a branch: newer clients call again with
            // the answers, older ones are asked meanwhile.
            let capabilities = "io.modelcontextprotocol/clientCapabilities";
            assert!(direct[capabilities].get("elicitation").is_some(), "{direct}");
            assert!(branch[capabilities].get("elicitation").is_some(), "{branch}");
        }
    });
}

fn heard_by_the_older(meta: &Value) {
    let keys: Vec<_> = meta.as_object().unwrap().keys().collect();
    // The gateway's own, one per request.
    assert_eq!(keys, ["progressToken"]);
}

fn heard_by_the_newer(meta: &Value) {
    let keys: Vec<_> = meta.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "io.modelcontextprotocol/clientCapabilities",
            "io.modelcontextprotocol/clientInfo",
            "io.modelcontextprotocol/protocolVersion",
            "progressToken",
        ]
    );
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "mcp-composite");
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
}
