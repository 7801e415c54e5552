//! A connection to a Redis server.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use ::redis::{
    Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ScriptInvocation,
    ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use futures::{FutureExt, future::BoxFuture};
use tokio::time::timeout;

use crate::mutex::lock;

/// A connection to a Redis server. It is established on first use, and again after it was lost.
///
/// While the server is unavailable, requests fail immediately or after a timeout. The next request
/// tries to reconnect.
#[derive(Clone)]
pub(super) struct Connection {
    client: Client,
    timeout: Duration,
    current: Arc<Mutex<Option<Arc<ConnectionManager>>>>,
}

/// The reason why a request to Redis failed: a timeout, or an error of the `redis` crate.
#[derive(Debug, thiserror::Error)]
pub(super) enum Away {
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error(transparent)]
    Failed(#[from] RedisError),
}

// === impl Away ===

impl Away {
    /// Returns `true` for a permanent error of the server, which the same request would cause
    /// again.
    pub(super) fn is_final(&self) -> bool {
        // The codes of temporary errors: the server is out of memory or busy, or other servers of
        // the cluster are not ready.
        const LATER: [&str; 6] =
            ["OOM", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MISCONF", "NOREPLICAS"];

        match self {
            Self::Late(_) => false,
            Self::Failed(error) => {
                is_answer(error) && error.code().is_none_or(|code| !LATER.contains(&code))
            }
        }
    }
}

// === impl Connection ===

impl Connection {
    pub(super) fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout, current: Arc::default() }
    }

    /// Sends a command. See [`ask`](Self::ask).
    pub(super) async fn query<T>(&self, command: &Cmd) -> Result<T, Away>
    where
        T: FromRedisValue + Send,
    {
        self.ask(|mut server| async move { command.query_async(&mut server).await }.boxed()).await
    }

    /// Invokes a script. See [`ask`](Self::ask).
    pub(super) async fn invoke<T>(&self, script: &ScriptInvocation<'_>) -> Result<T, Away>
    where
        T: FromRedisValue + Send,
    {
        self.ask(|mut server| async move { script.invoke_async(&mut server).await }.boxed()).await
    }

    /// Sends the request that `ask` builds. If the connection turns out to be lost, reconnects and
    /// sends the request once more. The request must therefore be idempotent.
    pub(super) async fn ask<'a, T, F>(&self, ask: F) -> Result<T, Away>
    where
        F: Fn(ConnectionManager) -> BoxFuture<'a, RedisResult<T>>,
    {
        let mut used = None;
        let asking = async {
            let current = used.insert(self.current()?).clone();
            match ask((*current).clone()).await {
                // The connection was lost earlier, but this is only detected by this request.
                Err(error) if !is_answer(&error) => {
                    self.forget(&current);
                    let next = used.insert(self.current()?).clone();
                    ask((*next).clone()).await
                }
                answered => answered,
            }
        };
        let answered = match timeout(self.timeout, asking).await {
            Ok(answered) => answered.map_err(Away::Failed),
            Err(_) => Err(Away::Late(self.timeout)),
        };
        if let (Err(away), Some(used)) = (&answered, &used)
            && !matches!(away, Away::Failed(error) if is_answer(error))
        {
            self.forget(used);
        }
        answered
    }

    fn current(&self) -> RedisResult<Arc<ConnectionManager>> {
        let mut current = lock(&self.current);
        if let Some(current) = &*current {
            return Ok(Arc::clone(current));
        }
        // The client does not retry, because `ask` implements retries and timeouts.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(None);
        let new = ConnectionManager::new_lazy_with_config(self.client.clone(), config)?;
        Ok(Arc::clone(current.insert(Arc::new(new))))
    }

    /// Drops the connection `used`, so that the next request reconnects. Does nothing if another
    /// request has already replaced it.
    fn forget(&self, used: &Arc<ConnectionManager>) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, used)) {
            *current = None;
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the client, which may contain a password.
        f.debug_struct("Connection").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Returns `true` for an error that would be the same on a new connection. Returns `false` if the
/// connection failed, or if another server may have taken over.
fn is_answer(error: &RedisError) -> bool {
    match error.kind() {
        // A new connection may succeed, because another server may have taken over.
        ErrorKind::Server(
            ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading,
        ) => false,
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::UnexpectedReturnType => true,
        _ => false,
    }
}
