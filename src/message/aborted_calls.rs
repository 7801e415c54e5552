//! Waits until aborted calls have ended.

use std::{
    fmt, mem,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};

use crate::mutex::lock;

/// The calls of a run and of its nested runs that were aborted and may still be running.
///
/// Aborting a Tokio task only requests its end: if another thread is polling the task, the task
/// ends after this poll. A nested run is dropped together with the call that runs it, and therefore
/// cannot wait for its own tasks. It adds them here, and its outer runs wait for them.
#[derive(Default)]
pub(crate) struct AbortedCalls {
    /// If `false`, the list is empty. Avoids the lock in runs without aborted calls.
    has_any: AtomicBool,
    list: Mutex<Vec<CallEnd>>,
}

/// Completes when an aborted call has ended. Shared by all runs that wait for the call.
type CallEnd = Shared<BoxFuture<'static, ()>>;

// === impl AbortedCalls ===

impl AbortedCalls {
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Acquire)
    }

    pub(super) fn add(&self, end: CallEnd) {
        let mut list = lock(&self.list);
        list.push(end);
        self.has_any.store(true, Ordering::Release);
    }

    /// Removes all calls, as if they had ended.
    pub(crate) fn clear(&self) {
        let mut list = lock(&self.list);
        self.has_any.store(false, Ordering::Release);
        // Dropped after the lock is released, because this may drop the outputs of tasks.
        let ends = mem::take(&mut *list);
        drop(list);
        drop(ends);
    }

    /// Waits until all calls have ended. Only the last task that polled this method is woken.
    pub(crate) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_empty() {
            // Polled without the lock, because polling drops the outputs of tasks.
            let mut ends = mem::take(&mut *lock(&self.list));
            ends.retain_mut(|end| end.poll_unpin(cx).is_pending());
            let mut list = lock(&self.list);
            let is_new = !list.is_empty();
            list.append(&mut ends);
            if list.is_empty() {
                self.has_any.store(false, Ordering::Release);
            } else if !is_new {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for AbortedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortedCalls").finish_non_exhaustive()
    }
}

/// Returns the future to [add](AbortedCalls::add) for a call that ends when `end` completes.
pub(super) fn call_end(end: impl Future<Output = ()> + Send + 'static) -> CallEnd {
    end.boxed().shared()
}
