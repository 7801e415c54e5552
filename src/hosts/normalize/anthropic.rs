//! Finds tool calls in messages of Anthropic's Messages API. A message is a list of content blocks,
//! and each block is text, a thought or a tool call.

use std::slice;

use serde_json::Value;

use super::{call::Problem, candidate::Candidate, error::OutputError};

const EXPECTED: OutputError = OutputError::UnknownShape {
    expected: "a message with `content`, its blocks, or one of them with a `type`",
};

pub(super) fn find(output: &Value) -> Result<Vec<Candidate<'_>>, OutputError> {
    let blocks = blocks(output)?;
    if !blocks.is_empty() && !blocks.iter().any(|block| block["type"].is_string()) {
        return Err(EXPECTED);
    }
    let mut found: Vec<_> = blocks.iter().filter_map(call).collect();
    // The output was cut off within the last block. All earlier calls are complete.
    if matches!(
        output.get("stop_reason").and_then(Value::as_str),
        Some("max_tokens" | "model_context_window_exceeded")
    ) && blocks.last().is_some_and(is_call)
        && let Some(last) = found.last_mut()
    {
        last.spoil(Problem::incomplete("the output of the model ended in the middle of it"));
    }
    Ok(found)
}

fn blocks(output: &Value) -> Result<&[Value], OutputError> {
    match (output, output.get("content")) {
        (_, Some(Value::Array(blocks))) | (Value::Array(blocks), _) => Ok(blocks),
        (_, Some(Value::String(_))) => Ok(&[]),
        (Value::Object(_), None) if output["type"].is_string() => Ok(slice::from_ref(output)),
        _ => Err(EXPECTED),
    }
}

fn call(block: &Value) -> Option<Candidate<'_>> {
    // The types `server_tool_use` and `mcp_tool_use` are calls that the provider executes itself.
    is_call(block).then(|| Candidate::new(block.get("id"), block.get("name"), block.get("input")))
}

fn is_call(block: &Value) -> bool {
    block["type"] == "tool_use"
}
