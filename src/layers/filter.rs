//! Allows or hides tools, prompts and resources by name, URI or annotation.
//!
//! A [`FilterLayer`] allows tools, prompts, resources and resource templates by name or URI, and
//! tools also by their annotations. It hides all other items: they are not listed, and the filter
//! rejects requests to call, get, read, subscribe to or complete them (`tools/call`, `prompts/get`,
//! `resources/read`, `skills/get`, directory reads, subscriptions and completions). It replies like
//! a [`Router`](crate::adapter::Router) to which the item is unknown. Requests to unsubscribe are
//! always allowed.
//!
//! A client may be able to distinguish hidden items from items that do not exist, because the
//! server behind a [`FilterLayer`] may use a different error message for unknown items than the
//! filter.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{filter::FilterLayer, message::{Reply, Request}, pattern::Selection};
//! use rmcp::model::{CallToolResult, ListToolsResult, Tool, ToolAnnotations};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! async fn server(request: Request) -> Result<Reply, Infallible> {
//!     let tool = |name| Tool::new(name, "A tool", std::sync::Arc::default());
//!     let looks = ToolAnnotations::new().read_only(true);
//!     Ok(match request.lists_tools() {
//!         true => ListToolsResult::with_all_items(vec![
//!             tool("get_issue").with_annotations(looks.clone()),
//!             tool("get_secret").with_annotations(looks),
//!             tool("drop_table"),
//!         ])
//!         .into(),
//!         false => CallToolResult::success(vec![]).into(),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let filter = FilterLayer::new()
//!     .tools(Selection::default().deny(["*_secret"])?)
//!     .hide_destructive(true);
//! let service = ServiceBuilder::new().layer(filter).service_fn(server);
//!
//! let reply = service.clone().oneshot(Request::list_tools()).await?;
//! let tools = &reply.tools().unwrap().tools;
//! assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["get_issue"]);
//!
//! let reply = service.clone().oneshot(Request::call_tool("get_issue")).await?;
//! assert!(reply.error().is_none());
//! let reply = service.oneshot(Request::call_tool("drop_table")).await?;
//! assert_eq!(reply.error().unwrap().message, "unknown tool `drop_table`");
//! # Ok(())
//! # }
//! ```
//!
//! # Annotations
//!
//! Lists of tools contain annotations, but tool calls do not. If a rule depends on annotations, a
//! [`FilterLayer`] therefore lists the tools of the inner service, and caches them in a
//! [catalog](crate::catalog):
//!
//! - If the catalog does not contain a called tool, the filter lists the tools. If listing fails,
//!   or if the server does not list the tool, the filter rejects the call.
//! - After the [epoch](FilterLayer::epoch) is bumped, the filter lists the tools again before it
//!   checks the next call. If listing fails, the filter uses the annotations that it knew before.
//! - If several tools have the same name, a call could reach any of them. The filter rejects the
//!   call unless it allows all of these tools.
//!
//! If no rule of a [`FilterLayer`] depends on annotations, the filter does not list tools and needs
//! no runtime.
//!
//! # URIs
//!
//! A URI can be spelled in several ways. To prevent clients from bypassing a rule with another
//! spelling, a [`FilterLayer`] applies its rules to the URI as the client wrote it, and to its
//! other spellings:
//!
//! - The rules must allow the URI as written, and also in the form to which URL parsers and file
//!   systems resolve it. The resolved form has a lower-case scheme, no needless escapes, and no `.`
//!   and `..` in the path. This prevents `file:///a/../secret` and `file:///%73ecret` from
//!   bypassing a rule for `file:///secret`.
//! - The rules must not deny any other spelling that servers commonly treat as the same URI. For
//!   example, `file:/secret`, `file://localhost/secret`, `file:///secret/` and `file:////secret`
//!   are spellings of `file:///secret`, and `https://me@H.:0443/x` is a spelling of `https://h/x`.
//!   Spellings can also differ in the notation of an IP address, in the fragment, and in escapes
//!   such as `%C3%A9` for `é`.
//!
//! A [`FilterLayer`] always hides a URI that contains control characters or is surrounded by white
//! space, because parsers remove these characters. If a pattern without wildcards denies a URI, it
//! denies all spellings of the URI, whichever spelling the pattern uses. Write all other patterns
//! in the usual spelling: scheme and host in lower case, no `..`, no needless escapes, and escapes
//! in upper case. International host names are compared as written, so deny both `bücher.example`
//! and `xn--bcher-kva.example`.
//!
//! In a [`FilterLayer`], prefer allow lists to deny lists. A server may accept further URIs of a
//! resource that the filter cannot know, for example with another host. A server may also accept
//! further names of a tool, for example in another letter case.
//!
//! To hide a URI template together with the resources to which it expands, hide both: for
//! `db://{table}`, also hide the resources `db://*`. The [rules for
//! templates](FilterLayer::resource_templates) do not apply to resources.
//!
//! A completion request refers to a resource template by its text, such as `db://{table}`. If this
//! text contains no `{`, it could also be the URI of a resource. In this case, a [`FilterLayer`]
//! allows the request only if the rules for templates and the rules for resources both allow it.
//!
//! A [`FilterLayer`] removes a value from a completion result if the template could expand to a
//! hidden resource with this value. Clients can combine the value with any values for the other
//! arguments of the template, so the filter considers all combinations: `{host}` can be any text
//! without `/`, and `{+path}` can be any text. If resources are allowed by URI, the patterns must
//! allow all these expansions. For example, if the pattern `docs://*/public` is allowed, the value
//! `public` for `path` in `docs://{host}/{path}` is kept.
//!
//! # What the filter does not check
//!
//! A [`FilterLayer`] does not check the contents of allowed items, even if the contents have a
//! different URI. It forwards tasks, resource links in tool results, and requests that MCP does not
//! define.

mod completion;

use std::{collections::HashSet, fmt, ops::ControlFlow, sync::Arc};

use rmcp::model::{ClientRequest, ServerResult, Tool};
use tower_layer::Layer;

use self::completion::Completion;
use crate::{
    catalog::{CatalogSettings, Known, Needs, Tools, catalog_setters},
    intercept::{Informed, InterceptInformed},
    message::{ItemKind, ItemMut, Reply, Request, Subject},
    pattern::{Patterns, Selection, Unmatched},
    pattern_watch::{Missed, Page, PatternWatch},
    uri::{self, Readings},
    warnings::Warnings,
};

/// A layer that hides tools, prompts and resources of the wrapped service from clients.
///
/// A new `FilterLayer` allows all items. See the [module docs](crate::filter) for details and an
/// example.
#[derive(Clone, Default)]
pub struct FilterLayer {
    settings: Settings,
    /// The tool patterns of other layers, with the names of the settings that contain them. They
    /// hide no tools. The filter logs a warning if one of them matches no tool.
    mentioned: Vec<(&'static str, Patterns)>,
    warnings: Warnings,
    pub(crate) catalogs: CatalogSettings,
}

/// Middleware that hides tools, prompts and resources of the wrapped service. Created by
/// [`FilterLayer`].
pub type Filter<S> = Informed<FilterRule, S>;

/// The implementation of a [`Filter`].
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct FilterRule(
    // `None` if the layer allows all items.
    Option<Arc<Rule>>,
);

#[derive(Debug)]
struct Rule {
    settings: Settings,
    lookouts: Vec<(ItemKind, PatternWatch<Vec<Unmatched>>)>,
    warnings: Warnings,
}

/// The state of a request that a [`FilterRule`] needs when the reply to the request arrives.
#[doc(hidden)]
#[derive(Debug)]
pub struct Memo(Remembered);

#[derive(Debug)]
enum Remembered {
    Nothing,
    /// The request lists items of this kind. If a [`Page`] is present, the filter also records
    /// which patterns match listed items. It can then warn about patterns that match nothing.
    List(ItemKind, Option<Page>),
    Completion(Box<Completion>),
}

#[derive(Clone, Debug, Default)]
struct Settings {
    tools: Selection,
    prompts: Selection,
    resources: Selection,
    resource_templates: Selection,
    /// The URIs in the deny list that contain no wildcard, in their canonical spellings.
    denied_uris: Arc<HashSet<String>>,
    read_only_only: bool,
    hide_destructive: bool,
    of: Option<String>,
}

// === impl FilterLayer ===

impl FilterLayer {
    /// Creates a layer that allows all items.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets which tools are allowed. The patterns match the names of tools. Defaults to all tools.
    #[must_use]
    pub fn tools(mut self, tools: Selection) -> Self {
        self.settings.tools = tools;
        self
    }

    /// Sets which prompts are allowed. The patterns match the names of prompts. Defaults to all
    /// prompts.
    #[must_use]
    pub fn prompts(mut self, prompts: Selection) -> Self {
        self.settings.prompts = prompts;
        self
    }

    /// Sets which resources are allowed. The patterns match [URIs](crate::filter#uris). Defaults to
    /// all resources.
    #[must_use]
    pub fn resources(mut self, resources: Selection) -> Self {
        let denied = resources.denied();
        let exact = denied.iter().filter(|pattern| denied.has_text(pattern));
        self.settings.denied_uris = Arc::new(exact.flat_map(uri::canonical).collect());
        self.settings.resources = resources;
        self
    }

    /// Sets which resource templates are allowed. The patterns match the text of a template, such
    /// as `db://{table}`, rather than its expansions. Defaults to all templates.
    #[must_use]
    pub fn resource_templates(mut self, templates: Selection) -> Self {
        self.settings.resource_templates = templates;
        self
    }

    /// If `true`, allows only tools that the server annotates as read-only (`readOnlyHint: true`).
    /// Defaults to `false`.
    #[must_use]
    pub const fn read_only_only(mut self, read_only_only: bool) -> Self {
        self.settings.read_only_only = read_only_only;
        self
    }

    /// If `true`, hides destructive tools. Defaults to `false`.
    ///
    /// MCP defines a tool as destructive unless it has the annotation `readOnlyHint: true` or
    /// `destructiveHint: false`. A tool without annotations is therefore destructive.
    #[must_use]
    pub const fn hide_destructive(mut self, hide_destructive: bool) -> Self {
        self.settings.hide_destructive = hide_destructive;
        self
    }

    /// Sets a description of the filtered server, for example ``backend `github` ``.
    /// [Warnings](Self::warnings) contain the description, so that operators can find the patterns.
    #[must_use]
    pub fn of(mut self, whose: impl Into<String>) -> Self {
        self.settings.of = Some(whose.into());
        self
    }

    /// Adds the tool patterns of other layers. The string is the name of the setting that contains
    /// the patterns. They hide no tools, but the filter [warns](Self::warnings) about each pattern
    /// that matches no tool.
    pub(crate) fn mentioned(
        mut self,
        patterns: impl IntoIterator<Item = (&'static str, Patterns)>,
    ) -> Self {
        self.mentioned.extend(patterns.into_iter().filter(|(_, patterns)| !patterns.is_empty()));
        self
    }

    /// Returns warnings for the operator about patterns that match no item. Such a pattern often
    /// contains a typing error.
    ///
    /// A [`FilterLayer`] checks the patterns for tools, prompts and resources once each, when it
    /// has first received a complete list of the items that is not empty. It logs each warning
    /// once, and keeps at most 1000 warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }

    /// Returns `true` if the filter hides the resource with this URI.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn hides_resource(&self, uri: &str) -> bool {
        !self.settings.permit(ItemKind::Resource, uri)
    }
}

catalog_setters! {
    /// If no epoch is set, the filter lists the tools again when its cached list is a minute old.
    /// It detects changed annotations only then.
    FilterLayer: catalogs
}

impl<S> Layer<S> for FilterLayer {
    type Service = Filter<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let (settings, warnings) = (self.settings.clone(), self.warnings.clone());
        let rule = FilterRule::new(settings, &self.mentioned, warnings);
        Informed::with_catalogs(rule, inner, self.catalogs.clone())
    }
}

impl fmt::Debug for FilterLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterLayer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

// === impl FilterRule ===

impl FilterRule {
    fn new(settings: Settings, mentioned: &[(&'static str, Patterns)], warnings: Warnings) -> Self {
        if settings.are_empty() && mentioned.is_empty() {
            return Self(None);
        }
        let kinds =
            [ItemKind::Tool, ItemKind::Prompt, ItemKind::Resource, ItemKind::ResourceTemplate];
        let lookouts = kinds.map(|kind| {
            let (expose, hide) = keys(kind);
            let selection = settings.selection(kind);
            let allow = Unmatched::new(expose, selection.allowed().cloned().unwrap_or_default());
            let mut sought = vec![allow, Unmatched::new(hide, selection.denied().clone())];
            if kind == ItemKind::Tool {
                let mentioned = mentioned.iter().cloned();
                sought
                    .extend(mentioned.map(|(setting, patterns)| Unmatched::new(setting, patterns)));
            }
            (kind, PatternWatch::new(sought))
        });
        let lookouts =
            lookouts.into_iter().filter(|(_, pattern_watch)| !pattern_watch.is_over()).collect();
        Self(Some(Arc::new(Rule { settings, lookouts, warnings })))
    }
}

impl InterceptInformed for FilterRule {
    /// The names that several tools of the server share, if one of these tools is hidden. The
    /// filter rejects calls to these names, because a call could reach the hidden tool.
    type Derived = HashSet<String>;
    type Memo = Memo;

    fn derive(&self, tools: &Tools) -> Self::Derived {
        let Some(rule) = &self.0 else { return HashSet::new() };
        if let Some(pattern_watch) = rule.pattern_watch(ItemKind::Tool) {
            rule.warn_unmatched(
                ItemKind::Tool,
                pattern_watch.see_all(tools.iter().map(|tool| &*tool.name)),
            );
        }
        let refused = tools.shadowed().filter(|tool| !rule.settings.permit_annotations(tool));
        refused.map(|tool| tool.name.to_string()).collect()
    }

    fn needs_tools(&self) -> bool {
        self.0.as_ref().is_some_and(|rule| rule.settings.judge_annotations())
    }

    #[inline]
    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        match &self.0 {
            Some(rule) if rule.settings.judge_annotations() => rule.needs(request),
            _ => Needs::Nothing,
        }
    }

    #[inline]
    fn on_request(
        &self,
        request: &mut Request,
        known: Option<&Arc<Known<Self::Derived>>>,
    ) -> ControlFlow<Reply, Self::Memo> {
        match &self.0 {
            Some(rule) => rule.on_request(request, known.map(|known| &**known)),
            None => ControlFlow::Continue(Memo(Remembered::Nothing)),
        }
    }

    #[inline]
    fn awaits_reply(&self, _: &Memo) -> bool {
        self.0.is_some()
    }

    fn on_reply(&self, Memo(memo): Memo, _: Option<&Arc<Known<Self::Derived>>>, reply: &mut Reply) {
        let Some(rule) = &self.0 else { return };
        let (kind, page) = match memo {
            // Do not look for unmatched patterns, because a directory lists only some items.
            Remembered::Nothing => {
                reply.retain_skills(|uri| rule.settings.permit(ItemKind::Resource, uri));
                return reply.retain_items(|item| rule.settings.permit_item(&item));
            }
            Remembered::Completion(completion) => {
                if let Some(ServerResult::CompleteResult(result)) = reply.result_mut() {
                    let permits = |uri: &str| rule.settings.permit(ItemKind::Resource, uri);
                    completion.retain(
                        &mut result.completion,
                        &rule.settings.resources,
                        &rule.settings.denied_uris,
                        permits,
                    );
                }
                return;
            }
            Remembered::List(kind, page) => (kind, page),
        };
        if rule.settings.concern(kind) && reply.refuse_other_than_list(kind) {
            return;
        }
        let Some((pattern_watch, page)) = rule.pattern_watch(kind).zip(page) else {
            return reply.retain_items(|item| rule.settings.permit_item(&item));
        };
        let mut names = Vec::new();
        reply.retain_items(|item| {
            names.push(item.name().to_owned());
            rule.settings.permit_item(&item)
        });
        if let Some((_, next)) = reply.page() {
            rule.warn_unmatched(kind, pattern_watch.see(&page, next, names));
        }
    }
}

// === impl Rule ===

impl Rule {
    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        match request.subject() {
            Subject::Item(ItemKind::Tool, name) if self.settings.permit(ItemKind::Tool, name) => {
                Needs::CurrentTool(name)
            }
            _ => Needs::Nothing,
        }
    }

    fn on_request(
        &self,
        request: &Request,
        known: Option<&Known<HashSet<String>>>,
    ) -> ControlFlow<Reply, Memo> {
        match request.subject() {
            Subject::Item(kind, name) if !request.unsubscribes() => {
                let is_permitted = self.settings.permit(kind, name)
                    && (kind != ItemKind::Tool || self.settings.permit_call(name, known));
                if is_permitted {
                    ControlFlow::Continue(Memo(self.completion(request)))
                } else {
                    ControlFlow::Break(Reply::unknown(kind, name.to_owned()))
                }
            }
            Subject::List(kind, cursor) => {
                let page =
                    self.pattern_watch(kind).and_then(|pattern_watch| pattern_watch.page(cursor));
                ControlFlow::Continue(Memo(Remembered::List(kind, page)))
            }
            Subject::Item(..) | Subject::Other => ControlFlow::Continue(Memo(Remembered::Nothing)),
        }
    }

    /// Decides whether the completion values in the reply must be filtered. Returns
    /// [`Remembered::Completion`] if the request completes an argument of a resource template and
    /// the rules hide resources. Otherwise, returns [`Remembered::Nothing`].
    fn completion(&self, request: &Request) -> Remembered {
        match request.message() {
            ClientRequest::CompleteRequest(complete)
                if self.settings.concern(ItemKind::Resource) =>
            {
                let completion = Completion::of(&complete.params).map(Box::new);
                completion.map_or(Remembered::Nothing, Remembered::Completion)
            }
            _ => Remembered::Nothing,
        }
    }

    /// Returns the [`PatternWatch`] that finds patterns that match no item of this kind. Returns
    /// `None` if there are no patterns to check.
    fn pattern_watch(&self, kind: ItemKind) -> Option<&PatternWatch<Vec<Unmatched>>> {
        self.lookouts.iter().find(|(of, _)| *of == kind).map(|(_, pattern_watch)| pattern_watch)
    }

    fn warn_unmatched(&self, kind: ItemKind, missed: Option<Missed<Vec<Unmatched>>>) {
        if let Some(missed) = missed {
            missed.warn(&self.warnings, kind, self.settings.of.as_deref());
        }
    }
}

/// Returns the names of the configuration settings for items of this kind: first the setting that
/// allows items, then the one that hides them.
const fn keys(kind: ItemKind) -> (&'static str, &'static str) {
    match kind {
        ItemKind::Tool => ("expose_tools", "hide_tools"),
        ItemKind::Prompt => ("expose_prompts", "hide_prompts"),
        ItemKind::Resource => ("expose_resources", "hide_resources"),
        ItemKind::ResourceTemplate => ("expose_resource_templates", "hide_resource_templates"),
    }
}

// === impl Settings ===

impl Settings {
    fn are_empty(&self) -> bool {
        !self.judge_annotations()
            && self.tools.selects_all()
            && self.prompts.selects_all()
            && self.resources.selects_all()
            && self.resource_templates.selects_all()
    }

    const fn selection(&self, kind: ItemKind) -> &Selection {
        match kind {
            ItemKind::Tool => &self.tools,
            ItemKind::Prompt => &self.prompts,
            ItemKind::Resource => &self.resources,
            ItemKind::ResourceTemplate => &self.resource_templates,
        }
    }

    const fn judge_annotations(&self) -> bool {
        self.read_only_only || self.hide_destructive
    }

    /// Returns `true` if the settings can hide items of this kind.
    fn concern(&self, kind: ItemKind) -> bool {
        !self.selection(kind).selects_all()
            || (kind == ItemKind::Tool && self.judge_annotations())
            || (kind == ItemKind::ResourceTemplate && !self.resources.selects_all())
    }

    /// Returns `true` if the settings allow the item with this name or URI, in a list or in a
    /// request. Does not check annotations.
    fn permit(&self, kind: ItemKind, name: &str) -> bool {
        // A completion request may refer to a resource by its URI instead of a template.
        let is_template = kind == ItemKind::ResourceTemplate && name.contains('{');
        let is_resource = kind == ItemKind::ResourceTemplate && !is_template;
        let selections = [Some(self.selection(kind)), is_resource.then_some(&self.resources)];
        let selections = || selections.iter().flatten();
        let selects = |name: &str| selections().all(|selection| selection.selects(name));
        if kind.is_named() || is_template || !self.concern(kind) {
            return selects(name);
        }
        let denies = |uri: &str| {
            self.denied_uris.contains(uri)
                || selections().any(|selection| selection.denied().matches(uri))
        };
        let permits = |uri: &str| selects(uri) && !self.denied_uris.contains(uri);
        permits(name)
            && Readings::of(name).is_some_and(|readings| {
                readings.forms.iter().all(|form| permits(form))
                    && !readings.others.iter().any(|other| denies(other))
            })
    }

    fn permit_annotations(&self, tool: &Tool) -> bool {
        let hints = tool.annotations.as_ref();
        let is_read_only = hints.is_some_and(|hints| hints.read_only_hint == Some(true));
        let is_harmless = hints.is_some_and(|hints| hints.destructive_hint == Some(false));
        (!self.read_only_only || is_read_only)
            && (!self.hide_destructive || is_read_only || is_harmless)
    }

    fn permit_item(&self, item: &ItemMut<'_>) -> bool {
        self.permit(item.kind(), item.name())
            && match item {
                ItemMut::Tool(tool) => self.permit_annotations(tool),
                _ => true,
            }
    }

    /// Returns `true` if the annotation rules allow calls to the tool `name`, or if there are no
    /// such rules. The server must list the tool, and the rules must allow all tools with this
    /// name.
    fn permit_call(&self, name: &str, known: Option<&Known<HashSet<String>>>) -> bool {
        !self.judge_annotations()
            || known.is_some_and(|known| {
                !known.derived().contains(name)
                    && known.tools().get(name).is_some_and(|tool| self.permit_annotations(tool))
            })
    }
}
