//! Who says that something has changed, and who wants to know.
//!
//! A server's tools, prompts and resources come and go. Whoever notices, such
//! as a [`RemoteService`](crate::adapter::RemoteService) that was told by its
//! server, tells its [`Changes`]; whoever depends on it holds a clone of them:
//! layers forget what they knew, and clients are told.

use std::sync::{Arc, OnceLock};

use tokio::sync::{broadcast, watch};

/// How many updates of resources wait for somebody who is slow to take them.
const UPDATES_KEPT: usize = 256;

/// A count of changes, by which whoever knows of a change makes what others
/// know outdated.
///
/// Clones count together: give one to each layer and [`bump`](Self::bump)
/// another when the tools have changed.
///
/// # Examples
///
/// ```
/// use mcp_composite::{changes::Epoch, composite::CompositeLayer};
///
/// let epoch = Epoch::default();
/// let layer = CompositeLayer::new([])?.epoch(epoch.clone());
/// // … later, when tools were added or removed:
/// epoch.bump();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Epoch(Arc<watch::Sender<u64>>);

/// Waits for an [`Epoch`] to be bumped.
#[derive(Clone, Debug)]
pub struct Bumps(watch::Receiver<u64>);

/// What may change about servers; clones speak of the same servers.
#[derive(Clone, Debug, Default)]
pub struct Changes(Arc<Kinds>);

#[derive(Debug, Default)]
struct Kinds {
    tools: Epoch,
    prompts: Epoch,
    resources: Epoch,
    updates: OnceLock<broadcast::Sender<Arc<str>>>,
}

// === impl Epoch ===

impl Epoch {
    /// Makes what is known outdated.
    pub fn bump(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Watches for changes from now on.
    #[must_use]
    pub fn watch(&self) -> Bumps {
        Bumps(self.0.subscribe())
    }

    pub(crate) fn now(&self) -> u64 {
        *self.0.borrow()
    }
}

// === impl Bumps ===

impl Bumps {
    /// Waits until the epoch was bumped since the last time; several bumps count
    /// as one.
    ///
    /// Never returns if there is nobody left who could do it.
    pub async fn bumped(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

// === impl Changes ===

impl Changes {
    /// Which tools there are, and what they look like.
    #[must_use]
    pub fn tools(&self) -> &Epoch {
        &self.0.tools
    }

    /// Which prompts there are.
    #[must_use]
    pub fn prompts(&self) -> &Epoch {
        &self.0.prompts
    }

    /// Which resources and resource templates there are.
    #[must_use]
    pub fn resources(&self) -> &Epoch {
        &self.0.resources
    }

    /// Tells that the content of a resource has changed.
    pub fn resource_updated(&self, uri: impl Into<Arc<str>>) {
        // Nobody may be listening.
        let _ = self.updates().send(uri.into());
    }

    /// The resources whose content changes, by URI, from now on.
    ///
    /// Who does not keep up misses the oldest.
    #[must_use]
    pub fn watch_resources(&self) -> broadcast::Receiver<Arc<str>> {
        self.updates().subscribe()
    }

    fn updates(&self) -> &broadcast::Sender<Arc<str>> {
        self.0.updates.get_or_init(|| broadcast::Sender::new(UPDATES_KEPT))
    }
}
