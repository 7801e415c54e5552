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

/// How long the first poll of a branch may take before other threads run those after it.
pub(super) const LONG: Duration = Duration::from_micros(50);
/// How many times a tool that took long is called in a task at once.
const CALLS_IN_TASKS: u8 = 32;
/// The same for a tool that waited after it had ended at its first poll; twice as many with
/// each call that waits.
const CALLS_AFTER_WAIT: u8 = 2;

/// The branches of a run that go on.
///
/// A branch that has no others beside it runs in the task of the run. Others are polled there
/// once, and become tasks when they wait: to spawn a task takes longer than many a tool.
/// Panics are caught in both places.
///
/// A branch that computes instead of waiting delays those after it. On a runtime of several
/// threads they are spawned unpolled once a first poll took more than 50 µs, and so are the
/// next calls of the same tool, and of a tool that waited at its first poll; see
/// [`SpawnHint`]. On one thread, [`poll_next`] returns after a branch that took long, so that
/// its caller can look at the time.
///
/// Dropping it aborts them all.
///
/// [`poll_next`]: Self::poll_next
pub(super) struct Branches<T> {
    place: Executor,
    /// The runtime of the run, which may be polled by another executor.
    runtime: Option<Handle>,
    /// Made when a task is, since most runs of tools that answer at once need none.
    tasks: Option<JoinSet<Result<T, Lost>>>,
    handles: Vec<(BranchId, AbortHandle)>,
    /// Those that are polled here: the one that stays, and new ones.
    here: VecDeque<(BranchId, BoxFuture<'static, Result<T, Lost>>)>,
    /// Those that ended here.
    ended: VecDeque<(BranchId, Result<T, Lost>)>,
    /// The step of the branch whose first poll took long, and delays those after it.
    long: Option<usize>,
    /// Whether those after it are still to be polled.
    is_interrupted: bool,
    /// Whether branches that start now become tasks at once, since another one took long.
    spawns: bool,
}

/// Whether the next calls of a tool begin in a task: its last one took long without waiting for
/// anything, or it waited, so that its first poll only delayed others.
#[derive(Debug)]
pub(crate) struct SpawnHint {
    /// How many calls still do.
    left: AtomicU8,
    /// How many do after the next call that waits.
    after_wait: AtomicU8,
}

/// Which branch of a run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BranchId {
    pub(crate) step: usize,
    /// The element of the step's loop; 0 of a step that is none.
    pub(crate) element: usize,
}

/// Where branches run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executor {
    /// In the task of the run: there is never more than one.
    Here,
    /// There until they wait for something, then in a task; there is one thread.
    HereFirst,
    /// The same, on a runtime of several threads.
    HereFirstOfThreads,
}

/// Why a branch came back with nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It panicked. What with may hold anything; the panic hook has printed it.
    Panicked,
    /// The runtime stopped it, since it shuts down.
    Stopped,
}

// === impl Branches ===

impl<T: Send + 'static> Branches<T> {
    /// Makes room for branches; `alone` if no two ever run at the same time.
    pub(super) fn new(alone: bool) -> Self {
        let runtime = Handle::try_current().ok();
        let flavor = runtime.as_ref().map(Handle::runtime_flavor);
        let place = match flavor {
            _ if alone => Executor::Here,
            Some(RuntimeFlavor::CurrentThread) => Executor::HereFirst,
            _ => Executor::HereFirstOfThreads,
        };
        Self {
            place,
            runtime,
            tasks: None,
            handles: Vec::new(),
            here: VecDeque::new(),
            ended: VecDeque::new(),
            long: None,
            is_interrupted: false,
            spawns: false,
        }
    }

    /// Returns `true` if a branch with this hint can be polled as soon as it starts: it does
    /// not begin in a task, and no branch that started before is still to be polled.
    pub(super) fn polls_here(&self, hint: &SpawnHint) -> bool {
        let in_task = self.place == Executor::HereFirstOfThreads && (self.spawns || hint.is_set());
        self.here.is_empty() && !in_task
    }

    /// Notes that the first poll of a branch took long; returns `true` if other threads run
    /// those that start after it.
    pub(super) fn note_long(&mut self) -> bool {
        self.spawns = self.place == Executor::HereFirstOfThreads;
        self.spawns
    }

    /// Continues a branch that was polled once, and waits.
    pub(super) fn resume(
        &mut self,
        id: BranchId,
        branch: impl Future<Output = T> + Send + 'static,
    ) {
        if self.place == Executor::Here {
            self.here.push_back((id, caught(branch)));
        } else {
            self.spawn(id, branch.map(Ok));
        }
    }

    /// Starts a branch; in a task at once if there are threads and the hint says so.
    pub(super) fn start(
        &mut self,
        id: BranchId,
        hint: &SpawnHint,
        branch: impl Future<Output = T> + Send + 'static,
    ) {
        if self.place == Executor::HereFirstOfThreads && (self.spawns || hint.take()) {
            // `map` and not `async`, which would keep room for the branch twice.
            return self.spawn(id, branch.map(Ok));
        }
        self.here.push_back((id, caught(branch)));
    }

    fn spawn(
        &mut self,
        id: BranchId,
        branch: impl Future<Output = Result<T, Lost>> + Send + 'static,
    ) {
        // The span is what a task does not inherit by itself.
        let branch = branch.in_current_span();
        let tasks = self.tasks.get_or_insert_with(JoinSet::new);
        let handle = match &self.runtime {
            Some(runtime) => tasks.spawn_on(branch, runtime),
            None => tasks.spawn(branch),
        };
        self.handles.push((id, handle));
    }

    /// Returns the step of a branch whose first poll took long, once.
    pub(super) fn took_long(&mut self) -> Option<usize> {
        self.long.take()
    }

    /// Returns `true` if a branch that took long delays others, and all that ended before
    /// have come back.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_interrupted && self.ended.is_empty()
    }

    /// Aborts a branch; it will not come back.
    pub(super) fn abort(&mut self, id: BranchId) {
        if let Some(place) = self.handles.iter().position(|(other, _)| *other == id) {
            self.handles.swap_remove(place).1.abort();
        }
        self.here.retain(|(other, _)| *other != id);
        self.ended.retain(|(other, _)| *other != id);
    }

    /// The next branch that comes back; pending for good if none goes on.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(BranchId, Result<T, Lost>)> {
        if self.place == Executor::Here
            && let Some((id, branch)) = self.here.front_mut()
        {
            let ended = branch.poll_unpin(cx).map(|end| (*id, end));
            if ended.is_ready() {
                self.here.clear();
            }
            return ended;
        }
        if self.ended.is_empty() {
            self.poll_here(cx);
        }
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
            // One that was aborted is no longer there. By the id of the task, since
            // a branch that is tried again has the one of its own again.
            let place = self.handles.iter().position(|(_, handle)| handle.id() == task);
            let Some(place) = place else { continue };
            let (id, _) = self.handles.swap_remove(place);
            return Poll::Ready((id, end));
        }
        Poll::Pending
    }

    /// Polls new branches once, and makes tasks of those that wait.
    fn poll_here(&mut self, cx: &mut Context<'_>) {
        (self.is_interrupted, self.spawns) = (false, false);
        if self.here.is_empty() {
            return;
        }
        let mut now = Instant::now();
        while let Some((id, mut branch)) = self.here.pop_front() {
            match branch.poll_unpin(cx) {
                Poll::Ready(end) => self.ended.push_back((id, end)),
                // It is polled again as a task, and then wakes that.
                Poll::Pending => self.spawn(id, branch),
            }
            let begun = mem::replace(&mut now, Instant::now());
            if now - begun <= LONG {
                continue;
            }
            self.long = Some(id.step);
            if self.place == Executor::HereFirstOfThreads {
                for (id, branch) in mem::take(&mut self.here) {
                    self.spawn(id, branch);
                }
            } else if !self.here.is_empty() {
                // The caller looks at the time, and polls again.
                self.is_interrupted = true;
                cx.waker().wake_by_ref();
                return;
            }
        }
    }
}

/// A branch that ends with an error instead of panicking.
fn caught<T>(
    branch: impl Future<Output = T> + Send + 'static,
) -> BoxFuture<'static, Result<T, Lost>> {
    let caught = AssertUnwindSafe(branch).catch_unwind();
    caught.map(|end| end.map_err(|_| Lost::Panicked)).boxed()
}

// === impl SpawnHint ===

impl SpawnHint {
    /// Notes that a call took long.
    pub(super) fn note_long(&self) {
        self.left.store(CALLS_IN_TASKS, Ordering::Relaxed);
    }

    /// Notes that a call waited at its first poll.
    pub(super) fn note_wait(&self) {
        let calls = self.after_wait.load(Ordering::Relaxed);
        self.left.store(calls, Ordering::Relaxed);
        self.after_wait.store((2 * calls).min(CALLS_IN_TASKS), Ordering::Relaxed);
    }

    /// Notes that a call ended at its first poll.
    pub(super) fn note_end(&self) {
        // Most tools always do, and a store would take the line from the other threads.
        if self.after_wait.load(Ordering::Relaxed) != CALLS_AFTER_WAIT {
            self.after_wait.store(CALLS_AFTER_WAIT, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if a call is to begin in a task.
    fn take(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        // Lost by a call at the same time, it lasts for one more.
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

    /// How many calls begin in tasks until one is polled in the run again.
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
