//! Lookup tables that translate between the server's names and the client's names.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use rmcp::model::{JsonObject, ToolAnnotations};

use super::{arguments::Arguments, template::Template};
use crate::{
    message::ItemKind,
    mutex::lock,
    pattern_watch::{PatternWatch, WatchedNames},
    uri::Readings,
};

/// The aliases of all items of one kind, such as all tools, with indices by name.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasTable {
    aliases: Vec<Alias>,
    by_original: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
    /// The renamed resource templates, each with the index of its alias in `aliases`.
    templates: Vec<(usize, Template)>,
    /// The original URIs of all renamed resources, in all equivalent spellings. Requests for these
    /// URIs are rejected, because clients must use the new URIs.
    readings: HashSet<String>,
    /// Detects aliases of items that the server does not list. Resources and resource templates are
    /// watched separately, because servers list them with different methods.
    lookouts: Arc<PatternWatches>,
}

#[derive(Debug)]
struct PatternWatches {
    plain: PatternWatch<Originals>,
    templates: PatternWatch<Originals>,
}

/// The aliased items that the server has not listed so far. Each entry contains the index of the
/// alias in the [`AliasTable`], and the original name of the item.
#[derive(Debug)]
pub(super) struct Originals(pub(super) Vec<(usize, String)>);

/// A validated alias: the new name and the other new properties of one item.
#[derive(Clone, Debug, Default)]
pub(super) struct Alias {
    /// The name or URI that the server uses for the item.
    pub(super) original: String,
    /// The name or URI that clients use for the item. Equal to `original` if the alias does not
    /// rename the item.
    pub(super) name: String,
    /// The new display name (the `name` field) of a resource or resource template. `None` leaves
    /// the display name unchanged.
    pub(super) label: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) annotations: Option<ToolAnnotations>,
    pub(super) arguments: Arguments,
    /// Caches the input schema that clients receive instead of the tool's own.
    pub(super) schema: AliasedSchema,
}

/// Caches the latest input schema of a tool together with the rewritten schema that clients
/// receive. An unchanged schema is therefore not rewritten each time the tool is listed.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasedSchema(Arc<Mutex<Option<SchemaPair>>>);

type SchemaPair = (Arc<JsonObject>, Arc<JsonObject>);

/// The item to which a name in a client's request refers.
pub(super) enum Meaning<'a> {
    /// The name refers to the item with this alias. Contains the index of the alias, and the alias.
    Alias(usize, &'a Alias),
    /// The name refers to no item, because it is the original name of a renamed item.
    Nothing,
    /// No alias uses the name, so it refers to the server's item of the same name, if there is one.
    Same,
}

// === impl AliasTable ===

impl AliasTable {
    /// Creates a lookup table from aliases. No two aliases may have the same original name or the
    /// same client name.
    pub(super) fn new(aliases: Vec<Alias>) -> Self {
        let entries = aliases.iter().enumerate();
        let by_original = entries.clone().map(|(index, a)| (a.original.clone(), index)).collect();
        let by_name = entries.clone().map(|(index, a)| (a.name.clone(), index)).collect();
        let templates = entries
            .filter(|(_, alias)| alias.is_renamed())
            .filter_map(|(index, alias)| {
                Some((index, Template::new(&alias.original, &alias.name)?))
            })
            .collect();
        let lookouts = Arc::new(PatternWatches::new(aliases.iter().map(|alias| &*alias.original)));
        Self { aliases, by_original, by_name, templates, readings: HashSet::new(), lookouts }
    }

    /// Creates a lookup table from aliases of resources. Unlike [`new`](Self::new), also stores all
    /// equivalent spellings of each renamed URI, so that clients cannot bypass the alias.
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

    /// Returns a pair for each alias: the server's name of the item, and the client's name.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.aliases.iter().map(|alias| (&*alias.original, &*alias.name)).collect()
    }

    pub(super) fn alias(&self, index: usize) -> &Alias {
        &self.aliases[index]
    }

    /// Returns the [`PatternWatch`] that detects aliases of items that the server does not list.
    /// Resource templates have a watch of their own.
    pub(super) fn pattern_watch(&self, kind: ItemKind) -> &PatternWatch<Originals> {
        match kind {
            ItemKind::ResourceTemplate => &self.lookouts.templates,
            ItemKind::Tool | ItemKind::Prompt | ItemKind::Resource => &self.lookouts.plain,
        }
    }

    /// Returns the item to which `name` refers if a client uses it in a request.
    pub(super) fn meaning(&self, name: &str) -> Meaning<'_> {
        match self.by_name.get(name) {
            Some(&index) => Meaning::Alias(index, &self.aliases[index]),
            None if self.by_original.contains_key(name) => Meaning::Nothing,
            None => Meaning::Same,
        }
    }

    /// Returns the alias of the item that the server calls `original`, and its index. Returns
    /// `None` if the item has no alias.
    pub(super) fn of_original(&self, original: &str) -> Option<(usize, &Alias)> {
        let index = *self.by_original.get(original)?;
        Some((index, &self.aliases[index]))
    }

    /// Returns the alias that hides the item `original` because it renames another item to
    /// `original`. Returns `None` if there is no such alias, or if the item has its own alias.
    pub(super) fn instead_of(&self, original: &str) -> Option<&Alias> {
        if self.by_original.contains_key(original) {
            return None;
        }
        self.by_name.get(original).map(|&index| &self.aliases[index])
    }

    /// Returns the client's name of the item that the server calls `original`. Returns `None` if
    /// clients cannot request the item, because an alias gives its name to another item.
    pub(super) fn name_of<'a>(&'a self, original: &'a str) -> Option<&'a str> {
        match self.of_original(original) {
            Some((_, alias)) => Some(&alias.name),
            None if self.by_name.contains_key(original) => None,
            None => Some(original),
        }
    }

    /// Converts a client's URI that matches a renamed resource template to the server's URI. Also
    /// returns the index of the template's alias. Returns `None` if the URI matches no renamed
    /// template.
    pub(super) fn expanded(&self, uri: &str) -> Option<(usize, String)> {
        let mut templates = self.templates.iter();
        templates.find_map(|(index, template)| Some((*index, template.original_of(uri)?)))
    }

    /// Returns `true` if the server could resolve `uri` to a renamed resource, because `uri` may be
    /// an equivalent spelling of its original URI. The caller must check separately whether `uri`
    /// is exactly the original URI.
    pub(super) fn may_be_read_as_renamed(&self, uri: &str) -> bool {
        self.may_be_read_as(uri, |reading| self.client_uri(reading).is_some())
    }

    /// Returns `true` if the server could resolve `uri` to a resource whose own alias sets a new
    /// URI. `uri` is the server's URI that the alias of a resource template produced from a
    /// client's URI.
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

    /// Returns the URI by which clients know the resource that has the URI `original` on the
    /// server. Returns `None` if no alias changes the URI.
    pub(super) fn client_uri(&self, original: &str) -> Option<String> {
        match self.of_original(original) {
            Some((_, alias)) => alias.is_renamed().then(|| alias.name.clone()),
            None => self.templates.iter().find_map(|(_, template)| template.client_uri(original)),
        }
    }

    /// Returns the URIs by which clients know the resource that has the URI `original` on the
    /// server. Empty if clients cannot request the resource.
    pub(super) fn uris_of(&self, original: &Arc<str>) -> Vec<Arc<str>> {
        let client_uris =
            self.templates.iter().filter_map(|(_, template)| template.client_uri(original));
        let expanded: Vec<Arc<str>> = client_uris.map(Into::into).collect();
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
        let originals = originals.enumerate().map(|(index, name)| (index, name.to_owned()));
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
    /// Returns the rewritten schema for `schema`, the tool's current input schema. If the cache
    /// contains this schema, returns the cached result. Otherwise calls `make`, and caches the
    /// schema that it returns.
    pub(super) fn of(
        &self,
        schema: &Arc<JsonObject>,
        make: impl FnOnce() -> JsonObject,
    ) -> Arc<JsonObject> {
        let last = || lock(&self.0);
        let known = last().clone();
        if let Some((original, rewritten)) = known
            && (Arc::ptr_eq(&original, schema) || original == *schema)
        {
            return rewritten;
        }
        let rewritten = Arc::new(make());
        *last() = Some((schema.clone(), rewritten.clone()));
        rewritten
    }
}
