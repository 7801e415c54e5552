//! The progress notifications of clients, as sent over the wire: rmcp's own client handles each
//! notification in a separate task, and so some of them too late.

use std::{
    convert::Infallible,
    future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::join_all;
use mcp_composite::{
    adapter::{HandlerService, RemoteService, ServeService},
    composite::{CompositeLayer, CompositeTool},
    config::Config,
    message::{Reply, Request},
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
        PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt as _, service_fn};

use crate::support::{Era, pipe_to, serve_over_pipe, soon, tool};

const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

/// A client that reads and writes lines.
struct Wire {
    sent: Lines<BufReader<ReadHalf<DuplexStream>>>,
    to: WriteHalf<DuplexStream>,
    era: Era,
    _serving: JoinSet<()>,
}

/// A server whose tools report progress under the received token.
#[derive(Clone, Default)]
struct Chatty {
    /// The number of tool calls that have ended.
    ended: Arc<AtomicUsize>,
}

// === impl Wire ===

impl Wire {
    async fn connect(server: impl ServerHandler, era: Era) -> Self {
        let (far, work) = serve_over_pipe(server);
        let serving = JoinSet::from_iter([work]);
        let (read, to) = tokio::io::split(far);
        let sent = BufReader::new(read).lines();
        let mut wire = Self { sent, to, era, _serving: serving };
        match era {
            Era::Legacy => {
                let params = json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": { "name": "wire", "version": "0" },
                });
                wire.send(json!({ "id": 0, "method": "initialize", "params": params })).await;
                wire.next().await;
                wire.send(json!({ "method": "notifications/initialized" })).await;
            }
            Era::Modern => {
                wire.request(0, "server/discover", json!({})).await;
                wire.next().await;
            }
        }
        wire
    }

    async fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        self.to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, id: u64, method: &str, mut params: Value) {
        if self.era == Era::Modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "wire", "version": "0" });
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.send(json!({ "id": id, "method": method, "params": params })).await;
    }

    async fn start(&mut self, tool: &str, arguments: Value) {
        let meta = json!({ "progressToken": "mine" });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        self.request(1, "tools/call", params).await;
    }

    async fn next(&mut self) -> Value {
        let line = soon(self.sent.next_line()).await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the notifications before the answer, and the answer, which must be the last message.
    async fn answer(&mut self) -> (Vec<Value>, Value) {
        let mut notifications = Vec::new();
        let answer = loop {
            let message = self.next().await;
            match &message["id"] {
                Value::Null => notifications.push(message["params"].clone()),
                _ => break message,
            }
        };
        assert_eq!(answer["id"], 1, "{answer}");
        self.request(2, "tools/list", json!({})).await;
        let next = self.next().await;
        assert_eq!(next["id"], 2, "after the answer: {next}");
        (notifications, answer["result"].clone())
    }

    /// Returns the notifications of a call, as lines.
    async fn progress_lines(&mut self, tool: &str, arguments: Value) -> Vec<String> {
        self.start(tool, arguments).await;
        let (notifications, _) = self.answer().await;
        assert_increasing(&notifications);
        notifications.iter().map(line).collect()
    }
}

fn assert_increasing(notifications: &[Value]) {
    assert!(
        notifications.iter().all(|notification| notification["progressToken"] == "mine"),
        "{notifications:#?}"
    );
    let values: Vec<_> = notifications
        .iter()
        .map(|notification| notification["progress"].as_f64().unwrap())
        .collect();
    assert!(values.is_sorted_by(|one, next| one < next), "{notifications:#?}");
    let is_within =
        |notification: &Value| notification["progress"].as_f64() < notification["total"].as_f64();
    assert!(
        notifications.iter().all(is_within),
        "not all is done before the answer: {notifications:#?}"
    );
}

fn line(notification: &Value) -> String {
    let message = notification["message"].as_str().unwrap();
    format!("{}/{} {message}", notification["progress"], notification["total"].as_f64().unwrap())
}

// === impl Chatty ===

impl ServerHandler for Chatty {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = ["lines", "silent", "slow", "garbage", "flood", "last", "endless"];
        Ok(ListToolsResult::with_all_items(tools.map(tool).into()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let token = cx.meta.get_progress_token();
        let tell = async |progress: f64, total: Option<f64>, message: &str| {
            let mut notification = ProgressNotificationParam::new(token.clone().unwrap(), progress);
            notification.total = total;
            notification.message = Some(message.to_owned()).filter(|message| !message.is_empty());
            cx.peer.notify_progress(notification).await.unwrap();
        };
        let moment = || sleep(Duration::from_millis(100));
        match &*call.name {
            "lines" => {
                moment().await;
                tell(25.0, Some(100.0), "25 of 100 lines").await;
                moment().await;
                tell(50.0, Some(100.0), "").await;
                moment().await;
                tell(100.0, Some(100.0), &"x".repeat(1000)).await;
                moment().await;
            }
            "slow" => sleep(Duration::from_secs(40)).await,
            "garbage" => {
                let numbers =
                    [f64::NAN, -1.0, 0.5, f64::INFINITY, 0.25, 1e300, f64::NEG_INFINITY, 2.0];
                let totals = [Some(1.0), None, Some(f64::NAN), Some(0.0), Some(-1.0)];
                for total in totals {
                    for number in numbers {
                        tell(number, total, "garbage").await;
                        sleep(Duration::from_millis(60)).await;
                    }
                }
            }
            "flood" => {
                for step in 0..8 {
                    tell(f64::from(step), Some(8.0), "on").await;
                    sleep(Duration::from_millis(15)).await;
                }
            }
            "last" => tell(1.0, Some(2.0), "last").await,
            "endless" => {
                let peer = cx.peer.clone();
                let token = token.unwrap();
                #[expect(clippy::disallowed_methods, reason = "it does what it should not")]
                tokio::spawn(async move {
                    for step in 0..1_000_000 {
                        let notification =
                            ProgressNotificationParam::new(token.clone(), f64::from(step));
                        if peer.notify_progress(notification).await.is_err() {
                            return;
                        }
                        sleep(Duration::from_millis(1)).await;
                    }
                });
                moment().await;
            }
            _ => moment().await,
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]).into())
    }
}

/// Composites of the tools of [`Chatty`].
fn composites() -> CompositeLayer {
    let text = r#"
        [[composite_tools]]
        name = "flow"
        description = "Steps"
        strategy = "workflow"
        steps = [
            { id = "a", tool = "lines", arguments = {} },
            { id = "none", tool = "silent", arguments = {}, condition = "false" },
            { id = "each", type = "for_each", collection = [1, 2], max_parallel = 1, tool = "lines", arguments = {}, depends_on = ["a"] },
            { id = "within", tool = "line", arguments = {}, depends_on = ["each"] },
        ]

        [[composite_tools]]
        name = "line"
        description = "A pipeline"
        strategy = "pipeline"
        steps = [
            { id = "b", tool = "silent", arguments = {} },
            { id = "c", tool = "slow", arguments = {} },
        ]

        [[composite_tools]]
        name = "crowd"
        description = "At once"
        tools = ["slow", "slow", "slow", "slow", "lines"]

        [[composite_tools]]
        name = "garbled"
        description = "Numbers that are none"
        tools = ["garbage", "silent", "garbage"]

        [[composite_tools]]
        name = "loud"
        description = "Tell more than anybody reads"
        tools = ["flood", "flood", "flood", "flood", "flood", "flood", "flood", "flood"]

        [[composite_tools]]
        name = "quick"
        description = "At an end at once"
        tools = ["last", "last"]

        [[composite_tools]]
        name = "rude"
        description = "Goes on after its answer"
        tools = ["endless", "lines"]
    "#;
    Config::from_toml_str(text).unwrap().composite_layer()
}

/// A server at the other end of a connection.
fn remote() -> RemoteService {
    RemoteService::builder("far").transport(|| pipe_to(Chatty::default()))
}

fn info() -> ServerConfig {
    ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
}

#[tokio::test(start_paused = true)]
async fn client_receives_progress_of_each_step() {
    let x = format!("{}…", "x".repeat(200));
    let expected = [
        "0.0/4 step 1/4 a",
        // The second is skipped, which counts but is not reported separately.
        "1.25/4 step 1/4 a: 25 of 100 lines",
        "1.5/4 step 1/4 a",
        &format!("1.99/4 step 1/4 a: {x}"),
        // An instant completion is not reported separately.
        "2.0/4 step 3/4 each: element 1/2",
        "2.125/4 step 3/4 each: element 1/2: 25 of 100 lines",
        "2.25/4 step 3/4 each: element 1/2",
        &format!("2.495/4 step 3/4 each: element 1/2: {x}"),
        "2.5/4 step 3/4 each: element 2/2",
        "2.625/4 step 3/4 each: element 2/2: 25 of 100 lines",
        "2.75/4 step 3/4 each: element 2/2",
        &format!("2.99/4 step 3/4 each: element 2/2: {x}"),
        "3.0/4 step 4/4 within: step 1/2 b",
        "3.5/4 step 4/4 within: step 2/2 c",
        "3.500001/4 still running: step 4/4 within",
        "3.500002/4 still running: step 4/4 within",
        // The end of the run is reported by the answer only.
        "3.99/4 step 4/4 within: step 2/2 c: completed",
    ];
    for era in BOTH {
        let here = ServeService::wrap(Chatty::default(), composites());
        let lines = Wire::connect(here, era).await.progress_lines("flow", json!({})).await;
        assert_eq!(lines, expected, "{era:?}, in this process");

        let far = ServeService::new(composites().layer(remote()), info());
        let lines = Wire::connect(far, era).await.progress_lines("flow", json!({})).await;
        assert_eq!(lines, expected, "{era:?}, remote");
    }
}

#[tokio::test(start_paused = true)]
async fn progress_of_parallel_branches_is_combined() {
    for era in BOTH {
        let server = ServeService::wrap(Chatty::default(), composites());
        let mut lines = Wire::connect(server, era).await.progress_lines("crowd", json!({})).await;
        let x = "x".repeat(200);
        let expected = [
            // The latest of those that began at the same time.
            "0.0/5 branch 5/5 lines",
            "0.25/5 branch 5/5 lines: 25 of 100 lines",
            "0.5/5 branch 5/5 lines",
            &format!("0.99/5 branch 5/5 lines: {x}…"),
            "1.0/5 branch 5/5 lines: completed",
            "1.000001/5 still running: branch 1/5 slow, branch 2/5 slow_2, branch 3/5 slow_3 and 1 more",
            "1.000002/5 still running: branch 1/5 slow, branch 2/5 slow_2, branch 3/5 slow_3 and 1 more",
        ];
        // Four branches end at the same time; the fifth completes the run.
        let last = lines.pop().unwrap();
        assert!(last.starts_with("4.0/5 branch ") && last.ends_with(": completed"), "{last}");
        assert_eq!(lines, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn heartbeat_is_sent_at_the_configured_interval_when_idle() {
    for (seconds, expected) in [
        (15.0, vec![0, 0, 15, 30]),
        (60.0, vec![0, 0]),
        (0.0, vec![0, 0]),
        (10.0, vec![0, 0, 10, 20, 30]),
        // Timers have a resolution of milliseconds, and so are late for this.
        (14.0001, vec![0, 0, 14, 28]),
    ] {
        let layer = composites().heartbeat(Duration::from_secs_f64(seconds));
        let mut wire =
            Wire::connect(ServeService::wrap(Chatty::default(), layer), Era::Modern).await;
        wire.start("line", json!({})).await;
        let start = Instant::now();
        let mut beats = Vec::new();
        while wire.next().await["id"].is_null() {
            beats.push(start.elapsed().as_secs());
        }
        assert_eq!(beats, expected, "every {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn client_without_a_token_receives_no_progress() {
    for era in BOTH {
        let server = ServeService::wrap(Chatty::default(), composites());
        let mut wire = Wire::connect(server, era).await;
        wire.request(1, "tools/call", json!({ "name": "line" })).await;
        let (notifications, answer) = wire.answer().await;
        assert_eq!((notifications.len(), &answer["isError"]), (0, &json!(false)));
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_progress_numbers_are_dropped() {
    for era in BOTH {
        let server = ServeService::wrap(Chatty::default(), composites());
        let lines = Wire::connect(server, era).await.progress_lines("garbled", json!({})).await;
        let expected = [
            "0.0/3 branch 3/3 garbage_2",
            "1.0/3 branch 2/3 silent: completed",
            "2.0/3 branch 3/3 garbage_2: garbage",
            "2.98/3 branch 3/3 garbage_2: garbage",
            "2.99/3 branch 1/3 garbage: completed",
        ];
        assert_eq!(lines, expected);
    }
    // Also for a service that reports them itself.
    let service = service_fn(|request: Request| async move {
        let progress = request.context().progress().unwrap().clone();
        for number in [f64::NAN, 1.0, f64::INFINITY, 0.5, f64::NEG_INFINITY, 1.5, 1.5] {
            progress.report(number, Some(f64::NAN), None);
            sleep(Duration::from_millis(1)).await;
        }
        Ok::<_, Infallible>(Reply::from(CallToolResult::success(vec![])))
    });
    let mut wire = Wire::connect(ServeService::new(service, info()), Era::Modern).await;
    wire.start("x", json!({})).await;
    let expected = |progress: f64| json!({ "progressToken": "mine", "progress": progress });
    assert_eq!(wire.next().await["params"], expected(1.0));
    assert_eq!(wire.next().await["params"], expected(1.5));
    assert_eq!(wire.next().await["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_read_does_not_delay_runs() {
    for era in BOTH {
        let chatty = Chatty::default();
        let ended = chatty.ended.clone();
        let mut wire = Wire::connect(ServeService::wrap(chatty, composites()), era).await;
        // The pipe is full after the first few of its calls.
        for id in 0..40 {
            let meta = json!({ "progressToken": id });
            wire.request(id + 10, "tools/call", json!({ "name": "loud", "_meta": meta })).await;
        }
        soon(async {
            while ended.load(Ordering::Relaxed) < 40 * 8 {
                sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        let mut answers = 0;
        let mut answered = [false; 40];
        while answers < 40 {
            let message = wire.next().await;
            match message["id"].as_u64() {
                Some(id) => {
                    answered[id as usize - 10] = true;
                    answers += 1;
                }
                None => {
                    let token = message["params"]["progressToken"].as_u64().unwrap();
                    assert!(!answered[token as usize], "after its answer: {message}");
                }
            }
        }
    }
}

/// A server may write its last report and its answer at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn last_report_is_sent_before_the_result() {
    for era in BOTH {
        let mut near =
            Wire::connect(ServeService::wrap(Chatty::default(), composites()), era).await;
        let remote = remote();
        soon(remote.connected()).await.unwrap();
        let mut far = Wire::connect(ServeService::new(remote, info()), era).await;
        for run in 0..100 {
            for wire in [&mut near, &mut far] {
                let lines = wire.progress_lines("last", json!({})).await;
                assert_eq!(lines, ["1.0/2 last"], "{era:?}, call {run}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn progress_after_the_result_of_a_target_is_dropped() {
    let server = ServeService::wrap(Chatty::default(), composites());
    let mut wire = Wire::connect(server, Era::Modern).await;
    let lines = wire.progress_lines("rude", json!({})).await;
    let of = |lines: &[String], what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert!(of(&lines, "endless") > 0, "{lines:#?}");
    let answered = lines.iter().position(|line| line.contains("endless: completed")).unwrap();
    assert_eq!(of(&lines[answered + 1..], "endless"), 0, "{lines:#?}");
    // Nor in a later call.
    let lines = wire.progress_lines("crowd", json!({})).await;
    assert_eq!(of(&lines, "endless"), 0, "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn progress_only_increases_on_many_threads() {
    let clients = (0..32).map(|client| async move {
        let era = BOTH[client % 2];
        let server = ServeService::wrap(Chatty::default(), composites());
        let mut wire = Wire::connect(server, era).await;
        for _ in 0..8 {
            wire.start("loud", json!({})).await;
            let (notifications, answer) = wire.answer().await;
            assert_eq!(answer["isError"], false, "{answer}");
            assert_increasing(&notifications);
            assert!(!notifications.is_empty());
        }
    });
    join_all(clients).await;
}

#[tokio::test(start_paused = true)]
async fn composite_sends_at_most_one_report_in_20_ms() {
    let service = service_fn(|request: Request| async move {
        if request.method() == "tools/list" {
            return Ok::<_, Infallible>(ListToolsResult::with_all_items(vec![tool("work")]).into());
        }
        let progress = request.context().progress().unwrap().clone();
        for number in 0..190 {
            sleep(Duration::from_millis(1)).await;
            progress.report(f64::from(number), Some(190.0), None);
        }
        Ok(Reply::from(CallToolResult::success(vec![])))
    });
    let all = CompositeTool::fan_out("all", "Works", ["work", "work"]);
    let service = CompositeLayer::new([all]).unwrap().layer(service);
    let mut wire = Wire::connect(ServeService::new(service, info()), Era::Modern).await;
    wire.start("all", json!({})).await;
    let (start, mut sent) = (Instant::now(), Vec::new());
    while wire.next().await["id"].is_null() {
        sent.push(start.elapsed().as_millis());
    }
    let expected: Vec<_> = (20..190).step_by(20).collect();
    assert_eq!(sent, expected, "and none before the answer after 190 ms");
}

#[tokio::test(start_paused = true)]
async fn composite_that_ends_within_20_ms_sends_no_report() {
    let server = ServeService::wrap(Chatty::default(), composites());
    let mut wire = Wire::connect(server, Era::Modern).await;
    assert!(wire.progress_lines("quick", json!({})).await.is_empty());
    // But a tool that is called directly does.
    assert_eq!(wire.progress_lines("last", json!({})).await, ["1.0/2 last"]);
}

#[tokio::test(start_paused = true)]
async fn call_from_code_has_no_progress_token() {
    let service = CompositeLayer::new([CompositeTool::fan_out("one", "One", ["token"])])
        .unwrap()
        .layer(HandlerService::new(Tokens));
    let reply = service.oneshot(Request::call_tool("one")).await.unwrap();
    assert_eq!(reply.tool_result().unwrap().content[1].as_text().unwrap().text, "None");
}

/// Returns the token it received.
struct Tokens;

impl ServerHandler for Tokens {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool("token")]))
    }

    fn call_tool(
        &self,
        _: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<CallToolResponse, ErrorData>> {
        let token = format!("{:?}", cx.meta.get_progress_token());
        future::ready(Ok(CallToolResult::success(vec![ContentBlock::text(token)]).into()))
    }
}
