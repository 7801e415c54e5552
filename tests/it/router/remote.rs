//! A router over remote servers.

use mcp_composite::adapter::{remote::RemoteService, router::Backend};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        ErrorCode, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, PaginatedRequestParams, Resource, ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
};
use serde_json::json;

use super::{Server, ask, error_of, names, problems, router, tools};
use crate::{
    scripted::search_tool,
    support::{capture_logs, pipe_to, soon},
};

/// A server with tools and resources, without prompts and templates.
struct Plain;

impl ServerHandler for Plain {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![search_tool("x")]))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new("far:1", "one")]))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(no_such_method())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(no_such_method())
    }
}

fn no_such_method() -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "what?", None)
}

#[tokio::test]
async fn missing_methods_of_a_remote_server_cause_no_problems() {
    let (logged, _guard) = capture_logs();
    let remote = RemoteService::builder("far").transport(|| pipe_to(Plain));
    soon(remote.connected()).await.unwrap();
    let near = Server::tools(&["y"]).set(|has| has.templates = vec!["near:{x}".into()]);
    let router = router([Backend::new("far", remote.clone()), near.backend("near")]);

    for _ in 0..2 {
        assert_eq!(tools(&router).await, ["far_x", "near_y"]);
        assert_eq!(names(&router, "resources/list").await, ["far:1"]);
        assert_eq!(names(&router, "resources/templates/list").await, ["near:{x}"]);
        assert_eq!(names(&router, "prompts/list").await, [""; 0]);
    }
    assert_eq!(problems(&router), [""; 0]);
    assert!(!logged.text().contains("does not list"), "{}", logged.text());

    let unknown = Some((-32602, "unknown tool `far_z`".to_owned()));
    assert_eq!(error_of(&router, "tools/call", json!({ "name": "far_z" })).await, unknown);
    let unknown = Some((-32602, "unknown prompt `far_p`".to_owned()));
    assert_eq!(error_of(&router, "prompts/get", json!({ "name": "far_p" })).await, unknown);
    let subscribed = ask(&router, "resources/subscribe", json!({ "uri": "far:1" })).await;
    assert_ne!(subscribed.error().map(|error| error.code), Some(ErrorCode::METHOD_NOT_FOUND));
    remote.close().await;
}
