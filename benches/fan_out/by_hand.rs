//! A fan-out written by hand instead of with this crate: the yardstick.
//!
//! It returns the same answer as a composite and gives the guarantees
//! of a fan-out. It supports only one shape of plan and no other feature of runs: no limits per
//! run, costs, observers or questions.

use std::{convert::Infallible, iter::repeat_n, sync::Arc, time::Duration};

use jsonschema::Validator;
use mcp_composite::message::{Context, Reply, Request, ToolAnswer};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ContentBlock, ErrorData,
    JsonObject,
};
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tower::{Service, ServiceExt, service_fn};

use super::{
    answer::{Branch, Failure, answer, text},
    leaf::Leaf,
};

/// The timeout of a branch, and of all of them together.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The limits on the total size and the nesting of the results of all branches.
const MAX_RESULT_BYTES: usize = 64 << 20;
const MAX_LEVELS: usize = 110;

/// Returns a service that answers as the composite of a leaf does, with or without its report.
pub(crate) fn by_hand(
    leaf: &Leaf,
    report: bool,
) -> impl Service<Request, Response = Reply, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    let by_hand = ByHand::new(leaf, report);
    service_fn(move |request| by_hand.clone().answer(request))
}

/// Returns the same answer as a composite, with or without its report.
///
/// Arguments are checked, the run and each branch have a deadline, a panic fails only its branch,
/// and the results of the branches are limited in bytes and depth.
#[derive(Clone)]
struct ByHand {
    leaf: Leaf,
    targets: Arc<[String]>,
    schema: Arc<Validator>,
    report: bool,
}

// === impl ByHand ===

impl ByHand {
    fn new(leaf: &Leaf, report: bool) -> Self {
        let schema = jsonschema::validator_for(&leaf.schema()).expect("the schema is sound");
        Self { leaf: leaf.clone(), targets: leaf.names(), schema: Arc::new(schema), report }
    }

    async fn answer(self, mut request: Request) -> Result<Reply, Infallible> {
        let begun = Instant::now();
        if let Err(why) = self.check(&mut request) {
            return Ok(ErrorData::invalid_params(why, None).into());
        }
        let mut tasks = JoinSet::new();
        let mut started = Vec::with_capacity(self.targets.len());
        for (index, request) in requests(&self.targets, request).enumerate() {
            let leaf = self.leaf.clone();
            let now = Instant::now();
            let task = tasks.spawn(async move {
                let result = match timeout(TIMEOUT, leaf.oneshot(request)).await {
                    Ok(Ok(reply)) => tool_result(reply),
                    Err(_) => Err(late()),
                };
                (index, result, Instant::now())
            });
            started.push((task.id(), now));
        }

        let mut branches: Vec<_> = self.targets.iter().map(|_| None).collect();
        let mut left = MAX_RESULT_BYTES;
        let join = async {
            while let Some(joined) = tasks.join_next().await {
                let (index, result, ended) = match joined {
                    Ok(finished) => finished,
                    Err(error) => {
                        let index = started
                            .iter()
                            .position(|(task, _)| *task == error.id())
                            .expect("every task was noted");
                        (index, Err(failed("panic", "the tool panicked")), Instant::now())
                    }
                };
                let result = result.and_then(|result| bounded(result, &mut left));
                branches[index] = Some(Branch { result, started: started[index].1, ended });
            }
        };
        // A result after the deadline is not in the branches.
        let _ = timeout_at(begun + TIMEOUT, join).await;
        let branches = branches.into_iter().zip(started).map(|(branch, (_, started))| {
            branch.unwrap_or_else(|| Branch { result: Err(late()), started, ended: Instant::now() })
        });
        Ok(answer(&self.targets, branches, begun, self.report).into())
    }

    fn check(&self, request: &mut Request) -> Result<(), String> {
        let Some(call) = request.tool_call_mut() else { return Ok(()) };
        let arguments = Value::Object(call.arguments.take().unwrap_or_default());
        self.schema.validate(&arguments).map_err(|error| error.to_string())?;
        if let Value::Object(arguments) = arguments {
            call.arguments = Some(arguments);
        }
        Ok(())
    }
}

/// Returns the request for each target; the last one takes the arguments, the others clone them.
pub(crate) fn requests(targets: &[String], request: Request) -> impl Iterator<Item = Request> {
    let (message, mut context): (ClientRequest, Context) = request.into_parts();
    let arguments: JsonObject = match message {
        ClientRequest::CallToolRequest(call) => call.params.arguments.unwrap_or_default(),
        _ => JsonObject::new(),
    };
    // All branches would report progress under the same token.
    context.meta_mut().remove("progressToken");
    let inputs = repeat_n((arguments, context), targets.len());
    targets.iter().zip(inputs).map(|(tool, (arguments, context))| {
        let params = CallToolRequestParams::new(tool.clone()).with_arguments(arguments);
        Request::new(CallToolRequest::new(params), context)
    })
}

fn tool_result(reply: Reply) -> Result<CallToolResult, Failure> {
    match reply.into_tool_answer() {
        ToolAnswer::Result(result) if result.is_error == Some(true) => {
            Err(failed("tool", text(&result).unwrap_or_default()))
        }
        ToolAnswer::Result(result) => Ok(result),
        ToolAnswer::Error(error) => Err(failed("protocol", error.message)),
        _ => Err(failed("protocol", "the tool's response is not a tool result")),
    }
}

fn failed(kind: &'static str, message: impl Into<String>) -> Failure {
    Failure { status: "failed", kind, message: message.into() }
}

fn late() -> Failure {
    let message = format!("no answer within {TIMEOUT:?}");
    Failure { status: "timed_out", kind: "timeout", message }
}

/// Returns the result if it is within the nesting limit and the remaining bytes.
fn bounded(result: CallToolResult, left: &mut usize) -> Result<CallToolResult, Failure> {
    let meta = result.meta.iter().flat_map(|meta| meta.values());
    let sizes = result.structured_content.iter().chain(meta).map(|value| size(value, MAX_LEVELS));
    let sizes: Option<usize> = sizes.sum();
    let Some(structured) = sizes else {
        return Err(failed("protocol", "the tool's answer is nested too deep"));
    };
    let content = result.content.iter().map(|block| match block {
        ContentBlock::Text(text) => text.text.len(),
        ContentBlock::Image(image) => image.data.len(),
        ContentBlock::Audio(audio) => audio.data.len(),
        _ => 0,
    });
    match left.checked_sub(structured + content.sum::<usize>()) {
        Some(now) => *left = now,
        None => return Err(failed("limit", "the tool's answer is too large")),
    }
    Ok(result)
}

/// Returns the size of a value in bytes, or `None` if it has more than `levels` levels.
fn size(value: &Value, levels: usize) -> Option<usize> {
    let within = levels.checked_sub(1)?;
    match value {
        Value::String(text) => Some(text.len()),
        Value::Array(elements) => elements.iter().map(|element| size(element, within)).sum(),
        Value::Object(members) => {
            members.iter().map(|(key, member)| Some(key.len() + size(member, within)?)).sum()
        }
        _ => Some(4),
    }
}
