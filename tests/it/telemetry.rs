//! The metrics, logs and spans of the gateway as a program.

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::Command,
};

use crate::{
    authentication::{Backend, Program, answer},
    backends::backend,
    operations::{Client, Gateway},
    programs::PROGRAM,
    support::soon,
};

// === Metrics and logs ===

#[tokio::test]
async fn metrics_are_served_on_a_listener_of_their_own() {
    let gateway = Gateway::start(&["--metrics", "127.0.0.1:0"]).await;
    gateway.logs("serving http://").await;
    let mut client = gateway.connect().await;
    for tool in ["all", "one_echo", "unknown"] {
        client.call(tool, json!({ "text": "secret argument" })).await;
        client.response().await;
    }
    assert_eq!(client.get("/metrics").await.status, 404);

    let address = gateway.address("serving metrics at http://");
    // Each request has a connection of its own.
    let get = async |path: &str| Client::connect(&address).await.get(path).await;
    let metrics = get("/metrics").await;
    let text = metrics.body;
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    for line in [
        "# TYPE mcp_server_operation_duration_seconds histogram",
        "# TYPE mcp_composite_backend_connections_total counter",
        r#"mcp_composite_backend_connections_total{mcp_composite_backend="one"} 1"#,
        r#"mcp_composite_run_duration_seconds_count{gen_ai_workflow_name="all",mcp_composite_status="completed"} 1"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    // Labels have names of existing tools only.
    assert!(text.contains(r#"gen_ai_tool_name="one_echo",le="0.01"}"#), "{text}");
    assert!(!text.contains("unknown") && !text.contains("secret"), "{text}");
    assert_eq!(get("/readyz").await.status, 200);
    assert_eq!(get("/mcp").await.status, 404);

    // A web page cannot read them by DNS rebinding.
    let mut rebound = Client::connect(&address).await;
    rebound.write("GET /metrics HTTP/1.1\r\nHost: evil.example.com\r\n\r\n").await;
    assert_eq!(rebound.response().await.status, 403);

    // The next version of the file is measured, too.
    gateway.signal("HUP");
    gateway.logs("reloaded: ").await;
    client.call("all", json!({ "text": "again" })).await;
    client.response().await;
    let run = "mcp_composite_run_duration_seconds_count{gen_ai_workflow_name=\"all\",\
               mcp_composite_status=\"completed\"} 2";
    let text = get("/metrics").await.body;
    assert!(text.lines().any(|line| line == run), "{text}");
}

#[tokio::test]
async fn metrics_have_the_views_of_the_file_that_is_served() {
    let backend = Backend::start().await;
    let view = |path: &str| backend.sections() + &format!("[[views]]\npath = '{path}'\n");
    let options = ["--metrics", "127.0.0.1:0"];
    let program = Program::start_with(&view("/team-a"), "127.0.0.1:0", &options).await;
    let call = async |path: &str| {
        let call = json!({ "name": "both", "arguments": { "q": "hello" } });
        assert_eq!(answer(program.request_at(path, "tools/call", call)).await.0, 200);
    };
    call("/mcp").await;
    call("/team-a").await;
    let log = program.log();
    let (_, url) = log.split_once("serving metrics at ").unwrap();
    let url = url.lines().next().unwrap();
    let run = |view: &str| {
        format!(
            "mcp_composite_run_duration_seconds_count{{gen_ai_workflow_name=\"both\",\
             {view}mcp_composite_status=\"completed\"}} 1"
        )
    };
    let metrics =
        async || soon(program.client.get(url).send()).await.unwrap().text().await.unwrap();
    let text = metrics().await;
    for line in [run(""), run("mcp_composite_view=\"/team-a\",")] {
        let sorted = |line: &str| {
            let mut parts: Vec<_> = line.split(['{', ',', '}']).map(str::to_owned).collect();
            parts.sort();
            parts
        };
        assert!(text.lines().any(|other| sorted(other) == sorted(&line)), "{line}\n{text}");
    }

    program.reload(&view("/team-b"));
    program.logs("reloaded: ").await;
    call("/team-b").await;
    let text = metrics().await;
    assert!(text.contains("=\"/team-b\"") && !text.contains("=\"/team-a\""), "{text}");
    assert!(text.lines().any(|line| line == run("")), "{text}");
}

#[tokio::test]
async fn listener_of_metrics_answers_probes_while_the_gateway_drains() {
    let mut gateway = Gateway::start(&["--metrics", "127.0.0.1:0", "--drain", "1h"]).await;
    let mut caller = gateway.connect().await;
    caller.call("one_hold", gateway.hold()).await;
    gateway.has_called("hold").await;
    gateway.signal("TERM");
    gateway.logs("waiting up to").await;
    let address = gateway.address("serving metrics at http://");
    let get = async |path: &str| Client::connect(&address).await.get(path).await.status;
    assert_eq!((get("/healthz").await, get("/readyz").await), (200, 503));
    gateway.release();
    assert_eq!(caller.response().await.status, 200);
    assert!(gateway.end().await.success());
}

#[tokio::test]
async fn log_in_json_has_one_object_per_line_without_secrets() {
    let secret = "a \"quoted\" secret";
    let gateway = Gateway::of(
        &["--log-format", "json"],
        &format!("MISBEHAVING_SECRET = '{secret}'"),
        &[("RUST_LOG", "trace")],
    )
    .await;
    let mut client = gateway.connect().await;
    client.call("one_env", json!({ "name": "MISBEHAVING_SECRET" })).await;
    client.response().await;
    let log = gateway.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let serving = lines.iter().find(|line| {
        line["message"].as_str().is_some_and(|message| message.starts_with("serving http://"))
    });
    assert_eq!(serving.unwrap()["level"], "INFO");
    assert!(log.contains("***") && !log.contains("quoted"), "{log}");
}

#[tokio::test]
async fn log_in_a_file_has_no_colors() {
    let gateway = Gateway::start(&["--metrics", "127.0.0.1:0"]).await;
    let log = gateway.log();
    assert!(log.contains(" INFO ") && !log.contains('\u{1b}'), "{log:?}");
}

// === Spans ===

/// Returns the path, headers and body of a request of an exporter.
async fn exported(collector: &TcpListener) -> (TcpStream, String, Vec<u8>) {
    let (stream, _) = soon(collector.accept()).await.unwrap();
    let mut client = Client(BufReader::new(stream));
    let head = client.head().await;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    soon(client.0.read_exact(&mut body)).await.unwrap();
    (client.0.into_inner(), head, body)
}

#[tokio::test]
async fn spans_are_exported_before_the_gateway_ends() {
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hunter2"),
        // Long enough that only the end exports spans.
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
        // Affects the log only.
        ("RUST_LOG", "info,mcp_composite::trace=off,mcp_composite::run=off"),
    ];
    let mut gateway = Gateway::of(&[], "", &variables).await;
    let mut client = gateway.connect().await;
    client.call("all", json!({ "text": "secret argument" })).await;
    assert_eq!(client.response().await.status, 200);
    gateway.signal("TERM");
    let (mut stream, head, body) = exported(&collector).await;
    let response = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\
                     Content-Length: 0\r\n\r\n";
    stream.write_all(response).await.unwrap();
    assert!(gateway.end().await.success());

    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nx-key: hunter2\r\n"), "{head}");
    let has = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    for text in ["mcp-composite", "tools/call all", "invoke_workflow all", "tools/call one_echo"] {
        assert!(has(text), "{text}");
    }
    assert!(!has("secret argument"));
    assert!(!gateway.log().contains("hunter2"), "{}", gateway.log());
}

#[tokio::test]
async fn collector_that_does_not_answer_delays_no_call() {
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/traces", collector.local_addr().unwrap());
    let variables = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*endpoint),
        ("OTEL_SERVICE_NAME", "tools of tests"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        // An hour: the end of a gateway that waits for the collector would come too late.
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "3600000"),
    ];
    let mut gateway = Gateway::of(&[], "", &variables).await;
    let mut client = gateway.connect().await;
    client.call("one_echo", json!({ "text": "one" })).await;
    assert_eq!(client.response().await.status, 200);
    let (_stream, _, body) = exported(&collector).await;
    assert!(body.windows(14).any(|part| part == b"tools of tests"));
    // The exporter waits for the answer.
    for _ in 0..100 {
        client.call("one_echo", json!({ "text": "two" })).await;
        assert_eq!(client.response().await.status, 200);
    }
    gateway.signal("TERM");
    assert!(gateway.end().await.success());
}

#[tokio::test]
async fn invalid_settings_of_the_exporter_are_reported() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, backend("one", "good", "")).unwrap();
    for (name, value, error) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "no url", "cannot export spans: "),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "supports `http/protobuf` only"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(&file).args(["--http", "127.0.0.1:0"]).kill_on_drop(true);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").env(name, value);
        let output = soon(command.stdin(Stdio::null()).output()).await.unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(error), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
