use std::sync::Arc;

use proptest::prelude::*;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ResourceContents};
use serde_json::{Map, Value, json};

use super::{
    cost::{Cost, MARK},
    json_eq::repeats,
    schema_form::Forms,
    shorten::{Shortened, shorten},
};
use crate::{
    composite::BRANCH,
    json_size::{json_bytes, looks::during},
    schema::InputSchema,
};

/// The size, in bytes of JSON, of a result without content.
const ENVELOPE: usize = 140;

fn schema(schema: Value) -> InputSchema {
    let Value::Object(schema) = schema else { panic!("no object: {schema}") };
    InputSchema::new(Arc::new(schema))
}

fn texts(texts: impl IntoIterator<Item = usize>) -> CallToolResult {
    let block = |(index, bytes)| ContentBlock::text(format!("{index}").repeat(bytes));
    CallToolResult::success(texts.into_iter().enumerate().map(block).collect())
}

/// Returns a result with structured content, but without a text that repeats this content.
fn structured(value: Value) -> CallToolResult {
    let mut result = CallToolResult::success(Vec::new());
    result.structured_content = Some(value);
    result
}

fn shortened(result: &CallToolResult, limit: usize) -> Shortened {
    let shortened = shorten(result, limit, None);
    assert!(json_bytes(&shortened.result) <= limit.max(ENVELOPE), "{:?}", shortened.result);
    shortened
}

/// Truncates structured content to a limit, and returns the remaining content.
fn left(value: Value, limit: usize) -> Value {
    shortened(&structured(value), limit).result.structured_content.expect("structured content")
}

fn image(bytes: usize) -> ContentBlock {
    ContentBlock::image("A".repeat(bytes), "image/png")
}

fn of_branch(branch: &str, block: ContentBlock) -> ContentBlock {
    let ContentBlock::Text(text) = block else { panic!("no text") };
    let meta = Map::from_iter([(BRANCH.to_owned(), branch.into())]);
    ContentBlock::Text(text.with_meta(MetaObject(meta)))
}

fn text_of(block: &ContentBlock) -> &str {
    &block.as_text().expect("a text").text
}

/// Returns `true` if `left` can be the truncated form of `value`: equal, shorter, or cut with a
/// mark.
fn is_left_of(left: &Value, value: &Value) -> bool {
    match (left, value) {
        (Value::String(left), Value::String(text)) => {
            left == text
                || left
                    .strip_suffix(MARK)
                    .is_some_and(|left| text.starts_with(left) && text.len() > left.len())
        }
        (Value::Array(left), Value::Array(elements)) => {
            left.len() <= elements.len()
                && left.iter().zip(elements).all(|(left, element)| is_left_of(left, element))
        }
        (Value::Object(left), Value::Object(members)) => left
            .iter()
            .all(|(key, left)| members.get(key).is_some_and(|member| is_left_of(left, member))),
        (left, value) => left == value,
    }
}

// === Costs ===

proptest! {
    #[test]
    fn cost_of_a_value_equals_its_serialized_size(value in any_value(), texts in 0..3_usize) {
        let cost = Cost::STANDING.and_texts(texts);
        let json = value.to_string();
        let as_text = json_bytes(&json) - 2;
        let measured = match &value {
            Value::String(text) => cost.text(text),
            Value::Array(_) | Value::Object(_) => super::value::Measured::new(
                &value,
                super::value::Guide {
                    forms: &Forms::free(),
                    cost,
                    branches: &Default::default(),
                },
            )
            .size
            .whole,
            scalar => cost.scalar(scalar),
        };
        prop_assert_eq!(measured, json.len() + texts * as_text);
    }

    #[test]
    fn cost_of_a_text_prefix_is_within_its_budget(text in ".*", budget in 0..60_usize) {
        let cost = Cost::STANDING.and_texts(1);
        let beginning = cost.beginning(&text, budget);
        prop_assert!(text.starts_with(beginning));
        prop_assert!(cost.text(beginning) - cost.text("") <= budget);
    }

    #[test]
    fn text_of_a_value_is_recognized_as_its_repetition(value in any_container(), other in any_container()) {
        prop_assert!(repeats(&value.to_string(), &value));
        let spaced = format!(" {value:#}\n");
        prop_assert!(repeats(&spaced, &value));
        prop_assert_eq!(repeats(&value.to_string(), &other), value == other);
        let more = format!("{0} {0}", value);
        prop_assert!(!repeats(&more, &value));
    }
}

// === Truncated content ===

#[test]
fn large_member_is_shortened_and_small_members_stay_whole() {
    let value = json!({ "id": 7, "log": "x".repeat(100_000), "tags": ["a", "b"], "ok": true });
    let left = left(value, 2_000);
    assert_eq!(left["id"], 7);
    assert_eq!(left["tags"], json!(["a", "b"]));
    assert_eq!(left["ok"], true);
    let log = left["log"].as_str().unwrap();
    assert!(log.ends_with("x…") && log.len() > 1_700, "{} bytes", log.len());
}

#[test]
fn large_members_are_shortened_to_equal_lengths() {
    let value = json!({ "a": "x".repeat(9_000), "b": "y".repeat(50_000), "c": "z".repeat(100) });
    let left = left(value, 4_000);
    let bytes = |key: &str| left[key].as_str().unwrap().len();
    assert_eq!(bytes("c"), 100);
    assert!(bytes("a").abs_diff(bytes("b")) <= 1, "{} and {}", bytes("a"), bytes("b"));
}

#[test]
fn nested_object_keeps_its_shape() {
    let value = json!({ "a": { "b": { "c": "x".repeat(10_000), "d": 1 }, "e": [null] } });
    let left = left(value, 1_000);
    assert_eq!(left["a"]["b"]["d"], 1);
    assert_eq!(left["a"]["e"], json!([null]));
    assert!(left["a"]["b"]["c"].as_str().unwrap().len() > 700);
}

#[test]
fn first_elements_of_an_array_stay_whole() {
    let rows: Vec<_> = (0..2_000).map(|row| json!({ "row": row, "name": "somebody" })).collect();
    let left = left(json!({ "rows": rows, "total": 2_000 }), 4_000);
    let kept = left["rows"].as_array().unwrap();
    assert!(kept.len() > 90, "{} rows", kept.len());
    assert_eq!(kept[..], rows[..kept.len()]);
    assert_eq!(left["total"], 2_000);
}

#[test]
fn oversized_elements_are_shortened_to_similar_lengths() {
    let hits: Vec<_> = (0..3).map(|hit| json!({ "hit": hit, "body": "x".repeat(9_000) })).collect();
    let left = left(json!({ "hits": hits }), 3_000);
    let bytes: Vec<_> =
        (0..3).map(|hit| left["hits"][hit]["body"].as_str().unwrap().len()).collect();
    assert!(bytes.iter().all(|bytes| (800..1_000).contains(bytes)), "{bytes:?}");
    assert_eq!(left["hits"][2]["hit"], 2);
}

#[test]
fn large_map_does_not_displace_its_siblings() {
    let map: Map<_, _> = (0..50_000).map(|key| (format!("k{key:05}"), key.into())).collect();
    let left = left(json!({ "a": 1, "map": map, "z": "last" }), 2_000);
    assert_eq!((&left["a"], &left["z"]), (&json!(1), &json!("last")));
    let kept = left["map"].as_object().unwrap();
    assert!(kept.len() > 80, "{} entries", kept.len());
    assert!(kept.keys().enumerate().all(|(index, key)| *key == format!("k{index:05}")));
}

#[test]
fn text_is_truncated_at_a_character_boundary() {
    for limit in 150..170 {
        let left = left(json!("äö€😀".repeat(1_000)), limit);
        assert!(is_left_of(&left, &json!("äö€😀".repeat(1_000))), "{left}");
    }
}

#[test]
fn numbers_are_never_truncated() {
    let left = left(json!({ "n": 12_345_678_901_u64, "x": 1.5e300, "t": "x".repeat(999) }), 200);
    assert_eq!(left["n"], 12_345_678_901_u64);
    assert_eq!(left["x"], 1.5e300);
}

#[test]
fn small_blocks_are_whole_and_large_ones_equally_long() {
    let cut = shortened(&texts([10, 60_000, 20, 90_000]), 5_000).result;
    let bytes: Vec<_> = cut.content.iter().map(|block| text_of(block).len()).collect();
    assert_eq!((bytes[0], bytes[2]), (10, 20));
    assert!(bytes[1].abs_diff(bytes[3]) <= 1 && bytes[1] > 2_000, "{bytes:?}");
}

#[test]
fn first_of_many_blocks_stay_whole() {
    let cut = shortened(&texts((0..5_000).map(|_| 10)), 2_000);
    let kept = cut.result.content.len();
    assert!(kept > 30, "{kept} blocks");
    assert_eq!(cut.result.content[..], texts((0..kept).map(|_| 10)).content[..]);
    assert!(cut.omissions.note().contains(&format!("`/content` has {kept} of 5000 blocks")));
}

#[test]
fn branches_get_fair_shares_regardless_of_block_count() {
    let mut content = vec![of_branch("small", ContentBlock::text("all of it"))];
    content.extend((0..50).map(|_| of_branch("many", ContentBlock::text("x".repeat(900)))));
    content.push(of_branch("large", ContentBlock::text("y".repeat(90_000))));
    let cut = shortened(&CallToolResult::success(content), 8_000).result;
    let of = |with: char| cut.content.iter().filter(move |block| text_of(block).starts_with(with));
    assert_eq!(text_of(&cut.content[0]), "all of it");
    let many: usize = of('x').map(json_bytes).sum();
    let large: usize = of('y').map(json_bytes).sum();
    assert!(many > 2_500 && large > 3_500, "{many} and {large}");
}

#[test]
fn text_repeating_the_structured_content_is_regenerated() {
    let rows: Vec<_> = (0..500).map(|row| json!({ "row": row, "quote": "\"so\"\n" })).collect();
    let value = json!({ "rows": rows });
    for text in [value.to_string(), format!("{value:#}")] {
        let mut result = structured(value.clone());
        result.content = vec![ContentBlock::text(text)];
        let cut = shortened(&result, 3_000).result;
        let left = cut.structured_content.as_ref().unwrap();
        assert_eq!(text_of(&cut.content[0]), left.to_string());
        assert!(left["rows"].as_array().unwrap().len() > 20, "{left}");
        assert!(json_bytes(&cut) > 2_700, "what there is is used: {}", json_bytes(&cut));
    }
}

#[test]
fn text_repeating_the_output_of_its_branch_is_regenerated() {
    let output = json!({ "log": "x".repeat(9_000), "n": 1 });
    let mut result = structured(json!({ "branches": {
        "a": { "status": "completed", "output": output },
        "b": { "status": "completed", "output": "short" },
    }}));
    result.content = vec![
        of_branch("a", ContentBlock::text(output.to_string())),
        of_branch("b", ContentBlock::text("short")),
    ];
    let cut = shortened(&result, 2_000).result;
    let branches = &cut.structured_content.as_ref().unwrap()["branches"];
    assert_eq!(text_of(&cut.content[0]), branches["a"]["output"].to_string());
    assert_eq!(branches["a"]["output"]["n"], 1);
    assert_eq!(branches["b"]["output"], "short");
    assert_eq!(text_of(&cut.content[1]), "short");
}

#[test]
fn image_is_kept_whole_or_replaced_by_a_note() {
    let content = vec![image(1_000), image(90_000), ContentBlock::text("x".repeat(90_000))];
    let cut = shortened(&CallToolResult::success(content), 8_000).result;
    assert_eq!(cut.content[0], image(1_000));
    assert_eq!(text_of(&cut.content[1]), "[left out: image of type image/png, 67500 bytes]");
    assert!(text_of(&cut.content[2]).len() > 6_000, "what the image leaves is used");
}

#[test]
fn resource_text_is_truncated_and_blob_is_replaced_by_a_note() {
    let text = ContentBlock::resource(ResourceContents::text("x".repeat(9_000), "file:///a"));
    let blob = ContentBlock::resource(ResourceContents::blob("A".repeat(9_000), "file:///b"));
    let cut = shortened(&CallToolResult::success(vec![text, blob]), 2_000).result;
    let Some(ResourceContents::TextResourceContents { uri, text, .. }) =
        cut.content[0].as_resource().map(|resource| &resource.resource)
    else {
        panic!("{:?}", cut.content[0])
    };
    assert!(uri == "file:///a" && text.ends_with("x…"));
    assert_eq!(text_of(&cut.content[1]), "[left out: resource, 6750 bytes]");
}

#[test]
fn metadata_is_kept_whole_or_dropped_except_the_branch() {
    let mut block = of_branch("a", ContentBlock::text("x".repeat(5_000)));
    if let ContentBlock::Text(text) = &mut block {
        text.meta.as_mut().unwrap().insert("else".to_owned(), "m".repeat(5_000).into());
    }
    let mut result = CallToolResult::success(vec![block]);
    let meta = [("small".to_owned(), json!(1)), ("large".to_owned(), json!("m".repeat(9_000)))];
    result.meta = Some(MetaObject(Map::from_iter(meta)));
    let cut = shortened(&result, 2_000).result;
    assert_eq!(*cut.meta.unwrap(), Map::from_iter([("small".to_owned(), json!(1))]));
    let text = cut.content[0].as_text().unwrap();
    assert_eq!(**text.meta.as_ref().unwrap(), Map::from_iter([(BRANCH.to_owned(), json!("a"))]));
    assert!(text.text.len() > 1_000);
}

#[test]
fn error_result_stays_an_error() {
    let mut result = texts([9_000]);
    result.is_error = Some(true);
    assert_eq!(shortened(&result, 500).result.is_error, Some(true));
}

#[test]
fn too_small_limit_drops_all_content() {
    let mut result = texts([9_000]);
    result.structured_content = Some(json!({ "a": "x".repeat(999) }));
    for limit in [0, 1, 50] {
        let cut = shortened(&result, limit);
        assert!(cut.result.content.is_empty(), "{:?}", cut.result);
        assert!(!cut.omissions.note().is_empty());
    }
}

// === Omission notices ===

#[test]
fn omission_notices_name_their_place() {
    let value = json!({ "a/b": { "log": "x".repeat(5_000) }, "rows": vec![1; 5_000] });
    let cut = shortened(&structured(value), 2_000);
    let left = cut.result.structured_content.unwrap();
    let (log, rows) = (left["a/b"]["log"].as_str().unwrap(), left["rows"].as_array().unwrap());
    let expected = json!({
        "omissions": [
            {
                "pointer": "/structuredContent/a~1b/log",
                "reason": "size", "kept": log.len() - MARK.len(), "of": 5_000, "unit": "bytes",
            },
            {
                "pointer": "/structuredContent/rows",
                "reason": "size", "kept": rows.len(), "of": 5_000, "unit": "elements",
            },
        ],
        "count": 2,
    });
    assert_eq!(cut.omissions.value(), expected);
    let note = cut.omissions.note();
    assert!(note.contains("`/structuredContent/a~1b/log` has"), "{note}");
    assert!(note.contains(&format!("has {} of 5000 elements", rows.len())), "{note}");
}

#[test]
fn number_of_omission_notices_is_limited() {
    let long = "k".repeat(300);
    let members: Map<_, _> = (0..200)
        .map(|key| (format!("{key}{long}"), json!({ &*long: "x".repeat(9_000) })))
        .collect();
    let cut = shortened(&structured(members.into()), 200_000);
    assert!(cut.omissions.note().len() <= 512, "{}", cut.omissions.note());
    assert!(cut.omissions.note().contains("… and "), "{}", cut.omissions.note());
    let value = cut.omissions.value();
    assert_eq!(value["omissions"].as_array().unwrap().len(), 32);
    assert_eq!(value["count"], 200);
    assert!(json_bytes(&value) <= 8 * 1024);
}

// === Amount of work ===

#[test]
fn large_result_is_traversed_less_than_twice() {
    let words = "What a tool has found, in words: \"this\" and that.\n";
    let row = |row| json!({ "id": row, "text": words.repeat(2), "ok": true });
    let rows = |rows: usize| json!({ "rows": (0..rows).map(row).collect::<Vec<_>>() });
    let numbers: Map<_, _> = (0..50_000).map(|key| (format!("k{key:06}"), key.into())).collect();
    let results = [
        structured(rows(7_000)),
        CallToolResult::structured(rows(3_500)),
        structured(json!({ "n": vec![12_345_678; 110_000] })),
        structured(numbers.into()),
        CallToolResult::success(vec![ContentBlock::text(words.repeat(20_000))]),
    ];
    for (index, result) in results.iter().enumerate() {
        let whole = json_bytes(result);
        // Try limits at which few, half and almost all of the bytes are kept. Choosing the parts to
        // keep inspects some of the bytes a second time.
        for limit in [64 * 1024, whole / 2, whole - 1] {
            let looks = during(|| shorten(result, limit, None));
            assert!(looks < 2 * whole, "{index}: {looks} of {whole} for {limit}");
        }
    }
}

// === Schemas ===

#[test]
fn parts_required_by_the_schema_are_kept() {
    let promised = schema(json!({
        "type": "object",
        "required": ["kind", "rows", "at", "zz"],
        "properties": {
            "kind": { "enum": ["a".repeat(600)] },
            "at": { "$ref": "#/$defs/time" },
            "rows": { "type": "array", "minItems": 3, "items": { "type": "string", "minLength": 40 } },
            "zz": { "anyOf": [{ "const": 1 }, { "type": "string", "pattern": "^z{700}$" }] },
        },
        "$defs": { "time": { "type": "string", "format": "date-time" } },
    }));
    let value = json!({
        "kind": "a".repeat(600),
        "at": "2026-07-28T00:00:00Z",
        "rows": vec!["r".repeat(3_000); 50],
        "zz": "z".repeat(700),
        "other": "o".repeat(50_000),
    });
    let cut = shorten(&structured(value), 2_000, Some(&promised));
    let left = cut.result.structured_content.expect("it can be kept");
    assert!(promised.allows(&left), "{left}");
    assert!(left["rows"].as_array().unwrap().len() >= 3);
    assert!(json_bytes(&left) <= 2_000);
}

#[test]
fn structured_content_unfit_for_the_schema_is_kept_only_as_text() {
    let promised =
        schema(json!({ "properties": { "all": { "uniqueItems": true, "minItems": 9 } } }));
    let all: Vec<_> = (0..9).map(|at| format!("{}{at}", "x".repeat(1_000))).collect();
    let result = CallToolResult::structured(json!({ "all": all }));
    let cut = shorten(&result, 3_000, Some(&promised));
    assert_eq!(cut.result.structured_content, None);
    let note = cut.omissions.note();
    assert!(note.contains("`/structuredContent` has 0 of") && note.contains("schema"), "{note}");
    let text: Value = serde_json::from_str(text_of(&cut.result.content[0])).expect("JSON");
    assert!(text["all"][0].as_str().unwrap().starts_with('x'));
    assert!(json_bytes(&cut.result) <= 3_000 && json_bytes(&cut.result) > 2_000);
}

#[test]
fn unusable_schema_is_ignored() {
    let broken = schema(json!({ "type": "nonsense" }));
    let cut = shorten(&structured(json!({ "a": "x".repeat(9_000) })), 500, Some(&broken));
    assert!(cut.result.structured_content.is_some());
}

#[test]
fn long_reference_chains_need_no_deep_stack() {
    let link = |at: usize| {
        let next = json!({ "$ref": format!("#/$defs/a{}", at + 1) });
        (format!("a{at}"), json!({ "properties": { "x": next } }))
    };
    let last = ("a4000".to_owned(), json!({ "minLength": 7 }));
    let links: Map<_, _> = (0..4_000).map(link).chain([last]).collect();
    let promised = json!({ "$ref": "#/$defs/a0", "$defs": links });
    let look = move || {
        let forms = Forms::of(&promised);
        // The forms contain the whole path.
        let end = (0..4_000).fold(forms.root(), |form, _| forms.member(form, "x"));
        forms.get(end).min_length
    };
    let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(look).unwrap();
    assert_eq!(thread.join().unwrap(), 7);
}

// === Properties ===

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,12}",
        "\\PC{0,20}",
        "[\"\\\\\n\u{1}x]{0,20}",
        (1..3_000_usize).prop_map(|bytes| "long ".repeat(bytes / 5)),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((any_text(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_container() -> impl Strategy<Value = Value> {
    any_value().prop_map(|value| match value {
        value @ (Value::Array(_) | Value::Object(_)) => value,
        value => json!([value]),
    })
}

fn any_block() -> impl Strategy<Value = ContentBlock> {
    prop_oneof![
        any_text().prop_map(ContentBlock::text),
        any_text().prop_map(|text| of_branch("a", ContentBlock::text(text))),
        (0..3_000_usize).prop_map(image),
        any_text().prop_map(|text| ContentBlock::resource(ResourceContents::text(text, "x:y"))),
    ]
}

prop_compose! {
    fn any_result()(
        value in prop::option::of(any_value()),
        mut content in prop::collection::vec(any_block(), 0..8),
        repeats in any::<bool>(),
        is_error in any::<Option<bool>>(),
        meta in prop::option::of(prop::collection::vec((any_text(), any_value()), 0..3)),
    ) -> CallToolResult {
        content.extend(value.iter().filter(|_| repeats).map(|it| ContentBlock::text(it.to_string())));
        let mut result = CallToolResult::success(content);
        result.structured_content = value;
        result.is_error = is_error;
        result.meta = meta.map(|meta| MetaObject(meta.into_iter().collect()));
        result
    }
}

/// Returns a schema, and a value that matches it.
fn any_promise() -> impl Strategy<Value = (Value, Value)> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| (json!({ "type": "integer" }), number.into())),
        any_text().prop_map(|text| (json!({ "type": "string" }), text.into())),
        any_text().prop_map(|text| (json!({ "enum": [text, null] }), text.into())),
        any_text().prop_map(|text| (json!({ "const": text }), text.into())),
        any_text().prop_map(|text| {
            let min = text.chars().count() / 2;
            (json!({ "type": "string", "minLength": min }), text.into())
        }),
        (1..500_usize).prop_map(|bytes| {
            (json!({ "type": "string", "pattern": "^(ab)+$" }), "ab".repeat(bytes).into())
        }),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            (inner.clone(), 1..6_usize, 0..6_usize).prop_map(|((schema, value), count, min)| {
                let schema =
                    json!({ "type": "array", "items": schema, "minItems": min.min(count) });
                (schema, Value::from(vec![value; count]))
            }),
            prop::collection::vec(("[a-e]{1,3}", inner, any::<bool>()), 0..6).prop_map(|members| {
                let (mut properties, mut value) = (Map::new(), Map::new());
                let mut required = Vec::new();
                for (name, (schema, member), is_required) in members {
                    if is_required && !required.contains(&name) {
                        required.push(name.clone());
                    }
                    properties.insert(name.clone(), schema);
                    value.insert(name, member);
                }
                let schema = json!({
                    "type": "object", "properties": properties, "required": required,
                    "additionalProperties": false,
                });
                (schema, value.into())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn shortened_result_is_within_its_limit_and_part_of_the_whole(
        result in any_result(),
        limit in 0..8_000_usize,
    ) {
        let cut = shorten(&result, limit, None).result;
        prop_assert!(json_bytes(&cut) <= limit.max(ENVELOPE), "{} of {limit}", json_bytes(&cut));
        prop_assert_eq!(cut.is_error, result.is_error);
        if let (Some(left), Some(whole)) = (&cut.structured_content, &result.structured_content) {
            prop_assert!(is_left_of(left, whole), "{left} of {whole}");
        }
        let mut originals = result.content.iter();
        for block in &cut.content {
            // The kept blocks are in their original order.
            let is_of = |whole: &&ContentBlock| match block {
                image @ ContentBlock::Image(_) => image == *whole,
                ContentBlock::Text(text) if text.text.starts_with("[left out: image") => {
                    matches!(whole, ContentBlock::Image(_))
                }
                ContentBlock::Text(_) => matches!(whole, ContentBlock::Text(_)),
                _ => matches!(whole, ContentBlock::Resource(_)),
            };
            prop_assert!(originals.any(|whole| is_of(&whole)), "{block:?}");
        }
    }

    #[test]
    fn result_within_the_limit_is_unchanged(result in any_result()) {
        let limit = json_bytes(&result) + 16;
        let cut = shorten(&result, limit, None);
        prop_assert_eq!(cut.result, result);
    }

    #[test]
    fn structured_content_fits_its_schema_or_is_dropped(
        (promised, value) in any_promise(),
        limit in 0..4_000_usize,
    ) {
        let promised = schema(promised);
        prop_assume!(promised.allows(&value));
        let cut = shorten(&CallToolResult::structured(value), limit, Some(&promised)).result;
        prop_assert!(json_bytes(&cut) <= limit.max(ENVELOPE));
        let fits = cut.structured_content.as_ref().is_none_or(|left| promised.allows(left));
        prop_assert!(fits, "{:?}", cut.structured_content);
    }

    #[test]
    fn parts_get_equal_shares(
        bytes in prop::collection::vec(1..20_000_usize, 2..8),
        limit in 1_000..20_000_usize,
    ) {
        let members: Map<_, _> =
            bytes.iter().enumerate().map(|(at, bytes)| (at.to_string(), "x".repeat(*bytes).into())).collect();
        let left = left(members.into(), limit);
        let kept: Vec<_> = bytes
            .iter()
            .enumerate()
            .map(|(at, whole)| {
                let left = left[at.to_string()].as_str().unwrap();
                (left.len() == *whole && !left.ends_with(MARK), left.len())
            })
            .collect();
        let most = kept.iter().map(|(_, bytes)| *bytes).max().unwrap();
        for (is_whole, bytes) in kept {
            prop_assert!(is_whole || bytes + 8 >= most, "{bytes} while another has {most}");
        }
    }
}
