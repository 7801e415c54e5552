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
    /// The URI templates that aliases rename, each with the index of its alias.
    templates: Vec<(usize, Template)>,
    /// All spellings of the original URIs of renamed resources.
    readings: HashSet<String>,
    /// Watches that find aliases whose items are missing from the server's lists. Resources and URI
    /// templates have separate watches, because the server lists them separately.
    lookouts: Arc<PatternWatches>,
}

#[derive(Debug)]
struct PatternWatches {
    plain: PatternWatch<Originals>,
    templates: PatternWatch<Originals>,
}

/// The original names of aliased items that the server has not listed so far. Each name comes with
/// the index of its alias.
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
    /// The last input schema of the tool, and its rewritten form.
    pub(super) schema: AliasedSchema,
}

/// A cache of the last input schema of a tool and the rewritten form of the schema. Avoids
/// rewriting an unchanged schema whenever tools are listed.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasedSchema(Arc<Mutex<Option<SchemaPair>>>);

type SchemaPair = (Arc<JsonObject>, Arc<JsonObject>);

/// The item that a name in a client's request refers to.
pub(super) enum Meaning<'a> {
    /// The name refers to the item that has this alias. The number is the index of the alias in the
    /// table.
    Alias(usize, &'a Alias),
    /// The name refers to no item, because an alias renames the item that has this name on the
    /// server.
    Nothing,
    /// No alias changes the meaning of the name. It refers to the item that has this name on the
    /// server, if there is one.
    Same,
}

// === impl AliasTable ===

impl AliasTable {
    /// Creates a lookup table of aliases. Original names and client names must each be unique.
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

    /// Creates a lookup table of aliases of URIs. Unlike [`new`](Self::new), also stores the other
    /// spellings of the renamed URIs.
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

    /// Returns the watch that finds aliases whose items of this kind are missing from the server's
    /// lists.
    pub(super) fn pattern_watch(&self, kind: ItemKind) -> &PatternWatch<Originals> {
        match kind {
            ItemKind::ResourceTemplate => &self.lookouts.templates,
            ItemKind::Tool | ItemKind::Prompt | ItemKind::Resource => &self.lookouts.plain,
        }
    }

    /// Returns what a name in a client's request refers to.
    pub(super) fn meaning(&self, name: &str) -> Meaning<'_> {
        match self.by_name.get(name) {
            Some(&place) => Meaning::Alias(place, &self.aliases[place]),
            None if self.by_original.contains_key(name) => Meaning::Nothing,
            None => Meaning::Same,
        }
    }

    /// Returns the alias of the item that the server calls `original`, and the index of the alias.
    pub(super) fn of_original(&self, original: &str) -> Option<(usize, &Alias)> {
        let place = *self.by_original.get(original)?;
        Some((place, &self.aliases[place]))
    }

    /// Returns the alias that gives the name of the server's item `original` to another item, and
    /// so hides `original`. Returns `None` if no alias has this name, or if `original` has its own
    /// alias.
    pub(super) fn instead_of(&self, original: &str) -> Option<&Alias> {
        if self.by_original.contains_key(original) {
            return None;
        }
        self.by_name.get(original).map(|&place| &self.aliases[place])
    }

    /// Returns the client's name of the item that the server calls `original`. Returns `None` if
    /// clients cannot request the item.
    pub(super) fn name_of<'a>(&'a self, original: &'a str) -> Option<&'a str> {
        match self.of_original(original) {
            Some((_, alias)) => Some(&alias.name),
            None if self.by_name.contains_key(original) => None,
            None => Some(original),
        }
    }

    /// Translates a client's URI that matches a renamed template to the server's URI. Also returns
    /// the index of the alias of the template.
    pub(super) fn expanded(&self, uri: &str) -> Option<(usize, String)> {
        let mut templates = self.templates.iter();
        templates.find_map(|(place, template)| Some((*place, template.original_of(uri)?)))
    }

    /// Returns `true` if a server may treat a client's URI as another spelling of a renamed
    /// resource's original URI. Does not check the URI as it is written, which the caller must do.
    pub(super) fn may_be_read_as_renamed(&self, uri: &str) -> bool {
        self.may_be_read_as(uri, |reading| self.client_uri(reading).is_some())
    }

    /// Checks a URI that was translated with a template's alias. Returns `true` if a server may
    /// treat `uri` as the original URI of a resource that its own alias renames.
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

    /// Returns the client's URI of the resource that has the URI `original` on the server. Returns
    /// `None` if no alias changes the URI.
    pub(super) fn client_uri(&self, original: &str) -> Option<String> {
        match self.of_original(original) {
            Some((_, alias)) => alias.is_renamed().then(|| alias.name.clone()),
            None => self.templates.iter().find_map(|(_, template)| template.client_uri(original)),
        }
    }

    /// Returns all URIs under which clients may know the resource that has the URI `original` on
    /// the server.
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
    /// the cached form. Otherwise calls `make` to rewrite the schema, without holding the lock.
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
