//! Progress of servers, as third-party clients receive it.

use serde_json::{Value, json};

use crate::{
    backends::{everything, misbehaving},
    clients::{Client, by_command},
    gateway::Gateway,
    support::{Folder, machine},
};

const COMPOSITE: &str = r#"
[[composite_tools]]
name = "work"
description = "Takes its time"
targets = [
    { id = "theirs", tool = "everything/trigger-long-running-operation", arguments = { duration = 1, steps = 4 } },
    { id = "ours", tool = "near/progress", arguments = { steps = 4, ms = 150 } },
]
"#;

#[test]
fn client_receives_combined_progress_of_all_targets() {
    let _machine = machine();
    let folder = Folder::new();
    let near = misbehaving("near", "modern");
    let file = folder.config(&[everything(), near, COMPOSITE.to_owned()]);
    let gateway = Gateway::start(&file);
    let over_stdio = by_command(&file);
    for (client, connect) in [
        (Client::TypeScript1, &over_stdio),
        (Client::TypeScript1, &gateway.connect()),
        (Client::TypeScript2, &over_stdio),
        (Client::TypeScript2, &gateway.connect()),
        (Client::Python, &gateway.connect()),
    ] {
        let call = json!({ "call_tool": { "name": "work", "progress": true } });
        // Only progress under the client's own token is received here.
        let steps = client.perform(json!({ "connect": connect, "steps": [call] }));
        let result = &steps[1]["result"];
        assert_eq!(result["isError"], false, "{result}");
        let notifications = steps[1]["progress"].as_array().unwrap();
        let values: Vec<_> = notifications
            .iter()
            .map(|notification| notification["progress"].as_f64().unwrap())
            .collect();
        assert!(values.is_sorted_by(|one, next| one < next), "{client:?}: {notifications:?}");
        // The answer of a server may overtake its last step.
        assert!(*values.last().unwrap() >= 1.5, "{client:?}: {notifications:?}");
        assert!(
            notifications.iter().all(|notification| notification["total"].as_f64() == Some(2.0)),
            "{notifications:?}"
        );
        let of = |branch: &str| {
            let names_branch =
                |notification: &&Value| notification["message"].as_str().unwrap().contains(branch);
            notifications.iter().filter(names_branch).count()
        };
        assert!(of("theirs") > 1 && of("ours") > 1, "{client:?}: {notifications:?}");
    }
}
