//! The guarantees of the test kit.

use std::{
    future::{Future, ready},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use futures::FutureExt;
use mcp_composite::{
    composite::{CompositeLayer, CompositeTool},
    message::{Reply, Request},
    testing::{self, Answer, Server, Status},
};
use rmcp::model::{
    CallToolResult, ContentBlock, ErrorCode, ErrorData, JsonObject, PingRequest, Tool,
    ToolAnnotations,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, timeout::Timeout};

use crate::{scripted::object, support::soon};

const SECOND: Duration = Duration::from_secs(1);

async fn call(server: &Server, tool: &str) -> CallToolResult {
    testing::call(server, tool, Value::Null).await
}

fn text_of(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

/// Returns the message of a panic.
async fn panic_of(work: impl Future<Output: Send>) -> String {
    let panic = AssertUnwindSafe(work).catch_unwind().await.err().expect("a panic");
    *panic.downcast::<String>().expect("a text")
}

// === Answers ===

#[tokio::test(start_paused = true)]
async fn each_kind_of_result_is_returned_as_scripted() {
    let blocks = vec![ContentBlock::text("see"), ContentBlock::image("aGk=", "image/png")];
    let several = CallToolResult::success(blocks);
    let mut both = CallToolResult::structured(json!({ "n": 1 }));
    both.content = vec![ContentBlock::text("one")];
    let echoed = CallToolResult::structured(json!({ "q": "x" }));
    let cases: [(Answer, CallToolResult); 7] = [
        (Answer::text("hello"), CallToolResult::success(vec![ContentBlock::text("hello")])),
        (Answer::failure("no"), CallToolResult::error(vec![ContentBlock::text("no")])),
        (Answer::structured(json!([1])), CallToolResult::structured(json!([1]))),
        (Answer::echo(), echoed),
        (several.clone().into(), several),
        (both.clone().into(), both.clone()),
        (Answer::from_fn(move |_| ready(both.clone())), {
            let mut both = CallToolResult::structured(json!({ "n": 1 }));
            both.content = vec![ContentBlock::text("one")];
            both
        }),
    ];
    for (answer, expected) in cases {
        let name = format!("{answer:?}");
        let server = Server::new().tool("t", answer);
        assert_eq!(testing::call(&server, "t", json!({ "q": "x" })).await, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn tool_shorthands_return_the_matching_answers() {
    let server = Server::new()
        .says("says", "hello")
        .gives("gives", json!({ "n": 1 }))
        .fails("fails", "no")
        .echoes("echoes");
    assert_eq!(text_of(&call(&server, "says").await), "hello");
    assert_eq!(call(&server, "gives").await.structured_content, Some(json!({ "n": 1 })));
    assert_eq!(call(&server, "fails").await.is_error, Some(true));
    assert_eq!(call(&server, "echoes").await.structured_content, Some(json!({})));
}

#[tokio::test(start_paused = true)]
async fn errors_have_their_code_message_and_data() {
    let full = ErrorData::new(ErrorCode(7), "full", Some(json!({ "free": 0 })));
    let server =
        Server::new().tool("plain", Answer::error(-32042, "odd")).tool("full", full.clone());

    let plain = testing::refused(&server, "plain", json!({})).await;
    assert_eq!(plain, ErrorData::new(ErrorCode(-32042), "odd", None));
    assert_eq!(testing::refused(&server, "full", json!({})).await, full);
    let unknown = testing::refused(&server, "missing", json!({})).await;
    assert_eq!(unknown.message, "unknown tool `missing`");
}

#[tokio::test(start_paused = true)]
async fn unavailable_answer_returns_a_service_error() {
    let server = Server::new().tool("t", Answer::unavailable("connection refused"));
    let error = server.clone().oneshot(Request::call_tool("t")).await.unwrap_err();
    assert_eq!(error.to_string(), "connection refused");
    assert_eq!(server.calls()[0].status(), Status::Answered);
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_tool_is_recorded_and_reaches_the_caller() {
    let server = Server::new().tool("t", Answer::panic("at the disco"));
    assert_eq!(panic_of(call(&server, "t")).await, "at the disco");
    assert_eq!((server.calls()[0].status(), server.running()), (Status::Panicked, 0));
}

#[tokio::test(start_paused = true)]
async fn answer_arrives_after_its_delay() {
    let server = Server::new().tool("t", Answer::text("late").after(90 * SECOND));
    let start = Instant::now();
    assert_eq!(text_of(&call(&server, "t").await), "late");
    assert_eq!(start.elapsed(), 90 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn answer_sequence_is_used_in_order_and_its_last_repeats() {
    let sequence = Answer::failure("no route")
        .times(2)
        .then(Answer::text("slowly").after(SECOND))
        .then(Answer::text("there"));
    let server = Server::new().tool("t", sequence);
    let start = Instant::now();
    let mut given = Vec::new();
    for _ in 0..5 {
        let result = call(&server, "t").await;
        given.push((text_of(&result).to_owned(), start.elapsed().as_secs()));
    }
    let expected = [("no route", 0), ("no route", 0), ("slowly", 1), ("there", 1), ("there", 1)];
    assert_eq!(given, expected.map(|(text, at)| (text.to_owned(), at)));
}

#[tokio::test(start_paused = true)]
async fn answer_sequence_can_be_repeated_and_delayed() {
    let two = Answer::text("a").then(Answer::text("b"));
    let server = Server::new().tool("t", two.times(2).then(Answer::text("c")).after(SECOND));
    let start = Instant::now();
    let mut given = String::new();
    for _ in 0..5 {
        given += text_of(&call(&server, "t").await);
    }
    assert_eq!((&*given, start.elapsed()), ("ababc", 5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn answer_sequence_follows_the_arrival_order_of_calls() {
    let server = Server::new().tool("t", Answer::text("1").after(SECOND).then(Answer::text("2")));
    let (first, second) = tokio::join!(call(&server, "t"), call(&server, "t"));
    assert_eq!((text_of(&first), text_of(&second)), ("1", "2"));
}

#[tokio::test(start_paused = true)]
async fn closure_returns_any_answer_based_on_the_arguments() {
    let answer = Answer::from_fn(|call| async move {
        match call.arguments()["n"].as_i64() {
            Some(0) => Answer::unavailable("zero"),
            Some(n) => Answer::text((n * 2).to_string()).after(SECOND),
            None => Answer::error(-32602, format!("`{}` needs `n`", call.tool())),
        }
    });
    let server = Server::new().tool("double", answer);

    let start = Instant::now();
    let result = testing::call(&server, "double", json!({ "n": 21 })).await;
    assert_eq!((text_of(&result), start.elapsed()), ("42", SECOND));
    let error = testing::refused(&server, "double", Value::Null).await;
    assert_eq!(error.message, "`double` needs `n`");
    let zero = testing::request("double", json!({ "n": 0 }));
    assert_eq!(server.oneshot(zero).await.unwrap_err().to_string(), "zero");
}

#[test]
fn zero_answers_and_zero_page_size_panic() {
    assert!(catch_unwind(|| Answer::text("x").times(0)).is_err());
    assert!(catch_unwind(|| Server::new().page_size(0)).is_err());
}

// === Lists ===

#[tokio::test(start_paused = true)]
async fn tool_is_listed_as_described_or_with_an_open_schema() {
    let schema = object(json!({ "type": "object", "required": ["path"] }));
    let wipe = Tool::new("wipe", "Wipes", schema.clone())
        .with_title("Wipe")
        .with_raw_output_schema(schema.into())
        .with_annotations(ToolAnnotations::new().destructive(true));
    let server = Server::new().says("plain", "").tool_as(wipe.clone(), Answer::text(""));

    let [plain, described] = &testing::listed(&server).await[..] else { panic!("two tools") };
    assert_eq!(*described, wipe);
    assert_eq!(*plain.input_schema, JsonObject::from_iter([("type".to_owned(), json!("object"))]));
    assert_eq!((&plain.output_schema, &plain.annotations), (&None, &None));
}

#[tokio::test(start_paused = true)]
async fn all_pages_are_listed_and_counted() {
    let server = ["a", "b", "c", "d", "e"].iter().fold(Server::new(), |s, t| s.says(t, "x"));
    assert_eq!((testing::listed(&server).await.len(), server.lists()), (5, 1));
    let server = server.page_size(2);
    assert_eq!((testing::listed(&server).await.len(), server.lists()), (5, 4));

    let odd = Request::list_tools_from(Some("odd".to_owned()));
    let reply = server.oneshot(odd).await.unwrap();
    assert_eq!(reply.error().unwrap().code, ErrorCode::INVALID_PARAMS);
}

#[tokio::test(start_paused = true)]
async fn tools_can_be_added_and_removed_at_any_time() {
    let names = async |server: &Server| -> Vec<String> {
        testing::listed(server).await.into_iter().map(|tool| tool.name.into()).collect()
    };
    let server = Server::new().says("a", "old").says("b", "b");
    let other = server.clone();

    other.add(Tool::new("a", "New", JsonObject::new()), Answer::text("new"));
    assert_eq!(names(&server).await, ["b", "a"]);
    assert_eq!(text_of(&call(&server, "a").await), "new");

    other.unlist("a");
    assert_eq!(names(&server).await, ["b"]);
    assert_eq!(text_of(&call(&server, "a").await), "new");

    other.remove("a");
    let error = testing::refused(&server, "a", json!({})).await;
    assert_eq!(error.message, "unknown tool `a`");
}

#[tokio::test(start_paused = true)]
async fn broken_lists_fail_until_mended_and_calls_still_work() {
    let server = Server::new().says("a", "1");
    server.break_list("connection refused");
    let error = server.clone().oneshot(Request::list_tools()).await.unwrap_err();
    assert_eq!(error.to_string(), "connection refused");
    assert_eq!(text_of(&call(&server, "a").await), "1");

    server.mend_list();
    assert_eq!(testing::listed(&server).await.len(), 1);
    assert_eq!(server.lists(), 2, "those that fail count as well");
}

// === Recorded calls ===

#[tokio::test(start_paused = true)]
async fn calls_are_recorded_in_order_with_arguments_and_times() {
    let server = Server::new().tool("slow", Answer::echo().after(SECOND)).says("fast", "x");
    testing::call(&server, "slow", json!({ "q": 1 })).await;
    testing::call(&server, "slow", Value::Null).await;
    testing::call(&server, "fast", json!({})).await;
    testing::refused(&server, "missing", json!({})).await;

    let calls = [
        ("slow", json!({ "q": 1 })),
        ("slow", Value::Null),
        ("fast", json!({})),
        ("missing", json!({})),
    ];
    assert_eq!(server.calls(), calls);
    assert_eq!(server.called(), calls.map(|(tool, _)| tool));
    let times: Vec<_> = server.calls().iter().map(|call| call.at().as_secs()).collect();
    assert_eq!(times, [0, 1, 2, 2]);
    assert_eq!(server.starts("slow"), [Duration::ZERO, SECOND]);
    assert_eq!(server.arguments("slow"), Some(Value::Null), "those of the last");
    assert_eq!(server.arguments("never"), None);
}

#[tokio::test(start_paused = true)]
async fn call_equals_a_pair_of_its_tool_and_arguments() {
    let server = Server::new().says("a", "x");
    testing::call(&server, "a", json!({ "q": 1 })).await;
    testing::call(&server, "a", Value::Null).await;
    let [with, without] = &server.calls()[..] else { panic!("two calls") };

    assert_eq!(*with, ("a", json!({ "q": 1 })));
    assert_ne!(*with, ("b", json!({ "q": 1 })));
    assert_ne!(*with, ("a", json!({ "q": 2 })));
    assert_ne!(*with, ("a", Value::Null));
    assert_eq!(*without, ("a", Value::Null));
    assert_ne!(*without, ("a", json!({})));
    // Only the differences of the two sides of a failed assertion should be printed.
    assert_eq!(format!("{with:?}"), format!("{:?}", ("a", json!({ "q": 1 }))));
}

#[tokio::test(start_paused = true)]
async fn server_counts_running_and_concurrent_calls() {
    let late = |seconds| Answer::text("x").after(seconds * SECOND);
    let server = Server::new().tool("a", late(1)).tool("b", late(2)).tool("c", late(1));

    let calls = async {
        tokio::join!(call(&server, "a"), call(&server, "b"));
        call(&server, "c").await;
    };
    let looks = async {
        let mut counts = Vec::new();
        for _ in 0..4 {
            tokio::time::sleep(SECOND * 3 / 4).await;
            counts.push(server.running());
        }
        counts
    };
    let (_, counts) = tokio::join!(calls, looks);

    assert_eq!(counts, [2, 1, 1, 0]);
    assert_eq!(server.most_running(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_abandoned_calls_are_dropped() {
    let server = Server::new().hangs("b").hangs("a").says("c", "x");
    let service = Timeout::new(server.clone(), SECOND);
    for tool in ["b", "a"] {
        assert!(service.clone().oneshot(Request::call_tool(tool)).await.is_err());
    }
    call(&server, "c").await;
    let mut hanging = Box::pin(call(&server, "a"));
    assert!(futures::poll!(&mut hanging).is_pending());

    assert_eq!(server.dropped(), ["b", "a"]);
    let statuses: Vec<_> = server.calls().iter().map(|call| call.status()).collect();
    let expected = [Status::Dropped, Status::Dropped, Status::Answered, Status::Running];
    assert_eq!(statuses, expected);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_woken_by_arriving_and_ending_calls() {
    let server = Server::new().hangs("a");
    let waiter = async {
        server.until(|server| server.running() == 2).await;
        server.until(|server| server.dropped() == ["a"]).await;
    };
    let caller = async {
        let calls = [call(&server, "a"), call(&server, "a")].map(Box::pin);
        let [first, mut second] = calls;
        let short = tokio::time::timeout(SECOND, first);
        tokio::select! {
            _ = &mut second => unreachable!("it hangs"),
            ended = short => assert!(ended.is_err()),
        }
        second.await
    };
    tokio::select! {
        _ = caller => unreachable!("it hangs"),
        () = soon(waiter) => (),
    }
}

#[tokio::test(start_paused = true)]
async fn other_requests_are_recorded_and_return_method_not_found() {
    let server = Server::new().says("a", "x");
    call(&server, "a").await;
    let ping = PingRequest { method: Default::default(), extensions: Default::default() };
    let ping = Request::new(ping, mcp_composite::message::Context::default());
    let reply = server.clone().oneshot(ping).await.unwrap();

    assert_eq!(reply.error().unwrap().code, ErrorCode::METHOD_NOT_FOUND);
    let methods: Vec<_> = server.requests().iter().map(|it| it.method().to_owned()).collect();
    assert_eq!(methods, ["tools/call", "ping"]);
    assert_eq!(server.called(), ["a"]);
}

#[test]
fn server_without_delays_needs_no_runtime() {
    let server = Server::new().says("a", "x").page_size(1);
    let (result, tools) = futures::executor::block_on(async {
        (call(&server, "a").await, testing::listed(&server).await)
    });
    assert_eq!((text_of(&result), tools.len()), ("x", 1));
}

// === Clients ===

#[tokio::test(start_paused = true)]
async fn unexpected_reply_panics_with_the_reply_and_location() {
    let server = Server::new()
        .tool("gone", Answer::unavailable("connection refused"))
        .tool("error", ErrorData::new(ErrorCode(7), "full", Some(json!([1]))));
    let cases = [
        ("gone", "the service's error: connection refused"),
        ("error", "the JSON-RPC error 7: full, [1]"),
        (
            "missing",
            "the JSON-RPC error -32602: unknown tool `missing`; the service lists `gone`, `error`",
        ),
        (
            "errr",
            "the JSON-RPC error -32602: unknown tool `errr`; the service lists `gone`, `error`: \
             did you mean `error`?",
        ),
    ];
    for (tool, why) in cases {
        let line = line!() + 1;
        let call = testing::call(&server, tool, json!({}));
        let expected =
            format!("`{tool}`, called at {}:{line}:20, gave no result, but {why}", file!(),);
        assert_eq!(panic_of(call).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn unavailable_composite_panics_with_the_listed_tools() {
    let both = CompositeTool::fan_out("both", "Both", ["a", "z"]);
    let service = CompositeLayer::new([both]).unwrap().layer(Server::new().says("a", "1"));
    let message = panic_of(testing::call(&service, "both", json!({}))).await;
    let why = "the JSON-RPC error -32602: tool `both` is not available at the moment: a tool that \
               it calls may be missing, see the `warnings` of its layer; the service lists `a`";
    assert!(message.ends_with(why), "{message}");
}

#[tokio::test(start_paused = true)]
async fn many_listed_tools_are_counted() {
    let server = (0..25).fold(Server::new(), |server, n| server.says(&format!("tool_{n}"), "x"));
    let message = panic_of(testing::call(&server, "missing", json!({}))).await;
    assert!(message.ends_with("`tool_18`, `tool_19` and 5 more"), "{message}");
    let message = panic_of(testing::call(&Server::new(), "missing", json!({}))).await;
    assert!(message.ends_with("; the service lists no tools"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn unexpected_failure_panics_with_the_result() {
    let server = Server::new().fails("t", "no");
    let message = panic_of(testing::refused(&server, "t", json!({}))).await;
    assert!(message.contains("was not refused, but gave the result {"), "{message}");
    assert!(message.contains("\"isError\":true"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn failing_and_endless_lists_panic() {
    let server = Server::new();
    server.break_list("connection refused");
    let message = panic_of(testing::listed(&server)).await;
    assert!(message.ends_with("the service's error: connection refused"), "{message}");

    let endless = tower::service_fn(async |_: Request| {
        let next_cursor = Some("again".to_owned());
        let page = rmcp::model::ListToolsResult { next_cursor, ..Default::default() };
        Ok::<Reply, std::convert::Infallible>(page.into())
    });
    let message = panic_of(testing::listed(&endless)).await;
    assert!(message.ends_with("more than 1000 pages"), "{message}");
}

#[test]
fn non_object_arguments_panic() {
    assert!(catch_unwind(|| testing::request("t", json!([1]))).is_err());
    let without = testing::request("t", Value::Null);
    assert_eq!(without.tool_call().unwrap().arguments, None);
}

// === Files ===

#[cfg(feature = "config")]
mod files {
    use mcp_composite::config::Config;

    use super::*;

    const FILE: &str = r#"
[router]
separator = "/"

[[backends]]
name = "one"
command = "one"
timeout = "2s"

[[backends.aliases]]
from = "seek"
to = "find"

[[backends]]
name = "two"
prefix = "zwei_"
url = "https://two.example/mcp"
hide_tools = ["secret"]

[filter]
hide_tools = ["one/hidden"]

[[composite_tools]]
name = "both"
description = "Both"
tools = ["one/find", "two.find"]
"#;

    fn file(text: &str) -> Config {
        Config::from_toml_str(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn config_file_settings_apply_to_each_backend_server() {
        let one = Server::new().hangs("seek").says("hidden", "x");
        let two = Server::new().echoes("find").says("secret", "x");
        let service = testing::stack(&file(FILE), [("two", two.clone()), ("one", one.clone())]);

        let names: Vec<_> =
            testing::listed(&service).await.into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["one/find", "zwei_find", "both"]);

        let start = Instant::now();
        let result = testing::call(&service, "both", json!({ "q": "x" })).await;
        let branches = &result.structured_content.unwrap()["branches"];
        assert_eq!(branches["zwei_find"]["output"], json!({ "q": "x" }));
        assert_eq!(branches["one/find"]["status"], "timed_out", "{branches}");
        assert_eq!(start.elapsed(), 2 * SECOND);
        assert_eq!(one.calls(), [("seek", json!({ "q": "x" }))]);
        assert_eq!(two.calls(), [("find", json!({ "q": "x" }))]);

        for hidden in ["one/hidden", "zwei_secret", "one/seek"] {
            let error = testing::refused(&service, hidden, json!({})).await;
            assert_eq!(error.message, format!("unknown tool `{hidden}`"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tool_names_are_unchanged_in_priority_mode() {
        let text = "router.conflicts = 'priority'\nbackends = [{ name = 'a', command = 'a' }, \
                    { name = 'b', command = 'b' }]";
        let [a, b] = ["a", "b"].map(|who| Server::new().says("t", who));
        let service = testing::stack(&file(text), [("a", a), ("b", b)]);
        assert_eq!(text_of(&testing::call(&service, "t", json!({})).await), "a");
    }

    /// The program connects the backends of such a file in code.
    #[tokio::test(start_paused = true)]
    async fn servers_keep_tool_names_if_the_file_has_no_backends() {
        let text = "[[composite_tools]]\nname = 'both'\ndescription = 'd'\ntools = ['a', 'b']";
        let one = Server::new().says("a", "one");
        let two = Server::new().says("b", "two").says("a", "second");
        let service = testing::stack(&file(text), [("any", one), ("other", two)]);
        let tools = testing::listed(&service).await;
        let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["a", "b", "both"]);
        let result = testing::call(&service, "both", json!({})).await;
        let branches = &result.structured_content.unwrap()["branches"];
        assert_eq!(branches["a"]["output"], "one");
        assert_eq!(branches["b"]["output"], "two");

        let service = testing::stack(&file(""), []);
        assert_eq!(testing::listed(&service).await.len(), 0);
    }

    #[test]
    fn unmatched_backends_and_servers_panic() {
        let with = |names: &[&'static str]| {
            let servers: Vec<_> = names.iter().map(|name| (*name, Server::new())).collect();
            let made = catch_unwind(AssertUnwindSafe(|| testing::stack(&file(FILE), servers)));
            made.err().map(|panic| *panic.downcast::<String>().unwrap())
        };
        assert_eq!(with(&["one", "two"]), None);
        assert_eq!(with(&["one"]).unwrap(), "the backend `two` has no server");
        for odd in ["tow", "other"] {
            let message = format!(
                "the backend `two` has no server, and the server `{odd}` is of no backend: did \
                 you mean `two`?"
            );
            assert_eq!(with(&["one", odd]).unwrap(), message);
        }
        let message = with(&["other", "one", "tow"]).unwrap();
        assert!(message.contains("the server `tow` is of no backend"), "{message}");
        for odd in ["three", "one"] {
            let message = with(&["one", "two", odd]).unwrap();
            assert!(
                message.starts_with(&format!("the server `{odd}` is of no backend")),
                "{message}"
            );
        }
    }
}
