//! Tool calls in the output of each provider.

use mcp_composite::normalize::{
    MalformedCall, MalformedKind, ModelCall, OutputError, ParseLimits, Provider, normalize,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const PROVIDERS: [Provider; 6] = [
    Provider::OpenAiResponses,
    Provider::OpenAiChat,
    Provider::Anthropic,
    Provider::Gemini,
    Provider::Lfm,
    Provider::Hermes,
];

/// Returns the published example of a provider.
fn example(provider: Provider) -> Value {
    let json = match provider {
        Provider::OpenAiResponses => include_str!("responses.json"),
        Provider::OpenAiChat => include_str!("chat.json"),
        Provider::Anthropic => include_str!("anthropic.json"),
        Provider::Gemini => include_str!("gemini.json"),
        Provider::Lfm => return json!(include_str!("lfm.txt")),
        _ => return json!(include_str!("hermes.txt")),
    };
    serde_json::from_str(json).unwrap()
}

/// Returns calls as their ids, names and arguments; for malformed ones, the error.
fn summary(calls: &[Result<ModelCall, MalformedCall>]) -> Value {
    let describe = |call: &Result<ModelCall, MalformedCall>| match call {
        Ok(call) => json!([call.id.as_str(), call.name, call.arguments]),
        Err(call) => json!([call.id().map(|id| id.as_str()), call.to_string()]),
    };
    calls.iter().map(describe).collect()
}

fn only(
    call: Result<Vec<Result<ModelCall, MalformedCall>>, OutputError>,
) -> Result<ModelCall, MalformedCall> {
    let mut calls = call.unwrap();
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.remove(0)
}

/// Returns a call of `f` with these arguments, in the format of each provider.
fn written(arguments: &Value) -> Vec<(Provider, Value)> {
    let text = match arguments {
        Value::String(_) => arguments.clone(),
        other => json!(other.to_string()),
    };
    let function = json!({ "name": "f", "arguments": text });
    vec![
        (
            Provider::OpenAiResponses,
            json!([{ "type": "function_call", "call_id": "a", "name": "f", "arguments": text }]),
        ),
        (Provider::OpenAiChat, json!([{ "type": "function", "id": "a", "function": function }])),
        (
            Provider::Anthropic,
            json!([{ "type": "tool_use", "id": "a", "name": "f", "input": arguments }]),
        ),
        (
            Provider::Gemini,
            json!([{ "functionCall": { "id": "a", "name": "f", "args": arguments } }]),
        ),
    ]
}

#[test]
fn calls_of_responses_are_read() {
    assert_eq!(
        summary(&normalize(&example(Provider::OpenAiResponses)).unwrap()),
        json!([
            ["call_paris", "get_weather", { "location": "Paris, France" }],
            ["call_bogota", "get_weather", { "location": "Bogotá, Colombia" }],
            ["call_code", "malformed call of `run_code`: it calls a custom tool, whose input is text"],
            ["call_mail", "send_email", { "to": "bob@example.com", "body": "Hi bob" }],
        ])
    );
}

#[test]
fn calls_of_chat_completions_are_read() {
    assert_eq!(
        summary(&normalize(&example(Provider::OpenAiChat)).unwrap()),
        json!([
            ["call_12345xyz", "get_weather", { "location": "Paris, France" }],
            ["call_67890abc", "get_time", {}],
            ["call_other", "malformed call of `get_weather`: it belongs to another choice than the first"],
        ])
    );
}

#[test]
fn only_the_first_choice_is_read() {
    let call = json!({ "id": "a", "function": { "name": "f", "arguments": "{}" } });
    let first = json!({ "message": { "tool_calls": [call] } });
    for other in [json!(1), json!({}), json!({ "message": { "tool_calls": "x" } })] {
        let read = normalize(&json!({ "choices": [first, other] })).unwrap();
        assert_eq!(summary(&read), json!([["a", "f", {}]]), "{other}");
        let read = normalize(&json!({ "choices": [other, first] }));
        assert!(matches!(read, Err(OutputError::UnknownShape { .. })), "{read:?}");
    }
}

#[test]
fn calls_of_anthropic_are_read() {
    assert_eq!(
        summary(&normalize(&example(Provider::Anthropic)).unwrap()),
        json!([
            ["toolu_01A", "get_weather", { "location": "San Francisco, CA", "unit": "celsius" }],
            ["toolu_01B", "get_time", {}],
        ])
    );
}

#[test]
fn calls_of_gemini_are_read() {
    assert_eq!(
        summary(&normalize(&example(Provider::Gemini)).unwrap()),
        json!([
            ["call_0", "power_disco_ball", { "power": true }],
            ["fn-2", "start_music", { "energetic": true, "loud": true }],
            ["call_2", "dim_lights", { "brightness": 0.5 }],
        ])
    );
}

#[test]
fn calls_of_lfm_are_read() {
    assert_eq!(
        summary(&normalize(&example(Provider::Lfm)).unwrap()),
        json!([
            ["call_0", "get_candidate_status", { "candidate_id": "12345" }],
            ["call_1", "list_rounds", { "after": null, "limit": 3 }],
        ])
    );
}

#[test]
fn calls_of_hermes_are_read() {
    assert_eq!(
        summary(&normalize(&example(Provider::Hermes)).unwrap()),
        json!([
            ["call_0", "get_current_temperature", { "location": "San Francisco, CA, USA" }],
            ["call_1", "get_temperature_date", { "location": "San Francisco, CA, USA", "date": "2024-10-01" }],
        ])
    );
}

#[test]
fn provider_is_detected_from_any_part_of_its_output() {
    for provider in PROVIDERS {
        assert_eq!(Provider::detect(&example(provider)), Ok(provider));
    }
    let parts = [
        (Provider::OpenAiResponses, "/output"),
        (Provider::OpenAiResponses, "/output/1"),
        (Provider::OpenAiResponses, "/output/3"),
        (Provider::OpenAiResponses, "/output/5"),
        (Provider::OpenAiChat, "/choices/0/message"),
        (Provider::OpenAiChat, "/choices/0/message/tool_calls"),
        (Provider::OpenAiChat, "/choices/0/message/tool_calls/0"),
        (Provider::Anthropic, "/content"),
        (Provider::Anthropic, "/content/3"),
        (Provider::Gemini, "/candidates/0/content"),
        (Provider::Gemini, "/candidates/0/content/parts"),
        (Provider::Gemini, "/candidates/0/content/parts/1"),
    ];
    for (provider, part) in parts {
        let part = example(provider).pointer(part).unwrap().clone();
        assert_eq!(Provider::detect(&part), Ok(provider), "{part}");
        // Output of a detected provider can be read.
        provider.calls(&part).unwrap();
    }
}

#[test]
fn output_without_calls_is_an_empty_list() {
    let outputs = [
        (Provider::OpenAiResponses, json!({ "object": "response", "output": [] })),
        (Provider::OpenAiResponses, json!({ "output": [{ "type": "message", "content": [] }] })),
        (Provider::OpenAiChat, json!({ "choices": [] })),
        (
            Provider::OpenAiChat,
            json!({ "choices": [{ "message": { "role": "assistant", "content": "Hi" } }] }),
        ),
        (Provider::OpenAiChat, json!({ "role": "assistant", "content": "Hi", "tool_calls": null })),
        (Provider::OpenAiChat, json!({ "role": "assistant", "content": "Hi", "tool_calls": [] })),
        (Provider::Anthropic, json!({ "type": "message", "role": "assistant", "content": [] })),
        (
            Provider::Anthropic,
            json!({ "role": "assistant", "content": [{ "type": "text", "text": "Hi" }] }),
        ),
        (Provider::Gemini, json!({ "candidates": [{ "finishReason": "SAFETY" }] })),
        (Provider::Gemini, json!({ "promptFeedback": { "blockReason": "SAFETY" } })),
        (Provider::Gemini, json!({ "role": "model", "parts": [{ "text": "Hi" }] })),
        (Provider::Hermes, json!("Hi")),
        (Provider::Hermes, json!("")),
    ];
    for (provider, output) in outputs {
        assert_eq!(Provider::detect(&output), Ok(provider), "{output}");
        assert_eq!(normalize(&output), Ok(vec![]), "{output}");
    }
    for provider in &PROVIDERS[..4] {
        assert_eq!(provider.calls(&json!([])), Ok(vec![]));
    }
}

#[test]
fn output_of_unknown_shape_is_rejected() {
    for output in [
        json!(null),
        json!(5),
        json!(true),
        json!([]),
        json!({}),
        json!([5]),
        json!([{}]),
        json!({ "result": "x" }),
        json!({ "id": "x" }),
    ] {
        let error = normalize(&output).unwrap_err();
        assert!(matches!(error, OutputError::UnknownShape { .. }), "{output}: {error}");
        for provider in PROVIDERS {
            let calls = provider.calls(&output);
            assert!(output == json!([]) || calls.is_err(), "{provider:?}: {output}: {calls:?}");
        }
    }
}

#[test]
fn provider_reads_no_calls_from_output_of_another() {
    for provider in PROVIDERS {
        for other in PROVIDERS.into_iter().filter(|other| *other != provider) {
            let calls = provider.calls(&example(other));
            // A text in the format of another provider has no calls.
            assert!(calls.as_ref().map_or(true, Vec::is_empty), "{provider:?} of {other:?}");
        }
    }
}

#[test]
fn output_of_two_forms_is_ambiguous() {
    let item =
        |provider| written(&json!({})).into_iter().find(|(of, _)| *of == provider).unwrap().1;
    let both = [item(Provider::OpenAiResponses)[0].clone(), item(Provider::Anthropic)[0].clone()];
    for output in [
        json!({ "output": [], "tool_calls": [] }),
        json!({ "choices": [], "candidates": [] }),
        json!(both),
    ] {
        assert_eq!(normalize(&output), Err(OutputError::Ambiguous), "{output}");
    }
}

#[test]
fn stream_chunk_is_rejected() {
    for output in [
        json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [] } }] }),
        json!([example(Provider::Gemini)]),
    ] {
        assert_eq!(normalize(&output), Err(OutputError::Stream), "{output}");
    }
}

#[test]
fn arguments_are_read_from_an_object_or_its_json_text() {
    for arguments in [json!({}), json!({ "a": [1, { "b": null }] }), json!({ "grün": "🌱" })] {
        for (provider, output) in written(&arguments) {
            let call = only(provider.calls(&output)).unwrap();
            assert_eq!(Value::Object(call.arguments), arguments, "{provider:?}");
        }
    }
    for blank in ["", " ", "\n\t"] {
        for (provider, output) in written(&json!(blank)) {
            assert!(only(provider.calls(&output)).unwrap().arguments.is_empty(), "{provider:?}");
        }
    }
    for (provider, key) in [
        (Provider::OpenAiResponses, "/0/arguments"),
        (Provider::OpenAiChat, "/0/function/arguments"),
        (Provider::Anthropic, "/0/input"),
        (Provider::Gemini, "/0/functionCall/args"),
    ] {
        let mut output = written(&json!({})).into_iter().find(|(of, _)| *of == provider).unwrap().1;
        *output.pointer_mut(key).unwrap() = Value::Null;
        assert!(only(provider.calls(&output)).unwrap().arguments.is_empty(), "{provider:?}");
    }
}

#[test]
fn non_object_arguments_are_malformed_and_keep_id_and_name() {
    let cases = [
        (json!([1, 2]), "the arguments have to be an object, found a list"),
        (json!(5), "the arguments have to be an object, found a number"),
        (json!(true), "the arguments have to be an object, found a boolean"),
        (json!("null"), "the arguments have to be an object, found null"),
        (json!("\"text\""), "the arguments have to be an object, found a text"),
        (json!("[1,2]"), "the arguments have to be an object, found a list"),
        (json!("{\"a\": "), "the arguments are truncated"),
        (json!("{a: 1}"), "the arguments are not JSON: key must be a string at line 1 column 2"),
        (json!("{} {}"), "the arguments are not JSON: trailing characters at line 1 column 4"),
    ];
    for (arguments, message) in cases {
        for (provider, output) in written(&arguments) {
            let malformed = only(provider.calls(&output)).unwrap_err();
            assert_eq!(malformed.message(), message, "{provider:?}");
            assert_eq!(malformed.name(), Some("f"));
            assert_eq!(malformed.id().unwrap().as_str(), "a");
        }
    }
}

#[test]
fn arguments_over_a_limit_are_malformed() {
    let deep = "[".repeat(100_000);
    let nested = format!("{{\"a\":{}{}}}", "[".repeat(126), "]".repeat(126));
    let too_nested = format!("{{\"a\":{}{}}}", "[".repeat(127), "]".repeat(127));
    let large = json!({ "a": "x".repeat(1 << 20) });
    for (arguments, is_good) in [
        (json!(deep), false),
        (json!(nested), true),
        (json!(too_nested), false),
        (json!(large.to_string()), false),
        (large, false),
    ] {
        for (provider, output) in written(&arguments) {
            let call = only(provider.calls(&output));
            let kind = call.map_err(|malformed| malformed.kind()).map(|_| ());
            let expected = if is_good { Ok(()) } else { Err(MalformedKind::OverLimit) };
            assert_eq!(kind, expected, "{provider:?}");
        }
    }
}

#[test]
fn calls_over_the_limit_are_malformed_and_keep_their_ids() {
    let block =
        |id: usize| json!({ "type": "tool_use", "id": format!("t{id}"), "name": "f", "input": {} });
    let output: Value = (0..130).map(block).collect();
    let calls = Provider::Anthropic.calls(&output).unwrap();
    assert_eq!(calls.len(), 130);
    assert!(calls[127].is_ok());
    let malformed = calls[129].as_ref().unwrap_err();
    assert_eq!(malformed.kind(), MalformedKind::OverLimit);
    assert_eq!(malformed.id().unwrap().as_str(), "t129");
    let calls =
        Provider::Anthropic.calls_within(&output, &ParseLimits::new().max_calls(0)).unwrap();
    assert!(calls.iter().all(Result::is_err));
}

#[test]
fn call_without_an_id_receives_a_unique_one() {
    let part = |id: Option<&str>| json!({ "functionCall": { "id": id, "name": "f" } });
    let output = json!([part(None), part(Some("call_0")), part(Some(" ")), part(Some("call_2_"))]);
    let calls = Provider::Gemini.calls(&output).unwrap();
    let ids: Vec<_> = calls.iter().map(|call| &call.as_ref().unwrap().id).collect();
    assert_eq!(
        ids.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
        ["call_0_", "call_0", "call_2", "call_2_"]
    );
    assert_eq!(ids.iter().map(|id| id.is_made()).collect::<Vec<_>>(), [true, false, true, false]);
}

#[test]
fn duplicate_call_id_is_malformed() {
    let (_, output) = written(&json!({})).swap_remove(0);
    let twice = json!([output[0], output[0]]);
    let calls = Provider::OpenAiResponses.calls(&twice).unwrap();
    assert!(calls[0].is_ok());
    let malformed = calls[1].as_ref().unwrap_err();
    assert_eq!(malformed.kind(), MalformedKind::DuplicateId);
    assert_eq!(malformed.id().unwrap().as_str(), "a");
}

#[test]
fn call_with_an_invalid_name_is_malformed() {
    let long = "x".repeat(257);
    for name in [json!(null), json!(5), json!(""), json!(" "), json!("a\nb"), json!(long)] {
        let output = json!([{ "type": "tool_use", "id": "a", "name": name, "input": {} }]);
        let malformed = only(Provider::Anthropic.calls(&output)).unwrap_err();
        assert_eq!(malformed.kind(), MalformedKind::Name, "{name}");
        assert_eq!((malformed.id().unwrap().as_str(), malformed.name()), ("a", None));
    }
    for name in ["github/search", "a.b", "grün", "with space"] {
        let output = json!([{ "type": "tool_use", "id": "a", "name": name, "input": {} }]);
        assert_eq!(only(Provider::Anthropic.calls(&output)).unwrap().name, name);
    }
}

#[test]
fn truncated_call_is_malformed_but_earlier_ones_are_valid() {
    let block = |id: &str| json!({ "type": "tool_use", "id": id, "name": "f", "input": {} });
    let call = |id: &str| json!({ "id": id, "function": { "name": "f", "arguments": "" } });
    let item = |id: &str, status: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "status": status });
    let part = json!({ "functionCall": { "name": "f" } });
    let outputs = [
        json!({ "output": [item("a", "completed"), item("b", "incomplete")] }),
        json!({ "output": [item("a", "completed"), item("b", "in_progress")] }),
        json!({ "content": [block("a"), block("b")], "stop_reason": "max_tokens" }),
        json!({ "choices": [{ "message": { "tool_calls": [call("a"), call("b")] }, "finish_reason": "length" }] }),
        json!({ "candidates": [{ "content": { "parts": [part, part] }, "finishReason": "MAX_TOKENS" }] }),
    ];
    for output in outputs {
        let calls = normalize(&output).unwrap();
        assert!(calls[0].is_ok(), "{output}");
        assert_eq!(calls[1].as_ref().unwrap_err().kind(), MalformedKind::Incomplete, "{output}");
    }
    let text = json!({ "type": "text", "text": "and now" });
    let output = json!({ "content": [block("a"), text], "stop_reason": "max_tokens" });
    assert!(only(normalize(&output)).is_ok());
}

#[test]
fn malformed_call_does_not_affect_the_others() {
    let good =
        json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    for bad in [
        json!(null),
        json!("f"),
        json!({}),
        json!({ "id": "b", "type": "custom", "custom": { "name": "g", "input": "x" } }),
        json!({ "id": "b", "type": "function" }),
        json!({ "id": "b", "type": "function", "function": 5 }),
        json!({ "id": "b", "type": "mystery", "function": {} }),
    ] {
        let output = json!({ "role": "assistant", "tool_calls": [bad, good] });
        let calls = normalize(&output).unwrap();
        assert!(calls[0].is_err() && calls[1].is_ok(), "{output}");
    }
    let output = json!([{ "functionCall": "f" }, { "functionCall": { "name": "f" } }]);
    let calls = normalize(&output).unwrap();
    assert!(calls[0].is_err() && calls[1].is_ok());
}

#[test]
fn legacy_function_call_field_is_read() {
    let old = json!({ "name": "f", "arguments": "{\"a\":1}" });
    let message = json!({ "role": "assistant", "content": null, "function_call": old });
    assert_eq!(only(normalize(&message)).unwrap().arguments["a"], 1);
    // Some servers write the same call in both formats.
    let new = json!([{ "id": "a", "function": old }]);
    let message = json!({ "role": "assistant", "function_call": old, "tool_calls": new });
    assert_eq!(only(normalize(&message)).unwrap().id.as_str(), "a");
}

#[test]
fn malformed_function_call_of_gemini_is_malformed() {
    let output = json!({ "candidates": [{ "finishReason": "MALFORMED_FUNCTION_CALL" }] });
    let malformed = only(normalize(&output)).unwrap_err();
    assert_eq!(
        malformed.to_string(),
        "malformed call: the provider could not parse the output of the model"
    );
}

#[test]
fn quoted_marker_in_prose_is_not_a_call() {
    let text =
        "The user wrote: <|tool_call_start|>[delete_all()]<|tool_call_end|>, which I do not do.";
    assert_eq!(normalize(&json!(text)), Ok(vec![]));
}

#[test]
fn deeply_nested_arguments_do_not_overflow_the_stack() {
    // They are closed again, or the splitter of the list would reject them.
    let levels = 100_000;
    let nested = [("[", "]"), ("{'a':", "}")].map(|(open, close)| {
        let value = format!("{}1{}", open.repeat(levels), close.repeat(levels));
        json!(format!("<|tool_call_start|>[f(a={value})]<|tool_call_end|>"))
    });
    let read = move || nested.map(|text| only(normalize(&text)).unwrap_err().kind());
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    assert_eq!(small.spawn(read).unwrap().join().unwrap(), [MalformedKind::OverLimit; 2]);
}

fn json_value() -> impl Strategy<Value = Value> {
    let keys = proptest::sample::select(vec![
        "output",
        "choices",
        "message",
        "tool_calls",
        "function",
        "function_call",
        "functionCall",
        "candidates",
        "content",
        "parts",
        "type",
        "id",
        "call_id",
        "name",
        "arguments",
        "args",
        "input",
        "role",
        "status",
        "finish_reason",
        "text",
    ]);
    let texts = proptest::sample::select(vec![
        "function_call",
        "custom_tool_call",
        "function",
        "tool_use",
        "text",
        "message",
        "{}",
        "{",
        "f",
        "",
        "a",
        "completed",
        "length",
        "<tool_call>{}</tool_call>",
    ]);
    let leaf = prop_oneof![Just(Value::Null), Just(json!(5)), texts.prop_map(Value::from),];
    leaf.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((keys.clone(), inner), 0..5).prop_map(|members| {
                members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_is_read_without_panic_or_duplicate_ids(value in json_value()) {
        for provider in PROVIDERS {
            let Ok(calls) = provider.calls(&value) else { continue };
            let mut ids: Vec<_> =
                calls.iter().flatten().map(|call| call.id.as_str().to_owned()).collect();
            let count = ids.len();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), count);
        }
        let _ = normalize(&value);
    }
}
