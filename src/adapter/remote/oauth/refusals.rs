//! The tokens of callers whose exchange was refused a moment ago.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The time for which a refusal is kept. Meanwhile, the token is not exchanged again.
const KEPT: Duration = Duration::from_secs(10);
/// The maximum number of refusals that are kept.
const MAX_REFUSALS: usize = 1000;

/// The last refusals, so that callers cannot make this program repeat them at any rate.
#[derive(Default)]
pub(super) struct Refusals {
    /// The hash of each caller with its token, and the time until which its refusal is kept.
    until: Mutex<HashMap<u64, Instant>>,
    hasher: RandomState,
}

// === impl Refusals ===

impl Refusals {
    /// Returns `true` if an exchange of this token was refused a moment ago.
    pub(super) fn contain(&self, caller: &str, token: &str) -> bool {
        let until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        // No refusal was kept for most callers.
        !until.is_empty()
            && until
                .get(&self.hasher.hash_one((caller, token)))
                .is_some_and(|it| Instant::now() < *it)
    }

    /// Keeps a refusal, and returns `true` if it is a new one. If there are too many, drops the
    /// oldest one.
    pub(super) fn keep(&self, caller: &str, token: &str) -> bool {
        let now = Instant::now();
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.retain(|_, until| now < *until);
        if until.len() >= MAX_REFUSALS
            && let Some(oldest) = until.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key)
        {
            until.remove(&oldest);
        }
        until.insert(self.hasher.hash_one((caller, token)), now + KEPT).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refusals_are_kept_for_a_moment_and_limited_in_number() {
        let refusals = Refusals::default();
        assert!(refusals.keep("alice", "first") && !refusals.keep("alice", "first"));
        assert!(refusals.contain("alice", "first"));
        assert!(!refusals.contain("alice", "second") && !refusals.contain("bob", "first"));
        tokio::time::advance(Duration::from_secs(5)).await;
        for number in 0..MAX_REFUSALS {
            refusals.keep("mallory", &number.to_string());
        }
        assert!(!refusals.contain("alice", "first"));
        assert!(refusals.contain("mallory", "0") && refusals.contain("mallory", "999"));
        assert_eq!(refusals.until.lock().unwrap().len(), MAX_REFUSALS);
        tokio::time::advance(KEPT).await;
        assert!(!refusals.contain("mallory", "999"));
    }
}
