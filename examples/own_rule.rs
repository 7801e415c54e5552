//! A custom rule, and a hook that asks for approval before each tool call.
//!
//! `cargo run --example own_rule` prints the log of the hook for three calls. The server, the
//! client and the approver run in this process.

#![expect(clippy::print_stdout, reason = "it is an example")]

use std::ops::ControlFlow;

use mcp_composite::{
    adapter::{HandlerService, ServeService},
    intercept::{self, Intercept, Intercepted, Next},
    message::{Reply, Request},
};
use rmcp::{
    ServerHandler, ServiceExt,
    handler::server::wrapper::Parameters,
    model::{CallToolRequestParams, ContentBlock, JsonObject, ServerCapabilities, ServerConfig},
    schemars::{self, JsonSchema},
    serde::Deserialize,
    tool, tool_handler, tool_router,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};
use tower::{BoxError, ServiceBuilder, layer::layer_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (approver, questions) = mpsc::channel(16);
    let mut approvals = JoinSet::new();
    approvals.spawn(approve(questions));

    let stack = ServiceBuilder::new()
        .layer(intercept::from_fn(move |request, next| guard(approver.clone(), request, next)))
        .layer(layer_fn(|inner| Intercepted::new(NoKeys, inner)))
        .service(HandlerService::new(Shop));
    let capabilities = ServerCapabilities::builder().enable_tools().build();
    let server = ServeService::new(stack, ServerConfig::new(capabilities));

    // A client, at the other end of a pipe in memory.
    let (near, far) = tokio::io::duplex(4096);
    let (server, client) = tokio::join!(server.serve(near), ().serve(far));
    let (_server, client) = (server?, client?);

    // The hook has inserted the tenant.
    let orders = client.call_tool(CallToolRequestParams::new("orders")).await?;
    assert_eq!(text(&orders.content), "the orders of acme");
    // The rule has removed the key.
    let settings = client.call_tool(CallToolRequestParams::new("settings")).await?;
    assert_eq!(text(&settings.content), "region=eu key=***");
    // This call is not approved, and the client gets the error of a missing tool.
    let refused = client.call_tool(CallToolRequestParams::new("wipe")).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("unknown tool `wipe`")));

    client.cancel().await?;
    Ok(())
}

fn text(content: &[ContentBlock]) -> &str {
    content.first().and_then(ContentBlock::as_text).map_or("", |text| &text.text)
}

// The rule: it sees each request and reply, and never waits.

/// Removes keys from tool results.
#[derive(Clone)]
struct NoKeys;

impl Intercept for NoKeys {
    type Memo = ();

    fn on_request(&self, _: &mut Request) -> ControlFlow<Reply> {
        ControlFlow::Continue(())
    }

    fn on_reply(&self, (): (), reply: &mut Reply) {
        let blocks = reply.tool_result_mut().into_iter().flat_map(|result| &mut result.content);
        for block in blocks {
            if let ContentBlock::Text(text) = block {
                let words = text.text.split(' ');
                let words =
                    words.map(|word| if word.starts_with("key=") { "key=***" } else { word });
                text.text = words.collect::<Vec<_>>().join(" ");
            }
        }
    }
}

// The hook: it may wait, here for an answer from somewhere else.

/// A question to the approver.
struct Question {
    tool: String,
    answer: oneshot::Sender<bool>,
}

/// Forwards approved calls, with the tenant inserted, and records the outcome of each call.
async fn guard(
    approver: mpsc::Sender<Question>,
    mut request: Request,
    next: Next,
) -> Result<Reply, BoxError> {
    let began = Instant::now();
    let Some(call) = request.tool_call_mut() else {
        return next.run(request).await;
    };
    let tool = call.name.to_string();
    let (answer, approval) = oneshot::channel();
    approver.send(Question { tool: tool.clone(), answer }).await?;

    let (reply, outcome) = if approval.await? {
        // Replaces any value of the client.
        let arguments = call.arguments.get_or_insert_with(JsonObject::new);
        arguments.insert("tenant".to_owned(), "acme".into());
        let reply = next.run(request).await?;
        let outcome = if reply.error().is_some() { "refused below" } else { "answered" };
        (reply, outcome)
    } else {
        (Reply::unknown_tool(tool.clone()), "not approved")
    };
    println!("{tool:10} {outcome:14} {:?}", began.elapsed());
    Ok(reply)
}

/// Approves every tool except one; this could as well be a person, or a policy on another machine.
async fn approve(mut questions: mpsc::Receiver<Question>) {
    while let Some(Question { tool, answer }) = questions.recv().await {
        // The caller may have given up.
        let _ = answer.send(tool != "wipe");
    }
}

// The server.

struct Shop;

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "rmcp::serde")]
struct Tenant {
    /// The owner of the orders.
    tenant: String,
}

#[tool_router]
impl Shop {
    #[tool(description = "The orders of a tenant")]
    fn orders(&self, Parameters(Tenant { tenant }): Parameters<Tenant>) -> String {
        format!("the orders of {tenant}")
    }

    #[tool(description = "The settings")]
    fn settings(&self) -> String {
        "region=eu key=hunter2".to_owned()
    }

    #[tool(description = "Deletes everything")]
    fn wipe(&self) -> String {
        panic!("nobody approves of this")
    }
}

#[tool_handler]
impl ServerHandler for Shop {}
