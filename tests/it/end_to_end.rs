//! A stock rmcp client, connected by a pipe or a child process.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_composite::{
    adapter::{HandlerService, ServeService},
    composite::{Composite, CompositeLayer, CompositeTool},
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
        JsonObject, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam,
        ProgressToken,
    },
    service::{PeerRequestOptions, RequestContext, RequestHandle},
    transport::TokioChildProcess,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tower::ServiceBuilder;

use crate::{
    programs::example,
    support::{Connection, Era, Hung, Unusual, connect, question, soon, tool, unusual},
};

const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

/// A server whose tool uses all features of its client.
#[derive(Clone, Default)]
struct Probe {
    /// The progress token and the capabilities it received.
    seen: Arc<Mutex<Vec<(ProgressToken, Value)>>>,
}

impl ServerHandler for Probe {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(["ask", "fine"].map(tool).into()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let capabilities = serde_json::to_value(cx.client_capabilities()).unwrap();
        let token = cx.meta.get_progress_token().unwrap();
        self.seen.lock().unwrap().push((token.clone(), capabilities));
        cx.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await.unwrap();
        if call.name == "ask"
            && let Err(error) = cx.peer.create_elicitation(question()).await
        {
            return Ok(CallToolResult::error(vec![ContentBlock::text(error.to_string())]).into());
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("fine")]).into())
    }
}

fn composites() -> CompositeLayer {
    CompositeLayer::new([
        CompositeTool::fan_out("stuck", "Hangs three times", ["hang"; 3]),
        CompositeTool::fan_out("mixed", "Some work", ["fine", "panic"]),
        CompositeTool::fan_out("nested", "Hangs further down", ["stuck", "fine"]),
    ])
    .unwrap()
}

type Stack = Composite<HandlerService<Unusual>>;

/// Calls a composite and waits until its three targets hang.
async fn hang(
    connection: &Connection,
    name: &'static str,
    calls: &mut UnboundedReceiver<Hung>,
) -> (RequestHandle<rmcp::RoleClient>, Vec<Hung>) {
    let call = CallToolRequest::new(CallToolRequestParams::new(name));
    let options = PeerRequestOptions::no_options();
    let handle = connection.client.send_cancellable_request(call.into(), options).await.unwrap();
    let mut hung = Vec::new();
    for _ in 0..3 {
        hung.push(soon(calls.recv()).await.unwrap());
    }
    assert!(hung.iter().all(|hung| !hung.cancellation.is_cancelled()));
    (handle, hung)
}

async fn all_ended(hung: Vec<Hung>) {
    for hung in hung {
        hung.ended().await;
    }
}

#[tokio::test(start_paused = true)]
async fn client_lists_and_calls_a_composite() {
    for era in BOTH {
        let (handler, _calls) = unusual();
        let server: ServeService<Stack> = ServeService::wrap(handler, composites());
        let connection = connect(server, era).await;

        let tools = connection.client.list_all_tools().await.unwrap();
        let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["hang", "panic", "fine", "stuck", "mixed", "nested"]);

        let result = connection.call_tool("mixed").await.unwrap();
        assert_eq!(result["isError"], true);
        assert_eq!(result["structuredContent"]["branches"]["fine"]["output"], "fine");
        assert_eq!(result["structuredContent"]["branches"]["panic"]["error"]["kind"], "panic");
        assert!(!result.to_string().contains("hunter2"));
        let result_type = result.get("resultType").and_then(Value::as_str);
        assert_eq!(result_type, (era == Era::Modern).then_some("complete"));
        // The connection still works.
        connection.call_tool("fine").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn client_receives_the_violations_of_its_arguments() {
    let (handler, _calls) = unusual();
    let schema = json!({ "properties": { "n": { "type": "integer" } } });
    let composite = CompositeTool::fan_out("checked", "Wants a number", ["hang"])
        .input_schema(schema.as_object().unwrap().clone());
    let server = ServeService::wrap(handler, CompositeLayer::new([composite]).unwrap());
    let connection = connect(server, Era::Legacy).await;

    let call = json!({ "name": "checked", "arguments": { "n": "hunter2" } });
    let error = connection.send("tools/call", call).await.unwrap_err();

    let rmcp::ServiceError::McpError(error) = error else { panic!("{error:?}") };
    assert_eq!(error.code.0, -32602);
    let message = "at `/n`: the value is not of type \"integer\"";
    assert_eq!(error.message, format!("invalid arguments for `checked`: {message}"));
    let violation = json!({ "path": "/n", "message": "the value is not of type \"integer\"" });
    assert_eq!(error.data, Some(json!({ "violations": [violation] })));
}

#[tokio::test(start_paused = true)]
async fn client_cancellation_stops_every_target() {
    for (era, name) in BOTH.into_iter().zip(["stuck", "nested"]) {
        let (handler, mut calls) = unusual();
        let connection = connect(ServeService::wrap(handler, composites()), era).await;
        let (handle, hung) = hang(&connection, name, &mut calls).await;
        handle.cancel(Some("changed my mind".to_owned())).await.unwrap();
        all_ended(hung).await;
        connection.call_tool("fine").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn client_disconnection_stops_every_target() {
    for (era, name) in BOTH.into_iter().zip(["nested", "stuck"]) {
        let (handler, mut calls) = unusual();
        let connection = connect(ServeService::wrap(handler, composites()), era).await;
        let (_handle, hung) = hang(&connection, name, &mut calls).await;
        let Connection { client, server: _server } = connection;
        client.cancel().await.unwrap();
        all_ended(hung).await;
    }
}

#[tokio::test(start_paused = true)]
async fn outer_timeout_stops_every_target() {
    for (era, name) in BOTH.into_iter().zip(["stuck", "nested"]) {
        let (handler, mut calls) = unusual();
        let layers = ServiceBuilder::new().timeout(Duration::from_secs(5)).layer(composites());
        let connection = connect(ServeService::wrap(handler, layers), era).await;
        let (handle, hung) = hang(&connection, name, &mut calls).await;
        all_ended(hung).await;
        let error = soon(handle.await_response()).await.unwrap_err();
        assert!(error.to_string().contains("the request timed out"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn targets_receive_only_capabilities_that_can_be_relayed() {
    for era in BOTH {
        let probe = Probe::default();
        let layer = CompositeTool::fan_out("both", "Asks", ["ask", "fine"]);
        let layer = CompositeLayer::new([layer]).unwrap();
        let connection = connect(ServeService::wrap(probe.clone(), layer), era).await;

        let direct = connection.call_tool("fine").await.unwrap();
        assert_eq!(direct["isError"], false);
        let (_, capabilities) = probe.seen.lock().unwrap().pop().unwrap();
        assert!(capabilities["elicitation"].is_object(), "{capabilities}");
        connection.client.service().log.wait_for("progress").await;

        let result = connection.call_tool("both").await.unwrap();
        let [(one, capabilities), (other, same)] = &probe.seen.lock().unwrap()[..] else {
            panic!("called twice")
        };
        assert_ne!(one, other, "each has a token of its own");
        // And does not declare support for tasks.
        assert_eq!(*capabilities, json!({ "elicitation": {} }));
        assert_eq!(capabilities, same);
        let branches = &result["structuredContent"]["branches"];
        assert_eq!(branches["fine"]["output"], "fine");
        // A newer client cannot be asked in the middle of a call.
        let expected = if era == Era::Legacy { "completed" } else { "failed" };
        assert_eq!(branches["ask"]["status"], expected);
    }
}

#[tokio::test]
async fn client_lists_and_calls_a_composite_of_a_child_process() {
    let command = tokio::process::Command::new(example("wrap_server"));
    let client = ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap();

    let tools = client.list_all_tools().await.unwrap();
    let both = tools.iter().find(|tool| tool.name == "both").unwrap();
    assert_eq!(tools.len(), 3);
    assert_eq!(both.input_schema["required"], json!(["text"]));
    assert_eq!(both.annotations.as_ref().unwrap().read_only_hint, Some(true));

    let mut arguments = JsonObject::new();
    arguments.insert("text".to_owned(), "two words".into());
    let call = CallToolRequestParams::new("both").with_arguments(arguments);
    let result = client.call_tool(call).await.unwrap();
    let branches = json!({
        "words": { "status": "completed", "output": "2" },
        "letters": { "status": "completed", "output": "8" },
    });
    assert_eq!(result.structured_content, Some(json!({ "branches": branches })));

    let missing = client.call_tool(CallToolRequestParams::new("both")).await.unwrap_err();
    assert!(missing.to_string().contains("at `/text`: is required"), "{missing}");
    client.cancel().await.unwrap();
}
