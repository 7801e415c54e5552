//! Files, timeouts, and the programs under test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use serde_json::Value;
use tempfile::{TempDir, tempdir};
use tokio::{runtime::Runtime, time::Instant};

use crate::programs;

/// The maximum time of any wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A temporary folder for one test, removed when this value is dropped.
pub(crate) struct Folder(TempDir);

/// The directory where `install.sh` has installed the third-party programs.
pub(crate) fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let status = Command::new(sources().join("install.sh")).status().unwrap();
        assert!(status.success(), "install.sh: {status}");
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/foreign")
    })
}

/// The directory of the clients.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign")
}

/// Returns the path of an example, built from its current source: cargo builds no examples if this
/// test is run alone.
pub(crate) fn example(name: &str) -> String {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let build = ["build", "--all-features", "--example", "misbehaving"];
        let status = Command::new(env!("CARGO")).args(build).status().unwrap();
        assert!(status.success());
    });
    programs::example(name).into_os_string().into_string().unwrap()
}

/// A file of an example, by its path in `examples`.
pub(crate) fn example_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path)
}

/// A lock held by a test that starts many programs: a small machine would be too slow for two of
/// them at once.
pub(crate) fn machine() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test that starts many programs, while no other such test runs.
pub(crate) fn alone(test: impl Future<Output = ()>) {
    let _machine = machine();
    Runtime::new().unwrap().block_on(test);
}

/// Waits for another process.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "should have come by now: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the messages that a server in `tests/misbehaving` has received so far.
pub(crate) fn received(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// === impl Folder ===

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes the file of a gateway.
    pub(crate) fn config(&self, sections: &[String]) -> PathBuf {
        self.write("gateway.toml", &sections.join("\n"))
    }
}
