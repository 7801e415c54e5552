//! A third-party server whose tools change after their approval.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::{
    backends::{child, in_installed, time},
    clients::{Client, by_command},
    gateway::{Gateway, program},
    processes::Process,
    support::{Folder, machine},
};

/// Two composites: one uses a tool that changes, the other does not.
const COMPOSITES: &str = r#"
[[composite_tools]]
name = "clocks"
description = "The time in two zones"
targets = [
    { id = "here", tool = "clock/get_current_time", arguments = { timezone = "UTC" } },
    { id = "there", tool = "clock/get_current_time", arguments = { timezone = "Asia/Tokyo" } },
]

[[composite_tools]]
name = "own_time"
description = "The time of the other server"
targets = [{ id = "time", tool = "time/get_current_time", arguments = { timezone = "UTC" } }]
"#;

const BOTH_SERVERS: [&str; 6] = [
    "clock_convert_time",
    "clock_get_current_time",
    "clocks",
    "own_time",
    "time_convert_time",
    "time_get_current_time",
];

const UNCHANGED: [&str; 3] = ["own_time", "time_convert_time", "time_get_current_time"];

/// Writes the start script of the server `clock`. The server writes its time zone into the
/// descriptions of its arguments, so a change of the script changes its tools, while the file of
/// the gateway remains the same.
fn set_zone(folder: &Folder, zone: &str) {
    let server = in_installed("python/bin/mcp-server-time");
    folder.write("clock.sh", &format!("exec '{server}' --local-timezone '{zone}'\n"));
}

/// Writes the file of a gateway that accepts only the tools in this lock.
fn locked(folder: &Folder, lock: &str) -> PathBuf {
    let script = folder.path("clock.sh");
    let clock = child("clock", &["sh", script.to_str().unwrap()], "");
    let section = format!("[lock]\nfile = {:?}\n", folder.path(lock));
    let sections = [section, clock, time(), COMPOSITES.to_owned()];
    folder.write(&format!("{lock}.toml"), &sections.join("\n"))
}

/// Runs `lock` with these arguments. Returns whether it succeeded, and its output.
fn lock(file: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = program("lock", file);
    let mut process = Process::start(command.args(arguments).stdout(Stdio::piped()));
    let printed = std::io::read_to_string(process.child.stdout.take().unwrap()).unwrap();
    (process.wait().success(), printed)
}

/// Returns the tools that a client lists, in order of their names, and the results of calls of
/// `clock_get_current_time`, `clocks` and `own_time`.
fn perform(client: Client, connect: &Value) -> (Vec<String>, [Value; 3]) {
    let direct = json!({ "name": "clock_get_current_time", "arguments": { "timezone": "UTC" } });
    let steps = client.perform(json!({
        "connect": connect,
        "steps": [
            { "list_tools": {} },
            { "call_tool": direct },
            { "call_tool": { "name": "clocks" } },
            { "call_tool": { "name": "own_time" } },
        ],
    }));
    let [_, listed, called @ ..] = &*steps else { panic!("{steps:?}") };
    let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    let mut names = names.collect::<Vec<_>>();
    names.sort_unstable();
    (names, called.to_vec().try_into().unwrap())
}

fn is_success(step: &Value) -> bool {
    step["result"].is_object() && step["result"]["isError"] != true
}

#[test]
fn tools_that_change_after_approval_are_hidden_from_all_clients() {
    let _machine = machine();
    let folder = Folder::new();
    set_zone(&folder, "Europe/Berlin");
    let file = locked(&folder, "tools.lock");
    assert!(lock(&file, &[]).0);
    assert!(lock(&file, &["--check"]).0);
    for client in Client::ALL {
        let (names, called) = perform(client, &by_command(&file));
        assert_eq!(names, BOTH_SERVERS, "{client:?}");
        assert!(called.iter().all(is_success), "{client:?}: {called:?}");
    }

    set_zone(&folder, "Asia/Tokyo");
    let gateway = Gateway::start(&file);
    for connect in [by_command(&file), gateway.connect()] {
        for client in Client::ALL {
            let (names, [direct, composite, other]) = perform(client, &connect);
            assert_eq!(names, UNCHANGED, "{client:?}, {connect}");
            assert!(!is_success(&direct) && !is_success(&composite), "{direct}, {composite}");
            assert!(!format!("{direct}{composite}").contains("Tokyo"), "{direct}, {composite}");
            assert!(is_success(&other), "{client:?}, {connect}: {other}");
        }
    }
    gateway
        .process
        .errors
        .after("tool `get_current_time` of backend `clock` differs from the lock");
    let (is_equal, printed) = lock(&file, &["--check"]);
    assert!(!is_equal);
    assert!(printed.contains("~ tool `get_current_time` of backend `clock`"), "{printed}");
    for zone in ["Europe/Berlin", "Asia/Tokyo"] {
        assert!(printed.contains(zone), "{printed}");
    }
    assert!(!printed.contains("backend `time`"), "{printed}");
}

#[test]
fn replicas_with_different_locks_each_apply_their_own() {
    let _machine = machine();
    let folder = Folder::new();
    set_zone(&folder, "Europe/Berlin");
    let before = locked(&folder, "before.lock");
    assert!(lock(&before, &[]).0);
    set_zone(&folder, "Asia/Tokyo");
    let after = locked(&folder, "after.lock");
    assert!(lock(&after, &[]).0);

    let replicas = [(&before, &UNCHANGED[..]), (&after, &BOTH_SERVERS[..])];
    for (gateway, expected) in replicas.map(|(file, tools)| (Gateway::start(file), tools)) {
        for client in Client::ALL {
            let (names, called) = perform(client, &gateway.connect());
            assert_eq!(names, expected, "{client:?}");
            let accepted = called.iter().filter(|step| is_success(step)).count();
            assert_eq!(accepted, if expected.len() == BOTH_SERVERS.len() { 3 } else { 1 });
        }
    }
}
