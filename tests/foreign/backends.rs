//! The parts of gateway files.

use std::path::Path;

use crate::support::{Folder, example, installed};

/// A backend that is a child process, with more keys.
pub(crate) fn child(name: &str, command: &[&str], more: &str) -> String {
    let (command, arguments) = command.split_first().unwrap();
    format!("[[backends]]\nname = {name:?}\ncommand = {command:?}\nargs = {arguments:?}\n{more}\n")
}

pub(crate) fn misbehaving(name: &str, behaviour: &str) -> String {
    child(name, &[&example("misbehaving"), behaviour], "")
}

/// A backend that writes all received messages to a file.
pub(crate) fn logging(name: &str, behaviour: &str, log: &Path) -> String {
    let log = format!("env = {{ MISBEHAVING_LOG = {log:?} }}");
    child(name, &[&example("misbehaving"), behaviour], &log)
}

/// The server with all features of the protocol before 2026-07-28.
pub(crate) fn everything() -> String {
    child("everything", &["node", &everything_program(), "stdio"], "")
}

pub(crate) fn everything_program() -> String {
    in_installed("node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

pub(crate) fn files(folder: &Folder) -> String {
    let server = "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";
    let folder = folder.path("");
    child("files", &["node", &in_installed(server), folder.to_str().unwrap()], "")
}

pub(crate) fn time() -> String {
    child("time", &[&in_installed("python/bin/mcp-server-time"), "--local-timezone", "UTC"], "")
}

pub(crate) fn sqlite(folder: &Folder) -> String {
    let (server, file) = (in_installed("python-v1/bin/mcp-server-sqlite"), folder.path("data.db"));
    child("sqlite", &[&server, "--db-path", file.to_str().unwrap()], "")
}

/// Returns the path of a program that `install.sh` has installed.
pub(crate) fn in_installed(path: &str) -> String {
    installed().join(path).into_os_string().into_string().unwrap()
}

/// A composite that calls each of these with its own arguments.
pub(crate) fn fan_out(name: &str, tools: &[&str]) -> String {
    format!(
        "[[composite_tools]]\nname = {name:?}\ndescription = \"All at once\"\ntools = {tools:?}\n"
    )
}
