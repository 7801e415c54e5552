//! The time of a call whose arguments are as expensive to check as the limits allow.
//!
//! ```sh
//! cargo bench -p benches --bench validate
//! ```
//!
//! No case should take longer than 50 ms: a check does not let other tasks run.

use std::{convert::Infallible, future::ready, hint::black_box};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use mcp_composite::{
    message::{Reply, Request},
    validate::{SchemaMode, ValidateLayer},
};
use rmcp::model::{CallToolRequestParams, CallToolResult, JsonObject, ListToolsResult, Tool};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tower::{Layer, Service, service_fn};

criterion_group!(benches, check);
criterion_main!(benches);

fn check(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut group = criterion.benchmark_group("check");
    group.sample_size(10);
    for (name, schema, value) in cases() {
        let (schema, arguments) = (arguments_of(schema), object(&json!({ "value": value })));
        let mut service = ValidateLayer::new().schema(SchemaMode::Strict).layer(service_fn(
            move |request: Request| {
                let tool = Tool::new("tool", "It takes a value", schema.clone());
                ready(Ok::<_, Infallible>(match request.lists_tools() {
                    true => Reply::from(ListToolsResult::with_all_items(vec![tool])),
                    false => CallToolResult::success(Vec::new()).into(),
                }))
            },
        ));
        let mut call = |arguments: JsonObject| {
            let params = CallToolRequestParams::new("tool").with_arguments(arguments);
            runtime.block_on(service.call(params.into())).expect("infallible")
        };
        let is_checked = match call(arguments.clone()).error() {
            Some(error) => !error.message.contains("too large to check"),
            None => true,
        };
        assert!(is_checked, "{name} is not checked");
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || arguments.clone(),
                |arguments| black_box(call(arguments)),
                BatchSize::PerIteration,
            );
        });
    }
}

/// Returns schemas of a value, and values that take almost the maximum number of steps.
fn cases() -> Vec<(&'static str, Value, Value)> {
    let names = |count: usize, value: Value| -> Value {
        (0..count).map(|n| (format!("key{n}"), value.clone())).collect::<JsonObject>().into()
    };
    let row = json!({
        "properties": names(10, json!({ "type": "integer" })),
        "required": ["key1", "key5"],
        "additionalProperties": false,
    });
    let closed = json!({ "properties": names(400, json!({})), "additionalProperties": false });
    let mixed: Vec<_> = (0..4000).flat_map(|n| [json!(n.to_string()), json!([n])]).collect();
    let distinct: Vec<_> = (0..90_000).collect();
    let nested: Vec<_> = (0..1_000)
        .map(|levels| (0..levels % 90).fold(json!([]), |inner, _| json!([inner])))
        .collect();
    vec![
        ("integers", json!({ "items": { "type": "integer" } }), json!(vec![1; 700_000])),
        ("rows", json!({ "items": row }), json!(vec![names(10, json!(1)); 20_000])),
        ("closed_objects", times(500, &closed), names(400, json!(1))),
        ("pattern", times(100, &json!({ "pattern": "^[a-z]+$" })), json!("a".repeat(58_000))),
        ("ambiguous_pattern", json!({ "pattern": "[01]*1[01]{200}x" }), binary(5_500)),
        ("mixed_enum", times(100, &json!({ "enum": mixed })), json!([3_999])),
        ("unique_integers", json!({ "uniqueItems": true }), json!(distinct)),
        ("unique_arrays", json!({ "uniqueItems": true }), json!(nested)),
    ]
}

/// Returns a schema that applies another one `count` times.
fn times(count: usize, schema: &Value) -> Value {
    json!({ "allOf": vec![json!({ "$ref": "#/$defs/once" }); count], "$defs": { "once": schema } })
}

fn binary(length: u32) -> Value {
    let digit = |n: u32| if (n.wrapping_mul(2_654_435_761) >> 13) & 1 == 1 { '1' } else { '0' };
    Value::String((0..length).map(digit).collect())
}

fn arguments_of(mut schema: Value) -> JsonObject {
    let definitions = schema.get_mut("$defs").map(Value::take).unwrap_or_else(|| json!({}));
    object(&json!({ "type": "object", "properties": { "value": schema }, "$defs": definitions }))
}

fn object(value: &Value) -> JsonObject {
    value.as_object().cloned().unwrap_or_default()
}
