//! Several backends as one service.

mod forwarding;
mod listing;
mod naming;
mod outages;
#[cfg(feature = "remote")]
mod remote;
mod server_info;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_composite::{
    adapter::router::{Backend, Router},
    message::{BackendError, BackendErrorKind, Context, Reply, Request},
};
use rmcp::model::{
    CallToolResult, ClientRequest, ErrorData, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, Prompt, ReadResourceResult,
    Resource, ResourceContents, ResourceTemplate, ServerResult, Tool,
};
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt, service_fn};

use crate::scripted::search_tool;

/// A server with the content that a test sets, which records its requests; clones are the same
/// server.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Has>>);

#[derive(Default)]
struct Has {
    tools: Vec<Tool>,
    prompts: Vec<String>,
    resources: Vec<String>,
    templates: Vec<String>,
    /// The methods that it does not support.
    lacks: HashSet<&'static str>,
    /// How it reports an unsupported method.
    says_so: SaysSo,
    page_size: Option<usize>,
    delay: Duration,
    down: bool,
    refuses: bool,
    /// The result of its tools.
    answer: Option<CallToolResult>,
    requests: Vec<String>,
}

/// How a server reports an unsupported method.
#[derive(Clone, Copy, Debug, Default)]
enum SaysSo {
    #[default]
    Replying,
    /// As a remote server does.
    Failing,
    /// As a remote server behind another service does.
    FailingWithin,
}

#[derive(Debug, thiserror::Error)]
#[error("something is in between")]
struct Between(#[source] BackendError);

// === impl Server ===

impl Server {
    fn tools(names: &[&str]) -> Self {
        Self::default().set(|has| has.tools = names.iter().map(|name| search_tool(name)).collect())
    }

    fn set(self, change: impl FnOnce(&mut Has)) -> Self {
        self.with(change);
        self
    }

    fn with<T>(&self, look: impl FnOnce(&mut Has) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    fn backend(&self, name: &str) -> Backend {
        let server = self.clone();
        Backend::new(name, service_fn(move |request| server.clone().answer(request)))
    }

    /// Returns the methods and names of its requests.
    fn take_requests(&self) -> Vec<String> {
        self.with(|has| std::mem::take(&mut has.requests))
    }

    async fn answer(self, request: Request) -> Result<Reply, BoxError> {
        let message = serde_json::to_value(request.message()).unwrap();
        let method = request.method().to_owned();
        let params = &message["params"];
        let subject = ["/name", "/uri", "/ref/name", "/ref/uri", "/cursor"]
            .iter()
            .find_map(|pointer| params.pointer(pointer).and_then(Value::as_str));
        let delay = self.with(|has| {
            has.requests.push(format!("{method} {}", subject.unwrap_or("-")));
            has.delay
        });
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.with(|has| {
            if has.down {
                return Err("connection to 10.0.0.7 refused".into());
            }
            if has.refuses {
                return Ok(ErrorData::internal_error("not now", None).into());
            }
            if has.lacks.contains(&*method) {
                let error = BackendError::new("far", BackendErrorKind::Unsupported);
                return match has.says_so {
                    SaysSo::Replying => Ok(Reply::method_not_found(method)),
                    SaysSo::Failing => Err(error.into()),
                    SaysSo::FailingWithin => Err(Between(error).into()),
                };
            }
            Ok(has.reply(request.message(), subject.unwrap_or_default()))
        })
    }
}

// === impl Has ===

impl Has {
    fn reply(&self, message: &ClientRequest, subject: &str) -> Reply {
        match message {
            ClientRequest::ListToolsRequest(_) => {
                let (items, next) = self.page(&self.tools, subject);
                let mut list = ListToolsResult::with_all_items(items);
                list.next_cursor = next;
                list.into()
            }
            ClientRequest::ListPromptsRequest(_) => {
                let prompt = |name: &String| Prompt::new(name, Some("A prompt"), None);
                let prompts = self.prompts.iter().map(prompt).collect::<Vec<_>>();
                let (items, next) = self.page(&prompts, subject);
                let mut list = ListPromptsResult::with_all_items(items);
                list.next_cursor = next;
                ServerResult::ListPromptsResult(list).into()
            }
            ClientRequest::ListResourcesRequest(_) => {
                let resource = |uri: &String| Resource::new(uri, "a resource");
                let resources = self.resources.iter().map(resource).collect();
                let list = ListResourcesResult::with_all_items(resources);
                ServerResult::ListResourcesResult(list).into()
            }
            ClientRequest::ListResourceTemplatesRequest(_) => {
                let template = |uri: &String| ResourceTemplate::new(uri, "a template");
                let templates = self.templates.iter().map(template).collect();
                let list = ListResourceTemplatesResult::with_all_items(templates);
                ServerResult::ListResourceTemplatesResult(list).into()
            }
            ClientRequest::CallToolRequest(_) => {
                if self.tools.iter().any(|tool| tool.name == subject) {
                    self.answer.clone().unwrap_or_else(|| CallToolResult::success(vec![])).into()
                } else {
                    Reply::unknown_tool(subject.to_owned())
                }
            }
            ClientRequest::GetPromptRequest(_) => {
                ServerResult::GetPromptResult(GetPromptResult::new(vec![])).into()
            }
            ClientRequest::ReadResourceRequest(_) => {
                let contents = vec![ResourceContents::text("content", subject)];
                ServerResult::ReadResourceResult(ReadResourceResult::new(contents)).into()
            }
            ClientRequest::CompleteRequest(_) => {
                ServerResult::CompleteResult(Default::default()).into()
            }
            _ => ErrorData::internal_error("not scripted", None).into(),
        }
    }

    fn page<T: Clone>(&self, items: &[T], cursor: &str) -> (Vec<T>, Option<String>) {
        let start = cursor.parse().unwrap_or(0);
        let end = items.len().min(start + self.page_size.unwrap_or(usize::MAX - start));
        (items[start..end].to_vec(), (end < items.len()).then(|| end.to_string()))
    }
}

fn router(backends: impl IntoIterator<Item = Backend>) -> Router {
    let builder = Router::builder();
    backends.into_iter().fold(builder, |builder, backend| builder.backend(backend)).build().unwrap()
}

/// Returns a request as written by a client.
fn request(method: &str, params: &Value) -> Request {
    let message: ClientRequest =
        serde_json::from_value(json!({ "method": method, "params": params })).unwrap();
    Request::new(message, Context::default())
}

async fn ask(router: &Router, method: &str, params: Value) -> Reply {
    router.clone().oneshot(request(method, &params)).await.expect("an answer")
}

/// Returns the code and message of an error.
async fn error_of(router: &Router, method: &str, params: Value) -> Option<(i32, String)> {
    let reply = ask(router, method, params).await;
    reply.error().map(|error| (error.code.0, error.message.to_string()))
}

async fn call(router: &Router, tool: &str) -> Option<(i32, String)> {
    error_of(router, "tools/call", json!({ "name": tool })).await
}

/// Returns the names or URIs on one page of a list.
async fn names(router: &Router, method: &str) -> Vec<String> {
    let reply = ask(router, method, json!({})).await;
    let list = serde_json::to_value(reply.into_result().expect("a list")).unwrap();
    let (items, key) = match method {
        "tools/list" => ("tools", "name"),
        "prompts/list" => ("prompts", "name"),
        "resources/list" => ("resources", "uri"),
        _ => ("resourceTemplates", "uriTemplate"),
    };
    let items = list[items].as_array().expect("items");
    items.iter().map(|item| item[key].as_str().expect("a key").to_owned()).collect()
}

async fn tools(router: &Router) -> Vec<String> {
    names(router, "tools/list").await
}

fn problems(router: &Router) -> Vec<String> {
    router.problems().iter().map(ToString::to_string).collect()
}
