use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use rmcp::model::ListToolsResult;

use crate::{
    complaints::Complaints,
    message::ItemKind,
    pattern::{Selection, Unmatched},
};

/// How many names a pattern is compared with that matches none.
const MAX_NAMES: usize = 1_000;

/// Looks, while lists pass by, for patterns that match nothing.
#[derive(Debug)]
pub(super) struct Watch {
    allow: Option<Unmatched>,
    deny: Unmatched,
    list: Mutex<List>,
    /// Whether there is nothing left to look for.
    over: AtomicBool,
}

/// How much of a list has passed by.
#[derive(Debug, Default)]
struct List {
    names: Vec<String>,
    /// The cursor of the page that comes next.
    next: Option<String>,
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(tools: &Selection) -> Self {
        Self {
            allow: tools.allowed().cloned().map(Unmatched::new),
            deny: Unmatched::new(tools.denied().clone()),
            list: Mutex::default(),
            over: AtomicBool::new(tools.selects_all()),
        }
    }

    /// Whether there is nothing left to look for.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Looks at a page, and tells what has matched nothing if it is the last of a
    /// list that was seen from its beginning.
    pub(super) fn see(
        &self,
        cursor: Option<&str>,
        page: &ListToolsResult,
        complaints: &Complaints,
    ) {
        let names = || page.tools.iter().map(|tool| &*tool.name);
        self.see_names(names());
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        match cursor {
            None => list.names.clear(),
            Some(cursor) if list.next.as_deref() == Some(cursor) => (),
            // Another list than the one that is followed.
            Some(_) => return,
        }
        let room = MAX_NAMES.saturating_sub(list.names.len());
        list.names.extend(names().take(room).map(str::to_owned));
        list.next.clone_from(&page.next_cursor);
        if list.next.is_none() {
            self.tell(list.names.iter().map(String::as_str), complaints);
            *list = List::default();
        }
    }

    /// Looks at all tools there are, and tells what has matched nothing.
    pub(super) fn see_all<'n>(
        &self,
        names: impl Iterator<Item = &'n str> + Clone,
        complaints: &Complaints,
    ) {
        if !self.is_over() {
            self.see_names(names.clone());
            self.tell(names.take(MAX_NAMES), complaints);
        }
    }

    fn see_names<'n>(&self, names: impl Iterator<Item = &'n str>) {
        for name in names {
            self.deny.see(name);
            if let Some(allow) = &self.allow {
                allow.see(name);
            }
        }
        if self.deny.is_over() && self.allow.as_ref().is_none_or(Unmatched::is_over) {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// Tells what has matched nothing, unless there was nothing to match.
    fn tell<'n>(&self, names: impl Iterator<Item = &'n str>, complaints: &Complaints) {
        let names: Vec<&str> = names.collect();
        if !names.is_empty() && !self.over.swap(true, Ordering::Relaxed) {
            self.deny.tell(complaints, "deny", ItemKind::Tool, &names);
            if let Some(allow) = &self.allow {
                allow.tell(complaints, "allow", ItemKind::Tool, &names);
            }
        }
    }
}
