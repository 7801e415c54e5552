//! Tracks which configured patterns have matched the name of a listed item, such as a tool.
//! Patterns that match no item are probably misspelled, and are reported.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::mutex::lock;

/// The maximum number of listed names that are stored, so that warnings can suggest similar names.
const MAX_WATCHED_NAMES: usize = 10_000;
/// The maximum number of cursors that are stored. A stored cursor is used to recognize the request
/// for the next page of a list.
const MAX_CURSORS: usize = 1_000;
/// The maximum length in bytes of a stored name or cursor. Longer names are not needed for
/// suggestions, because names in configuration files are never longer.
const MAX_WATCHED_TEXT: usize = 1_024;

/// A set of patterns, each of which should match at least one listed name.
pub(crate) trait WatchedNames {
    /// Matches a listed name against all patterns, and records which patterns have matched.
    fn see(&mut self, name: &str);

    /// Returns `true` if every pattern has matched a listed name.
    fn is_found(&self) -> bool;
}

/// Watches the lists that a server returns, until all patterns have matched a name or one complete
/// list was seen.
///
/// The first page of a list is always watched. A later page is watched if the page before it was
/// watched, even if another client requests it. When the watch is over, all stored names are
/// dropped, and each further page costs only the check of a flag.
#[derive(Debug)]
pub(crate) struct PatternWatch<S> {
    is_over: AtomicBool,
    search: Mutex<Search<S>>,
}

/// A page of a list that a client has requested, and whose names must be passed to
/// [`PatternWatch::see`].
#[derive(Debug)]
pub(crate) struct Page {
    /// `true` if an earlier page of the list contained any items.
    goes_on: bool,
}

/// The result of a watch in which some patterns matched no name of a complete list.
#[derive(Debug)]
pub(crate) struct Missed<S> {
    /// The patterns. Each of them is marked as matched or not matched.
    pub(crate) sought: S,
    /// The names that the list contains. A warning about a pattern suggests a similar name from
    /// this set.
    names: BTreeSet<String>,
}

#[derive(Debug)]
struct Search<S> {
    /// The patterns that are matched against listed names. `None` after the watch is over.
    sought: Option<S>,
    names: BTreeSet<String>,
    /// The cursors of the pages that follow a watched page. The value is `true` if the pages before
    /// the cursor contain any items.
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

    /// Returns `true` if all patterns have matched, or if a complete list was seen.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the page that begins at `cursor`, or the first page if `cursor` is `None`. Returns
    /// `None` if the page is not watched, because the page before it was not watched or the watch
    /// is over.
    pub(crate) fn page(&self, cursor: Option<&str>) -> Option<Page> {
        if self.is_over() {
            return None;
        }
        let goes_on = match cursor {
            None => false,
            Some(cursor) => *lock(&self.search).cursors.get(cursor)?,
        };
        Some(Page { goes_on })
    }

    /// Matches the names on a page against the patterns. `next` is the cursor of the next page, or
    /// `None` if this is the last page.
    ///
    /// The watch ends when all patterns have matched, or after the last page of a list. If some
    /// patterns have not matched by then, returns the patterns together with the names in the list.
    /// Otherwise, returns `None`.
    ///
    /// A list without any items does not end the watch.
    pub(crate) fn see(
        &self,
        page: &Page,
        next: Option<&str>,
        names: impl IntoIterator<Item = String>,
    ) -> Option<Missed<S>> {
        let search = &mut *lock(&self.search);
        let sought = search.sought.as_mut()?;
        let mut names = names.into_iter().peekable();
        let has_items = page.goes_on || names.peek().is_some();
        let names: Vec<String> = names.inspect(|name| sought.see(name)).collect();
        if sought.is_found() {
            self.end(search);
            return None;
        }
        let room = MAX_WATCHED_NAMES - search.names.len();
        let names = names.into_iter().filter(|name| name.len() <= MAX_WATCHED_TEXT);
        search.names.extend(names.take(room));
        match next {
            // The cursor is too long to be stored, so the rest of the list is not watched.
            Some(next) if next.len() > MAX_WATCHED_TEXT => None,
            Some(next) => {
                // The cursors of abandoned lists must not prevent other lists from being watched.
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

    /// Matches the names of a complete list against the patterns. See [`see`](Self::see).
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
}

// === impl Missed ===

impl<S> Missed<S> {
    /// Returns the names in the list, so that warnings can suggest similar names.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests;
