//! The plan and the result of a call.

use std::{error::Error, io::Write};

use mcp_composite::message::Request;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ServerResult};
use tower::ServiceExt;

use crate::{arguments::Run, report::json, session::Session};

/// The advice for a tool that asks the user.
const ASKS: &str = "`call` cannot ask the user: call the tool from a client that supports \
                    elicitation, connected to `mcp-composite serve FILE`";

/// Parts of the messages of steps and tools that ask the user if the client does not support it.
const CANNOT_ASK: [&str; 2] = ["and the client cannot: ", "which the client cannot give"];

/// Prints the calls that a composite would make.
///
/// # Errors
///
/// Returns an error if a backend is not connected, or if a call would be rejected.
pub(crate) async fn plan(
    session: &Session,
    Run { tool, input, .. }: Run,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let planned = async {
        let mut problems = session.absent().await;
        match session.gateway.preview(&tool, input).await {
            Ok(preview) => session.print(&preview.to_string(), &mut out)?,
            Err(error) => problems.push(error.to_string()),
        }
        session.fail_with(&problems)
    };
    session.until_stopped(planned).await
}

/// Calls a tool and prints its result: the structured content if there is one, else the texts.
///
/// # Errors
///
/// Returns an error if the call is rejected, or if the result is an error.
pub(crate) async fn call(
    session: &Session,
    Run { tool, input, .. }: Run,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let called = async {
        let absent = session.absent().await;
        let params = CallToolRequestParams::new(tool).with_arguments(input);
        let request = Request::call_tool_with(params);
        let reply = with_progress(session, session.gateway.service().oneshot(request)).await?;
        let result = match reply.into_result() {
            Ok(ServerResult::CallToolResult(result)) => result,
            Ok(_) => return Err(ASKS.into()),
            Err(error) => {
                let problem = error.message.into_owned();
                return session.fail_with(&[absent, vec![problem]].concat());
            }
        };
        let text = match &result.structured_content {
            Some(content) => json(content)?,
            None => result.content.iter().map(line).collect(),
        };
        if result.is_error == Some(true) {
            let asks = has_asked(&result).then(|| ASKS.to_owned());
            let problems = [text.trim_end().to_owned()].into_iter().chain(asks);
            return session.fail_with(&problems.collect::<Vec<_>>());
        }
        Ok(session.print(&text, &mut out)?)
    };
    session.until_stopped(called).await
}

/// Completes with the result of `call`, and shows its progress if standard error is a terminal.
async fn with_progress<T>(session: &Session, call: impl Future<Output = T>) -> T {
    let Some(progress) = &session.telemetry.progress else { return call.await };
    let result = tokio::select! {
        result = call => result,
        never = progress.draw() => match never {},
    };
    progress.clear();
    result
}

/// Returns `true` if a failed tool or one of its steps could not ask the user.
fn has_asked(result: &CallToolResult) -> bool {
    let texts = result.content.iter().filter_map(ContentBlock::as_text);
    let mut texts = texts.map(|text| &text.text);
    texts.any(|text| CANNOT_ASK.iter().any(|part| text.contains(part)))
}

/// Returns a block of content as a line: the text, or the JSON of another block.
fn line(block: &ContentBlock) -> String {
    let text = match block.as_text() {
        Some(text) => text.text.clone(),
        None => serde_json::to_string(block).unwrap_or_default(),
    };
    text + "\n"
}
