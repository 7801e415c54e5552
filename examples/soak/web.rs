//! The server over HTTP: a process that is killed and started again at its address.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdin, Command},
    task::JoinSet,
    time::sleep,
};

use crate::world::{Error, misbehaving};

/// The process, which is started again whenever it ends.
pub(crate) struct Web {
    pub(crate) url: String,
    starts: Arc<AtomicU64>,
    keeping: JoinSet<()>,
}

/// The process as it is now. It ends with its input, so also when we end.
struct Running {
    process: Child,
    _input: ChildStdin,
    url: String,
}

// === impl Web ===

impl Web {
    pub(crate) async fn start() -> Result<Self, Error> {
        let mut running = start("0").await?;
        let url = running.url.clone();
        let port = url.rsplit(':').next().unwrap_or_default().trim_end_matches("/mcp").to_owned();
        let starts = Arc::new(AtomicU64::new(1));
        let mut keeping = JoinSet::new();
        keeping.spawn({
            let starts = starts.clone();
            async move {
                loop {
                    let _how = running.process.wait().await;
                    match start(&port).await {
                        Ok(again) => {
                            running = again;
                            starts.fetch_add(1, Ordering::Relaxed);
                        }
                        // The port may be taken for a moment.
                        Err(_) => sleep(Duration::from_millis(100)).await,
                    }
                }
            }
        });
        Ok(Self { url, starts, keeping })
    }

    /// How often it was started.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Ends it for good.
    pub(crate) async fn stop(mut self) {
        self.keeping.shutdown().await;
    }
}

/// Starts the process at this port.
async fn start(port: &str) -> Result<Running, Error> {
    let mut command = Command::new(misbehaving());
    command.args(["faulty", "--http", port]).kill_on_drop(true);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let _input = process.stdin.take().ok_or("it has no input")?;
    let output = process.stdout.take().ok_or("it has no output")?;
    let url = BufReader::new(output).lines().next_line().await?.ok_or("it does not listen")?;
    Ok(Running { process, _input, url })
}
