//! What backends listed last, for when they cannot be asked.
//!
//! A file that takes the place of another has a router of its own, which knows
//! nothing yet. If a backend happens to be away at that moment, its tools would be
//! gone until it is back, and so would composites that are made of them. So what a
//! backend listed is kept below all that a file can change, and listed once more
//! for the new router.

use std::{
    collections::HashMap,
    mem,
    ops::ControlFlow,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::model::{
    PromptsCapability, ResourcesCapability, ServerCapabilities, ServerConfig, ToolsCapability,
};

use crate::{
    intercept::Intercept,
    message::{ItemKind, Reply, Request, Subject},
};

/// The last whole lists of a backend; clones remember the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Arc<Mutex<HashMap<ItemKind, Lists>>>);

/// What is known of one kind of item.
#[derive(Clone, Debug, Default)]
struct Lists {
    /// All pages of the last list that was read to its end.
    whole: Vec<Reply>,
    /// The pages so far of one that is being read.
    begun: Vec<Reply>,
}

/// Whether lists come out of memories; clones are switched together.
#[derive(Clone, Debug, Default)]
pub(super) struct Recall(Arc<AtomicBool>);

/// The rule that remembers lists, and answers with them while they are recalled.
#[derive(Clone, Debug)]
pub(super) struct Remember {
    pub(super) memory: Memory,
    pub(super) recall: Recall,
}

// === impl Memory ===

impl Memory {
    /// One that begins with the same, and goes on by itself.
    pub(super) fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.lists().clone())))
    }

    /// A server that has what is remembered, and nothing else.
    pub(super) fn describe(&self) -> ServerConfig {
        let lists = self.lists();
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
        let mut lists = self.lists();
        let Lists { whole, begun } = lists.entry(kind).or_default();
        match cursor {
            None => begun.clear(),
            // Of a list that somebody else has begun meanwhile.
            Some(_) if after(begun, cursor) != Some(begun.len()) => return,
            Some(_) => (),
        }
        begun.push(page.clone());
        if is_last {
            *whole = mem::take(begun);
        }
    }

    fn page(&self, kind: ItemKind, cursor: Option<&str>) -> Reply {
        let lists = self.lists();
        let pages = lists.get(&kind).map_or(&[][..], |lists| &lists.whole);
        let page = after(pages, cursor).and_then(|place| pages.get(place));
        page.cloned().unwrap_or_else(|| Reply::method_not_found(""))
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<ItemKind, Lists>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place after the page that this cursor follows.
fn after(pages: &[Reply], cursor: Option<&str>) -> Option<usize> {
    let Some(cursor) = cursor else { return Some(0) };
    let is_before = |page: &Reply| page.page().is_some_and(|(_, next)| next == Some(cursor));
    pages.iter().position(is_before).map(|place| place + 1)
}

// === impl Recall ===

impl Recall {
    pub(super) fn set(&self, recall: bool) {
        self.0.store(recall, Ordering::Release);
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

// === impl Remember ===

impl Intercept for Remember {
    /// Which page of a list was asked for.
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
