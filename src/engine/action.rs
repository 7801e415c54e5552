//! The actions of steps.

use std::sync::Arc;

use serde::Serialize;

use super::{branches::SpawnHint, output::placed};
use crate::{
    expr::{Collection, Condition, Expression, PathSegment, Use},
    named::named,
    schema::InputSchema,
};

/// The action of a step.
#[derive(Debug)]
pub(crate) enum Action {
    /// Calls a tool.
    Call(CallSite),
    /// Calls a tool for each element of a collection.
    ForEach(ForEach),
    /// Calls the tool of the first case whose condition holds.
    Switch(Switch),
    /// Asks the user.
    Elicit(Elicitation),
}

/// A place in a plan where a tool is called.
#[derive(Debug)]
pub(crate) struct CallSite {
    /// The index among all call sites of the plan.
    pub(crate) site: usize,
    /// The tool to call.
    pub(crate) tool: Arc<str>,
    /// The arguments of the call.
    pub(crate) arguments: Arguments,
    /// Whether a text result is parsed as JSON.
    pub(crate) parse_json: bool,
    /// Whether its calls start in tasks.
    pub(crate) hint: SpawnHint,
}

/// A call that an action may make.
pub(crate) struct PossibleCall<'a> {
    /// The path in the definition of the step.
    pub(crate) path: Vec<PathSegment>,
    /// The condition of the call, if it is a case of a switch.
    pub(crate) when: Option<&'a Condition>,
    pub(crate) site: &'a CallSite,
}

/// The arguments of a call.
#[derive(Clone, Debug)]
pub(crate) enum Arguments {
    /// The input of the run.
    Input,
    /// An object built from the data of the run.
    Mapped(Expression),
}

#[derive(Debug)]
pub(crate) struct ForEach {
    pub(crate) collection: Collection,
    /// The maximum number of elements that are processed at the same time.
    pub(crate) max_parallel: usize,
    /// The maximum number of elements.
    pub(crate) max_iterations: usize,
    pub(crate) call: CallSite,
}

#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) cases: Vec<(Condition, CallSite)>,
    /// The call if no case applies; without one, the step is skipped.
    pub(crate) default: Option<CallSite>,
}

/// A question to the user.
#[derive(Debug)]
pub(crate) struct Elicitation {
    /// The text of the question.
    pub(crate) message: Expression,
    /// The form to fill in: a JSON Schema whose texts may refer to the data of the run.
    pub(crate) form: Expression,
    /// The schema of answers: the form as it is written.
    pub(crate) schema: InputSchema,
    pub(crate) on_decline: OnRefusal,
    pub(crate) on_cancel: OnRefusal,
}

/// The outcome of a run if the user declines a question or does not answer it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum OnRefusal {
    /// The run fails.
    #[default]
    Abort,
    /// The step completes without an answer; its output contains the action.
    Continue,
    /// The step completes and no other step starts; those that run finish.
    SkipRemaining,
}

// === impl Action ===

impl Action {
    /// Returns the call sites of the action.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &CallSite> {
        let (cases, call) = match self {
            Self::Call(call) => (&[][..], Some(call)),
            Self::ForEach(each) => (&[][..], Some(&each.call)),
            Self::Switch(switch) => (&*switch.cases, switch.default.as_ref()),
            Self::Elicit(_) => (&[][..], None),
        };
        cases.iter().map(|(_, call)| call).chain(call)
    }

    /// Returns the calls that the action may make.
    pub(crate) fn calls(&self) -> impl Iterator<Item = PossibleCall<'_>> {
        let cases = self.as_switch().map_or(&[][..], |switch| &switch.cases);
        let is_switch = self.as_switch().is_some();
        self.sites().enumerate().map(move |(at, site)| match cases.get(at) {
            Some((when, _)) => {
                PossibleCall { path: vec!["cases".into(), at.into()], when: Some(when), site }
            }
            None => {
                let path = is_switch.then(|| "default".into()).into_iter().collect();
                PossibleCall { path, when: None, site }
            }
        })
    }

    /// Returns the references that decide what the action does, other than the arguments of its
    /// calls: whether each is evaluated whenever the step runs, and its place in the definition.
    pub(crate) fn decisions(&self) -> impl Iterator<Item = (bool, Use<'_>)> {
        let uses: Vec<(Vec<PathSegment>, _)> = match self {
            Self::Call(_) => Vec::new(),
            Self::ForEach(each) => vec![(vec!["collection".into()], each.collection.uses())],
            Self::Switch(switch) => {
                let cases = switch.cases.iter().enumerate();
                let place = |at: usize| vec!["cases".into(), at.into(), "when".into()];
                cases.map(|(at, (when, _))| (place(at), when.uses())).collect()
            }
            Self::Elicit(ask) => vec![
                (vec!["message".into()], ask.message.uses()),
                (vec!["schema".into()], ask.form.uses()),
            ],
        };
        let is_switch = self.as_switch().is_some();
        uses.into_iter().enumerate().flat_map(move |(at, (place, uses))| {
            let is_certain = !is_switch || at == 0;
            placed(place, uses).map(move |used| (is_certain, used))
        })
    }

    /// Returns `true` if the action calls a tool whenever its step runs.
    pub(crate) const fn always_calls(&self) -> bool {
        match self {
            Self::Call(_) | Self::Switch(Switch { default: Some(_), .. }) => true,
            // A loop may have no elements, and a switch no case that applies.
            Self::ForEach(_) | Self::Switch(_) | Self::Elicit(_) => false,
        }
    }

    /// Returns the call, if the action is a single call.
    pub(crate) const fn as_call(&self) -> Option<&CallSite> {
        match self {
            Self::Call(site) => Some(site),
            _ => None,
        }
    }

    /// Returns the loop, if the action is one.
    pub(crate) const fn as_loop(&self) -> Option<&ForEach> {
        match self {
            Self::ForEach(each) => Some(each),
            _ => None,
        }
    }

    /// Returns the switch, if the action is one.
    pub(crate) const fn as_switch(&self) -> Option<&Switch> {
        match self {
            Self::Switch(switch) => Some(switch),
            _ => None,
        }
    }

    /// Returns the question, if the action is one.
    pub(crate) const fn as_elicitation(&self) -> Option<&Elicitation> {
        match self {
            Self::Elicit(elicitation) => Some(elicitation),
            _ => None,
        }
    }
}

// === impl CallSite ===

impl CallSite {
    pub(super) fn uses(&self) -> Vec<Use<'_>> {
        match &self.arguments {
            Arguments::Input => Vec::new(),
            Arguments::Mapped(expression) => expression.uses(),
        }
    }
}

// === impl ForEach ===

impl ForEach {
    /// Returns an error message if a loop may not have this many elements.
    pub(super) fn reject(&self, count: usize) -> Option<String> {
        let max = self.max_iterations;
        (count > max)
            .then(|| format!("{count} elements are more than `max_iterations`, which is {max}"))
    }
}

// === impl Elicitation ===

impl Elicitation {
    /// Returns `true` if the step can complete, and the run continue, without an answer.
    pub(crate) fn may_go_on(&self) -> bool {
        [self.on_decline, self.on_cancel].contains(&OnRefusal::Continue)
    }

    /// Returns `true` if the user can end the run without failing it.
    pub(super) fn may_skip(&self) -> bool {
        [self.on_decline, self.on_cancel].contains(&OnRefusal::SkipRemaining)
    }
}

// === impl OnRefusal ===

named! {
    OnRefusal {
        Abort => "abort",
        Continue => "continue",
        SkipRemaining => "skip_remaining",
    }
}
