//! Stores in Redis or Valkey that several replicas share.
//!
//! A [`RedisServer`] contains the address and settings of a Redis server. Its methods create stores
//! that keep their data in this server:
//!
//! | method | implements | shared data |
//! |---|---|---|
//! | [`budgets`](RedisServer::budgets) | [`BudgetStore`](crate::budget::BudgetStore) | budgets of calls |
//! | [`runs`](RedisServer::runs) | [`Store`](crate::store::Store) | runs that wait for user input |
//! | `cache`, with the feature `cache` | `CacheStore` | cached results of tools |
//! | [`tasks`](RedisServer::tasks) | [`TaskStore`](crate::tasks::TaskStore) | tasks |
//! | [`results`](RedisServer::results) | [`Store`](crate::store::Store) | full versions of truncated results |
//!
//! Each Redis store has its own connection, which it establishes on first use, and again after it
//! was lost. An unavailable server is therefore not a configuration error. While the server is
//! unavailable, cached results are not used. Calls that need another store fail: immediately if the
//! connection is refused, or after the [timeout](RedisServer::timeout) if the server does not
//! respond. The next call tries again.
//!
//! # The server
//!
//! The Redis server must be Redis 6 or later, or Valkey. It can be a single server, or a proxy in
//! front of a cluster, because all keys of a script have the same hash tag. The Redis user needs
//! access to all keys that begin with the [prefix](RedisServer::prefix), and permission for the
//! commands for strings, hashes and sorted sets, and for `EVALSHA`, `SCRIPT LOAD` and `TIME`.
//!
//! Configure the Redis server with `maxmemory` and `maxmemory-policy noeviction`, so that a full
//! server rejects new values. With other policies, the server would evict budgets and waiting runs.
//! Handles, the IDs of tasks and the names of callers are stored as SHA-256 digests. The records of
//! tasks, however, contain the names of callers. States, results and tasks are stored unencrypted,
//! so that all users with access to the server can read them.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::{
//!     budget::{Budget, BudgetLayer, Unit},
//!     redis::{RedisServer, WhenAway},
//!     store::{PutError, Store},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = RedisServer::new("redis://:password@127.0.0.1:1/0")?.prefix("shop");
//! let budgets = BudgetLayer::new()
//!     .store(server.budgets().when_away(WhenAway::Admit))
//!     .budget(Budget::new("calls", Unit::Calls, 1_000));
//!
//! // The server is unavailable, which is reported by the first call that needs it.
//! let refused = server.runs().put(b"half done".to_vec(), b"search of alice", None).await;
//! assert!(matches!(refused, Err(PutError::Unavailable(_))));
//! assert!(!format!("{server:?} {refused:?}").contains("password"));
//! # let _ = budgets;
//! # Ok(())
//! # }
//! ```

mod budgets;
#[cfg(feature = "cache")]
mod cached_results;
mod caller_share;
mod connection;
mod error;
mod keys;
mod store;
mod tasks;

use std::{fmt, sync::Arc, time::Duration};

use ::redis::{Client, IntoConnectionInfo, io::tcp::TcpSettings};

#[cfg(feature = "cache")]
pub use self::cached_results::RedisCache;
use self::connection::Connection;
pub use self::{
    budgets::{RedisBudgets, WhenAway},
    error::RedisError,
    store::RedisStore,
    tasks::RedisTasks,
};
use crate::store::{MAX_RESULT_BYTES, MAX_STATE_BYTES, RESULT_TTL, STATE_TTL, WhenFull};

/// The default of [`RedisServer::prefix`].
const PREFIX: &str = "mcp-composite";
/// The default of [`RedisServer::timeout`].
const TIMEOUT: Duration = Duration::from_secs(1);
/// The default limit for the states of one caller's suspended runs, in bytes.
const MAX_CALLER_BYTES: usize = 16 * 1024 * 1024;

/// The address and settings of a Redis or Valkey server. Its methods create stores in the server,
/// such as a store for budgets. See the [module docs](self) for an example.
#[derive(Clone)]
pub struct RedisServer {
    client: Client,
    prefix: Arc<str>,
    timeout: Duration,
}

// === impl RedisServer ===

impl RedisServer {
    /// Creates the settings for the Redis server at `url`, such as
    /// `redis://user:password@host:6379/0` or `unix:///run/redis.sock`. Does not connect to the
    /// server yet.
    ///
    /// A URL with the scheme `rediss` uses TLS. TLS requires the feature `tokio-rustls-comp` of the
    /// `redis` crate: add the crate with this feature to your dependencies.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid, or if it requires TLS and TLS is not enabled. The
    /// error does not contain the URL, which may contain a password.
    pub fn new(url: &str) -> Result<Self, RedisError> {
        let info = url.into_connection_info().map_err(|error| mistake(url, &error))?;
        // Sends each command without delay, because commands are small, and tool calls wait for
        // them.
        let settings = TcpSettings::default().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(settings));
        Ok(Self::from_client(client.map_err(|error| mistake(url, &error))?))
    }

    /// Creates the settings from a client of the `redis` crate, for options that a URL cannot
    /// express. Does not connect to the server yet.
    #[must_use]
    pub fn from_client(client: Client) -> Self {
        Self { client, prefix: PREFIX.into(), timeout: TIMEOUT }
    }

    /// Sets the prefix of all keys in Redis, without a colon at its end. Defaults to
    /// `mcp-composite`. Processes with the same Redis server and the same prefix share their
    /// stores.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Appends a colon and `name` to the prefix of the Redis keys.
    #[cfg(feature = "config")]
    pub(crate) fn within(mut self, name: &str) -> Self {
        self.prefix = format!("{}:{name}", self.prefix).into();
        self
    }

    /// Sets the timeout of each request to the Redis server, including the time to connect.
    /// Defaults to 1 second.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Creates a store for budgets in the server.
    #[must_use]
    pub fn budgets(&self) -> RedisBudgets {
        RedisBudgets::new(self.connection(), Arc::clone(&self.prefix))
    }

    /// Creates a store for the states of runs that wait for user input.
    #[must_use]
    pub fn runs(&self) -> RedisStore {
        self.store("state", STATE_TTL, MAX_STATE_BYTES, WhenFull::Refuse)
            .max_caller_bytes(MAX_CALLER_BYTES)
    }

    /// Creates a store for [tasks](crate::tasks).
    #[must_use]
    pub fn tasks(&self) -> RedisTasks {
        RedisTasks::new(self.connection(), &self.prefix)
    }

    /// Creates a store for the full versions of the results that a
    /// [`TruncateLayer`](crate::truncate::TruncateLayer) has truncated.
    #[must_use]
    pub fn results(&self) -> RedisStore {
        self.store("result", RESULT_TTL, MAX_RESULT_BYTES, WhenFull::DropOldest)
    }

    /// Creates a cache of tool results, for [`CacheRule::store`](crate::cache::CacheRule::store).
    #[cfg(feature = "cache")]
    #[must_use]
    pub fn cache(&self) -> RedisCache {
        let (connection, prefix) = (self.connection(), Arc::clone(&self.prefix));
        RedisCache { connection, prefix, away: Arc::default() }
    }

    fn store(
        &self,
        kind: &str,
        ttl: Duration,
        max_item_bytes: usize,
        when_full: WhenFull,
    ) -> RedisStore {
        RedisStore {
            connection: self.connection(),
            prefix: format!("{}:{kind}", self.prefix).into(),
            ttl,
            max_item_bytes,
            max_caller_bytes: None,
            when_full,
        }
    }

    /// Creates a connection for one store. Stores do not share connections, so that a small request
    /// of one store does not wait for a large request of another one.
    fn connection(&self) -> Connection {
        Connection::new(self.client.clone(), self.timeout)
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the client, which may contain a password.
        f.debug_struct("RedisServer")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Converts an error of the `redis` crate for the URL `url`. The result does not contain the URL,
/// which may contain a password.
fn mistake(url: &str, error: &::redis::RedisError) -> RedisError {
    match url.split_once("://") {
        Some((scheme @ ("rediss" | "valkeys"), _)) if error.to_string().contains("TLS") => {
            RedisError::NoTls { scheme: scheme.to_owned() }
        }
        _ => RedisError::Url,
    }
}
