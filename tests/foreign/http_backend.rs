//! A server over HTTP behind the gateway.

use std::{
    net::TcpStream,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::{
    backends::{everything_program, misbehaving},
    gateway::{BOTH, Wire},
    ports::free_port,
    processes::Process,
    support::{Folder, until},
};

pub(crate) fn serve_everything(port: u16) -> Process {
    let mut command = Command::new("node");
    command.args([&everything_program(), "streamableHttp"]).env("PORT", port.to_string());
    let process = Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()));
    until("a server", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    process
}

#[test]
fn http_backend_is_called_again_after_a_restart() {
    let port = free_port();
    let mut server = serve_everything(port);
    let folder = Folder::new();
    let file = folder.config(&[
        format!("[[backends]]\nname = \"far\"\nurl = \"http://127.0.0.1:{port}/mcp\""),
        misbehaving("near", "good"),
        r#"
[[composite_tools]]
name = "both"
description = "Says it twice"
targets = [
    { id = "far", tool = "far/echo", arguments = { message = "$input.text" } },
    { id = "near", tool = "near/echo", arguments = { text = "$input.text" } },
]
"#
        .to_owned(),
    ]);
    let arguments = json!({ "text": "hello" });

    for era in BOTH {
        let mut wire = Wire::start(&file, era);
        let tools = wire.tools();
        for name in ["far_get-sum", "near_echo", "both"] {
            assert!(tools.iter().any(|tool| tool == name), "{tools:?}");
        }
        let both = wire.call("both", &arguments);
        let branches = &both["structuredContent"]["branches"];
        assert_eq!(branches["far"]["output"], "Echo: hello");
        assert_eq!(branches["near"]["output"], "hello");

        server.kill();
        let both = wire.call("both", &arguments);
        let branches = &both["structuredContent"]["branches"];
        assert_eq!(branches["far"]["status"], "failed");
        let message = branches["far"]["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("backend `far` "), "{message}");
        assert_eq!(branches["near"]["output"], "hello");

        server = serve_everything(port);
        // The first call finds out that the server has dropped the session.
        until("a session", || wire.call("both", &arguments)["isError"] == false);
        let both = wire.call("both", &arguments);
        assert_eq!(both["structuredContent"]["branches"]["far"]["output"], "Echo: hello");
        assert_eq!(wire.tools(), tools);
    }
}
