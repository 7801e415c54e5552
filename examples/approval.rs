//! A workflow that asks a person: from a TOML file, with clients of both eras.
//!
//! `cargo run --example approval` deploys something after it was approved, and does not after it
//! was declined. An older client gets the question as `elicitation/create` while its call goes on;
//! one of 2026-07-28 gets it as the answer to its call, and calls again. The workflow is the same,
//! and the clients only answer. All of it runs in this process; there is no network.

#![expect(clippy::print_stdout, reason = "it is an example")]

use mcp_composite::{adapter::ServeService, config::Config};
use rmcp::{
    ClientHandler, ClientServiceExt, ErrorData, RoleClient, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
        ContentBlock, ElicitRequestParams, ElicitResult, ElicitationAction, Implementation,
        ListToolsResult, PaginatedRequestParams, ProtocolVersion, Tool,
    },
    service::{ClientLifecycleMode, RequestContext},
};
use serde_json::{Map, json};

/// A server with two tools.
struct Releases;

/// A client whose user gives this answer to every question.
struct Person {
    says: ElicitResult,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let yes = || {
        let staging = json!({ "environment": "staging" });
        ElicitResult::new(ElicitationAction::Accept).with_content(staging)
    };
    let no = || ElicitResult::new(ElicitationAction::Decline);
    let modern = || ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };

    println!("a client of 2025-11-25, and yes:");
    deploy(yes(), ClientLifecycleMode::Initialize).await?;
    println!("\na client of 2026-07-28, and yes:");
    deploy(yes(), modern()).await?;
    println!("\na client of 2026-07-28, and no:");
    deploy(no(), modern()).await
}

async fn deploy(
    says: ElicitResult,
    lifecycle: ClientLifecycleMode,
) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::from_toml_str(include_str!("approval.toml"))?;
    let server = ServeService::wrap(Releases, config.composite_layer());

    let (near, far) = tokio::io::duplex(4096);
    // A client of 2026-07-28 begins with its first request, and so does its server.
    #[expect(clippy::disallowed_methods, reason = "the server of the example")]
    let serving = tokio::spawn(async move {
        if let Ok(server) = server.serve(near).await {
            let _ = server.waiting().await;
        }
    });
    let client = Person { says }.serve_with_lifecycle(far, lifecycle).await?;

    let service = Map::from_iter([("service".to_owned(), "shop".into())]);
    let call = CallToolRequestParams::new("deploy_with_approval").with_arguments(service);
    let result = client.call_tool(call).await?;
    for text in result.content.iter().filter_map(ContentBlock::as_text) {
        println!("  the result: {}", text.text);
    }
    serving.abort();
    Ok(())
}

// === impl Releases ===

impl ServerHandler for Releases {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let any = || Map::from_iter([("type".to_owned(), "object".into())]);
        let tools = ["get_release", "deploy"].map(|name| Tool::new(name, "As it says", any()));
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        println!("  called: {}", call.name);
        let release = json!({ "version": "1.4.0", "changes": 12 });
        Ok(match &*call.name {
            "get_release" => CallToolResult::structured(release).into(),
            _ => CallToolResult::success(vec![ContentBlock::text("it is out")]).into(),
        })
    }
}

// === impl Person ===

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("person", "1.0"))
    }

    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if let ElicitRequestParams::FormElicitationParams { message, .. } = question {
            println!("  asked: {message}");
        }
        Ok(self.says.clone())
    }
}
