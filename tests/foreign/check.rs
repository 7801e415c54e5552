//! The output of `check`, and the secrets that are never printed.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::{
    backends::{child, everything, fan_out, misbehaving, time},
    clients::Client,
    gateway::{Gateway, program},
    http_backend::serve_everything,
    ports::free_port,
    processes::{Process, signal},
    support::{Folder, example, machine},
};

/// The output of a command, and whether it succeeded.
struct Checked {
    is_good: bool,
    printed: String,
    warnings: String,
}

fn check(command: &mut Command) -> Checked {
    let mut process = Process::start(command.stdout(Stdio::piped()));
    let mut printed = String::new();
    process.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    let is_good = process.wait().success();
    Checked { is_good, printed, warnings: process.last_words() }
}

#[test]
fn valid_file_is_printed_as_clients_see_it() {
    let _machine = machine();
    let folder = Folder::new();
    let look = r#"
[[composite_tools]]
name = "look"
description = "What is there to see"
targets = [
    { id = "weather", tool = "everything/get-structured-content" },
    { id = "time", tool = "time/get_current_time" },
]
"#;
    let file = folder.config(&[everything(), time(), look.to_owned()]);
    let Checked { is_good, printed, warnings } = check(&mut program("check", &file));
    assert!(is_good, "{warnings}");
    let (backends, rest) = printed.split_once("\n\ntools\n").unwrap();
    let (tools, composites) = rest.split_once("\n\ncomposites\n").unwrap();
    assert!(backends.contains("  everything: mcp-servers/everything 2.0.0, MCP 2025-11-25"));
    assert!(backends.contains("  time: mcp-time ") && backends.ends_with("MCP 2026-07-28"));
    assert!(tools.contains("  everything_get-sum(a, b)"), "{tools}");
    assert!(tools.contains("  time_convert_time("), "{tools}");
    assert_eq!(composites, "  look(location, timezone)  read-only\n    What is there to see\n");
}

#[test]
fn all_errors_of_a_file_are_reported_at_once() {
    let folder = Folder::new();
    let file = folder.config(&[
        child("missing", &["/nowhere/to/be/found"], ""),
        misbehaving("twins", "twins"),
        misbehaving("names", "bad-names"),
        misbehaving("good", "good"),
        fan_out("unknown", &["good/echo", "good/ehco"]),
        fan_out("known", &["good/echo", "twins/good"]),
    ]);
    let Checked { is_good, printed, warnings } = check(&mut program("check", &file));
    assert!(!is_good);
    assert!(printed.contains("  missing: not connected\n") && printed.contains("\n  known("));
    for mistake in [
        "backend `missing` is not connected: the command `/nowhere/to/be/found` could not be \
         started",
        "backend `twins` has two tools `twins_twin`: the second is ignored",
        "the tool `names_with space` of backend `names` is left out: expected a name of",
        "composite `unknown` is not listed: no `good_ehco`",
    ] {
        let count = warnings.lines().filter(|line| line.starts_with(mistake)).count();
        assert_eq!(count, 1, "{mistake}\n\n{warnings}");
    }
}

#[test]
fn secrets_do_not_appear_in_any_output() {
    let _machine = machine();
    let port = free_port();
    let _server = serve_everything(port);
    let folder = Folder::new();
    let file = folder.config(&[
        child(
            "near",
            // It ignores its other arguments.
            &[&example("misbehaving"), "good", "--token", "${IN_ARGUMENTS}"],
            "env = { PASSWORD = \"hunter2-in-env\", TOKEN = \"${IN_ENV}\" }",
        ),
        child("missing", &["/nowhere/${IN_COMMAND}/server"], ""),
        format!(
            "[[backends]]\nname = \"far\"\n\
             url = \"http://127.0.0.1:{port}/mcp?key=${{IN_QUERY}}\"\n\
             headers = {{ X-Key = \"hunter2-in-headers\", Authorization = \"Bearer ${{IN_HEADER}}\" }}"
        ),
        format!(
            "[[backends]]\nname = \"user\"\n\
             url = \"http://user:hunter2-in-url@127.0.0.1:{port}/mcp\""
        ),
        "[[backends]]\nname = \"nobody\"\n\
         url = \"http://user:${IN_PASSWORD}@127.0.0.1:1/mcp?key=hunter2-in-query\""
            .to_owned(),
        fan_out("all", &["near/echo", "far/echo", "user/echo"]),
    ]);
    let with_secrets = |name: &str| {
        let mut command = program(name, &file);
        for name in ["IN_ARGUMENTS", "IN_ENV", "IN_COMMAND", "IN_QUERY", "IN_HEADER", "IN_PASSWORD"]
        {
            command.env(name, format!("hunter2-{name}"));
        }
        command.env("RUST_LOG", "trace");
        command
    };

    let Checked { is_good, printed, warnings } = check(&mut with_secrets("check"));
    assert!(!is_good);
    assert!(printed.contains("  far: mcp-servers/everything"), "{warnings}");
    assert_eq!(hunters(&printed), Vec::<&str>::new());
    assert_eq!(hunters(&warnings), Vec::<&str>::new());

    let mut gateway = Gateway::run(&mut with_secrets("serve"));
    let arguments = json!({ "text": "hello", "message": "hello" });
    let script = json!({
        "connect": gateway.connect(),
        "steps": [
            { "list_tools": {} },
            { "call_tool": { "name": "all", "arguments": arguments } },
            { "call_tool": { "name": "missing_echo" } },
            { "call_tool": { "name": "nobody_echo" } },
        ],
    });
    let steps = Client::TypeScript1.perform(script);
    assert_eq!(steps[2]["result"]["isError"], false, "{steps:?}");
    let output = serde_json::to_string(&steps).unwrap();
    assert_eq!(hunters(&output), Vec::<&str>::new());
    signal(gateway.process.number(), "TERM");
    assert!(gateway.process.wait().success());
    let logged = gateway.process.last_words();
    assert!(logged.contains("TRACE"), "{logged}");
    assert_eq!(hunters(&logged), Vec::<&str>::new());
}

/// Returns the lines that contain a secret.
fn hunters(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("hunter2")).collect()
}
