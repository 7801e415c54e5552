//! The actions of steps, such as a tool call or a question to the user.

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

/// The action of a step. Each step of a composite has one action.
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

/// A tool call that an action may make. For example, a switch with three cases has three possible
/// calls. A run makes only the call of the first case whose condition is true.
pub(crate) struct PossibleCall<'a> {
    /// The path to the call in the definition of its step, such as `cases[0]`. Empty if the step
    /// makes a single call.
    pub(crate) path: Vec<PathSegment>,
    /// The condition of a switch case, such as `$input.kind == "issue"`. `None` for the default
    /// call of a switch and for all other actions.
    pub(crate) when: Option<&'a Condition>,
    pub(crate) site: &'a CallSite,
}

/// An expression that an action evaluates to produce its output or a message to the user. Arguments
/// of calls and conditions are not included.
pub(crate) struct Computed<'a> {
    /// The key of the expression in the definition of the step, such as `schema`.
    pub(crate) key: &'static str,
    /// The name of the value in messages, such as `answer`.
    pub(crate) name: &'static str,
    pub(crate) expression: &'a Expression,
    /// Whether the output of the step contains data of the value.
    pub(crate) is_output: bool,
}

#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) cases: Vec<(Condition, CallSite)>,
    /// The tool call to make if no condition is true. If it is `None`, the step is skipped instead.
    pub(crate) default: Option<CallSite>,
}

#[derive(Debug)]
pub(crate) struct Elicitation {
    pub(crate) message: Expression,
    /// The JSON Schema of the form that the user fills in. Titles, choices and defaults may contain
    /// references such as `$steps.list.output`.
    pub(crate) form: Expression,
    /// The JSON Schema that validates the user's answer. It is the schema of `form` without the
    /// parts that contain references, because their values are known only during a run.
    pub(crate) schema: InputSchema,
    /// If `true`, choices or defaults of the form contain references. The user's answer must then
    /// match the form that was sent to the client.
    pub(crate) is_computed: bool,
    pub(crate) on_decline: OnRefusal,
    pub(crate) on_cancel: OnRefusal,
}

/// A stop step, which ends the run early with this result.
#[derive(Debug)]
pub(crate) struct EarlyEnd {
    pub(crate) result: Expression,
    pub(crate) form: EndForm,
}

/// The kind of result that a stop step returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndForm {
    /// The run returns a text.
    Message,
    /// The run fails with a text that describes an error.
    Error,
    /// The run returns structured content.
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

    /// Returns the expressions that the action evaluates to produce its output or a message.
    pub(crate) fn computed(&self) -> Vec<Computed<'_>> {
        let output = |key, name, expression| Computed { key, name, expression, is_output: true };
        match self {
            Self::Call(_) | Self::Loop(_) | Self::Switch(_) => Vec::new(),
            Self::Elicit(Elicitation { message, form, .. }) => vec![
                Computed { is_output: false, ..output("message", "question", message) },
                output("schema", "answer", form),
            ],
            Self::Value(value) => vec![output("value", "value", value)],
            Self::Stop(end) => vec![output(end.form.key(), "result", &end.result)],
        }
    }

    /// Returns the references that decide which calls the action makes, or which value or question
    /// it produces. Examples are the condition of a switch case and the collection of a loop.
    /// References in call arguments are not included.
    ///
    /// Each reference has its path in the definition. The flag is `true` if the action always
    /// evaluates the reference. For a switch, this holds only for the condition of the first case.
    pub(crate) fn decisions(&self) -> impl Iterator<Item = (bool, Use<'_>)> {
        let uses: Vec<(Vec<PathSegment>, _)> = match self {
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
            Self::Call(_) | Self::Elicit(_) | Self::Value(_) | Self::Stop(_) => {
                let computed = self.computed().into_iter();
                computed.map(|value| (vec![value.key.into()], value.expression.uses())).collect()
            }
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

    /// Returns `true` if the action never makes two tool calls at the same time: a single call, or
    /// a loop whose elements run one after another.
    pub(super) const fn calls_one_at_a_time(&self) -> bool {
        match self {
            Self::Call(_) => true,
            Self::Loop(each) => each.max_parallel <= 1,
            Self::Switch(_) | Self::Elicit(_) | Self::Value(_) | Self::Stop(_) => false,
        }
    }

    /// Returns `true` if the output of the step is the result of a single tool call. Loops,
    /// questions and computed values return `false`.
    pub(crate) const fn has_tool_result(&self) -> bool {
        match self {
            Self::Call(_) | Self::Switch(_) => true,
            Self::Loop(_) | Self::Elicit(_) | Self::Value(_) | Self::Stop(_) => false,
        }
    }

    /// Returns `true` if the action can skip its own step. Only a switch without a default does
    /// this, if none of its conditions is true.
    pub(super) const fn may_be_skipped(&self) -> bool {
        matches!(self, Self::Switch(Switch { default: None, .. }))
    }

    /// Returns `true` if the action is a question with `skip_remaining` in `on_decline` or
    /// `on_cancel`. If the user declines or cancels such a question, the remaining steps are
    /// skipped.
    pub(crate) fn may_skip_rest(&self) -> bool {
        self.as_elicitation()
            .is_some_and(|ask| [ask.on_decline, ask.on_cancel].contains(&OnRefusal::SkipRemaining))
    }

    /// Returns the lines that describe the action in a diagram, such as `asks: Which repository?`.
    /// Tool calls are not included, because the diagram draws them as separate nodes.
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

    pub(crate) const fn as_call(&self) -> Option<&CallSite> {
        match self {
            Self::Call(site) => Some(site),
            _ => None,
        }
    }

    pub(crate) const fn as_loop(&self) -> Option<&LoopPlan> {
        match self {
            Self::Loop(each) => Some(each),
            _ => None,
        }
    }

    pub(crate) const fn as_switch(&self) -> Option<&Switch> {
        match self {
            Self::Switch(switch) => Some(switch),
            _ => None,
        }
    }

    pub(super) const fn as_value(&self) -> Option<&Expression> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the result that ends the run, if the action is a stop.
    pub(crate) const fn as_early_end(&self) -> Option<&EarlyEnd> {
        match self {
            Self::Stop(end) => Some(end),
            _ => None,
        }
    }

    pub(crate) const fn as_elicitation(&self) -> Option<&Elicitation> {
        match self {
            Self::Elicit(elicitation) => Some(elicitation),
            _ => None,
        }
    }
}

// === impl Elicitation ===

impl Elicitation {
    /// Returns `true` if the run continues when the user declines or cancels this question, because
    /// `on_decline` or `on_cancel` is [`OnRefusal::Continue`].
    pub(crate) fn may_go_on(&self) -> bool {
        [self.on_decline, self.on_cancel].contains(&OnRefusal::Continue)
    }
}

// === impl EndForm ===

impl EndForm {
    /// Returns the key of the result in the definition of the step: `message` or `output`.
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
