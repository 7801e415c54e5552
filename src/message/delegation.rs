//! Tracks nested requests, which a tool makes while it answers another request. Limits their depth
//! and number, because tools could call each other endlessly.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use super::Account;

/// The maximum depth to which requests of tools can be nested.
pub(super) const MAX_CALL_DEPTH: usize = 8;
/// The maximum number of nested calls that tools make for one request of a client.
///
/// The depth limit alone does not bound the number of calls, because each tool can call several
/// others.
pub(super) const MAX_NESTED_CALLS: usize = 10_000;

/// The position of a request in a chain of nested requests: its depth, the run that it belongs to,
/// and the state that it shares with its nested requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delegation {
    pub(super) depth: usize,
    /// The account of the run in which the request was made. `None` if the request was made outside
    /// of a run.
    pub(super) account: Option<Arc<Account>>,
    /// The state that this request shares with its nested requests. `None` if no requests can be
    /// nested in it. Also `None` if the request belongs to a run, whose account then contains the
    /// state.
    pub(super) shared: Option<Arc<Shared>>,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The number of nested calls that were made so far within the request.
    calls: AtomicUsize,
    /// The account to which nested calls are charged if the request itself does not belong to a
    /// run. Created on the first charge.
    account: OnceLock<Arc<Account>>,
}

tokio::task_local! {
    /// The request that the current task is answering. Requests that the task makes are nested in
    /// it.
    static ANSWERED: Delegation;
}

// === impl Delegation ===

impl Delegation {
    /// Returns a copy that belongs to the run of `account`. If `account` is `None`, the copy
    /// belongs to the same run as this request.
    pub(super) fn charged(&self, account: Option<&Arc<Account>>) -> Self {
        Self {
            depth: self.depth,
            account: account.or(self.account.as_ref()).cloned(),
            shared: self.shared.clone(),
        }
    }

    /// Runs `answer`, a future that answers the request. Requests that the task makes in the
    /// meantime are nested in this request.
    pub(crate) fn answer<F: Future>(self, answer: F) -> impl Future<Output = F::Output> {
        ANSWERED.scope(self, answer)
    }

    /// Returns `true` if this request is nested in another request. This is also the case if it is
    /// made by a task that is answering a request.
    #[cfg(feature = "cache")]
    pub(super) fn is_nested(&self) -> bool {
        self.depth > 0 || ANSWERED.try_with(|_| ()).is_ok()
    }

    /// Nests this request in the request that the current task is answering. Does nothing if the
    /// task is not answering a request.
    pub(super) fn follow_task(&mut self) {
        let _ = ANSWERED.try_with(|outer| self.follow(outer));
    }

    /// Returns a copy for the requests that are nested in this one. These requests share one call
    /// counter and one run.
    pub(super) fn share(&mut self) -> Self {
        if self.account.is_none() {
            self.shared.get_or_insert_default();
        }
        self.clone()
    }

    /// Nests this request in `outer`. Does nothing if this request is already nested more deeply
    /// than `outer`.
    fn follow(&mut self, outer: &Self) {
        if self.depth <= outer.depth {
            *self = outer.within();
        }
    }

    pub(super) fn within(&self) -> Self {
        Self { depth: self.depth + 1, ..self.clone() }
    }

    /// Assigns the request to a run if it does not belong to one yet. All requests that are nested
    /// in the same request are assigned to the same run.
    pub(super) fn begin_run(&mut self) {
        let Self { account, shared, .. } = self;
        account.get_or_insert_with(|| match shared {
            Some(shared) => shared.account.get_or_init(Arc::default).clone(),
            None => Arc::default(),
        });
    }

    /// Counts a call. If the call exceeds a limit on nested calls, returns the limit and its unit
    /// as an error.
    pub(super) fn count(&self) -> Result<(), (usize, &'static str)> {
        if self.depth > MAX_CALL_DEPTH {
            return Err((MAX_CALL_DEPTH, "nested calls"));
        }
        let before = match (&self.shared, &self.account) {
            (Some(shared), _) => shared.calls.fetch_add(1, Ordering::Relaxed),
            // All branches of the run share one counter.
            (None, Some(account)) if self.depth > 0 => account.count_delegated(),
            _ => 0,
        };
        if before < MAX_NESTED_CALLS {
            Ok(())
        } else {
            Err((MAX_NESTED_CALLS, "calls made by tools"))
        }
    }
}
