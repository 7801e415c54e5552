use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::{AbortHandle, JoinSet},
};
use tracing::Instrument;

/// The branches of a run that go on.
///
/// Each is a task of its own, so that they run at the same time and a panic
/// stays where it happens. Making a task costs more than many a tool takes, so
/// none is made where it would bring nothing: a branch that has nobody beside
/// it runs in the task of the run, and on a runtime of one thread each branch is
/// polled there once before it becomes a task. Panics are caught there too.
///
/// Dropping it aborts them all.
pub(super) struct Branches<T> {
    place: Place,
    /// Made when a task is, since most runs of tools that answer at once need none.
    tasks: Option<JoinSet<Result<T, Lost>>>,
    handles: Vec<(BranchId, AbortHandle)>,
    /// Those that are polled here: the one that stays, and new ones.
    here: Vec<(BranchId, BoxFuture<'static, Result<T, Lost>>)>,
    /// Those that ended here.
    ended: VecDeque<(BranchId, Result<T, Lost>)>,
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
enum Place {
    /// In the task of the run: there is never more than one.
    Here,
    /// There until they wait for something, then in a task.
    HereFirst,
    /// In a task from the beginning, on whichever thread has time.
    Tasks,
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
        let one_thread = |runtime: Handle| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        let place = if alone {
            Place::Here
        } else if Handle::try_current().is_ok_and(one_thread) {
            Place::HereFirst
        } else {
            Place::Tasks
        };
        Self { place, tasks: None, handles: Vec::new(), here: Vec::new(), ended: VecDeque::new() }
    }

    /// Starts a branch.
    pub(super) fn start(&mut self, id: BranchId, branch: impl Future<Output = T> + Send + 'static) {
        if self.place == Place::Tasks {
            // `map` and not `async`, which would keep room for the branch twice.
            self.spawn(id, branch.map(Ok));
        } else {
            let caught = AssertUnwindSafe(branch).catch_unwind();
            let branch = caught.map(|end| end.map_err(|_| Lost::Panicked));
            self.here.push((id, branch.boxed()));
        }
    }

    fn spawn(
        &mut self,
        id: BranchId,
        branch: impl Future<Output = Result<T, Lost>> + Send + 'static,
    ) {
        // The span is what a task does not inherit by itself.
        let tasks = self.tasks.get_or_insert_with(JoinSet::new);
        let handle = tasks.spawn(branch.in_current_span());
        self.handles.push((id, handle));
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
        if let (Place::Here, [(id, branch)]) = (self.place, &mut *self.here) {
            let ended = branch.poll_unpin(cx).map(|end| (*id, end));
            if ended.is_ready() {
                self.here.clear();
            }
            return ended;
        }
        self.poll_here(cx);
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
        self.ended.reserve(self.here.len());
        for (id, mut branch) in std::mem::take(&mut self.here) {
            match branch.poll_unpin(cx) {
                Poll::Ready(end) => self.ended.push_back((id, end)),
                // It is polled again as a task, and then wakes that.
                Poll::Pending => self.spawn(id, branch),
            }
        }
    }
}
