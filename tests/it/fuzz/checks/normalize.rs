//! Output of models: calls are parsed deterministically, within the limits, and the same in the
//! format of another provider.

use std::{collections::HashSet, convert::Infallible, future::ready};

use mcp_composite::{
    message::{Reply, Request},
    normalize::{
        DispatchOptions, Dispatched, MalformedCall, ModelCall, OutputError, ParseLimits, Provider,
        ToolNames, dispatch, normalize,
    },
};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};
use tower::service_fn;

use super::run;

const PROVIDERS: [Provider; 6] = [
    Provider::OpenAiResponses,
    Provider::OpenAiChat,
    Provider::Anthropic,
    Provider::Gemini,
    Provider::Lfm,
    Provider::Hermes,
];

/// The maximum number of calls that are read of one answer.
const MAX_CALLS: usize = 128;

type Calls = Result<Vec<Result<ModelCall, MalformedCall>>, OutputError>;

/// The bytes are the output of a model, as JSON or as text.
pub(super) fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let written = Value::from(text);
    check_output(&written);
    a_quotation_is_no_call(text);
    if let Ok(json) = serde_json::from_str(text) {
        check_output(&json);
    }
}

fn check_output(output: &Value) {
    let detected = Provider::detect(output);
    if let Ok(provider) = &detected {
        let calls = provider.calls(output);
        // It may begin in the format of the provider and continue in no known one.
        let is_read = matches!(calls, Ok(_) | Err(OutputError::UnknownShape { .. }));
        assert!(is_read || calls == Err(OutputError::Stream), "{provider:?}: {calls:?}");
        assert_eq!(normalize(output), calls);
    }
    for provider in PROVIDERS {
        let calls = provider.calls(output);
        assert_eq!(provider.calls(output), calls, "not the same twice");
        they_keep_the_limits(provider, output, &calls);
        let Ok(calls) = calls else { continue };
        let good: Vec<_> = calls.iter().flatten().cloned().collect();
        let ids: HashSet<_> = good.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids.len(), good.len(), "two calls of one id: {good:?}");
        others_write_the_same(&good);
        they_are_answered(provider, calls);
    }
}

fn they_keep_the_limits(provider: Provider, output: &Value, calls: &Calls) {
    let Ok(calls) = calls else { return };
    let good = calls.iter().flatten().count();
    assert!(good <= MAX_CALLS, "{good} calls");
    if output.is_string() {
        assert!(calls.len() <= MAX_CALLS + 1, "{} calls of a text", calls.len());
    }
    for call in calls {
        match call {
            Ok(call) => assert!(!call.name.is_empty(), "{call:?}"),
            Err(call) => assert!(!call.message().is_empty(), "{call:?}"),
        }
    }
    // Stricter limits return no other calls.
    let narrow = ParseLimits::new().max_calls(1).max_depth(3).max_bytes(200);
    let Ok(fewer) = provider.calls_within(output, &narrow) else { return };
    for call in fewer.iter().flatten() {
        let is_same =
            |other: &ModelCall| other.name == call.name && other.arguments == call.arguments;
        assert!(calls.iter().flatten().any(is_same), "{call:?} is not of {calls:?}");
    }
}

/// Checks that the calls of one provider's model are the same in the format of another.
fn others_write_the_same(calls: &[ModelCall]) {
    for ModelCall { name, arguments, .. } in calls {
        let json = json!(arguments).to_string();
        let call = json!({ "name": name, "arguments": arguments });
        for (provider, written) in [
            (
                Provider::OpenAiResponses,
                json!([{ "type": "function_call", "call_id": "a", "name": name, "arguments": json }]),
            ),
            (
                Provider::OpenAiChat,
                json!([{ "type": "function", "id": "a",
                    "function": { "name": name, "arguments": json } }]),
            ),
            (
                Provider::Anthropic,
                json!([{ "type": "tool_use", "id": "a", "name": name, "input": arguments }]),
            ),
            (
                Provider::Gemini,
                json!([{ "functionCall": { "id": "a", "name": name, "args": arguments } }]),
            ),
            (Provider::Hermes, json!(format!("<tool_call>\n{call}\n</tool_call>"))),
        ] {
            let read = provider.calls(&written).unwrap_or_else(|error| panic!("{error}"));
            let [Ok(read)] = &read[..] else { panic!("{provider:?} of {written}: {read:?}") };
            assert_eq!((&read.name, &read.arguments), (name, arguments), "{provider:?}");
        }
    }
}

/// Checks that every call is answered, and each answer can be returned to the model.
fn they_are_answered(provider: Provider, calls: Vec<Result<ModelCall, MalformedCall>>) {
    let server = service_fn(|request: Request| {
        let name = request.tool_call().expect("a call").name.to_string();
        let result = CallToolResult::success(vec![ContentBlock::text(name)]);
        ready(Ok::<Reply, Infallible>(result.into()))
    });
    let names = ToolNames::new(calls.iter().flatten().map(|call| call.name.clone()));
    let options = DispatchOptions::new();
    let count = calls.len();
    let ended = run(dispatch(server, calls, &options));
    assert_eq!(ended.len(), count);
    for call in ended.iter().filter_map(Dispatched::result) {
        let name = &call.content[0].as_text().expect("a text").text;
        let exposed = names.exposed(name).expect("a name of its own");
        assert_eq!(names.original(exposed), Some(&**name));
    }
    let encoded = provider.encode(&ended);
    assert!(encoded.len() <= count.max(1), "{} answers of {count} calls", encoded.len());
}

/// Checks that a text quoted line by line contains no calls.
fn a_quotation_is_no_call(text: &str) {
    // The end of a thought may be followed by a call on the same line.
    if text.contains("</think>") {
        return;
    }
    let quoted: Vec<_> = text.split('\n').map(|line| format!("> {line}")).collect();
    let quoted = quoted.join("\n");
    for provider in [Provider::Lfm, Provider::Hermes] {
        if let Ok(calls) = provider.calls_in(&quoted) {
            assert!(calls.iter().all(Result::is_err), "{quoted:?}: {calls:?}");
        }
    }
}
