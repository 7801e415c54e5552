//! Stores an access token, and requests a new token when needed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, WeakShared},
};
use tokio::time::Instant;

use super::{
    access_token::AccessToken, endpoint::TokenEndpoint, grant::Grant, token_error::TokenError,
};
use crate::{adapter::remote::sent_tokens::SentTokens, mutex::lock};

/// A token is no longer used when its remaining lifetime is shorter than this, so that it does not
/// expire while a request is sent. For a short-lived token, the limit is a quarter of its lifetime.
const MARGIN: Duration = Duration::from_secs(30);

/// The minimum time for which a new token is used, even if the caller's own token expires earlier.
/// A single request reads the token several times, and must not cause a token request each time.
const FIRST_USE: Duration = Duration::from_secs(1);

/// A source of access tokens. It stores the latest token until shortly before the token expires,
/// and then requests a new one when a request needs it.
pub(in crate::adapter::remote) struct TokenSource {
    endpoint: Arc<TokenEndpoint>,
    grant: Grant,
    /// The recently issued access tokens, which are redacted in errors and logs.
    sent: SentTokens,
    slot: Mutex<Slot>,
}

type Request = BoxFuture<'static, Result<Arc<str>, TokenError>>;

#[derive(Default)]
struct Slot {
    token: Option<Kept>,
    /// The token request in progress, or `None`. All tasks that need a token wait for the same
    /// request. It is cancelled when all of these tasks are dropped.
    request: Option<WeakShared<Request>>,
}

struct Kept {
    value: Arc<str>,
    /// The time from which the stored token is no longer used. `None` if the token does not expire.
    until: Option<Instant>,
}

// === impl TokenSource ===

impl TokenSource {
    pub(in crate::adapter::remote) fn new(
        endpoint: Arc<TokenEndpoint>,
        grant: Grant,
        sent: SentTokens,
    ) -> Arc<Self> {
        Arc::new(Self { endpoint, grant, sent, slot: Mutex::default() })
    }

    /// Returns the stored token if it is still usable, and otherwise requests a new one. Concurrent
    /// calls share one token request.
    ///
    /// # Errors
    ///
    /// Returns an error if no token is issued.
    pub(in crate::adapter::remote) async fn token(
        self: &Arc<Self>,
    ) -> Result<Arc<str>, TokenError> {
        let request = {
            let mut slot = lock(&self.slot);
            if let Some(token) = slot.usable() {
                return Ok(token);
            }
            match slot.request.as_ref().and_then(WeakShared::upgrade) {
                Some(request) => request,
                None => {
                    let request: Request = self.clone().request().boxed();
                    let request = request.shared();
                    slot.request = request.downgrade();
                    request
                }
            }
        };
        request.await
    }

    /// Discards the stored token if it equals `token`, which the server has rejected.
    pub(super) fn reject(&self, token: &str) {
        let mut slot = lock(&self.slot);
        if slot.token.as_ref().is_some_and(|kept| *kept.value == *token) {
            slot.token = None;
        }
    }

    async fn request(self: Arc<Self>) -> Result<Arc<str>, TokenError> {
        let issued = self.endpoint.request(&self.grant).await;
        let mut slot = lock(&self.slot);
        slot.request = None;
        let AccessToken { value, lifetime } = issued?;
        self.sent.add(&value);
        let now = Instant::now();
        let until = lifetime.map(|lifetime| now + (lifetime - MARGIN.min(lifetime / 4)));
        let until = [until, self.grant.ends()].into_iter().flatten().min();
        let until = until.map(|until| until.max(now + FIRST_USE));
        slot.token = Some(Kept { value: value.clone(), until });
        Ok(value)
    }
}

// === impl Slot ===

impl Slot {
    fn usable(&self) -> Option<Arc<str>> {
        let kept = self.token.as_ref()?;
        let is_usable = kept.until.is_none_or(|until| Instant::now() < until);
        is_usable.then(|| kept.value.clone())
    }
}
