use std::{
    mem,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    complaints::Complaints,
    message::ItemKind,
    pattern::{Selection, Unmatched},
};

/// How many names are remembered that a pattern may have meant.
const MAX_NAMES: usize = 10_000;

/// Looks for patterns that match nothing, until a list was seen as a whole or all
/// have matched.
#[derive(Debug)]
pub(super) struct Watch {
    kind: ItemKind,
    allow: Unmatched,
    deny: Unmatched,
    is_over: AtomicBool,
    walk: Mutex<Walk>,
}

/// A list that was seen from its first page on.
#[derive(Debug, Default)]
struct Walk {
    /// The cursor of the page that goes on with it.
    next: Option<String>,
    names: Vec<String>,
}

// === impl Watch ===

impl Watch {
    pub(super) fn new(kind: ItemKind, selection: &Selection, of: Option<&str>) -> Self {
        let allow = selection.allowed().cloned().unwrap_or_default();
        Self {
            kind,
            allow: Unmatched::new(allow).of(of),
            deny: Unmatched::new(selection.denied().clone()).of(of),
            is_over: AtomicBool::new(false),
            walk: Mutex::default(),
        }
    }

    pub(super) const fn kind(&self) -> ItemKind {
        self.kind
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Looks at a page that was asked for with `cursor`; the one after it is `next`.
    ///
    /// What was never seen from the beginning is not taken for the whole. Of several
    /// clients that list at the same time, the last to begin is followed.
    pub(super) fn see(
        &self,
        cursor: Option<&str>,
        next: Option<&str>,
        names: Vec<String>,
        complaints: &Complaints,
    ) {
        for name in &names {
            self.allow.see(name);
            self.deny.see(name);
        }
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        if self.allow.is_over() && self.deny.is_over() {
            *walk = Walk::default();
            self.is_over.store(true, Ordering::Relaxed);
            return;
        }
        match cursor {
            None => *walk = Walk::default(),
            Some(_) if walk.next.as_deref() == cursor => (),
            Some(_) => return,
        }
        let room = MAX_NAMES - walk.names.len();
        walk.names.extend(names.into_iter().take(room));
        walk.next = next.map(str::to_owned);
        // That nothing matches nothing says nothing.
        if next.is_some() || walk.names.is_empty() {
            return;
        }
        let walk = mem::take(&mut *walk);
        self.is_over.store(true, Ordering::Relaxed);
        let names: Vec<_> = walk.names.iter().map(String::as_str).collect();
        let (expose, hide) = settings(self.kind);
        self.allow.tell(complaints, expose, self.kind, &names);
        self.deny.tell(complaints, hide, self.kind, &names);
    }
}

/// What the settings are called that allow and deny items of a kind.
const fn settings(kind: ItemKind) -> (&'static str, &'static str) {
    match kind {
        ItemKind::Tool => ("expose_tools", "hide_tools"),
        ItemKind::Prompt => ("expose_prompts", "hide_prompts"),
        ItemKind::Resource => ("expose_resources", "hide_resources"),
        ItemKind::ResourceTemplate => ("expose_resource_templates", "hide_resource_templates"),
    }
}
