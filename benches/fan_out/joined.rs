//! The shortest fan-outs by hand, which only concatenate content.

use std::{convert::Infallible, sync::Arc};

use futures::future::join_all;
use mcp_composite::message::{Reply, Request, ToolAnswer};
use rmcp::model::CallToolResult;
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::{by_hand::requests, leaf::Leaf};

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

fn concatenated(replies: impl Iterator<Item = Reply>) -> Reply {
    let mut content = Vec::new();
    for reply in replies {
        if let ToolAnswer::Result(result) = reply.into_tool_answer() {
            content.extend(result.content);
        }
    }
    CallToolResult::success(content).into()
}
