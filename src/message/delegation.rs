//! The chain of requests that are made while another request is answered, and its limits.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use super::Account;

/// The maximum nesting depth of requests.
pub(super) const MAX_CALL_DEPTH: usize = 8;
/// The maximum number of calls that tools make for one request, in total.
///
/// If each tool calls several, the depth limit alone would not bound the work.
pub(super) const MAX_NESTED_CALLS: usize = 10_000;

/// The requests around a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delegation {
    pub(super) depth: usize,
    /// The account of the request's run, if it belongs to one.
    pub(super) account: Option<Arc<Account>>,
    /// State shared by all requests made within one request; `None` if none can be made, or if the
    /// request belongs to a run, which holds that state.
    pub(super) shared: Option<Arc<Shared>>,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The number of these calls.
    calls: AtomicUsize,
    /// Their run, if the request belongs to none. Created when first charged.
    account: OnceLock<Arc<Account>>,
}

tokio::task_local! {
    /// The request that this task is answering, if any; its requests are made within it.
    static ANSWERED: Delegation;
}

// === impl Delegation ===

impl Delegation {
    /// Returns a copy that is charged to `account`, if given.
    pub(super) fn charged(&self, account: Option<&Arc<Account>>) -> Self {
        Self {
            depth: self.depth,
            account: account.or(self.account.as_ref()).cloned(),
            shared: self.shared.clone(),
        }
    }

    /// Runs code that answers a request and may make others: requests that its task makes are made
    /// within that request.
    pub(crate) fn answer<F: Future>(self, answer: F) -> impl Future<Output = F::Output> {
        ANSWERED.scope(self, answer)
    }

    /// Makes this a request within the one that the task answers, if there is one.
    pub(super) fn follow_task(&mut self) {
        let _ = ANSWERED.try_with(|outer| self.follow(outer));
    }

    /// Shares one counter and one run among the requests made within this one.
    pub(super) fn share(&mut self) -> Self {
        if self.account.is_none() {
            self.shared.get_or_insert_default();
        }
        self.clone()
    }

    /// Makes this a request within `outer`, unless it already is.
    fn follow(&mut self, outer: &Self) {
        if self.depth <= outer.depth {
            *self = outer.within();
        }
    }

    pub(super) fn within(&self) -> Self {
        Self { depth: self.depth + 1, ..self.clone() }
    }

    /// Assigns a run, shared by all requests made within the same request.
    pub(super) fn begin_run(&mut self) {
        let Self { account, shared, .. } = self;
        account.get_or_insert_with(|| match shared {
            Some(shared) => shared.account.get_or_init(Arc::default).clone(),
            None => Arc::default(),
        });
    }

    /// Counts a call, or fails if a limit is reached.
    pub(super) fn count(&self) -> Result<(), (usize, &'static str)> {
        if self.depth > MAX_CALL_DEPTH {
            return Err((MAX_CALL_DEPTH, "calls within each other"));
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
            Err((MAX_NESTED_CALLS, "calls that tools have made"))
        }
    }
}
