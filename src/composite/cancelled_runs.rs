//! Runs the finally steps of composite calls that were cancelled. Finally steps clean up at the end
//! of a run.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::{runtime::Handle, time::timeout};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tracing::Instrument;

use crate::{log_pause::LogPause, message::Account};

/// The default maximum number of cancelled runs whose finally steps run at the same time.
const MAX_CANCELLED_RUNS: usize = 1_000;

/// Tracks the runs whose [finally steps](super::Finally) run even if their call is cancelled.
///
/// If the call of such a run is cancelled, its finally steps run in a Tokio task of their own; see
/// [`Finally::on_cancel`](super::Finally::on_cancel). The end of the runtime would end the task, so
/// a program should wait for these runs before it ends. Create this value, pass clones of it to
/// [`CompositeLayer::cancelled_runs`](super::CompositeLayer::cancelled_runs), and call
/// [`finished`](Self::finished) at the end. A [`Gateway`](crate::config::Gateway) waits by itself
/// when it is closed.
///
/// At most 1000 cancelled runs continue with their finally steps at the same time, or as many as
/// [`with_max_runs`](Self::with_max_runs) sets. While this limit is reached, further runs that are
/// cancelled end without their finally steps, and a warning is logged. Otherwise, a client that
/// repeatedly calls a composite and cancels the call could start any number of tasks.
///
/// Clones share the same runs.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use mcp_composite::composite::{CancelledRuns, CompositeLayer};
///
/// let runs = CancelledRuns::new();
/// let layer = CompositeLayer::default().cancelled_runs(runs.clone());
/// // … serve, and at the end:
/// runs.finished().await;
/// # }
/// ```
#[derive(Clone)]
pub struct CancelledRuns {
    shared: Arc<Shared>,
    /// The maximum number of cancelled runs whose finally steps run at the same time.
    max_runs: usize,
}

struct Shared {
    /// Tracks the runs that have not ended.
    runs: TaskTracker,
    /// The number of cancelled runs whose finally steps are running.
    cancelled: AtomicUsize,
    /// Limits how often a missing permit is logged.
    warnings: LogPause,
    /// The longest time that any of the runs has for its finally steps, in milliseconds.
    grace_ms: AtomicU64,
}

/// Allows a cancelled run to run its finally steps. Counted in [`Shared::cancelled`].
struct Permit(Arc<Shared>);

/// The future of a run whose finally steps run even if the call of the run is cancelled.
///
/// If the future is dropped before it has completed, the call counts as cancelled. The run then
/// continues in a separate Tokio task, and the flag `cancelled` is set. The run ends its other
/// steps, and runs its finally steps. The exception: if `cancellation` is `Some` and its token was
/// not cancelled, the run is dropped without running finally steps.
pub(super) struct CancellableRun<T: Send + 'static> {
    /// `None` after the run has completed or panicked.
    run: Option<BoxFuture<'static, T>>,
    cancelled: Arc<AtomicBool>,
    /// A token that is cancelled if, and only if, the call was cancelled. `None` if every drop of
    /// the future counts as a cancellation.
    cancellation: Option<CancellationToken>,
    runs: CancelledRuns,
    runtime: Handle,
    /// The account of the outer run, which waits for this run after it was dropped. `None` if the
    /// run is not nested.
    outer: Option<Arc<Account>>,
    /// Registers the run in the tracker. `None` after the run has moved to its own task.
    token: Option<TaskTrackerToken>,
}

// === impl CancelledRuns ===

impl CancelledRuns {
    /// Creates a tracker without runs.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_runs(MAX_CANCELLED_RUNS)
    }

    /// Creates a tracker without runs, with the maximum number of cancelled runs whose finally
    /// steps run at the same time. [`new`](Self::new) sets the maximum to 1000.
    #[must_use]
    pub fn with_max_runs(max_runs: usize) -> Self {
        let shared = Shared {
            runs: TaskTracker::new(),
            cancelled: AtomicUsize::new(0),
            warnings: LogPause::default(),
            grace_ms: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared), max_runs }
    }

    /// Shares the runs of `before`, but keeps its own maximum number. `before` belongs to the
    /// previous configuration or to another view.
    #[cfg(feature = "config")]
    pub(crate) fn take_over(&mut self, before: &Self) {
        self.shared = before.shared.clone();
    }

    /// Returns a permit for the finally steps of a cancelled run. Returns `None` if as many
    /// cancelled runs as allowed are running their finally steps.
    fn permit(&self) -> Option<Permit> {
        let Self { shared, max_runs } = self;
        let one_more = |cancelled: usize| (cancelled < *max_runs).then(|| cancelled + 1);
        // The counter protects no other data.
        let counted = shared.cancelled.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.is_ok().then(|| Permit(shared.clone()))
    }

    /// Waits until all of these runs have ended, but at most for twice the longest grace period of
    /// their finally steps: once for their cancelled calls to end, and once for the finally steps.
    /// Call this at the end, after the calls of the clients were cancelled or have
    /// ended.
    pub async fn finished(&self) {
        let Self { shared, .. } = self;
        shared.runs.close();
        let grace = Duration::from_millis(shared.grace_ms.load(Ordering::Relaxed));
        if !shared.runs.is_empty() && timeout(2 * grace, shared.runs.wait()).await.is_err() {
            let runs = shared.runs.len();
            tracing::warn!(runs, "finally steps of cancelled calls did not end in time");
        }
    }

    /// Registers a run whose finally steps have the time `grace`, and returns its future. `run`
    /// creates the run. Its argument is a flag that is set when the call of the run is cancelled.
    ///
    /// If `cancellation` is set and its token is not cancelled, dropping the future only stops the
    /// run. Its finally steps do not run, because another process can continue the run.
    ///
    /// `outer` is the account of the outer run. `None` if the run is not nested.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime.
    pub(super) fn start<T: Send + 'static>(
        &self,
        grace: Duration,
        cancellation: Option<CancellationToken>,
        outer: Option<Arc<Account>>,
        run: impl FnOnce(Arc<AtomicBool>) -> BoxFuture<'static, T>,
    ) -> CancellableRun<T> {
        let Self { shared, .. } = self;
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        shared.grace_ms.fetch_max(grace_ms, Ordering::Relaxed);
        let cancelled = Arc::new(AtomicBool::new(false));
        CancellableRun {
            run: Some(run(cancelled.clone())),
            cancelled,
            cancellation,
            runs: self.clone(),
            runtime: Handle::current(),
            outer,
            token: Some(shared.runs.token()),
        }
    }
}

impl fmt::Debug for CancelledRuns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelledRuns")
            .field("runs", &self.shared.runs.len())
            .field("max_runs", &self.max_runs)
            .finish()
    }
}

impl Default for CancelledRuns {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Permit ===

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.cancelled.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl CancellableRun ===

impl<T: Send + 'static> Future for CancellableRun<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<T> {
        // Taken out of its field, so that a run that has panicked is not continued.
        let Some(mut run) = self.run.take() else { return Poll::Pending };
        let polled = run.poll_unpin(cx);
        if polled.is_pending() {
            self.run = Some(run);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for CancellableRun<T> {
    fn drop(&mut self) {
        let Some(run) = self.run.take() else { return };
        if self.cancellation.as_ref().is_some_and(|token| !token.is_cancelled()) {
            return;
        }
        let Some(permit) = self.runs.permit() else {
            let message = "too many cancelled calls: the finally steps of a call do not run";
            if self.runs.shared.warnings.is_due_now() {
                tracing::warn!("{message}");
            } else {
                tracing::debug!("{message}");
            }
            return;
        };
        self.cancelled.store(true, Ordering::Release);
        let token = self.token.take();
        let run = async move {
            drop(run.await);
            drop((permit, token));
        };
        // The run ends itself after its grace period. If the runtime is shutting down, it drops
        // the run instead.
        let task = self.runtime.spawn(run.in_current_span());
        if let Some(outer) = &self.outer {
            outer.add_aborted_call(task.map(drop));
        }
    }
}

#[cfg(all(test, feature = "config"))]
mod tests {
    use super::*;

    #[test]
    fn configurations_count_their_runs_together_and_keep_their_limits() {
        let file = CancelledRuns::with_max_runs(2);
        let mut view = CancelledRuns::with_max_runs(1);
        view.take_over(&file);
        let permit = file.permit();
        assert!(permit.is_some() && view.permit().is_none());
        let other = file.permit();
        assert!(other.is_some() && file.permit().is_none());
        drop((permit, other));
        assert!(view.permit().is_some());
    }
}
