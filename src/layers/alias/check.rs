//! Checks aliases, and converts them to the internal form of the alias layer.

use std::collections::HashSet;

use super::{
    AliasErrorKind as Kind, AliasErrors, ArgumentAlias, PromptAlias, ResourceAlias, ToolAlias,
    arguments::{Argument, Arguments},
    error::AliasError,
    names::Alias,
    template::Template,
};
use crate::{
    message::ItemKind,
    names::{is_separator, is_tool_name},
};

/// Checks the aliases of one kind of item, such as tools, and converts them to [`Alias`] values.
/// Collects the errors of all aliases.
pub(super) struct Checking {
    list: ItemKind,
    /// The index of the alias that is checked next.
    index: usize,
    originals: HashSet<String>,
    names: HashSet<String>,
    errors: Vec<AliasError>,
}

// === impl Checking ===

impl Checking {
    pub(super) fn new(list: ItemKind) -> Self {
        let (originals, names) = (HashSet::new(), HashSet::new());
        Self { list, index: 0, originals, names, errors: Vec::new() }
    }

    pub(super) fn end(self) -> Result<(), AliasErrors> {
        AliasErrors::check(self.errors)
    }

    pub(super) fn tool(&mut self, alias: ToolAlias, separator: &str) -> Alias {
        // An invalid separator is ignored.
        let separator = if is_separator(separator) { separator } else { "" };
        if let Some(name) = &alias.name
            && !name.trim().is_empty()
            && !is_tool_name(name, separator)
        {
            let (name, separator) = (name.clone(), separator.to_owned());
            self.mistake(&["name"], Kind::IllegalName { name, separator });
        }
        let arguments = self.arguments(alias.arguments);
        Alias {
            title: alias.title,
            description: alias.description,
            annotations: alias.annotations,
            arguments,
            ..self.known_as("name", alias.original, alias.name)
        }
    }

    pub(super) fn prompt(&mut self, alias: PromptAlias) -> Alias {
        Alias {
            title: alias.title,
            description: alias.description,
            ..self.known_as("name", alias.original, alias.name)
        }
    }

    pub(super) fn resource(&mut self, alias: ResourceAlias) -> Alias {
        if let Some(uri) = &alias.uri
            && *uri != alias.original
            && (uri.contains('{') || alias.original.contains('{'))
            && Template::new(&alias.original, uri).is_none()
        {
            let (original, uri) = (alias.original.clone(), uri.clone());
            self.mistake(&["uri"], Kind::OtherTemplate { original, uri });
        }
        Alias {
            label: alias.name,
            title: alias.title,
            description: alias.description,
            ..self.known_as("uri", alias.original, alias.uri)
        }
    }

    /// Creates an alias for the item `original`. Clients see the item under `name`, which defaults
    /// to `original`. Records an error if one of the two names is blank, or if an earlier alias
    /// already uses one of them.
    fn known_as(&mut self, key: &str, original: String, name: Option<String>) -> Alias {
        let given = name.is_some();
        let name = name.unwrap_or_else(|| original.clone());
        if original.trim().is_empty() {
            self.mistake(&["original"], Kind::Blank);
        } else if !self.originals.insert(original.clone()) {
            self.mistake(&["original"], Kind::DuplicateOriginal { original: original.clone() });
        } else if name.trim().is_empty() {
            self.mistake(&[key], Kind::Blank);
        } else if !self.names.insert(name.clone()) {
            let key = if given { key } else { "original" };
            self.mistake(&[key], Kind::DuplicateName { name: name.clone() });
        }
        self.index += 1;
        Alias { original, name, ..Alias::default() }
    }

    fn arguments(&mut self, aliases: Vec<(String, ArgumentAlias)>) -> Arguments {
        let (mut originals, mut names) = (HashSet::new(), HashSet::new());
        let arguments = aliases.into_iter().map(|(original, alias)| {
            if !originals.insert(original.clone()) {
                let kind = Kind::DuplicateOriginal { original: original.clone() };
                self.mistake(&["arguments", &original], kind);
            }
            if alias.hide {
                let meaningless = [
                    ("rename", alias.rename.is_some()),
                    ("description", alias.description.is_some()),
                ];
                for (key, _) in meaningless.into_iter().filter(|(_, is_set)| *is_set) {
                    self.mistake(&["arguments", &original, key], Kind::Meaningless { key });
                }
            }
            let name = alias.rename.unwrap_or_else(|| original.clone());
            if name.trim().is_empty() && name != original {
                self.mistake(&["arguments", &original, "rename"], Kind::Blank);
            } else if !alias.hide && !names.insert(name.clone()) {
                let kind = Kind::DuplicateName { name: name.clone() };
                self.mistake(&["arguments", &original, "rename"], kind);
            }
            Argument {
                name: (!alias.hide).then_some(name),
                default: alias.default,
                description: alias.description,
                original,
            }
        });
        Arguments::new(arguments.collect())
    }

    fn mistake(&mut self, keys: &[&str], kind: Kind) {
        self.errors.push(AliasError::new(self.list, self.index, keys, kind));
    }
}
