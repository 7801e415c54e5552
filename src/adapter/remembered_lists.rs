//! Remembers the tools, prompts and resources that backends list, for use while a backend is
//! unavailable.
//!
//! When the configuration file is reloaded, a new router with empty lists is created. If a backend
//! is unavailable at that moment, its tools, and the composites that call them, would disappear
//! until the backend is available again. To prevent this, the lists of each backend are stored
//! outside the router. The new router receives the stored lists.

use std::{
    collections::HashMap,
    mem,
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::model::{
    PromptsCapability, ResourcesCapability, ServerCapabilities, ServerConfig, ToolsCapability,
};

use crate::{
    intercept::Intercept,
    message::{ItemKind, Reply, Request, Subject},
    mutex::lock,
};

/// The last complete lists of tools, prompts and resources of one backend. Clones share the lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<HashMap<ItemKind, Lists>>>);

/// The pages of one backend's list of tools, prompts, resources or resource templates.
#[derive(Clone, Debug, Default)]
struct Lists {
    /// All pages of the last complete list.
    whole: Vec<Reply>,
    /// The first pages of a newer list whose last page has not been received yet.
    begun: Vec<Reply>,
}

/// A switch that makes [`Remember`] answer list requests from the remembered lists instead of the
/// backend. Clones share the switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recall(Arc<AtomicBool>);

/// An interceptor that remembers the lists that a backend returns. While the [`Recall`] switch is
/// on, it answers list requests with the remembered lists and does not ask the backend.
#[derive(Clone, Debug)]
pub(crate) struct Remember {
    pub(crate) memory: Memory,
    pub(crate) recall: Recall,
}

// === impl Memory ===

impl Memory {
    /// Returns an independent copy of the remembered lists. Unlike a clone, the copy does not
    /// change when the original changes.
    pub(crate) fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(lock(&self.0).clone())))
    }

    /// Returns a server description for the remembered lists. It declares a capability, such as
    /// tools, only if a complete list of these items is remembered.
    pub(crate) fn describe(&self) -> ServerConfig {
        let lists = lock(&self.0);
        let has = |kind| lists.get(&kind).is_some_and(|lists| !lists.whole.is_empty());
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = has(ItemKind::Tool).then(ToolsCapability::default);
        capabilities.prompts = has(ItemKind::Prompt).then(PromptsCapability::default);
        let has_resources = has(ItemKind::Resource) || has(ItemKind::ResourceTemplate);
        capabilities.resources = has_resources.then(ResourcesCapability::default);
        ServerConfig::new(capabilities)
    }

    fn note(&self, kind: ItemKind, cursor: Option<&str>, page: &Reply) {
        let Some((of, next)) = page.page() else { return };
        if of != kind {
            return;
        }
        let is_last = next.is_none();
        let mut lists = lock(&self.0);
        let Lists { whole, begun } = lists.entry(kind).or_default();
        match cursor {
            None => begun.clear(),
            // Another client has restarted the list in the meantime, so this page does not continue
            // the list.
            Some(_) if after(begun, cursor) != Some(begun.len()) => return,
            Some(_) => (),
        }
        begun.push(page.clone());
        if is_last {
            *whole = mem::take(begun);
        }
    }

    fn page(&self, kind: ItemKind, cursor: Option<&str>) -> Reply {
        let lists = lock(&self.0);
        let pages = lists.get(&kind).map_or(&[][..], |lists| &lists.whole);
        let page = after(pages, cursor).and_then(|place| pages.get(place));
        page.cloned().unwrap_or_else(|| Reply::method_not_found(""))
    }
}

/// Returns the index of the page that begins at `cursor`. Returns 0 if there is no cursor, and
/// `None` if no page has this cursor as its `nextCursor`.
fn after(pages: &[Reply], cursor: Option<&str>) -> Option<usize> {
    let Some(cursor) = cursor else { return Some(0) };
    let is_before = |page: &Reply| page.page().is_some_and(|(_, next)| next == Some(cursor));
    pages.iter().position(is_before).map(|place| place + 1)
}

// === impl Recall ===

impl Recall {
    pub(crate) fn set(&self, recall: bool) {
        self.0.store(recall, Ordering::Release);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

// === impl Remember ===

impl Intercept for Remember {
    /// The kind of item and the cursor of a list request. `None` for any other request.
    type Memo = Option<(ItemKind, Option<String>)>;

    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, Self::Memo> {
        let Subject::List(kind, cursor) = request.subject() else {
            return ControlFlow::Continue(None);
        };
        if self.recall.get() {
            return ControlFlow::Break(self.memory.page(kind, cursor));
        }
        ControlFlow::Continue(Some((kind, cursor.map(str::to_owned))))
    }

    fn awaits_reply(&self, memo: &Self::Memo) -> bool {
        memo.is_some()
    }

    fn on_reply(&self, memo: Self::Memo, reply: &mut Reply) {
        if let Some((kind, cursor)) = memo {
            self.memory.note(kind, cursor.as_deref(), reply);
        }
    }
}
