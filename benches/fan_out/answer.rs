//! The answer of a composite, built by hand.

use std::time::Duration;

use mcp_composite::composite::{BRANCH, TRACE};
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

/// The outcome of a target.
pub(crate) struct Branch {
    pub(crate) result: Result<CallToolResult, Failure>,
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
}

pub(crate) struct Failure {
    pub(crate) status: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

/// Builds the answer from the branches, in the order of the targets.
pub(crate) fn answer(
    targets: &[String],
    branches: impl IntoIterator<Item = Branch>,
    begun: Instant,
    report: bool,
) -> CallToolResult {
    let mut succeeded = true;
    let mut content = Vec::with_capacity(targets.len());
    let mut reports = Map::new();
    // Only for runs that fail.
    let mut trace = Vec::new();
    let branches: Vec<_> = branches.into_iter().collect();
    let has_failed = branches.iter().any(|branch| branch.result.is_err());
    for (tool, branch) in targets.iter().zip(branches) {
        let Branch { result, started, ended } = branch;
        let status = result.as_ref().map_or_else(|failure| failure.status, |_| "completed");
        let error = result
            .as_ref()
            .err()
            .map(|failure| json!({ "kind": failure.kind, "message": failure.message }));
        if report && has_failed {
            let mut traced = json!({
                "step": tool,
                "status": status,
                "started_ms": milliseconds(started - begun),
                "duration_ms": milliseconds(ended - started),
            });
            if let Some(error) = &error {
                traced["error"] = error.clone();
            }
            trace.push(traced);
        }
        if report {
            let mut reported = json!({ "status": status });
            if let Some(output) = result.as_ref().ok().and_then(output) {
                reported["output"] = output;
            }
            if let Some(error) = error {
                reported["error"] = error;
            }
            reports.insert(tool.clone(), reported);
        }
        match result {
            Ok(result) => {
                content.extend(result.content.into_iter().map(|block| attributed(block, tool)));
            }
            Err(Failure { message, .. }) => {
                succeeded = false;
                let text = format!("branch `{tool}` (tool `{tool}`) failed: {message}");
                content.push(attributed(ContentBlock::text(text), tool));
            }
        }
    }

    let mut answer = CallToolResult::success(content);
    answer.is_error = Some(!succeeded);
    // Not with `json!`, which would clone them.
    answer.structured_content =
        report.then(|| Map::from_iter([("branches".to_owned(), reports.into())]).into());
    answer.meta = (report && !succeeded)
        .then(|| MetaObject(Map::from_iter([(TRACE.to_owned(), Value::Array(trace))])));
    answer
}

fn output(result: &CallToolResult) -> Option<Value> {
    result.structured_content.clone().or_else(|| text(result).map(Value::String))
}

pub(crate) fn text(result: &CallToolResult) -> Option<String> {
    let mut texts = result.content.iter().filter_map(|block| block.as_text());
    let mut text = texts.next()?.text.clone();
    for more in texts {
        text.push('\n');
        text.push_str(&more.text);
    }
    Some(text)
}

fn attributed(mut block: ContentBlock, tool: &str) -> ContentBlock {
    let meta = match &mut block {
        ContentBlock::Text(text) => &mut text.meta,
        ContentBlock::Image(image) => &mut image.meta,
        ContentBlock::Audio(audio) => &mut audio.meta,
        ContentBlock::Resource(resource) => &mut resource.meta,
        ContentBlock::ResourceLink(link) => &mut link.meta,
        _ => return block,
    };
    let meta = meta.get_or_insert_default();
    meta.insert(BRANCH.to_owned(), tool.into());
    block
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
