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

/// The aliases of one kind of things.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasTable {
    aliases: Vec<Alias>,
    by_original: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
    /// By place.
    templates: Vec<(usize, Template)>,
    /// How else the originals may be read that have other names, if they are URIs.
    readings: HashSet<String>,
    /// Who looks for the originals in lists: resources and their templates are
    /// listed apart.
    lookouts: Arc<PatternWatches>,
}

#[derive(Debug)]
struct PatternWatches {
    plain: PatternWatch<Originals>,
    templates: PatternWatch<Originals>,
}

/// What was not seen that has an alias, by the place of that.
#[derive(Debug)]
pub(super) struct Originals(pub(super) Vec<(usize, String)>);

/// How clients see one thing.
#[derive(Clone, Debug, Default)]
pub(super) struct Alias {
    /// The name or URI by which the server knows it.
    pub(super) original: String,
    /// The one by which clients know it.
    pub(super) name: String,
    /// The name of a resource, which is not what it is known by.
    pub(super) label: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) annotations: Option<ToolAnnotations>,
    pub(super) arguments: Arguments,
    /// The input schema that was last seen, and what clients see of it.
    pub(super) schema: AliasedSchema,
}

/// A schema and what was made of it, so that most listings need not.
#[derive(Clone, Debug, Default)]
pub(super) struct AliasedSchema(Arc<Mutex<Option<SchemaPair>>>);

type SchemaPair = (Arc<JsonObject>, Arc<JsonObject>);

/// What clients mean by a name.
pub(super) enum Meaning<'a> {
    /// What this alias stands for.
    Alias(usize, &'a Alias),
    /// Nothing: the server has something of this name, which has another one.
    Nothing,
    /// Whatever the server means by it.
    Same,
}

// === impl AliasTable ===

impl AliasTable {
    /// Collects aliases, no two of one original and no two of one name.
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

    /// Collects aliases of URIs, of which none is reached by another spelling.
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

    /// What is known by another name, as the server and as clients call it.
    pub(super) fn pairs(&self) -> Vec<(&str, &str)> {
        self.aliases.iter().map(|alias| (&*alias.original, &*alias.name)).collect()
    }

    pub(super) fn alias(&self, place: usize) -> &Alias {
        &self.aliases[place]
    }

    /// Who looks for the originals in lists of this kind.
    pub(super) fn lookout(&self, kind: ItemKind) -> &PatternWatch<Originals> {
        match kind {
            ItemKind::ResourceTemplate => &self.lookouts.templates,
            ItemKind::Tool | ItemKind::Prompt | ItemKind::Resource => &self.lookouts.plain,
        }
    }

    /// What clients mean by a name.
    pub(super) fn meaning(&self, name: &str) -> Meaning<'_> {
        match self.by_name.get(name) {
            Some(&place) => Meaning::Alias(place, &self.aliases[place]),
            None if self.by_original.contains_key(name) => Meaning::Nothing,
            None => Meaning::Same,
        }
    }

    /// The alias of what the server calls so.
    pub(super) fn of_original(&self, original: &str) -> Option<(usize, &Alias)> {
        let place = *self.by_original.get(original)?;
        Some((place, &self.aliases[place]))
    }

    /// The alias that takes a name away from what the server calls so.
    pub(super) fn instead_of(&self, original: &str) -> Option<&Alias> {
        if self.by_original.contains_key(original) {
            return None;
        }
        self.by_name.get(original).map(|&place| &self.aliases[place])
    }

    /// What clients call what the server calls `original`, if they can ask for it.
    pub(super) fn name_of<'a>(&'a self, original: &'a str) -> Option<&'a str> {
        match self.of_original(original) {
            Some((_, alias)) => Some(&alias.name),
            None if self.by_name.contains_key(original) => None,
            None => Some(original),
        }
    }

    /// The server's URI for one of a template that clients see otherwise, and the
    /// place of the alias.
    pub(super) fn expanded(&self, uri: &str) -> Option<(usize, String)> {
        let mut templates = self.templates.iter();
        templates.find_map(|(place, template)| Some((*place, template.original_of(uri)?)))
    }

    /// Whether a server may read a URI as one of its own that clients know by another
    /// one; what it is as it is written is known.
    pub(super) fn may_be_read_as_renamed(&self, uri: &str) -> bool {
        self.may_be_read_as(uri, |reading| self.client_uri(reading).is_some())
    }

    /// The same for the URI of a server that one of a template stands for, which may be
    /// read as others of that.
    pub(super) fn may_be_expanded_to_renamed(&self, uri: &str) -> bool {
        let is_renamed =
            |reading: &str| self.of_original(reading).is_some_and(|(_, alias)| alias.is_renamed());
        self.may_be_read_as(uri, is_renamed)
    }

    fn may_be_read_as(&self, uri: &str, is_renamed: impl Fn(&str) -> bool) -> bool {
        if !self.aliases.iter().any(Alias::is_renamed) {
            return false;
        }
        // What is read as nothing may be read as anything.
        let Some(readings) = Readings::of(uri) else { return true };
        self.readings.contains(uri)
            || readings
                .all()
                .any(|reading| self.readings.contains(&reading) || is_renamed(&reading))
    }

    /// The clients' URI for one of the server's; `None` if it is the same, or means
    /// something else to them.
    pub(super) fn client_uri(&self, original: &str) -> Option<String> {
        match self.of_original(original) {
            Some((_, alias)) => alias.is_renamed().then(|| alias.name.clone()),
            None => self.templates.iter().find_map(|(_, template)| template.client_uri(original)),
        }
    }

    /// All URIs that clients may know a resource by.
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
    /// What clients see of a schema, made of it unless it was already; nobody waits
    /// for that who needs it of another.
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
