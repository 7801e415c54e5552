use std::borrow::Cow;

/// Why a Redis server cannot be used. It never says a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// The text is no URL of a server.
    // The URL is not told, since there can be a password in it.
    #[error(
        "no URL of a Redis server: expected one such as `redis://user:password@host:6379/0` \
         or `unix:///run/redis.sock`"
    )]
    Url,
    /// The URL asks for TLS, which is not built in.
    #[error(
        "`{scheme}://` needs TLS, which is not built in: expected the crate `redis` with its \
         feature `tokio-rustls-comp`"
    )]
    NoTls {
        /// How the URL begins.
        scheme: String,
    },
    /// The server is away. Why is for a log, and not for clients.
    #[error("the Redis server is not available: {0}")]
    Unavailable(Cow<'static, str>),
}
