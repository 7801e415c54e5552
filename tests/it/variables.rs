//! Variables of composites.

use std::sync::{Arc, Mutex};

use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, Plan, Retry, Target},
    expr::Variables,
    observe::{Event, Observer, What},
    testing::{self, Answer, Server},
};
use serde_json::{Value, json};
use tower::Layer;

use crate::scripted::object;

/// Records the arguments of each attempt.
#[derive(Default)]
struct Attempts(Mutex<Vec<Value>>);

impl Observer for Attempts {
    fn on_event(&self, event: &Event<'_>) {
        if let What::Attempt { arguments: Some(arguments), .. } = event.what {
            self.0.lock().unwrap().push(arguments.clone().into());
        }
    }

    fn wants_arguments(&self) -> bool {
        true
    }
}

fn variables() -> Variables {
    Variables::new()
        .with("team", json!("platform"))
        .with("labels", json!(["bug", { "name": "urgent" }]))
        .with_secret("key", json!("hunter2"))
        .with_secret("login", json!({ "user": "ann", "password": "hunter2" }))
}

fn find(arguments: Value) -> CompositeTool {
    let target = Target::new("search").arguments(arguments).retry(Retry::times(1));
    CompositeTool::fan_out("find", "Finds", [target]).variables(variables())
}

#[tokio::test(start_paused = true)]
async fn observers_receive_no_secret_variables() {
    let (key, team) = (json!("$vars.key"), json!("$vars.team"));
    for (arguments, sent, redacted) in [
        (
            json!({ "key": key, "team": team }),
            json!({ "key": "hunter2", "team": "platform" }),
            json!({ "key": "…", "team": "platform" }),
        ),
        (
            json!({ "head": { "keys": ["{{ 'Bearer ' ~ vars.key }}"] }, "q": "$input.q" }),
            json!({ "head": { "keys": ["Bearer hunter2"] }, "q": "tea" }),
            json!({ "head": "…", "q": "tea" }),
        ),
        (
            json!("$vars.login"),
            json!({ "user": "ann", "password": "hunter2" }),
            json!({ "user": "…", "password": "…" }),
        ),
        (
            json!("{{ {'key': vars.key, 'n': 1} }}"),
            json!({ "key": "hunter2", "n": 1 }),
            json!({ "key": "…", "n": "…" }),
        ),
    ] {
        let attempts = Arc::new(Attempts::default());
        let layer = CompositeLayer::new([find(arguments)]).unwrap().observer(attempts.clone());
        let failure = Answer::failure("no").times(1).then(Answer::text("yes"));
        let server = Server::new().tool("search", failure);
        testing::call(&layer.layer(server.clone()), "find", json!({ "q": "tea" })).await;

        let calls = server.calls();
        assert_eq!([calls[0].arguments(), calls[1].arguments()], [sent.clone(), sent]);
        assert_eq!(*attempts.0.lock().unwrap(), [redacted.clone(), redacted]);
    }
}

#[test]
fn previews_and_debug_output_show_only_names_of_secret_variables() {
    let find = find(json!({
        "key": "$vars.key", "bearer": "Bearer {{ vars.key }}", "team": "{{ vars.team | upper }}",
        "label": "$vars.labels[1].name",
    }));
    assert!(!format!("{find:?}").contains("hunter2"), "{find:?}");
    let layer = CompositeLayer::new([find.clone()]).unwrap();
    assert!(!format!("{layer:?}").contains("hunter2"), "{layer:?}");

    let preview = Plan::new(find).unwrap().preview(object(json!({}))).unwrap();
    let text = format!("{preview} {preview:?}");
    assert!(!text.contains("hunter2"), "{text}");
    for part in ["$vars.key", "Bearer {{ vars.key }}", "PLATFORM", "urgent"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
