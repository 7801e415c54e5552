//! Labels the results of tools, and decides whether egress tools may be called.

use std::{collections::HashMap, fmt, ops::ControlFlow, sync::Arc, time::Duration};

use rmcp::model::MetaObject;
use serde_json::Value;

use super::{
    FLOW_LABELS, SessionMode,
    approval::{self, Approval, Decision},
    sessions::{SessionKey, Sessions},
};
use crate::{
    catalog::{Known, Needs, Tools},
    composite::{CallFlow, CompositeLayer, DataLabels, FlowLabel, FlowPolicy},
    intercept::InterceptInformed,
    log_pause::LogPause,
    message::{ContextKey, Refusal, Reply, Request},
    warnings::sanitize::Sanitized,
};

/// The implementation of a [`FlowLayer`](super::FlowLayer).
#[derive(Clone, Debug)]
pub(super) struct FlowRule {
    rule: Arc<Rule>,
    /// `true` if the layer has no labels, so that it changes nothing.
    pub(super) is_idle: bool,
}

/// The labels of calls to composites, by the name of the composite.
#[derive(Debug, Default)]
pub(super) struct CompositeFlows(HashMap<String, CallFlow>);

/// A forwarded tool call. Contains what the rule needs when the reply arrives.
#[derive(Debug)]
pub(super) struct Call {
    flow: CallFlow,
    /// The session that receives the result. `None` with [`SessionMode::Off`].
    session: Option<SessionKey>,
    /// The user's approval of the call. `None` if the call needs none.
    approval: Option<Approval>,
}

/// The settings of a [`FlowLayer`](super::FlowLayer), and the labels that follow from them.
#[derive(Debug)]
struct Rule {
    settings: Settings,
    /// The labels of calls to composites. Used while the annotations of the tools are unknown.
    flows: CompositeFlows,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) policy: FlowPolicy,
    pub(super) mode: SessionMode,
    pub(super) expires_after: Duration,
    /// The function that returns the session key of a request. `None` if all requests belong to one
    /// session.
    pub(super) session: Option<ContextKey>,
    /// The labels of the results that each session has received.
    pub(super) sessions: Arc<Sessions>,
    pub(super) composites: CompositeLayer,
    /// The function that converts the name of a tool to its name in the policy. `None` if both
    /// names are equal.
    pub(super) original: Option<Original>,
    /// Limits how often calls of egress tools are logged as warnings.
    pub(super) log: Arc<LogPause>,
}

/// A function that converts the name of a tool to its name in a policy.
pub(super) type Original = Arc<dyn Fn(&str) -> String + Send + Sync>;

// === impl FlowRule ===

impl FlowRule {
    pub(super) fn new(settings: Settings) -> Self {
        let is_idle = settings.policy.is_empty();
        // An idle rule handles no calls, and therefore needs no flows.
        let flows = if is_idle { CompositeFlows::default() } else { settings.flows(None) };
        Self { rule: Arc::new(Rule { settings, flows }), is_idle }
    }
}

impl InterceptInformed for FlowRule {
    type Derived = CompositeFlows;
    type Memo = Option<Call>;

    fn derive(&self, tools: &Tools) -> CompositeFlows {
        self.rule.settings.flows(Some(tools))
    }

    fn needs_tools(&self) -> bool {
        self.rule.settings.policy.trusts_annotations()
    }

    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        match request.tool_call() {
            Some(call) if self.needs_tools() => Needs::CurrentTool(&call.name),
            _ => Needs::Nothing,
        }
    }

    fn on_request(
        &self,
        request: &mut Request,
        known: Option<&Arc<Known<CompositeFlows>>>,
    ) -> ControlFlow<Reply, Option<Call>> {
        self.rule.on_request(request, known.map(|known| &**known))
    }

    fn awaits_reply(&self, call: &Option<Call>) -> bool {
        call.is_some()
    }

    fn on_reply(
        &self,
        call: Option<Call>,
        _: Option<&Arc<Known<CompositeFlows>>>,
        reply: &mut Reply,
    ) {
        if let Some(call) = call {
            self.rule.on_reply(call, reply);
        }
    }
}

// === impl Rule ===

impl Rule {
    fn on_request(
        &self,
        request: &mut Request,
        known: Option<&Known<CompositeFlows>>,
    ) -> ControlFlow<Reply, Option<Call>> {
        let Some(call) = request.tool_call() else { return ControlFlow::Continue(None) };
        let Settings { mode, session, .. } = &self.settings;
        let flow = self.flow(&call.name, known);
        let session = (*mode != SessionMode::Off)
            .then(|| SessionKey(session.as_ref().and_then(|session| session(request.context()))));
        let approval = match &session {
            Some(session) if flow.is_egress && self.received(session).are_complete() => {
                self.check_egress(request, session)?
            }
            _ => {
                approval::forget(request);
                None
            }
        };
        ControlFlow::Continue(Some(Call { flow, session, approval }))
    }

    /// Checks a call of an egress tool in a session that has received private and untrusted data.
    /// Returns the user's approval if the call needs one.
    fn check_egress(
        &self,
        request: &mut Request,
        session: &SessionKey,
    ) -> ControlFlow<Reply, Option<Approval>> {
        let tool = request.tool_call().map(|call| call.name.clone()).unwrap_or_default();
        let decision = match self.settings.mode {
            SessionMode::Off | SessionMode::Warn => {
                approval::forget(request);
                self.log(&tool, "the call is allowed");
                return ControlFlow::Continue(None);
            }
            SessionMode::Deny => Decision::Denied,
            SessionMode::Ask => approval::decide(request, session),
        };
        match decision {
            Decision::Allowed(approval) => {
                self.log(&tool, "the user has allowed the call");
                ControlFlow::Continue(Some(approval))
            }
            Decision::Undecided(question) => {
                self.log(&tool, "the user is asked");
                ControlFlow::Break(question)
            }
            Decision::Denied => {
                self.log(&tool, "the call is denied");
                ControlFlow::Break(Refusal::EgressDenied { tool }.into())
            }
        }
    }

    fn on_reply(&self, call: Call, reply: &mut Reply) {
        if let Some(approval) = &call.approval {
            approval.extend(reply);
        }
        // A refusal contains no data of the tool, and a person answers the questions.
        if reply.refusal().is_some() || reply.asks() {
            return;
        }
        let is_success = reply.tool_result().is_some_and(|it| it.is_error != Some(true));
        let labels = if is_success { call.flow.result } else { call.flow.outcome };
        mark(reply, labels);
        if let Some(session) = call.session {
            let Settings { sessions, expires_after, .. } = &self.settings;
            sessions.add(session, labels, *expires_after);
        }
    }

    /// Returns the labels that apply to calls of a tool or composite.
    fn flow(&self, name: &str, known: Option<&Known<CompositeFlows>>) -> CallFlow {
        let flows = known.map_or(&self.flows, Known::derived);
        let tool = || CallFlow::of_tool(&self.settings.labels(name, known.map(Known::tools)));
        flows.0.get(name).copied().unwrap_or_else(tool)
    }

    /// Returns the labels of the results that a session has received.
    fn received(&self, session: &SessionKey) -> DataLabels {
        self.settings.sessions.labels(session, self.settings.expires_after)
    }

    fn log(&self, tool: &str, outcome: &str) {
        let tool = Sanitized(tool);
        let what = "an egress tool is called in a session that has received private and untrusted \
                    data";
        if self.settings.log.is_due_now() {
            tracing::warn!(%tool, "{what}; {outcome}");
        } else {
            tracing::debug!(%tool, "{what}; {outcome}");
        }
    }
}

// === impl Settings ===

impl Settings {
    /// Returns the labels of calls to all composites. If `tools` is `None`, treats all tools as if
    /// they had no annotations.
    fn flows(&self, tools: Option<&Tools>) -> CompositeFlows {
        let flows = self.composites.call_flows(&|name| self.labels(name, tools));
        CompositeFlows(self.composites.names().map(str::to_owned).zip(flows).collect())
    }

    fn labels(&self, tool: &str, tools: Option<&Tools>) -> Vec<FlowLabel> {
        let listed = tools.and_then(|tools| tools.get(tool));
        let annotations = listed.and_then(|tool| tool.annotations.as_ref());
        match &self.original {
            Some(original) => self.policy.labels_of_listed(&original(tool), annotations),
            None => self.policy.labels_of_listed(tool, annotations),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("policy", &self.policy)
            .field("mode", &self.mode)
            .field("expires_after", &self.expires_after)
            .finish_non_exhaustive()
    }
}

/// Sets the labels in the `_meta` of a tool result. Removes labels that the server has set, because
/// only the policy determines the labels.
fn mark(reply: &mut Reply, labels: DataLabels) {
    let Some(result) = reply.tool_result() else { return };
    let is_marked = result.meta.as_ref().is_some_and(|meta| meta.contains_key(FLOW_LABELS));
    if labels.is_empty() && !is_marked {
        return;
    }
    let Some(result) = reply.tool_result_mut() else { return };
    let meta = result.meta.get_or_insert_with(MetaObject::default);
    if labels.is_empty() {
        meta.remove(FLOW_LABELS);
    } else {
        let names: Vec<_> = labels.names().map(Value::from).collect();
        meta.insert(FLOW_LABELS.to_owned(), names.into());
    }
}
