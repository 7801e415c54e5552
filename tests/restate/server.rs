//! A Restate server for one test.

use std::{
    env,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
    thread,
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::Instant;

use super::{ports::free_port, replica::HANG};

/// A key with which a server signs its requests, and its public key. Only for tests.
const IDENTITY: (&str, &str) = (
    "-----BEGIN PRIVATE KEY-----\n\
     MC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n\
     -----END PRIVATE KEY-----\n",
    "publickeyv1_4zvwRjXUKGfvwnParsHAS3HuSVzV5cA4McphgmoCtajS",
);
/// The name of the file with the key, in the folder of a server.
const KEY_FILE: &str = "identity.pem";

/// A server that ends with the test.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
    ingress: u16,
    admin: u16,
    node: u16,
    /// Whether the server signs its requests.
    has_identity: bool,
}

/// The program of the server, which `install.sh` has installed.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = Command::new(repository.join("tests/restate/install.sh")).status().unwrap();
    assert!(installed.success(), "install.sh: {installed}");
    let packages = repository.join("target/restate/node_modules/@restatedev");
    let (os, arch) = match (env::consts::OS, env::consts::ARCH) {
        (os, "x86_64") => (os, "x64"),
        (os, _) => (os, "arm64"),
    };
    let os = if os == "macos" { "darwin" } else { os };
    packages.join(format!("restate-server-{os}-{arch}/bin/restate-server"))
});

// === impl Server ===

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), false)
    }

    /// Starts a server that signs its requests.
    pub(crate) fn start_with_identity() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(KEY_FILE), IDENTITY.0).unwrap();
        Self::start_in(folder, true)
    }

    fn start_in(folder: TempDir, has_identity: bool) -> Self {
        let [ingress, admin, node] = [(); 3].map(|()| free_port());
        let process = spawn(folder.path(), ingress, admin, node);
        Self { process, folder, ingress, admin, node, has_identity }
    }

    /// Returns the public key of a server that signs its requests.
    pub(crate) fn identity_key(&self) -> Option<&'static str> {
        self.has_identity.then_some(IDENTITY.1)
    }

    pub(crate) fn ingress(&self) -> String {
        format!("http://127.0.0.1:{}", self.ingress)
    }

    pub(crate) fn admin(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin)
    }

    /// Kills the server like a crash, and starts it again with its data.
    pub(crate) fn crash(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = spawn(self.folder.path(), self.ingress, self.admin, self.node);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(folder: &Path, ingress: u16, admin: u16, node: u16) -> Child {
    let mut command = Command::new(&*PROGRAM);
    let key = folder.join(KEY_FILE);
    if key.exists() {
        command.env("RESTATE_WORKER__INVOKER__REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE", key);
    }
    let mut process = command
        .args([
            "--node-name",
            "test",
            "--no-logo",
            "--listen-mode",
            "tcp",
            "--bind-ip",
            "127.0.0.1",
        ])
        .args(["--bind-port", &node.to_string(), "--base-dir"])
        .arg(folder)
        .env("RESTATE_INGRESS__BIND_ADDRESS", format!("127.0.0.1:{ingress}"))
        .env("RESTATE_ADMIN__BIND_ADDRESS", format!("127.0.0.1:{admin}"))
        .env("RESTATE_DEFAULT_NUM_PARTITIONS", "2")
        .env("RESTATE_DISABLE_TELEMETRY", "true")
        .env("DO_NOT_TRACK", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    for port in [ingress, admin] {
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert_eq!(process.try_wait().unwrap(), None, "the server has ended");
            assert!(start.elapsed() < HANG, "the server does not listen");
            thread::sleep(Duration::from_millis(20));
        }
    }
    process
}
