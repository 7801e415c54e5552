//! Finds tool calls in the text format of Hermes, Qwen and other models: JSON between tags.

use serde_json::Value;

use super::{Block, Markers};
use crate::normalize::{
    arguments::no_json, call::Problem, candidate::Candidate, error::OutputError,
    limits::ParseLimits,
};

pub(in crate::hosts::normalize) const START: &str = "<tool_call>";

const MARKERS: Markers =
    Markers { start: START, end: "</tool_call>", quotes: b"\"", is_json: true };

pub(in crate::hosts::normalize) fn find(
    text: &str,
    limits: &ParseLimits,
) -> Result<Vec<Candidate<'static>>, OutputError> {
    let found = |block| match block {
        Block::Closed(json) => call(json, limits),
        Block::Open => Candidate::malformed(
            None,
            Problem::incomplete(format!("there is no `{}` after it", MARKERS.end)),
        ),
    };
    let blocks = MARKERS.blocks(text, limits)?;
    Ok(blocks.into_iter().take(limits.found_in_text()).map(found).collect())
}

fn call(json: &str, limits: &ParseLimits) -> Candidate<'static> {
    match serde_json::from_str(json) {
        Ok(call) => of_value(&call, limits),
        Err(error) => Candidate::malformed(None, unreadable(&error)),
    }
}

/// Creates the problem of a malformed call from the JSON syntax error in its text.
pub(super) fn unreadable(error: &serde_json::Error) -> Problem {
    let Problem { kind, message } = no_json(error);
    Problem::new(kind, message.replacen("the arguments are", "it is", 1))
}

/// Creates a candidate from a call, which is an object such as `{"name": "f", "arguments": {}}`. If
/// `call` is not an object, the candidate is malformed.
pub(super) fn of_value(call: &Value, limits: &ParseLimits) -> Candidate<'static> {
    let found = Candidate::new(call.get("id"), call.get("name"), call.get("arguments"));
    if call.is_object() {
        return found.read(limits);
    }
    let problem = Problem::syntax("expected an object with `name` and `arguments`");
    found.spoiled(problem).read(limits)
}
