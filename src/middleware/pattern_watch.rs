//! What is looked for in lists that pass by.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// How many names are remembered, to tell which one was meant.
const MAX_NAMES: usize = 10_000;
/// How many pages may have a successor that nobody has asked for.
const MAX_CURSORS: usize = 1_000;
/// How long a name or a cursor may be that is remembered: none that an operator meant is
/// longer.
const MAX_TEXT: usize = 1_024;

/// Things that may stand in a list.
pub(crate) trait WatchedNames {
    /// Looks at a name that is there.
    fn see(&mut self, name: &str);

    /// Whether all of them were seen.
    fn is_found(&self) -> bool;
}

/// Looks for things in the pages of lists, until all were seen or a whole list was.
///
/// A page counts if it is the first, or if a page that counts has told its cursor,
/// whoever asked for the one and the other. So a late page alone says nothing, and
/// clients that list at the same time finish each other's lists. When it is over,
/// nothing is kept, and a page costs a look at a flag.
#[derive(Debug)]
pub(crate) struct PatternWatch<S> {
    is_over: AtomicBool,
    search: Mutex<Search<S>>,
}

/// A page that counts.
#[derive(Debug)]
pub(crate) struct Page {
    /// Whether the pages before it have something in them.
    goes_on: bool,
}

/// What a list does not have that was seen from the beginning to the end.
#[derive(Debug)]
pub(crate) struct Missed<S> {
    /// What was looked for, and what of it was seen.
    pub(crate) sought: S,
    /// What there is.
    names: BTreeSet<String>,
}

#[derive(Debug)]
struct Search<S> {
    /// None when it is over.
    sought: Option<S>,
    names: BTreeSet<String>,
    /// Those of pages that count, and whether there is something in front of them.
    cursors: HashMap<String, bool>,
}

// === impl PatternWatch ===

impl<S: WatchedNames> PatternWatch<S> {
    pub(crate) fn new(sought: S) -> Self {
        let is_over = AtomicBool::new(sought.is_found());
        let sought = Some(sought).filter(|sought| !sought.is_found());
        let search = Search { sought, names: BTreeSet::new(), cursors: HashMap::new() };
        Self { is_over, search: Mutex::new(search) }
    }

    /// Whether there is nothing left to look for.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// The page that is asked for with `cursor`, if it counts.
    pub(crate) fn page(&self, cursor: Option<&str>) -> Option<Page> {
        if self.is_over() {
            return None;
        }
        let goes_on = match cursor {
            None => false,
            Some(cursor) => *self.search().cursors.get(cursor)?,
        };
        Some(Page { goes_on })
    }

    /// Looks at what a page has, which `next` comes after; what a whole list does
    /// not have is told once.
    ///
    /// That an empty list has nothing says nothing.
    pub(crate) fn see(
        &self,
        page: &Page,
        next: Option<&str>,
        names: impl IntoIterator<Item = String>,
    ) -> Option<Missed<S>> {
        let search = &mut *self.search();
        let sought = search.sought.as_mut()?;
        let mut names = names.into_iter().peekable();
        let has_items = page.goes_on || names.peek().is_some();
        let names: Vec<String> = names.inspect(|name| sought.see(name)).collect();
        if sought.is_found() {
            self.end(search);
            return None;
        }
        let room = MAX_NAMES - search.names.len();
        let names = names.into_iter().filter(|name| name.len() <= MAX_TEXT);
        search.names.extend(names.take(room));
        match next {
            // The list is then not seen to its end.
            Some(next) if next.len() > MAX_TEXT => None,
            Some(next) => {
                // Lists that nobody goes on with must not keep others from being seen.
                if search.cursors.len() == MAX_CURSORS {
                    search.cursors.clear();
                }
                search.cursors.insert(next.to_owned(), has_items);
                None
            }
            None if has_items => {
                let names = mem::take(&mut search.names);
                self.end(search).map(|sought| Missed { sought, names })
            }
            None => None,
        }
    }

    /// Looks at a whole list.
    pub(crate) fn see_all<'n>(&self, names: impl Iterator<Item = &'n str>) -> Option<Missed<S>> {
        let page = self.page(None)?;
        self.see(&page, None, names.map(str::to_owned))
    }

    fn end(&self, search: &mut Search<S>) -> Option<S> {
        self.is_over.store(true, Ordering::Relaxed);
        search.names = BTreeSet::new();
        search.cursors = HashMap::new();
        search.sought.take()
    }

    fn search(&self) -> MutexGuard<'_, Search<S>> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Missed ===

impl<S> Missed<S> {
    /// What there is.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests;
