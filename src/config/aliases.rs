//! Reads the `[[aliases]]` section, and the `[[backends.aliases]]` tables of each backend.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    annotations::AnnotationsTable, literal::Literal, read::Reader, secret::Secret,
    set_some::SetSome,
};
use crate::{
    alias::{AliasErrors, AliasLayer, ArgumentAlias, PromptAlias, ResourceAlias, ToolAlias},
    composite::Segment,
    message::ItemKind,
};

/// The key of the `[[aliases]]` section, and of the array of aliases in the table of a backend.
pub(super) const SECTION: &str = "aliases";

/// The keys of an alias that contain the original name or URI of the aliased item. Each alias has
/// exactly one of these keys. It determines whether the alias is for a tool, a prompt or a
/// resource.
const KINDS: [&str; 4] = ["tool", "from", "prompt", "resource"];

/// Changes how clients see a tool, prompt or resource: its name or URI, its title and description,
/// and the arguments and annotations of a tool.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct AliasTable {
    /// The original name of the tool, which the alias replaces.
    tool: Option<String>,
    /// An alternative key for `tool`.
    from: Option<String>,
    /// The original name of the prompt, which the alias replaces.
    prompt: Option<String>,
    /// The original URI or URI template of the resource.
    resource: Option<String>,
    /// The new name of the tool, prompt or resource, as clients see it.
    name: Option<String>,
    /// An alternative key for `name`.
    to: Option<String>,
    /// The new URI or URI template of the resource, as clients see it.
    uri: Option<String>,
    /// The new title, which replaces the backend's title.
    title: Option<String>,
    /// The new description, which replaces the backend's description.
    description: Option<String>,
    /// Annotations of the tool, which override the backend's annotations.
    annotations: Option<AnnotationsTable>,
    /// Changes to the arguments of the tool. The keys are the original argument names.
    arguments: Option<BTreeMap<String, ArgumentTable>>,
}

/// Changes how clients see an argument of a tool.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct ArgumentTable {
    /// Whether to hide the argument from clients. Clients cannot set a hidden argument.
    hide: Option<bool>,
    /// The new name of the argument, as clients see it.
    rename: Option<String>,
    /// The value that the backend receives if the client does not set the argument.
    default: Option<Secret<Literal<serde_json::Value>>>,
    /// The new description of the argument, which replaces the backend's description.
    description: Option<String>,
}

/// The aliases of one section, grouped by the type of the aliased item.
#[derive(Default)]
struct Aliases {
    tools: Vec<ToolAlias>,
    prompts: Vec<PromptAlias>,
    resources: Vec<ResourceAlias>,
}

/// The location of an alias in the configuration file: the index of its table in the section, and
/// the keys that contain its original and its new name, such as `tool` and `name`.
struct SourceLocation {
    index: usize,
    original: &'static str,
    name: &'static str,
}

/// Converts the alias tables in the array at `path` to an [`AliasLayer`], and reports errors in the
/// tables to `reader`. `separator` is the text between the name of a backend and the name of its
/// tool, such as `_`.
pub(super) fn build(
    tables: Vec<AliasTable>,
    separator: &str,
    path: &[Segment],
    reader: &mut Reader<'_, '_>,
) -> AliasLayer {
    let mut aliases = Aliases::default();
    let mut places = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let name = if table.name.is_none() && table.to.is_some() { "to" } else { "name" };
        let path = [path, &[index.into()]].concat();
        if let Some((key, original)) = table.original_name() {
            let original = original.to_owned();
            reader.note_tool_pattern([&*path, &[key.into()]].concat(), original);
        }
        if let Some(original) = table.kind(&path, reader) {
            places.push(SourceLocation { index, original, name });
            table.add_to(&mut aliases);
        }
    }
    let mut layer = AliasLayer::new().separator(separator);
    let mut take = |result: Result<AliasLayer, AliasErrors>, layer: &mut AliasLayer| match result {
        Ok(with) => *layer = with,
        Err(errors) => report(&errors, &places, path, reader),
    };
    take(layer.clone().tools(aliases.tools), &mut layer);
    take(layer.clone().prompts(aliases.prompts), &mut layer);
    take(layer.clone().resources(aliases.resources), &mut layer);
    layer
}

// === impl AliasTable ===

impl AliasTable {
    /// Returns the original name of the tool or prompt, and the key that contains the name, such as
    /// `tool`. Returns `None` if the alias is for a resource.
    fn original_name(&self) -> Option<(&'static str, &str)> {
        let names = [("tool", &self.tool), ("from", &self.from), ("prompt", &self.prompt)];
        names.into_iter().find_map(|(key, name)| Some((key, name.as_deref()?)))
    }

    /// Converts the table to an alias, and adds it to `aliases`.
    fn add_to(self, aliases: &mut Aliases) {
        let name = self.name.or(self.to);
        match (self.tool.or(self.from), self.prompt, self.resource) {
            (Some(original), ..) => {
                let mut alias = ToolAlias::new(original)
                    .set_some(name, ToolAlias::name)
                    .set_some(self.title, ToolAlias::title)
                    .set_some(self.description, ToolAlias::description)
                    .set_some(self.annotations.map(Into::into), ToolAlias::annotations);
                for (name, table) in self.arguments.unwrap_or_default() {
                    alias = alias.argument(name, table.into());
                }
                aliases.tools.push(alias);
            }
            (None, Some(original), _) => aliases.prompts.push(
                PromptAlias::new(original)
                    .set_some(name, PromptAlias::name)
                    .set_some(self.title, PromptAlias::title)
                    .set_some(self.description, PromptAlias::description),
            ),
            (None, None, original) => aliases.resources.push(
                ResourceAlias::new(original.unwrap_or_default())
                    .set_some(self.uri, ResourceAlias::uri)
                    .set_some(name, ResourceAlias::name)
                    .set_some(self.title, ResourceAlias::title)
                    .set_some(self.description, ResourceAlias::description),
            ),
        }
    }

    /// Returns the key that contains the original name: `tool`, `from`, `prompt` or `resource`.
    /// Reports keys that cannot be used with it, such as `arguments` for a prompt. Returns `None`
    /// if the table does not have exactly one of the four keys.
    fn kind(&self, path: &[Segment], reader: &mut Reader<'_, '_>) -> Option<&'static str> {
        let at = |key: &str| [path, &[key.into()]].concat();
        let is_mistaken = KINDS.into_iter().any(|key| reader.has_fault_in(&at(key)));
        let mut report = |key: &str, message: String| reader.report(&at(key), message);
        if self.name.is_some() && self.to.is_some() {
            report("to", "`to` is another name of `name`: expected one of them".to_owned());
        }
        if self.tool.is_some() && self.from.is_some() {
            report("from", "`from` is another name of `tool`: expected one of them".to_owned());
            return None;
        }
        let given = [&self.tool, &self.from, &self.prompt, &self.resource].map(Option::is_some);
        let kinds = KINDS.into_iter().zip(given);
        let mut kinds = kinds.filter_map(|(kind, is_given)| is_given.then_some(kind));
        let Some(kind) = kinds.next() else {
            if !is_mistaken {
                report("tool", "missing key `tool`, `prompt` or `resource`".to_owned());
            }
            return None;
        };
        if let Some(second) = kinds.next() {
            report(second, format!("`{kind}` and `{second}`: expected one of them"));
            return None;
        }
        let is_tool = matches!(kind, "tool" | "from");
        let meaningless = [
            ("uri", self.uri.is_some() && kind != "resource"),
            ("annotations", self.annotations.is_some() && !is_tool),
            ("arguments", self.arguments.is_some() && !is_tool),
        ];
        for (key, _) in meaningless.into_iter().filter(|(_, is_set)| *is_set) {
            let what = if is_tool { "tool" } else { kind };
            report(key, format!("`{key}` cannot be used for a {what}"));
        }
        Some(kind)
    }
}

impl From<ArgumentTable> for ArgumentAlias {
    fn from(table: ArgumentTable) -> Self {
        let alias = Self::new()
            .set_some(table.rename, Self::rename)
            .set_some(
                table.default.map(|default| default.into_exposed().into_inner()),
                Self::default,
            )
            .set_some(table.description, Self::description);
        if table.hide.unwrap_or_default() { alias.hide() } else { alias }
    }
}

/// Reports errors of the alias layer to `reader`, each at the key that caused it. `path` is the
/// path of the array of aliases in the configuration file.
fn report(
    errors: &AliasErrors,
    places: &[SourceLocation],
    path: &[Segment],
    reader: &mut Reader<'_, '_>,
) {
    for error in errors.iter() {
        let is_listed = |place: &&SourceLocation| match error.list() {
            ItemKind::Tool => matches!(place.original, "tool" | "from"),
            ItemKind::Prompt => place.original == "prompt",
            ItemKind::Resource | ItemKind::ResourceTemplate => place.original == "resource",
        };
        let mut places = places.iter().filter(is_listed);
        let Some(place) = places.nth(error.index()) else { continue };
        let keys = error.keys().iter().enumerate().map(|(depth, key)| match key.as_str() {
            "original" if depth == 0 => place.original.into(),
            "name" if depth == 0 => place.name.into(),
            key => key.into(),
        });
        let at = path.iter().cloned().chain([place.index.into()]).chain(keys);
        reader.report(&at.collect::<Vec<_>>(), error.kind().to_string());
    }
}
