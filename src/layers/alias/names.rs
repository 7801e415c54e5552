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
    /// Templates of renamed aliases, with the index of the alias.
    templates: Vec<(usize, Template)>,
    /// Other spellings of the renamed original URIs.
    readings: HashSet<String>,
    /// Tracks which originals have been listed. Resources and templates are listed separately.
    lookouts: Arc<PatternWatches>,
}

#[derive(Debug)]
struct PatternWatches {
    plain: PatternWatch<Originals>,
    templates: PatternWatch<Originals>,
}

/// Originals that have not been listed, with the index of their alias.
#[derive(Debug)]
pub(super) struct Originals(pub(super) Vec<(usize, String)>);

/// The checked alias of one item.
#[derive(Clone, Debug, Default)]
pub(super) struct Alias {
    /// The server's name or URI.
    pub(super) original: String,
    /// The client's name or URI.
    pub(super) name: String,
    /// The `name` of a resource, which does not identify it.
    pub(super) label: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) annotations: Option<ToolAnnotations>,
    pub(super) arguments: Arguments,
    /// The last input schema of the server, and its rewritten form.
    pub(super) schema: AliasedSchema,
}

/// A cache of the last rewritten schema, so that most lists need no rewriting.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasedSchema(Arc<Mutex<Option<SchemaPair>>>);

type SchemaPair = (Arc<JsonObject>, Arc<JsonObject>);

/// The meaning of a name in a client's request.
pub(super) enum Meaning<'a> {
    /// The item of this alias.
    Alias(usize, &'a Alias),
    /// No item: the server's item of this name is renamed.
    Nothing,
    /// The server's item of this name, if any.
    Same,
}

// === impl AliasTable ===

impl AliasTable {
    /// Creates the table of aliases, which must have distinct originals and names.
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

    /// Creates the table of aliases of URIs. Other spellings of renamed URIs are rejected.
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

    /// Returns the server's and the client's name of each alias.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.aliases.iter().map(|alias| (&*alias.original, &*alias.name)).collect()
    }

    pub(super) fn alias(&self, place: usize) -> &Alias {
        &self.aliases[place]
    }

    /// Returns the watch for originals in lists of this kind.
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

    /// Returns the alias of the server's item `original`, with its index.
    pub(super) fn of_original(&self, original: &str) -> Option<(usize, &Alias)> {
        let place = *self.by_original.get(original)?;
        Some((place, &self.aliases[place]))
    }

    /// Returns the alias that takes the name of a server's item without an alias.
    pub(super) fn instead_of(&self, original: &str) -> Option<&Alias> {
        if self.by_original.contains_key(original) {
            return None;
        }
        self.by_name.get(original).map(|&place| &self.aliases[place])
    }

    /// Returns the client's name of the server's item `original`, if clients can request it.
    pub(super) fn name_of<'a>(&'a self, original: &'a str) -> Option<&'a str> {
        match self.of_original(original) {
            Some((_, alias)) => Some(&alias.name),
            None if self.by_name.contains_key(original) => None,
            None => Some(original),
        }
    }

    /// Returns the server's URI of a client's URI that matches a renamed template, with the index
    /// of the alias.
    pub(super) fn expanded(&self, uri: &str) -> Option<(usize, String)> {
        let mut templates = self.templates.iter();
        templates.find_map(|(place, template)| Some((*place, template.original_of(uri)?)))
    }

    /// Returns `true` if a server may read a URI as another spelling of a renamed resource. The
    /// caller checks the URI as written.
    pub(super) fn may_be_read_as_renamed(&self, uri: &str) -> bool {
        self.may_be_read_as(uri, |reading| self.client_uri(reading).is_some())
    }

    /// Returns `true` if a server may read the URI that a template was translated to as a resource
    /// that is renamed by its own alias.
    pub(super) fn may_be_expanded_to_renamed(&self, uri: &str) -> bool {
        let is_renamed =
            |reading: &str| self.of_original(reading).is_some_and(|(_, alias)| alias.is_renamed());
        self.may_be_read_as(uri, is_renamed)
    }

    fn may_be_read_as(&self, uri: &str, is_renamed: impl Fn(&str) -> bool) -> bool {
        if !self.aliases.iter().any(Alias::is_renamed) {
            return false;
        }
        // A URI without readings may be read as any other.
        let Some(readings) = Readings::of(uri) else { return true };
        self.readings.contains(uri)
            || readings
                .all()
                .any(|reading| self.readings.contains(&reading) || is_renamed(&reading))
    }

    /// Returns the client's URI of a server's URI, or `None` if no alias changes it.
    pub(super) fn client_uri(&self, original: &str) -> Option<String> {
        match self.of_original(original) {
            Some((_, alias)) => alias.is_renamed().then(|| alias.name.clone()),
            None => self.templates.iter().find_map(|(_, template)| template.client_uri(original)),
        }
    }

    /// Returns all URIs by which clients may know a resource.
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
    /// Returns the rewritten schema, and calls `make` only if the schema has changed. The lock is
    /// not held during `make`.
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
