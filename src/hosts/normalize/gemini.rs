//! Finds tool calls in outputs of the Gemini API. An output is a list of candidates. The content of
//! each candidate is a list of parts, and a part can be a tool call.

use std::slice;

use serde_json::Value;

use super::{
    call::{MalformedKind, Problem},
    candidate::Candidate,
    error::OutputError,
};

const EXPECTED: OutputError = OutputError::UnknownShape {
    expected: "a response with `candidates`, a content with `parts`, or its parts",
};

pub(super) fn find(output: &Value) -> Result<Vec<Candidate<'_>>, OutputError> {
    match output {
        Value::Array(parts) if parts.iter().any(|part| part.get("candidates").is_some()) => {
            Err(OutputError::Stream)
        }
        Value::Array(parts) if parts.is_empty() || parts.iter().any(is_part) => Ok(in_parts(parts)),
        Value::Object(members) => match (members.get("candidates"), members.get("parts")) {
            (Some(Value::Array(candidates)), _) => Ok(in_candidates(candidates)),
            (None, Some(Value::Array(parts))) => Ok(in_parts(parts)),
            (None, None) if is_part(output) => Ok(in_parts(slice::from_ref(output))),
            // There are no candidates because the prompt was blocked.
            (None, None) if members.contains_key("promptFeedback") => Ok(Vec::new()),
            _ => Err(EXPECTED),
        },
        _ => Err(EXPECTED),
    }
}

/// Returns the calls of all candidates. Calls of candidates other than the first are marked as
/// malformed, because only the first candidate becomes part of the conversation.
fn in_candidates(candidates: &[Value]) -> Vec<Candidate<'_>> {
    let mut found = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let parts = candidate["content"]["parts"].as_array().map_or(&[][..], Vec::as_slice);
        let mut calls = in_parts(parts);
        match candidate["finishReason"].as_str() {
            Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL") => {
                let problem =
                    Problem::syntax("the provider could not parse the output of the model");
                calls.push(Candidate::malformed(None, problem));
            }
            Some("MAX_TOKENS") if parts.last().is_some_and(|part| call(part).is_some()) => {
                if let Some(last) = calls.last_mut() {
                    last.spoil(Problem::incomplete(
                        "the output of the model ended in the middle of it",
                    ));
                }
            }
            _ => (),
        }
        if index > 0 {
            let other = "it belongs to another candidate than the first";
            for call in &mut calls {
                call.spoil(Problem::new(MalformedKind::OtherChoice, other));
            }
        }
        found.append(&mut calls);
    }
    found
}

fn in_parts(parts: &[Value]) -> Vec<Candidate<'_>> {
    let calls = parts.iter().filter_map(call);
    calls.map(|call| Candidate::new(call.get("id"), call.get("name"), call.get("args"))).collect()
}

/// Returns the tool call in a part, if any. Its key is `functionCall` in the API, and
/// `function_call` in the API's Python libraries.
fn call(part: &Value) -> Option<&Value> {
    part.get("functionCall").or_else(|| part.get("function_call"))
}

fn is_part(value: &Value) -> bool {
    let is_of_others = value.get("type").is_some() || value.get("role").is_some();
    !is_of_others && (call(value).is_some() || value.get("text").is_some())
}
