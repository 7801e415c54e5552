//! Callers that call, answer questions, give up, and check their answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use mcp_composite::{message::ToolAnswer, testing};
use rmcp::model::{InputResponses, RequestMetaObject};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::ServiceExt;

use crate::{
    faults::{Fatal, WELL},
    invariants::{Invariant, Invariants, marker},
    report::Report,
    system::{DEADLINE, Services, arguments},
    wire::Wire,
};

/// How long after its deadline a call may end, besides the delay of this process in all the turns
/// in between.
const BOUND: Duration = Duration::from_secs(3);
const TURNS: u32 = 3;
/// The maximum pause of a caller before its next call.
const PAUSE: u64 = 6_000;
/// The maximum number of rounds of one call, each of which may ask.
const ROUNDS: usize = 5;

/// The called tools, and their shares in parts of all calls.
const TOOLS: [(&str, u32); 11] = [
    ("all", 12),
    ("turns", 10),
    ("fastest", 12),
    ("else", 12),
    ("line", 12),
    ("flow", 10),
    ("nested", 4),
    ("asks", 12),
    ("relays", 8),
    ("memory_fault", 4),
    ("far_web_fault", 4),
];

/// The state shared by all callers.
pub(crate) struct Load {
    pub(crate) services: Services,
    pub(crate) wires: Vec<Arc<Wire>>,
    pub(crate) invariants: Arc<Invariants>,
    pub(crate) report: Arc<Report>,
    pub(crate) fatal: Fatal,
    pub(crate) over: AtomicBool,
}

/// The outcome of a round of a call.
enum End {
    Answer(Value),
    Asks { state: Option<String>, keys: Vec<String>, questions: Value },
    Error(&'static str),
}

// === impl Load ===

impl Load {
    /// Starts the given number of callers, which call until the load ends.
    pub(crate) fn start(self: &Arc<Self>, callers: usize, seed: u64) -> JoinSet<()> {
        let mut calling = JoinSet::new();
        for caller in 0..callers {
            let load = self.clone();
            let mut rng = Rng::with_seed(seed.wrapping_mul(31).wrapping_add(caller as u64));
            calling.spawn(async move {
                while !load.over.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(rng.u64(0..PAUSE))).await;
                    load.call(&mut rng).await;
                }
            });
        }
        calling
    }

    /// Makes one call, in code or over a connection.
    pub(crate) async fn call(&self, rng: &mut Rng) {
        let tool = self.choose(rng);
        let marker = marker(rng.u64(..));
        // Calls that do not reach a process must not use up its faults.
        let calls_web = tool != "memory_fault";
        let calls_pipe = calls_web && !matches!(tool, "relays" | "far_web_fault");
        let pipe = if calls_pipe { self.fatal.pipe(rng) } else { WELL };
        let web = if calls_web { self.fatal.web(rng) } else { WELL };
        self.report.fault("pipe", pipe);
        self.report.fault("web", web);
        let mut arguments = arguments(&marker, pipe, web, rng.u64(0..2_000), rng.bool());
        if tool == "far_web_fault" {
            arguments["how"] = web.into();
        }
        let patience = match rng.u8(0..10) {
            0 => Some(Duration::from_millis(rng.u64(0..1_500))),
            _ => None,
        };
        let begun = self.report.begin();
        let is_wired = rng.bool();
        let work = async {
            if is_wired {
                self.call_over_wire(tool, &marker, &arguments, rng).await
            } else {
                self.call_in_code(tool, &marker, arguments, rng).await
            }
        };
        let outcome = match patience {
            Some(patience) => timeout(patience, work).await.unwrap_or("given up"),
            None => work.await,
        };
        self.report.end(begun, tool, outcome);
    }

    fn choose(&self, rng: &mut Rng) -> &'static str {
        let all: u32 = TOOLS.iter().map(|(_, parts)| parts).sum();
        let mut part = rng.u32(0..all);
        for (tool, parts) in TOOLS {
            match part.checked_sub(parts) {
                None => return tool,
                Some(rest) => part = rest,
            }
        }
        unreachable!("it is less than all parts")
    }

    async fn call_over_wire(
        &self,
        tool: &str,
        marker: &str,
        arguments: &Value,
        rng: &mut Rng,
    ) -> &'static str {
        let start = Instant::now();
        let mut pending = self.wires[rng.usize(0..self.wires.len())].call(marker, tool, arguments);
        let answer = pending.answer().await;
        self.check_time(start, tool);
        self.invariants.check_answer(marker, &answer);
        self.report.record_error(&answer);
        match (answer.get("result"), &answer["error"]["code"]) {
            (Some(result), _) => outcome(result),
            (None, Value::Null) => "connection lost",
            _ => "JSON-RPC error",
        }
    }

    /// Calls, and answers questions by calling again.
    async fn call_in_code(
        &self,
        tool: &str,
        marker: &str,
        arguments: Value,
        rng: &mut Rng,
    ) -> &'static str {
        let mut request = testing::request(tool, arguments);
        if rng.u8(0..8) > 0 {
            let mut meta = RequestMetaObject::default();
            let can = json!({ "elicitation": { "form": {} } });
            meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), can);
            *request.context_mut().meta_mut() = meta;
        }
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let answer = self.services.service().oneshot(request.clone()).await;
            self.check_time(start, tool);
            let end = match answer.map(|reply| reply.into_tool_answer()) {
                Ok(answer) => End::of(answer),
                Err(_) => End::Error("service error"),
            };
            match end {
                End::Answer(result) => {
                    self.invariants.check_answer(marker, &result);
                    self.report.record_error(&result);
                    return outcome(&result);
                }
                End::Error(what) => return what,
                End::Asks { state, keys, questions } => {
                    self.invariants.check_answer(marker, &questions);
                    self.report.record_question();
                    if rng.u8(0..20) == 0 {
                        return "left waiting";
                    }
                    sleep(Duration::from_millis(rng.u64(0..300))).await;
                    let Some(call) = request.tool_call_mut() else { return "no call" };
                    call.request_state = state;
                    let answers = keys.into_iter().map(|key| (key, said(rng)));
                    call.input_responses = Some(answers.collect::<InputResponses>());
                }
            }
        }
        "no end of questions"
    }

    fn check_time(&self, start: Instant, tool: &str) {
        let took = start.elapsed();
        self.report.took(took);
        let limit = DEADLINE + BOUND + TURNS * self.report.lag();
        self.invariants.check(Invariant::Deadline, took <= limit, || {
            format!("`{tool}` took {took:?}, and may {limit:?}")
        });
    }
}

/// Chooses the answer of a person.
fn said(rng: &mut Rng) -> Value {
    match rng.u8(0..8) {
        0 => json!({ "action": "decline" }),
        1 => json!({ "action": "cancel" }),
        _ => json!({ "action": "accept", "content": {} }),
    }
}

fn outcome(result: &Value) -> &'static str {
    match result["isError"] == true {
        true => "failed",
        false => "completed",
    }
}

// === impl End ===

impl End {
    fn of(answer: ToolAnswer) -> Self {
        match answer {
            ToolAnswer::Result(result) => {
                Self::Answer(serde_json::to_value(result).unwrap_or_default())
            }
            ToolAnswer::InputRequired(asks) => {
                let questions = serde_json::to_value(&asks.input_requests).unwrap_or_default();
                let keys = asks.input_requests.into_iter().flatten().map(|(key, _)| key).collect();
                Self::Asks { state: asks.request_state, keys, questions }
            }
            ToolAnswer::Error(_) => Self::Error("JSON-RPC error"),
            ToolAnswer::Refused(_) => Self::Error("refused"),
            _ => Self::Error("no answer to a call"),
        }
    }
}
