//! Computes the data labels of tool calls, and reports labeled data in arguments that must not
//! contain it.

use std::{slice, sync::Arc};

use super::{
    policy::FlowLabel,
    rule::Rule,
    steps::{Flows, Labels, Place, StepTaint},
    summary::Sink,
    taint::{Hop, InputName, Source, Taint},
};
use crate::{
    composite::compile::Route,
    engine::plan::{Arguments, PossibleCall},
    expr::{PathSegment, Root},
};

/// A part of a call's arguments, with the labels of its value.
struct Argument {
    /// The path of the part within the definition of the step, such as `arguments.body`.
    path: Vec<PathSegment>,
    /// The name of the argument, such as `body`. `None` if the part may belong to any argument.
    name: InputName,
    labels: Labels,
    /// Whether the part is the whole input of the composite, `$input`. If so, each argument has the
    /// labels of the input property with the same name.
    is_input: bool,
}

// === impl Flows ===

impl Flows<'_> {
    /// Computes the labels of a call, and checks its arguments. `runs` contains the labels of the
    /// data that decides whether the call is made.
    pub(super) fn call(
        &mut self,
        step: usize,
        call: &PossibleCall<'_>,
        runs: &Taint,
        item: Option<&Labels>,
    ) -> StepTaint {
        let arguments = self.arguments(step, call, item);
        match self.compiled.targets[call.site.site].route {
            Route::Inner => self.call_tool(step, call, &arguments, runs),
            Route::Composite(callee) => self.call_composite(step, call, callee, &arguments, runs),
        }
    }

    fn call_tool(
        &mut self,
        step: usize,
        call: &PossibleCall<'_>,
        arguments: &[Argument],
        runs: &Taint,
    ) -> StepTaint {
        let tool = &call.site.tool;
        let labels = (self.labels)(tool);
        let hop = self.hop(step, format!("`{tool}`"));
        let mut result = Taint::default();
        for (label, source) in
            [(FlowLabel::Private, Source::Private), (FlowLabel::Untrusted, Source::Untrusted)]
        {
            if labels.contains(&label) {
                result.join(&Taint::of(source, &hop));
            }
        }
        for (label, rule) in [
            (FlowLabel::Egress, Rule::EgressArgument),
            (FlowLabel::Destructive, Rule::DestructiveArgument),
        ] {
            for argument in arguments.iter().filter(|_| labels.contains(&label)) {
                let end = match &argument.name {
                    Some(name) => format!("argument `{name}` of `{tool}`"),
                    None => format!("arguments of `{tool}`"),
                };
                let ends = [self.hop(step, end)];
                let place = Place { step, path: &argument.path, rule, ends: &ends };
                self.check_use(&argument.labels.unapproved, &place);
            }
        }
        let ends = [self.hop(step, format!("call of `{tool}`"))];
        let is_egress = labels.contains(&FlowLabel::Egress);
        let is_destructive = labels.contains(&FlowLabel::Destructive);
        let egress = is_egress.then_some(&ends[..]);
        let destructive = is_destructive.then_some(&ends[..]);
        // If the arguments can make the call fail, they have been reported themselves.
        self.check_call(step, call, [runs, &Taint::default()], egress, destructive);
        if is_egress && !self.is_approved(step, call) {
            self.add_open_egress(step);
        }
        for argument in arguments {
            result.join(&argument.labels.all.through(&hop));
        }
        StepTaint { any: result.clone(), done: result, runs: Taint::default() }
    }

    fn call_composite(
        &mut self,
        step: usize,
        call: &PossibleCall<'_>,
        callee: usize,
        arguments: &[Argument],
        runs: &Taint,
    ) -> StepTaint {
        let summaries = self.summaries;
        let summary = &summaries[callee];
        let name = self.name_of(callee).to_owned();
        for Sink { input, rule, hops } in &summary.sinks {
            let end = match input {
                Some(input) => format!("argument `{input}` of `{name}`"),
                None => format!("arguments of `{name}`"),
            };
            let ends = [&[self.hop(step, end)], &hops[..]].concat();
            for argument in arguments {
                if let Some(taint) = self.part(argument, &argument.labels.unapproved, input) {
                    let place = Place { step, path: &argument.path, rule: *rule, ends: &ends };
                    self.check_use(&taint, &place);
                }
            }
        }
        let hop = self.hop(step, format!("`{name}`"));
        let through = |hops: &Vec<Hop>| [slice::from_ref(&hop), &hops[..]].concat();
        let egress = summary.egress.as_ref().map(through);
        let destructive = summary.destructive.as_ref().map(through);
        // The call fails if its arguments cannot be evaluated or do not match the input schema of
        // the composite, even if no step uses them.
        let mut fails = Taint::default();
        if self.continues(step) {
            arguments.iter().for_each(|argument| fails.join(&argument.labels.unapproved));
        }
        let (egress, destructive) = (egress.as_deref(), destructive.as_deref());
        self.check_call(step, call, [runs, &fails], egress, destructive);
        if summary.has_open_egress && !self.is_approved(step, call) {
            self.add_open_egress(step);
        }
        let done = self.substituted(&summary.result, arguments, &hop);
        let mut any = self.substituted(&summary.outcome, arguments, &hop);
        arguments.iter().for_each(|argument| any.join(&argument.labels.all.through(&hop)));
        StepTaint { done, any, runs: Taint::default() }
    }

    /// Reports labeled data that decides whether a call is made, if the call reaches an egress or
    /// destructive tool. `egress` and `destructive` are the paths to these tools. They are `None`
    /// if the call reaches no such tool.
    ///
    /// `runs` contains the labels of the data that decides whether the call is made. `fails`
    /// contains the labels of arguments that can make the call fail while the run continues.
    fn check_call(
        &mut self,
        step: usize,
        call: &PossibleCall<'_>,
        [runs, fails]: [&Taint; 2],
        egress: Option<&[Hop]>,
        destructive: Option<&[Hop]>,
    ) {
        let path = [&call.path[..], &["tool".into()]].concat();
        if let Some(ends) = egress {
            let mut runs = runs.clone();
            runs.join(self.guard_of(step));
            runs.join(fails);
            self.check_use(&runs, &Place { step, path: &path, rule: Rule::EgressCall, ends });
        }
        if let Some(ends) = destructive {
            // Untrusted conditions are reported themselves. The outcomes of other calls, such as
            // those of the other targets of a fallback, are not.
            let mut decides = self.rivals(step);
            decides.join(fails);
            let rule = Rule::DestructiveCall;
            self.check_use(&decides, &Place { step, path: &path, rule, ends });
        }
        if let Some(summary) = self.summary() {
            if summary.egress.is_none() {
                summary.egress = egress.map(<[Hop]>::to_vec);
            }
            if summary.destructive.is_none() {
                summary.destructive = destructive.map(<[Hop]>::to_vec);
            }
        }
    }

    /// Returns the parts of a call's arguments that are not constant.
    fn arguments(
        &self,
        step: usize,
        call: &PossibleCall<'_>,
        item: Option<&Labels>,
    ) -> Vec<Argument> {
        let at = |keys: &[PathSegment]| [&call.path[..], keys].concat();
        let expression = match &call.site.arguments {
            Arguments::Input => {
                let taint = Taint::of_input(None, &self.hop_to("the input".to_owned()));
                let path = at(&["tool".into()]);
                let labels = Labels { all: taint.clone(), unapproved: taint };
                return vec![Argument { path, name: None, labels, is_input: true }];
            }
            Arguments::Mapped(expression) => expression,
        };
        let name = |place: &[PathSegment]| match place.first() {
            Some(PathSegment::Key(key)) => Some(Arc::from(key.as_str())),
            Some(PathSegment::Index(_)) | None => None,
        };
        let path = |place: &[PathSegment]| at(&[&["arguments".into()][..], place].concat());
        let mut arguments = Vec::new();
        for used in expression.uses() {
            let is_whole = used.root == Root::Input && used.path.is_empty() && used.bare;
            arguments.push(Argument {
                path: path(&used.place),
                name: name(&used.place),
                labels: Labels {
                    all: self.taint_of(step, &used, item.map(|item| &item.all)),
                    unapproved: self.unapproved(step, &used, item.map(|item| &item.unapproved)),
                },
                is_input: is_whole && used.place.is_empty(),
            });
        }
        for (place, text) in expression.secrets() {
            let hop = self.hop_to(format!("secret variable `{text}`"));
            let taint = Taint::of(Source::Private, &hop);
            let (path, name) = (path(&place), name(&place));
            let labels = Labels { all: taint.clone(), unapproved: taint };
            arguments.push(Argument { path, name, labels, is_input: false });
        }
        arguments
    }

    /// Returns the labels that the property `input` of a called composite's input receives from an
    /// argument. `taint` contains the labels of the argument. Returns `None` if the property does
    /// not depend on the argument.
    fn part(&self, argument: &Argument, taint: &Taint, input: &InputName) -> Option<Taint> {
        match (input, &argument.name) {
            (Some(input), Some(name)) if input != name => None,
            (Some(input), None) if argument.is_input && taint.inputs().next().is_some() => {
                let hop = self.hop_to(format!("`$input.{input}`"));
                Some(Taint::of_input(Some(input.clone()), &hop))
            }
            _ => Some(taint.clone()),
        }
    }

    /// Returns the labels of a called composite's result. If the result depends on an input
    /// property of the composite, it has the labels of the argument that sets this property.
    fn substituted(&self, result: &Taint, arguments: &[Argument], hop: &Hop) -> Taint {
        let mut taint = result.without_inputs().through(hop);
        for (input, _) in result.inputs() {
            let part = |argument: &Argument| self.part(argument, &argument.labels.all, input);
            for part in arguments.iter().filter_map(part) {
                taint.join(&part.through(hop));
            }
        }
        taint
    }
}
