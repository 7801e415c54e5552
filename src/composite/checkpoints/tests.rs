//! Tests of runs that store their states, and that other processes continue.

mod errors;
mod interruptions;
mod order;
mod questions;

use std::{
    collections::HashMap,
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Either, pending, select},
};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, InputRequiredResult, InputResponses,
    JsonObject, ListToolsResult, ServerResult, Tool, ToolAnnotations,
};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};
use tower::{Service, ServiceExt, service_fn};
use tower_layer::Layer;

use crate::{
    composite::{
        CompositeLayer, CompositeTool, Elicitation, FanOut, Finally, ForEach, OnError, Otherwise,
        Repeat, Step, Switch, Target, ToolCall, Workflow,
    },
    message::{
        Context, Reply, Request,
        checkpoint::{Checkpoint, CheckpointError},
    },
};

/// The tools of the tests, the store of their states, and the log of all events. They survive
/// when a process stops.
///
/// All tools return their arguments after `seconds`. `get` is read-only, `put` is idempotent, and
/// `send` has no annotations. `fails` returns an error, `says` returns its argument `text`, and
/// `asks` asks the user first.
#[derive(Clone, Default)]
struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    log: Mutex<Vec<String>>,
    /// The number of calls with each value of the argument `key`.
    calls: Mutex<HashMap<String, usize>>,
    states: Mutex<Vec<Arc<[u8]>>>,
    /// The number of entries of the log at which the process stops. Zero if it does not stop.
    stops_at: Mutex<usize>,
    stopped: Notify,
    /// The time that it takes to store a state.
    save_time: Mutex<Duration>,
    /// The number of the state that cannot be stored, from 1, and the error.
    fails: Mutex<Option<(usize, CheckpointError)>>,
    saves: Mutex<usize>,
}

impl World {
    /// Adds an entry to the log. If the process stops at this entry, never returns.
    async fn log(&self, entry: String) {
        let count = {
            let mut log = self.0.log.lock().unwrap();
            log.push(entry);
            log.len()
        };
        if count == *self.0.stops_at.lock().unwrap() {
            self.0.stopped.notify_one();
            pending::<()>().await;
        }
    }

    fn entries(&self) -> Vec<String> {
        self.0.log.lock().unwrap().clone()
    }

    fn stop_at(&self, entry: usize) {
        *self.0.stops_at.lock().unwrap() = entry;
    }

    fn fail_at(&self, save: usize, error: CheckpointError) {
        *self.0.fails.lock().unwrap() = Some((save, error));
    }

    fn last_state(&self) -> Option<Arc<[u8]>> {
        self.0.states.lock().unwrap().last().cloned()
    }

    fn set_state(&self, state: impl Into<Arc<[u8]>>) {
        self.0.states.lock().unwrap().push(state.into());
    }

    fn calls(&self, key: &str) -> usize {
        self.0.calls.lock().unwrap().get(key).copied().unwrap_or_default()
    }

    async fn serve(self, request: Request) -> Result<Reply, Infallible> {
        assert!(request.context().checkpoint().is_none(), "a branch has the checkpoint");
        let Some(call) = request.tool_call() else {
            return Ok(ListToolsResult::with_all_items(tools()).into());
        };
        let arguments = call.arguments.clone().unwrap_or_default();
        let key = text(&arguments["key"]);
        *self.0.calls.lock().unwrap().entry(key.clone()).or_default() += 1;
        self.log(format!("{key} starts")).await;
        if call.name == "asks" && call.input_responses.is_none() {
            self.log(format!("{key} asks")).await;
            let question = json!({
                "method": "elicitation/create",
                "params": {
                    "message": "Sure?", "requestedSchema": { "type": "object", "properties": {} },
                },
            });
            let questions = [("sure".to_owned(), serde_json::from_value(question).unwrap())];
            let asks = InputRequiredResult::new(Some(questions.into()), Some("state".to_owned()));
            return Ok(ServerResult::InputRequiredResult(asks).into());
        }
        let seconds = arguments.get("seconds").and_then(Value::as_u64).unwrap_or_default();
        sleep(Duration::from_secs(seconds)).await;
        self.log(format!("{key} ends")).await;
        Ok(match &*call.name {
            "fails" => CallToolResult::error(vec![ContentBlock::text("no")]),
            "says" => CallToolResult::success(vec![ContentBlock::text(text(&arguments["text"]))]),
            _ => CallToolResult::structured(arguments.into()),
        }
        .into())
    }

    /// Returns a new process with these composites.
    fn process(
        &self,
        composites: &[CompositeTool],
    ) -> impl Service<Request, Response = Reply, Error = Infallible, Future: Send> + Clone + use<>
    {
        let world = self.clone();
        let tools = service_fn(move |request| world.clone().serve(request).boxed());
        CompositeLayer::new(composites.to_vec()).unwrap().layer(tools)
    }

    /// Calls the last of these composites in a new process. Returns `None` if the process stopped.
    async fn call(
        &self,
        composites: &[CompositeTool],
        answers: Option<InputResponses>,
    ) -> Option<Reply> {
        let mut params = CallToolRequestParams::new(composites.last().unwrap().name().to_owned());
        params.arguments = Some(JsonObject::new());
        params.input_responses = answers;
        let reply = self.process(composites).oneshot(self.request(params));
        match select(pin!(reply), pin!(self.0.stopped.notified())).await {
            Either::Left((reply, _)) => Some(reply.unwrap()),
            Either::Right(_) => None,
        }
    }

    fn request(&self, params: CallToolRequestParams) -> Request {
        let mut context = Context::default();
        let capabilities = json!({ "elicitation": { "form": {} } });
        context
            .meta_mut()
            .insert("io.modelcontextprotocol/clientCapabilities".to_owned(), capabilities);
        context.set_checkpoint(Arc::new(self.clone()));
        Request::of_tool_call(params, context)
    }

    /// Calls a composite, and accepts all of its questions. Returns `None` if the process stopped.
    async fn result(&self, composites: &[CompositeTool]) -> Option<CallToolResult> {
        let mut answers = None;
        loop {
            let reply = self.call(composites, answers).await?;
            match question_keys(&reply) {
                Some(keys) => answers = Some(accept(&keys)),
                None => return Some(result(&reply)),
            }
        }
    }

    async fn text(&self, composites: &[CompositeTool]) -> String {
        first_text(&self.result(composites).await.expect("the process goes on"))
    }
}

impl Checkpoint for World {
    fn stored(&self) -> Option<Arc<[u8]>> {
        self.last_state()
    }

    fn save(&self, state: Vec<u8>) -> BoxFuture<'_, Result<(), CheckpointError>> {
        async move {
            self.log("saves".to_owned()).await;
            let count = {
                let mut saves = self.0.saves.lock().unwrap();
                *saves += 1;
                *saves
            };
            let save_time = *self.0.save_time.lock().unwrap();
            sleep(save_time).await;
            if let Some((number, error)) = self.0.fails.lock().unwrap().clone()
                && number == count
            {
                return Err(error);
            }
            self.set_state(state);
            self.log("saved".to_owned()).await;
            Ok(())
        }
        .boxed()
    }
}

fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, annotations: ToolAnnotations| {
        Tool::new(name, "Does", JsonObject::new()).with_annotations(annotations)
    };
    let idempotent = || ToolAnnotations::new().idempotent(true);
    vec![
        tool("get", ToolAnnotations::new().read_only(true)),
        tool("put", idempotent()),
        tool("send", ToolAnnotations::new()),
        tool("fails", idempotent()),
        tool("says", idempotent()),
        tool("asks", idempotent()),
    ]
}

/// Returns a text, or the JSON of another value.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the keys of the questions in a reply. Returns `None` if the reply has none.
fn question_keys(reply: &Reply) -> Option<Vec<String>> {
    let Some(ServerResult::InputRequiredResult(asks)) = reply.result() else { return None };
    assert_eq!(asks.request_state, None);
    Some(asks.input_requests.as_ref().unwrap().keys().cloned().collect())
}

fn accept(keys: &[String]) -> InputResponses {
    let accepts = |key: &String| (key.clone(), json!({ "action": "accept", "content": {} }));
    keys.iter().map(accepts).collect()
}

fn result(reply: &Reply) -> CallToolResult {
    let mut result = reply.tool_result().expect("a result").clone();
    result.meta = None;
    result
}

fn first_text(result: &CallToolResult) -> String {
    result.content.first().unwrap().as_text().unwrap().text.clone()
}

/// Creates a call of a tool that takes this number of seconds.
fn call(tool: &str, key: &str, seconds: u64) -> ToolCall {
    ToolCall::new(tool).arguments(json!({ "key": key, "seconds": seconds }))
}

fn step(id: &str, tool: &str) -> Step {
    Step::new(id, call(tool, id, 1))
}

fn pipeline(steps: impl IntoIterator<Item = Step>) -> CompositeTool {
    CompositeTool::pipeline("run", "Runs", steps)
}

fn workflow(steps: impl IntoIterator<Item = Step>) -> CompositeTool {
    CompositeTool::workflow("run", "Runs", steps)
}

fn strings<const N: usize>(entries: [&str; N]) -> Vec<String> {
    entries.map(str::to_owned).to_vec()
}
