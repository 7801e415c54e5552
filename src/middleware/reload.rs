//! Replaces services at run time, while they process requests.
//!
//! A [`Reload`] wraps a service that can be replaced with another service of the same type, such as
//! a stack that was built from a changed configuration file. Requests that the old service has
//! already received complete there. The `Reload` then drops the old service.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{message::{Reply, Request}, reload::Reload};
//! use rmcp::model::{CallToolResult, ContentBlock};
//! use tower::{ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let server = |name: &'static str| service_fn(move |_: Request| async move {
//!     Ok::<Reply, Infallible>(CallToolResult::success(vec![ContentBlock::text(name)]).into())
//! });
//! let (service, reloader) = Reload::new(server("old"));
//! let served = service.clone();
//!
//! reloader.replace(server("new"));
//! let reply = served.oneshot(Request::call_tool("who")).await?;
//! assert_eq!(reply.tool_result().unwrap().content[0].as_text().unwrap().text, "new");
//! # Ok(())
//! # }
//! ```

use std::{
    fmt,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::watch;
use tower_service::Service;

use crate::{
    message::{Reply, Request},
    mutex::lock,
};

/// A service whose inner service can be replaced at run time, while it processes requests.
///
/// After a replacement, all clones of a `Reload` use the new service. Clones that are idle do not
/// keep the old service alive. A `Reload` is ready when the inner service is ready. If the inner
/// service is replaced while a caller waits for readiness, the caller waits for the new service
/// instead. See the [module docs](self) for an example.
pub struct Reload<S> {
    /// The inner service of this clone. `Some` only between `poll_ready` and `call`, so that an
    /// idle clone does not keep a replaced service alive.
    current: Option<S>,
    latest: watch::Receiver<Latest<S>>,
    /// A handle for the inner service. It keeps the sender of `latest` alive after all other
    /// handles are dropped.
    reloader: Reloader<S>,
    /// A future that completes when the inner service is replaced. It wakes a task that waits until
    /// the old service is ready.
    replaced: Option<BoxFuture<'static, ()>>,
}

/// A handle that replaces the inner service of a [`Reload`] and of all its clones. Clones of the
/// handle refer to the same inner service. After all handles are dropped, the `Reload` continues to
/// forward requests to its last inner service.
pub struct Reloader<S>(Arc<watch::Sender<Latest<S>>>);

/// The latest service. It is wrapped in a `Mutex` because it may not be `Sync`. The mutex is locked
/// only while the service is cloned.
type Latest<S> = Arc<Mutex<S>>;

// === impl Reload ===

impl<S> Reload<S> {
    /// Creates a `Reload` that forwards requests to `service`. Also returns a [`Reloader`], which
    /// can replace the service with another.
    #[must_use]
    pub fn new(service: S) -> (Self, Reloader<S>) {
        let reloader = Reloader(Arc::new(watch::Sender::new(Arc::new(Mutex::new(service)))));
        (reloader.service(), reloader)
    }
}

impl<S> Service<Request> for Reload<S>
where
    S: Service<Request, Response = Reply> + Clone + Send + 'static,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        loop {
            if self.latest.has_changed().unwrap_or_default() {
                self.current = None;
                self.replaced = None;
            }
            let latest = &mut self.latest;
            let current = self.current.get_or_insert_with(|| {
                let latest = latest.borrow_and_update().clone();
                lock(&latest).clone()
            });
            let ready = current.poll_ready(cx);
            if ready.is_ready() {
                self.replaced = None;
                return ready;
            }
            let replaced = self.replaced.get_or_insert_with(|| {
                let mut latest = latest.clone();
                // Fails only if all reloaders are dropped, but `self` contains a reloader.
                async move { latest.changed().await.unwrap_or_default() }.boxed()
            });
            if replaced.poll_unpin(cx).is_pending() {
                return Poll::Pending;
            }
            self.replaced = None;
        }
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The service is taken, so that an idle clone does not keep a replaced service alive.
        self.current.take().expect("called before it was ready").call(request)
    }
}

impl<S> Clone for Reload<S> {
    fn clone(&self) -> Self {
        Self {
            current: None,
            latest: self.latest.clone(),
            reloader: self.reloader.clone(),
            replaced: None,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Reload<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").field("current", &self.current).finish_non_exhaustive()
    }
}

// === impl Reloader ===

impl<S> Reloader<S> {
    /// Returns a new [`Reload`], whose inner service this handle can replace.
    #[must_use]
    pub fn service(&self) -> Reload<S> {
        let latest = self.0.subscribe();
        Reload { current: None, latest, reloader: self.clone(), replaced: None }
    }

    /// Replaces the inner service. Callers that become ready after this call use the new service.
    ///
    /// Layers in front of the [`Reload`] may have cached the tools of the earlier service in
    /// [catalogs](crate::catalog). After calling `replace`, bump the
    /// [`Epoch`](crate::changes::Epoch)s of these layers, so that they discard the tools.
    pub fn replace(&self, service: S) {
        self.0.send_replace(Arc::new(Mutex::new(service)));
    }

    /// Replaces the inner services of several handles at once. As soon as a caller becomes ready
    /// with one of the new services, no other caller becomes ready with an old one.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn replace_all(replacements: Vec<(Self, S)>) {
        /// Replaces the first service. While the lock of its handle is still held, replaces the
        /// other services. All locks are therefore held until the last service is replaced.
        fn replace<S>(
            mut replacements: std::vec::IntoIter<(Reloader<S>, S)>,
            replaced: &mut Vec<Latest<S>>,
        ) {
            if let Some((Reloader(sender), service)) = replacements.next() {
                sender.send_modify(|latest| {
                    let service = Arc::new(Mutex::new(service));
                    replaced.push(std::mem::replace(latest, service));
                    replace(replacements, replaced);
                });
            }
        }

        // The old services are dropped after all locks are released.
        let mut replaced = Vec::with_capacity(replacements.len());
        replace(replacements.into_iter(), &mut replaced);
    }

    /// Returns `true` if there are other handles for the same service, or [`Reload`]s that use it.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl<S> Clone for Reloader<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> fmt::Debug for Reloader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}
