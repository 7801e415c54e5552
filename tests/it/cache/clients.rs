//! Clients that share calls: their questions, progress notifications and cancellation.

use mcp_composite::adapter::{HandlerService, ServeService};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams,
        ProgressNotificationParam, ServerCapabilities, ServerConfig,
    },
    service::{PeerRequestOptions, RequestContext},
};
use tokio::sync::Semaphore;

use super::*;
use crate::support::{Connection, Era, Log, connect, question, soon};

/// A server whose tools involve the client.
#[derive(Clone)]
struct Involving {
    log: Log,
    /// Holds a permit for each call of `report` that may end.
    gate: Arc<Semaphore>,
}

impl ServerHandler for Involving {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = ["ask", "wait_and_ask", "report"].map(reads);
        Ok(ListToolsResult::with_all_items(tools.into()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.log.note(&*params.name);
        if params.name == "report" {
            let token = cx.meta.get_progress_token();
            if let Some(token) = token {
                let progress = ProgressNotificationParam::new(token, 1.0);
                cx.peer.notify_progress(progress).await.unwrap();
            }
        }
        if params.name != "ask" {
            self.gate.acquire().await.unwrap().forget();
        }
        let text = if params.name == "report" {
            "reported".to_owned()
        } else {
            let answer = cx.peer.create_elicitation(question()).await;
            let answer = answer.map(|answer| format!("{:?}", answer.action));
            let answer = answer.unwrap_or_else(|error| error.to_string());
            self.log.note(&*answer);
            answer
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// Connects clients to one cache in front of one server.
async fn serve<const N: usize>() -> (Involving, [Connection; N]) {
    let server = Involving { log: Log::default(), gate: Arc::new(Semaphore::new(0)) };
    let service = cache().layer(HandlerService::new(server.clone()));
    service.warm().await.unwrap();
    let mut connections = Vec::new();
    for _ in 0..N {
        let served = ServeService::new(service.clone(), server.get_info());
        connections.push(connect(served, Era::Legacy).await);
    }
    let Ok(connections) = connections.try_into() else { unreachable!("there are as many") };
    (server, connections)
}

fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

/// Returns how many progress notifications a client has received.
fn progress(connection: &Connection) -> usize {
    let lines = connection.client.service().log.lines();
    lines.iter().filter(|line| line.starts_with("progress")).count()
}

#[tokio::test(start_paused = true)]
async fn result_of_a_call_that_asks_the_client_is_not_cached() {
    let (server, [one, other]) = serve().await;
    for _ in 0..2 {
        let (first, second) = tokio::join!(one.call_tool("ask"), other.call_tool("ask"));
        assert_eq!([text_of(&first.unwrap()), text_of(&second.unwrap())], ["Decline"; 2]);
    }
    // Each of the four calls was made, and asked.
    for line in ["ask", "Decline"] {
        assert_eq!(server.log.lines().iter().filter(|other| *other == line).count(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_first_caller_receives_progress() {
    let (server, [one, other]) = serve().await;
    let first = one.call_tool("report");
    let second = async {
        server.log.wait_for("report").await;
        let second = other.call_tool("report");
        let release = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            server.gate.add_permits(1);
        };
        tokio::join!(second, release).0
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!([text_of(&first.unwrap()), text_of(&second.unwrap())], ["reported"; 2]);
    assert_eq!([progress(&one), progress(&other)], [1, 0]);
    assert_eq!(server.log.lines(), ["report"]);
    assert_eq!(text_of(&other.call_tool("report").await.unwrap()), "reported");
    assert_eq!(server.log.lines(), ["report"]);
}

#[tokio::test(start_paused = true)]
async fn client_that_has_canceled_its_call_is_not_asked() {
    let (server, [one, other]) = serve().await;
    let call = |name: &'static str| {
        rmcp::model::ClientRequest::CallToolRequest(rmcp::model::CallToolRequest::new(
            CallToolRequestParams::new(name),
        ))
    };
    let options = PeerRequestOptions::no_options();
    let canceled =
        one.client.send_cancellable_request(call("wait_and_ask"), options).await.unwrap();
    server.log.wait_for("wait_and_ask").await;
    let waiting = other.call_tool("wait_and_ask");
    let cancel = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        canceled.cancel(None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.gate.add_permits(2);
    };
    let (answer, ()) = soon(async { tokio::join!(waiting, cancel) }).await;
    // The shared call cannot ask its client, so the second client calls the tool by itself.
    assert_eq!(text_of(&answer.unwrap()), "Decline");
    let lines = server.log.lines();
    assert!(lines[1].contains("the client is gone"), "{lines:?}");
    assert_eq!([&*lines[0], &lines[2], &lines[3]], ["wait_and_ask", "wait_and_ask", "Decline"]);
}
