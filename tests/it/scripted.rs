//! A server of scripted tools that notes what happens to its calls.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use mcp_composite::message::{Reply, Request};
use rmcp::model::{
    CallToolResult, ContentBlock, ErrorData, JsonObject, ListToolsResult, Tool, ToolAnnotations,
};
use serde_json::{Value, json};
use tower::{BoxError, Service};

pub(crate) type Answer = Result<Reply, BoxError>;
type Script = Arc<dyn Fn(Request) -> BoxFuture<'static, Answer> + Send + Sync>;

/// A Tower service with scripted tools; clones are the same server.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    tools: Vec<Tool>,
    scripts: HashMap<String, Script>,
    page_size: Option<usize>,
    broken_list: bool,
    calls: Vec<Request>,
    lists: usize,
    dropped: Vec<String>,
    running: usize,
    most_running: usize,
}

/// Notes whether a call was dropped before it was answered.
struct Watch {
    server: Server,
    tool: String,
    answered: bool,
}

pub(crate) fn text(text: impl Into<String>) -> Answer {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

pub(crate) fn failure(text: impl Into<String>) -> Answer {
    Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into())
}

pub(crate) fn error(code: i32, message: &'static str, data: Option<Value>) -> Answer {
    Ok(ErrorData::new(rmcp::model::ErrorCode(code), message, data).into())
}

pub(crate) fn object(value: Value) -> JsonObject {
    let Value::Object(object) = value else { panic!("no object: {value}") };
    object
}

pub(crate) fn call(tool: &str, arguments: Value) -> Request {
    let params = rmcp::model::CallToolRequestParams::new(tool.to_owned());
    Request::call_tool_with(params.with_arguments(object(arguments)))
}

/// A read-only tool that takes an optional `q`.
pub(crate) fn search_tool(name: &str) -> Tool {
    let schema = json!({ "type": "object", "properties": { "q": { "type": "string" } } });
    Tool::new(name.to_owned(), "Searches", object(schema))
        .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

// === impl Server ===

impl Server {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a tool that takes an optional `q`.
    pub(crate) fn tool<F, R>(self, name: &str, script: F) -> Self
    where
        F: Fn(Request) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        self.tool_as(search_tool(name), script)
    }

    /// Adds a tool.
    pub(crate) fn tool_as<F, R>(self, tool: Tool, script: F) -> Self
    where
        F: Fn(Request) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        self.add(tool, script);
        self
    }

    pub(crate) fn add<F, R>(&self, tool: Tool, script: F)
    where
        F: Fn(Request) -> R + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let script: Script = Arc::new(move |request| Box::pin(script(request)));
        self.state(|state| {
            state.scripts.insert(tool.name.to_string(), script);
            state.tools.retain(|other| other.name != tool.name);
            state.tools.push(tool);
        });
    }

    /// Adds a tool that answers with `answer` at once.
    pub(crate) fn says(self, name: &str, answer: &'static str) -> Self {
        self.tool(name, move |_| async move { text(answer) })
    }

    /// Adds a tool that answers with `answer` after some time.
    pub(crate) fn says_after(self, name: &str, after: u64, answer: &'static str) -> Self {
        self.tool(name, move |_| async move {
            tokio::time::sleep(Duration::from_millis(after)).await;
            text(answer)
        })
    }

    /// Adds a tool that fails.
    pub(crate) fn fails(self, name: &str, why: &'static str) -> Self {
        self.tool(name, move |_| async move { failure(why) })
    }

    /// Adds a tool that never answers.
    pub(crate) fn hangs(self, name: &str) -> Self {
        self.tool(name, |_| futures::future::pending())
    }

    /// Adds a tool that gives back its arguments as structured content.
    pub(crate) fn echoes(self, name: &str) -> Self {
        self.tool(name, echo)
    }

    /// Lists tools in pages.
    pub(crate) fn page_size(self, size: usize) -> Self {
        self.state(|state| state.page_size = Some(size));
        self
    }

    pub(crate) fn remove(&self, name: &str) {
        self.state(|state| state.tools.retain(|tool| tool.name != name));
    }

    /// Makes listing tools fail, or work again.
    pub(crate) fn break_list(&self, broken: bool) {
        self.state(|state| state.broken_list = broken);
    }

    /// The requests that reached tools.
    pub(crate) fn calls(&self) -> Vec<Request> {
        self.state(|state| state.calls.clone())
    }

    /// The tools that were called, in order.
    pub(crate) fn called(&self) -> Vec<String> {
        self.calls().iter().filter_map(|call| Some(call.tool_call()?.name.to_string())).collect()
    }

    /// The arguments with which a tool was last called.
    pub(crate) fn arguments(&self, tool: &str) -> Option<Value> {
        let calls = self.calls();
        let call =
            calls.iter().rev().filter_map(Request::tool_call).find(|call| call.name == tool)?;
        Some(call.arguments.clone().map_or(Value::Null, Value::Object))
    }

    /// How many pages of tools were asked for.
    pub(crate) fn lists(&self) -> usize {
        self.state(|state| state.lists)
    }

    /// The tools whose calls were dropped before they answered, sorted.
    pub(crate) fn dropped(&self) -> Vec<String> {
        let mut dropped = self.state(|state| state.dropped.clone());
        dropped.sort();
        dropped
    }

    /// How many calls run.
    pub(crate) fn running(&self) -> usize {
        self.state(|state| state.running)
    }

    /// How many calls ran at the same time at most.
    pub(crate) fn most_running(&self) -> usize {
        self.state(|state| state.most_running)
    }

    fn state<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().expect("nothing panics here"))
    }

    fn list(&self, request: &Request) -> Answer {
        self.state(|state| {
            state.lists += 1;
            if state.broken_list {
                return Err("connection to 10.0.0.7 refused".into());
            }
            let cursor = match request.message() {
                rmcp::model::ClientRequest::ListToolsRequest(list) => {
                    list.params.as_ref().and_then(|params| params.cursor.clone())
                }
                _ => None,
            };
            let start: usize = cursor.map_or(0, |cursor| cursor.parse().expect("a cursor of ours"));
            let size = state.page_size.unwrap_or(usize::MAX);
            let end = state.tools.len().min(start.saturating_add(size));
            let mut page = ListToolsResult::with_all_items(state.tools[start..end].to_vec());
            page.next_cursor = (end < state.tools.len()).then(|| end.to_string());
            Ok(page.into())
        })
    }
}

pub(crate) async fn echo(request: Request) -> Answer {
    let arguments = request.tool_call().and_then(|call| call.arguments.clone()).unwrap_or_default();
    Ok(CallToolResult::structured(arguments.into()).into())
}

impl Service<Request> for Server {
    type Response = Reply;
    type Error = BoxError;
    type Future = BoxFuture<'static, Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if request.lists_tools() {
            let answer = self.list(&request);
            return Box::pin(async move { answer });
        }
        let Some(tool) = request.tool_call().map(|call| call.name.to_string()) else {
            let method = request.method().to_owned();
            self.state(|state| state.calls.push(request));
            return Box::pin(async move { Ok(Reply::method_not_found(method)) });
        };
        let script = self.state(|state| {
            state.calls.push(request.clone());
            state.running += 1;
            state.most_running = state.most_running.max(state.running);
            state.scripts.get(&tool).cloned()
        });
        let mut watch = Watch { server: self.clone(), tool, answered: false };
        Box::pin(async move {
            // A real server answers later than at once.
            tokio::task::yield_now().await;
            let answer = match script {
                Some(script) => script(request).await,
                None => Ok(Reply::unknown_tool(watch.tool.clone())),
            };
            watch.done();
            answer
        })
    }
}

impl Watch {
    fn done(&mut self) {
        self.answered = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let (tool, answered) = (self.tool.clone(), self.answered);
        self.server.state(|state| {
            state.running -= 1;
            if !answered {
                state.dropped.push(tool);
            }
        });
    }
}
