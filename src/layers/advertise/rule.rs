//! Hides tools from clients, and implements search mode.

use std::{collections::HashSet, ops::ControlFlow, sync::Arc};

use rmcp::model::{CallToolRequestParams, ListToolsResult};
use serde::Deserialize;

use super::{
    index::Index,
    tools::{self, ARGUMENTS, CALL, Call, SEARCH, Search},
};
use crate::{
    catalog::{Known, Needs, Tools},
    intercept::InterceptInformed,
    message::{ItemKind, Refusal, Reply, Request, Subject},
    pattern::{Selection, Unmatched},
    pattern_watch::{Missed, Page, PatternWatch},
    warnings::Warnings,
};

/// Whether clients can call a tool that is hidden from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Calls {
    /// Reject a call of a hidden tool with the same error as a call of a tool that does not exist.
    #[default]
    Refuse,
    /// Forward a call of a hidden tool. The tool is callable, although it is missing from the list
    /// of tools.
    Allow,
}

/// How clients find the advertised tools: in the list of tools, or with a search tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Mode {
    /// List all advertised tools.
    #[default]
    List,
    /// List only two tools: `search_tools` searches the advertised tools, and `call_tool` calls one
    /// of them.
    Search,
}

/// The implementation of an [`AdvertiseLayer`](super::AdvertiseLayer), which changes requests and
/// replies.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct AdvertiseRule(pub(super) Arc<Policy>);

/// The settings of an [`AdvertiseLayer`](super::AdvertiseLayer).
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) tools: Selection,
    pub(super) composites: HashSet<String>,
    pub(super) calls: Calls,
    pub(super) mode: Mode,
    pub(super) pattern_watch: Arc<PatternWatch<Vec<Unmatched>>>,
    pub(super) warnings: Warnings,
}

/// The state of a request that an [`AdvertiseRule`] needs when the reply to the request arrives.
#[doc(hidden)]
#[derive(Debug)]
pub struct Memo(Forwarded);

/// How the layer changes the reply to a request that it has forwarded.
#[derive(Debug)]
enum Forwarded {
    /// The reply is forwarded unchanged.
    Passes,
    /// The reply contains the capabilities of the server. The layer adds the `tools` capability,
    /// because clients call the two tools of search mode.
    Declares,
    /// The reply is a page of the list of tools. The layer removes hidden tools from it. If a
    /// [`Page`] is present, the layer also records which of the configured patterns match tools on
    /// the page.
    Lists(Option<Page>),
    /// The client called [`CALL`] with the name of another tool, and the layer forwarded a call to
    /// that tool. If the tool rejects its argument `/city`, the layer changes this path to
    /// `/arguments/city`, so that the path is valid in the client's call.
    Calls,
}

/// Creates a [`PatternWatch`] that reports each pattern in `tools` that matches no listed tool.
pub(super) fn pattern_watch(tools: &Selection) -> PatternWatch<Vec<Unmatched>> {
    let allow = tools.allowed().cloned().unwrap_or_default();
    let denied = Unmatched::new("deny", tools.denied().clone());
    PatternWatch::new(vec![denied, Unmatched::new("allow", allow)])
}

// === impl Policy ===

impl Policy {
    /// Returns `true` if the layer changes no requests and no replies, because it uses
    /// [`Mode::List`] and hides no tools.
    #[inline]
    fn is_identity(&self) -> bool {
        self.mode == Mode::List && self.tools.selects_all()
    }

    /// Returns `true` if the tool with this name is advertised: it is in the list of tools or, in
    /// search mode, can be found by a search.
    fn advertises(&self, name: &str) -> bool {
        if self.composites.contains(name) {
            !self.tools.denied().has_text(name)
        } else {
            self.tools.selects(name)
        }
    }

    /// Returns `true` if clients can call the tool with this name, either directly or with
    /// [`CALL`].
    pub(super) fn admits(&self, name: &str) -> bool {
        self.calls == Calls::Allow || self.advertises(name)
    }

    /// Returns `true` if searches can find the tool with this name. Always `false` for
    /// `search_tools` and `call_tool`, the layer's own tools.
    fn is_searched(&self, name: &str) -> bool {
        !tools::is_own_tool(name) && self.advertises(name)
    }

    fn warn_unmatched(&self, missed: Option<Missed<Vec<Unmatched>>>) {
        if let Some(missed) = missed {
            missed.warn(&self.warnings, ItemKind::Tool, None);
        }
    }
}

// === impl AdvertiseRule ===

impl AdvertiseRule {
    /// Decides whether the layer answers a request itself or forwards it. `known` contains the
    /// search index. It is `None` if the request needs no index, or if the wrapped service failed
    /// to list its tools.
    fn inspect(
        &self,
        request: &mut Request,
        known: Option<&Arc<Known<Index>>>,
    ) -> ControlFlow<Reply, Memo> {
        let policy = &*self.0;
        match (request.subject(), policy.mode) {
            (Subject::List(ItemKind::Tool, None), Mode::Search) => {
                ControlFlow::Break(tools::list().into())
            }
            (Subject::List(ItemKind::Tool, Some(_)), Mode::Search) => {
                ControlFlow::Break(ListToolsResult::default().into())
            }
            (Subject::List(ItemKind::Tool, cursor), Mode::List) => {
                ControlFlow::Continue(Memo(Forwarded::Lists(policy.pattern_watch.page(cursor))))
            }
            (Subject::Item(ItemKind::Tool, SEARCH), Mode::Search) => {
                ControlFlow::Break(Self::search(request, known))
            }
            (Subject::Item(ItemKind::Tool, CALL), Mode::Search) => self.call(request),
            (_, Mode::Search) if request.asks_for_capabilities() => {
                ControlFlow::Continue(Memo(Forwarded::Declares))
            }
            (Subject::Item(ItemKind::Tool, name), _) if !policy.admits(name) => {
                ControlFlow::Break(Reply::unknown_tool(name.to_owned()))
            }
            _ => ControlFlow::Continue(Memo(Forwarded::Passes)),
        }
    }

    /// Converts a call to the tool [`CALL`] to a call to the tool that the client named in the
    /// arguments. Returns an error reply if the arguments are invalid, or if clients cannot call
    /// this tool.
    fn call(&self, request: &mut Request) -> ControlFlow<Reply, Memo> {
        let Some(call) = request.tool_call_mut() else {
            return ControlFlow::Continue(Memo(Forwarded::Passes));
        };
        let Call { name, arguments } = match Call::take(call.arguments.take()) {
            Ok(call) => call,
            Err(refusal) => return ControlFlow::Break(refusal.into()),
        };
        if tools::is_own_tool(&name) || !self.0.admits(&name) {
            return ControlFlow::Break(Reply::unknown_tool(name));
        }
        call.name = name.into();
        call.arguments = arguments;
        ControlFlow::Continue(Memo(Forwarded::Calls))
    }

    /// Returns the reply to a call to [`SEARCH`]: the tools that match the query, or an error.
    fn search(request: &Request, known: Option<&Arc<Known<Index>>>) -> Reply {
        let arguments = request.tool_call().and_then(|call| call.arguments.as_ref());
        match (Search::read(arguments), known) {
            (Err(refusal), _) => refusal.into(),
            (Ok(search), Some(known)) => search.answer(known).into(),
            (Ok(_), None) => {
                Refusal::Unavailable { kind: ItemKind::Tool, name: SEARCH.into() }.into()
            }
        }
    }
}

impl InterceptInformed for AdvertiseRule {
    type Derived = Index;
    type Memo = Memo;

    fn derive(&self, tools: &Tools) -> Index {
        let policy = &*self.0;
        policy.warn_unmatched(policy.pattern_watch.see_all(tools.iter().map(|tool| &*tool.name)));
        for name in [SEARCH, CALL] {
            if tools.get(name).is_some() && policy.advertises(name) {
                policy.warnings.warn(format_args!(
                    "tool `{name}` is hidden: in search mode it is a tool of the layer that has this name"
                ));
            }
        }
        Index::new(tools, |name| policy.is_searched(name))
    }

    fn needs_tools(&self) -> bool {
        self.0.mode == Mode::Search
    }

    #[inline]
    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        let searches = |call: &&CallToolRequestParams| {
            call.name == SEARCH && Search::read(call.arguments.as_ref()).is_ok()
        };
        match self.0.mode {
            Mode::Search if request.tool_call().filter(searches).is_some() => Needs::AllTools,
            Mode::Search | Mode::List => Needs::Nothing,
        }
    }

    #[inline]
    fn on_request(
        &self,
        request: &mut Request,
        known: Option<&Arc<Known<Index>>>,
    ) -> ControlFlow<Reply, Memo> {
        if self.0.is_identity() {
            return ControlFlow::Continue(Memo(Forwarded::Passes));
        }
        self.inspect(request, known)
    }

    #[inline]
    fn awaits_reply(&self, Memo(forwarded): &Memo) -> bool {
        !matches!(forwarded, Forwarded::Passes)
    }

    fn on_reply(&self, Memo(forwarded): Memo, _: Option<&Arc<Known<Index>>>, reply: &mut Reply) {
        let policy = &*self.0;
        match forwarded {
            Forwarded::Passes => (),
            Forwarded::Declares => reply.declare_tools(),
            Forwarded::Lists(page) => {
                if reply.refuse_other_than_list(ItemKind::Tool) {
                    return;
                }
                let Some(list) = reply.tools_mut() else { return };
                if let Some(page) = page {
                    let names = list.tools.iter().map(|tool| tool.name.to_string());
                    policy.warn_unmatched(policy.pattern_watch.see(
                        &page,
                        list.next_cursor.as_deref(),
                        names,
                    ));
                }
                list.tools.retain(|tool| policy.advertises(&tool.name));
            }
            Forwarded::Calls => {
                if let Some(Refusal::InvalidArguments { violations, .. }) = reply.refusal_mut() {
                    for violation in violations {
                        violation.path.insert_str(0, ARGUMENTS);
                    }
                }
            }
        }
    }
}
