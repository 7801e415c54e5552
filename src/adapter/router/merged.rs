//! Merges the lists of all backends into the list that clients see, separately for each kind of
//! item.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use rmcp::model::CacheScope;

use super::{
    fetch::{Listed, least, narrowest},
    item::{Item, Page},
    names::{Conflicts, ExposedNames},
    warning::Problem,
};

/// The number of items on each page of a list.
const PAGE: usize = 1_000;
/// The maximum number of problems that a merged list records, for example items that are left out.
const MAX_PROBLEMS: usize = 1_000;

/// A list of one kind of item, such as tools, that contains the items of all backends.
#[derive(Debug)]
pub(super) struct Merged<I> {
    /// The lists from which this list was merged, one per backend. `None` for a backend that has no
    /// items, or whose list is unknown.
    sources: Vec<Option<Arc<Listed<I>>>>,
    /// The items of all backends in the order of the backends. Their names are those that clients
    /// see.
    items: Vec<I>,
    routes: HashMap<Box<str>, Route>,
    literals: Literals,
    pub(super) problems: Vec<Problem>,
    ttl_ms: Option<u64>,
    cache_scope: Option<CacheScope>,
    /// A hash of the names or URIs of all items in their order. It identifies the list in cursors,
    /// even in other processes.
    pub(super) fingerprint: u64,
}

/// Determines how a request for a name or URI is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The request is sent to the backend with this index.
    To(usize),
    /// The request is rejected, because several backends offer an item with this name, and the
    /// router leaves out all of these items.
    Contested,
}

/// Maps the literal prefix of each URI template (the text before the first `{`) to the backend that
/// lists the template. Used to find the owner of a URI.
#[derive(Debug, Default)]
struct Literals {
    owners: HashMap<Box<str>, usize>,
    /// The different lengths of all literal prefixes, in descending order. A lookup tries these
    /// lengths one after another.
    lengths: Vec<usize>,
}

/// A cursor of a merged list. It consists of the fingerprint of the list and the index of the first
/// item on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) fingerprint: u64,
    start: usize,
}

// === impl Merged ===

impl<I> Merged<I> {
    pub(super) fn empty(backends: usize) -> Self {
        Self {
            sources: std::iter::repeat_with(|| None).take(backends).collect(),
            items: Vec::new(),
            routes: HashMap::new(),
            literals: Literals::default(),
            problems: Vec::new(),
            ttl_ms: None,
            cache_scope: None,
            fingerprint: 0,
        }
    }

    /// Returns `true` if this list was merged from exactly these lists. The comparison is fast,
    /// because it compares pointers and not items.
    pub(super) fn is_of(&self, sources: &[Option<Arc<Listed<I>>>]) -> bool {
        are_the_same(&self.sources, sources)
    }

    pub(super) fn route(&self, key: &str) -> Option<Route> {
        self.routes.get(key).copied()
    }

    /// Returns the first backend that lists a URI template that matches the URI. For example,
    /// `file:///{path}` matches all URIs that start with `file:///`.
    pub(super) fn by_template(&self, uri: &str) -> Option<usize> {
        self.literals.owners(uri).min()
    }

    /// Returns `true` if the list is too long for a single page.
    pub(super) const fn has_pages(&self) -> bool {
        self.items.len() > PAGE
    }
}

impl<I: Item> Merged<I> {
    /// Merges the lists of all backends. If several items have the same name, the conflict rule
    /// decides whether the first one is used, or all of them are left out.
    pub(super) fn new(names: &ExposedNames, sources: Vec<Option<Arc<Listed<I>>>>) -> Self {
        let mut merged = Self::empty(0);
        let mut placed: Vec<NamedItem<I>> = Vec::new();
        let mut owners: HashMap<Box<str>, Owner> = HashMap::new();
        for (place, listed) in sources.iter().enumerate() {
            let items = listed.iter().flat_map(|listed| &listed.items);
            for item in items {
                merged.place(names, place, item, &mut placed, &mut owners);
            }
        }
        let heard = || sources.iter().flatten();
        merged.ttl_ms = heard().map(|listed| listed.ttl_ms).reduce(least).flatten();
        merged.cache_scope = heard().map(|listed| listed.cache_scope).reduce(narrowest).flatten();
        merged.sources = sources;
        merged.items.reserve_exact(placed.len());
        for NamedItem { place, item, contested } in placed {
            if contested {
                continue;
            }
            if let Some(literal) = item.literal() {
                merged.literals.add(literal, place);
            }
            merged.items.push(item);
        }
        merged.literals.sort();
        merged.routes = owners.into_iter().map(|(key, owner)| (key, owner.route)).collect();
        if merged.has_pages() {
            let mut hasher = DefaultHasher::new();
            merged.items.iter().for_each(|item| item.key().hash(&mut hasher));
            merged.fingerprint = hasher.finish();
        }
        merged
    }

    fn place(
        &mut self,
        names: &ExposedNames,
        place: usize,
        item: &I,
        placed: &mut Vec<NamedItem<I>>,
        owners: &mut HashMap<Box<str>, Owner>,
    ) {
        let (kind, named) = (I::KIND, I::KIND.is_named());
        let name = if named { names.expose(place, item.key()) } else { item.key().to_owned() };
        if named && (item.key().is_empty() || !names.is_legal(&name)) {
            let backend = names.of(place).clone();
            self.warn(Problem::IllegalName { backend, kind, name });
            return;
        }
        let mut owner = match owners.entry(name.as_str().into()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Owner { place, index: placed.len(), route: Route::To(place) });
                let mut item = item.clone();
                if named {
                    item.set_key(name);
                }
                placed.push(NamedItem { place, item, contested: false });
                return;
            }
            Entry::Occupied(owner) => owner,
        };
        let owner = owner.get_mut();
        let settled = match names.conflicts {
            Conflicts::Prefix => !named,
            Conflicts::Priority => true,
            Conflicts::Manual => false,
        };
        let (first, second) = (names.of(owner.place).clone(), names.of(place).clone());
        self.warn(if owner.place == place {
            Problem::Twins { backend: second, kind, name }
        } else if settled {
            Problem::Shadowed { owner: first, hidden: second, kind, name }
        } else {
            owner.route = Route::Contested;
            placed[owner.index].contested = true;
            Problem::Contested { backends: [first, second], kind, name }
        });
    }

    fn warn(&mut self, problem: Problem) {
        // Limited because a backend may list a hundred thousand items with problems.
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// Returns the page that begins at a cursor, or the first page. Returns `None` if the cursor
    /// belongs to another list. `complete` must be `true` if the list contains the current items of
    /// all backends.
    ///
    /// If `complete` is `false`, the page has no cache lifetime, so that clients do not cache it.
    pub(super) fn page(&self, cursor: Option<Cursor>, complete: bool) -> Option<Page<I>> {
        let is_of_this_list = |Cursor { fingerprint, start }| {
            let begins_a_page = start > 0 && start.is_multiple_of(PAGE);
            fingerprint == self.fingerprint && begins_a_page && start < self.items.len()
        };
        if !cursor.is_none_or(is_of_this_list) {
            return None;
        }
        let start = cursor.map_or(0, |cursor| cursor.start);
        let end = self.items.len().min(start + PAGE);
        let next = Cursor { fingerprint: self.fingerprint, start: end };
        Some(Page {
            items: self.items[start..end].to_vec(),
            next_cursor: (end < self.items.len()).then(|| next.to_text()),
            ttl_ms: self.ttl_ms.filter(|_| complete),
            cache_scope: self.cache_scope,
        })
    }
}

/// An item with the name that clients see, and the index of the backend that lists it.
struct NamedItem<I> {
    place: usize,
    item: I,
    contested: bool,
}

/// The first backend that lists an item with a certain name or URI. Used while lists are merged, to
/// find other items with the same name.
struct Owner {
    place: usize,
    /// The index of the item in the list of all items that are being merged.
    index: usize,
    route: Route,
}

/// Returns `true` if both slices contain the same lists. The comparison is fast, because it
/// compares pointers and not items.
pub(super) fn are_the_same<I>(
    some: &[Option<Arc<Listed<I>>>],
    others: &[Option<Arc<Listed<I>>>],
) -> bool {
    some.len() == others.len()
        && some.iter().zip(others).all(|pair| match pair {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        })
}

// === impl Literals ===

impl Literals {
    /// Adds the literal prefix of a URI template that a backend lists. If the prefix was already
    /// added, its first backend is kept.
    fn add(&mut self, literal: &str, place: usize) {
        if !self.owners.contains_key(literal) {
            self.owners.insert(literal.into(), place);
            self.lengths.push(literal.len());
        }
    }

    fn sort(&mut self) {
        self.lengths.sort_unstable_by(|a, b| b.cmp(a));
        self.lengths.dedup();
    }

    /// Returns the backends that list a URI template whose literal prefix is a prefix of the URI.
    fn owners(&self, uri: &str) -> impl Iterator<Item = usize> {
        let beginnings = self.lengths.iter().filter_map(|&length| uri.get(..length));
        beginnings.filter_map(|beginning| self.owners.get(beginning).copied())
    }
}

// === impl Cursor ===

impl Cursor {
    fn to_text(self) -> String {
        format!("{:016x}.{}", self.fingerprint, self.start)
    }

    /// Parses a cursor that [`to_text`](Self::to_text) has returned. Returns `None` for any other
    /// text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (fingerprint, start) = text.split_once('.')?;
        let fingerprint = u64::from_str_radix(fingerprint, 16).ok()?;
        let cursor = Self { fingerprint, start: start.parse().ok()? };
        (cursor.to_text() == text).then_some(cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_parsed_only_in_its_canonical_form() {
        let cursor = Cursor { fingerprint: 0xab, start: 2_000 };
        assert_eq!(cursor.to_text(), "00000000000000ab.2000");
        assert_eq!(Cursor::parse("00000000000000ab.2000"), Some(cursor));
        for garbage in ["", ".", "ab.2000", "00000000000000AB.2000", "00000000000000ab.02000", "é"]
        {
            assert_eq!(Cursor::parse(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn first_backend_with_a_template_of_a_uri_owns_it() {
        let mut merged = Merged::<rmcp::model::ResourceTemplate>::empty(0);
        let literals = ["a:/b/", "file:///", "a:", "a:/é", "a:", "file:///home/"];
        for (place, literal) in literals.into_iter().enumerate() {
            merged.literals.add(literal, place);
        }
        merged.literals.sort();
        assert_eq!(merged.by_template("a:/b/c"), Some(0));
        assert_eq!(merged.by_template("a:/éa"), Some(2), "a longer template takes nothing");
        assert_eq!(merged.by_template("a:/€"), Some(2));
        assert_eq!(merged.by_template("file:///home/x"), Some(1));
        assert_eq!(merged.by_template("file:///x"), Some(1));
        assert_eq!(merged.by_template("b:"), None);
    }
}
