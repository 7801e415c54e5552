//! Runs the suite and reads its reports.

use std::{
    collections::{BTreeMap, HashSet},
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde::Deserialize;
use tempfile::tempdir;

/// A revision of the protocol, or an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) enum Revision {
    #[serde(rename = "2025-11-25")]
    Legacy,
    #[serde(rename = "2026-07-28")]
    Modern,
    /// The tasks extension of 2026-07-28.
    #[serde(rename = "tasks")]
    Tasks,
}

/// A check of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Check {
    pub(crate) scenario: String,
    pub(crate) id: String,
}

/// The status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// The suite does not report it.
    Absent,
    /// It does not apply, or is only informational.
    Skipped,
    Passed,
    /// It failed, or the suite warns.
    Failed,
}

pub(crate) type Outcomes = BTreeMap<Check, Status>;

/// One check, as written by the suite.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reported {
    id: String,
    status: String,
    error_message: Option<String>,
}

/// Returns the directory where `install.sh` has installed the suite.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        let install = repository.join("tests/conformance/install.sh");
        let status = Command::new(install).status().unwrap();
        assert!(status.success(), "install.sh: {status}");
        repository.join("target/conformance/node_modules")
    })
}

/// Returns the command of the suite with these arguments.
fn suite(arguments: &[&str]) -> Command {
    let mut command = Command::new(installed().join(".bin/node"));
    command
        .arg(installed().join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(arguments)
        .stdin(Stdio::null());
    command
}

/// Runs all scenarios of a revision against a server. Blocks until they have ended.
pub(crate) fn run(url: &str, revision: Revision, label: &str) -> Outcomes {
    let results = tempdir().unwrap();
    let label = format!("{label} {revision}");
    if revision == Revision::Tasks {
        run_task_scenarios(url, results.path());
        return read(results.path(), &label);
    }
    let output = suite(&["server", "--suite", "all", "--url", url])
        .args(["--spec-version", &revision.to_string()])
        .arg("--output-dir")
        .arg(results.path())
        .output()
        .unwrap();
    let outcomes = read(results.path(), &label);
    let said = String::from_utf8_lossy(&output.stdout);
    // Its exit status only reports whether a check failed, as some are expected to.
    let ran: HashSet<_> = outcomes.keys().map(|check| &*check.scenario).collect();
    let started = said.matches("=== Running scenario: ").count();
    assert!(
        started > 0 && ran.len() == started,
        "{label}: {started} scenarios started, {} reported\n{said}{}",
        ran.len(),
        String::from_utf8_lossy(&output.stderr),
    );
    outcomes
}

/// Runs the scenarios of the tasks extension, which the suite runs only by name.
fn run_task_scenarios(url: &str, results: &Path) {
    let list = suite(&["list", "--server"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let names = list.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(' ').next());
    let names: Vec<_> = names.filter(|name| name.starts_with("tasks-")).collect();
    assert!(names.len() >= 10, "{list}");
    for name in names {
        let mut command = suite(&["server", "--scenario", name, "--url", url, "--output-dir"]);
        let output = command.arg(results).output().unwrap();
        let folders = fs::read_dir(results).unwrap();
        let is_reported = folders.into_iter().any(|folder| {
            let folder = folder.unwrap().file_name();
            folder.to_string_lossy().starts_with(&format!("server-{name}-2"))
        });
        assert!(is_reported, "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Reads `server-SCENARIO-TIME/checks.json` of each scenario.
#[expect(clippy::print_stdout, reason = "cargo shows it with a test that fails")]
fn read(results: &Path, label: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for entry in fs::read_dir(results).unwrap() {
        let folder = entry.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let name = name.strip_prefix("server-").unwrap_or(&name);
        // The name is followed by the time, such as `2026-07-28T00-00-00-000Z`.
        let scenario = name.rsplitn(7, '-').nth(6).unwrap_or(name).to_owned();
        let checks = fs::read(folder.path().join("checks.json")).unwrap();
        let checks: Vec<Reported> = serde_json::from_slice(&checks).unwrap();
        for check in checks {
            let status = match &*check.status {
                "SUCCESS" => Status::Passed,
                "FAILURE" | "WARNING" => Status::Failed,
                _ => Status::Skipped,
            };
            let key = Check { scenario: scenario.clone(), id: check.id };
            if status == Status::Failed {
                let why = check.error_message.unwrap_or_default();
                println!("{label} {key}: {} {why}", check.status);
            }
            // Several checks may have the same id.
            let outcome = outcomes.entry(key).or_insert(status);
            *outcome = status.max(*outcome);
        }
    }
    outcomes
}

// === impl Revision, Check ===

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Legacy => "2025-11-25",
            Self::Modern => "2026-07-28",
            Self::Tasks => "tasks",
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scenario, self.id)
    }
}
