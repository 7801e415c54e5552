//! Authentication of callers over HTTP, as the [authorization of MCP] defines it.
//!
//! [authorization of MCP]: https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization

mod bearer;
mod jwt;
mod key_set;
mod metadata;
mod middleware;
mod session_id;
mod static_tokens;

use std::{
    convert::Infallible,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use mcp_composite::config::{AuthConfig, AuthMethod};

pub(crate) use self::middleware::protect;
use self::{jwt::JwtVerifier, metadata::Metadata, session_id::SessionIds, static_tokens::Tokens};

/// The interval at which the keys of the authorization server are read again.
const REFRESH: Duration = Duration::from_secs(5 * 60);

/// The authentication of a running server. Clones refer to the same one.
#[derive(Clone)]
pub(crate) struct Authentication(Arc<Running>);

struct Running {
    current: RwLock<Arc<Authenticator>>,
    session_ids: SessionIds,
}

/// Settings of a new version of the file, whose keys were read.
pub(crate) struct Prepared(Arc<Authenticator>);

/// Verifies bearer tokens as one version of the file defines it.
struct Authenticator {
    config: AuthConfig,
    method: Method,
    /// The metadata that names the authorization server. `None` with static tokens.
    metadata: Option<Metadata>,
}

enum Method {
    Jwt(Box<JwtVerifier>),
    Tokens(Tokens),
}

/// The reason why a request is rejected.
#[derive(Debug)]
enum Rejection {
    /// The request has no bearer token.
    NoToken,
    /// The request does not have exactly one `Authorization` header with a bearer token.
    Malformed,
    /// The token is not valid. Contains the reason for the operator, without the token.
    InvalidToken(String),
    /// The token lacks a scope.
    InsufficientScope,
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
            session_ids: SessionIds::new()?,
        };
        Ok(Self(Arc::new(running)))
    }

    /// Prepares the use of other settings. Returns `None` if they are the same.
    ///
    /// # Errors
    ///
    /// Returns an error if the new key set cannot be read.
    pub(crate) async fn prepare(&self, config: AuthConfig) -> Result<Option<Prepared>, String> {
        if self.current().config == config {
            return Ok(None);
        }
        Ok(Some(Prepared(Arc::new(Authenticator::new(config).await?))))
    }

    /// Uses other settings from now on.
    pub(crate) fn replace(&self, Prepared(authenticator): Prepared) {
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = authenticator;
    }

    /// Reads the keys of the authorization server again at intervals, so that a revoked key is
    /// rejected and a new one is accepted.
    pub(crate) async fn keep_fresh(&self) -> Infallible {
        loop {
            tokio::time::sleep(REFRESH).await;
            if let Method::Jwt(jwt) = &self.current().method {
                jwt.refresh().await;
            }
        }
    }

    fn current(&self) -> Arc<Authenticator> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// === impl Authenticator ===

impl Authenticator {
    async fn new(config: AuthConfig) -> Result<Self, String> {
        let (method, metadata) = match (config.method(), config.resource()) {
            (AuthMethod::Jwt(jwt), Some(resource)) => {
                let verifier = JwtVerifier::new(jwt).await?;
                (Method::Jwt(Box::new(verifier)), Some(Metadata::new(resource, jwt)))
            }
            (AuthMethod::Tokens(tokens), _) => (Method::Tokens(Tokens::new(tokens)), None),
            _ => return Err("`[auth]` has a method that this program does not know".to_owned()),
        };
        Ok(Self { config, method, metadata })
    }

    /// Returns the name of the caller who has this token.
    async fn caller(&self, token: &str) -> Result<String, Rejection> {
        match &self.method {
            Method::Jwt(jwt) => jwt.verify(token).await,
            Method::Tokens(tokens) => tokens.caller(token),
        }
    }
}
