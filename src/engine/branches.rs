//! The running branches of a run.

use std::{
    collections::VecDeque,
    mem,
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicU8, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::{AbortHandle, JoinSet},
    time::Instant,
};
use tracing::Instrument;

/// The time that the first poll of a branch may take before other threads run the next ones.
pub(super) const LONG: Duration = Duration::from_micros(50);
/// The number of calls that start in a task after a call of the same tool took long.
const CALLS_IN_TASKS: u8 = 32;
/// The same after a call that waited, if the call before had ended at its first poll; doubled with
/// each further call that waits.
const CALLS_AFTER_WAIT: u8 = 2;

/// The running branches of a run.
///
/// A single branch runs in the task of the run. Several branches are polled there once, and become
/// tasks when they wait: spawning a task takes longer than many tools. Panics are caught in both
/// places.
///
/// A branch that computes instead of waiting delays the next ones. On a multi-threaded runtime,
/// these are spawned unpolled if a first poll took more than 50 µs, and so are the next calls of
/// the same tool, and of a tool that waited at its first poll; see [`SpawnHint`]. On a
/// single-threaded runtime, [`poll_next`] returns after a branch that took long, so that its caller
/// can check deadlines.
///
/// Dropping it aborts all branches.
///
/// [`poll_next`]: Self::poll_next
pub(super) struct Branches<T> {
    place: Executor,
    /// The runtime of the run, which may be polled by another executor; `None` if no task is
    /// spawned.
    runtime: Option<Handle>,
    /// Whether branches that start now become tasks immediately, because another one took long.
    spawns: bool,
    /// Created with the first branch that does not end when it begins, since most runs of fast
    /// tools have none.
    started: Option<Box<Started<T>>>,
}

/// The branches that did not end when they began.
struct Started<T> {
    /// Created with the first task.
    tasks: Option<JoinSet<Result<T, Lost>>>,
    handles: Vec<(BranchId, AbortHandle)>,
    /// The branches polled in the task of the run: the single one, and new ones.
    here: VecDeque<(BranchId, BoxFuture<'static, Result<T, Lost>>)>,
    /// The branches that ended in the task of the run.
    ended: VecDeque<(BranchId, Result<T, Lost>)>,
    /// The step of the branch whose first poll took long and delays the next ones.
    long: Option<usize>,
    /// Whether the next branches are still to be polled.
    is_interrupted: bool,
}

/// Whether the next calls of a tool start in a task: because its last call took long without
/// waiting, or because it waited, so that its first poll only delayed others.
#[derive(Debug)]
pub(crate) struct SpawnHint {
    /// The number of next calls that start in a task.
    left: AtomicU8,
    /// The value of `left` after the next call that waits.
    after_wait: AtomicU8,
}

/// The id of a branch within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BranchId {
    pub(crate) step: usize,
    /// The element of the step's loop; 0 if the step is not a loop.
    pub(crate) element: usize,
}

/// The place where branches run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executor {
    /// In the task of the run: there is never more than one branch.
    Here,
    /// In the task of the run until they wait, then in tasks of their own; single-threaded.
    HereFirst,
    /// The same, on a multi-threaded runtime.
    HereFirstOfThreads,
}

/// The reason why a branch ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The branch panicked. The message may contain anything; the panic hook has printed it.
    Panicked,
    /// The runtime stopped the branch because it shuts down.
    Stopped,
}

// === impl Branches ===

impl<T: Send + 'static> Branches<T> {
    /// Creates an empty set of branches; `alone` if no two ever run at the same time.
    pub(super) fn new(alone: bool) -> Self {
        let runtime = if alone { None } else { Handle::try_current().ok() };
        let place = match runtime.as_ref().map(Handle::runtime_flavor) {
            _ if alone => Executor::Here,
            Some(RuntimeFlavor::CurrentThread) => Executor::HereFirst,
            _ => Executor::HereFirstOfThreads,
        };
        Self { place, runtime, spawns: false, started: None }
    }

    /// Returns `true` if a branch with this hint can be polled as soon as it starts: it does not
    /// start in a task, and no earlier branch is still to be polled.
    pub(super) fn polls_here(&self, hint: &SpawnHint) -> bool {
        let in_task = self.place == Executor::HereFirstOfThreads && (self.spawns || hint.is_set());
        self.started.as_ref().is_none_or(|started| started.here.is_empty()) && !in_task
    }

    /// Records that the first poll of a branch took long; returns `true` if other threads run the
    /// branches that start after it.
    pub(super) fn note_long(&mut self) -> bool {
        self.spawns = self.place == Executor::HereFirstOfThreads;
        self.spawns
    }

    /// Continues a branch that was polled once and waits.
    pub(super) fn resume(
        &mut self,
        id: BranchId,
        branch: impl Future<Output = T> + Send + 'static,
    ) {
        if self.place == Executor::Here {
            self.started().here.push_back((id, caught(branch)));
        } else {
            self.spawn(id, branch.map(Ok));
        }
    }

    /// Starts a branch; immediately in a task if there are several threads and the hint says so.
    pub(super) fn start(
        &mut self,
        id: BranchId,
        hint: &SpawnHint,
        branch: impl Future<Output = T> + Send + 'static,
    ) {
        if self.place == Executor::HereFirstOfThreads && (self.spawns || hint.take()) {
            // `map` and not `async`, which would reserve memory for the branch twice.
            return self.spawn(id, branch.map(Ok));
        }
        self.started().here.push_back((id, caught(branch)));
    }

    fn started(&mut self) -> &mut Started<T> {
        self.started.get_or_insert_default()
    }

    fn spawn(
        &mut self,
        id: BranchId,
        branch: impl Future<Output = Result<T, Lost>> + Send + 'static,
    ) {
        let started = self.started.get_or_insert_default();
        started.spawn(self.runtime.as_ref(), id, branch);
    }

    /// Returns the step of a branch whose first poll took long, once.
    pub(super) fn took_long(&mut self) -> Option<usize> {
        self.started.as_mut()?.long.take()
    }

    /// Returns `true` if a branch that took long delays others, and all ended branches have been
    /// returned.
    pub(super) fn is_interrupted(&self) -> bool {
        let started = self.started.as_ref();
        started.is_some_and(|started| started.is_interrupted && started.ended.is_empty())
    }

    /// Aborts a branch; it will not be returned.
    pub(super) fn abort(&mut self, id: BranchId) {
        let Some(started) = &mut self.started else { return };
        if let Some(place) = started.handles.iter().position(|(other, _)| *other == id) {
            started.handles.swap_remove(place).1.abort();
        }
        started.here.retain(|(other, _)| *other != id);
        started.ended.retain(|(other, _)| *other != id);
    }

    /// Returns the next branch that ends; pending forever if no branch is left.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(BranchId, Result<T, Lost>)> {
        let Some(started) = &mut self.started else { return Poll::Pending };
        if self.place == Executor::Here
            && let Some((id, branch)) = started.here.front_mut()
        {
            let ended = branch.poll_unpin(cx).map(|end| (*id, end));
            if ended.is_ready() {
                started.here.clear();
            }
            return ended;
        }
        if started.ended.is_empty() {
            self.spawns = false;
            started.poll_here(self.place, self.runtime.as_ref(), cx);
        }
        started.poll_ended(cx)
    }
}

// === impl Started ===

impl<T: Send + 'static> Started<T> {
    fn spawn(
        &mut self,
        runtime: Option<&Handle>,
        id: BranchId,
        branch: impl Future<Output = Result<T, Lost>> + Send + 'static,
    ) {
        // Tasks do not inherit the current span.
        let branch = branch.in_current_span();
        let tasks = self.tasks.get_or_insert_with(JoinSet::new);
        let handle = match runtime {
            Some(runtime) => tasks.spawn_on(branch, runtime),
            None => tasks.spawn(branch),
        };
        self.handles.push((id, handle));
    }

    /// Returns the next branch that has ended.
    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<(BranchId, Result<T, Lost>)> {
        if let Some(ended) = self.ended.pop_front() {
            return Poll::Ready(ended);
        }
        while let Some(tasks) = &mut self.tasks
            && let Poll::Ready(Some(joined)) = tasks.poll_join_next_with_id(cx)
        {
            let (task, end) = match joined {
                Ok((task, end)) => (task, end),
                Err(error) if error.is_panic() => (error.id(), Err(Lost::Panicked)),
                Err(error) => (error.id(), Err(Lost::Stopped)),
            };
            // Aborted tasks are no longer listed. Found by the id of the task, since a retried
            // branch has the same id again.
            let place = self.handles.iter().position(|(_, handle)| handle.id() == task);
            let Some(place) = place else { continue };
            let (id, _) = self.handles.swap_remove(place);
            return Poll::Ready((id, end));
        }
        Poll::Pending
    }

    /// Polls new branches once, and spawns tasks for those that wait.
    fn poll_here(&mut self, place: Executor, runtime: Option<&Handle>, cx: &mut Context<'_>) {
        self.is_interrupted = false;
        if self.here.is_empty() {
            return;
        }
        let mut now = Instant::now();
        while let Some((id, mut branch)) = self.here.pop_front() {
            match branch.poll_unpin(cx) {
                Poll::Ready(end) => self.ended.push_back((id, end)),
                // Polling it again as a task registers that task's waker.
                Poll::Pending => self.spawn(runtime, id, branch),
            }
            let begun = mem::replace(&mut now, Instant::now());
            if now - begun <= LONG {
                continue;
            }
            self.long = Some(id.step);
            if place == Executor::HereFirstOfThreads {
                for (id, branch) in mem::take(&mut self.here) {
                    self.spawn(runtime, id, branch);
                }
            } else if !self.here.is_empty() {
                // The caller checks deadlines and polls again.
                self.is_interrupted = true;
                cx.waker().wake_by_ref();
                return;
            }
        }
    }
}

impl<T> Default for Started<T> {
    fn default() -> Self {
        Self {
            tasks: None,
            handles: Vec::new(),
            here: VecDeque::new(),
            ended: VecDeque::new(),
            long: None,
            is_interrupted: false,
        }
    }
}

/// Wraps a branch so that a panic becomes an error.
fn caught<T>(
    branch: impl Future<Output = T> + Send + 'static,
) -> BoxFuture<'static, Result<T, Lost>> {
    let caught = AssertUnwindSafe(branch).catch_unwind();
    caught.map(|end| end.map_err(|_| Lost::Panicked)).boxed()
}

// === impl SpawnHint ===

impl SpawnHint {
    /// Records that a call took long.
    pub(super) fn note_long(&self) {
        self.left.store(CALLS_IN_TASKS, Ordering::Relaxed);
    }

    /// Records that a call waited at its first poll.
    pub(super) fn note_wait(&self) {
        let calls = self.after_wait.load(Ordering::Relaxed);
        self.left.store(calls, Ordering::Relaxed);
        self.after_wait.store((2 * calls).min(CALLS_IN_TASKS), Ordering::Relaxed);
    }

    /// Records that a call ended at its first poll.
    pub(super) fn note_end(&self) {
        // Most tools always do, and a store would invalidate the cache line of other threads.
        if self.after_wait.load(Ordering::Relaxed) != CALLS_AFTER_WAIT {
            self.after_wait.store(CALLS_AFTER_WAIT, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if a call should start in a task.
    fn take(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        // If a concurrent call overwrites it, the hint lasts for one more call.
        self.left.store(left - 1, Ordering::Relaxed);
        true
    }
}

impl Default for SpawnHint {
    fn default() -> Self {
        Self { left: AtomicU8::new(0), after_wait: AtomicU8::new(CALLS_AFTER_WAIT) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of calls that start in tasks before one is polled in the run again.
    fn calls_in_tasks(hint: &SpawnHint) -> usize {
        std::iter::from_fn(|| hint.take().then_some(())).count()
    }

    #[test]
    fn hint_doubles_with_each_wait_up_to_its_maximum() {
        let hint = SpawnHint::default();
        assert_eq!(calls_in_tasks(&hint), 0);
        let counts = [(); 6].map(|()| {
            hint.note_wait();
            calls_in_tasks(&hint)
        });
        assert_eq!(counts, [2, 4, 8, 16, 32, 32]);
        hint.note_end();
        hint.note_wait();
        assert_eq!(calls_in_tasks(&hint), 2);
        hint.note_long();
        assert_eq!(calls_in_tasks(&hint), 32);
    }
}
