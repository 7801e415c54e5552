mod asks;
mod attempts;
mod branches;
mod deadlines;
mod fan_outs;
mod finals;
mod first_polls;
mod graphs;
mod loops;
mod outputs;
mod plans;
mod previews;
mod properties;
mod records;
mod repeats;
mod rounds;
mod scheduler;

mod states;
mod stops;
mod watched;

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use futures::future::pending;
use rmcp::model::{CallToolResult, ContentBlock, ErrorData};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use self::asks::asks;
use super::{
    caller::{Call, Called, Caller, ToolReply},
    limits::CallLimits,
    outcome::{ErrorKind, Outcome, Status, StepError},
    output::{Output, Property, Source},
    plan::{
        Action, Arguments, CallSite, EarlyEnd, Elicitation, EndForm, Finally, LoopKind, LoopPlan,
        OnFailure, OnRefusal, Parse, Plan, Repeat, Retry, RunOutput, SpawnHint, Step, Stop, Switch,
    },
    run::Run,
    scope::Scope,
    state::RunState,
};
use crate::{
    expr::{Collection, Condition, Expression, ScopeNames},
    message::Context,
    schema::{InputSchema, json_type::JsonType},
};

/// The time after which a test fails because something hangs.
const HANG: Duration = Duration::from_secs(60);

/// Creates a workflow from steps. They are written as in a configuration file, with two
/// differences: `continue: true` means that the step may fail, and times are numbers of seconds.
fn workflow(steps: &Value) -> Plan {
    plan(steps, 10, RunOutput::Last)
}

fn plan(steps: &Value, concurrency: usize, answer: RunOutput) -> Plan {
    try_plan(steps, concurrency, answer).expect("no circle")
}

fn try_plan(
    steps: &Value,
    concurrency: usize,
    answer: RunOutput,
) -> Result<Plan, super::plan::Cycle> {
    let written = steps.as_array().expect("steps are an array");
    let ids: Vec<_> = written.iter().map(|step| step["id"].as_str().expect("an id")).collect();
    let mut sites = 0;
    let steps = written.iter().map(|step| parse_step(step, &ids, &mut sites)).collect();
    Plan::new("test".into(), steps, concurrency, Stop::Never, answer)
}

fn parse_step(step: &Value, ids: &[&str], sites: &mut usize) -> Step {
    let names = ScopeNames { steps: ids, run: true, ..ScopeNames::default() };
    let condition = |text: &Value| {
        Condition::parse(text.as_str().expect("a condition is a text"), &names).expect("parses")
    };
    let seconds = |value: &Value| value.as_f64().map(Duration::from_secs_f64);
    let mut call = |call: &Value, names: &ScopeNames<'_>| {
        let tool = call["tool"].as_str().or(step["id"].as_str()).expect("a tool");
        let arguments = match call.get("arguments") {
            None => Arguments::Input,
            Some(written) => {
                Arguments::Mapped(Expression::parse_in(written, names).expect("parses"))
            }
        };
        *sites += 1;
        let parse = step.get("parse").map(|format| match format.as_str() {
            Some("json") => Parse::Json,
            _ => Parse::Csv,
        });
        let hint = SpawnHint::default();
        let has_secrets = arguments.has_secrets();
        CallSite { site: *sites - 1, tool: tool.into(), arguments, parse, has_secrets, hint }
    };
    let action = if let Some(collection) = step.get("collection") {
        let within = ScopeNames { item: Some("item"), ..names };
        Action::Loop(LoopPlan {
            kind: LoopKind::ForEach {
                collection: Collection::parse(collection, &names).expect("parses"),
                first_success: step["end"] == "first_success",
            },
            max_parallel: step["max_parallel"].as_u64().unwrap_or(10) as usize,
            max_iterations: step["max_iterations"].as_u64().unwrap_or(1000) as usize,
            delay: seconds(&step["delay"]).unwrap_or_default(),
            call: call(step, &within),
        })
    } else if let Some(until) = step.get("until") {
        let within = ScopeNames { item: Some("last"), ..names };
        let until = until.as_str().expect("a condition is a text");
        Action::Loop(LoopPlan {
            kind: LoopKind::Repeat(Repeat {
                until: Condition::parse(until, &within).expect("parses"),
                backoff: step["backoff"].as_f64().unwrap_or(1.0),
                max_delay: seconds(&step["max_delay"]).unwrap_or(Duration::from_secs(60)),
                timeout: seconds(&step["timeout"]),
            }),
            max_parallel: 1,
            max_iterations: step["max_iterations"].as_u64().unwrap_or(100) as usize,
            delay: seconds(&step["delay"]).unwrap_or_default(),
            call: call(step, &within),
        })
    } else if let Some(cases) = step.get("cases") {
        let cases = cases.as_array().expect("cases are an array");
        Action::Switch(Switch {
            cases: cases
                .iter()
                .map(|case| (condition(&case["when"]), call(case, &names)))
                .collect(),
            default: step.get("default").map(|default| call(default, &names)),
        })
    } else if let Some(message) = step.get("message") {
        let parse = |value: &Value| Expression::parse_in(value, &names).expect("parses");
        let form = step.get("schema").cloned();
        let form = form.unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
        let on = |key: &str| match step[key].as_str() {
            None | Some("abort") => OnRefusal::Abort,
            Some("continue") => OnRefusal::Continue,
            _ => OnRefusal::SkipRemaining,
        };
        let (on_decline, on_cancel) = (on("on_decline"), on("on_cancel"));
        let schema = InputSchema::new(Arc::new(form.as_object().expect("an object").clone()));
        let (message, form) = (parse(message), parse(&form));
        let is_computed = step.get("is_computed").is_some();
        Action::Elicit(Elicitation { message, form, schema, is_computed, on_decline, on_cancel })
    } else if let Some(value) = step.get("value") {
        Action::Value(Expression::parse_in(value, &names).expect("parses"))
    } else if let Some(output) = step.get("stop") {
        let result = Expression::parse_in(output, &names).expect("parses");
        Action::Stop(EarlyEnd { result, form: EndForm::Output })
    } else {
        Action::Call(call(step, &names))
    };
    let place = |id: &Value| ids.iter().position(|other| Some(*other) == id.as_str());
    let needs = step["depends_on"].as_array().into_iter().flatten();
    Step {
        id: step["id"].as_str().expect("an id").into(),
        action,
        depends_on: needs.map(|id| place(id).expect("a step")).collect(),
        condition: step.get("condition").map(condition),
        timeout: seconds(&step["timeout"]).unwrap_or(Duration::from_secs(300)),
        retry: step.get("retry").map(|retry| Retry {
            count: retry["count"].as_u64().expect("a count") as u32,
            delay: seconds(&retry["delay"]).unwrap_or(Duration::from_secs(1)),
            max_delay: seconds(&retry["max_delay"]).unwrap_or(Duration::from_secs(60)),
        }),
        on_failure: match step.get("continue") {
            Some(Value::Bool(true)) => OnFailure::Continue,
            _ => OnFailure::Abort,
        },
        finally: step.get("finally").map(|finally| Finally {
            grace: seconds(&finally["grace"]).unwrap_or(Duration::from_secs(30)),
            on_cancel: finally["on_cancel"] == true,
        }),
        retry_lost: step["retry_lost"] == true,
        default_results: step.get("default_results").cloned(),
    }
}

/// Creates an output block whose properties are written as in a configuration file.
fn output(ids: &[&str], properties: &Value, required: &[&str]) -> Output {
    Output {
        properties: parse_properties(ids, properties),
        required: required.iter().map(|&name| name.to_owned()).collect(),
        content: Vec::new(),
    }
}

fn parse_properties(ids: &[&str], properties: &Value) -> Vec<(String, Property)> {
    let names = ScopeNames { steps: ids, run: true, ..ScopeNames::default() };
    let properties = properties.as_object().expect("properties are an object");
    let parse = |(name, property): (&String, &Value)| {
        let kind = match property["type"].as_str().expect("a type") {
            "string" => JsonType::String,
            "integer" => JsonType::Integer,
            "number" => JsonType::Number,
            "boolean" => JsonType::Boolean,
            "object" => JsonType::Object,
            _ => JsonType::Array,
        };
        let source = match property.get("value") {
            Some(value) => Source::Value(Expression::parse_in(value, &names).expect("parses")),
            None => Source::Properties(parse_properties(ids, &property["properties"])),
        };
        (name.clone(), Property { kind, source, default: property.get("default").cloned() })
    };
    properties.iter().map(parse).collect()
}

/// Returns the dependencies of each step on other steps, without cycles. The steps are put into a
/// random order, made from `seed`, and each step depends on some of the steps before it: two bits
/// of `wanted` decide about each position in the order.
fn needs_in_some_order(wanted: &[u16], seed: u64) -> Vec<Vec<usize>> {
    let mut order: Vec<_> = (0..wanted.len()).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    let needs = |(step, wanted): (usize, &u16)| {
        let before = order.iter().take_while(|&&other| other != step).enumerate();
        let is_needed = |(at, _): &(usize, &usize)| wanted & (3 << (2 * at)) == 3 << (2 * at);
        before.filter(is_needed).map(|(_, &other)| other).collect()
    };
    wanted.iter().enumerate().map(needs).collect()
}

/// Test tools whose names describe their behavior. Records the events of their calls.
#[derive(Clone)]
struct World {
    begun: Instant,
    events: Arc<Mutex<Vec<Event>>>,
    /// The number of times that `flaky` will still fail.
    failures: Arc<Mutex<usize>>,
}

/// The start or end of a call. Contains its time, in seconds after the start of the test.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    seconds: u64,
    what: &'static str,
    /// The name of the branch, such as `a` or `a[0]`.
    branch: String,
    arguments: Value,
}

/// An event for which a thread can wait.
#[derive(Default)]
struct Signal {
    is_sent: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn send(&self) {
        *self.is_sent.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Blocks the thread until the signal is sent.
    fn wait(&self) {
        let is_sent = self.is_sent.lock().unwrap();
        let waited = self.changed.wait_timeout_while(is_sent, HANG, |is_sent| !*is_sent);
        assert!(*waited.unwrap().0, "the signal was not sent");
    }
}

impl World {
    fn new() -> Self {
        Self { begun: Instant::now(), events: Arc::default(), failures: Arc::default() }
    }

    /// Creates a world in which `flaky` fails this number of times before it succeeds.
    fn flaky(failures: usize) -> Self {
        let world = Self::new();
        *world.failures.lock().unwrap() = failures;
        world
    }

    fn note(&self, what: &'static str, call: &Call) {
        let id = call.context.id().to_string();
        let branch = id.split_once('#').expect("a branch").1.to_owned();
        let seconds = self.begun.elapsed().as_secs();
        let arguments = Value::Object(call.arguments.clone());
        self.events.lock().unwrap().push(Event { seconds, what, branch, arguments });
    }

    fn caller(&self) -> impl Caller + use<> {
        let world = self.clone();
        move |call: Call| world.clone().serve(call)
    }

    async fn serve(self, mut call: Call) -> Called {
        self.note("starts", &call);
        if let Some(asks) = asks(&mut call) {
            self.note("asks", &call);
            return Ok(ToolReply::Asks(Box::new(asks)));
        }
        let answer = self.answer(&call).await;
        self.note("ends", &call);
        answer.map(ToolReply::from)
    }

    async fn answer(&self, call: &Call) -> Result<CallToolResult, StepError> {
        let arguments = || Value::Object(call.arguments.clone());
        let error = |text: &str| Ok(CallToolResult::error(vec![ContentBlock::text(text)]));
        match &*call.tool {
            "fails" => error("no"),
            "refuses" => {
                let data = Some(json!({ "why": "so" }));
                Err(StepError::protocol(ErrorData::invalid_params("bad arguments", data)))
            }
            "breaks" => {
                Err(StepError::new(ErrorKind::Service, "the tool's server failed to answer"))
            }
            "panics" => panic!("secret"),
            "hangs" => pending().await,
            "yields" => {
                tokio::task::yield_now().await;
                Ok(CallToolResult::structured(arguments()))
            }
            "sleeps" => {
                sleep(Duration::from_secs(call.arguments["seconds"].as_u64().unwrap())).await;
                Ok(CallToolResult::structured(arguments()))
            }
            "fails_late" => {
                sleep(Duration::from_secs(call.arguments["seconds"].as_u64().unwrap())).await;
                error("no")
            }
            "flaky" => {
                let mut failures = self.failures.lock().unwrap();
                match failures.checked_sub(1) {
                    Some(left) => {
                        *failures = left;
                        error(&format!("no, {left} more"))
                    }
                    None => Ok(CallToolResult::structured(arguments())),
                }
            }
            // Fails if the argument `bad` is true.
            "picky" => match call.arguments.get("bad") {
                Some(Value::Bool(true)) => error("bad item"),
                _ => Ok(CallToolResult::structured(arguments())),
            },
            // Returns the argument `value` as structured content, even if it is not an object.
            "gives" => {
                let mut result = CallToolResult::success(vec![ContentBlock::text("given")]);
                result.structured_content = Some(call.arguments["value"].clone());
                Ok(result)
            }
            "says" => {
                let texts = call.arguments["texts"].as_array().unwrap();
                let texts = texts.iter().map(|text| ContentBlock::text(text.as_str().unwrap()));
                Ok(CallToolResult::success(texts.collect()))
            }
            _ => Ok(CallToolResult::structured(arguments())),
        }
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// Returns the names of the branches, in the order of their starts.
    fn started(&self) -> Vec<String> {
        let started = |event: &Event| event.what == "starts";
        self.events().into_iter().filter(started).map(|event| event.branch).collect()
    }

    /// Returns the time of the first start of a branch, in seconds.
    fn start_of(&self, branch: &str) -> Option<u64> {
        let found = |event: &&Event| event.what == "starts" && event.branch == branch;
        self.events().iter().find(found).map(|event| event.seconds)
    }

    /// Returns the arguments of the last call that a branch made.
    fn arguments_of(&self, branch: &str) -> Option<Value> {
        let found = |event: &&Event| event.what == "starts" && event.branch == branch;
        self.events().iter().rev().find(found).map(|event| event.arguments.clone())
    }

    async fn run(&self, plan: &Plan, input: Value) -> RunState {
        run(plan, RunState::new(input, plan.steps().len()), &scope(600), self.caller()).await
    }
}

/// Runs a plan in a new world.
async fn run_new(plan: &Plan, input: Value) -> RunState {
    World::new().run(plan, input).await
}

fn scope(seconds: u64) -> Scope {
    Scope::new(CallLimits::default(), Duration::from_secs(seconds))
}

async fn run(plan: &Plan, state: RunState, scope: &Scope, caller: impl Caller) -> RunState {
    let context = Context::default();
    let mut run = Run::new(plan, state, &context, scope, caller);
    run.drive().await;
    run.into_state()
}

fn statuses(state: &RunState) -> Vec<Status> {
    state.outcomes.iter().map(|outcome| outcome.as_ref().expect("all finished").status).collect()
}

fn outcome(state: &RunState, step: usize) -> &Outcome {
    state.outcomes[step].as_ref().expect("it has finished")
}

fn error(state: &RunState, step: usize) -> &StepError {
    outcome(state, step).error.as_ref().expect("it has failed")
}

/// Returns the output of a step. Returns `None` if the output does not exist or was not kept.
fn output_of(state: &RunState, step: usize) -> Option<Value> {
    outcome(state, step).field(crate::expr::Field::Output).map(|output| output.into_owned())
}
