//! Polls the parallel branches of a run. A branch is a tool call or a loop element.

use std::{
    collections::VecDeque,
    mem,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
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

use crate::message::Account;

/// First polls that take longer than this are called long. After a long first poll on a
/// multi-threaded runtime, the following branches are spawned as tasks, so that other threads can
/// poll them.
pub(super) const LONG: Duration = Duration::from_micros(50);
/// The number of following calls to spawn as tasks after a long first poll of a call. Counted per
/// call site.
const CALLS_IN_TASKS: u8 = 32;
/// The number of following calls to spawn as tasks after a call was pending at its first poll. The
/// number doubles each time this happens again, and is reset when a call ends at its first poll.
/// Counted per call site.
const CALLS_AFTER_WAIT: u8 = 2;

/// The running branches of a run. A branch is a running step or a running loop element.
///
/// A run without parallel branches polls its branch in its own task. Other runs poll each new
/// branch once, and spawn it as a task only if it is still pending. Polling first is faster for
/// tools that end in less time than spawning a task takes. Panics are caught in both cases.
///
/// A branch that computes for a long time delays the branches after it. After a first poll of more
/// than 50 µs on a multi-threaded runtime, the run therefore spawns the following branches without
/// polling them first. It does the same with the next calls of a tool whose first poll took that
/// long or returned `Pending`; see [`SpawnHint`]. On a single-threaded runtime, [`poll_next`]
/// returns after a first poll of more than 50 µs, so that its caller can check deadlines.
///
/// Aborting a branch drops its future, unless another thread is polling it: then, the future is
/// dropped after this poll. [`has_aborted`](Self::has_aborted) returns `true` until this has
/// happened.
///
/// Dropping this value aborts all branches. Those that have not ended yet are added to the aborted
/// calls of the account.
///
/// [`poll_next`]: Self::poll_next
pub(super) struct Branches<T: Send + 'static> {
    place: Executor,
    /// The runtime in which the run was created. All tasks of the run are spawned on this runtime.
    /// `None` if the run has no parallel branches, or if it was created outside a runtime.
    runtime: Option<Handle>,
    /// The account of the run. `None` if the run spawns no tasks.
    account: Option<Arc<Account>>,
    /// If `true`, new branches are spawned as tasks without polling them first. Set after a first
    /// poll of more than 50 µs on a multi-threaded runtime.
    spawns: bool,
    /// The pending branches of the run. `None` until a branch is pending for the first time. If all
    /// tools end at their first poll, it stays `None`.
    started: Option<Box<Started<T>>>,
}

struct Started<T> {
    /// `None` until the first branch is spawned.
    tasks: Option<JoinSet<Result<T, Lost>>>,
    handles: Vec<(BranchId, AbortHandle)>,
    /// The tasks that were aborted and may not have ended yet.
    aborted: Vec<(BranchId, AbortHandle)>,
    /// The branches to poll in the task of the run: new branches before their first poll, or the
    /// only branch of a run without parallel branches.
    here: VecDeque<(BranchId, BoxFuture<'static, Result<T, Lost>>)>,
    /// The results of branches that ended in the task of the run.
    /// [`poll_next`](Branches::poll_next) returns them one at a time.
    ended: VecDeque<(BranchId, Result<T, Lost>)>,
    /// The step of the last branch whose first poll took longer than [`LONG`]. `None` if no first
    /// poll has taken that long since the last [`took_long`](Branches::took_long).
    long: Option<usize>,
    /// If `true`, polling stopped after a first poll that took longer than [`LONG`], and some new
    /// branches have not been polled yet.
    is_interrupted: bool,
}

/// Decides whether the next calls of a tool are spawned as tasks without polling them first. The
/// next calls are spawned after a call whose first poll took longer than 50 µs or returned
/// `Pending`, because polling such calls first would only delay other branches.
#[derive(Debug)]
pub(crate) struct SpawnHint {
    /// The number of following calls to spawn without polling them first.
    left: AtomicU8,
    /// The new value of `left` if the next call is pending at its first poll.
    after_wait: AtomicU8,
}

/// The ID of a branch within a run: the index of its step and, in a loop, of its element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BranchId {
    pub(crate) step: usize,
    /// The index of the loop element. Zero if the step is not a loop.
    pub(crate) element: usize,
}

/// The place where branches are polled: the task of the run, or separate tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executor {
    /// Polls the branch in the task of the run. Used for runs without parallel branches.
    Here,
    /// Polls each branch once in the task of the run, and spawns it as a task if it is still
    /// pending. Used on a single-threaded runtime.
    HereFirst,
    /// Like [`HereFirst`](Self::HereFirst), but spawns a branch immediately if its first poll is
    /// likely to take long. Used on a multi-threaded runtime.
    HereFirstOfThreads,
}

/// The reason why a branch has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The branch panicked. The panic message is dropped, because it may contain data that clients
    /// must not see. The panic hook has already printed it.
    Panicked,
    /// The runtime is shutting down and has stopped the branch.
    Stopped,
}

// === impl Branches ===

impl<T: Send + 'static> Branches<T> {
    /// Creates an empty set of branches. `alone` is `true` for runs that never have two branches at
    /// the same time. Such runs spawn no tasks. `account` is the account of the run.
    pub(super) fn new(alone: bool, account: Option<&Arc<Account>>) -> Self {
        let runtime = if alone { None } else { Handle::try_current().ok() };
        let place = match runtime.as_ref().map(Handle::runtime_flavor) {
            _ if alone => Executor::Here,
            Some(RuntimeFlavor::CurrentThread) => Executor::HereFirst,
            _ => Executor::HereFirstOfThreads,
        };
        let account = account.filter(|_| !alone).cloned();
        Self { place, runtime, account, spawns: false, started: None }
    }

    /// Returns `true` if the caller may poll a new branch immediately, in the task of the run.
    /// Returns `false` if earlier branches wait for their first poll, or if the branch must be
    /// spawned as a task because of `hint` or an earlier long poll.
    pub(super) fn polls_here(&self, hint: &SpawnHint) -> bool {
        let in_task = self.place == Executor::HereFirstOfThreads && (self.spawns || hint.is_set());
        self.started.as_ref().is_none_or(|started| started.here.is_empty()) && !in_task
    }

    /// Records that the first poll of a branch took longer than [`LONG`]. Returns `true` if the run
    /// spawns the following branches as tasks, so that other threads can poll them.
    pub(super) fn note_long(&mut self) -> bool {
        self.spawns = self.place == Executor::HereFirstOfThreads;
        self.spawns
    }

    /// Adds a branch that is still pending after the caller has polled it once.
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

    /// Starts a branch. The branch is polled for the first time by the next
    /// [`poll_next`](Self::poll_next). On a multi-threaded runtime, it is spawned as a task instead
    /// if `hint` requires it or if the first poll of an earlier branch took long.
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

    /// Returns and clears the step of the last branch whose first poll took longer than [`LONG`].
    /// Returns `None` if there was no such branch since the previous call of this method.
    pub(super) fn took_long(&mut self) -> Option<usize> {
        self.started.as_mut()?.long.take()
    }

    /// Returns `true` if [`poll_next`](Self::poll_next) returned `Pending` after a long first poll,
    /// while new branches still wait for their first poll.
    pub(super) fn is_interrupted(&self) -> bool {
        let started = self.started.as_ref();
        started.is_some_and(|started| started.is_interrupted && started.ended.is_empty())
    }

    /// Aborts and removes a branch. If the branch has already ended, its result is dropped.
    pub(super) fn abort(&mut self, id: BranchId) {
        let Some(started) = &mut self.started else { return };
        if let Some(place) = started.handles.iter().position(|(other, _)| *other == id) {
            let aborted = started.handles.swap_remove(place);
            aborted.1.abort();
            started.aborted.push(aborted);
        }
        started.here.retain(|(other, _)| *other != id);
        started.ended.retain(|(other, _)| *other != id);
    }

    /// Returns `true` if aborted branches may not have ended yet. [`poll_next`](Self::poll_next)
    /// waits for them, too.
    pub(super) fn has_aborted(&self) -> bool {
        self.started.as_ref().is_some_and(|started| !started.aborted.is_empty())
    }

    /// Stops waiting for the aborted branches, and returns their IDs.
    pub(super) fn give_up_aborted(&mut self) -> Vec<BranchId> {
        let aborted = self.started.as_mut().map(|started| mem::take(&mut started.aborted));
        aborted.into_iter().flatten().map(|(id, _)| id).collect()
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

impl<T: Send + 'static> Drop for Branches<T> {
    fn drop(&mut self) {
        let Some(started) = self.started.take() else { return };
        let Started { tasks: Some(mut tasks), here, .. } = *started else { return };
        drop(here);
        tasks.abort_all();
        if !tasks.is_empty()
            && let Some(account) = &self.account
        {
            account.add_aborted_call(async move { while tasks.join_next().await.is_some() {} });
        }
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
            // Aborted tasks are in another list. The branch is found by the ID of its
            // task, because the retry of a branch has the same branch ID.
            let place = self.handles.iter().position(|(_, handle)| handle.id() == task);
            let Some(place) = place else {
                self.aborted.retain(|(_, handle)| handle.id() != task);
                continue;
            };
            let (id, _) = self.handles.swap_remove(place);
            return Poll::Ready((id, end));
        }
        Poll::Pending
    }

    /// Polls each new branch once, and spawns it as a task if it is still pending. After a poll
    /// that took longer than [`LONG`], spawns the remaining branches without polling them or, on a
    /// single-threaded runtime, returns.
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
            aborted: Vec::new(),
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
    /// Records that the first poll of a call took longer than [`LONG`], so that the next calls are
    /// spawned as tasks.
    pub(super) fn note_long(&self) {
        self.left.store(CALLS_IN_TASKS, Ordering::Relaxed);
    }

    /// Records that a call was pending at its first poll, so that the next calls are spawned as
    /// tasks.
    pub(super) fn note_wait(&self) {
        let calls = self.after_wait.load(Ordering::Relaxed);
        self.left.store(calls, Ordering::Relaxed);
        self.after_wait.store((2 * calls).min(CALLS_IN_TASKS), Ordering::Relaxed);
    }

    /// Records that a call ended at its first poll. Resets the number of calls that are spawned as
    /// tasks after a pending call.
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

    /// Returns `true` if the next call must be spawned as a task without polling it first.
    /// Decrements the number of such calls.
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
