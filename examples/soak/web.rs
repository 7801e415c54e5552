//! The server over HTTP: a process that is killed and restarted at its address.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};

use crate::{process::Process, system::Error};

/// The behavior of the process.
const BEHAVIOR: &str = "faulty";

/// The process, which is restarted whenever it ends.
pub(crate) struct Web {
    pub(crate) url: String,
    starts: Arc<AtomicU64>,
    keeping: JoinSet<()>,
}

// === impl Web ===

impl Web {
    pub(crate) async fn start() -> Result<Self, Error> {
        let mut running = Process::start(BEHAVIOR, "0").await?;
        let url = running.url.clone();
        let port = url.rsplit(':').next().unwrap_or_default().trim_end_matches("/mcp").to_owned();
        let starts = Arc::new(AtomicU64::new(1));
        let mut keeping = JoinSet::new();
        keeping.spawn({
            let starts = starts.clone();
            async move {
                loop {
                    let _how = running.process.wait().await;
                    match Process::start(BEHAVIOR, &port).await {
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

    /// Returns the number of starts.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Stops it without a restart.
    pub(crate) async fn stop(mut self) {
        self.keeping.shutdown().await;
    }
}
