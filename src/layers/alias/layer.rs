//! The layer that renames tools, prompts and resources.

use std::{fmt, ops::ControlFlow, sync::Arc};

use rmcp::model::{JsonObject, ToolAnnotations};
use tower_layer::Layer;

use super::{
    Alias, AliasErrors, PromptAlias, ResourceAlias, ToolAlias,
    check::Checking,
    defaults::{self, InvalidDefault},
    names::{Alias as Known, AliasTable, Meaning, Originals},
    schema,
};
use crate::{
    changes::Changes,
    intercept::{Intercept, Intercepted},
    message::{ItemKind, ItemMut, Refusal, Reply, Request, Subject},
    pattern_watch::{Missed, Page},
    suggest::{DidYouMean, nearest},
    warnings::Warnings,
};

/// A layer that changes the names, texts and arguments of tools, prompts and resources.
///
/// A new `AliasLayer` has no aliases and changes nothing. See the [module docs](crate::alias) for
/// details and an example.
#[derive(Clone, Default)]
pub struct AliasLayer(Arc<Aliases>);

#[derive(Clone, Default)]
struct Aliases {
    tools: AliasTable,
    prompts: AliasTable,
    /// The aliases of resources and of resource templates.
    resources: AliasTable,
    separator: String,
    owner: Option<String>,
    warnings: Warnings,
}

/// The state of a request that an [`AliasLayer`] needs to translate the reply to the request.
#[doc(hidden)]
#[derive(Debug)]
pub struct Memo(Remembered);

#[derive(Debug)]
enum Remembered {
    /// The layer has no aliases, and does not change the reply.
    Nothing,
    /// No information about the request is needed to translate the reply.
    Little,
    /// The request lists items of this kind. If a [`Page`] is present, the layer records which
    /// aliased items the reply contains. It can then warn about aliases of items that do not exist.
    List(ItemKind, Option<Page>),
    /// The request refers to an item that has an alias. Contains the kind of the item and the index
    /// of the alias.
    Alias(ItemKind, usize),
    /// The request refers to a resource whose URI matches an aliased resource template. Boxed
    /// because the value is large and such requests are rare.
    Expanded(Box<Expanded>),
}

/// The two URIs of a requested resource: `client_uri` is the client's URI, and `original` is the
/// URI that the server uses.
#[derive(Debug)]
struct Expanded {
    client_uri: String,
    original: String,
}

// === impl AliasLayer ===

impl AliasLayer {
    /// Creates a layer without aliases.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a separator that is allowed in the names of tools, such as `/` in `github/search`.
    /// Without a separator, the layer rejects an alias whose name contains `/`, because MCP does
    /// not allow this character. Use the separator of the [`Router`](crate::adapter::Router) below
    /// this layer.
    ///
    /// Call `separator` before [`tools`](Self::tools), which checks the names. A separator consists
    /// of 1 to 8 visible ASCII characters. Any other separator has no effect. Defaults to no
    /// separator.
    #[must_use]
    pub fn separator(mut self, separator: impl Into<String>) -> Self {
        self.aliases().separator = separator.into();
        self
    }

    /// Sets the aliases of tools.
    ///
    /// # Errors
    ///
    /// Returns all errors if any alias is invalid. An alias is invalid in the following cases:
    ///
    /// - Its name is blank or illegal. A legal name has 1 to 128 ASCII letters, digits, `_`, `-`,
    ///   `.` and [separators](Self::separator).
    /// - An earlier alias is for the same tool, or has the same name.
    /// - It renames an argument to a blank name.
    /// - It has two aliases for the same argument, or renames two arguments to the same name.
    /// - It hides an argument, and also sets a property that has no effect on hidden arguments,
    ///   such as a new name.
    pub fn tools(
        mut self,
        aliases: impl IntoIterator<Item = ToolAlias>,
    ) -> Result<Self, AliasErrors> {
        let mut checking = Checking::new(ItemKind::Tool);
        let separator = &self.0.separator;
        let aliases = aliases.into_iter().map(|alias| checking.tool(alias, separator)).collect();
        checking.end()?;
        self.aliases().tools = AliasTable::new(aliases);
        Ok(self)
    }

    /// Sets the aliases of prompts.
    ///
    /// # Errors
    ///
    /// Returns all errors if any alias is invalid. An alias for a prompt is invalid if its name is
    /// blank, or if an earlier alias is for the same prompt or has the same name.
    pub fn prompts(
        mut self,
        aliases: impl IntoIterator<Item = PromptAlias>,
    ) -> Result<Self, AliasErrors> {
        let mut checking = Checking::new(ItemKind::Prompt);
        let aliases = aliases.into_iter().map(|alias| checking.prompt(alias)).collect();
        checking.end()?;
        self.aliases().prompts = AliasTable::new(aliases);
        Ok(self)
    }

    /// Sets the aliases for resources and URI templates.
    ///
    /// # Errors
    ///
    /// Returns all errors if any alias is invalid. An alias is invalid in the following cases:
    ///
    /// - Its URI is blank.
    /// - An earlier alias is for the same resource, or has the same URI.
    /// - It changes a URI template after the first `{`. For example, an alias for `db://{table}`
    ///   can have the URI `shop://{table}`, but not `db://{name}`.
    pub fn resources(
        mut self,
        aliases: impl IntoIterator<Item = ResourceAlias>,
    ) -> Result<Self, AliasErrors> {
        let mut checking = Checking::new(ItemKind::Resource);
        let aliases = aliases.into_iter().map(|alias| checking.resource(alias)).collect();
        checking.end()?;
        self.aliases().resources = AliasTable::of_uris(aliases);
        Ok(self)
    }

    /// Sets a description of the server whose items are renamed, for example ``backend `github` ``.
    /// The [warnings](Self::warnings) of this layer contain the description, so that an operator
    /// with several alias layers knows which one a warning is about.
    #[must_use]
    pub fn of(mut self, owner: impl Into<String>) -> Self {
        self.aliases().owner = Some(owner.into());
        self
    }

    /// Returns warnings for the operator about aliases that do not match the server's items.
    ///
    /// An `AliasLayer` warns about the following mistakes:
    ///
    /// - The tool, prompt, resource or argument of an alias does not exist.
    /// - An alias has the name of another item.
    /// - A call cannot set a required argument, for example because an alias hides it and sets no
    ///   default.
    /// - The default of an argument does not match the input schema of the tool.
    ///
    /// The layer finds mistakes when it receives a list of items. It logs each warning once, and
    /// keeps at most 1000 warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.0.warnings.list()
    }

    /// Translates a server's name to the client's name. Returns the name in the alias for the item
    /// `original`, or `original` itself if the item has no alias.
    ///
    /// `name_of` returns `None` if clients cannot request the item: it has no alias, and an alias
    /// gives its name to a different item. Resource URIs that only match an aliased URI template
    /// are returned unchanged.
    ///
    /// ```
    /// use mcp_composite::{alias::{AliasLayer, ToolAlias}, message::ItemKind};
    ///
    /// let layer = AliasLayer::new().tools([ToolAlias::new("search_code").name("search")])?;
    /// let name_of = |original| layer.name_of(ItemKind::Tool, original);
    /// assert_eq!(name_of("search_code"), Some("search"));
    /// assert_eq!(name_of("fetch"), Some("fetch"));
    /// assert_eq!(name_of("search"), None);
    /// # Ok::<(), mcp_composite::alias::AliasErrors>(())
    /// ```
    #[must_use]
    pub fn name_of<'a>(&'a self, kind: ItemKind, original: &'a str) -> Option<&'a str> {
        self.0.of_kind(kind).name_of(original)
    }

    /// Translates a client's name to the server's name. This is the inverse of
    /// [`name_of`](Self::name_of).
    ///
    /// For example, an alias renames the tool `query` to `search`. `original_of` then returns
    /// `query` for `search`, and `None` for `query`, because clients can no longer call `query`.
    /// It returns names that occur in no alias unchanged. This includes resource URIs that only
    /// match an aliased URI template.
    #[must_use]
    pub fn original_of<'a>(&'a self, kind: ItemKind, name: &'a str) -> Option<&'a str> {
        match self.0.of_kind(kind).meaning(name) {
            Meaning::Alias(_, alias) => Some(&alias.original),
            Meaning::Nothing => None,
            Meaning::Same => Some(name),
        }
    }

    /// Returns the URIs by which clients know a resource. `uri` is the URI that the server uses for
    /// it.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn uris_of(&self, uri: &Arc<str>) -> Vec<Arc<str>> {
        self.0.resources.uris_of(uri)
    }

    /// Wraps a channel of change notifications so that it reports resources by the URIs that
    /// clients know. When a server reports to `changes` that a renamed resource was updated, the
    /// returned channel reports the new URI of the resource. Pass the returned channel to
    /// [`ServeService::changes`](crate::adapter::ServeService::changes), which notifies clients.
    #[must_use]
    pub fn changes(&self, changes: &Changes) -> Changes {
        if self.0.resources.is_empty() {
            return changes.clone();
        }
        let aliases = self.0.clone();
        changes.for_listeners(Arc::new(move |uri| aliases.resources.uris_of(uri)))
    }

    /// Returns a channel for the server below this layer, which forwards all notifications to
    /// `changes`. When the server reports an updated resource, the returned channel replaces the
    /// URI of the resource by the URI that clients know.
    ///
    /// Use `changes_below` instead of [`changes`](Self::changes) if other servers, which are not
    /// below this layer, also report to `changes`. Pass the returned channel to the
    /// [`RemoteService`](crate::adapter::RemoteService) below this layer.
    #[must_use]
    pub fn changes_below(&self, changes: &Changes) -> Changes {
        if self.0.resources.is_empty() {
            return changes.clone();
        }
        let aliases = self.0.clone();
        changes.for_reporters(Arc::new(move |uri| aliases.resources.uris_of(uri)))
    }

    /// Returns the aliases for modification. Does not affect services that the layer has already
    /// created.
    fn aliases(&mut self) -> &mut Aliases {
        Arc::make_mut(&mut self.0)
    }
}

impl<S> Layer<S> for AliasLayer {
    type Service = Alias<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Intercepted::new(self.clone(), inner)
    }
}

impl Intercept for AliasLayer {
    type Memo = Memo;

    #[inline]
    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, Memo> {
        if self.0.is_empty() {
            return ControlFlow::Continue(Memo(Remembered::Nothing));
        }
        self.0.on_request(request).map_continue(Memo)
    }

    #[inline]
    fn awaits_reply(&self, Memo(remembered): &Memo) -> bool {
        !matches!(remembered, Remembered::Nothing)
    }

    fn on_reply(&self, Memo(remembered): Memo, reply: &mut Reply) {
        self.0.on_reply(&remembered, reply);
    }
}

impl fmt::Debug for AliasLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AliasLayer")
            .field("tools", &self.0.tools.pairs())
            .field("prompts", &self.0.prompts.pairs())
            .field("resources", &self.0.resources.pairs())
            .finish_non_exhaustive()
    }
}

// === impl Aliases ===

impl Aliases {
    const fn of_kind(&self, kind: ItemKind) -> &AliasTable {
        match kind {
            ItemKind::Tool => &self.tools,
            ItemKind::Prompt => &self.prompts,
            ItemKind::Resource | ItemKind::ResourceTemplate => &self.resources,
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.prompts.is_empty() && self.resources.is_empty()
    }

    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, Remembered> {
        let (kind, name) = match request.subject() {
            Subject::Item(kind, name) => (kind, name),
            Subject::List(kind, cursor) => {
                let names = self.of_kind(kind);
                return ControlFlow::Continue(if names.is_empty() {
                    Remembered::Little
                } else {
                    Remembered::List(kind, names.pattern_watch(kind).page(cursor))
                });
            }
            Subject::Other => return ControlFlow::Continue(Remembered::Little),
        };
        let names = self.of_kind(kind);
        match names.meaning(name) {
            Meaning::Alias(index, alias) => {
                if !alias.arguments.is_empty()
                    && let Some(call) = request.tool_call_mut()
                    && let Err(violations) = alias.arguments.translate(&mut call.arguments)
                {
                    let tool = alias.name.clone().into();
                    return ControlFlow::Break(
                        Refusal::InvalidArguments { tool, violations }.into(),
                    );
                }
                if alias.is_renamed() {
                    request.set_subject(&*alias.original);
                }
                ControlFlow::Continue(Remembered::Alias(kind, index))
            }
            Meaning::Nothing => ControlFlow::Break(Reply::unknown(kind, name.to_owned())),
            Meaning::Same => {
                if kind.is_named() {
                    return ControlFlow::Continue(Remembered::Little);
                }
                let unknown = || ControlFlow::Break(Reply::unknown(kind, name.to_owned()));
                let Some((_, original)) = names.expanded(name) else {
                    // Reject the original URI of a renamed resource, in any spelling.
                    if names.client_uri(name).is_some() || names.may_be_read_as_renamed(name) {
                        return unknown();
                    }
                    return ControlFlow::Continue(Remembered::Little);
                };
                if names.may_be_expanded_to_renamed(&original) {
                    return unknown();
                }
                let client_uri = name.to_owned();
                request.set_subject(&*original);
                let expanded = Expanded { client_uri, original };
                ControlFlow::Continue(Remembered::Expanded(Box::new(expanded)))
            }
        }
    }

    fn on_reply(&self, remembered: &Remembered, reply: &mut Reply) {
        if let Some(refusal) = reply.refusal_mut() {
            self.translate(refusal, remembered);
            return;
        }
        match remembered {
            Remembered::List(kind, _) if reply.refuse_other_than_list(*kind) => (),
            Remembered::List(kind, Some(page)) if reply.lists().is_some() => {
                let mut names = Vec::new();
                reply.retain_items(|item| {
                    names.push(item.name().to_owned());
                    self.show(item)
                });
                let next = reply.page().and_then(|(_, next)| next);
                let missed = self.of_kind(*kind).pattern_watch(*kind).see(page, next, names);
                self.warn_missing(*kind, missed);
            }
            _ => reply.retain_items(|item| self.show(item)),
        }
        if !self.resources.is_empty() {
            reply.visit_uris(|uri| match remembered {
                Remembered::Expanded(expanded) if *uri == expanded.original => {
                    uri.clone_from(&expanded.client_uri);
                }
                _ => {
                    if let Some(client_uri) = self.resources.client_uri(uri) {
                        *uri = client_uri;
                    }
                }
            });
        }
    }

    /// Replaces the server's names of items and arguments in an error with the names that the
    /// client knows. `remembered` contains the state of the rejected request.
    fn translate(&self, refusal: &mut Refusal, remembered: &Remembered) {
        if let Refusal::InvalidArguments { tool, violations } = refusal
            && let Some((_, alias)) = self.tools.of_original(tool)
        {
            let withheld = alias.arguments.translate_violations(violations);
            if !withheld.is_empty() {
                let tool = &*alias.original;
                tracing::warn!(tool, violations = ?withheld, "an argument that an alias sets violates the schema of the tool");
            }
        }
        let Some(kind) = refusal.kind() else { return };
        let Some(name) = refusal.name_mut() else { return };
        if !kind.is_named()
            && !matches!(remembered, Remembered::Expanded(expanded) if *name == expanded.original)
            && let Some(client_uri) = self.resources.client_uri(name)
        {
            *name = client_uri.into();
            return;
        }
        match (self.of_kind(kind).name_of(name), remembered) {
            (_, Remembered::Expanded(expanded)) if *name == expanded.original => {
                *name = expanded.client_uri.clone().into();
            }
            (Some(known), _) if known != &**name => *name = known.to_owned().into(),
            (Some(_), _) => (),
            // If clients know another item by this name, use the name in the client's request.
            (None, Remembered::Alias(kind, index)) => {
                *name = self.of_kind(*kind).alias(*index).name.clone().into();
            }
            (None, _) => (),
        }
    }

    /// Replaces the name and the descriptive fields of a listed item with those of its alias.
    /// Returns `false` if the caller must remove the item from the list, because an alias of
    /// another item uses its name.
    fn show(&self, mut item: ItemMut<'_>) -> bool {
        let kind = item.kind();
        let names = self.of_kind(kind);
        let Some((_, alias)) = names.of_original(item.name()) else {
            let mut instead = names.instead_of(item.name());
            if let ItemMut::Resource(resource) = &mut item {
                if let Some(client_uri) = names.client_uri(&resource.uri) {
                    resource.uri = client_uri;
                    return true;
                }
                let expanded = names.expanded(&resource.uri);
                instead = instead.or_else(|| expanded.map(|(index, _)| names.alias(index)));
            }
            let Some(alias) = instead else { return true };
            self.warn(kind, alias, format_args!("another {kind} with this name is hidden"));
            return false;
        };
        match item {
            ItemMut::Tool(tool) => {
                if !alias.arguments.is_empty() {
                    tool.input_schema = alias
                        .schema
                        .of(&tool.input_schema, || self.show_arguments(alias, &tool.input_schema));
                }
                set(&mut tool.name, Some(&alias.name));
                put(&mut tool.title, alias.title.as_ref());
                put(&mut tool.description, alias.description.as_ref());
                if let Some(given) = &alias.annotations {
                    merge(tool.annotations.get_or_insert_default(), given);
                }
            }
            ItemMut::Prompt(prompt) => {
                set(&mut prompt.name, Some(&alias.name));
                put(&mut prompt.title, alias.title.as_ref());
                put(&mut prompt.description, alias.description.as_ref());
            }
            ItemMut::Resource(resource) => {
                set(&mut resource.uri, Some(&alias.name));
                set(&mut resource.name, alias.label.as_ref());
                put(&mut resource.title, alias.title.as_ref());
                put(&mut resource.description, alias.description.as_ref());
            }
            ItemMut::ResourceTemplate(template) => {
                set(&mut template.uri_template, Some(&alias.name));
                set(&mut template.name, alias.label.as_ref());
                put(&mut template.title, alias.title.as_ref());
                put(&mut template.description, alias.description.as_ref());
            }
        }
        true
    }

    /// Returns the input schema of a tool as clients see it. Logs a warning if the argument aliases
    /// conflict with the schema.
    fn show_arguments(&self, alias: &Known, schema: &JsonObject) -> JsonObject {
        let rewritten = schema::rewrite(schema, &alias.arguments);
        let declared: Vec<_> = rewritten.declared.iter().map(String::as_str).collect();
        let warn = |text: fmt::Arguments<'_>| self.warn(ItemKind::Tool, alias, text);
        for argument in alias.arguments.iter() {
            let original = &argument.original;
            if !declared.is_empty() && !declared.contains(&&**original) {
                let hint = DidYouMean(nearest(original, &declared));
                warn(format_args!("the tool has no argument `{original}`{hint}"));
            }
            if let Some(name) = &argument.name
                && argument.is_renamed()
                && rewritten.shadowed.contains(name)
            {
                warn(format_args!(
                    "argument `{original}` is renamed to `{name}`, which hides the argument of \
                     this name"
                ));
            }
        }
        for name in &rewritten.unset {
            warn(format_args!("argument `{name}` is required, but no caller can set it"));
        }
        for InvalidDefault { argument, path, violation } in
            defaults::invalid(schema, &alias.arguments)
        {
            let at = if path.is_empty() { path } else { format!(" at `{path}`") };
            warn(format_args!("the default of argument `{argument}` is invalid{at}: {violation}"));
        }
        rewritten.schema
    }

    fn warn_missing(&self, kind: ItemKind, missed: Option<Missed<Originals>>) {
        let Some(missed) = missed else { return };
        let names = missed.names();
        for (index, original) in &missed.sought.0 {
            let hint = DidYouMean(nearest(original, &names));
            let alias = self.of_kind(kind).alias(*index);
            self.warn(kind, alias, format_args!("{kind} not found{hint}"));
        }
    }

    fn warn(&self, kind: ItemKind, alias: &Known, text: fmt::Arguments<'_>) {
        let Known { name, original, .. } = alias;
        let owner = self.owner.as_ref().map(|owner| format!(" of {owner}")).unwrap_or_default();
        let renamed = if alias.is_renamed() { format!(" `{name}`") } else { String::new() };
        self.warnings.warn(format_args!("alias{renamed} of {kind} `{original}`{owner}: {text}"));
    }
}

/// Replaces `text` with `given`. Does nothing if `given` is `None`.
fn set<T: From<String>>(text: &mut T, given: Option<&String>) {
    if let Some(given) = given {
        *text = given.clone().into();
    }
}

/// Replaces the optional `text` with `given`. Does nothing if `given` is `None`.
fn put<T: From<String>>(text: &mut Option<T>, given: Option<&String>) {
    if let Some(given) = given {
        *text = Some(given.clone().into());
    }
}

/// Overwrites each annotation that is set in `given`, and leaves the other annotations unchanged.
fn merge(annotations: &mut ToolAnnotations, given: &ToolAnnotations) {
    fn over<T: Clone>(annotation: &mut Option<T>, given: Option<&T>) {
        if given.is_some() {
            *annotation = given.cloned();
        }
    }
    over(&mut annotations.title, given.title.as_ref());
    over(&mut annotations.read_only_hint, given.read_only_hint.as_ref());
    over(&mut annotations.destructive_hint, given.destructive_hint.as_ref());
    over(&mut annotations.idempotent_hint, given.idempotent_hint.as_ref());
    over(&mut annotations.open_world_hint, given.open_world_hint.as_ref());
}
