//! Tracks nested requests: requests that a tool makes while it answers another request. Their depth
//! and number are limited, because tools could otherwise call each other endlessly.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use super::Account;

/// The maximum depth of nested requests: how many tools may call each other in a chain.
pub(super) const MAX_CALL_DEPTH: usize = 8;
/// The maximum number of nested calls that tools make while one request of a client is answered.
///
/// This limit is necessary in addition to the depth limit, because each tool can call several
/// others.
pub(super) const MAX_NESTED_CALLS: usize = 10_000;

/// The position of a request in a chain of nested requests. Consists of its depth, the composite
/// run to which it belongs, and the state that it shares with requests nested in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delegation {
    pub(super) depth: usize,
    /// The account to which the request's costs are charged. `None` if the request belongs to no
    /// run.
    pub(super) account: Option<Arc<Account>>,
    /// The state that this request shares with requests nested in it. `None` if no request can be
    /// nested in it. Also `None` if the request belongs to a composite run, because the run's
    /// account then contains this state.
    pub(super) shared: Option<Arc<Shared>>,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The number of nested calls that were made so far while the request is answered.
    calls: AtomicUsize,
    /// The account to which nested calls are charged if the request does not belong to a composite
    /// run. Created when the first cost is charged.
    account: OnceLock<Arc<Account>>,
}

tokio::task_local! {
    /// The request that the current task is answering. New requests that the task makes are nested
    /// in this request.
    static ANSWERED: Delegation;
}

// === impl Delegation ===

impl Delegation {
    /// Returns a copy for a request of the composite run with the account `account`. If `account`
    /// is `None`, the copy keeps the account of this request.
    pub(super) fn charged(&self, account: Option<&Arc<Account>>) -> Self {
        Self {
            depth: self.depth,
            account: account.or(self.account.as_ref()).cloned(),
            shared: self.shared.clone(),
        }
    }

    /// Runs the future `answer`, which answers this request. Requests that are made in the meantime
    /// by the same task are nested in this request.
    pub(crate) fn answer<F: Future>(self, answer: F) -> impl Future<Output = F::Output> {
        ANSWERED.scope(self, answer)
    }

    /// Returns `true` if this request is nested in another request. Also returns `true` if the
    /// current task is answering a request, because the new request would then be nested in it.
    #[cfg(feature = "cache")]
    pub(super) fn is_nested(&self) -> bool {
        self.depth > 0 || ANSWERED.try_with(|_| ()).is_ok()
    }

    /// Nests this request in the request that the current task is answering. Does nothing if the
    /// current task is not answering a request.
    pub(super) fn follow_task(&mut self) {
        let _ = ANSWERED.try_with(|outer| self.follow(outer));
    }

    /// Returns a copy from which nested requests are created. All requests that are nested in this
    /// request share one call counter and one account.
    pub(super) fn share(&mut self) -> Self {
        if self.account.is_none() {
            self.shared.get_or_insert_default();
        }
        self.clone()
    }

    /// Nests this request in `outer`. Does nothing if this request already has a greater depth than
    /// `outer`.
    fn follow(&mut self, outer: &Self) {
        if self.depth <= outer.depth {
            *self = outer.within();
        }
    }

    pub(super) fn within(&self) -> Self {
        Self { depth: self.depth + 1, ..self.clone() }
    }

    /// Assigns an account to this request if it has none yet. Requests that are nested in the same
    /// outer request share one account.
    pub(super) fn begin_run(&mut self) {
        let Self { account, shared, .. } = self;
        account.get_or_insert_with(|| match shared {
            Some(shared) => shared.account.get_or_init(Arc::default).clone(),
            None => Arc::default(),
        });
    }

    /// Counts a nested call. If a limit on nested calls is exceeded, returns the limit and its unit
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
