//! A server that is lost while others work.

use serde_json::{Value, json};

use crate::{
    backends::{fan_out, logging},
    gateway::{BOTH, Wire},
    processes::signal,
    programs::is_running,
    support::{Folder, received, until},
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[test]
fn killed_server_fails_only_its_branch_and_reconnects() {
    for era in BOTH {
        let folder = Folder::new();
        let logs = NAMES.map(|name| folder.path(name));
        let behaviours = ["good", "modern", "good", "modern"];
        let mut sections: Vec<_> =
            (0..4).map(|index| logging(NAMES[index], behaviours[index], &logs[index])).collect();
        sections.push(fan_out("all", &["a/hold", "b/hold", "c/hold", "d/hold"]));
        let mut wire = Wire::start(&folder.config(&sections), era);
        let before = wire.tools();
        assert_eq!(before.len(), 4 * 15 + 1);

        let pid = wire.call("c_pid", &json!({}))["structuredContent"]["pid"].as_u64().unwrap();
        let hold = json!({ "file": folder.path("go") });
        let all = wire.start_call("all", &hold);
        until("calls of all", || logs.iter().all(|log| calls_of_hold(&received(log)) == 1));
        signal(pid, "KILL");
        assert_eq!(wire.tools(), before);
        until("the end of a process", || !is_running(pid));
        folder.write("go", "");
        let mut all = wire.answer(all);
        let all = all["result"].take();
        assert_eq!(all["isError"], true);
        for name in NAMES {
            let branch = &all["structuredContent"]["branches"][format!("{name}_hold")];
            if name == "c" {
                assert_eq!(branch["status"], "failed");
                let message = "the connection to backend `c` was lost before it answered";
                assert_eq!(branch["error"]["message"], message);
            } else {
                assert_eq!(branch["output"], "at last", "{name}: {branch}");
            }
        }
        let expected = "branch `c_hold` (tool `c_hold`) failed: the connection to backend `c` was lost before it answered";
        // The branches before it have a label and a text each.
        assert_eq!(all["content"][4]["text"], expected);

        // Until then, calls of the backend are answered with errors.
        until("a connection", || {
            let call = wire.start_call("c_pid", &json!({}));
            wire.answer(call)["result"]["structuredContent"]["pid"].is_u64()
        });
        let again = wire.call("all", &hold);
        assert_eq!(again["isError"], false, "{again}");
        assert_eq!(wire.tools(), before);
        // No call is sent twice.
        assert!(logs.iter().all(|log| calls_of_hold(&received(log)) == 2));
    }
}

fn calls_of_hold(received: &[Value]) -> usize {
    received.iter().filter(|message| message["params"]["name"] == "hold").count()
}
