use std::{
    panic::AssertUnwindSafe,
    task::{Context, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument;

/// The branches of a run that go on, by the steps they are of.
///
/// Each is a task of its own, so that they run at the same time and a panic
/// stays where it happens. A branch that has nobody beside it runs in the task
/// of the run, which saves making one; a panic is caught there too.
///
/// Dropping it aborts them all.
pub(super) struct Branches<T> {
    tasks: JoinSet<(usize, T)>,
    handles: Vec<(usize, AbortHandle)>,
    here: Option<(usize, BoxFuture<'static, Result<T, Lost>>)>,
    /// Whether no two branches ever run at the same time.
    alone: bool,
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
    pub(super) fn new(alone: bool) -> Self {
        Self { tasks: JoinSet::new(), handles: Vec::new(), here: None, alone }
    }

    /// Starts the branch of a step.
    pub(super) fn start(&mut self, step: usize, branch: impl Future<Output = T> + Send + 'static) {
        if self.alone {
            let caught = AssertUnwindSafe(branch).catch_unwind();
            self.here = Some((step, caught.map(|end| end.map_err(|_| Lost::Panicked)).boxed()));
        } else {
            // The span is what a task does not inherit by itself. `map` and not
            // `async`, which would keep room for the branch twice.
            let handle = self.tasks.spawn(branch.map(move |end| (step, end)).in_current_span());
            self.handles.push((step, handle));
        }
    }

    /// Aborts the branch of a step; it will not come back.
    pub(super) fn abort(&mut self, step: usize) {
        if let Some(place) = self.handles.iter().position(|(other, _)| *other == step) {
            self.handles.swap_remove(place).1.abort();
        }
        self.here.take_if(|(other, _)| *other == step);
    }

    /// The next branch that comes back; pending for good if none goes on.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Result<T, Lost>)> {
        if let Some((step, branch)) = &mut self.here {
            let (step, end) = (*step, branch.poll_unpin(cx));
            if end.is_ready() {
                self.here = None;
            }
            return end.map(|end| (step, end));
        }
        while let Poll::Ready(Some(joined)) = self.tasks.poll_join_next(cx) {
            let mut handles = self.handles.iter();
            let place = match &joined {
                Ok((step, _)) => handles.position(|(other, _)| other == step),
                Err(error) => handles.position(|(_, handle)| handle.id() == error.id()),
            };
            // One that was aborted is no longer there.
            let Some(place) = place else { continue };
            let (step, _) = self.handles.swap_remove(place);
            let end = match joined {
                Ok((_, end)) => Ok(end),
                Err(error) if error.is_panic() => Err(Lost::Panicked),
                Err(_) => Err(Lost::Stopped),
            };
            return Poll::Ready((step, end));
        }
        Poll::Pending
    }
}
