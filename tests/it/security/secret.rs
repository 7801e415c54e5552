//! Secrets never appear in any output: each way for a call to fail, with canaries in all secret
//! values, and a check of all output.

use std::{
    convert::Infallible,
    fmt::{Debug, Write},
    future::ready,
    sync::{Arc, Mutex},
};

use mcp_composite::{
    adapter::ServeService,
    changes::Changes,
    composite::{CompositeLayer, CompositeTool, ForEach, OnError, Race, Step, ToolCall},
    message::{Reply, Request},
    testing::{self, Answer, Server},
    validate::{SchemaMode, ValidateLayer},
};
use rmcp::model::{ErrorData, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool};
use serde_json::json;
use tower::{Layer, ServiceExt, service_fn};
use tracing::{Event, Metadata, Subscriber, field::Field, span};
use tracing_subscriber::EnvFilter;

use crate::{
    scripted::object,
    support::{Era, Logged, connect, soon, subscribe},
};

/// An argument of a client, which must not appear elsewhere.
const ARGUMENT: &str = "canary-argument-5b1f";
/// An internal detail of a server, such as an address.
const INSIDE: &str = "canary-inside-77c0";
/// The message of a panic.
const PANIC: &str = "canary-panic-e0d4";

/// Collects all logs of this crate, at every level, until the value is dropped.
fn logs_of_all_levels() -> (Logged, tracing::subscriber::DefaultGuard) {
    let logged = Logged::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(logged.clone())
        .with_env_filter(EnvFilter::new("mcp_composite=trace"))
        .with_ansi(false)
        .finish();
    (logged, subscribe(subscriber))
}

/// Tools that fail in every way.
fn failing() -> Server {
    let strict = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" }, "text": { "enum": ["a", "b"] } },
        "required": ["n"],
        "additionalProperties": false,
    });
    Server::new()
        .tool("panics", Answer::panic(PANIC))
        .tool("is_away", Answer::unavailable(format!("connect 10.0.0.7: {INSIDE}")))
        .tool("refuses", Answer::error(-32602, "no"))
        .fails("fails", "no")
        .hangs("hangs")
        .tool_as(Tool::new("is_strict", "Strict", object(strict)), Answer::text("fine"))
}

const TOOLS: [&str; 6] = ["panics", "is_away", "refuses", "fails", "hangs", "is_strict"];

/// Returns composites that call a tool in every way in which its failure is reported.
fn composites(tool: &str) -> Vec<CompositeTool> {
    let second = std::time::Duration::from_secs(1);
    let given = json!({ "text": "$input.text" });
    vec![
        CompositeTool::fan_out("all", "Calls", [tool]).timeout(second),
        CompositeTool::new("race", "Calls", Race::new([tool])).timeout(second),
        CompositeTool::pipeline(
            "steps",
            "Calls",
            [Step::new("one", ToolCall::new(tool).arguments(given.clone()))],
        )
        .timeout(second),
        CompositeTool::workflow(
            "each",
            "Calls",
            [Step::new("one", ForEach::new(json!([1, 2]), ToolCall::new(tool).arguments(given)))
                .on_error(OnError::Continue)],
        )
        .timeout(second),
        CompositeTool::workflow(
            "template",
            "Calls",
            [Step::new(
                "one",
                ToolCall::new(tool)
                    .arguments(json!({ "text": "{{ input.text | int + input.text.more }}" })),
            )],
        )
        .timeout(second),
        CompositeTool::workflow(
            "condition",
            "Calls",
            [Step::new("one", tool).condition("{{ input.text | fromjson }}")],
        )
        .timeout(second),
    ]
}

#[tokio::test(start_paused = true)]
async fn errors_reveal_no_arguments_panics_or_internals() {
    // The panic hook prints panics to standard error, which is not a log.
    let (logged, _logs) = logs_of_all_levels();
    for tool in TOOLS {
        let validate = ValidateLayer::new().schema(SchemaMode::Strict);
        let service =
            CompositeLayer::new(composites(tool)).unwrap().layer(validate.layer(failing()));
        for name in ["all", "race", "steps", "each", "template", "condition"] {
            let arguments = json!({ "text": ARGUMENT, ARGUMENT: [ARGUMENT] });
            let request = testing::request(name, arguments);
            let reply = service.clone().oneshot(request).await.unwrap();
            // Errors about arguments contain their paths, never their values.
            let reply = format!("{:?}", reply.into_result()).replace(&format!("/{ARGUMENT}"), "");
            for canary in [ARGUMENT, PANIC, INSIDE] {
                assert!(!reply.contains(canary), "`{name}` of `{tool}` tells {canary}: {reply}");
            }
        }
    }
    let text = logged.text();
    assert!(text.contains(INSIDE), "an operator is told why a server is away: {text}");
    for canary in [ARGUMENT, PANIC] {
        assert!(!text.contains(canary), "{canary} is logged: {text}");
    }
}

/// Collects all logged fields of this crate, as a careless subscriber would print them.
#[derive(Clone, Default)]
struct Careless(Arc<Mutex<String>>);

impl Subscriber for Careless {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("mcp_composite")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut printed = self.0.lock().unwrap();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            write!(printed, "{field}={value:?} ").unwrap();
        });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn untrusted_text_is_logged_with_control_characters_escaped() {
    const HOSTILE: &str = "a\u{1b}[2J\nb";

    let careless = Careless::default();
    let _logs = subscribe(careless.clone());
    let printed = || std::mem::take(&mut *careless.0.lock().unwrap());
    let assert_is_harmless = |what: &str| {
        let printed = printed();
        assert!(printed.contains(what) && printed.contains("a\\u{1b}[2J\\nb"), "{printed}");
        assert!(!printed.contains(['\u{1b}', '\n']), "{printed}");
        assert!(printed.len() < 4_096, "{} bytes", printed.len());
    };
    let long = || format!("{HOSTILE}{}", "x".repeat(1 << 20));
    let refuses = service_fn(move |_: Request| {
        ready(Ok::<_, Infallible>(Reply::from(ErrorData::invalid_params(long(), None))))
    });

    // A URI of a client, and the error of a backend.
    let capabilities =
        ServerCapabilities::builder().enable_resources().enable_resources_subscribe().build();
    let served = ServeService::new(refuses, ServerConfig::new(capabilities));
    let client = connect(served.changes(Changes::default()), Era::Modern).await;
    let wanted = SubscriptionFilter::builder().resource_subscriptions([HOSTILE]).build();
    let stream = soon(client.client.listen(wanted)).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    assert_is_harmless("failed to subscribe to a resource");
    drop(stream);

    // The error of a backend in place of its list.
    let look = || CompositeTool::fan_out("all", "Looks", ["look"]);
    let service = CompositeLayer::new([look()]).unwrap().layer(refuses);
    service.oneshot(Request::list_tools()).await.unwrap();
    assert_is_harmless("failed to list the tools of the inner service");

    // A name in its schema.
    let schema = json!({ "type": "object", "properties": { HOSTILE: { "type": 5 } } });
    let server = || {
        let tool = Tool::new("look", "Looks", object(schema.clone()));
        Server::new().tool_as(tool, Answer::text("fine"))
    };
    let service = CompositeLayer::new([look()]).unwrap().layer(server());
    testing::call(&service, "all", json!({ "q": 1 })).await;
    assert_is_harmless("the input schema is invalid");
    let step = Step::new("look", ToolCall::new("look").arguments(json!({ "q": 1 })));
    let steps = CompositeTool::pipeline("all", "Looks", [step]);
    let service = CompositeLayer::new([steps]).unwrap().layer(server());
    testing::call(&service, "all", json!({})).await;
    assert_is_harmless("arguments are not coerced");
}

#[cfg(feature = "http")]
mod over_http {
    use axum::http::{HeaderMap, StatusCode, Uri};
    use http::{HeaderValue, header::AUTHORIZATION};
    use mcp_composite::adapter::RemoteService;
    use tokio::{net::TcpListener, task::JoinSet};

    use super::logs_of_all_levels;
    use crate::support::soon;

    const HEADERS: [&str; 2] = ["canary-header-19aa", "canary-schlüssel-8e20"];
    const PASSWORD: &str = "canary-password-42be";
    const QUERY: &str = "canary-query-c7d3";

    /// Returns the error of an unconnected server, and its logs.
    async fn trouble(host: &str, header: &str) -> String {
        let (logged, _logs) = logs_of_all_levels();
        let value = HeaderValue::try_from(format!("Bearer {header}")).unwrap();
        let url = format!("http://me:{PASSWORD}@{host}/mcp?key={QUERY}");
        let remote = RemoteService::builder("docs").http(&url, [(AUTHORIZATION, value)]);
        let trouble = soon(remote.connected()).await.unwrap_err();
        let output = format!("{trouble} {remote:?} {}", logged.text());
        remote.close().await;
        output
    }

    #[tokio::test]
    async fn http_credentials_do_not_appear_anywhere() {
        // A server that returns the request it received.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answer = async |headers: HeaderMap, uri: Uri| {
            let headers = headers.values().map(|value| String::from_utf8_lossy(value.as_bytes()));
            let headers: Vec<_> = headers.collect();
            (StatusCode::FORBIDDEN, format!("not you: {uri} {}", headers.join(" ")))
        };
        let mut serving = JoinSet::new();
        let router = axum::Router::new().fallback(answer);
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });

        for (host, header) in [&*address, "127.0.0.1:1"]
            .into_iter()
            .flat_map(|host| HEADERS.map(|header| (host, header)))
        {
            let output = trouble(host, header).await;
            assert!(output.contains("not connected"), "{output}");
            assert_eq!(output.contains("not you"), host == address, "{output}");
            for canary in [header, PASSWORD, QUERY] {
                assert!(!output.contains(canary), "{canary} of {host} is told: {output}");
            }
        }
    }
}
