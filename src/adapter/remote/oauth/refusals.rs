//! Remembers the tokens of callers that the authorization server has recently refused to exchange.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::Mutex,
    time::Duration,
};

use tokio::time::Instant;

use crate::mutex::lock;

/// The time for which a refusal is remembered. During this time, requests with the refused token
/// fail without another request to the authorization server.
const KEPT: Duration = Duration::from_secs(10);
const MAX_REFUSALS: usize = 1000;

/// The token exchanges that the authorization server has recently refused. A refused token is
/// rejected without asking the server again, so that callers cannot cause endless requests.
#[derive(Default)]
pub(super) struct Refusals {
    /// Maps a hash of a caller and its refused token to the time until which the refusal is
    /// remembered.
    until: Mutex<HashMap<u64, Instant>>,
    hasher: RandomState,
}

// === impl Refusals ===

impl Refusals {
    /// Returns `true` if the authorization server has recently refused to exchange this token of
    /// the caller.
    pub(super) fn contain(&self, caller: &str, token: &str) -> bool {
        let until = lock(&self.until);
        // In most cases, nothing was refused, so that no hash is needed.
        !until.is_empty()
            && until
                .get(&self.hasher.hash_one((caller, token)))
                .is_some_and(|it| Instant::now() < *it)
    }

    /// Remembers that the exchange of a token was refused. Returns `true` if the refusal was not
    /// remembered yet. If the maximum number of refusals is reached, forgets the oldest one.
    pub(super) fn keep(&self, caller: &str, token: &str) -> bool {
        let now = Instant::now();
        let mut until = lock(&self.until);
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
