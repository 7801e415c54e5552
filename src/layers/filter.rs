//! What clients may see and use.
//!
//! A filter lets tools, prompts, resources and resource templates through by name or
//! URI, and tools also by their annotations. What it does not let through is neither
//! listed nor reached: a `tools/call`, `prompts/get`, `resources/read`, `skills/get`, a
//! read of a directory, a subscription and a completion are answered as by a
//! [`Router`](crate::adapter::Router) that has no such thing, without asking the
//! service. (A single server may say in other words that it does not have something;
//! who compares the two can tell what is hidden from what is not there.) To
//! unsubscribe is always allowed.
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
//! A list is judged by the annotations in it. A call has none, so where a rule is
//! about them, the filter holds a [catalog](crate::catalog) of the tools behind it: a
//! tool that it does not know is looked for first, and refused if it stays unknown
//! or tools cannot be listed. After its epoch is bumped, a call is judged by what
//! the tool is now, or was if tools cannot be listed at the moment. Of several
//! tools with one name, a call might reach any: it is refused unless all of them are
//! let through. Without such a rule the filter lists nothing and needs no runtime.
//!
//! # URIs
//!
//! A rule applies to a URI as it is written and to its other spellings:
//!
//! - Where URL parsers and file systems say that it leads, a rule must allow it: with the
//!   scheme in lower case, without needless escapes, and without `.` and `..` in the path.
//!   So neither `file:///a/../secret` nor `file:///%73ecret` gets around a rule.
//! - No rule may deny it in a spelling that servers commonly treat as the same:
//!   `file:/secret`, `file://localhost/secret`, `file:///secret/` or `file:////secret` for
//!   `file:///secret`; `https://me@H.:0443/x` for `https://h/x`; another form of an IP
//!   address; a fragment; `é` for `%C3%A9`.
//!
//! No rule allows a URI with control characters in it or white space around it, because
//! parsers remove them. A URI that is denied by its exact text may be written in any
//! spelling. Write patterns in the usual one: scheme and host in lower case, no `..`, no
//! needless escapes, escapes in upper case. International host names are compared as they
//! are written: deny `bücher.example` and `xn--bcher-kva.example`.
//!
//! A server may know a resource by still other URIs, such as one with another host, and a
//! tool by other names than it lists, in another case say. So allow what clients may use
//! rather than deny what they may not. A template says nothing of the URIs made with
//! it: to hide `db://{table}` is to hide `db://*` among the resources as well. A
//! completion for a URI without a `{` is one for a resource too, and judged as both.
//! A completion loses each value with which the template may be a resource that is not let
//! through, whatever the client says of the other arguments: `{host}` stands for any text
//! without `/`, and `{+path}` for any text. So where resources are allowed by URI, the
//! patterns must allow whole templates: `docs://*/public` for `docs://{host}/{path}`.
//!
//! # What it leaves alone
//!
//! The contents of what was allowed, though they may be under another URI, and links
//! to resources in a tool's result; tasks and requests that are not of the protocol.

mod completion;

use std::{collections::HashSet, fmt, ops::ControlFlow, sync::Arc};

use rmcp::model::{ClientRequest, ServerResult, Tool};
use tower_layer::Layer;

use self::completion::Completion;
use crate::{
    catalog::{Known, Needs, Tools, VaryBy},
    changes::Epoch,
    intercept::{Informed, InterceptInformed},
    message::{Context, ItemKind, ItemMut, Reply, Request, Subject},
    pattern::{Patterns, Selection, Unmatched},
    pattern_watch::{Missed, Page, PatternWatch},
    uri::{self, Readings},
    warnings::Warnings,
};

/// Decides what clients of the service that it wraps may see and use.
///
/// See the [module docs](crate::filter) for what that means and for an example.
/// By default everything is let through.
#[derive(Clone, Default)]
pub struct FilterLayer {
    settings: Settings,
    /// What other layers say of tools by the same names, each with its setting.
    mentioned: Vec<(&'static str, Patterns)>,
    warnings: Warnings,
    epoch: Epoch,
    vary_by: Option<VaryBy>,
}

/// Middleware that [`FilterLayer`] puts in front of a service.
pub type Filter<S> = Informed<FilterRule, S>;

/// The rule of a [`Filter`].
#[derive(Clone, Debug)]
pub struct FilterRule(
    // None if everything is let through.
    Option<Arc<Rule>>,
);

#[derive(Debug)]
struct Rule {
    settings: Settings,
    lookouts: Vec<(ItemKind, PatternWatch<Vec<Unmatched>>)>,
    warnings: Warnings,
}

/// What a [`FilterRule`] remembers of a request.
#[derive(Debug)]
pub struct Memo(Remembered);

#[derive(Debug)]
enum Remembered {
    Nothing,
    /// A list of this kind, and its page if patterns are compared with it.
    List(ItemKind, Option<Page>),
    Completion(Box<Completion>),
}

#[derive(Clone, Debug, Default)]
struct Settings {
    tools: Selection,
    prompts: Selection,
    resources: Selection,
    resource_templates: Selection,
    /// The canonical spellings of the resources that are denied by their exact URI.
    denied_uris: Arc<HashSet<String>>,
    read_only_only: bool,
    hide_destructive: bool,
    of: Option<String>,
}

// === impl FilterLayer ===

impl FilterLayer {
    /// Lets everything through.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets which tools are let through, by name.
    #[must_use]
    pub fn tools(mut self, tools: Selection) -> Self {
        self.settings.tools = tools;
        self
    }

    /// Sets which prompts are let through, by name.
    #[must_use]
    pub fn prompts(mut self, prompts: Selection) -> Self {
        self.settings.prompts = prompts;
        self
    }

    /// Sets which resources are let through, by URI.
    #[must_use]
    pub fn resources(mut self, resources: Selection) -> Self {
        let denied = resources.denied();
        let exact = denied.iter().filter(|pattern| denied.has_text(pattern));
        self.settings.denied_uris = Arc::new(exact.flat_map(uri::canonical).collect());
        self.settings.resources = resources;
        self
    }

    /// Sets which resource templates are let through, by the text of the template.
    #[must_use]
    pub fn resource_templates(mut self, templates: Selection) -> Self {
        self.settings.resource_templates = templates;
        self
    }

    /// Sets whether only tools are let through that say of themselves that they
    /// change nothing (`readOnlyHint`); off by default.
    #[must_use]
    pub const fn read_only_only(mut self, read_only_only: bool) -> Self {
        self.settings.read_only_only = read_only_only;
        self
    }

    /// Sets whether tools are hidden that may destroy something; off by default.
    ///
    /// As the protocol has it, that is every tool that says neither that it changes
    /// nothing (`readOnlyHint`) nor that it destroys nothing (`destructiveHint`).
    #[must_use]
    pub const fn hide_destructive(mut self, hide_destructive: bool) -> Self {
        self.settings.hide_destructive = hide_destructive;
        self
    }

    /// Says whose rule it is, such as ``backend `github` ``, for
    /// [warnings](Self::warnings).
    #[must_use]
    pub fn of(mut self, whose: impl Into<String>) -> Self {
        self.settings.of = Some(whose.into());
        self
    }

    /// Makes what the layer knows of tools outdated whenever `epoch` is bumped.
    ///
    /// Without it, a change of annotations behind the layer is noticed within about
    /// a minute.
    #[must_use]
    pub fn epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch;
        self
    }

    /// Keeps what the layer knows of tools apart by a key of the request's
    /// context, for servers that show different tools to different callers.
    ///
    /// Tools are then listed in the context of the first caller of each key;
    /// without a key they are listed without any. The catalogs of the last
    /// 1000 keys are kept.
    #[must_use]
    pub fn vary_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.vary_by = Some(Arc::new(key));
        self
    }

    /// Looks as well for what patterns of other layers match, which know tools by the
    /// same names.
    pub(crate) fn mentioned(
        mut self,
        patterns: impl IntoIterator<Item = (&'static str, Patterns)>,
    ) -> Self {
        self.mentioned.extend(patterns.into_iter().filter(|(_, patterns)| !patterns.is_empty()));
        self
    }

    /// Which patterns matched nothing, in words for whoever runs the server.
    ///
    /// It is found out when something was listed from the first page to the last, of
    /// the first such list that was not empty, and logged once. At most 1000 are
    /// kept.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }

    /// Whether a resource of this URI is not let through.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn hides_resource(&self, uri: &str) -> bool {
        !self.settings.permit(ItemKind::Resource, uri)
    }
}

impl<S> Layer<S> for FilterLayer {
    type Service = Filter<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let (settings, warnings) = (self.settings.clone(), self.warnings.clone());
        let rule = FilterRule::new(settings, &self.mentioned, warnings);
        Informed::with_catalogs(rule, inner, self.epoch.clone(), self.vary_by.clone())
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
        let lookouts = lookouts.into_iter().filter(|(_, lookout)| !lookout.is_over()).collect();
        Self(Some(Arc::new(Rule { settings, lookouts, warnings })))
    }
}

impl InterceptInformed for FilterRule {
    /// Names that a tool has beside the one that is known, and that is not let
    /// through.
    type Derived = HashSet<String>;
    type Memo = Memo;

    fn derive(&self, tools: &Tools) -> Self::Derived {
        let Some(rule) = &self.0 else { return HashSet::new() };
        if let Some(lookout) = rule.lookout(ItemKind::Tool) {
            rule.tell(ItemKind::Tool, lookout.see_all(tools.iter().map(|tool| &*tool.name)));
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
            // A directory is a list that is none of all there is.
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
        let Some((lookout, page)) = rule.lookout(kind).zip(page) else {
            return reply.retain_items(|item| rule.settings.permit_item(&item));
        };
        let mut names = Vec::new();
        reply.retain_items(|item| {
            names.push(item.name().to_owned());
            rule.settings.permit_item(&item)
        });
        if let Some((_, next)) = reply.page() {
            rule.tell(kind, lookout.see(&page, next, names));
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
                let page = self.lookout(kind).and_then(|lookout| lookout.page(cursor));
                ControlFlow::Continue(Memo(Remembered::List(kind, page)))
            }
            Subject::Item(..) | Subject::Other => ControlFlow::Continue(Memo(Remembered::Nothing)),
        }
    }

    /// Remembers a completion whose values may lead to resources that are not permitted.
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

    /// Who looks for what patterns match among things of a kind.
    fn lookout(&self, kind: ItemKind) -> Option<&PatternWatch<Vec<Unmatched>>> {
        self.lookouts.iter().find(|(of, _)| *of == kind).map(|(_, lookout)| lookout)
    }

    fn tell(&self, kind: ItemKind, missed: Option<Missed<Vec<Unmatched>>>) {
        if let Some(missed) = missed {
            missed.tell(&self.warnings, kind, self.settings.of.as_deref());
        }
    }
}

/// What the settings are called that allow and deny things of a kind.
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

    /// Whether anything of the kind may be hidden.
    fn concern(&self, kind: ItemKind) -> bool {
        !self.selection(kind).selects_all()
            || (kind == ItemKind::Tool && self.judge_annotations())
            || (kind == ItemKind::ResourceTemplate && !self.resources.selects_all())
    }

    /// Whether an item of this name or URI may be let through: the one predicate
    /// for lists and for all that asks for one item.
    fn permit(&self, kind: ItemKind, name: &str) -> bool {
        // Completions speak of a resource as if its URI were a template.
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
                readings.places.iter().all(|place| permits(place))
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

    /// Whether the annotations of what is called are let through, as far as known.
    fn permit_call(&self, name: &str, known: Option<&Known<HashSet<String>>>) -> bool {
        !self.judge_annotations()
            || known.is_some_and(|known| {
                !known.derived().contains(name)
                    && known.tools().get(name).is_some_and(|tool| self.permit_annotations(tool))
            })
    }
}
