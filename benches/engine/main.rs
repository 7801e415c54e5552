//! The overhead of steps: pipelines, workflows and loops of many sizes, compared with the same
//! calls made by hand.
//!
//! ```sh
//! cargo bench -p benches --bench engine                  # everything, some two minutes
//! cargo bench -p benches --bench engine -- chain         # what has this in its name
//! cargo bench -p benches --bench engine -- allocations   # no times, only allocations
//! ```
//!
//! `more` is the time of a run beyond its calls: divide it by the number of steps. The table
//! compares cases of this run, and within each of its rounds; see `benches/stack`.

#[path = "../fan_out/counting.rs"]
mod counting;
#[path = "../stack/measure.rs"]
mod measure;
mod tools;

use mcp_composite::{
    composite::{
        CompositeLayer, CompositeTool, ComputedValue, ForEach, Repeat, Step, ToolCall, Workflow,
    },
    config::Config,
};
use serde_json::json;
use tower::Layer;

use self::{
    measure::Group,
    tools::{Tools, call},
};

/// The arguments of a step: references, or one template.
#[derive(Clone, Copy)]
enum Arguments {
    References,
    Template,
}

fn main() {
    measure::run(&[chains(), kinds(), shapes(), contexts(), parsing()]);
}

/// Steps that use the output of the previous step.
fn chains() -> Group {
    let tools = Tools::new(0);
    let mut group = Group::new("chain");
    for (by_hand, references, template, steps) in [
        ("by_hand_1", "references_1", "template_1", 1),
        ("by_hand_10", "references_10", "template_10", 10),
        ("by_hand_100", "references_100", "template_100", 100),
    ] {
        group = group
            .case(by_hand, &tools.by_hand(steps), &call("whatever"))
            .case(references, &composite(chain(steps, Arguments::References), &tools), &run())
            .against(by_hand)
            .case(template, &composite(chain(steps, Arguments::Template), &tools), &run())
            .against(by_hand);
    }
    group
}

/// Steps of other types beside as many steps that call a tool: computed values, and iterations of a
/// repeated call.
///
/// An iteration evaluates a condition, `until`. So does a step of `tool_when`, its `condition`. The
/// result of `repeat` has the outputs of all iterations, that of `repeat_last` only the last one.
fn kinds() -> Group {
    let tools = Tools::new(0);
    let values = |steps: usize| {
        let step = |index: usize| {
            let from = if index == 0 { "$input.n" } else { "$prev.n" };
            Step::new(format!("s{index}"), ComputedValue::new(json!({ "n": from, "q": "q" })))
        };
        CompositeTool::pipeline("run", "Runs", (0..steps).map(step))
    };
    let conditional = |steps: usize| {
        let step = |index: usize| {
            let from = if index == 0 { "input.n" } else { "prev.n" };
            let arguments = json!({ "n": format!("${from}"), "q": "q" });
            Step::new(format!("s{index}"), ToolCall::new("step").arguments(arguments))
                .condition(format!("{from} > 0"))
                .default_results(json!({ "n": 1 }))
        };
        CompositeTool::pipeline("run", "Runs", (0..steps).map(step))
    };
    let repeat = |iterations: usize| {
        let call = ToolCall::new("step").arguments(json!({ "n": "$last.n?", "q": "q" }));
        let until = format!("index == {}", iterations - 1);
        Step::new("poll", Repeat::new(call, until).max_iterations(iterations))
    };
    let repeated = |iterations: usize| CompositeTool::pipeline("run", "Runs", [repeat(iterations)]);
    let repeated_last = |iterations: usize| {
        let last = Step::new("last", ComputedValue::new(json!("$prev.last")));
        CompositeTool::pipeline("run", "Runs", [repeat(iterations), last])
    };
    let mut group = Group::new("kind");
    for (tool, tool_when, value, repeat, repeat_last, steps) in [
        ("tool_10", "tool_when_10", "value_10", "repeat_10", "repeat_last_10", 10),
        ("tool_100", "tool_when_100", "value_100", "repeat_100", "repeat_last_100", 100),
    ] {
        group = group
            .case(tool, &composite(chain(steps, Arguments::References), &tools), &run())
            .case(tool_when, &composite(conditional(steps), &tools), &run())
            .against(tool)
            .case(value, &composite(values(steps), &tools), &run())
            .against(tool)
            .case(repeat, &composite(repeated(steps), &tools), &run())
            .against(tool)
            .case(repeat_last, &composite(repeated_last(steps), &tools), &run())
            .against(tool_when);
    }
    group
}

/// Steps with many dependencies, and loops.
fn shapes() -> Group {
    let tools = Tools::new(0);
    let each = Step::new(
        "each",
        ForEach::new(
            "$input.items",
            ToolCall::new("step").arguments(json!({ "n": "$item", "q": "q" })),
        )
        .max_iterations(1_000),
    );
    let looped = CompositeTool::workflow("run", "Runs", [each]);
    let items: Vec<_> = (0..1_000).collect();
    Group::new("shape")
        .case("by_hand_100", &tools.by_hand(100), &call("whatever"))
        .case("diamond_100", &composite(diamond(100), &tools), &run())
        .against("by_hand_100")
        .case("by_hand_1000", &tools.by_hand(1_000), &call("whatever"))
        .case(
            "loop_1000",
            &composite(looped, &tools),
            &tools::call_with("run", &json!({ "items": items })),
        )
        .against("by_hand_1000")
}

/// Ten steps that each read a little of the large output of the first one.
fn contexts() -> Group {
    let mut group = Group::new("context");
    for (by_hand, references, template, bytes) in [
        ("by_hand_100_b", "references_100_b", "template_100_b", 100),
        ("by_hand_20_kb", "references_20_kb", "template_20_kb", 20_000),
        ("by_hand_200_kb", "references_200_kb", "template_200_kb", 200_000),
    ] {
        let tools = Tools::new(bytes);
        group = group
            .case(by_hand, &tools.by_hand(10), &call("whatever"))
            .case(references, &composite(readers(Arguments::References), &tools), &run())
            .against(by_hand)
            .case(template, &composite(readers(Arguments::Template), &tools), &run())
            .against(by_hand);
    }
    group
}

/// A file of 100 composites of five steps each.
fn parsing() -> Group {
    let composite = |index: usize| {
        let steps = (0..5).map(|step| {
            let previous = match step {
                0 => "$input.query".to_owned(),
                step => format!("{{{{ steps.s{}.output.text }}}} and {{{{ input.query }}}}", step - 1),
            };
            format!(
                "[[composite_tools.steps]]\nid = \"s{step}\"\ntool = \"tool_{step}\"\n\
                 arguments = {{ q = \"{previous}\", limit = 5, deep = {{ a = [\"$input.query\"] }} }}\n\
                 on_error = {{ action = \"retry\", retry_count = 2 }}\n",
            )
        });
        format!(
            "[[composite_tools]]\nname = \"composite_{index}\"\ndescription = \"It does\"\n\
             strategy = \"workflow\"\n{}",
            steps.collect::<String>(),
        )
    };
    let file: String = (0..100).map(composite).collect();
    // The clock runs while a service is called, so the service reads the file.
    let read = tools::Calling::new(move || {
        Config::from_toml_str(&file).expect("the file has no mistakes");
    });
    Group::new("parse").first_call("composites_100", move || read.clone(), &call("whatever"))
}

fn chain(steps: usize, arguments: Arguments) -> CompositeTool {
    let step = |index: usize| {
        let from = match (index, arguments) {
            (0, Arguments::References) => "$input.n",
            (0, Arguments::Template) => "n{{ input.n }}",
            (_, Arguments::References) => "$prev.n",
            (_, Arguments::Template) => "n{{ prev.n }}",
        };
        Step::new(
            format!("s{index}"),
            ToolCall::new("step").arguments(json!({ "n": from, "q": "q" })),
        )
    };
    CompositeTool::pipeline("run", "Runs", (0..steps).map(step))
}

fn diamond(steps: usize) -> CompositeTool {
    let first =
        Step::new("first", ToolCall::new("step").arguments(json!({ "n": "$input.n", "q": "q" })));
    let middle = (1..steps - 1).map(|index| {
        Step::new(
            format!("m{index}"),
            ToolCall::new("step").arguments(json!({ "n": "$steps.first.output.n", "q": "q" })),
        )
    });
    let last = Step::new(
        "last",
        ToolCall::new("step").arguments(json!({ "n": "$steps.m1.output.n", "q": "q" })),
    )
    .depends_on((1..steps - 1).map(|index| format!("m{index}")));
    CompositeTool::new(
        "run",
        "Runs",
        Workflow::new([first].into_iter().chain(middle).chain([last])).max_parallel(100),
    )
}

fn readers(arguments: Arguments) -> CompositeTool {
    let first = Step::new("large", "large");
    let others = (1..10).map(|index| {
        let from = match arguments {
            Arguments::References => "$steps.large.output.rows[3].n",
            Arguments::Template => "n{{ steps.large.output.rows[3].n }}",
        };
        Step::new(
            format!("s{index}"),
            ToolCall::new("step").arguments(json!({ "n": from, "q": "q" })),
        )
    });
    CompositeTool::pipeline("run", "Runs", [first].into_iter().chain(others))
}

fn composite(composite: CompositeTool, tools: &Tools) -> tools::Service {
    let layer = CompositeLayer::new([composite]).expect("the definition has no mistakes");
    layer.layer(tools.clone())
}

fn run() -> mcp_composite::message::Request {
    tools::call_with("run", &json!({ "n": 1 }))
}
