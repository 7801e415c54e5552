use std::{collections::HashMap, time::Duration};

use rmcp::model::{JsonObject, ToolAnnotations};

use super::*;
use crate::{
    composite::{
        BranchOrder, Finally, JsonType, Labels, OnLimit, Repeat, TaskMode, Then, Trace,
        compile::Program,
        step::{Action, Case, ComputedValue, Elicitation, ForEach, Otherwise, Stop, Switch},
        tool_call::ToolCall,
    },
    engine::plan::{OnRefusal, Parse},
};

const SECOND: Duration = Duration::from_secs(1);

/// The name of a field, and a function that changes the value of the field.
type Change<T> = (&'static str, fn(&mut T));

/// Returns a fan-out composite in which every field is set.
fn fan_out() -> CompositeTool {
    CompositeTool::new(
        "name",
        "Description",
        FanOut::new([Target::new("tool").id("id").retry(Retry::times(2))]),
    )
}

/// Returns a workflow composite in which every field of its steps is set.
fn workflow() -> CompositeTool {
    let retry = Retry::times(2).delay(SECOND).max_delay(9 * SECOND);
    let step = Step::new("a", ToolCall::new("tool").arguments(json!({ "q": "$input.q" })))
        .timeout(5 * SECOND)
        .on_error(OnError::Retry(retry));
    let each = Step::new("b", ForEach::new(json!([1]), "tool"));
    let case = Case::new("input.q", ToolCall::new("one"));
    let switch = Step::new("c", Switch::new([case], Otherwise::Call("other".into())));
    let ask = Step::new("d", Elicitation::new("Go on?", json!({})));
    let nested = OutputProperty::object([("i", OutputProperty::new(JsonType::Number, 1))]);
    let output = Output::new()
        .property("p", OutputProperty::new(JsonType::String, "$input"))
        .property("o", nested);
    let workflow = Workflow::new([step, each, switch, ask]).output(output);
    CompositeTool::new("name", "Description", workflow)
}

fn of_fan_out(tool: &mut CompositeTool) -> &mut FanOut {
    let Strategy::FanOut(fan_out) = &mut tool.strategy else { panic!("it is one") };
    fan_out
}

fn target(tool: &mut CompositeTool) -> &mut Target {
    &mut of_fan_out(tool).targets[0]
}

fn of_workflow(tool: &mut CompositeTool) -> &mut Workflow {
    let Strategy::Workflow(workflow) = &mut tool.strategy else { panic!("it is one") };
    workflow
}

fn step(tool: &mut CompositeTool) -> &mut Step {
    &mut of_workflow(tool).steps[0]
}

fn call(tool: &mut CompositeTool) -> &mut ToolCall {
    let Action::Tool(call) = &mut step(tool).action else { panic!("it is one") };
    call
}

fn retry(tool: &mut CompositeTool) -> &mut Retry {
    let OnError::Retry(retry) = &mut step(tool).on_error else { panic!("it has one") };
    retry
}

fn each(tool: &mut CompositeTool) -> &mut ForEach {
    let Action::ForEach(each) = &mut of_workflow(tool).steps[1].action else { panic!("it is") };
    each
}

fn switch(tool: &mut CompositeTool) -> &mut Switch {
    let Action::Switch(switch) = &mut of_workflow(tool).steps[2].action else { panic!("it is") };
    switch
}

fn ask(tool: &mut CompositeTool) -> &mut Elicitation {
    let Action::Elicitation(ask) = &mut of_workflow(tool).steps[3].action else { panic!("it is") };
    ask
}

fn add(tool: &mut CompositeTool, action: impl Into<Action>) {
    of_workflow(tool).steps.push(Step::new("e", action));
}

fn repeat() -> Repeat {
    Repeat::new("tool", "last.ok")
}

fn output(tool: &mut CompositeTool) -> &mut Output {
    of_workflow(tool).output.as_mut().unwrap()
}

fn property(tool: &mut CompositeTool) -> &mut OutputProperty {
    &mut output(tool).properties[0].1
}

const FAN_OUT: [Change<CompositeTool>; 32] = [
    ("name", |tool| tool.name = "other".into()),
    ("input_schema", |tool| tool.input_schema = Some(JsonObject::new())),
    ("timeout", |tool| tool.timeout = SECOND),
    ("timeout, by a nanosecond", |tool| tool.timeout = SECOND + Duration::from_nanos(1)),
    ("max_calls", |tool| tool.limits.max_calls = Some(1)),
    ("max_result_bytes", |tool| tool.limits.max_result_bytes = Some(1)),
    ("max_cost", |tool| tool.limits.max_cost = Some(1)),
    ("on_limit", |tool| tool.on_limit = OnLimit::Fail),
    ("trace", |tool| tool.trace = Trace::Always),
    ("strict", |tool| tool.strict = false),
    ("sequential", |tool| tool.strategy = FanOut::new([target(tool).clone()]).sequential().into()),
    ("race", |tool| tool.strategy = Race::new([target(tool).clone()]).into()),
    ("race, max_parallel", |tool| {
        tool.strategy = Race::new([target(tool).clone()]).max_parallel(2).into();
    }),
    ("fallback", |tool| tool.strategy = Fallback::new([target(tool).clone()]).into()),
    ("pipeline", |tool| tool.strategy = Pipeline::new([]).into()),
    ("pipeline, report", |tool| tool.strategy = Pipeline::new([]).report(false).into()),
    ("pipeline, output", |tool| tool.strategy = Pipeline::new([]).output(Output::new()).into()),
    ("success any", |tool| of_fan_out(tool).success = Success::Any),
    ("success quorum", |tool| of_fan_out(tool).success = Success::Quorum(1)),
    ("success quorum of two", |tool| of_fan_out(tool).success = Success::Quorum(2)),
    ("order", |tool| of_fan_out(tool).order = BranchOrder::Completion),
    ("report", |tool| of_fan_out(tool).report = false),
    ("labels", |tool| of_fan_out(tool).labels = Labels::Meta),
    ("max_parallel", |tool| of_fan_out(tool).max_parallel = 2),
    ("another target", |tool| of_fan_out(tool).targets.push(Target::new("tool"))),
    ("target tool", |tool| target(tool).call.tool = "other".into()),
    ("target behind", |tool| target(tool).call.behind = true),
    ("target arguments", |tool| target(tool).call.arguments = Some(json!({}))),
    ("target id", |tool| target(tool).id = Some("other".into())),
    ("target timeout", |tool| target(tool).timeout = SECOND),
    ("target optional", |tool| target(tool).optional = true),
    ("target retry_lost", |tool| target(tool).retry_lost = true),
];

const WORKFLOW: [Change<CompositeTool>; 71] = [
    ("report", |tool| of_workflow(tool).report = false),
    ("max_parallel", |tool| of_workflow(tool).max_parallel = 1),
    ("no steps", |tool| of_workflow(tool).steps = Vec::new()),
    ("another order of steps", |tool| of_workflow(tool).steps.reverse()),
    ("output content", |tool| output(tool).content = vec!["a".into()]),
    ("no output", |tool| of_workflow(tool).output = None),
    ("step id", |tool| step(tool).id = "other".into()),
    ("step action for_each", |tool| step(tool).action = each(tool).clone().into()),
    ("step action switch", |tool| step(tool).action = switch(tool).clone().into()),
    ("step action elicitation", |tool| step(tool).action = ask(tool).clone().into()),
    ("step tool", |tool| call(tool).tool = "other".into()),
    ("step behind", |tool| call(tool).behind = true),
    ("step arguments", |tool| call(tool).arguments = None),
    ("step arguments of null", |tool| call(tool).arguments = Some(Value::Null)),
    ("step argument", |tool| call(tool).arguments = Some(json!({ "q": "$input.p" }))),
    ("parse json", |tool| call(tool).parse = Some(Parse::Json)),
    ("parse csv", |tool| call(tool).parse = Some(Parse::Csv)),
    ("depends_on", |tool| step(tool).depends_on = vec!["b".into()]),
    ("condition", |tool| step(tool).condition = Some("true".into())),
    ("step timeout", |tool| step(tool).timeout = Some(6 * SECOND)),
    ("no step timeout", |tool| step(tool).timeout = None),
    ("on_error abort", |tool| step(tool).on_error = OnError::Abort),
    ("on_error continue", |tool| step(tool).on_error = OnError::Continue),
    ("retry count", |tool| retry(tool).count = 3),
    ("retry delay", |tool| retry(tool).delay = 2 * SECOND),
    ("retry max_delay", |tool| retry(tool).max_delay = 8 * SECOND),
    ("retry then", |tool| retry(tool).then = Then::Continue),
    ("default_results", |tool| step(tool).default_results = Some(json!(1))),
    ("default_results of null", |tool| step(tool).default_results = Some(Value::Null)),
    ("collection", |tool| each(tool).collection = json!([])),
    ("loop tool", |tool| each(tool).call.tool = "other".into()),
    ("item_var", |tool| each(tool).item_var = "it".into()),
    ("loop max_parallel", |tool| each(tool).max_parallel = 1),
    ("max_iterations", |tool| each(tool).max_iterations = 1),
    ("cases", |tool| switch(tool).cases = Vec::new()),
    ("case when", |tool| switch(tool).cases[0].when = "input.p".into()),
    ("case tool", |tool| switch(tool).cases[0].call.tool = "two".into()),
    ("default skip", |tool| switch(tool).default = Otherwise::Skip),
    ("default tool", |tool| switch(tool).default = Otherwise::Call("another".into())),
    ("message", |tool| ask(tool).message = "Sure?".into()),
    ("schema", |tool| ask(tool).schema = json!({ "properties": {} })),
    ("on_decline continue", |tool| ask(tool).on_decline = OnRefusal::Continue),
    ("on_decline skip", |tool| ask(tool).on_decline = OnRefusal::SkipRemaining),
    ("on_cancel continue", |tool| ask(tool).on_cancel = OnRefusal::Continue),
    ("on_cancel skip", |tool| ask(tool).on_cancel = OnRefusal::SkipRemaining),
    ("loop delay", |tool| each(tool).delay = SECOND),
    ("first_success", |tool| each(tool).first_success = true),
    ("finally", |tool| step(tool).finally = Some(Finally::new())),
    ("grace", |tool| step(tool).finally = Some(Finally::new().grace(SECOND))),
    ("retry_lost", |tool| step(tool).retry_lost = true),
    ("repeat", |tool| add(tool, repeat())),
    ("repeat call", |tool| add(tool, Repeat::new("other", "last.ok"))),
    ("until", |tool| add(tool, Repeat::new("tool", "last.no"))),
    ("repeat delay", |tool| add(tool, repeat().delay(SECOND))),
    ("backoff", |tool| add(tool, repeat().backoff(1.5))),
    ("repeat max_delay", |tool| add(tool, repeat().max_delay(SECOND))),
    ("repeat max_iterations", |tool| add(tool, repeat().max_iterations(2))),
    ("value", |tool| add(tool, ComputedValue::new("1"))),
    ("another value", |tool| add(tool, ComputedValue::new("2"))),
    ("stop", |tool| add(tool, Stop::message("1"))),
    ("stop message", |tool| add(tool, Stop::message("2"))),
    ("stop is_error", |tool| add(tool, Stop::error("1"))),
    ("stop output", |tool| add(tool, Stop::output("1"))),
    ("required", |tool| output(tool).required = vec!["p".into()]),
    ("property name", |tool| output(tool).properties[0].0 = "q".into()),
    ("property order", |tool| output(tool).properties.reverse()),
    ("property type", |tool| {
        property(tool).source = PropertySource::Value(JsonType::Integer, json!("$input"));
    }),
    ("property value", |tool| {
        property(tool).source = PropertySource::Value(JsonType::String, json!("$input.q"));
    }),
    ("property properties", |tool| {
        property(tool).source = PropertySource::Properties(Vec::new());
    }),
    ("property default", |tool| property(tool).default = Some(json!(""))),
    ("property default of null", |tool| property(tool).default = Some(Value::Null)),
];

#[test]
fn fingerprints_change_with_every_field_that_affects_a_run() {
    let mut seen = HashMap::from([
        (fingerprint(&fan_out()), "a fan-out without changes"),
        (fingerprint(&workflow()), "a workflow without changes"),
    ]);
    let fan_outs = FAN_OUT.map(|change| (fan_out(), change));
    for (tool, (what, change)) in fan_outs.into_iter().chain(WORKFLOW.map(|c| (workflow(), c))) {
        let mut changed = tool.clone();
        change(&mut changed);
        assert_ne!(changed, tool, "{what} changes nothing");
        if let Some(other) = seen.insert(fingerprint(&changed), what) {
            panic!("`{what}` has the same fingerprint as `{other}`");
        }
    }
}

#[test]
fn fingerprints_ignore_descriptions() {
    let changes: [Change<CompositeTool>; 6] = [
        ("description", |tool| tool.description = "Other".into()),
        ("title", |tool| tool.title = Some("Title".into())),
        ("annotations", |tool| tool.annotations = ToolAnnotations::new().read_only(true)),
        ("output_schema", |tool| tool.output_schema = Some(JsonObject::new())),
        ("task", |tool| tool.task = Some(TaskMode::Always)),
        ("property description", |tool| property(tool).description = Some("What it is".into())),
    ];
    for (what, change) in changes {
        let mut tool = workflow();
        change(&mut tool);
        assert_ne!(tool, workflow(), "{what} changes nothing");
        assert_eq!(fingerprint(&tool), fingerprint(&workflow()), "{what}");
    }
}

#[test]
fn fingerprint_is_the_same_in_every_process() {
    let expected = "8b9d7a3eccab9163e87941708c869791b122db0b72ee51d80c1d252c9154fb13";
    assert_eq!(fingerprint(&workflow()).to_string(), expected);
}

// === Nested composites ===

/// Returns the fingerprints of composites with these names and targets, in the given order.
fn of<const N: usize>(definitions: [(&str, &[&str]); N]) -> [Fingerprint; N] {
    let tools = definitions
        .iter()
        .map(|(name, targets)| CompositeTool::fan_out(*name, "Does", targets.iter().copied()));
    let program = Program::compile(tools.collect(), None).unwrap();
    definitions.map(|(name, _)| program.fingerprint(program.find(name).unwrap()))
}

#[test]
fn fingerprint_changes_with_every_nested_composite() {
    let before = of([
        ("outer", &["middle", "x"]),
        ("middle", &["inner"]),
        ("inner", &["a"]),
        ("beside", &["b"]),
    ]);
    let after = of([
        ("outer", &["middle", "x"]),
        ("middle", &["inner"]),
        ("inner", &["b"]),
        ("beside", &["b"]),
    ]);
    assert!((0..3).all(|place| before[place] != after[place]));
    assert_eq!(before[3], after[3]);
}

#[test]
fn fingerprint_changes_if_a_target_resolves_to_a_composite() {
    let [before] = of([("outer", &["tool"])]);
    let [after, _] = of([("outer", &["tool"]), ("tool", &["a"])]);
    assert_ne!(before, after);
}

#[test]
fn fingerprint_ignores_the_position_of_a_composite() {
    let [outer, inner] = of([("outer", &["inner"]), ("inner", &["a"])]);
    let moved = of([("other", &["b"]), ("inner", &["a"]), ("outer", &["inner"])]);
    assert_eq!([outer, inner], [moved[2], moved[1]]);
}

#[test]
fn fingerprint_depends_on_which_target_is_a_composite() {
    // In both definitions, `outer` calls tools with the names `a` and `b`, one of which is a
    // composite.
    let [first, _] = of([("outer", &["a", "b"]), ("a", &["x"])]);
    let [second, _] = of([("outer", &["a", "b"]), ("b", &["x"])]);
    assert_ne!(first, second);
}
