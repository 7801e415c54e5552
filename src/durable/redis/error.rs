//! The errors of a Redis server.

use std::borrow::Cow;

/// The reason why a Redis server cannot be used. The error message never contains a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// The URL of the Redis server is invalid.
    // The message omits the URL, which may contain a password.
    #[error(
        "not the URL of a Redis server: expected one such as `redis://user:password@host:6379/0` \
         or `unix:///run/redis.sock`"
    )]
    Url,
    /// The URL requires TLS, but TLS is not enabled in the `redis` crate.
    #[error(
        "`{scheme}://` needs TLS, which is not built in: expected the crate `redis` with its \
         feature `tokio-rustls-comp`"
    )]
    NoTls {
        /// The scheme of the URL, such as `rediss`.
        scheme: String,
    },
    /// The Redis server is unavailable. Contains the reason, for logs and not for clients.
    #[error("the Redis server is not available: {0}")]
    Unavailable(Cow<'static, str>),
}
