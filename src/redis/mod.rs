//! What replicas share, in Redis or Valkey.
//!
//! A [`RedisStore`] says which server it is, and makes the stores of it:
//!
//! | | is a | shared are |
//! |---|---|---|
//! | [`budgets`](RedisStore::budgets) | [`BudgetStore`](crate::budget::BudgetStore) | what calls may use together |
//! | [`state`](RedisStore::state) | [`StateStore`](crate::state::StateStore) | runs that wait for a person |
//! | [`results`](RedisStore::results) | [`ResultStore`](crate::results::ResultStore) | results of which clients got a part |
//!
//! Each store has one connection, made when it is first needed, and again after it was
//! lost. So a server that is away is no mistake of the file or the code: it is told by
//! each call that needs it, at once if nobody answers there and after the
//! [timeout](RedisStore::timeout) if it is silent, and the next call tries again.
//!
//! # The server
//!
//! Redis since version 6, or Valkey: one server, or what stands for one, such as a
//! proxy before a cluster; the keys of a script carry the same hash tag. A user of it
//! needs the commands of strings, hashes and sorted sets, `EVALSHA`, `SCRIPT LOAD` and
//! `TIME`, on the keys that begin with the [prefix](RedisStore::prefix).
//!
//! Set `maxmemory`, and `maxmemory-policy noeviction`: a server that is full then refuses
//! to keep more, while with another policy it forgets what was used and who waits. The
//! names of callers are kept as their SHA-256 and so are handles; states and results
//! are kept as they are, and can be read by whoever can read the server.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::{
//!     budget::{Budget, BudgetLayer, Unit},
//!     redis::{RedisStore, WhenAway},
//!     state::{PutError, StateStore},
//! };
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::new("redis://:password@127.0.0.1:1/0")?.prefix("shop");
//! let budgets = BudgetLayer::new()
//!     .store(store.budgets().when_away(WhenAway::Admit))
//!     .budget(Budget::new("calls", Unit::Calls, 1_000));
//!
//! // Nobody is there, which is told when something is needed.
//! let refused = store.state().put(b"half done".to_vec(), b"search of alice").await;
//! assert!(matches!(refused, Err(PutError::Unavailable(_))));
//! assert!(!format!("{store:?} {refused:?}").contains("password"));
//! # let _ = budgets;
//! # Ok(())
//! # }
//! ```

mod budgets;
mod caller_share;
mod connection;
mod error;
mod expiring_store;
mod keys;
mod results;
mod state;

use std::{fmt, sync::Arc, time::Duration};

use ::redis::{Client, IntoConnectionInfo, io::tcp::TcpSettings};

pub use self::{
    budgets::{RedisBudgets, WhenAway},
    error::RedisError,
    results::RedisResults,
    state::RedisState,
};
use self::{caller_share::WhenFull, connection::Connection, expiring_store::RedisExpiringStore};

/// How keys begin, unless it is said otherwise.
const PREFIX: &str = "mcp-composite";
/// How long an answer may take, unless it is said otherwise.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long a run waits for a person, unless it is said otherwise.
const STATE_TTL: Duration = Duration::from_secs(60 * 60);
/// How long a result is kept, unless it is said otherwise.
const RESULT_TTL: Duration = Duration::from_secs(10 * 60);
/// How large a state may be, unless it is said otherwise.
const MAX_STATE_BYTES: usize = 4 * 1024 * 1024;
/// How large a result may be, unless it is said otherwise.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;
/// Default maximum size of the states of one caller.
const MAX_CALLER_BYTES: usize = 16 * 1024 * 1024;

/// A Redis or Valkey server, and how it is used.
///
/// See the [module docs](self) for an example.
#[derive(Clone)]
pub struct RedisStore {
    client: Client,
    prefix: Arc<str>,
    timeout: Duration,
}

// === impl RedisStore ===

impl RedisStore {
    /// The server of a URL, such as `redis://user:password@host:6379/0`, or
    /// `unix:///run/redis.sock`. It is not asked yet.
    ///
    /// A URL that begins with `rediss` is spoken to over TLS, if the crate `redis` is built
    /// with its feature `tokio-rustls-comp`: add it to your own dependencies.
    ///
    /// # Errors
    ///
    /// Returns an error if it is no URL of a server, or one that needs TLS where there is
    /// none. The error does not say the URL, in which there can be a password.
    pub fn new(url: &str) -> Result<Self, RedisError> {
        let info = url.into_connection_info().map_err(|error| mistake(url, &error))?;
        // Commands are small, and somebody waits for each.
        let settings = TcpSettings::default().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(settings));
        Ok(Self::from_client(client.map_err(|error| mistake(url, &error))?))
    }

    /// The server of a client, for whom a URL cannot say enough. It is not asked yet.
    #[must_use]
    pub fn from_client(client: Client) -> Self {
        Self { client, prefix: PREFIX.into(), timeout: TIMEOUT }
    }

    /// Sets how all keys begin, before a colon; `mcp-composite` by default.
    ///
    /// Whoever uses the same server with the same prefix shares everything.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Arc<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long an answer may take, connecting included; a second by default.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Budgets that are kept there.
    #[must_use]
    pub fn budgets(&self) -> RedisBudgets {
        RedisBudgets::new(self.connection(), Arc::clone(&self.prefix))
    }

    /// Runs that wait for a person there.
    #[must_use]
    pub fn state(&self) -> RedisState {
        let kept = self.kept("state", STATE_TTL, MAX_STATE_BYTES, WhenFull::Refuse);
        RedisState(RedisExpiringStore { max_caller_bytes: Some(MAX_CALLER_BYTES), ..kept })
    }

    /// Whole results that are kept there.
    #[must_use]
    pub fn results(&self) -> RedisResults {
        RedisResults(self.kept("result", RESULT_TTL, MAX_RESULT_BYTES, WhenFull::DropOldest))
    }

    fn kept(
        &self,
        kind: &str,
        ttl: Duration,
        max_bytes: usize,
        when_full: WhenFull,
    ) -> RedisExpiringStore {
        RedisExpiringStore {
            connection: self.connection(),
            prefix: format!("{}:{kind}", self.prefix).into(),
            ttl,
            max_bytes,
            max_caller_bytes: None,
            when_full,
        }
    }

    /// One of its own, so that nothing small waits behind something large.
    fn connection(&self) -> Connection {
        Connection::new(self.client.clone(), self.timeout)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // There can be a password in the client.
        f.debug_struct("RedisStore")
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a URL.
fn mistake(url: &str, error: &::redis::RedisError) -> RedisError {
    match url.split_once("://") {
        Some((scheme @ ("rediss" | "valkeys"), _)) if error.to_string().contains("TLS") => {
            RedisError::NoTls { scheme: scheme.to_owned() }
        }
        _ => RedisError::Url,
    }
}
