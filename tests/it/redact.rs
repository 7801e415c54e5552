//! The parts of results that are redacted.

use mcp_composite::{
    composite::{CompositeLayer, CompositeTool},
    message::{Refusal, Reply, Request},
    pattern::Selection,
    redact::{RedactLayer, Redaction},
    stack::StackLayer,
    testing,
};
use proptest::prelude::*;
use rmcp::model::*;
use serde_json::{Map, Value, json};
use tower::{Layer, ServiceExt};

use crate::scripted::{Answer, Server, error};

const MARK: &str = "[redacted]";

fn layer(redaction: Redaction) -> RedactLayer {
    RedactLayer::new().redaction(redaction)
}

fn without(pointers: &[&str]) -> Redaction {
    Redaction::new(Selection::default(), pointers).unwrap()
}

fn only(pointers: &[&str]) -> Redaction {
    Redaction::only(Selection::default(), pointers).unwrap()
}

/// Returns the result of a tool behind a redaction.
async fn redacted(redaction: Redaction, answer: impl Into<Answer>) -> CallToolResult {
    let service = layer(redaction).layer(Server::new().tool("tool", answer));
    testing::call(&service, "tool", Value::Null).await
}

async fn value(redaction: Redaction, content: Value) -> Value {
    redacted(redaction, Answer::structured(content)).await.structured_content.unwrap()
}

fn text(block: &ContentBlock) -> &str {
    &block.as_text().expect("a text").text
}

fn texts(texts: &[&str]) -> CallToolResult {
    CallToolResult::success(texts.iter().map(|text| ContentBlock::text(*text)).collect())
}

#[tokio::test]
async fn selected_fields_are_redacted() {
    let content = json!({
        "user": { "name": "Ada", "email": "a@b.c", "tags": ["x", "y"] },
        "rows": [{ "ssn": 1, "ok": true }, { "ssn": { "deep": 2 } }, 3],
        "a/b": { "~": 4 },
        "0": "zero",
    });
    let cases: [(&[&str], &str, Value); 11] = [
        (&["/user/email"], "/user/email", json!(MARK)),
        (&["/user/tags/1"], "/user/tags", json!(["x", MARK])),
        (&["/rows/*/ssn"], "/rows", json!([{ "ssn": MARK, "ok": true }, { "ssn": MARK }, 3])),
        (&["/rows/0"], "/rows/0", json!(MARK)),
        (&["/*/name"], "/user/name", json!(MARK)),
        (&["/**/ssn"], "/rows/1", json!({ "ssn": MARK })),
        (&["/**/deep"], "/rows/1/ssn", json!({ "deep": MARK })),
        (&["/rows/**"], "/rows", json!(MARK)),
        (&["/a~1b/~0"], "/a~1b", json!({ "~": MARK })),
        (&["/0"], "/0", json!(MARK)),
        (&["/user", "/user/name"], "/user", json!(MARK)),
    ];
    for (pointers, place, expected) in cases {
        let left = value(without(pointers), content.clone()).await;
        assert_eq!(left.pointer(place), Some(&expected), "{pointers:?}");
    }
    assert_eq!(value(without(&[""]), content.clone()).await, json!({}));
    assert_eq!(value(without(&[""]), json!([1])).await, MARK);
    assert_eq!(value(without(&["/none", "/user/name/x"]), content.clone()).await, content);
}

#[tokio::test]
async fn only_selected_fields_are_kept() {
    let content = json!({
        "user": { "name": "Ada", "email": "a@b.c" },
        "rows": [{ "id": 1, "x": 9 }, { "id": 2 }, "loose"],
        "total": 7,
    });
    let cases: [(&[&str], Value); 7] = [
        (&["/user/name"], json!({ "user": { "name": "Ada" } })),
        (&["/rows/*/id"], json!({ "rows": [{ "id": 1 }, { "id": 2 }, MARK] })),
        (&["/rows/1"], json!({ "rows": [MARK, { "id": 2 }, MARK] })),
        (&["/**/id"], json!({ "rows": [{ "id": 1 }, { "id": 2 }, MARK] })),
        (&["/total/x", "/user"], json!({ "user": content["user"] })),
        (&["/none"], json!({})),
        (&[], json!({})),
    ];
    for (pointers, expected) in cases {
        assert_eq!(value(only(pointers), content.clone()).await, expected, "{pointers:?}");
    }
    assert_eq!(value(only(&[""]), content.clone()).await, content);
}

#[tokio::test]
async fn scalar_in_place_of_a_container_is_not_kept() {
    for scalar in [json!("s3cret"), json!(5), json!(true), json!(null)] {
        assert_eq!(value(only(&["/a/b"]), scalar.clone()).await, MARK);
        assert_eq!(value(only(&["/a/b"]), json!({ "a": scalar })).await, json!({}));
        assert_eq!(value(only(&["/*/b"]), json!([scalar])).await, MARK);
    }
}

#[tokio::test]
async fn object_keys_disappear_with_their_redacted_parent() {
    let content = json!({ "by_ssn": { "078-05-1120": "Ada" } });
    assert_eq!(value(without(&["/by_ssn"]), content.clone()).await, json!({ "by_ssn": MARK }));
    assert_eq!(value(only(&["/other"]), content).await, json!({}));
}

#[tokio::test]
async fn text_copy_of_structured_content_is_regenerated() {
    let content = json!({ "ssn": "078", "name": "Ada" });
    let mut answer = texts(&[&content.to_string(), &format!("{content:#}")]);
    answer.structured_content = Some(content);
    let result = redacted(without(&["/ssn"]), answer).await;
    let expected = result.structured_content.unwrap().to_string();
    assert_eq!(expected, json!({ "ssn": MARK, "name": "Ada" }).to_string());
    assert_eq!(result.content.iter().map(text).collect::<Vec<_>>(), [&*expected, &*expected]);
}

#[tokio::test]
async fn content_that_may_repeat_a_redacted_value_is_replaced() {
    let link = ContentBlock::resource_link(Resource::new("x:078", "078"));
    let resource = ContentBlock::resource(ResourceContents::text("078", "x:y"));
    let mut answer = texts(&["the ssn is 078", "078", "[\"078\"]", "{ \"ssn\": \"078\""]);
    answer.content.extend([ContentBlock::image("MDc4", "image/png"), link, resource]);
    answer.structured_content = Some(json!({ "ssn": "078" }));
    answer.meta = Some(MetaObject(Map::from_iter([("x".to_owned(), json!("078"))])));
    let result = redacted(without(&["/ssn"]), answer).await;
    assert!(result.content.iter().all(|block| text(block) == MARK), "{result:?}");
    assert_eq!(result.content.len(), 7);
    assert_eq!(result.meta, None);
}

#[tokio::test]
async fn json_text_is_redacted_without_structured_content() {
    let answer = texts(&[r#"{"ssn":"078","n":1,"ssn":"079"}"#, "no JSON: 078", r#"[{"ssn":1}]"#]);
    let result = redacted(without(&["/ssn", "/*/ssn"]), answer).await;
    let texts: Vec<_> = result.content.iter().map(text).collect();
    assert_eq!(texts, [r#"{"n":1,"ssn":"[redacted]"}"#, MARK, r#"[{"ssn":"[redacted]"}]"#]);
}

#[tokio::test]
async fn keep_texts_option_forwards_texts_and_images() {
    let image = ContentBlock::image("MDc4", "image/png");
    let meta = MetaObject(Map::from_iter([("x".to_owned(), json!(1))]));
    let mut answer = texts(&["all is well", r#"{"ssn":1}"#]);
    answer.content.push(image.clone());
    answer.meta = Some(meta.clone());
    let result = redacted(without(&["/ssn"]).keep_texts(), answer.clone()).await;
    assert_eq!(text(&result.content[0]), "all is well");
    assert_eq!(text(&result.content[1]), r#"{"ssn":"[redacted]"}"#);
    assert_eq!((&result.content[2], result.meta), (&image, Some(meta)));

    let result = redacted(only(&["/n"]).keep_texts(), answer).await;
    assert_eq!((text(&result.content[1]), result.meta), ("{}", None));
}

#[tokio::test]
async fn metadata_is_removed_if_only_selected_fields_are_kept() {
    let meta = || Some(MetaObject(Map::from_iter([("x".to_owned(), json!("s3cret"))])));
    let mut word = TextContent::new("all is well");
    let mut image = ImageContent::new("MDc4", "image/png");
    let mut audio = AudioContent::new("MDc4", "audio/wav");
    let mut link = Resource::new("x:y", "y");
    (word.meta, image.meta, audio.meta, link.meta) = (meta(), meta(), meta(), meta());
    let resource = |mut contents: ResourceContents| {
        let (ResourceContents::TextResourceContents { meta: inner, .. }
        | ResourceContents::BlobResourceContents { meta: inner, .. }) = &mut contents
        else {
            panic!("another resource")
        };
        *inner = meta();
        let mut resource = EmbeddedResource::new(contents);
        resource.meta = meta();
        ContentBlock::Resource(resource)
    };
    let answer = CallToolResult::success(vec![
        ContentBlock::Text(word),
        ContentBlock::Image(image),
        ContentBlock::Audio(audio),
        ContentBlock::ResourceLink(link),
        resource(ResourceContents::text("all", "x:y")),
        resource(ResourceContents::blob("MDc4", "x:y")),
    ]);
    let to_json = |result: CallToolResult| serde_json::to_string(&result).unwrap();
    let kept = to_json(redacted(without(&["/ssn"]).keep_texts(), answer.clone()).await);
    assert_eq!(kept.matches("s3cret").count(), 8, "{kept}");

    let result = redacted(only(&["/n"]).keep_texts(), answer).await;
    assert!(result.content.iter().all(|block| block.as_text().is_none_or(|it| it.text != MARK)));
    let left = to_json(result);
    assert!(!left.contains("s3cret") && left.contains("image/png"), "{left}");
}

#[tokio::test]
async fn annotations_are_removed_with_the_metadata() {
    let annotations = || {
        serde_json::from_value::<Annotations>(json!({
            "audience": ["user"],
            "priority": 0.25,
            "lastModified": "2026-01-02T03:04:05Z",
        }))
        .ok()
    };
    let mut word = TextContent::new("all is well");
    let mut json = TextContent::new(r#"{"ssn":1}"#);
    let mut image = ImageContent::new("MDc4", "image/png");
    let mut audio = AudioContent::new("MDc4", "audio/wav");
    let mut link = Resource::new("x:y", "y");
    let mut resource = EmbeddedResource::new(ResourceContents::text("all", "x:y"));
    word.annotations = annotations();
    json.annotations = annotations();
    image.annotations = annotations();
    audio.annotations = annotations();
    link.annotations = annotations();
    resource.annotations = annotations();
    let answer = CallToolResult::success(vec![
        ContentBlock::Text(word),
        ContentBlock::Text(json),
        ContentBlock::Image(image),
        ContentBlock::Audio(audio),
        ContentBlock::ResourceLink(link),
        ContentBlock::Resource(resource),
    ]);
    for (redaction, kept) in [
        (without(&["/ssn"]), 0),
        (only(&["/n"]).keep_texts(), 0),
        (without(&["/ssn"]).keep_texts(), 6),
    ] {
        let left = redacted(redaction, answer.clone()).await;
        let left = serde_json::to_string(&left).unwrap();
        for annotation in ["audience", "priority", "lastModified"] {
            assert_eq!(left.matches(annotation).count(), kept, "{annotation} in {left}");
        }
    }
}

#[tokio::test]
async fn text_readable_as_json_by_other_parsers_is_redacted() {
    let deep = format!("{}{{\"ssn\":78}}{}", "[".repeat(200), "]".repeat(200));
    let unreadable = [
        r#" {"ssn":"078","n":1e999}"#,
        r#"{"ssn":"078","x":"\ud800"}"#,
        "{\"ssn\":\"078\"}\n{\"ssn\":\"079\"}",
        "\u{feff}{\"ssn\":\"078\"}",
        &deep,
    ];
    let result = redacted(without(&["/**/ssn"]).keep_texts(), texts(&unreadable)).await;
    assert!(result.content.iter().all(|block| text(block) == MARK), "{result:?}");

    for message in [r#"[{"ssn":"078"}"#, r#"{"ssn":"078"}"#] {
        let server = Server::new().tool("tool", error(-32_050, message, Value::Null));
        let service = layer(without(&["/ssn"]).keep_texts()).layer(server);
        let error = testing::refused(&service, "tool", Value::Null).await;
        assert_eq!(error.message, "the tool failed");
    }
}

#[tokio::test]
async fn tool_failure_is_redacted_like_a_success() {
    let mut answer = CallToolResult::error(vec![ContentBlock::text("no such ssn: 078")]);
    answer.structured_content = Some(json!({ "ssn": "078" }));
    let result = redacted(without(&["/ssn"]), answer).await;
    assert_eq!(result.is_error, Some(true));
    assert_eq!(
        (text(&result.content[0]), &result.structured_content.unwrap()["ssn"]),
        (MARK, &json!(MARK))
    );
}

#[tokio::test]
async fn redacted_error_keeps_only_its_code() {
    let answers = || Server::new().tool("tool", error(-32_050, "no ssn 078", json!("078")));
    let service = layer(without(&["/ssn"])).layer(answers());
    let refusal = testing::refused(&service, "tool", Value::Null).await;
    assert_eq!(refusal, ErrorData::new(ErrorCode(-32_050), "the tool failed", None));

    let service = layer(without(&["/ssn"]).keep_texts()).layer(answers());
    let refusal = testing::refused(&service, "tool", Value::Null).await;
    assert_eq!(refusal, ErrorData::new(ErrorCode(-32_050), "no ssn 078", None));
}

#[tokio::test]
async fn rejection_of_an_inner_layer_is_unchanged() {
    let refusal =
        Refusal::Unknown { kind: mcp_composite::message::ItemKind::Tool, name: "x".into() };
    let server = Server::new().tool("tool", Reply::from(refusal.clone()));
    let reply = layer(without(&[""])).layer(server).oneshot(Request::call_tool("tool")).await;
    assert_eq!(reply.unwrap().refusal(), Some(&refusal));
}

#[tokio::test]
async fn reply_other_than_a_tool_result_becomes_an_error() {
    let custom = || Reply::from(ServerResult::CustomResult(CustomResult::new(json!({ "ssn": 1 }))));
    let asks = || Answer::asks("q", "is 078 yours?");
    for answer in [custom().into(), asks()] {
        let service = layer(without(&["/ssn"])).layer(Server::new().tool("tool", answer));
        let error = testing::refused(&service, "tool", Value::Null).await;
        assert_eq!(error.message, "the result of the tool cannot be shown");
    }
    let harmless = layer(without(&["/ssn"]).keep_texts());
    let reply = harmless.layer(Server::new().tool("tool", asks()));
    let reply = reply.oneshot(Request::call_tool("tool")).await.unwrap();
    assert!(matches!(reply.result(), Some(ServerResult::InputRequiredResult(_))));
}

#[tokio::test]
async fn other_tools_and_requests_are_unchanged() {
    let selected = Selection::default().allow(["people_*"]).unwrap();
    let redaction = Redaction::new(selected, ["/ssn"]).unwrap();
    let server = Server::new()
        .gives("people_list", json!({ "ssn": 1 }))
        .gives("numbers", json!({ "ssn": 1 }));
    let service = layer(redaction).layer(server.clone());
    let ssn = async |tool: &str| {
        testing::call(&service, tool, Value::Null).await.structured_content.unwrap()["ssn"].clone()
    };
    assert_eq!((ssn("people_list").await, ssn("numbers").await), (json!(MARK), json!(1)));
    assert_eq!(testing::listed(&service).await, testing::listed(&server).await);
}

#[tokio::test]
async fn all_redactions_of_a_tool_are_applied_to_its_result() {
    let service = RedactLayer::new()
        .redaction(only(&["/a", "/b"]).keep_texts())
        .redaction(without(&["/b"]))
        .layer(Server::new().gives("tool", json!({ "a": 1, "b": 2, "c": 3 })));
    let result = testing::call(&service, "tool", Value::Null).await;
    assert_eq!(result.structured_content, Some(json!({ "a": 1, "b": MARK })));
}

#[tokio::test]
async fn composite_never_receives_redacted_values() {
    let server = Server::new().gives("people", json!({ "ssn": "078-05-1120", "name": "Ada" }));
    let all = CompositeTool::fan_out("all", "All", ["people"]);
    let service = StackLayer::new()
        .composite(CompositeLayer::new([all]).unwrap())
        .redact(layer(without(&["/ssn"])))
        .layer(server);
    let result = testing::call(&service, "all", json!({})).await;
    let content = result.structured_content.as_ref().unwrap();
    assert_eq!(content["branches"]["people"]["output"], json!({ "ssn": MARK, "name": "Ada" }));
    assert!(!serde_json::to_string(&result).unwrap().contains("078"));
}

#[test]
fn invalid_pointer_is_reported_with_its_position() {
    let cases = [
        ("user", 0, "expected `/`"),
        ("$.user", 0, "expected `/`"),
        ("/a/~2", 3, "expected `0` or `1` after `~`"),
        ("/a~", 2, "expected `0` or `1` after `~`"),
    ];
    for (pointer, position, expected) in cases {
        let error = Redaction::new(Selection::default(), ["/ok", pointer]).unwrap_err();
        assert_eq!((error.pointer(), error.position()), (pointer, position));
        let message = format!("`{pointer}` is not a JSON Pointer: {expected} at byte {position}");
        assert_eq!(error.to_string(), message);
        assert_eq!(Redaction::only(Selection::default(), [pointer]).unwrap_err(), error);
    }
}

// === Properties ===

/// A value whose scalars are all different, so that each can be identified.
fn any_value() -> impl Strategy<Value = Value> {
    let shape = Just(Value::Null).prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Value::from),
            prop::collection::vec(("[a-c]", inner), 1..4)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    });
    shape.prop_map(|mut value| {
        number(&mut value, &mut 1_000);
        value
    })
}

fn number(value: &mut Value, next: &mut u32) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(|it| number(it, next)),
        Value::Object(members) => members.values_mut().for_each(|it| number(it, next)),
        scalar => {
            *next += 1;
            *scalar =
                if next.is_multiple_of(2) { format!("s{next}").into() } else { (*next).into() };
        }
    }
}

fn any_pointer() -> impl Strategy<Value = String> {
    let step = prop_oneof!["[a-c]", "[0-3]", Just("*".to_owned()), Just("**".to_owned())];
    prop::collection::vec(step, 0..4)
        .prop_map(|steps| steps.iter().map(|step| format!("/{step}")).collect())
}

/// Returns the scalars of a value that a pointer points to or into, found by trying each path.
fn pointed_to(value: &Value, pointer: &str) -> Vec<String> {
    fn walk(value: &Value, path: &mut Vec<String>, steps: &[&str], found: &mut Vec<String>) {
        let is_within = (0..=path.len()).any(|end| matches(&path[..end], steps));
        match value {
            Value::Array(elements) => {
                for (place, element) in elements.iter().enumerate() {
                    path.push(place.to_string());
                    walk(element, path, steps, found);
                    path.pop();
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    path.push(name.clone());
                    walk(member, path, steps, found);
                    path.pop();
                }
            }
            scalar if is_within => found.push(scalar.to_string().trim_matches('"').to_owned()),
            _ => (),
        }
    }
    fn matches(path: &[String], steps: &[&str]) -> bool {
        match (steps, path) {
            (["**", rest @ ..], _) => {
                matches(path, rest) || !path.is_empty() && matches(&path[1..], steps)
            }
            ([], []) => true,
            ([step, rest @ ..], [name, further @ ..]) => {
                (*step == "*" || step == name) && matches(further, rest)
            }
            _ => false,
        }
    }
    let steps: Vec<_> = pointer.split('/').skip(1).collect();
    let mut found = Vec::new();
    walk(value, &mut Vec::new(), &steps, &mut found);
    found
}

/// Returns the scalars of a value.
fn scalars(value: &Value) -> Vec<String> {
    pointed_to(value, "")
}

proptest! {
    #[test]
    fn redacted_values_appear_nowhere_in_the_reply(
        value in any_value(),
        pointers in prop::collection::vec(any_pointer(), 1..4),
        is_error in any::<bool>(),
        is_structured in any::<bool>(),
    ) {
        let all: Vec<_> = pointers.iter().flat_map(|pointer| pointed_to(&value, pointer)).collect();
        let redaction = Redaction::new(Selection::default(), &pointers).unwrap();
        let mut answer = texts(&[&value.to_string(), &format!("see {}", all.join(", "))]);
        // Without structured content, a JSON text replaces it; scalars are not recognized as JSON.
        answer.structured_content = Some(value.clone()).filter(|_| is_structured);
        answer.is_error = Some(is_error);
        let result = redacted(redaction, answer).now();
        let reply = serde_json::to_string(&result).unwrap();
        for scalar in &all {
            prop_assert!(!reply.contains(&**scalar), "{scalar} is in {reply}");
        }
        // Other values are unchanged.
        if is_structured {
            let mut expected = scalars(&value);
            expected.retain(|scalar| !all.contains(scalar));
            let mut left = scalars(&result.structured_content.unwrap());
            left.retain(|scalar| scalar != MARK);
            prop_assert_eq!(left, expected);
        }
    }

    #[test]
    fn unselected_values_are_removed(
        value in any_value(),
        pointers in prop::collection::vec(any_pointer(), 0..4),
    ) {
        let all: Vec<_> = pointers.iter().flat_map(|pointer| pointed_to(&value, pointer)).collect();
        let redaction = Redaction::only(Selection::default(), &pointers).unwrap();
        let result = redacted(redaction, Answer::structured(value.clone())).now();
        let mut expected = scalars(&value);
        expected.retain(|scalar| all.contains(scalar));
        let mut left = scalars(&result.structured_content.unwrap());
        left.retain(|scalar| scalar != MARK);
        prop_assert_eq!(left, expected);
    }
}

/// Returns the output of a future that waits only for its own turns.
trait Now: Future + Sized {
    fn now(self) -> Self::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(self)
    }
}

impl<F: Future> Now for F {}
