//! A browser that shows a page.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

use serde_json::{Value, json};

/// A browser with one page. Ends when this value is dropped.
pub(crate) struct Browser {
    process: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// The directory where `install.sh` has installed the driver.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let status = Command::new(sources().join("install.sh")).status().unwrap();
        assert!(status.success(), "install.sh: {status}");
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/browser")
    })
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

// === impl Browser ===

impl Browser {
    /// Starts a browser that shows this page.
    pub(crate) fn open(url: &str) -> Self {
        let mut process = Command::new("node")
            .arg(sources().join("browser.mjs"))
            .arg(installed())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut browser = Self { process, commands, answers };
        browser.command("size", &json!([1100, 900]));
        browser.command("open", &json!(url));
        browser
    }

    #[track_caller]
    pub(crate) fn command(&mut self, name: &str, value: &Value) -> Value {
        let commands = self.commands.as_mut().unwrap();
        writeln!(commands, "{}", json!({ name: value })).unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["error"], Value::Null, "{name} {value}");
        answer["ok"].clone()
    }

    /// Returns the value of an expression of JavaScript.
    #[track_caller]
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        self.command("evaluate", &json!(expression))
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn wait(&mut self, expression: &str) {
        self.command("wait", &json!(expression));
    }

    #[track_caller]
    pub(crate) fn click(&mut self, selector: &str) {
        self.command("click", &json!(selector));
    }

    /// Returns the text of all elements that a selector matches and that are visible.
    #[track_caller]
    pub(crate) fn texts(&mut self, selector: &str) -> Vec<String> {
        let texts = self.value(&format!(
            "[...document.querySelectorAll({selector:?})]\
             .filter((element) => element.checkVisibility())\
             .map((element) => element.innerText ?? element.textContent)"
        ));
        texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    /// Saves a picture of the page as an artifact of the test.
    pub(crate) fn screenshot(&mut self, name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        self.command("screenshot", &json!(path));
        path
    }

    /// Asserts that the browser has reported no errors, such as scripts that the policy rejects.
    #[track_caller]
    pub(crate) fn assert_no_problems(&mut self) {
        assert_eq!(self.command("problems", &Value::Null), json!([]));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It closes the browser and ends.
        self.commands = None;
        let _ = self.process.wait();
    }
}
