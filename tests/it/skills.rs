//! Skills of a server at the other end of a connection, behind a router.

use mcp_composite::adapter::{RemoteService, Router, ServeService, router::Backend};
use rmcp::{
    ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::*,
    service::{RequestContext, RunningService},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{pipe_to, serve_over_pipe, soon, tool};

const SKILL: &str = "skill://sail/SKILL.md";
const TEXT: &str = "Mind the wind.";

/// A server with one skill.
#[derive(Clone)]
struct Skilled;

/// A server with one tool.
#[derive(Clone)]
struct Plain;

fn skill() -> Value {
    let file = SkillResource::from_bytes(SKILL, TEXT.as_bytes());
    json!({
        "uri": SKILL,
        "frontmatter": { "name": "sail", "description": "Sails" },
        "resources": [file],
    })
}

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl ServerHandler for Skilled {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_resources();
        ServerConfig::new(capabilities.enable_skills_with_directory_read().build())
    }

    async fn list_skills(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        Ok(parsed(json!({ "skills": [skill()] })))
    }

    async fn get_skill(
        &self,
        get: GetSkillRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        assert_eq!(get.uri, SKILL);
        Ok(parsed(json!({ "skill": skill() })))
    }

    async fn read_resource_directory(
        &self,
        read: ReadResourceDirectoryRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        assert_eq!(read.uri, "skill://sail");
        Ok(parsed(json!({ "resources": [{ "uri": SKILL, "name": "SKILL.md" }] })))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(parsed(json!({ "resources": [{ "uri": SKILL, "name": "SKILL.md" }] })))
    }

    async fn read_resource(
        &self,
        read: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        assert_eq!(read.uri, SKILL);
        Ok(ReadResourceResult::new(vec![ResourceContents::text(TEXT, SKILL)]).into())
    }
}

impl ServerHandler for Plain {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool("any")]))
    }
}

async fn backend(name: &str, server: impl ServerHandler + Clone) -> Backend {
    let remote = RemoteService::builder(name).transport(move || pipe_to(server.clone()));
    soon(remote.connected()).await.unwrap();
    let described = remote.clone();
    Backend::new(name, remote)
        .description(move || Some(ServerConfig::new(described.server_info()?.capabilities.clone())))
}

async fn send(client: &RunningService<RoleClient, ()>, method: &str, params: Value) -> Value {
    let request: ClientRequest = parsed(json!({ "method": method, "params": params }));
    let result = soon(client.send_request(request)).await.unwrap();
    serde_json::to_value(result).unwrap()
}

#[tokio::test(start_paused = true)]
async fn skills_of_the_only_backend_reach_the_client() {
    let router = Router::builder()
        .backend(backend("plain", Plain).await)
        .backend(backend("skilled", Skilled).await)
        .build()
        .unwrap();
    let described = router.clone();
    let base = || ServerConfig::new(ServerCapabilities::default());
    let served = ServeService::new(router, move || described.describe(base()));
    let (far, work) = serve_over_pipe(served);
    let _serving = JoinSet::from_iter([work]);
    let client = soon(().serve(far)).await.unwrap();
    assert!(client.peer_info().unwrap().capabilities.supports_directory_read());

    let listed = send(&client, "skills/list", json!({})).await;
    assert_eq!(listed["skills"], json!([skill()]));
    let got = send(&client, "skills/get", json!({ "uri": SKILL })).await;
    assert_eq!(got["skill"], skill());
    let directory =
        send(&client, "resources/directory/read", json!({ "uri": "skill://sail" })).await;
    assert_eq!(directory["resources"][0]["uri"], SKILL);
    let read = send(&client, "resources/read", json!({ "uri": SKILL })).await;
    assert_eq!(read["contents"][0]["text"], TEXT);
}
