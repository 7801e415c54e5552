//! The authentication of a running server, whose settings change when the file is reloaded.

use std::{
    borrow::Cow,
    convert::Infallible,
    future::pending,
    mem::discriminant,
    sync::{Arc, PoisonError, RwLock},
};

use mcp_composite::config::{AuthConfig, AuthMethod, View};
use tokio::sync::Notify;

use super::{
    jwt::JwtVerifier,
    metadata::Metadata,
    rejection_log::RejectionLog,
    session_id::SessionIds,
    static_tokens::Tokens,
    verification::{Rejection, Verified},
};

/// The authentication of a running server. Clones refer to the same one.
#[derive(Clone)]
pub(crate) struct Authentication(pub(super) Arc<Running>);

pub(super) struct Running {
    current: RwLock<Arc<Authenticator>>,
    /// Notified when `current` was replaced.
    replaced: Notify,
    pub(super) session_ids: SessionIds,
    pub(super) rejections: RejectionLog,
}

/// Settings of a new version of the file, whose keys were read.
pub(crate) struct Prepared(Arc<Authenticator>);

/// Verifies bearer tokens as one version of the file defines it.
pub(super) struct Authenticator {
    pub(super) config: AuthConfig,
    method: Method,
    /// The metadata that names the authorization server. `None` with static tokens.
    metadata: Option<Metadata>,
}

enum Method {
    Jwt(Box<JwtVerifier>),
    Tokens(Tokens),
}

// === impl Authentication ===

impl Authentication {
    /// Reads the keys with which tokens are verified.
    ///
    /// # Errors
    ///
    /// Returns an error if the key set cannot be read, or has no usable key.
    pub(crate) async fn new(config: AuthConfig) -> Result<Self, String> {
        let running = Running {
            current: RwLock::new(Arc::new(Authenticator::new(config).await?)),
            replaced: Notify::new(),
            session_ids: SessionIds::new()?,
            rejections: RejectionLog::default(),
        };
        Ok(Self(Arc::new(running)))
    }

    /// Prepares the use of other settings. Returns `None` if they are the same; then only the key
    /// set is read again.
    ///
    /// # Errors
    ///
    /// Returns an error if the new key set cannot be read, or if the names of callers could mean
    /// others than before: budgets, suspended runs and sessions belong to these names.
    pub(crate) async fn prepare(&self, config: AuthConfig) -> Result<Option<Prepared>, String> {
        let current = self.current();
        if current.config == config {
            if let Method::Jwt(jwt) = &current.method {
                jwt.refresh().await;
            }
            return Ok(None);
        }
        let is_same = match (current.config.method(), config.method()) {
            (AuthMethod::Jwt(before), AuthMethod::Jwt(now)) => before.issuer() == now.issuer(),
            (before, now) => discriminant(before) == discriminant(now),
        };
        if !is_same {
            return Err("`[auth]` has another issuer or method: restart the program".to_owned());
        }
        Ok(Some(Prepared(Arc::new(Authenticator::new(config).await?))))
    }

    /// Uses other settings from now on.
    pub(crate) fn replace(&self, Prepared(authenticator): Prepared) {
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = authenticator;
        self.0.replaced.notify_one();
    }

    /// Reads the keys of the authorization server again at intervals, so that a revoked key is
    /// rejected and a new one is accepted.
    pub(crate) async fn keep_fresh(&self) -> Infallible {
        loop {
            let current = self.current();
            let keep_fresh = async {
                match &current.method {
                    Method::Jwt(jwt) => jwt.keep_fresh().await,
                    Method::Tokens(_) => pending().await,
                }
            };
            tokio::select! {
                never = keep_fresh => match never {},
                () = self.0.replaced.notified() => (),
            }
        }
    }

    pub(super) fn current(&self) -> Arc<Authenticator> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// === impl Authenticator ===

impl Authenticator {
    async fn new(config: AuthConfig) -> Result<Self, String> {
        let (method, metadata) = match (config.method(), config.resource()) {
            (AuthMethod::Jwt(jwt), Some(resource)) => {
                let verifier = JwtVerifier::new(resource, jwt).await?;
                (Method::Jwt(Box::new(verifier)), Some(Metadata::new(resource, jwt, &[])))
            }
            (AuthMethod::Tokens(tokens), _) => (Method::Tokens(Tokens::new(tokens)), None),
            _ => return Err("`[auth]` has a method that this program does not know".to_owned()),
        };
        Ok(Self { config, method, metadata })
    }

    /// Returns the caller who has this token. `view` is the view of the request; `None` for `/mcp`.
    pub(super) async fn caller(
        &self,
        token: &str,
        view: Option<&View>,
    ) -> Result<Verified, Rejection> {
        match &self.method {
            Method::Jwt(jwt) => jwt.verify(token, view).await,
            Method::Tokens(tokens) => {
                tokens.caller(token).map(|caller| Verified { caller, expires: None })
            }
        }
    }

    /// Returns the metadata for a view, or for `/mcp` without one. `None` with static tokens.
    pub(super) fn metadata(&self, view: Option<&View>) -> Option<Cow<'_, Metadata>> {
        let own = view.and_then(|view| match self.config.method() {
            AuthMethod::Jwt(jwt) => Metadata::of_view(self.config.resource()?, jwt, view),
            _ => None,
        });
        own.map(Cow::Owned).or_else(|| self.metadata.as_ref().map(Cow::Borrowed))
    }
}
