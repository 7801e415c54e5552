//! The actions of steps.

use serde::Serialize;

use super::{
    call_site::CallSite,
    loop_plan::{LoopKind, LoopPlan},
    output::placed,
};
use crate::{
    expr::{Condition, Expression, PathSegment, Use},
    named::named,
    schema::InputSchema,
};

/// The action of a step.
#[derive(Debug)]
pub(crate) enum Action {
    /// Calls a tool.
    Call(CallSite),
    /// Calls a tool several times.
    Loop(LoopPlan),
    /// Calls the tool of the first case whose condition is true.
    Switch(Switch),
    /// Asks the user.
    Elicit(Elicitation),
    /// Computes a value.
    Value(Expression),
    /// Ends the run.
    Stop(EarlyEnd),
}

/// A tool call that an action may make, depending on its input. For example, a switch with three
/// cases has three possible calls, and makes only the one whose condition is true first.
pub(crate) struct PossibleCall<'a> {
    /// The path to the call within the definition of its step, such as `cases[0]`.
    pub(crate) path: Vec<PathSegment>,
    /// The condition of the switch case to which the call belongs. `None` for the default call of a
    /// switch, and for calls of other steps.
    pub(crate) when: Option<&'a Condition>,
    pub(crate) site: &'a CallSite,
}

#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) cases: Vec<(Condition, CallSite)>,
    /// The tool call to make if none of the conditions is true. `None` skips the step in this case.
    pub(crate) default: Option<CallSite>,
}

/// A question to the user.
#[derive(Debug)]
pub(crate) struct Elicitation {
    /// The text of the question.
    pub(crate) message: Expression,
    /// The JSON Schema of the form that the user fills in. Its strings, such as titles, choices and
    /// defaults, may contain references to the data of the run.
    pub(crate) form: Expression,
    /// The JSON Schema for validating the user's answers. It equals the schema of the form, but
    /// omits each part that contains a reference to the data of the run.
    pub(crate) schema: InputSchema,
    /// Whether choices or defaults of the form refer to the data of the run. If so, an answer must
    /// match the form as it was sent to the client.
    pub(crate) is_computed: bool,
    pub(crate) on_decline: OnRefusal,
    pub(crate) on_cancel: OnRefusal,
}

/// The action of a step that ends the run early, and that determines the result of the run.
#[derive(Debug)]
pub(crate) struct EarlyEnd {
    /// The text or the value of the run's result.
    pub(crate) result: Expression,
    pub(crate) form: EndForm,
}

/// The form of the result with which a step ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndForm {
    /// A text.
    Message,
    /// A text that describes an error.
    Error,
    /// Structured content.
    Output,
}

/// Determines how a composite continues if the user declines a question or does not answer it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum OnRefusal {
    /// The run of the composite fails.
    #[default]
    Abort,
    /// The step that asks the question completes without an answer, and the run continues. The
    /// output of the step is then an object with the single member `action`, such as `{ "action":
    /// "decline" }`.
    Continue,
    /// The step that asks the question completes, and the run ends early: steps that are already
    /// running finish, and all other steps are skipped.
    SkipRemaining,
}

// === impl Action ===

impl Action {
    /// Returns the call sites of the action.
    pub(crate) fn sites(&self) -> impl Iterator<Item = &CallSite> {
        let (cases, call) = match self {
            Self::Call(call) => (&[][..], Some(call)),
            Self::Loop(each) => (&[][..], Some(&each.call)),
            Self::Switch(switch) => (&*switch.cases, switch.default.as_ref()),
            Self::Elicit(_) | Self::Value(_) | Self::Stop(_) => (&[][..], None),
        };
        cases.iter().map(|(_, call)| call).chain(call)
    }

    /// Returns the tool calls that the action may make.
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

    /// Returns the references that the action evaluates to decide what to do, such as the
    /// references in the conditions of a switch. References in call arguments are not included.
    /// Each reference comes with its path in the definition, and with a flag that is `true` if the
    /// reference is evaluated whenever the step runs.
    pub(crate) fn decisions(&self) -> impl Iterator<Item = (bool, Use<'_>)> {
        let uses: Vec<(Vec<PathSegment>, _)> = match self {
            Self::Call(_) => Vec::new(),
            Self::Loop(each) => match &each.kind {
                LoopKind::ForEach { collection, .. } => {
                    vec![(vec!["collection".into()], collection.uses())]
                }
                LoopKind::Repeat(repeat) => vec![(vec!["until".into()], repeat.until.uses())],
            },
            Self::Switch(switch) => {
                let cases = switch.cases.iter().enumerate();
                let place = |at: usize| vec!["cases".into(), at.into(), "when".into()];
                cases.map(|(at, (when, _))| (place(at), when.uses())).collect()
            }
            Self::Elicit(ask) => vec![
                (vec!["message".into()], ask.message.uses()),
                (vec!["schema".into()], ask.form.uses()),
            ],
            Self::Value(value) => vec![(vec!["value".into()], value.uses())],
            Self::Stop(end) => vec![(vec![end.form.key().into()], end.result.uses())],
        };
        let is_switch = self.as_switch().is_some();
        uses.into_iter().enumerate().flat_map(move |(at, (place, uses))| {
            let is_certain = !is_switch || at == 0;
            placed(place, uses).map(move |used| (is_certain, used))
        })
    }

    /// Returns `true` if the action always calls a tool when its step runs.
    pub(crate) const fn always_calls(&self) -> bool {
        match self {
            Self::Call(_) | Self::Switch(Switch { default: Some(_), .. }) => true,
            Self::Loop(each) => each.as_repeat().is_some(),
            // A switch may have no case whose condition is true.
            Self::Switch(_) | Self::Elicit(_) | Self::Value(_) | Self::Stop(_) => false,
        }
    }

    /// Returns `true` if the action calls one tool, once or several times one after another.
    pub(super) const fn calls_one_at_a_time(&self) -> bool {
        match self {
            Self::Call(_) => true,
            Self::Loop(each) => each.max_parallel <= 1,
            Self::Switch(_) | Self::Elicit(_) | Self::Value(_) | Self::Stop(_) => false,
        }
    }

    /// Returns `true` if the output of a step with this action is the result of a single tool call.
    /// This is not the case for loops, questions and computed values.
    pub(crate) const fn has_tool_result(&self) -> bool {
        match self {
            Self::Call(_) | Self::Switch(_) => true,
            Self::Loop(_) | Self::Elicit(_) | Self::Value(_) | Self::Stop(_) => false,
        }
    }

    /// Returns `true` if this action may skip its step. Only a switch without a default can do
    /// this, when none of its conditions is true.
    pub(super) const fn may_be_skipped(&self) -> bool {
        matches!(self, Self::Switch(Switch { default: None, .. }))
    }

    /// Returns `true` if this action is a question that ends the run early when the user declines
    /// or dismisses it, so that the remaining steps are skipped.
    pub(crate) fn may_skip_rest(&self) -> bool {
        self.as_elicitation()
            .is_some_and(|ask| [ask.on_decline, ask.on_cancel].contains(&OnRefusal::SkipRemaining))
    }

    /// Returns the lines of text that describe the action in a diagram. They do not include its
    /// tool calls, which are drawn separately.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            Self::Call(_) | Self::Switch(_) => Vec::new(),
            Self::Loop(each) => vec![each.note()],
            Self::Elicit(Elicitation { message, on_decline, on_cancel, .. }) => {
                let mut notes = vec![format!("asks: {message}")];
                for (refused, then) in [("declined", on_decline), ("cancelled", on_cancel)] {
                    if *then != OnRefusal::Abort {
                        notes.push(format!("if {refused}: {}", then.name()));
                    }
                }
                notes
            }
            Self::Value(value) => vec![format!("computes {value}")],
            Self::Stop(EarlyEnd { result, form }) => {
                let what = if *form == EndForm::Error { "fails" } else { "ends" };
                vec![format!("{what} the run: {result}")]
            }
        }
    }

    /// Returns the call site if the action is a single tool call.
    pub(crate) const fn as_call(&self) -> Option<&CallSite> {
        match self {
            Self::Call(site) => Some(site),
            _ => None,
        }
    }

    /// Returns the loop if the action is a loop.
    pub(crate) const fn as_loop(&self) -> Option<&LoopPlan> {
        match self {
            Self::Loop(each) => Some(each),
            _ => None,
        }
    }

    /// Returns the switch if the action is a switch.
    pub(crate) const fn as_switch(&self) -> Option<&Switch> {
        match self {
            Self::Switch(switch) => Some(switch),
            _ => None,
        }
    }

    /// Returns the expression if the action computes a value.
    pub(super) const fn as_value(&self) -> Option<&Expression> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the result with which the action ends the run, if the action is a stop.
    pub(crate) const fn as_early_end(&self) -> Option<&EarlyEnd> {
        match self {
            Self::Stop(end) => Some(end),
            _ => None,
        }
    }

    /// Returns the question if the action is a question.
    pub(crate) const fn as_elicitation(&self) -> Option<&Elicitation> {
        match self {
            Self::Elicit(elicitation) => Some(elicitation),
            _ => None,
        }
    }
}

// === impl Elicitation ===

impl Elicitation {
    /// Returns `true` if the run can continue without an answer to this question. This is the case
    /// if `on_decline` or `on_cancel` is [`OnRefusal::Continue`].
    pub(crate) fn may_go_on(&self) -> bool {
        [self.on_decline, self.on_cancel].contains(&OnRefusal::Continue)
    }
}

// === impl EndForm ===

impl EndForm {
    /// Returns the key under which the definition of the step contains this result.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Message | Self::Error => "message",
            Self::Output => "output",
        }
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
