//! Polls the parallel branches of a run: its tool calls and loop elements.

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

/// The duration from which the first poll of a branch counts as long. On a multi-threaded runtime,
/// the following branches are then spawned as tasks, so that other threads can poll them.
pub(super) const LONG: Duration = Duration::from_micros(50);
/// The number of calls that are spawned as tasks after a call whose first poll took longer than
/// [`LONG`]. Counted per call site.
const CALLS_IN_TASKS: u8 = 32;
/// The initial number of calls that are spawned as tasks after a call that was pending after its
/// first poll. The number doubles each time this happens again. It is reset when a call ends at its
/// first poll. Counted per call site.
const CALLS_AFTER_WAIT: u8 = 2;

/// The running branches of a run. A branch is a running step or a running loop element.
///
/// If a run never has two branches at the same time, its branches are polled in the task of the
/// run. Otherwise, each branch is first polled once in the task of the run, and is spawned as a
/// separate task if it is still pending. Polling first is faster for tools that end in less time
/// than spawning a task takes. Panics are caught in both cases.
///
/// A branch that computes for a long time without yielding delays the branches after it. On a
/// multi-threaded runtime, a first poll of more than 50 µs therefore makes the run spawn the
/// following branches, and the next calls of the same tool, as tasks without a first poll. The next
/// calls are also spawned if a call of the tool was pending after its first poll; see
/// [`SpawnHint`]. On a single-threaded runtime, [`poll_next`] returns after a first poll of more
/// than 50 µs, so that its caller can check deadlines.
///
/// Dropping this value aborts all branches.
///
/// [`poll_next`]: Self::poll_next
pub(super) struct Branches<T> {
    place: Executor,
    /// The runtime in which the run was created. Tasks are spawned on this runtime even if another
    /// executor polls the run. `None` if the run needs no tasks, or if it was created outside a
    /// runtime.
    runtime: Option<Handle>,
    /// If `true`, new branches are spawned as tasks without a first poll in the task of the run.
    /// Set on a multi-threaded runtime after the first poll of a branch took longer than [`LONG`].
    spawns: bool,
    /// The pending branches of the run. `None` until a branch is pending for the first time, which
    /// never happens in many runs whose tools are fast.
    started: Option<Box<Started<T>>>,
}

/// The pending branches of a run: branches whose first poll returned `Pending`, and new branches
/// that have not been polled yet.
struct Started<T> {
    /// The tasks of the spawned branches. `None` until the first branch is spawned.
    tasks: Option<JoinSet<Result<T, Lost>>>,
    handles: Vec<(BranchId, AbortHandle)>,
    /// The branches that are polled in the task of the run. These are new branches before their
    /// first poll. If the run never has parallel branches, this is its only branch.
    here: VecDeque<(BranchId, BoxFuture<'static, Result<T, Lost>>)>,
    /// The branches that have ended in the task of the run, with their results.
    /// [`poll_next`](Branches::poll_next) returns and removes them.
    ended: VecDeque<(BranchId, Result<T, Lost>)>,
    /// The step of the last branch whose first poll took longer than [`LONG`]. `None` if no first
    /// poll took that long since this field was last read.
    long: Option<usize>,
    /// If `true`, polling was interrupted after a first poll that took longer than [`LONG`]. Some
    /// new branches have then not been polled yet.
    is_interrupted: bool,
}

/// Decides whether the next calls of a tool are spawned as tasks immediately, without a first poll
/// in the task of the run. This is the case after a call whose first poll took long or returned
/// `Pending`, because polling the next calls first would only delay other branches.
#[derive(Debug)]
pub(crate) struct SpawnHint {
    /// The number of calls that are spawned without a first poll from now on. Zero if the next call
    /// is polled first.
    left: AtomicU8,
    /// The value that `left` gets when the next call is pending after its first poll.
    after_wait: AtomicU8,
}

/// The ID of a branch within a run. It consists of the index of the step and, in a loop, the index
/// of the loop element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BranchId {
    pub(crate) step: usize,
    /// The index of the loop element. Zero if the step is not a loop.
    pub(crate) element: usize,
}

/// Where and in which order the branches of a run are polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executor {
    /// Polls all branches in the task of the run. Used if the run never has two branches at the
    /// same time.
    Here,
    /// Polls each branch once in the task of the run, and spawns it as a separate task if it is
    /// still pending. Used on a single-threaded runtime.
    HereFirst,
    /// Like [`HereFirst`](Self::HereFirst), but spawns a branch without a first poll if first polls
    /// are likely to take long. Used on a multi-threaded runtime.
    HereFirstOfThreads,
}

/// The reason why a branch ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The branch panicked. The panic message is not stored, because it may contain data that
    /// clients must not see. The panic hook has already printed it.
    Panicked,
    /// The runtime is shutting down and has stopped the branch.
    Stopped,
}

// === impl Branches ===

impl<T: Send + 'static> Branches<T> {
    /// Creates an empty set of branches. If `alone` is `true`, the run never has two branches at
    /// the same time, and no tasks are spawned.
    pub(super) fn new(alone: bool) -> Self {
        let runtime = if alone { None } else { Handle::try_current().ok() };
        let place = match runtime.as_ref().map(Handle::runtime_flavor) {
            _ if alone => Executor::Here,
            Some(RuntimeFlavor::CurrentThread) => Executor::HereFirst,
            _ => Executor::HereFirstOfThreads,
        };
        Self { place, runtime, spawns: false, started: None }
    }

    /// Returns `true` if the caller can poll a new branch immediately, in the task of the run.
    /// Returns `false` if earlier branches still wait for their first poll, or if the branch must
    /// be spawned as a task because of its `hint` or an earlier long poll.
    pub(super) fn polls_here(&self, hint: &SpawnHint) -> bool {
        let in_task = self.place == Executor::HereFirstOfThreads && (self.spawns || hint.is_set());
        self.started.as_ref().is_none_or(|started| started.here.is_empty()) && !in_task
    }

    /// Records that the first poll of a branch took longer than [`LONG`]. Returns `true` if all
    /// later branches are spawned as tasks, so that other threads can run them.
    pub(super) fn note_long(&mut self) -> bool {
        self.spawns = self.place == Executor::HereFirstOfThreads;
        self.spawns
    }

    /// Adds a branch that the caller has already polled once and that is still pending.
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

    /// Starts a branch. On a multi-threaded runtime, spawns it as a task if `hint` demands it or if
    /// the first poll of an earlier branch took long. Otherwise, the next
    /// [`poll_next`](Self::poll_next) polls the branch for the first time.
    pub(super) fn start(
        &mut self,
        id: BranchId,
        hint: &SpawnHint,
        branch: impl Future<Output = T> + Send + 'static,
    ) {
        if self.place == Executor::HereFirstOfThreads && (self.spawns || hint.take()) {
            // Uses `map`, because an `async` block would reserve memory for the branch twice.
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

    /// Returns the step of the last branch whose first poll took longer than [`LONG`], and resets
    /// it. Returns `None` if there was no such branch since the previous call of this method.
    pub(super) fn took_long(&mut self) -> Option<usize> {
        self.started.as_mut()?.long.take()
    }

    /// Returns `true` if [`poll_next`](Self::poll_next) stopped after a long poll and has no ended
    /// branch to return, so that new branches still wait for their first poll.
    pub(super) fn is_interrupted(&self) -> bool {
        let started = self.started.as_ref();
        started.is_some_and(|started| started.is_interrupted && started.ended.is_empty())
    }

    /// Aborts and removes a branch. [`poll_next`](Self::poll_next) never returns it afterwards,
    /// even if it had already ended.
    pub(super) fn abort(&mut self, id: BranchId) {
        let Some(started) = &mut self.started else { return };
        if let Some(place) = started.handles.iter().position(|(other, _)| *other == id) {
            started.handles.swap_remove(place).1.abort();
        }
        started.here.retain(|(other, _)| *other != id);
        started.ended.retain(|(other, _)| *other != id);
    }

    /// Returns the ID and the result of the next branch that has ended. Returns `Pending` if no
    /// branch has ended, or if there are no branches.
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
            // Aborted tasks are not in the list any more. The branch is found by the ID of its
            // task, because the retry of a branch has the same branch ID.
            let place = self.handles.iter().position(|(_, handle)| handle.id() == task);
            let Some(place) = place else { continue };
            let (id, _) = self.handles.swap_remove(place);
            return Poll::Ready((id, end));
        }
        Poll::Pending
    }

    /// Polls each new branch once, and spawns the branches that are still pending as tasks. If a
    /// poll took long, spawns all remaining branches without polling them, or returns early on a
    /// single-threaded runtime.
    fn poll_here(&mut self, place: Executor, runtime: Option<&Handle>, cx: &mut Context<'_>) {
        self.is_interrupted = false;
        if self.here.is_empty() {
            return;
        }
        let mut now = Instant::now();
        while let Some((id, mut branch)) = self.here.pop_front() {
            match branch.poll_unpin(cx) {
                Poll::Ready(end) => self.ended.push_back((id, end)),
                // The next poll, in the spawned task, registers the waker of that task.
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
                // Returns early, so that the caller can check deadlines. The caller then polls
                // again.
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

/// Wraps the future of a branch. If the branch panics, the returned future resolves to
/// [`Lost::Panicked`].
fn caught<T>(
    branch: impl Future<Output = T> + Send + 'static,
) -> BoxFuture<'static, Result<T, Lost>> {
    let caught = AssertUnwindSafe(branch).catch_unwind();
    caught.map(|end| end.map_err(|_| Lost::Panicked)).boxed()
}

// === impl SpawnHint ===

impl SpawnHint {
    /// Records that the first poll of a call took longer than [`LONG`]. The next calls are then
    /// spawned as tasks.
    pub(super) fn note_long(&self) {
        self.left.store(CALLS_IN_TASKS, Ordering::Relaxed);
    }

    /// Records that a call was pending after its first poll. The next calls are then spawned as
    /// tasks.
    pub(super) fn note_wait(&self) {
        let calls = self.after_wait.load(Ordering::Relaxed);
        self.left.store(calls, Ordering::Relaxed);
        self.after_wait.store((2 * calls).min(CALLS_IN_TASKS), Ordering::Relaxed);
    }

    /// Records that a call ended at its first poll. Resets the number of calls that are spawned
    /// after the next pending call.
    pub(super) fn note_end(&self) {
        // Most tools always end at their first poll. Avoiding the store keeps the cache line valid
        // for other threads.
        if self.after_wait.load(Ordering::Relaxed) != CALLS_AFTER_WAIT {
            self.after_wait.store(CALLS_AFTER_WAIT, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if the next call must be spawned as a task without a first poll. Also
    /// decrements the number of such calls.
    fn take(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        // If a concurrent call overwrites this store, one more call is spawned as a task, which is
        // harmless.
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

    /// Returns the number of calls that are spawned as tasks before a call is polled first again.
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
