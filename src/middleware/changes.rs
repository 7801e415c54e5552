//! Change notifications for tools, prompts and resources.
//!
//! A server's tools, prompts and resources change over time. The component that detects a
//! change, such as a [`RemoteService`](crate::adapter::RemoteService) notified by its server,
//! reports it to its [`Changes`]. Dependents hold clones of them: layers invalidate their
//! catalogs, and clients are notified.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::changes::Changes;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let changes = Changes::default();
//! let mut tools = changes.tools().watch();
//! let mut resources = changes.watch_resources();
//!
//! changes.tools().bump();
//! changes.resource_updated("docs:///readme.md");
//!
//! tools.bumped().await;
//! assert_eq!(&*resources.recv().await.unwrap(), "docs:///readme.md");
//! # }
//! ```

pub(crate) mod pace;

mod updates;

use std::{fmt, sync::Arc};

use tokio::sync::watch;

use self::updates::Hub;
pub use self::updates::Updates;
pub(crate) use self::updates::{Renamed, Wanted};

/// A counter of changes, which invalidates cached state when it is bumped.
///
/// Clones share the counter: pass one to each layer, and [`bump`](Self::bump) another when
/// the tools have changed.
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

/// The changes of a set of servers. Clones share their state.
#[derive(Clone, Default)]
pub struct Changes {
    kinds: Arc<Kinds>,
    /// Maps the URI of a reported update to the URIs to publish.
    renamed_for_reporters: Option<Arc<Renamed>>,
    /// Maps a published URI to the URIs that listeners receive.
    renamed_for_listeners: Option<Arc<Renamed>>,
}

#[derive(Debug, Default)]
struct Kinds {
    tools: Epoch,
    prompts: Epoch,
    resources: Epoch,
    updates: Arc<Hub>,
}

// === impl Epoch ===

impl Epoch {
    /// Increments the counter, which invalidates dependent state.
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
    /// Waits until the epoch was bumped since the last call; several bumps count as one.
    ///
    /// Never returns once all handles of the epoch are dropped.
    pub async fn bumped(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

// === impl Changes ===

impl Changes {
    /// Returns the epoch of the tools: their names and definitions.
    #[must_use]
    pub fn tools(&self) -> &Epoch {
        &self.kinds.tools
    }

    /// Returns the epoch of the prompts.
    #[must_use]
    pub fn prompts(&self) -> &Epoch {
        &self.kinds.prompts
    }

    /// Returns the epoch of the resources and resource templates.
    #[must_use]
    pub fn resources(&self) -> &Epoch {
        &self.kinds.resources
    }

    /// Reports that the content of a resource has changed.
    ///
    /// Each [`Updates`] that has not returned the URI yet keeps it once, however often it
    /// is reported.
    pub fn resource_updated(&self, uri: impl Into<Arc<str>>) {
        let uri = uri.into();
        match &self.renamed_for_reporters {
            None => self.kinds.updates.send(&uri),
            Some(renamed_for_reporters) => {
                renamed_for_reporters(&uri).iter().for_each(|uri| self.kinds.updates.send(uri))
            }
        }
    }

    /// Returns a receiver for the URIs of all resources that are updated from now on.
    #[must_use]
    pub fn watch_resources(&self) -> Updates {
        self.kinds.updates.listen(self.renamed_for_listeners.clone(), None)
    }

    /// Returns a receiver for the updates of the resources that `wanted` returns at the
    /// time of the update.
    pub(crate) fn watch_wanted(&self, wanted: Arc<Wanted>) -> Updates {
        self.kinds.updates.listen(self.renamed_for_listeners.clone(), Some(wanted))
    }

    /// Returns the same changes for listeners that know resources by other URIs.
    pub(crate) fn for_listeners(&self, renamed: Arc<Renamed>) -> Self {
        // Renaming composes: outer listeners rename the URIs of inner ones.
        Self {
            renamed_for_listeners: Some(after(self.renamed_for_listeners.clone(), renamed)),
            ..self.clone()
        }
    }

    /// Returns the same changes for reporters that know resources by other URIs.
    pub(crate) fn for_reporters(&self, renamed: Arc<Renamed>) -> Self {
        let renamed = match self.renamed_for_reporters.clone() {
            Some(renamed_for_reporters) => after(Some(renamed), renamed_for_reporters),
            None => renamed,
        };
        Self { renamed_for_reporters: Some(renamed), ..self.clone() }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("kinds", &self.kinds)
            .field("renamed_for_reporters", &self.renamed_for_reporters.is_some())
            .field("renamed_for_listeners", &self.renamed_for_listeners.is_some())
            .finish()
    }
}

/// Composes two renamings: `before`, then `renamed`.
fn after(before: Option<Arc<Renamed>>, renamed: Arc<Renamed>) -> Arc<Renamed> {
    match before {
        None => renamed,
        Some(before) => Arc::new(move |uri| before(uri).iter().flat_map(&*renamed).collect()),
    }
}
