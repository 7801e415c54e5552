//! The guarantees of the check, in runs of random composites.
//!
//! The results of a source are changed at random. If the check accepts the composites, the sink
//! must receive the same calls as before, unless a person has seen and approved other values. A
//! failure ends a run, and so can prevent calls, but must not cause others.

use std::{
    cell::Cell,
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use mcp_composite::{
    composite::{
        Action, Case, CompositeLayer, CompositeTool, ComputedValue, Elicitation, Fallback, FanOut,
        Finally, FlowLabel, FlowPolicy, ForEach, JsonType, OnError, OnRefusal, Otherwise, Output,
        OutputProperty, Pipeline, Race, Repeat, Step, Stop, Strategy as CompositeStrategy, Success,
        Switch, Target, ToolCall, Workflow,
    },
    pattern::Selection,
    testing::RecordedCall,
};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use rmcp::model::{InputRequest, ServerResult};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::scripted::{Answer, Server, call, can_be_asked};

/// The tool without labels.
const PLAIN: &str = "plain";
/// The composite that the other one can call as a tool.
const INNER: &str = "inner";
/// The number of random composites. `PROPTEST_CASES` can only raise it, since the test counts the
/// composites of each kind.
const CASES: u32 = 1000;

/// A random reference to data of a run.
#[derive(Clone, Copy, Debug)]
struct Read {
    /// Selects an earlier step, or the input.
    from: usize,
    form: usize,
}

/// A random step or target.
#[derive(Clone, Debug)]
struct Draft {
    kind: usize,
    tools: [usize; 2],
    arguments: Vec<Read>,
    condition: Option<Read>,
    continues: bool,
    has_default: bool,
}

/// A random composite.
#[derive(Clone, Debug)]
struct Composite {
    strategy: usize,
    steps: Vec<Draft>,
    output: Option<Read>,
    /// Whether the last step is a finally step.
    has_final: bool,
}

/// Builds the definition of a composite.
struct Builder {
    /// The steps that expressions can read.
    readable: Vec<String>,
    /// The questions so far.
    questions: Vec<String>,
    /// The tools that steps call.
    tools: [&'static str; 5],
    has_inner: bool,
    is_pipeline: bool,
}

fn read() -> impl Strategy<Value = Read> {
    (0..6_usize, 0..9_usize).prop_map(|(from, form)| Read { from, form })
}

fn draft() -> impl Strategy<Value = Draft> {
    let kind =
        prop_oneof![6 => Just(0_usize), 3 => 1..6_usize, 2 => Just(4_usize), 4 => Just(6_usize)];
    let condition = proptest::option::weighted(0.3, read());
    let flags = (proptest::bool::weighted(0.4), any::<bool>());
    (kind, [0..6_usize, 0..6_usize], vec(read(), 1..3), condition, flags).prop_map(
        |(kind, tools, arguments, condition, (continues, has_default))| Draft {
            kind,
            tools,
            arguments,
            condition,
            continues,
            has_default,
        },
    )
}

/// Returns steps that read a value, show it in a question, and pass it to the sink.
fn approved_steps() -> Vec<Draft> {
    let step = |kind, tool, form| Draft {
        kind,
        tools: [tool, 0],
        arguments: vec![Read { from: 0, form }],
        condition: None,
        continues: false,
        has_default: false,
    };
    vec![step(0, 0, 0), step(6, 1, 3), step(0, 1, 1)]
}

fn composite() -> impl Strategy<Value = Composite> {
    let strategy = prop_oneof![3 => Just(0_usize), 3 => Just(1_usize), 2 => 2..5_usize];
    let output = proptest::option::of(read());
    let flags = (proptest::bool::weighted(0.2), proptest::bool::weighted(0.3));
    (strategy, vec(draft(), 2..5), output, flags).prop_map(
        |(strategy, mut steps, output, (has_final, is_approved))| {
            if is_approved {
                steps.splice(..0, approved_steps());
            }
            Composite { strategy, steps, output, has_final }
        },
    )
}

// === impl Builder ===

impl Builder {
    /// Returns the step that an expression reads. Returns `None` if it reads the input.
    fn source(&self, from: usize) -> Option<&str> {
        self.readable.get(from % (self.readable.len() + 1)).map(String::as_str)
    }

    fn expression(&self, Read { from, form }: Read) -> String {
        let Some(step) = self.source(from) else {
            return match form % 3 {
                0 => "constant".to_owned(),
                1 => "$input.a?".to_owned(),
                _ => "{{ input.b | default('none') }}".to_owned(),
            };
        };
        let output = format!("steps.{step}.output");
        match form {
            0 => format!("${output}?"),
            1 => format!("${output}.text?"),
            2 => format!("n{{{{ {output}.n | default(0) }}}}"),
            3 => format!("{{% if {output}.ok | default(false) %}}a{{% else %}}b{{% endif %}}"),
            4 => format!("$steps.{step}.status"),
            5 => format!("{{{{ steps.{step}.error | tojson }}}}"),
            6 => format!("{{{{ {output}.rows | default([]) | length }}}}"),
            7 => format!("{{% for n in {output}.rows | default([]) %}}{{{{ n }}}},{{% endfor %}}"),
            _ => format!("$steps.{step}.content?"),
        }
    }

    fn condition(&self, Read { from, form }: Read) -> String {
        match (self.source(from), form % 3) {
            (None, 0) => "input.yes | default(true)".to_owned(),
            (None, _) => "input.a | default('') | string == 'x'".to_owned(),
            (Some(step), 0) => format!("steps.{step}.status == 'completed'"),
            (Some(step), _) => format!("steps.{step}.output.ok | default(false)"),
        }
    }

    /// Returns the message of a question, most of which show a value that later steps may use.
    fn question(&self, Read { from, form }: Read) -> String {
        let Some(step) = self.source(from) else { return "Go on?".to_owned() };
        let output = format!("steps.{step}.output");
        match form {
            0..3 => format!("Use {{{{ {output} }}}}?"),
            3..6 => format!("Use {{{{ {output}.text }}}}?"),
            6 => format!("Use {{{{ {output}.text | upper }}}}?"),
            _ => format!("Use {{{{ {output}.n }}}}?"),
        }
    }

    fn tool(&self, tool: usize) -> &'static str {
        self.tools.get(tool).copied().unwrap_or(if self.has_inner { INNER } else { PLAIN })
    }

    fn arguments(&self, draft: &Draft) -> Value {
        let arguments = draft.arguments.iter().zip(["a", "b"]);
        arguments
            .map(|(read, name)| (name.to_owned(), self.expression(*read).into()))
            .collect::<serde_json::Map<_, Value>>()
            .into()
    }

    fn action(&self, draft: &Draft) -> Action {
        let first = draft.arguments.first().copied().unwrap_or(Read { from: 0, form: 0 });
        let call = |tool: usize| {
            ToolCall::new(self.tool(draft.tools[tool])).arguments(self.arguments(draft))
        };
        match draft.kind {
            1 => {
                let rows = match self.source(first.from) {
                    Some(step) => format!("{{{{ steps.{step}.output.rows | default([]) }}}}"),
                    None => "[1, 2]".to_owned(),
                };
                let arguments = json!({ "a": "$item", "b": self.expression(first) });
                let tool = ToolCall::new(self.tool(draft.tools[0])).arguments(arguments);
                ForEach::new(json!(rows), tool).into()
            }
            2 => {
                let case = Case::new(self.condition(first), call(0));
                let default = match draft.has_default {
                    true => Otherwise::Call(call(1)),
                    false => Otherwise::Skip,
                };
                Switch::new([case], default).into()
            }
            3 => ComputedValue::new(self.expression(first)).into(),
            5 => {
                let arguments = json!({ "a": "$last.text?", "b": self.expression(first) });
                let tool = ToolCall::new(self.tool(draft.tools[0])).arguments(arguments);
                let until = match draft.has_default {
                    true => "index >= 1".to_owned(),
                    false => format!("last.ok | default(true) or ({})", self.condition(first)),
                };
                Repeat::new(tool, until).max_iterations(3).into()
            }
            // A stop in a workflow cancels steps that have made their calls or not, depending on
            // the time.
            4 if self.is_pipeline && draft.condition.is_some() => match draft.has_default {
                true => Stop::error(self.expression(first)).into(),
                false => Stop::message(self.expression(first)).into(),
            },
            6 => {
                let question = Elicitation::new(self.question(first), json!({}));
                match draft.tools[0] {
                    0 => question.on_decline(OnRefusal::Continue).into(),
                    _ => question.into(),
                }
            }
            _ => call(0).into(),
        }
    }

    fn step(&mut self, index: usize, draft: &Draft) -> Step {
        let id = format!("s{index}");
        let action = self.action(draft);
        let is_stop = matches!(action, Action::Stop(_));
        let is_question = matches!(action, Action::Elicitation(_));
        let mut step = Step::new(id.clone(), action);
        if !self.is_pipeline && draft.tools[1] < 4 {
            step = step.depends_on(self.questions.clone());
        }
        if let Some(read) = draft.condition {
            step = step.condition(self.condition(read));
        }
        // A failure of the inner composite fails the outer one, too.
        let continues = draft.continues && !self.calls_inner(draft);
        if is_stop {
            return step;
        }
        if continues {
            step = step.on_error(OnError::Continue);
        }
        if is_question {
            self.questions.push(id.clone());
            if draft.condition.is_none() && !continues {
                self.readable.push(id);
            }
            return step;
        }
        if draft.has_default && (continues || draft.condition.is_some()) {
            let output = json!({ "n": 7, "ok": true, "rows": [7], "text": "default" });
            step = step.default_results(output);
        }
        self.readable.push(id);
        step
    }

    fn calls_inner(&self, draft: &Draft) -> bool {
        draft.tools.iter().any(|tool| self.tool(*tool) == INNER)
    }

    fn targets(&self, composite: &Composite) -> Vec<Target> {
        let target = |(index, draft): (usize, &Draft)| {
            let target = Target::new(self.tools[draft.tools[0] % 5]).id(format!("t{index}"));
            if draft.continues { target } else { target.arguments(self.arguments(draft)) }
        };
        composite.steps.iter().enumerate().map(target).collect()
    }

    fn steps(&mut self, composite: &Composite) -> (Vec<Step>, Option<Output>) {
        let drafts = composite.steps.iter().enumerate();
        let mut steps: Vec<_> = drafts.map(|(index, draft)| self.step(index, draft)).collect();
        if composite.has_final
            && composite.steps.last().is_some_and(|draft| !self.calls_inner(draft))
            && let Some(last) = steps.pop()
        {
            steps.push(last.finally(Finally::new()));
        }
        let output = composite.output.map(|read| {
            let text = OutputProperty::new(JsonType::String, self.expression(read));
            Output::new().property("text", text.description("A text").default(json!("")))
        });
        (steps, output)
    }

    fn strategy(&mut self, composite: &Composite) -> CompositeStrategy {
        match composite.strategy {
            0 => {
                let (steps, output) = self.steps(composite);
                output.into_iter().fold(Pipeline::new(steps), Pipeline::output).into()
            }
            1 => {
                let (steps, output) = self.steps(composite);
                output.into_iter().fold(Workflow::new(steps), Workflow::output).into()
            }
            2 => Fallback::new(self.targets(composite)).into(),
            3 => Race::new(self.targets(composite)).into(),
            _ => FanOut::new(self.targets(composite)).success(Success::Any).into(),
        }
    }
}

fn tool(
    name: &str,
    composite: &Composite,
    tools: [&'static str; 5],
    has_inner: bool,
) -> CompositeTool {
    let is_pipeline = composite.strategy == 0;
    let (readable, questions) = (Vec::new(), Vec::new());
    let mut builder = Builder { readable, questions, tools, has_inner, is_pipeline };
    CompositeTool::new(name, "A random composite", builder.strategy(composite))
}

/// Returns a tool whose answer depends on the seed and on the arguments of the call, and that fails
/// for some of them.
fn answer(seed: u64) -> Answer {
    Answer::from_fn(move |call: RecordedCall| {
        let mut hasher = DefaultHasher::new();
        (seed, call.tool(), call.arguments().to_string()).hash(&mut hasher);
        let number = hasher.finish();
        async move {
            if number.is_multiple_of(12) {
                return Answer::failure(format!("failure {}", number % 3));
            }
            Answer::structured(json!({
                "n": number % 5,
                "ok": (number >> 8).is_multiple_of(2),
                "rows": (0..(number >> 16) % 3).collect::<Vec<_>>(),
                "text": format!("text {}", (number >> 24) % 7),
            }))
        }
    })
}

/// A run of the outer composite.
#[derive(Debug, Default)]
struct Run {
    /// Whether the run has completed. Otherwise, a failure or a person has ended it.
    has_completed: bool,
    /// The calls of the sink, in alphabetical order.
    calls: Vec<String>,
    /// The message of each question, by the key of the question and the number of its repetition.
    questions: BTreeMap<(String, usize), String>,
}

/// Returns the answer of a person to a question. It depends on the message only.
fn answer_to(message: &str) -> Value {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    let action = if hasher.finish().is_multiple_of(8) { "decline" } else { "accept" };
    json!({ "action": action, "content": {} })
}

/// Runs the outer composite.
async fn run(layer: &CompositeLayer, [secret, page]: [u64; 2], sink: &str) -> Run {
    let server = Server::new()
        .tool("secret", answer(secret))
        .tool("page", answer(page))
        .tool(PLAIN, answer(0))
        .tool("send", answer(0))
        .tool("drop", answer(0));
    let service = layer.layer(server.clone());
    let mut request = call("outer", json!({ "a": "x", "b": 3, "yes": true }));
    *request.context_mut().meta_mut() = can_be_asked();
    let mut run = Run::default();
    loop {
        let reply = service.clone().oneshot(request.clone()).await.unwrap();
        if let Some(ServerResult::InputRequiredResult(asks)) = reply.result() {
            let mut answers = serde_json::Map::new();
            for (key, question) in asks.input_requests.clone().unwrap_or_default() {
                let InputRequest::Elicitation(question) = question else { unreachable!() };
                let question = serde_json::to_value(question.params).unwrap();
                let message = question["message"].as_str().unwrap().to_owned();
                answers.insert(key.clone(), answer_to(&message));
                let repetition = run.questions.keys().filter(|(other, _)| *other == key).count();
                run.questions.insert((key, repetition), message);
            }
            let params = request.tool_call_mut().unwrap();
            params.request_state.clone_from(&asks.request_state);
            params.input_responses = serde_json::from_value(answers.into()).unwrap();
            continue;
        }
        run.has_completed = reply.tool_result().is_some_and(|it| it.is_error != Some(true));
        break;
    }
    let calls = server.calls().into_iter().filter(|call| call.tool() == sink);
    run.calls = calls.map(|call| call.arguments().to_string()).collect();
    run.calls.sort();
    run
}

impl Run {
    /// Returns `true` if the person has seen the same values in both runs, as far as both have
    /// asked the same questions.
    fn shows_like(&self, other: &Self) -> bool {
        self.questions
            .iter()
            .all(|(key, message)| other.questions.get(key).is_none_or(|it| it == message))
    }

    /// Returns `true` if this run, which has completed, makes all calls of the other one. If the
    /// other one has completed, too, it must make the same calls.
    fn agrees_with(&self, other: &Self) -> bool {
        if other.has_completed {
            return self.calls == other.calls;
        }
        let mut rest = self.calls.clone();
        other.calls.iter().all(|call| {
            let index = rest.iter().position(|own| own == call);
            index.map(|index| rest.swap_remove(index)).is_some()
        })
    }
}

fn block_on<R>(future: impl Future<Output = R>) -> R {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(future)
}

/// How many composites of each kind were generated.
#[derive(Debug, Default)]
struct Counts {
    /// Accepted, with runs that call the sink.
    compared: Cell<u32>,
    /// Accepted, with runs that call the sink differently, since a person has approved other
    /// values.
    approved: Cell<u32>,
    /// Accepted, with a failed run that calls the sink, and a completed one.
    failed: Cell<u32>,
    /// Rejected, with runs that call the sink differently.
    differed: Cell<u32>,
}

/// Checks random composites. `seeds` returns the seeds of both sources for a random number.
fn check(
    source: &'static str,
    sink: &'static str,
    labels: [FlowLabel; 2],
    seeds: fn(u64) -> [u64; 2],
) {
    let tools = |name: &str| Selection::default().allow([name]).unwrap();
    let policy =
        FlowPolicy::new().label(tools(source), [labels[0]]).label(tools(sink), [labels[1]]);
    let counts = Counts::default();
    let add = |count: &Cell<u32>| count.set(count.get() + 1);
    let default = Config::default();
    let cases = default.cases.max(CASES);
    let config = Config { cases, failure_persistence: None, ..default };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let cases = (composite(), composite(), vec(1_u64..1000, 6));
    let checked = runner.run(&cases, |(inner, outer, numbers)| {
        let names = [source, sink, PLAIN, sink, PLAIN];
        let tools = [tool(INNER, &inner, names, false), tool("outer", &outer, names, true)];
        let Ok(layer) = CompositeLayer::new(tools) else { return Ok(()) };
        let is_accepted = layer.check_flow(&policy).is_empty();
        let runs: Vec<_> = block_on(async {
            let mut runs = Vec::new();
            for number in &numbers {
                runs.push(run(&layer, seeds(*number), sink).await);
            }
            runs
        });
        let completed = || runs.iter().filter(|run| run.has_completed);
        let is_same = completed().all(|one| {
            runs.iter().filter(|other| one.shows_like(other)).all(|other| one.agrees_with(other))
        });
        prop_assert!(!is_accepted || is_same, "{runs:#?} of {layer:?}");
        let first = completed().next();
        let calls_sink = |run: &&Run| !run.calls.is_empty();
        if is_accepted && completed().count() > 1 && first.as_ref().is_some_and(calls_sink) {
            add(&counts.compared);
        }
        if is_accepted && first.is_some_and(|first| completed().any(|it| it.calls != first.calls)) {
            add(&counts.approved);
        }
        let has_failed = |run: &Run| !run.has_completed && !run.calls.is_empty();
        if is_accepted && first.is_some() && runs.iter().any(has_failed) {
            add(&counts.failed);
        }
        if !is_same {
            add(&counts.differed);
        }
        Ok(())
    });
    checked.unwrap();
    // The test would be useless without each of them.
    let Counts { compared, approved, failed, differed } = &counts;
    assert!(compared.get() > CASES / 20 && differed.get() > CASES / 50, "{counts:?}");
    assert!(approved.get() > CASES / 200 && failed.get() > CASES / 200, "{counts:?}");
}

#[test]
fn private_results_do_not_reach_egress_tools() {
    check("secret", "send", [FlowLabel::Private, FlowLabel::Egress], |number| [number, 1]);
}

#[test]
fn untrusted_results_do_not_reach_destructive_tools() {
    check("page", "drop", [FlowLabel::Untrusted, FlowLabel::Destructive], |number| [1, number]);
}
