//! Finds tool calls in outputs of OpenAI's Responses API. An output is a list of items, and each
//! item is a message, a thought or a tool call.

use std::slice;

use serde_json::Value;

use super::{
    call::{Form, Problem},
    candidate::Candidate,
    error::OutputError,
};

const EXPECTED: OutputError = OutputError::UnknownShape {
    expected: "a response with `output`, its items, or one of them with a `type`",
};

pub(super) fn find(output: &Value) -> Result<Vec<Candidate<'_>>, OutputError> {
    let items = items(output)?;
    if !items.is_empty() && !items.iter().any(|item| item["type"].is_string()) {
        return Err(EXPECTED);
    }
    Ok(items.iter().filter_map(call).collect())
}

fn items(output: &Value) -> Result<&[Value], OutputError> {
    match (output, output.get("output")) {
        (_, Some(Value::Array(items))) => Ok(items),
        (_, Some(item @ Value::Object(_))) => Ok(slice::from_ref(item)),
        (Value::Array(items), _) => Ok(items),
        (Value::Object(_), None) if output["type"].is_string() => Ok(slice::from_ref(output)),
        _ => Err(EXPECTED),
    }
}

fn call(item: &Value) -> Option<Candidate<'_>> {
    let of = |arguments| Candidate::new(item.get("call_id"), item.get("name"), item.get(arguments));
    let found = match item["type"].as_str() {
        Some("function_call") => of("arguments"),
        Some("custom_tool_call") => of("")
            .in_form(Form::Custom)
            .spoiled(Problem::unsupported("it calls a custom tool, whose input is text")),
        // Other items, and calls that the provider executes itself.
        _ => return None,
    };
    Some(match item["status"].as_str() {
        None | Some("completed") => found,
        Some(_) => {
            found.spoiled(Problem::incomplete("the output of the model ended in the middle of it"))
        }
    })
}
