//! Change notifications for tools, prompts and resources.
//!
//! A component that detects a change of tools, prompts or resources reports it through [`Changes`].
//! For example, a [`RemoteService`](crate::adapter::RemoteService) reports a change when its server
//! sends a change notification. Layers and servers have clones of the `Changes`: layers then
//! invalidate their cached tools, and servers notify their clients.
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

/// A counter of changes, for example of a server's tools. A layer that caches the tools remembers
/// the value of the counter, and discards the tools when the value has changed. To *bump* an epoch
/// is to increment its counter.
///
/// All clones of an `Epoch` share the counter. Pass a clone to each layer that caches tools, and
/// call [`bump`](Self::bump) on another clone when the tools have changed.
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

/// A receiver that waits until an [`Epoch`] is bumped. Created by [`Epoch::watch`].
#[derive(Clone, Debug)]
pub struct Bumps(watch::Receiver<u64>);

/// A channel that reports changes of tools, prompts and resources from servers to layers and
/// clients. All clones share the channel.
#[derive(Clone, Default)]
pub struct Changes {
    kinds: Arc<Kinds>,
    /// Translates the URIs of updated resources that are reported to this clone, before they are
    /// sent to receivers. `None` if the URIs are sent unchanged.
    renamed_for_reporters: Option<Arc<Renamed>>,
    /// Translates the URIs of updated resources for the receivers that this clone creates. `None`
    /// if they receive the URIs unchanged.
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
    /// Increments the counter. Layers then discard the data that they cached before.
    pub fn bump(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// Returns a receiver that waits until the epoch is bumped. Bumps before this call are ignored.
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
    /// Waits until the epoch is bumped. Returns immediately if the epoch was bumped since the
    /// previous call of `bumped` or, before the first call, since the receiver was created. Several
    /// bumps in this time count as one.
    ///
    /// If all clones of the [`Epoch`] have been dropped, `bumped` still reports a bump that it has
    /// not reported yet. Otherwise, it waits forever.
    pub async fn bumped(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

// === impl Changes ===

impl Changes {
    /// Returns the epoch of the tools, a counter of their changes. Bump it after tools were added,
    /// removed or changed.
    #[must_use]
    pub fn tools(&self) -> &Epoch {
        &self.kinds.tools
    }

    /// Returns the epoch of the prompts, a counter of their changes. Bump it after prompts were
    /// added, removed or changed.
    #[must_use]
    pub fn prompts(&self) -> &Epoch {
        &self.kinds.prompts
    }

    /// Returns the epoch of the resources, a counter of their changes. Bump it after the list of
    /// resources or the list of resource templates has changed.
    #[must_use]
    pub fn resources(&self) -> &Epoch {
        &self.kinds.resources
    }

    /// Reports to all receivers that the content of a resource has changed.
    ///
    /// A receiver ([`Updates`]) that has not yet delivered an earlier report of the same URI
    /// delivers both reports as one.
    pub fn resource_updated(&self, uri: impl Into<Arc<str>>) {
        let uri = uri.into();
        match &self.renamed_for_reporters {
            None => self.kinds.updates.send(&uri),
            Some(renamed_for_reporters) => {
                renamed_for_reporters(&uri).iter().for_each(|uri| self.kinds.updates.send(uri))
            }
        }
    }

    /// Returns a receiver for updates of all resources. It receives updates that are reported after
    /// this call.
    #[must_use]
    pub fn watch_resources(&self) -> Updates {
        self.kinds.updates.listen(self.renamed_for_listeners.clone(), None)
    }

    /// Returns a receiver for updates of selected resources, for example those to which a client
    /// has subscribed. A resource is selected if the function `wanted` returns a value for its URI.
    pub(crate) fn watch_wanted(&self, wanted: Arc<Wanted>) -> Updates {
        self.kinds.updates.listen(self.renamed_for_listeners.clone(), Some(wanted))
    }

    /// Returns a clone for listeners that know the resources under different URIs. The function
    /// `renamed` translates a URI that is published on the channel to the URIs of the listeners.
    pub(crate) fn for_listeners(&self, renamed: Arc<Renamed>) -> Self {
        // Renamings are composed, so that an outer listener renames the URIs that an inner listener
        // receives.
        Self {
            renamed_for_listeners: Some(after(self.renamed_for_listeners.clone(), renamed)),
            ..self.clone()
        }
    }

    /// Returns a clone for components that report changes under different URIs. The function
    /// `renamed` translates a reported URI to the URIs that are published on the channel.
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

/// Combines two translations of URIs. The result applies `before` first, and then `renamed`.
fn after(before: Option<Arc<Renamed>>, renamed: Arc<Renamed>) -> Arc<Renamed> {
    match before {
        None => renamed,
        Some(before) => Arc::new(move |uri| before(uri).iter().flat_map(&*renamed).collect()),
    }
}
