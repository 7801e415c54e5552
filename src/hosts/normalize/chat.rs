//! Finds tool calls in outputs of OpenAI's Chat Completions API and of compatible servers. An
//! output is a list of choices. Each choice contains a message, which may contain tool calls.

use std::slice;

use serde_json::Value;

use super::{
    call::{Form, MalformedKind, Problem},
    candidate::Candidate,
    error::OutputError,
};

const EXPECTED: OutputError = OutputError::UnknownShape {
    expected: "a completion with `choices`, a message, or its `tool_calls`",
};

pub(super) fn find(output: &Value) -> Result<Vec<Candidate<'_>>, OutputError> {
    match output {
        Value::Array(calls) if calls.is_empty() || calls.iter().any(is_call) => {
            Ok(calls.iter().map(call).collect())
        }
        Value::Object(members) => match members.get("choices") {
            Some(Value::Array(choices)) => in_choices(choices),
            Some(_) => Err(EXPECTED),
            None if is_message(output) => in_message(output),
            None if is_call(output) => Ok(vec![call(output)]),
            None => Err(EXPECTED),
        },
        _ => Err(EXPECTED),
    }
}

/// Returns the calls of all choices. Calls of choices other than the first are marked as malformed,
/// because only the first choice becomes part of the conversation.
fn in_choices(choices: &[Value]) -> Result<Vec<Candidate<'_>>, OutputError> {
    let mut found = Vec::new();
    for (index, choice) in choices.iter().enumerate() {
        let message = choice.get("message").filter(|message| message.is_object());
        let message = message.ok_or_else(|| match choice.get("delta") {
            Some(_) => OutputError::Stream,
            None => EXPECTED,
        });
        let mut calls = match message.and_then(in_message) {
            Ok(calls) => calls,
            // Ignored, because the calls of other choices than the first are not executed anyway.
            Err(_) if index > 0 => continue,
            Err(error) => return Err(error),
        };
        if matches!(choice["finish_reason"].as_str(), Some("length" | "content_filter"))
            && let Some(last) = calls.last_mut()
        {
            last.spoil(Problem::incomplete("the output of the model ended in the middle of it"));
        }
        if index > 0 {
            let other = "it belongs to another choice than the first";
            for call in &mut calls {
                call.spoil(Problem::new(MalformedKind::OtherChoice, other));
            }
        }
        found.append(&mut calls);
    }
    Ok(found)
}

fn in_message(message: &Value) -> Result<Vec<Candidate<'_>>, OutputError> {
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(calls)) => calls.as_slice(),
        Some(_) => return Err(EXPECTED),
    };
    // Only used without `tool_calls`, because some servers repeat the same call in the legacy
    // format.
    let legacy = match message.get("function_call") {
        Some(call @ Value::Object(_)) if calls.is_empty() => slice::from_ref(call),
        _ => &[],
    };
    let legacy = legacy.iter().map(|call| of_function(None, call).in_form(Form::Legacy));
    Ok(calls.iter().map(call).chain(legacy).collect())
}

fn call(item: &Value) -> Candidate<'_> {
    let id = item.get("id");
    match (item["type"].as_str(), item.get("function")) {
        (None | Some("function"), Some(function)) => of_function(id, function),
        (Some(kind @ "custom"), _) => of_function(id, &item[kind])
            .spoiled(Problem::unsupported("it calls a custom tool, whose input is text")),
        _ => of_function(id, item).spoiled(Problem::unsupported("it is not a function call")),
    }
}

fn of_function<'o>(id: Option<&Value>, function: &'o Value) -> Candidate<'o> {
    Candidate::new(id, function.get("name"), function.get("arguments"))
}

fn is_message(value: &Value) -> bool {
    ["role", "tool_calls", "function_call"].iter().any(|key| value.get(key).is_some())
}

fn is_call(value: &Value) -> bool {
    value.get("function").is_some() || value["type"] == "custom"
}
