//! Lookup tables between the server's names and the client's.

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

/// The aliases of one kind of item.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasTable {
    aliases: Vec<Alias>,
    by_original: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
    /// The renamed URI templates, each with the index of its alias.
    templates: Vec<(usize, Template)>,
    /// Equivalent spellings of the original URIs of renamed resources.
    readings: HashSet<String>,
    /// The watches that find aliases whose items are missing from the server's lists. There are
    /// two, because a server lists resources and URI templates separately.
    lookouts: Arc<PatternWatches>,
}

#[derive(Debug)]
struct PatternWatches {
    plain: PatternWatch<Originals>,
    templates: PatternWatch<Originals>,
}

/// The original names of aliased items that the server has not listed yet, each with the index of
/// its alias.
#[derive(Debug)]
pub(super) struct Originals(pub(super) Vec<(usize, String)>);

/// The checked alias of one item.
#[derive(Clone, Debug, Default)]
pub(super) struct Alias {
    /// The server's name or URI.
    pub(super) original: String,
    /// The client's name or URI.
    pub(super) name: String,
    /// The display name of a resource or template, which is identified by its URI instead.
    pub(super) label: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) annotations: Option<ToolAnnotations>,
    pub(super) arguments: Arguments,
    /// A cache of the tool's input schema and its rewritten form.
    pub(super) schema: AliasedSchema,
}

/// A cache of the last input schema of a tool and its rewritten form, so that an unchanged schema
/// is not rewritten for each list.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasedSchema(Arc<Mutex<Option<SchemaPair>>>);

type SchemaPair = (Arc<JsonObject>, Arc<JsonObject>);

/// The meaning of a name in a client's request.
pub(super) enum Meaning<'a> {
    /// The name belongs to this alias, and refers to the item that has the alias. The number is the
    /// index of the alias in the table.
    Alias(usize, &'a Alias),
    /// No item has this name for clients, because an alias renames the server's item of this name.
    Nothing,
    /// The name belongs to no alias, and no alias renames the server's item of this name. So if the
    /// server has an item of this name, the name refers to that item.
    Same,
}

// === impl AliasTable ===

impl AliasTable {
    /// Creates a lookup table of aliases. The original names must be unique, and so must the
    /// clients' names.
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

    /// Creates a lookup table of aliases of URIs, which also contains equivalent spellings of the
    /// renamed URIs.
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

    /// Returns the watch that finds aliases whose items are missing from the server's lists of this
    /// kind.
    pub(super) fn pattern_watch(&self, kind: ItemKind) -> &PatternWatch<Originals> {
        match kind {
            ItemKind::ResourceTemplate => &self.lookouts.templates,
            ItemKind::Tool | ItemKind::Prompt | ItemKind::Resource => &self.lookouts.plain,
        }
    }

    /// Returns the meaning of a name in a client's request.
    pub(super) fn meaning(&self, name: &str) -> Meaning<'_> {
        match self.by_name.get(name) {
            Some(&place) => Meaning::Alias(place, &self.aliases[place]),
            None if self.by_original.contains_key(name) => Meaning::Nothing,
            None => Meaning::Same,
        }
    }

    /// Returns the alias for the server's item `original`, and the index of the alias.
    pub(super) fn of_original(&self, original: &str) -> Option<(usize, &Alias)> {
        let place = *self.by_original.get(original)?;
        Some((place, &self.aliases[place]))
    }

    /// Returns the alias that hides the server's item `original` by giving its name to another
    /// item. Returns `None` if there is no such alias, or if `original` has an alias of its own.
    pub(super) fn instead_of(&self, original: &str) -> Option<&Alias> {
        if self.by_original.contains_key(original) {
            return None;
        }
        self.by_name.get(original).map(|&place| &self.aliases[place])
    }

    /// Returns the client's name of the server's item `original`, or `None` if clients cannot
    /// request the item.
    pub(super) fn name_of<'a>(&'a self, original: &'a str) -> Option<&'a str> {
        match self.of_original(original) {
            Some((_, alias)) => Some(&alias.name),
            None if self.by_name.contains_key(original) => None,
            None => Some(original),
        }
    }

    /// Translates a client's URI that matches a renamed template to the server's URI. Also returns
    /// the index of the template's alias.
    pub(super) fn expanded(&self, uri: &str) -> Option<(usize, String)> {
        let mut templates = self.templates.iter();
        templates.find_map(|(place, template)| Some((*place, template.original_of(uri)?)))
    }

    /// Returns `true` if a server may treat a client's URI as another spelling of a renamed
    /// resource's original URI. Only checks other spellings: the caller must check the URI as
    /// written.
    pub(super) fn may_be_read_as_renamed(&self, uri: &str) -> bool {
        self.may_be_read_as(uri, |reading| self.client_uri(reading).is_some())
    }

    /// Returns `true` if a server may treat `uri` as the original URI of a resource that an alias
    /// of its own renames. `uri` is a client's URI that a template alias has translated.
    pub(super) fn may_be_expanded_to_renamed(&self, uri: &str) -> bool {
        let is_renamed =
            |reading: &str| self.of_original(reading).is_some_and(|(_, alias)| alias.is_renamed());
        self.may_be_read_as(uri, is_renamed)
    }

    fn may_be_read_as(&self, uri: &str, is_renamed: impl Fn(&str) -> bool) -> bool {
        if !self.aliases.iter().any(Alias::is_renamed) {
            return false;
        }
        // A URI without readings may stand for any other URI.
        let Some(readings) = Readings::of(uri) else { return true };
        self.readings.contains(uri)
            || readings
                .all()
                .any(|reading| self.readings.contains(&reading) || is_renamed(&reading))
    }

    /// Returns the URI by which clients know the resource with the server's URI `original`, or
    /// `None` if no alias changes the URI.
    pub(super) fn client_uri(&self, original: &str) -> Option<String> {
        match self.of_original(original) {
            Some((_, alias)) => alias.is_renamed().then(|| alias.name.clone()),
            None => self.templates.iter().find_map(|(_, template)| template.client_uri(original)),
        }
    }

    /// Returns all URIs by which clients may know the resource with the server's URI `original`.
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
    /// Returns the rewritten form of an input schema. If the schema equals the last one, returns
    /// the cached form. Otherwise calls `make` to rewrite it, without holding the lock.
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
