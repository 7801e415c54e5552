//! Limits nested requests, which tools make while they answer other requests. Without limits, tools
//! could call each other endlessly.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use super::Account;

/// The maximum depth of nested requests. A client's request has the depth zero. A tool that answers
/// it makes requests with the depth one.
pub(super) const MAX_CALL_DEPTH: usize = 8;
/// The maximum number of nested calls of all tools during one request of a client. Limiting only
/// the depth is not enough, because each tool can call several others.
pub(super) const MAX_NESTED_CALLS: usize = 10_000;

/// The position of a request in a chain of nested requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delegation {
    pub(super) depth: usize,
    /// The account to which the costs of the request are charged. `None` if the request belongs to
    /// no run.
    pub(super) account: Option<Arc<Account>>,
    /// The state that this request shares with its nested requests. `None` if there are no nested
    /// requests, or if the request belongs to a run, whose account then contains this state.
    pub(super) shared: Option<Arc<Shared>>,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The number of nested calls so far.
    calls: AtomicUsize,
    /// The account for nested calls of a request that belongs to no run. Created on first use.
    account: OnceLock<Arc<Account>>,
}

tokio::task_local! {
    /// The request that the current task is answering. Requests that the task makes are nested in
    /// it.
    static ANSWERED: Delegation;
}

// === impl Delegation ===

impl Delegation {
    /// Returns a copy that charges its costs to `account` or, if it is `None`, to the account of
    /// this request.
    pub(super) fn charged(&self, account: Option<&Arc<Account>>) -> Self {
        Self {
            depth: self.depth,
            account: account.or(self.account.as_ref()).cloned(),
            shared: self.shared.clone(),
        }
    }

    /// Runs `answer`, the future that answers this request. Requests that it makes are nested in
    /// this request.
    pub(crate) fn answer<F: Future>(self, answer: F) -> impl Future<Output = F::Output> {
        ANSWERED.scope(self, answer)
    }

    /// Returns `true` if this request is nested in another one, or if the current task is answering
    /// a request.
    #[cfg(feature = "cache")]
    pub(super) fn is_nested(&self) -> bool {
        self.depth > 0 || ANSWERED.try_with(|_| ()).is_ok()
    }

    /// Nests this request in the request that the current task is answering, if there is one.
    pub(super) fn follow_task(&mut self) {
        let _ = ANSWERED.try_with(|outer| self.follow(outer));
    }

    /// Returns a copy for creating nested requests, which all share one call counter and one
    /// account.
    pub(super) fn share(&mut self) -> Self {
        if self.account.is_none() {
            self.shared.get_or_insert_default();
        }
        self.clone()
    }

    /// Nests this request in `outer`, unless this request is already nested deeper.
    fn follow(&mut self, outer: &Self) {
        if self.depth <= outer.depth {
            *self = outer.within();
        }
    }

    pub(super) fn within(&self) -> Self {
        Self { depth: self.depth + 1, ..self.clone() }
    }

    /// Assigns an account to this request if it has none. Requests that are nested in the same
    /// outer request share one account.
    pub(super) fn begin_run(&mut self) {
        let Self { account, shared, .. } = self;
        account.get_or_insert_with(|| match shared {
            Some(shared) => shared.account.get_or_init(Arc::default).clone(),
            None => Arc::default(),
        });
    }

    /// Counts a nested call. Returns an error if a limit is exceeded: the limit and the name of the
    /// counted calls, such as `nested calls`.
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
