//! Who says that something has changed, and who wants to know.
//!
//! A server's tools, prompts and resources come and go. Whoever notices, such
//! as a [`RemoteService`](crate::adapter::RemoteService) that was told by its
//! server, tells its [`Changes`]; whoever depends on it holds a clone of them:
//! layers forget what they knew, and clients are told.
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
#[derive(Clone, Default)]
pub struct Changes {
    kinds: Arc<Kinds>,
    /// Under which URIs a resource is updated that somebody tells of.
    told_as: Option<Arc<Renamed>>,
    /// Under which URIs whoever watches hears of it.
    heard_as: Option<Arc<Renamed>>,
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
        &self.kinds.tools
    }

    /// Which prompts there are.
    #[must_use]
    pub fn prompts(&self) -> &Epoch {
        &self.kinds.prompts
    }

    /// Which resources and resource templates there are.
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
        match &self.told_as {
            None => self.kinds.updates.send(&uri),
            Some(told_as) => told_as(&uri).iter().for_each(|uri| self.kinds.updates.send(uri)),
        }
    }

    /// Returns a receiver for the URIs of all resources that are updated from now on.
    #[must_use]
    pub fn watch_resources(&self) -> Updates {
        self.kinds.updates.listen(self.heard_as.clone(), None)
    }

    /// Returns a receiver for the updates of the resources that `wanted` returns at the
    /// time of the update.
    pub(crate) fn watch_wanted(&self, wanted: Arc<Wanted>) -> Updates {
        self.kinds.updates.listen(self.heard_as.clone(), Some(wanted))
    }

    /// The same changes for those who know resources by other URIs.
    pub(crate) fn heard_as(&self, renamed: Arc<Renamed>) -> Self {
        // Who is further away knows them by names of names.
        Self { heard_as: Some(after(self.heard_as.clone(), renamed)), ..self.clone() }
    }

    /// The same changes to be told by those who know resources by other URIs.
    pub(crate) fn told_as(&self, renamed: Arc<Renamed>) -> Self {
        let renamed = match self.told_as.clone() {
            Some(told_as) => after(Some(renamed), told_as),
            None => renamed,
        };
        Self { told_as: Some(renamed), ..self.clone() }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("kinds", &self.kinds)
            .field("told_as", &self.told_as.is_some())
            .field("heard_as", &self.heard_as.is_some())
            .finish()
    }
}

/// Renames what was renamed before.
fn after(before: Option<Arc<Renamed>>, renamed: Arc<Renamed>) -> Arc<Renamed> {
    match before {
        None => renamed,
        Some(before) => Arc::new(move |uri| before(uri).iter().flat_map(&*renamed).collect()),
    }
}
