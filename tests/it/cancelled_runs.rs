//! Finally steps that run after the call of their composite was cancelled.

use std::{
    future,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_composite::{
    adapter::ServeService,
    composite::{
        CancelledRuns, CompositeLayer, CompositeTool, ComputedValue, Elicitation, FanOut, Finally,
        Race, Step, Success, ToolCall,
    },
    observe::{Event, Observer, RunHandle, What},
    testing::{self, Answer, Server},
};
use rmcp::{
    ClientLifecycleMode, ClientServiceExt as _,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ServerCapabilities, ServerConfig,
    },
    service::PeerRequestOptions,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tower::Layer;

use crate::support::{answering, capture_logs, serve_over_pipe, until};

const SECOND: Duration = Duration::from_secs(1);

/// Records the ends of runs and branches.
#[derive(Default)]
struct Ends(Mutex<Vec<String>>);

impl Observer for Ends {
    fn on_event(&self, event: &Event<'_>) {
        let line = match event.what {
            What::BranchFinished { branch, status, .. } => format!("{branch} {status}"),
            What::BranchSkipped { branch, reason, .. } => format!("{branch} skipped: {reason}"),
            What::RunSuspended => "is suspended".to_owned(),
            What::RunFinished { .. } => "ends".to_owned(),
            What::RunDropped { .. } => "is dropped".to_owned(),
            _ => return,
        };
        self.0.lock().unwrap().push(format!("{} {line}", event.composite));
    }
}

/// Keeps a handle of each run, with the name of its composite.
#[derive(Default)]
struct Handles(Mutex<Vec<(String, RunHandle)>>);

impl Observer for Handles {
    fn on_event(&self, event: &Event<'_>) {
        if matches!(event.what, What::RunStarted { .. } | What::RunResumed) {
            self.0.lock().unwrap().push((event.composite.to_owned(), event.handle.clone()));
        }
    }
}

/// A layer over the tools of a server, and the records of its runs.
struct Setup {
    server: Server,
    ends: Arc<Ends>,
    runs: CancelledRuns,
    layer: CompositeLayer,
}

// === impl Setup ===

impl Setup {
    fn new(composites: impl IntoIterator<Item = CompositeTool>) -> Self {
        let server = Server::new()
            .gives("create", json!({ "id": 7 }))
            .echoes("undo")
            .says("other", "yes")
            .hangs("hangs")
            .fails("fails", "no")
            .tool("slow", Answer::text("yes").after(5 * SECOND))
            .tool("asks", Answer::asks("sure", "Sure?"));
        let (ends, runs) = (Arc::new(Ends::default()), CancelledRuns::new());
        let layer = CompositeLayer::new(composites).unwrap();
        let layer = layer.observer(ends.clone()).cancelled_runs(runs.clone());
        Self { server, ends, runs, layer }
    }

    fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::new([CompositeTool::workflow("look", "Looks", steps)])
    }

    /// Calls a composite, and cancels the call after some time.
    async fn cancel(&self, composite: &str, after: Duration) {
        let service = self.layer.layer(self.server.clone());
        let call = testing::call(&service, composite, json!({}));
        timeout(after, call).await.unwrap_err();
    }

    /// Calls a composite, and cancels the last run of another one as an operator would. Returns the
    /// result of the call.
    async fn cancel_run(
        &self,
        composite: &str,
        cancelled: &str,
        after: Duration,
    ) -> CallToolResult {
        let handles = Arc::new(Handles::default());
        let service = self.layer.clone().observer(handles.clone()).layer(self.server.clone());
        let operator = async {
            sleep(after).await;
            let handles = handles.0.lock().unwrap();
            let (_, run) = handles.iter().rev().find(|(name, _)| name == cancelled).unwrap();
            run.cancel();
        };
        tokio::join!(testing::call(&service, composite, json!({})), operator).0
    }

    fn ends(&self) -> Vec<String> {
        self.ends.0.lock().unwrap().clone()
    }
}

fn form() -> Value {
    json!({ "type": "object", "properties": {} })
}

fn on_cancel() -> Finally {
    Finally::new().on_cancel(true)
}

/// Returns a step that undoes what the step `create` has done.
fn undo() -> Step {
    let call = ToolCall::new("undo").arguments(json!({ "id": "$steps.create.output.id" }));
    Step::new("undo", call).condition("steps.create.status == 'completed'").finally(on_cancel())
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_undoes_what_was_done() {
    let setup = Setup::of([
        Step::new("create", "create"),
        Step::new("wait", "hangs").depends_on(["create"]),
        Step::new("next", "other").depends_on(["wait"]),
        undo(),
        Step::new("other", "other").finally(Finally::new()),
    ]);
    setup.cancel("look", 3 * SECOND).await;
    assert_eq!(setup.server.called(), ["create", "hangs"]);
    setup.runs.finished().await;
    assert_eq!(setup.server.called(), ["create", "hangs", "undo"]);
    assert_eq!(setup.server.arguments("undo"), Some(json!({ "id": 7 })));
    assert_eq!(setup.server.dropped(), ["hangs"]);
    let expected = [
        "look create completed",
        "look wait cancelled",
        "look next skipped: ended",
        "look other skipped: condition",
        "look undo completed",
        "look is dropped",
    ];
    assert_eq!(setup.ends(), expected);
}

#[tokio::test(start_paused = true)]
async fn run_cancelled_by_an_operator_undoes_what_was_done_and_fails_its_call() {
    let setup = Setup::of([
        Step::new("create", "create"),
        Step::new("wait", "hangs").depends_on(["create"]),
        undo(),
        Step::new("other", "other").finally(Finally::new()),
    ]);
    let result = setup.cancel_run("look", "look", 3 * SECOND).await;
    let text = &result.content[0].as_text().unwrap().text;
    assert_eq!((result.is_error, &**text), (Some(true), "the run was cancelled by an operator"));
    // The call returns after the finally steps.
    assert_eq!(setup.server.called(), ["create", "hangs", "undo"]);
    assert_eq!(setup.server.dropped(), ["hangs"]);
    let expected = [
        "look create completed",
        "look wait cancelled",
        "look other skipped: condition",
        "look undo completed",
        "look is dropped",
    ];
    assert_eq!(setup.ends(), expected);
}

#[tokio::test(start_paused = true)]
async fn nested_run_cancelled_by_an_operator_fails_only_its_branch() {
    let inner = CompositeTool::fan_out("inner", "Hangs", ["hangs"]);
    let targets = FanOut::new(["inner", "slow"]).success(Success::Any);
    let setup = Setup::new([inner, CompositeTool::new("look", "Looks", targets)]);
    let result = setup.cancel_run("look", "inner", SECOND).await;
    assert_ne!(result.is_error, Some(true), "{result:?}");
    let branches = &result.structured_content.as_ref().unwrap()["branches"];
    assert_eq!(branches["inner"]["status"], "failed");
    assert_eq!(branches["slow"]["output"], "yes");
    assert_eq!(setup.server.dropped(), ["hangs"]);
    let expected = [
        "inner hangs cancelled",
        "inner is dropped",
        "look inner failed",
        "look slow completed",
        "look ends",
    ];
    assert_eq!(setup.ends(), expected);
}

#[tokio::test(start_paused = true)]
async fn handle_of_a_run_that_has_ended_cancels_nothing() {
    let setup = Setup::of([Step::new("create", "create"), undo()]);
    let handles = Arc::new(Handles::default());
    let service = setup.layer.clone().observer(handles.clone()).layer(setup.server.clone());
    testing::call(&service, "look", json!({})).await;
    let (_, run) = handles.0.lock().unwrap()[0].clone();
    run.cancel();
    let result = testing::call(&service, "look", json!({})).await;
    assert_ne!(result.is_error, Some(true), "{result:?}");
    assert_eq!(setup.server.called(), ["create", "undo", "create", "undo"]);
}

#[tokio::test(start_paused = true)]
async fn completed_call_runs_its_finally_steps_once() {
    let setup = Setup::of([Step::new("create", "create"), undo()]);
    let service = setup.layer.layer(setup.server.clone());
    let result = testing::call(&service, "look", json!({})).await;
    assert_eq!(result.structured_content, Some(json!({ "id": 7 })));
    setup.runs.finished().await;
    assert_eq!(setup.server.called(), ["create", "undo"]);
    assert_eq!(setup.ends().last().unwrap(), "look ends");
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_before_its_first_step_runs_nothing() {
    let setup = Setup::of([Step::new("create", "create"), undo(), {
        Step::new("always", "other").finally(on_cancel())
    }]);
    let service = setup.layer.layer(setup.server.clone());
    drop(testing::call(&service, "look", json!({})));
    setup.runs.finished().await;
    sleep(60 * SECOND).await;
    assert!(setup.server.called().is_empty() && setup.ends().is_empty());
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_while_it_yields_starts_no_further_step() {
    // A run yields after it has evaluated many expressions.
    let values = (0..40).map(|at| Step::new(format!("v{at}"), ComputedValue::new(json!(at))));
    let create = Step::new("create", "create").depends_on(["v39"]);
    let finally = Step::new("finally", "other").finally(on_cancel());
    let setup = Setup::of(values.chain([create, finally]));
    let service = setup.layer.layer(setup.server.clone());
    service.warm().await.unwrap();
    let mut call = Box::pin(testing::call(&service, "look", json!({})));
    assert!(futures::poll!(&mut call).is_pending());
    drop(call);
    setup.runs.finished().await;
    assert_eq!(setup.server.called(), ["other"]);
}

#[tokio::test(start_paused = true)]
async fn finally_step_that_runs_already_continues() {
    let setup = Setup::of([
        Step::new("create", "create"),
        Step::new("kept", "slow").finally(on_cancel()),
        Step::new("ended", "hangs").finally(Finally::new()),
        Step::new("skipped", "other").depends_on(["ended"]).finally(Finally::new()),
        Step::new("after", "other").depends_on(["kept"]).finally(on_cancel()),
    ]);
    let begun = Instant::now();
    setup.cancel("look", 2 * SECOND).await;
    setup.runs.finished().await;
    // The call was not repeated.
    assert_eq!((begun.elapsed(), setup.server.starts("slow").len()), (5 * SECOND, 1));
    assert_eq!(
        (setup.server.starts("other").len(), setup.server.dropped()),
        (1, vec!["hangs".into()])
    );
    let expected = [
        "look create completed",
        "look ended cancelled",
        "look skipped skipped: condition",
        "look kept completed",
        "look after completed",
        "look is dropped",
    ];
    assert_eq!(setup.ends(), expected);
}

#[tokio::test(start_paused = true)]
async fn finally_steps_of_a_cancelled_call_end_after_their_grace_period() {
    let (logged, _guard) = capture_logs();
    let grace = on_cancel().grace(7 * SECOND);
    let setup = Setup::of([
        Step::new("wait", "hangs"),
        Step::new("late", "slow").finally(grace),
        Step::new("later", "slow").depends_on(["late"]).finally(grace),
        Step::new("fails", "fails").finally(grace),
    ]);
    let begun = Instant::now();
    setup.cancel("look", 3 * SECOND).await;
    setup.runs.finished().await;
    assert_eq!(begun.elapsed(), 10 * SECOND);
    setup.server.until(|server| server.running() == 0).await;
    assert_eq!(setup.server.dropped(), ["hangs", "slow"]);
    assert_eq!(
        setup.ends()[2..],
        ["look late completed", "look later timed_out", "look is dropped"]
    );
    // The message of the tool may be confidential.
    let log = logged.text();
    for line in ["step=\"fails\" error=\"tool\"", "step=\"later\" error=\"timeout\""] {
        assert!(log.contains(line), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_cancelled_runs_ends_after_twice_the_grace_period() {
    let setup = Setup::of([
        Step::new("wait", "hangs"),
        Step::new("undo", "undo").finally(on_cancel().grace(4 * SECOND)),
    ]);
    let service = setup.layer.layer(setup.server.clone());
    let mut call = Box::pin(testing::call(&service, "look", json!({})));
    assert!(timeout(SECOND, &mut call).await.is_err());
    let begun = Instant::now();
    // The call is never cancelled.
    setup.runs.finished().await;
    assert_eq!(begun.elapsed(), 8 * SECOND);
    drop(call);
    setup.runs.finished().await;
    assert_eq!(setup.server.called(), ["hangs", "undo"]);
}

#[tokio::test(start_paused = true)]
async fn number_of_cancelled_runs_is_limited() {
    let (logged, _guard) = capture_logs();
    let steps = [Step::new("wait", "hangs"), { Step::new("undo", "slow").finally(on_cancel()) }];
    let mut setup = Setup::of(steps);
    setup.runs = CancelledRuns::with_max_runs(2);
    setup.layer = setup.layer.cancelled_runs(setup.runs.clone());
    let cancel = async || {
        let before = setup.server.starts("slow").len();
        setup.cancel("look", Duration::from_millis(1)).await;
        sleep(Duration::from_millis(1)).await;
        setup.server.starts("slow").len() - before
    };
    let warnings = || logged.text().matches("too many cancelled calls").count();
    assert_eq!([cancel().await, cancel().await, warnings()], [1, 1, 0]);
    assert_eq!([cancel().await, cancel().await, warnings()], [0, 0, 1]);
    assert_eq!(setup.server.dropped().len(), 4);

    // The first two runs end.
    sleep(5 * SECOND).await;
    assert_eq!([cancel().await, cancel().await, cancel().await], [1, 1, 0]);
    setup.runs.finished().await;
    assert_eq!((setup.server.starts("slow").len(), setup.server.running()), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn finally_step_of_a_cancelled_call_cannot_ask() {
    let setup = Setup::of([
        Step::new("wait", "hangs"),
        Step::new("asks", "asks").finally(on_cancel()),
        Step::new("undo", "undo").depends_on(["asks"]).finally(on_cancel()),
    ]);
    let service = setup.layer.layer(setup.server.clone());
    let mut request = testing::request("look", json!({}));
    *request.context_mut().meta_mut() = crate::scripted::can_be_asked();
    let call = tower::ServiceExt::oneshot(service, request);
    assert!(timeout(SECOND, call).await.is_err());
    setup.runs.finished().await;
    assert_eq!(setup.server.called(), ["hangs", "asks", "undo"]);
    let expected = ["look wait cancelled", "look asks failed", "look undo completed"];
    assert_eq!(setup.ends()[..3], expected);

    let ask = Step::new("ask", Elicitation::new("Sure?", form())).finally(on_cancel());
    let composite = CompositeTool::workflow("look", "Looks", [Step::new("create", "create"), ask]);
    let errors = CompositeLayer::new([composite]).unwrap_err().to_string();
    assert!(
        errors.contains("`on_cancel` cannot be used with `type = \"elicitation\"`"),
        "{errors}"
    );
}

#[tokio::test]
async fn call_cancelled_while_the_user_is_asked_runs_nothing() {
    let setup = Setup::of([
        Step::new("create", "create"),
        Step::new("sure", Elicitation::new("Sure?", form())).depends_on(["create"]),
        undo(),
    ]);
    let service = setup.layer.layer(setup.server.clone());
    let config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
    let (pipe, work) = serve_over_pipe(ServeService::new(service, config));
    let _serving = tokio::task::JoinSet::from_iter([work]);
    let client = answering(|_| future::pending());
    let client = client.serve_with_lifecycle(pipe, ClientLifecycleMode::Initialize).await.unwrap();
    let call = CallToolRequest::new(CallToolRequestParams::new("look"));
    let sent = client.send_cancellable_request(call.into(), PeerRequestOptions::no_options());
    let sent = sent.await.unwrap();
    until(async || setup.ends().iter().any(|line| line == "look is suspended")).await;
    sent.cancel(None).await.unwrap();
    until(async || setup.ends().iter().any(|line| line == "look is dropped")).await;
    setup.runs.finished().await;
    assert_eq!(setup.server.called(), ["create"]);
}

/// Returns a composite that undoes what it has done when it is cancelled, and one that calls it.
fn nested(outer: impl FnOnce(Step) -> CompositeTool) -> [CompositeTool; 2] {
    let steps =
        [Step::new("create", "create"), Step::new("wait", "hangs").depends_on(["create"]), undo()];
    [CompositeTool::workflow("inner", "Looks", steps), outer(Step::new("call", "inner"))]
}

#[tokio::test(start_paused = true)]
async fn nested_run_undoes_what_it_has_done() {
    let outer = |call| {
        let finally = Step::new("finally", "other").finally(on_cancel());
        CompositeTool::workflow("outer", "Looks", [call, Step::new("beside", "hangs"), finally])
    };
    let setup = Setup::new(nested(outer));
    setup.cancel("outer", SECOND).await;
    setup.runs.finished().await;
    let mut called = setup.server.called();
    called.sort_unstable();
    assert_eq!(called, ["create", "hangs", "hangs", "other", "undo"]);
    let dropped = |ends: &[String], run: &str| ends.contains(&format!("{run} is dropped"));
    assert!(dropped(&setup.ends(), "inner") && dropped(&setup.ends(), "outer"));
}

#[tokio::test(start_paused = true)]
async fn nested_run_that_its_outer_run_ends_undoes_what_it_has_done() {
    let outer = |call: Step| CompositeTool::workflow("outer", "Looks", [call.timeout(SECOND)]);
    let setup = Setup::new(nested(outer));
    let service = setup.layer.layer(setup.server.clone());
    let result = testing::call(&service, "outer", json!({})).await;
    assert_eq!(result.is_error, Some(true));
    setup.runs.finished().await;
    assert_eq!(setup.server.called(), ["create", "hangs", "undo"]);

    // The loser of a race.
    let [inner, _] = nested(|call| CompositeTool::workflow("outer", "Looks", [call]));
    let race = CompositeTool::new("outer", "Looks", Race::new(["inner", "slow"]));
    let setup = Setup::new([inner, race]);
    let service = setup.layer.layer(setup.server.clone());
    testing::call(&service, "outer", json!({})).await;
    setup.runs.finished().await;
    assert_eq!(setup.server.called().last().unwrap(), "undo");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cancelled_calls_on_several_threads_undo_what_they_have_done() {
    let outer = |call| {
        CompositeTool::workflow(
            "outer",
            "Looks",
            [call, Step::new("beside", "hangs"), {
                Step::new("finally", "other").finally(on_cancel())
            }],
        )
    };
    let setup = Arc::new(Setup::new(nested(outer)));
    let mut calls = tokio::task::JoinSet::new();
    for at in 0..50 {
        let setup = setup.clone();
        calls.spawn(async move {
            setup.cancel("outer", Duration::from_millis(20 + at % 7)).await;
        });
    }
    calls.join_all().await;
    setup.runs.finished().await;
    setup.server.until(|server| server.running() == 0).await;
    // A call that was cancelled before it has created something undoes nothing.
    let ends = setup.ends();
    let count = |end: &str| ends.iter().filter(|line| *line == end).count();
    let created = count("inner create completed");
    assert!(created > 0 && created == count("inner undo completed"), "{ends:#?}");
}

#[test]
fn runtime_that_ends_also_ends_finally_steps() {
    let setup =
        Setup::of([Step::new("wait", "hangs"), { Step::new("undo", "undo").finally(on_cancel()) }]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let service = setup.layer.layer(setup.server.clone());
    let mut call = Box::pin(testing::call(&service, "look", json!({})));
    runtime.block_on(async {
        tokio::select! {
            _ = &mut call => unreachable!(),
            () = setup.server.until(|server| server.running() == 1) => (),
        }
    });
    drop(runtime);
    drop(call);
    assert_eq!(setup.server.called(), ["hangs"]);
    assert_eq!(setup.ends(), ["look wait cancelled", "look is dropped"]);
}

#[cfg(feature = "cli")]
mod program {
    use std::{fs, process::Stdio};

    use rmcp::{ServiceExt as _, transport::TokioChildProcess};

    use super::*;
    use crate::{backends::backend, programs::PROGRAM, support::soon};

    /// Returns a file with a composite that calls `hang`, and then `echo` in a finally step that
    /// takes a moment.
    fn file(log: &std::path::Path) -> String {
        let log = format!("[backends.env]\nMISBEHAVING_LOG = '{}'\n", log.display());
        backend("one", "good", &log)
            + "[[composite_tools]]\nname = 'look'\ndescription = 'Looks'\nstrategy = 'workflow'\n\
               [[composite_tools.steps]]\nid = 'wait'\ntool = 'one/hang'\narguments = {}\n\
               [[composite_tools.steps]]\nid = 'slow'\ntool = 'one/slow'\n\
               arguments = { ms = 300 }\nfinally = { on_cancel = true }\n\
               [[composite_tools.steps]]\nid = 'undo'\ntool = 'one/echo'\ndepends_on = ['slow']\n\
               arguments = { text = 'undone' }\nfinally = { on_cancel = true, grace = '20s' }\n"
    }

    #[tokio::test]
    async fn program_undoes_what_a_cancelled_call_has_done() {
        for disconnects in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let [path, log] = ["gateway.toml", "received"].map(|name| folder.path().join(name));
            fs::write(&path, file(&log)).unwrap();
            let received = |text: &str| fs::read_to_string(&log).unwrap_or_default().contains(text);
            let mut command = tokio::process::Command::new(PROGRAM);
            command.arg("serve").arg(&path);
            let (transport, _) =
                TokioChildProcess::builder(command).stderr(Stdio::null()).spawn().unwrap();
            let client = soon(().serve(transport)).await.unwrap();
            let call = CallToolRequest::new(CallToolRequestParams::new("look"));
            let options = PeerRequestOptions::no_options();
            let sent = client.send_cancellable_request(call.into(), options).await.unwrap();
            until(async || received("\"name\":\"hang\"")).await;
            assert!(!received("\"name\":\"slow\""));
            if disconnects {
                // The program waits for the finally steps before it ends its backends.
                soon(client.cancel()).await.unwrap();
            } else {
                // Sends `notifications/cancelled`.
                sent.cancel(None).await.unwrap();
            }
            until(async || received("\"undone\"")).await;
        }
    }
}
