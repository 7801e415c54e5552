//! `dispatch`: concurrent calls, timeouts and cancellation.

use std::{
    num::NonZeroUsize,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_composite::{
    functions::{ToolSet, tool_fn},
    message::{Context, Reply, Request},
    normalize::{
        DispatchOptions, DispatchOrder, Dispatched, Outcome, Provider, ToolNames, dispatch,
    },
};
use rmcp::model::{
    CallToolResult, ContentBlock, CreateTaskResult, ErrorData, InputRequiredResult, JsonObject,
    ServerResult, Task, TaskStatus, Tool,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::{BoxError, ServiceExt, limit::ConcurrencyLimit, service_fn, util::BoxCloneService};

/// A server whose tools end in all ways, and its received calls.
#[derive(Clone, Default)]
struct Tools {
    called: Arc<Mutex<Vec<String>>>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tools {
    fn service(&self) -> BoxCloneService<Request, Reply, BoxError> {
        let tools = self.clone();
        BoxCloneService::new(service_fn(move |request| tools.clone().answer(request)))
    }

    fn called(&self) -> Vec<String> {
        self.called.lock().unwrap().clone()
    }

    async fn answer(self, request: Request) -> Result<Reply, BoxError> {
        let Some(call) = request.tool_call() else {
            self.called.lock().unwrap().push(request.method().to_owned());
            return Ok(ServerResult::empty(()).into());
        };
        self.called.lock().unwrap().push(call.name.clone().into_owned());
        let running = Running(self.running.clone());
        self.most.fetch_max(running.0.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let said = |text: &str| vec![ContentBlock::text(text.to_owned())];
        Ok(match &*call.name {
            "slow" => {
                sleep(Duration::from_secs(2)).await;
                CallToolResult::success(said("slow")).into()
            }
            "quick" => {
                sleep(Duration::from_secs(1)).await;
                CallToolResult::success(said("quick")).into()
            }
            "fails" => CallToolResult::error(said("disk full")).into(),
            "refuses" => ErrorData::invalid_params("no", Some(json!({ "why": "so" }))).into(),
            "breaks" => return Err("secret address 10.0.0.1".into()),
            "late" => return Err(Box::new(tower::timeout::error::Elapsed::new())),
            "panics" => panic!("a test panics"),
            "asks" => {
                ServerResult::InputRequiredResult(InputRequiredResult::from_request_state("s"))
                    .into()
            }
            "goes_on" => {
                let now = "2026-01-01T00:00:00Z";
                let task = Task::new("t", TaskStatus::Working, now, now);
                ServerResult::CreateTaskResult(CreateTaskResult::new(task)).into()
            }
            "mumbles" => ServerResult::empty(()).into(),
            name => Reply::unknown_tool(name.to_owned()),
        })
    }
}

/// Returns the output of a model that calls these tools, in the format of Anthropic; `!` is a
/// malformed call.
fn output(tools: &[&str]) -> Value {
    let block = |(place, tool): (usize, &&str)| {
        let input = if *tool == "!" { json!(5) } else { json!({}) };
        json!({ "type": "tool_use", "id": format!("t{place}"), "name": tool, "input": input })
    };
    tools.iter().enumerate().map(block).collect()
}

async fn run(tools: &Tools, calls: &[&str], options: &DispatchOptions) -> Vec<Dispatched> {
    let calls = Provider::Anthropic.calls(&output(calls)).unwrap();
    dispatch(tools.service(), calls, options).await
}

/// Returns the id and the outcome of each call.
fn outcomes(ended: &[Dispatched]) -> Vec<String> {
    let describe = |call: &Dispatched| {
        let end = match &call.outcome {
            Outcome::Completed(result) => result.content[0].as_text().unwrap().text.clone(),
            Outcome::Failed(failure) => format!("{:?}: {failure}", failure.kind),
            Outcome::Malformed(_) => "malformed".to_owned(),
            _ => "skipped".to_owned(),
        };
        format!("{} {end}", call.id.as_ref().unwrap())
    };
    ended.iter().map(describe).collect()
}

fn parallel(max: usize) -> DispatchOptions {
    DispatchOptions::new().order(DispatchOrder::Parallel { max: NonZeroUsize::new(max).unwrap() })
}

const ALL: [&str; 12] = [
    "quick", "fails", "refuses", "breaks", "late", "panics", "asks", "goes_on", "mumbles",
    "nothing", "!", "slow",
];

#[tokio::test(start_paused = true)]
async fn each_call_ends_with_its_own_outcome_in_any_order() {
    let expected = [
        "t0 quick",
        "t1 disk full",
        "t2 Protocol: no",
        "t3 Service: the tool's server failed to answer",
        "t4 Timeout: no answer in time",
        "t5 Panic: the tool panicked",
        "t6 InputRequired: the tool asks the user, and no user can be asked here",
        "t7 Task: the tool returned a task, which is not supported here",
        "t8 Protocol: the tool returned an invalid result",
        "t9 Protocol: unknown tool `nothing`",
        "t10 malformed",
        "t11 slow",
    ];
    for options in [DispatchOptions::new(), parallel(1), parallel(3), parallel(100)] {
        let ended = run(&Tools::default(), &ALL, &options).await;
        assert_eq!(outcomes(&ended), expected, "{options:?}");
        let errors: Vec<_> = ended.iter().map(Dispatched::is_error).collect();
        assert!(!errors[0] && !errors[11] && errors[1..11].iter().all(|is_error| *is_error));
    }
}

#[tokio::test(start_paused = true)]
async fn json_rpc_error_keeps_its_code_and_data() {
    let ended = run(&Tools::default(), &["refuses"], &DispatchOptions::new()).await;
    let Outcome::Failed(failure) = &ended[0].outcome else { panic!("{ended:?}") };
    assert_eq!((failure.code, failure.data.clone()), (Some(-32602), Some(json!({ "why": "so" }))));
}

#[tokio::test(start_paused = true)]
async fn abandoned_task_is_cancelled() {
    let tools = Tools::default();
    run(&tools, &["goes_on"], &DispatchOptions::new()).await;
    assert_eq!(tools.called(), ["goes_on", "tasks/cancel"]);
}

#[tokio::test(start_paused = true)]
async fn calls_run_one_after_another_by_default() {
    let (tools, begin) = (Tools::default(), Instant::now());
    let ended = run(&tools, &["slow", "quick", "slow"], &DispatchOptions::new()).await;
    assert_eq!(begin.elapsed(), Duration::from_secs(5));
    assert_eq!(outcomes(&ended), ["t0 slow", "t1 quick", "t2 slow"]);
    assert_eq!(tools.most.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn slow_call_does_not_delay_parallel_calls() {
    let (tools, begin) = (Tools::default(), Instant::now());
    // The third begins when the second has ended, not the first.
    let ended = run(&tools, &["slow", "quick", "quick"], &parallel(2)).await;
    assert_eq!(begin.elapsed(), Duration::from_secs(2));
    assert_eq!(outcomes(&ended), ["t0 slow", "t1 quick", "t2 quick"]);
    assert_eq!(tools.most.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn stop_on_error_skips_calls_after_an_error() {
    for error in ["fails", "refuses", "breaks", "panics", "asks", "!", "nothing"] {
        let tools = Tools::default();
        let options = DispatchOptions::new().stop_on_error(true);
        let ended = run(&tools, &["quick", error, "slow", "!"], &options).await;
        assert_eq!(outcomes(&ended)[2..], ["t2 skipped", "t3 malformed"], "{error}");
        assert_eq!(ended[0].result().unwrap().content[0].as_text().unwrap().text, "quick");
        assert!(!tools.called().contains(&"slow".to_owned()), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_call_in_progress_continues_after_an_error() {
    let options = parallel(2).stop_on_error(true);
    let ended = run(&Tools::default(), &["slow", "fails", "quick"], &options).await;
    assert_eq!(outcomes(&ended), ["t0 slow", "t1 disk full", "t2 skipped"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_cancels_all_calls() {
    let tools = Tools::default();
    let options = parallel(2);
    let calls = run(&tools, &["slow", "slow", "slow"], &options);
    let ended = tokio::time::timeout(Duration::from_secs(1), calls).await;
    assert!(ended.is_err());
    assert_eq!(tools.running.load(Ordering::Relaxed), 0);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(tools.called(), ["slow", "slow"]);
}

#[tokio::test(start_paused = true)]
async fn call_waits_until_the_service_is_ready() {
    let tools = Tools::default();
    let service = ConcurrencyLimit::new(tools.service(), 1);
    let calls = Provider::Anthropic.calls(&output(&["quick", "quick", "quick"])).unwrap();
    let ended = dispatch(service, calls, &parallel(3)).await;
    assert_eq!(outcomes(&ended), ["t0 quick", "t1 quick", "t2 quick"]);
    assert_eq!(tools.most.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn names_exposed_to_the_model_are_mapped_to_tools() {
    let server = service_fn(async |request: Request| {
        let name = request.tool_call().unwrap().name.clone();
        Ok::<_, BoxError>(match &*name {
            "web/search" => CallToolResult::success(vec![ContentBlock::text("found")]).into(),
            _ => Reply::unknown_tool(name),
        })
    });
    let names = ToolNames::new(["web/search", "web/gone"]);
    let calls = Provider::Anthropic.calls(&output(&["web_search", "web_gone", "other"])).unwrap();
    let ended = dispatch(server, calls, &DispatchOptions::new().names(names)).await;
    assert_eq!(
        outcomes(&ended),
        ["t0 found", "t1 Protocol: unknown tool `web_gone`", "t2 Protocol: unknown tool `other`"]
    );
    assert_eq!(ended[0].name.as_deref(), Some("web_search"));
}

#[tokio::test(start_paused = true)]
async fn calls_contain_their_arguments_and_the_context() {
    let echo = service_fn(async |request: Request| {
        let who = request.context().extensions().get::<&str>().copied();
        let arguments = request.tool_call().unwrap().arguments.clone();
        Ok::<_, BoxError>(CallToolResult::structured(json!([who, arguments])).into())
    });
    let mut context = Context::default();
    context.extensions_mut().insert("somebody");
    let output = json!([{ "type": "tool_use", "id": "a", "name": "f", "input": { "x": 1 } }]);
    let calls = Provider::Anthropic.calls(&output).unwrap();
    let ended = dispatch(echo, calls, &DispatchOptions::new().context(context)).await;
    let structured = ended[0].result().unwrap().structured_content.as_ref();
    assert_eq!(structured, Some(&json!(["somebody", { "x": 1 }])));
}

#[tokio::test(start_paused = true)]
async fn nested_calls_inherit_the_context_of_their_request() {
    let contexts = Arc::new(Mutex::new(Vec::new()));
    let recorder = contexts.clone();
    let server = service_fn(move |request: Request| {
        let context = request.context();
        let who = context.extensions().get::<&str>().copied();
        let number = context.extensions().get::<u8>().copied();
        recorder.lock().unwrap().push((context.id().to_string(), context.depth(), who, number));
        let task =
            Task::new("t", TaskStatus::Working, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
        let result = ServerResult::CreateTaskResult(CreateTaskResult::new(task));
        std::future::ready(Ok::<Reply, BoxError>(result.into()))
    });
    let mut outer = Context::default();
    outer.extensions_mut().insert("ada");
    let mut own = Context::default();
    own.extensions_mut().insert(7_u8);

    let calls = Provider::Anthropic.calls(&output(&["f", "g"])).unwrap();
    let options = DispatchOptions::new().context(own).within(&outer);
    dispatch(server, calls, &options).await;
    // It includes the cancellation of the tasks.
    let contexts = contexts.lock().unwrap();
    let ids: Vec<_> = contexts.iter().map(|(id, ..)| &**id).collect();
    assert_eq!(ids, ["0#f", "0#f", "0#g", "0#g"]);
    for (id, depth, who, number) in &*contexts {
        assert_eq!((*depth, *who, *number), (1, Some("ada"), Some(7)), "{id}");
    }
}

/// A function that calls itself as a model would, until it is rejected.
fn agent(
    request: Request,
    depths: Arc<Mutex<Vec<usize>>>,
) -> Pin<Box<dyn Future<Output = Result<Reply, BoxError>> + Send>> {
    Box::pin(async move {
        let again = depths.clone();
        let tool = tool_fn(
            Tool::new("agent", "Asks itself", Arc::default()),
            move |_: JsonObject, context: Context| {
                let depths = again.clone();
                async move {
                    depths.lock().unwrap().push(context.depth());
                    let service = service_fn(move |request| agent(request, depths.clone()));
                    let calls = Provider::Anthropic.calls(&output(&["agent"])).unwrap();
                    let options = DispatchOptions::new().within(&context);
                    let ended = dispatch(service, calls, &options).await;
                    match &ended[0].outcome {
                        Outcome::Completed(result) => Ok((**result).clone()),
                        Outcome::Failed(failure) => Err(BoxError::from(failure.to_string())),
                        other => panic!("{other:?}"),
                    }
                }
            },
        );
        ToolSet::new([tool]).unwrap().oneshot(request).await
    })
}

#[tokio::test(start_paused = true)]
async fn nesting_depth_of_calls_is_limited() {
    let depths = Arc::new(Mutex::new(Vec::new()));
    let reply = agent(Request::call_tool("agent"), depths.clone()).await.unwrap();
    let text = reply.tool_result().unwrap().content[0].as_text().unwrap().text.clone();
    assert!(text.contains("more than 8 nested calls"), "{text}");
    assert_eq!(*depths.lock().unwrap(), (0..=8).collect::<Vec<_>>());
}

#[test]
fn dispatch_future_is_send() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let options = DispatchOptions::new();
    drop(is_send(dispatch(Tools::default().service(), [], &options)));
}
