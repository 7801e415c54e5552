//! `HandlerService`, which calls a handler of rmcp as a Tower service.

use std::sync::Arc;

use futures::FutureExt as _;
use mcp_composite::{
    adapter::HandlerService,
    message::{Context, Reply, Request},
};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::*,
    service::{RequestContext, ServiceError},
};
use serde_json::json;
use tokio::{runtime, sync::mpsc};
use tower::{Service, ServiceExt};

use crate::support::{Era, Full, capture_logs, detached, question, soon, unusual};

/// A tool that runs a closure of the test with its context.
struct Tool<F>(F);

impl<F, W> ServerHandler for Tool<F>
where
    F: Fn(RequestContext<RoleServer>) -> W + Send + Sync + 'static,
    W: Future<Output = String> + Send + 'static,
{
    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text((self.0)(cx).await)]).into())
    }
}

fn tool<F, W>(work: F) -> HandlerService<Tool<F>>
where
    F: Fn(RequestContext<RoleServer>) -> W + Send + Sync + 'static,
    W: Future<Output = String> + Send + 'static,
{
    HandlerService::new(Tool(work))
}

async fn call<H: ServerHandler>(service: &HandlerService<H>) -> Reply {
    soon(service.clone().oneshot(Request::call_tool("x"))).await.unwrap()
}

fn text(reply: &Reply) -> &str {
    &reply.tool_result().unwrap().content[0].as_text().unwrap().text
}

/// Notifies the client and returns the outcome.
fn notifier() -> HandlerService<impl ServerHandler> {
    tool(|cx| async move { format!("{:?}", cx.peer.notify_tool_list_changed().await) })
}

#[tokio::test(start_paused = true)]
async fn notifications_without_a_client_succeed() {
    let service = tool(|cx| async move {
        let token = ProgressToken(NumberOrString::Number(1));
        cx.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await.unwrap();
        cx.peer.notify_resource_list_changed().await.unwrap();
        #[expect(deprecated, reason = "handlers still log to their clients")]
        cx.peer
            .notify_logging_message(LoggingMessageNotificationParam::new(
                LoggingLevel::Info,
                json!(1),
            ))
            .await
            .unwrap();
        "notified".to_owned()
    });
    // More than rmcp would buffer without a reader.
    for _ in 0..2_000 {
        assert_eq!(text(&call(&service).await), "notified");
    }
}

#[tokio::test(start_paused = true)]
async fn question_without_a_client_fails_immediately() {
    let service = tool(|cx| async move {
        match cx.peer.create_elicitation(question()).await {
            Err(ServiceError::McpError(error)) => error.message.into_owned(),
            other => panic!("{other:?}"),
        }
    });
    let why = "the client cannot be asked during a call";
    assert_eq!(text(&call(&service).await), why);
}

#[tokio::test]
async fn handler_receives_id_extensions_and_metadata() {
    #[derive(Clone, Debug, PartialEq)]
    struct Claims(u8);

    let service = tool(|cx| async move {
        format!("{} {:?} {:?}", cx.id, cx.extensions.get::<Claims>(), cx.meta.get("trace"))
    });
    let mut request = Request::call_tool("x");
    request.context_mut().extensions_mut().insert(Claims(7));
    request.context_mut().meta_mut().insert("trace".to_owned(), json!("t"));
    let reply = service.oneshot(request).await.unwrap();
    assert_eq!(text(&reply), r#"0 Some(Claims(7)) Some(String("t"))"#);
}

#[tokio::test(start_paused = true)]
async fn handler_token_is_cancelled_when_the_call_is_dropped() {
    let (handler, mut calls) = unusual();
    let mut call = HandlerService::new(handler).oneshot(Request::call_tool("hang"));
    assert!((&mut call).now_or_never().is_none(), "answered");
    // A call without a client waits for its peer first.
    let hung = tokio::select! {
        _ = &mut call => panic!("answered"),
        hung = calls.recv() => hung.unwrap(),
    };
    assert!(!hung.cancellation.is_cancelled());
    drop(call);
    hung.ended().await;
}

#[tokio::test(start_paused = true)]
async fn handler_token_is_cancelled_with_the_request() {
    let (handler, mut calls) = unusual();
    let (context, _keep) = detached(Era::Legacy);
    let cancellation = context.ct.clone();
    let call =
        HandlerService::new(handler).oneshot(Request::call_tool("hang").with_context(context));
    let mut call = std::pin::pin!(call);
    assert!(call.as_mut().now_or_never().is_none(), "answered");
    let hung = calls.try_recv().unwrap();
    assert!(!hung.cancellation.is_cancelled());
    cancellation.cancel();
    assert!(hung.cancellation.is_cancelled());
}

#[tokio::test]
async fn request_token_is_not_cancelled_with_the_handler_token() {
    let (sender, mut tokens) = mpsc::unbounded_channel();
    let service = tool(move |cx| {
        let sender = sender.clone();
        async move {
            sender.send(cx.ct).unwrap();
            String::new()
        }
    });
    let (context, _keep) = detached(Era::Legacy);
    let cancellation = context.ct.clone();
    service.oneshot(Request::call_tool("x").with_context(context)).await.unwrap();
    assert!(tokens.recv().await.unwrap().is_cancelled(), "the call has ended");
    assert!(!cancellation.is_cancelled(), "other calls may share it");
}

#[tokio::test]
async fn service_is_always_ready_and_clones_share_the_handler() {
    let mut service = HandlerService::new(Full::default());
    assert!(service.ready().now_or_never().is_some());
    let mut clone = service.clone();
    clone.call(Request::list_tools()).await.unwrap();
    assert!(service.handler().log.has("tools/list"));
    assert!(Arc::ptr_eq(service.handler(), clone.handler()));

    let handler = Arc::new(Full::default());
    assert!(Arc::ptr_eq(HandlerService::from(handler.clone()).handler(), &handler));
}

#[tokio::test]
async fn handler_error_is_returned_as_a_reply() {
    let reply =
        HandlerService::new(Full::default()).oneshot(Request::call_tool("refuse")).await.unwrap();
    let error = reply.error().unwrap();
    assert_eq!(
        (error.code, &*error.message, &error.data),
        (ErrorCode(7), "not you", &Some(json!([1])))
    );
}

#[tokio::test]
async fn handler_may_return_a_question_to_an_older_client() {
    // rmcp rejects that at the edge; below the edge a layer may bridge it.
    let reply =
        HandlerService::new(Full::default()).oneshot(Request::call_tool("ask")).await.unwrap();
    assert!(matches!(reply.result(), Some(ServerResult::InputRequiredResult(_))), "{reply:?}");
}

#[tokio::test]
async fn listen_request_returns_method_not_found() {
    let listen = SubscriptionsListenRequest::new(SubscriptionsListenRequestParams::new(
        SubscriptionFilter::builder().tools_list_changed().build(),
    ));
    let handler = Full::default();
    let reply = HandlerService::new(handler.clone())
        .oneshot(Request::new(listen, Context::default()))
        .await
        .unwrap();
    let error = reply.error().unwrap();
    assert_eq!(
        (error.code, &*error.message),
        (ErrorCode::METHOD_NOT_FOUND, "subscriptions/listen")
    );
    assert!(handler.log.lines().is_empty());
}

#[tokio::test]
async fn initialization_without_a_client_does_not_affect_calls() {
    let service = tool(|cx| async move { format!("{:?}", cx.client_info()) });
    let params = InitializeRequestParams::new(
        ClientCapabilities::default(),
        Implementation::new("first", "1"),
    );
    let initialize = Request::new(InitializeRequest::new(params), Context::default());
    let reply = service.clone().oneshot(initialize).await.unwrap();
    assert!(matches!(reply.result(), Some(ServerResult::InitializeResult(_))), "{reply:?}");
    assert_eq!(text(&call(&service).await), "None");
}

#[test]
fn call_without_a_client_and_runtime_returns_an_error() {
    let reply = notifier().oneshot(Request::call_tool("x")).now_or_never().unwrap().unwrap();
    let error = reply.error().unwrap();
    assert_eq!(error.code, ErrorCode::INTERNAL_ERROR);
    assert_eq!(error.message, "a call without a client needs a Tokio runtime");
}

#[test]
fn service_works_in_several_runtimes() {
    let service = notifier();
    let new = || runtime::Builder::new_current_thread().enable_all().build().unwrap();

    let ended = new();
    assert_eq!(text(&ended.block_on(call(&service))), "Ok(())");
    drop(ended);

    // Neither ended nor polled, while the next one is.
    let idle = new();
    assert_eq!(text(&idle.block_on(call(&service))), "Ok(())");
    assert_eq!(text(&new().block_on(call(&service))), "Ok(())");
    assert_eq!(text(&idle.block_on(call(&service))), "Ok(())");

    let threads = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    assert_eq!(text(&threads.unwrap().block_on(call(&service))), "Ok(())");
}

#[test]
fn call_keeps_its_peer_while_another_runtime_calls() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let (go, goes) = tokio::sync::watch::channel(false);
    let service = tool(move |cx| {
        let (started, mut goes) = (started.clone(), goes.clone());
        async move {
            started.send(()).unwrap();
            goes.wait_for(|go| *go).await.unwrap();
            format!("{:?}", cx.peer.notify_tool_list_changed().await)
        }
    });
    let new = || runtime::Builder::new_current_thread().enable_all().build().unwrap();

    let (slow, quick) = (new(), new());
    let mut slow_call = Box::pin(service.clone().oneshot(Request::call_tool("x")));
    slow.block_on(async {
        tokio::select! {
            _ = &mut slow_call => panic!("answered"),
            start = starts.recv() => start.unwrap(),
        }
    });
    go.send(true).unwrap();
    assert_eq!(text(&quick.block_on(call(&service))), "Ok(())");
    assert_eq!(text(&slow.block_on(slow_call).unwrap()), "Ok(())");
}

#[tokio::test]
async fn span_of_the_first_call_closes_with_the_call() {
    use tracing::Instrument as _;

    let (logged, _guard) = capture_logs();
    let service = notifier();
    async { call(&service).await }.instrument(tracing::info_span!("first_call")).await;
    let closed = |line: &str| line.contains("first_call") && line.contains("close");
    assert!(logged.text().lines().any(closed), "{}", logged.text());
}

#[tokio::test]
async fn debug_output_names_the_handler() {
    let mut service = HandlerService::new(Full::default());
    assert!(format!("{service:?}").contains("support::Full"));
    assert_eq!(format!("{:?}", service.call(Request::list_tools())), "ResponseFuture { .. }");
}
