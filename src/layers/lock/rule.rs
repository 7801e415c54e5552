//! Compares listed tools with a lock, and rejects calls to hidden tools.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::model::{ErrorData, Tool};

use super::{
    definition::{Definition, Parts},
    policy::{OnDrift, OnNew},
};
use crate::{
    catalog::{Known, Needs, Tools},
    intercept::InterceptInformed,
    message::{ItemKind, Reply, Request},
    mutex::lock,
    warnings::{Warnings, sanitize::Sanitized},
};

/// Maximum number of tool names in a warning about new tools. The warning also contains the total
/// number of new tools.
const NAMED: usize = 10;

/// The implementation of a [`LockLayer`](super::LockLayer).
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct LockRule(
    // `None` if the layer has no lock.
    Option<Arc<Rule>>,
);

#[derive(Debug)]
pub(super) struct Rule {
    backend: String,
    tools: Arc<HashMap<String, Definition>>,
    on_drift: OnDrift,
    on_new: OnNew,
    /// `true` if `drifted` contains a tool. Calls check this flag first, so that they rarely lock
    /// the mutex.
    has_drifted: AtomicBool,
    /// All tools whose definitions have ever differed from the lock, with the parts that differed
    /// most recently. Tools are never removed, so that a server cannot make a changed tool
    /// available again.
    drifted: Mutex<HashMap<String, Parts>>,
    warnings: Warnings,
}

// === impl LockRule ===

impl LockRule {
    pub(super) fn new(rule: Option<Rule>) -> Self {
        Self(rule.map(Arc::new))
    }
}

impl InterceptInformed for LockRule {
    type Derived = ();
    /// `true` if the request lists tools.
    type Memo = bool;

    fn derive(&self, tools: &Tools) {
        if let Some(rule) = &self.0 {
            rule.see(tools.iter().chain(tools.shadowed()));
        }
    }

    fn needs_tools(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        match &self.0 {
            Some(rule) => rule.needs(request),
            None => Needs::Nothing,
        }
    }

    #[inline]
    fn on_request(
        &self,
        request: &mut Request,
        known: Option<&Arc<Known<()>>>,
    ) -> ControlFlow<Reply, bool> {
        match &self.0 {
            Some(rule) => rule.on_request(request, known.map(|known| known.tools())),
            None => ControlFlow::Continue(false),
        }
    }

    #[inline]
    fn awaits_reply(&self, lists_tools: &bool) -> bool {
        *lists_tools
    }

    fn on_reply(&self, _: bool, _: Option<&Arc<Known<()>>>, reply: &mut Reply) {
        let Some(rule) = &self.0 else { return };
        if reply.refuse_other_than_list(ItemKind::Tool) {
            return;
        }
        let Some(page) = reply.tools_mut() else { return };
        rule.see(page.tools.iter());
        match rule.failure() {
            Some(error) => *reply = error.into(),
            None => page.tools.retain(|tool| rule.permits(&tool.name)),
        }
    }
}

// === impl Rule ===

impl Rule {
    pub(super) fn new(
        backend: String,
        tools: Arc<HashMap<String, Definition>>,
        (on_drift, on_new): (OnDrift, OnNew),
        warnings: Warnings,
    ) -> Self {
        let (has_drifted, drifted) = (AtomicBool::new(false), Mutex::default());
        Self { backend, tools, on_drift, on_new, has_drifted, drifted, warnings }
    }

    /// Returns which tool definitions the layer must know to process a request. To list tools, it
    /// must know all of them, because a later page may contain a second definition of a tool.
    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        match request.tool_call() {
            _ if self.on_drift == OnDrift::Fail => Needs::AllTools,
            Some(call) => Needs::CurrentTool(&call.name),
            None if request.lists_tools() => Needs::AllTools,
            None => Needs::Nothing,
        }
    }

    fn on_request(&self, request: &Request, known: Option<&Tools>) -> ControlFlow<Reply, bool> {
        if let Some(error) = self.failure() {
            return ControlFlow::Break(error.into());
        }
        let Some(call) = request.tool_call() else {
            return ControlFlow::Continue(request.lists_tools());
        };
        let is_listed = known.is_some_and(|tools| tools.get(&call.name).is_some());
        if self.permits(&call.name) && (is_listed || self.permits_unlisted(&call.name)) {
            return ControlFlow::Continue(false);
        }
        ControlFlow::Break(Reply::unknown_tool(call.name.clone()))
    }

    /// Compares tools with the lock. Logs warnings about tools that differ from the lock, and about
    /// tools that it does not contain.
    fn see<'t>(&self, tools: impl Iterator<Item = &'t Tool>) {
        let mut new = Vec::new();
        for tool in tools {
            match self.tools.get(&*tool.name) {
                Some(pinned) if pinned.is_same(tool) => (),
                Some(pinned) => self.note_drift(&tool.name, pinned.differing(tool)),
                None if self.on_new == OnNew::Allow => (),
                None => new.push(&*tool.name),
            }
        }
        if !new.is_empty() {
            self.warn_new(new);
        }
    }

    fn note_drift(&self, name: &str, parts: Parts) {
        let mut drifted = lock(&self.drifted);
        self.has_drifted.store(true, Ordering::Release);
        if drifted.get(name) == Some(&parts) {
            return;
        }
        let effect = match self.on_drift {
            OnDrift::Hide => "it is neither listed nor callable until it is locked again",
            OnDrift::Warn => "it stays available",
            OnDrift::Fail => "all requests to the backend fail until the tool is locked again",
        };
        let (tool, backend) = (Sanitized(name), Sanitized(&self.backend));
        self.warnings.warn(format_args!(
            "tool `{tool}` of backend `{backend}` differs from the lock in {parts}: {effect}"
        ));
        drifted.insert(name.to_owned(), parts);
    }

    fn warn_new(&self, mut new: Vec<&str>) {
        new.sort_unstable();
        new.dedup();
        let effect = match self.on_new {
            OnNew::Hide => "they are neither listed nor callable until they are locked",
            OnNew::Warn | OnNew::Allow => "they are available",
        };
        let named = new.iter().take(NAMED).map(|name| format!("`{}`", Sanitized(name)));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = if new.len() > NAMED { ", …" } else { "" };
        self.warnings.warn(format_args!(
            "backend `{}` lists tools that are not in the lock: {named}{more} ({} in total): \
             {effect}",
            Sanitized(&self.backend),
            new.len(),
        ));
    }

    /// Returns `true` if the lock allows clients to see and call the tool. Only considers the
    /// definitions that the server has listed so far.
    fn permits(&self, name: &str) -> bool {
        if !self.tools.contains_key(name) {
            return self.on_new != OnNew::Hide;
        }
        self.on_drift == OnDrift::Warn
            || !self.has_drifted.load(Ordering::Acquire)
            || !lock(&self.drifted).contains_key(name)
    }

    /// Returns `true` if clients may call a tool that the server does not list. The current
    /// definition of such a tool is unknown.
    fn permits_unlisted(&self, name: &str) -> bool {
        self.on_drift == OnDrift::Warn || !self.tools.contains_key(name)
    }

    /// Returns the error with which the layer rejects all requests. Returns `None` if no tool has
    /// differed from the lock, or if the policy is not [`OnDrift::Fail`].
    fn failure(&self) -> Option<ErrorData> {
        let fails = self.on_drift == OnDrift::Fail && self.has_drifted.load(Ordering::Acquire);
        // The message names neither the tool nor a remedy, because clients must not learn these
        // details.
        fails.then(|| {
            let backend = Sanitized(&self.backend);
            let message = format!(
                "backend `{backend}` is blocked: a tool differs from its approved definition"
            );
            ErrorData::internal_error(message, None)
        })
    }
}
