//! The gateway as a program, while its file changes.

use std::{fs, path::Path, process::Stdio, time::Duration};

use mcp_composite::lock::Lock;
use rmcp::{RoleClient, ServiceExt, service::RunningService};
use tempfile::{TempDir, tempdir};
use tokio::{
    process::{Child, Command},
    time::Instant,
};

use crate::{
    backends::{backend, composite},
    programs::{self, PROGRAM, signal},
    support::{Human, soon, until},
};

/// A gateway over stdio with a client; its file is in its own folder.
struct Program {
    folder: TempDir,
    child: Child,
    client: RunningService<RoleClient, Human>,
}

impl Program {
    async fn start(parts: &[String], options: &[&str]) -> Self {
        let folder = tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        fs::write(&file, parts.concat()).unwrap();
        let mut child = Command::new(PROGRAM)
            .arg("serve")
            .arg(file)
            .args(options)
            .env("RUST_LOG", "info")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let pipes = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let client = soon(Human::default().serve(pipes)).await.unwrap();
        Self { folder, child, client }
    }

    /// Replaces a file at once, as most editors do.
    fn write(&self, name: &str, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.folder.path().join(name)).unwrap();
    }

    fn hang_up(&self) {
        assert!(signal(self.child.id().unwrap().into(), "HUP"));
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    async fn logs(&self, text: &str) {
        until(async || self.log().contains(text)).await;
    }

    async fn has(&self, tool: &str) -> bool {
        let tools = soon(self.client.list_all_tools()).await.unwrap();
        tools.iter().any(|listed| listed.name == tool)
    }

    async fn end(mut self) {
        self.client.cancel().await.unwrap();
        assert!(soon(self.child.wait()).await.unwrap().success());
    }
}

fn one() -> String {
    backend("one", "good", "")
}

#[tokio::test]
async fn changed_config_file_is_reloaded_on_request() {
    let program = Program::start(&[one()], &[]).await;
    // One that cannot be reached, whose key the transport may log.
    let unreachable = "[[backends]]\nname = 'web'\nurl = 'http://127.0.0.1:9/mcp?key=sesame'\n";
    let text = [one(), backend("two", "good", ""), unreachable.to_owned()].concat();
    program.write("gateway.toml", &text);
    program.hang_up();
    program.logs("reloaded: kept `one`; connected `two`, `web`").await;
    until(async || program.client.service().log.has("tools changed")).await;
    assert!(program.has("two_echo").await);

    program.write("gateway.toml", "backends = [");
    program.hang_up();
    program.logs("the reload failed, and the previous configuration stays in use:").await;
    assert!(program.has("two_echo").await);
    assert!(!program.log().contains("sesame"), "{}", program.log());
    program.end().await;
}

#[tokio::test]
async fn changes_of_a_watched_file_are_applied() {
    let include = || "include = ['more/*.toml']\n".to_owned();
    let program = Program::start(&[include(), one()], &["--watch"]).await;
    let more = program.folder.path().join("more");
    fs::create_dir(&more).unwrap();

    // A new included file.
    program.write("more/all.toml", &composite("['one/echo', 'one/pid']"));
    until(async || program.has("all").await).await;

    // Several errors, reported once and together.
    let mistaken = [include(), one(), "nmae = 1\nprefx = 'x'\n".to_owned()].concat();
    program.write("gateway.toml", &mistaken);
    program.logs("unknown key `prefx`").await;
    // It keeps checking whether they are fixed, and logs nothing new.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let log = program.log();
    assert_eq!(log.matches("the reload failed").count(), 1, "{log}");
    assert!(log.contains("unknown key `nmae`"), "{log}");
    assert!(program.has("all").await);

    // Another file behind the same path.
    fs::write(
        program.folder.path().join("other.toml"),
        [one(), backend("two", "good", "")].concat(),
    )
    .unwrap();
    link("other.toml", program.folder.path());
    until(async || program.has("two_echo").await).await;
    assert!(!program.has("all").await);
    program.end().await;
}

#[tokio::test]
async fn changed_lock_is_applied() {
    let program = Program::start(&[one()], &["--watch"]).await;
    assert!(program.has("one_echo").await);
    program.write("tools.lock", &Lock::new().to_toml_string());
    program.write("gateway.toml", &[one(), "[lock]\nfile = 'tools.lock'\n".to_owned()].concat());
    until(async || !program.has("one_echo").await).await;
    // Only the lock changes.
    let file = program.folder.path().join("gateway.toml");
    assert!(programs::run(&["lock", file.to_str().unwrap()]).await.status.success());
    until(async || program.has("one_echo").await).await;
    program.end().await;
}

#[tokio::test]
async fn partially_written_file_is_not_applied() {
    let full = [one(), backend("two", "good", "")];
    let program = Program::start(&full, &["--watch"]).await;
    assert!(program.has("two_echo").await);
    let file = program.folder.path().join("gateway.toml");
    let (mut brief, mut long) = (0, 0);
    while brief < 3 {
        let begun = Instant::now();
        fs::write(&file, one()).unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
        fs::write(&file, full.concat() + "# again\n").unwrap();
        // The program checks the file each second, and applies it after two checks without a
        // change. On a busy machine, both may see the same part.
        if begun.elapsed() < Duration::from_secs(1) {
            brief += 1;
        } else {
            long += 1;
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    program.logs("reloaded: kept `one`, `two`").await;
    assert!(program.log().matches("removed").count() <= long, "{}", program.log());
    program.end().await;
}

/// Replaces the gateway's file by a link to another one.
fn link(other: &str, folder: &Path) {
    let new = folder.join("link");
    std::os::unix::fs::symlink(other, &new).unwrap();
    fs::rename(new, folder.join("gateway.toml")).unwrap();
}

#[tokio::test]
async fn view_over_stdio_remains_selected_after_a_reload() {
    let view = |tool: &str| {
        format!(
            "[[views]]\npath = '/team-a'\nfilter.expose_tools = ['{tool}']\n\
             [[views]]\npath = '/team-b'\n"
        )
    };
    for watches in [false, true] {
        let options = ["--view", "/team-a", "--watch"];
        let options = &options[..if watches { 3 } else { 2 }];
        let program = Program::start(&[one(), view("one_echo")], options).await;
        assert!(program.has("one_echo").await && !program.has("one_pid").await);
        let replace = |text: &str| {
            program.write("gateway.toml", text);
            if !watches {
                program.hang_up();
            }
        };
        replace(&(one() + &view("one_pid")));
        program.logs("reloaded: ").await;
        assert!(program.has("one_pid").await && !program.has("one_echo").await);

        // The file itself has more tools than the view.
        replace(&one());
        program.logs("unknown view `/team-a`: the file has no `[[views]]`").await;
        assert!(program.has("one_pid").await && !program.has("one_echo").await);
        program.end().await;
    }
}
