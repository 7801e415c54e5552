//! Handlers that offer no tools, behind layers that list tools.

use mcp_composite::{
    adapter::HandlerService,
    advertise::{AdvertiseLayer, Mode},
    composite::{CompositeLayer, CompositeTool, Elicitation, Step},
    filter::FilterLayer,
    functions::{FunctionsLayer, ToolSet, tool_fn},
    message::{Context, Reply, Request},
    stack::StackLayer,
};
use rmcp::{ErrorData, RoleServer, ServerHandler, model::*, service::RequestContext};
use serde_json::json;
use tower::{BoxError, Layer, Service, ServiceExt, util::BoxCloneSyncService};

use crate::support::capture_logs;

/// A handler that offers one prompt and no tools.
#[derive(Clone)]
struct Prompts;

impl ServerHandler for Prompts {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_prompts().build())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(vec![Prompt::new("greet", Some("Greets"), None)]))
    }
}

/// Returns the handler behind a connection.
#[cfg(feature = "remote")]
async fn remote() -> BoxCloneSyncService<Request, Reply, BoxError> {
    let remote = mcp_composite::adapter::RemoteService::builder("far")
        .transport(|| crate::support::pipe_to(Prompts));
    remote.connected().await.unwrap();
    BoxCloneSyncService::new(remote.map_err(BoxError::from))
}

/// Returns the handler in this process and behind a connection.
async fn handlers() -> Vec<BoxCloneSyncService<Request, Reply, BoxError>> {
    let in_process = HandlerService::new(Prompts).map_err(Into::into);
    vec![
        BoxCloneSyncService::new(in_process),
        #[cfg(feature = "remote")]
        remote().await,
    ]
}

async fn list<S>(service: S) -> Reply
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>>,
{
    service.oneshot(Request::list_tools()).await.map_err(Into::into).unwrap()
}

fn names(reply: &Reply) -> Vec<&str> {
    reply.tools().unwrap().tools.iter().map(|tool| &*tool.name).collect()
}

async fn capabilities<S>(service: S) -> ServerCapabilities
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>>,
{
    let discover = DiscoverRequest::new(DiscoverRequestParams::default());
    let request = Request::new(discover, Context::default());
    let reply = service.oneshot(request).await.map_err(Into::into).unwrap();
    match reply.into_result().unwrap() {
        ServerResult::DiscoverResult(result) => result.capabilities,
        other => panic!("{other:?}"),
    }
}

/// A composite that calls no tool.
fn question() -> CompositeTool {
    let step =
        Step::new("sure", Elicitation::new("Sure?", json!({ "type": "object", "properties": {} })));
    CompositeTool::workflow("confirm", "Asks", [step])
}

#[tokio::test]
async fn empty_stack_forwards_method_not_found() {
    for handler in handlers().await {
        let reply = list(StackLayer::new().layer(handler)).await;
        assert_eq!(reply.error().unwrap().code, ErrorCode::METHOD_NOT_FOUND);
    }
    let service = StackLayer::new().layer(HandlerService::new(Prompts));
    assert_eq!(capabilities(service).await.tools, None);
}

#[tokio::test]
async fn composite_is_listed_above_a_handler_without_tools() {
    let layer = CompositeLayer::new([question()]).unwrap();
    for handler in handlers().await {
        assert_eq!(names(&list(layer.layer(handler)).await), ["confirm"]);
    }
    let service = layer.layer(HandlerService::new(Prompts));
    assert!(capabilities(service).await.tools.is_some());
}

#[tokio::test]
async fn composite_with_missing_targets_leaves_an_empty_list() {
    let (logged, _guard) = capture_logs();
    let layer = CompositeLayer::new([CompositeTool::fan_out("both", "Both", ["a", "b"])]).unwrap();
    for handler in handlers().await {
        assert_eq!(names(&list(layer.layer(handler)).await), [""; 0]);
    }
    let logged = logged.text();
    assert!(logged.contains("composite `both` is not listed"), "{logged}");
    assert!(!logged.contains("method"), "the catalog is known: {logged}");
}

#[tokio::test]
async fn functions_are_listed_above_a_handler_without_tools() {
    let tool = Tool::new("now", "The time", JsonObject::new());
    let functions = ToolSet::new([tool_fn(tool, async |_: JsonObject, _| "noon")]).unwrap();
    let layer = FunctionsLayer::new(functions);
    for handler in handlers().await {
        assert_eq!(names(&list(layer.layer(handler)).await), ["now"]);
    }
    let service = layer.layer(HandlerService::new(Prompts));
    assert!(capabilities(service).await.tools.is_some());
}

#[tokio::test]
async fn search_mode_is_declared_above_a_handler_without_tools() {
    let layer = AdvertiseLayer::new().mode(Mode::Search);
    for handler in handlers().await {
        assert_eq!(names(&list(layer.layer(handler)).await), ["search_tools", "call_tool"]);
    }
    let service = layer.layer(HandlerService::new(Prompts));
    assert!(capabilities(service).await.tools.is_some());
}

#[tokio::test]
async fn annotation_filter_rejects_calls_if_handler_has_no_tools() {
    let (logged, _guard) = capture_logs();
    let filter = FilterLayer::new().read_only_only(true);
    for handler in handlers().await {
        let reply = filter.layer(handler).oneshot(Request::call_tool("x")).await.unwrap();
        assert_eq!(reply.error().unwrap().code, ErrorCode::INVALID_PARAMS);
    }
    let logged = logged.text();
    assert!(!logged.contains("are not known"), "{logged}");
}
