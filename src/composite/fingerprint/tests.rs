use std::collections::HashMap;

use rmcp::model::{JsonObject, ToolAnnotations};

use super::*;
use crate::composite::{Labels, OnLimit, OutputType, StepKind, Trace, compile::Program};

/// Returns a composite that uses every field.
fn whole() -> CompositeTool {
    let retry = Retry::times(2).delay(Duration::from_secs(1)).max_delay(Duration::from_secs(9));
    let step = Step::new("a", "tool")
        .arguments(json!({ "q": "$input.q" }))
        .timeout(Duration::from_secs(5))
        .on_error(OnError::Retry(retry));
    let switch = Step::switch(
        "b",
        [Case::new("input.q", ToolCall::new("one"))],
        Otherwise::Call(ToolCall::new("other")),
    );
    CompositeTool {
        success: Some(Success::All),
        order: Some(Order::Declared),
        targets: Some(vec![Target::new("tool").id("id")]),
        ..CompositeTool::workflow("name", "Description", [step, switch])
    }
    .output(
        Output::new().property("p", OutputProperty::new(OutputType::String, "$input")).property(
            "o",
            OutputProperty::object([("i", OutputProperty::new(OutputType::Number, 1))]),
        ),
    )
}

fn target(tool: &mut CompositeTool) -> &mut Target {
    &mut tool.targets.as_mut().unwrap()[0]
}

fn step(tool: &mut CompositeTool) -> &mut Step {
    &mut tool.steps.as_mut().unwrap()[0]
}

fn switch(tool: &mut CompositeTool) -> &mut Step {
    &mut tool.steps.as_mut().unwrap()[1]
}

fn case(tool: &mut CompositeTool) -> &mut Case {
    &mut switch(tool).cases.as_mut().unwrap()[0]
}

fn call(tool: &mut CompositeTool) -> &mut ToolCall {
    step(tool).call.as_mut().unwrap()
}

fn retry(tool: &mut CompositeTool) -> &mut Retry {
    let Some(OnError::Retry(retry)) = &mut step(tool).on_error else { panic!("it has one") };
    retry
}

fn output(tool: &mut CompositeTool) -> &mut Output {
    tool.output.as_mut().unwrap()
}

fn property(tool: &mut CompositeTool) -> &mut OutputProperty {
    &mut output(tool).properties[0].1
}

const SECOND: Duration = Duration::from_secs(1);

/// The name of a field, and a change of its value.
type Change = (&'static str, fn(&mut CompositeTool));

const CHANGES: [Change; 84] = [
    ("name", |tool| tool.name = "other".into()),
    ("input_schema", |tool| tool.input_schema = Some(JsonObject::new())),
    ("timeout", |tool| tool.timeout = Some(SECOND)),
    ("timeout, by a nanosecond", |tool| tool.timeout = Some(SECOND + Duration::from_nanos(1))),
    ("max_calls", |tool| tool.max_calls = Some(1)),
    ("max_result_bytes", |tool| tool.max_result_bytes = Some(1)),
    ("max_cost", |tool| tool.max_cost = Some(1)),
    ("on_limit partial", |tool| tool.on_limit = Some(OnLimit::Partial)),
    ("on_limit fail", |tool| tool.on_limit = Some(OnLimit::Fail)),
    ("strategy parallel", |tool| tool.strategy = Strategy::Parallel),
    ("strategy sequential", |tool| tool.strategy = Strategy::Sequential),
    ("strategy race", |tool| tool.strategy = Strategy::Race),
    ("strategy fallback", |tool| tool.strategy = Strategy::Fallback),
    ("strategy pipeline", |tool| tool.strategy = Strategy::Pipeline),
    ("success any", |tool| tool.success = Some(Success::Any)),
    ("success quorum", |tool| tool.success = Some(Success::Quorum(1))),
    ("success quorum of two", |tool| tool.success = Some(Success::Quorum(2))),
    ("order", |tool| tool.order = Some(Order::Completion)),
    ("report", |tool| tool.report = Some(false)),
    ("labels text", |tool| tool.labels = Some(Labels::Text)),
    ("labels meta", |tool| tool.labels = Some(Labels::Meta)),
    ("trace on request", |tool| tool.trace = Some(Trace::OnRequest)),
    ("trace always", |tool| tool.trace = Some(Trace::Always)),
    ("max_parallel", |tool| tool.max_parallel = Some(1)),
    ("no targets", |tool| tool.targets = None),
    ("another target", |tool| tool.targets.as_mut().unwrap().push(Target::new("tool"))),
    ("no steps", |tool| tool.steps = None),
    ("another order of steps", |tool| tool.steps.as_mut().unwrap().reverse()),
    ("no output", |tool| tool.output = None),
    ("strict", |tool| tool.strict = Some(false)),
    ("target tool", |tool| target(tool).call.tool = "other".into()),
    ("target behind", |tool| target(tool).call.behind = true),
    ("target arguments", |tool| target(tool).call.arguments = Some(json!({}))),
    ("target id", |tool| target(tool).id = Some("other".into())),
    ("target timeout", |tool| target(tool).timeout = Some(SECOND)),
    ("target optional", |tool| target(tool).optional = Some(true)),
    ("step id", |tool| step(tool).id = "other".into()),
    ("step kind", |tool| step(tool).kind = StepKind::ForEach),
    ("step kind switch", |tool| step(tool).kind = StepKind::Switch),
    ("step call", |tool| step(tool).call = None),
    ("step tool", |tool| call(tool).tool = "other".into()),
    ("step behind", |tool| call(tool).behind = true),
    ("step arguments", |tool| call(tool).arguments = None),
    ("step arguments of null", |tool| call(tool).arguments = Some(Value::Null)),
    ("step argument", |tool| call(tool).arguments = Some(json!({ "q": "$input.p" }))),
    ("depends_on", |tool| step(tool).depends_on = Some(vec!["b".into()])),
    ("condition", |tool| step(tool).condition = Some("true".into())),
    ("step timeout", |tool| step(tool).timeout = Some(6 * SECOND)),
    ("on_error", |tool| step(tool).on_error = None),
    ("on_error abort", |tool| step(tool).on_error = Some(OnError::Abort)),
    ("on_error continue", |tool| step(tool).on_error = Some(OnError::Continue)),
    ("retry count", |tool| retry(tool).count = 3),
    ("retry delay", |tool| retry(tool).delay = 2 * SECOND),
    ("retry max_delay", |tool| retry(tool).max_delay = 8 * SECOND),
    ("retry then", |tool| retry(tool).then = Then::Continue),
    ("default_results", |tool| step(tool).default_results = Some(json!(1))),
    ("default_results of null", |tool| step(tool).default_results = Some(Value::Null)),
    ("parse_json", |tool| step(tool).parse_json = true),
    ("collection", |tool| step(tool).collection = Some(json!([]))),
    ("item_var", |tool| step(tool).item_var = Some("it".into())),
    ("step max_parallel", |tool| step(tool).max_parallel = Some(1)),
    ("max_iterations", |tool| step(tool).max_iterations = Some(1)),
    ("cases", |tool| switch(tool).cases = Some(Vec::new())),
    ("case when", |tool| case(tool).when = "input.p".into()),
    ("case tool", |tool| case(tool).call.tool = "two".into()),
    ("default skip", |tool| switch(tool).default = Some(Otherwise::Skip)),
    ("default tool", |tool| switch(tool).default = Some(Otherwise::Call("another".into()))),
    ("step kind elicitation", |tool| step(tool).kind = StepKind::Elicitation),
    ("message", |tool| step(tool).message = Some("Sure?".into())),
    ("schema", |tool| step(tool).schema = Some(json!({ "properties": {} }))),
    ("schema of null", |tool| step(tool).schema = Some(Value::Null)),
    ("on_decline", |tool| step(tool).on_decline = Some(OnRefusal::Abort)),
    ("on_decline continue", |tool| step(tool).on_decline = Some(OnRefusal::Continue)),
    ("on_decline skip", |tool| step(tool).on_decline = Some(OnRefusal::SkipRemaining)),
    ("on_cancel", |tool| step(tool).on_cancel = Some(OnRefusal::Abort)),
    ("on_cancel continue", |tool| step(tool).on_cancel = Some(OnRefusal::Continue)),
    ("required", |tool| output(tool).required = vec!["p".into()]),
    ("property name", |tool| output(tool).properties[0].0 = "q".into()),
    ("property order", |tool| output(tool).properties.reverse()),
    ("property type", |tool| property(tool).kind = Some(OutputType::Integer)),
    ("property value", |tool| property(tool).value = Some(json!("$input.q"))),
    ("property without value", |tool| property(tool).value = None),
    ("property properties", |tool| property(tool).properties = Some(Vec::new())),
    ("property default", |tool| property(tool).default = Some(Value::Null)),
];

#[test]
fn whatever_a_run_does_otherwise_has_another_fingerprint() {
    let mut seen = HashMap::from([(fingerprint(&whole()), "nothing")]);
    for (what, change) in CHANGES {
        let mut tool = whole();
        change(&mut tool);
        assert_ne!(tool, whole(), "{what} changes nothing");
        if let Some(other) = seen.insert(fingerprint(&tool), what) {
            panic!("`{what}` is not told from `{other}`");
        }
    }
}

#[test]
fn what_clients_are_told_makes_no_difference() {
    let changes: [Change; 5] = [
        ("description", |tool| tool.description = "Other".into()),
        ("title", |tool| tool.title = Some("Title".into())),
        ("annotations", |tool| tool.annotations = Some(ToolAnnotations::default())),
        ("output_schema", |tool| tool.output_schema = Some(JsonObject::new())),
        ("property description", |tool| property(tool).description = Some("What it is".into())),
    ];
    for (what, change) in changes {
        let mut tool = whole();
        change(&mut tool);
        assert_ne!(tool, whole(), "{what} changes nothing");
        assert_eq!(fingerprint(&tool), fingerprint(&whole()), "{what}");
    }
}

#[test]
fn a_fingerprint_is_the_same_in_every_process() {
    let expected = "b49685ba8d55d5d50728e67335f92a7153aeb430e0234b04d3d29eba692a9e9b";
    assert_eq!(fingerprint(&whole()).to_string(), expected);
}

// === Nested composites ===

/// Returns the fingerprints of the composites of these names and targets, by name.
fn of<const N: usize>(definitions: [(&str, &[&str]); N]) -> [Fingerprint; N] {
    let tools = definitions
        .iter()
        .map(|(name, targets)| CompositeTool::fan_out(*name, "Does", targets.iter().copied()));
    let program = Program::compile(tools.collect(), None).unwrap();
    definitions.map(|(name, _)| program.fingerprint(program.find(name).unwrap()))
}

#[test]
fn a_composite_changes_with_all_that_it_calls() {
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
fn a_composite_changes_if_a_name_leads_elsewhere() {
    let [before] = of([("outer", &["tool"])]);
    let [after, _] = of([("outer", &["tool"]), ("tool", &["a"])]);
    assert_ne!(before, after);
}

#[test]
fn the_place_of_a_composite_makes_no_difference() {
    let [outer, inner] = of([("outer", &["inner"]), ("inner", &["a"])]);
    let moved = of([("other", &["b"]), ("inner", &["a"]), ("outer", &["inner"])]);
    assert_eq!([outer, inner], [moved[2], moved[1]]);
}

#[test]
fn which_of_its_targets_is_a_composite_makes_a_difference() {
    // Both call two tools of the names `a` and `b`, one of them a composite.
    let [first, _] = of([("outer", &["a", "b"]), ("a", &["x"])]);
    let [second, _] = of([("outer", &["a", "b"]), ("b", &["x"])]);
    assert_ne!(first, second);
}
