//! Lookup tables that translate between the server's names and the client's names.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::model::{JsonObject, ToolAnnotations};

use super::{arguments::Arguments, template::Template};
use crate::{
    message::ItemKind,
    pattern_watch::{PatternWatch, WatchedNames},
    uri::Readings,
};

/// The aliases of all items of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasTable {
    aliases: Vec<Alias>,
    by_original: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
    /// The URI templates that aliases rename. Each template comes with the index of its alias.
    templates: Vec<(usize, Template)>,
    /// The original URIs of all renamed resources, in all of their equivalent spellings. Clients
    /// must not reach a renamed resource by any of these URIs.
    readings: HashSet<String>,
    /// Watches that find aliases for items that the server does not list. Resources and URI
    /// templates are watched separately, because servers list them separately.
    lookouts: Arc<PatternWatches>,
}

#[derive(Debug)]
struct PatternWatches {
    plain: PatternWatch<Originals>,
    templates: PatternWatch<Originals>,
}

/// The original names of items that have an alias but have not been listed by the server so far.
/// Each name comes with the index of the alias.
#[derive(Debug)]
pub(super) struct Originals(pub(super) Vec<(usize, String)>);

/// The alias of an item, after it was checked.
#[derive(Clone, Debug, Default)]
pub(super) struct Alias {
    /// The server's name or URI.
    pub(super) original: String,
    /// The client's name or URI.
    pub(super) name: String,
    /// The display name of a resource or template.
    pub(super) label: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) annotations: Option<ToolAnnotations>,
    pub(super) arguments: Arguments,
    /// The most recent input schema of the tool, and the schema that clients receive instead.
    pub(super) schema: AliasedSchema,
}

/// Caches the most recent input schema of a tool and its rewritten form, so that listing the tools
/// again does not rewrite an unchanged schema.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasedSchema(Arc<Mutex<Option<SchemaPair>>>);

type SchemaPair = (Arc<JsonObject>, Arc<JsonObject>);

/// The item to which a name in a client's request refers.
pub(super) enum Meaning<'a> {
    /// The name refers to the item with this alias. The number is the index of the alias.
    Alias(usize, &'a Alias),
    /// The name refers to no item. It is the original name of a renamed item, which clients cannot
    /// use.
    Nothing,
    /// No alias affects the name. It refers to the server's item of this name, if there is one.
    Same,
}

// === impl AliasTable ===

impl AliasTable {
    /// Creates a lookup table from aliases. No two aliases may have the same original name or the
    /// same client name.
    pub(super) fn new(aliases: Vec<Alias>) -> Self {
        let places = aliases.iter().enumerate();
        let by_original = places.clone().map(|(place, a)| (a.original.clone(), place)).collect();
        let by_name = places.clone().map(|(place, a)| (a.name.clone(), place)).collect();
        let templates = places
            .filter(|(_, alias)| alias.is_renamed())
            .filter_map(|(place, alias)| {
                Some((place, Template::new(&alias.original, &alias.name)?))
            })
            .collect();
        let lookouts = Arc::new(PatternWatches::new(aliases.iter().map(|alias| &*alias.original)));
        Self { aliases, by_original, by_name, templates, readings: HashSet::new(), lookouts }
    }

    /// Creates a lookup table from aliases for resources. Unlike [`new`](Self::new), also stores
    /// all spellings of each renamed URI, so that clients cannot bypass the alias with a different
    /// spelling.
    pub(super) fn of_uris(aliases: Vec<Alias>) -> Self {
        let renamed = aliases.iter().filter(|alias| alias.is_renamed());
        let readings = renamed.filter_map(|alias| Readings::of(&alias.original));
        let readings = readings.flat_map(Readings::all).collect();
        Self { readings, ..Self::new(aliases) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.aliases.is_empty()
    }

    /// Returns the server's name and the client's name of each alias.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.aliases.iter().map(|alias| (&*alias.original, &*alias.name)).collect()
    }

    pub(super) fn alias(&self, place: usize) -> &Alias {
        &self.aliases[place]
    }

    /// Returns the [`PatternWatch`] that finds aliases for items of this kind that the server does
    /// not list.
    pub(super) fn pattern_watch(&self, kind: ItemKind) -> &PatternWatch<Originals> {
        match kind {
            ItemKind::ResourceTemplate => &self.lookouts.templates,
            ItemKind::Tool | ItemKind::Prompt | ItemKind::Resource => &self.lookouts.plain,
        }
    }

    /// Returns the item to which a name in a client's request refers.
    pub(super) fn meaning(&self, name: &str) -> Meaning<'_> {
        match self.by_name.get(name) {
            Some(&place) => Meaning::Alias(place, &self.aliases[place]),
            None if self.by_original.contains_key(name) => Meaning::Nothing,
            None => Meaning::Same,
        }
    }

    /// Returns the alias for the item that the server calls `original`, and the index of the alias.
    pub(super) fn of_original(&self, original: &str) -> Option<(usize, &Alias)> {
        let place = *self.by_original.get(original)?;
        Some((place, &self.aliases[place]))
    }

    /// Returns the alias that hides the item `original`, because it gives the name of this item to
    /// another item. Returns `None` if no alias uses the name, or if `original` has its own alias.
    pub(super) fn instead_of(&self, original: &str) -> Option<&Alias> {
        if self.by_original.contains_key(original) {
            return None;
        }
        self.by_name.get(original).map(|&place| &self.aliases[place])
    }

    /// Returns the name by which clients know the item that the server calls `original`. Returns
    /// `None` if clients cannot request the item.
    pub(super) fn name_of<'a>(&'a self, original: &'a str) -> Option<&'a str> {
        match self.of_original(original) {
            Some((_, alias)) => Some(&alias.name),
            None if self.by_name.contains_key(original) => None,
            None => Some(original),
        }
    }

    /// Translates a client's URI to the server's URI if it matches a renamed URI template. Also
    /// returns the index of the alias for the template.
    pub(super) fn expanded(&self, uri: &str) -> Option<(usize, String)> {
        let mut templates = self.templates.iter();
        templates.find_map(|(place, template)| Some((*place, template.original_of(uri)?)))
    }

    /// Returns `true` if `uri` may be a different spelling of the original URI of a renamed
    /// resource, so that a server could resolve it to this resource. Does not compare the exact
    /// text of `uri`, which the caller must do.
    pub(super) fn may_be_read_as_renamed(&self, uri: &str) -> bool {
        self.may_be_read_as(uri, |reading| self.client_uri(reading).is_some())
    }

    /// Returns `true` if `uri` may be a spelling of the original URI of a resource that has its own
    /// alias and is renamed by it. Called with URIs that the alias of a URI template has translated
    /// to the server's URIs.
    pub(super) fn may_be_expanded_to_renamed(&self, uri: &str) -> bool {
        let is_renamed =
            |reading: &str| self.of_original(reading).is_some_and(|(_, alias)| alias.is_renamed());
        self.may_be_read_as(uri, is_renamed)
    }

    fn may_be_read_as(&self, uri: &str, is_renamed: impl Fn(&str) -> bool) -> bool {
        if !self.aliases.iter().any(Alias::is_renamed) {
            return false;
        }
        // If a URI cannot be read, assume that it may be equivalent to any other URI.
        let Some(readings) = Readings::of(uri) else { return true };
        self.readings.contains(uri)
            || readings
                .all()
                .any(|reading| self.readings.contains(&reading) || is_renamed(&reading))
    }

    /// Returns the URI by which clients know the server's resource `original`. Returns `None` if no
    /// alias changes the URI.
    pub(super) fn client_uri(&self, original: &str) -> Option<String> {
        match self.of_original(original) {
            Some((_, alias)) => alias.is_renamed().then(|| alias.name.clone()),
            None => self.templates.iter().find_map(|(_, template)| template.client_uri(original)),
        }
    }

    /// Returns all URIs by which clients can know the server's resource `original`.
    pub(super) fn uris_of(&self, original: &Arc<str>) -> Vec<Arc<str>> {
        let shown = self.templates.iter().filter_map(|(_, template)| template.client_uri(original));
        let expanded: Vec<Arc<str>> = shown.map(Into::into).collect();
        let is_same = || expanded.is_empty() && self.expanded(original).is_none();
        let known = match self.name_of(original) {
            Some(name) if name != &**original => Some(name.into()),
            Some(_) if self.of_original(original).is_some() || is_same() => Some(original.clone()),
            _ => None,
        };
        known.into_iter().chain(expanded).collect()
    }
}

// === impl PatternWatches ===

impl PatternWatches {
    fn new<'a>(originals: impl Iterator<Item = &'a str>) -> Self {
        let originals = originals.enumerate().map(|(place, name)| (place, name.to_owned()));
        let (templates, plain) = originals.partition(|(_, name)| name.contains('{'));
        let [plain, templates] = [plain, templates].map(|of| PatternWatch::new(Originals(of)));
        Self { plain, templates }
    }
}

impl Default for PatternWatches {
    fn default() -> Self {
        Self::new(std::iter::empty())
    }
}

// === impl Originals ===

impl WatchedNames for Originals {
    fn see(&mut self, name: &str) {
        self.0.retain(|(_, original)| original != name);
    }

    fn is_found(&self) -> bool {
        self.0.is_empty()
    }
}

// === impl Alias ===

impl Alias {
    pub(super) fn is_renamed(&self) -> bool {
        self.name != self.original
    }
}

// === impl AliasedSchema ===

impl AliasedSchema {
    /// Returns the rewritten form of an input schema. If the schema equals the previous one,
    /// returns the cached form. Otherwise, calls `make` without holding the lock, and caches the
    /// schema that it returns.
    pub(super) fn of(
        &self,
        schema: &Arc<JsonObject>,
        make: impl FnOnce() -> JsonObject,
    ) -> Arc<JsonObject> {
        let last = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last().clone();
        if let Some((seen, shown)) = known
            && (Arc::ptr_eq(&seen, schema) || seen == *schema)
        {
            return shown;
        }
        let shown = Arc::new(make());
        *last() = Some((schema.clone(), shown.clone()));
        shown
    }
}
