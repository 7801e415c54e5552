//! The resources of this process that must not leak.

use std::{fmt, fs, process, time::Duration};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};

/// The resources of this process, as reported by Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) tasks: usize,
    pub(crate) children: usize,
    pub(crate) files: usize,
}

/// The size of this process, in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) now: f64,
    /// Without mapped files, such as debug information after a panic.
    pub(crate) own: f64,
    pub(crate) peak: f64,
}

// === impl Resources ===

impl Resources {
    pub(crate) fn now() -> Self {
        Self {
            tasks: Handle::current().metrics().num_alive_tasks(),
            children: children().len(),
            files: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
        }
    }

    /// Returns `true` if no count exceeds that of `other`.
    pub(crate) const fn is_within(self, other: Self) -> bool {
        self.tasks <= other.tasks && self.children <= other.children && self.files <= other.files
    }

    /// Waits until the resources are within the limit, or until the timeout, and returns them.
    pub(crate) async fn settled(limit: Self, patience: Duration) -> Self {
        let end = Instant::now() + patience;
        loop {
            let now = Self::now();
            if now.is_within(limit) || Instant::now() > end {
                return now;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the resources no longer change, and returns them.
    pub(crate) async fn at_rest() -> Self {
        let mut before = Self::now();
        let mut same = 0;
        while same < 20 {
            sleep(Duration::from_millis(50)).await;
            let now = Self::now();
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
        before
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tasks, children, files } = self;
        write!(f, "{tasks} tasks, {children} child processes, {files} open files")
    }
}

// === impl Memory ===

impl Memory {
    pub(crate) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
            kib.unwrap_or_default() / 1024.0
        };
        Self { now: mib("VmRSS:"), own: mib("RssAnon:"), peak: mib("VmHWM:") }
    }
}

/// Returns the processes that this one has started and not waited for.
fn children() -> Vec<u32> {
    let own_id = process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    ids.filter(|id| {
        // The name may contain any characters, including spaces: `1 (name) S 2`.
        let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let parent = status.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        parent == Some(&own_id)
    })
    .collect()
}
