//! The fan-outs that one would write instead of using this crate.
//!
//! [`same_answer`] is the yardstick: it gives the answer that a composite gives
//! and contains what a branch can do wrong. It does not check arguments, bounds
//! neither the run as a whole nor the size of its results, and knows only one
//! shape of plan.

use std::{convert::Infallible, iter::repeat_n, sync::Arc, time::Duration};

use futures::future::join_all;
use mcp_composite::message::{Context, Reply, Request, ToolAnswer};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, JsonObject,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use tower::ServiceExt;

use super::{
    Leaf,
    answer::{Branch, Failure, answer, text},
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Concatenates the content of all targets, which run in the caller's task.
pub(crate) async fn join_all_content(
    leaf: Leaf,
    targets: Arc<[String]>,
    request: Request,
) -> Result<Reply, Infallible> {
    let requests = requests(&targets, request);
    let replies = join_all(requests.map(|request| leaf.clone().oneshot(request))).await;
    let replies = replies.into_iter().map(|Ok(reply)| reply);
    Ok(concatenated(replies))
}

/// Concatenates the content of all targets, each of which runs in a task.
pub(crate) async fn join_set_content(
    leaf: Leaf,
    targets: Arc<[String]>,
    request: Request,
) -> Result<Reply, Infallible> {
    let mut tasks = JoinSet::new();
    for (index, request) in requests(&targets, request).enumerate() {
        let leaf = leaf.clone();
        tasks.spawn(async move { (index, leaf.oneshot(request).await) });
    }
    let mut replies: Vec<_> = targets.iter().map(|_| None).collect();
    while let Some(joined) = tasks.join_next().await {
        let (index, Ok(reply)) = joined.expect("no target panics here");
        replies[index] = Some(reply);
    }
    Ok(concatenated(replies.into_iter().flatten()))
}

/// Gives the answer that a composite gives, with or without its report.
pub(crate) async fn same_answer(
    leaf: Leaf,
    targets: Arc<[String]>,
    report: bool,
    request: Request,
) -> Result<Reply, Infallible> {
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    let mut started = Vec::with_capacity(targets.len());
    for (index, request) in requests(&targets, request).enumerate() {
        let leaf = leaf.clone();
        let now = Instant::now();
        let task = tasks.spawn(async move {
            let result = match timeout(TIMEOUT, leaf.oneshot(request)).await {
                Ok(Ok(reply)) => tool_result(reply),
                Err(_) => Err(Failure {
                    status: "timed_out",
                    kind: "timeout",
                    message: format!("no answer within {TIMEOUT:?}"),
                }),
            };
            (index, result, Instant::now())
        });
        started.push((task.id(), now));
    }

    let mut branches: Vec<_> = targets.iter().map(|_| None).collect();
    while let Some(joined) = tasks.join_next().await {
        let (index, result, ended) = match joined {
            Ok(finished) => finished,
            Err(error) => {
                let index = started
                    .iter()
                    .position(|(task, _)| *task == error.id())
                    .expect("every task was noted");
                let message = "the tool panicked".to_owned();
                let failure = Failure { status: "failed", kind: "panic", message };
                (index, Err(failure), Instant::now())
            }
        };
        let (_, started) = started[index];
        branches[index] = Some(Branch { result, started, ended });
    }

    Ok(answer(&targets, branches.into_iter().flatten(), begun, report).into())
}

/// The request for each target; the last one takes the arguments, the others
/// clone them.
fn requests(targets: &[String], request: Request) -> impl Iterator<Item = Request> {
    let (message, mut context): (ClientRequest, Context) = request.into_parts();
    let arguments: JsonObject = match message {
        ClientRequest::CallToolRequest(call) => call.params.arguments.unwrap_or_default(),
        _ => JsonObject::new(),
    };
    // All branches would report under the same one.
    context.meta_mut().remove("progressToken");
    let inputs = repeat_n((arguments, context), targets.len());
    targets.iter().zip(inputs).map(|(tool, (arguments, context))| {
        let params = CallToolRequestParams::new(tool.clone()).with_arguments(arguments);
        Request::new(CallToolRequest::new(params), context)
    })
}

fn concatenated(replies: impl Iterator<Item = Reply>) -> Reply {
    let mut content = Vec::new();
    for reply in replies {
        if let ToolAnswer::Result(result) = reply.into_tool_answer() {
            content.extend(result.content);
        }
    }
    CallToolResult::success(content).into()
}

fn tool_result(reply: Reply) -> Result<CallToolResult, Failure> {
    let failed = |kind, message| Failure { status: "failed", kind, message };
    match reply.into_tool_answer() {
        ToolAnswer::Result(result) if result.is_error == Some(true) => {
            Err(failed("tool", text(&result).unwrap_or_default()))
        }
        ToolAnswer::Result(result) => Ok(result),
        ToolAnswer::Error(error) => Err(failed("protocol", error.message.into_owned())),
        _ => Err(failed("protocol", "the tool's answer is not the result of a tool".to_owned())),
    }
}
