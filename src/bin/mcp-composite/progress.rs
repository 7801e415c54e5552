//! The live progress of a call on a terminal: a line for each branch.

use std::{
    collections::HashMap,
    convert::Infallible,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use mcp_composite::observe::{Branch, Event, Observer, RunId, What};

/// The interval at which running branches are drawn again.
const TICK: Duration = Duration::from_millis(100);

/// Shows the branches of all runs on standard error. Clones share the lines.
#[derive(Clone)]
pub(crate) struct Progress(Arc<Shared>);

struct Shared {
    lines: MultiProgress,
    style: ProgressStyle,
    running: Mutex<HashMap<(RunId, String), ProgressBar>>,
}

// === impl Progress ===

impl Progress {
    /// Returns `None` if standard error is not a terminal.
    pub(crate) fn on_terminal() -> Option<Self> {
        io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}");
            Self(Arc::new(Shared {
                lines: MultiProgress::new(),
                style: style.unwrap_or_else(|_| ProgressStyle::default_spinner()),
                running: Mutex::default(),
            }))
        })
    }

    /// Draws the lines of running branches until the future is dropped.
    pub(crate) async fn draw(&self) -> Infallible {
        loop {
            tokio::time::sleep(TICK).await;
            self.running().values().for_each(ProgressBar::tick);
        }
    }

    /// Removes the lines of branches that have not ended.
    pub(crate) fn clear(&self) {
        self.running().drain().for_each(|(_, line)| line.finish_and_clear());
    }

    fn running(&self) -> MutexGuard<'_, HashMap<(RunId, String), ProgressBar>> {
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, event: &Event<'_>, branch: Branch<'_>) {
        let line = self.0.lines.add(ProgressBar::new_spinner());
        line.set_style(self.0.style.clone());
        line.set_message(name(event, branch));
        line.tick();
        self.running().insert((event.run, branch.to_string()), line);
    }

    fn set(&self, event: &Event<'_>, branch: Branch<'_>, state: &str) {
        if let Some(line) = self.running().get(&(event.run, branch.to_string())) {
            line.set_message(format!("{}: {state}", name(event, branch)));
        }
    }

    fn end(&self, event: &Event<'_>, branch: Branch<'_>, mark: char, state: &str) {
        let line = self.running().remove(&(event.run, branch.to_string()));
        if let Some(line) = &line {
            line.finish_and_clear();
            self.0.lines.remove(line);
        }
        // A loop may have thousands of elements: only their failures are kept.
        if branch.element.is_none() || mark == '✗' {
            // The terminal may be closed.
            let _ = self.0.lines.println(format!("{mark} {}: {state}", name(event, branch)));
        }
    }
}

impl Observer for Progress {
    fn on_event(&self, event: &Event<'_>) {
        match event.what {
            What::BranchStarted { branch, .. } => self.start(event, branch),
            What::Attempt { branch, attempt, after: Some(after), .. } => {
                self.set(event, branch, &format!("attempt {attempt} after: {after}"));
            }
            What::BranchWaiting { branch, .. } => self.set(event, branch, "waiting for user input"),
            What::BranchFinished { branch, status, error, took, .. } => {
                let mark = if status == "completed" { '✓' } else { '✗' };
                let reason = error.filter(|error| *error != status);
                let reason = reason.map_or_else(String::new, |error| format!(" ({error})"));
                self.end(
                    event,
                    branch,
                    mark,
                    &format!("{status}{reason} in {:.1} s", took.as_secs_f64()),
                );
            }
            What::BranchSkipped { branch, reason, .. } => {
                self.end(event, branch, '-', &format!("skipped ({reason})"));
            }
            _ => (),
        }
    }
}

/// Returns the composite and its branch. A nested run is shown below the branch that called it.
fn name(event: &Event<'_>, branch: Branch<'_>) -> String {
    let indent = if event.parent.is_some() { "  " } else { "" };
    format!("{indent}{} / {branch}", event.composite)
}
