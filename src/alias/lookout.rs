use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::message::ItemKind;

/// How many names of a list are remembered, to tell which one was meant.
const MAX_NAMES: usize = 10_000;
/// How many pages of lists may have a successor that nobody has asked for.
const MAX_CURSORS: usize = 1_000;

/// Looks for the originals of aliases in lists, until all were seen or a whole list
/// was.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// One for each kind of list, since resources and their templates are listed
    /// apart.
    plain: Watch,
    templates: Watch,
}

#[derive(Debug, Default)]
struct Watch {
    sought: Mutex<Sought>,
    is_on: AtomicBool,
}

#[derive(Debug, Default)]
struct Sought {
    /// The aliases whose originals were not seen, by place and original.
    missing: Vec<(usize, String)>,
    /// What was seen besides.
    names: BTreeSet<String>,
    /// Those of pages before which all were seen.
    cursors: HashSet<String>,
}

// === impl Lookout ===

impl Lookout {
    pub(super) fn new<'a>(originals: impl Iterator<Item = &'a str>) -> Self {
        let originals = originals.enumerate().map(|(place, name)| (place, name.to_owned()));
        let (templates, plain) = originals.partition(|(_, name)| name.contains('{'));
        Self { plain: Watch::new(plain), templates: Watch::new(templates) }
    }

    /// Whether a page of a list is worth a look: all before it were seen, and
    /// something is missing.
    pub(super) fn wants(&self, kind: ItemKind, cursor: Option<&str>) -> bool {
        let watch = self.watch(kind);
        watch.is_on.load(Ordering::Relaxed)
            && cursor.is_none_or(|cursor| watch.sought().cursors.contains(cursor))
    }

    /// Looks at what a page has.
    pub(super) fn see(&self, kind: ItemKind, name: &str) {
        let mut sought = self.watch(kind).sought();
        let before = sought.missing.len();
        sought.missing.retain(|(_, original)| original != name);
        if sought.missing.len() == before
            && sought.names.len() < MAX_NAMES
            && !sought.names.contains(name)
        {
            sought.names.insert(name.to_owned());
        }
    }

    /// Looks at the end of a page; what is missing is told with the names there are
    /// when it was the last.
    pub(super) fn turn(
        &self,
        kind: ItemKind,
        next: Option<&str>,
        mut tell: impl FnMut(usize, &[&str]),
    ) {
        let watch = self.watch(kind);
        let mut sought = watch.sought();
        match next {
            Some(next) if !sought.missing.is_empty() => {
                if sought.cursors.len() < MAX_CURSORS {
                    sought.cursors.insert(next.to_owned());
                }
            }
            _ => {
                watch.is_on.store(false, Ordering::Relaxed);
                let Sought { missing, names, .. } = std::mem::take(&mut *sought);
                drop(sought);
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                missing.iter().for_each(|(place, _)| tell(*place, &names));
            }
        }
    }

    const fn watch(&self, kind: ItemKind) -> &Watch {
        match kind {
            ItemKind::ResourceTemplate => &self.templates,
            ItemKind::Tool | ItemKind::Prompt | ItemKind::Resource => &self.plain,
        }
    }
}

// === impl Watch ===

impl Watch {
    fn new(missing: Vec<(usize, String)>) -> Self {
        let is_on = AtomicBool::new(!missing.is_empty());
        Self { sought: Mutex::new(Sought { missing, ..Sought::default() }), is_on }
    }

    fn sought(&self) -> MutexGuard<'_, Sought> {
        self.sought.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
