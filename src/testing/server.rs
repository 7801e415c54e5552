//! A server of scripted tools for tests.

use std::{
    fmt,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use rmcp::model::{ClientRequest, ErrorData, JsonObject, ListToolsResult, Tool};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tower::BoxError;
use tower_service::Service;

use super::{Answer, RecordedCall, Status, answer::Given};
use crate::{
    message::{Reply, Request},
    mutex::lock,
};

/// A server with scripted tools, for tests. It records all calls of these tools.
///
/// A `Server` is a Tower service that is always ready. It can be wrapped in any layer. All clones
/// refer to the same server: pass one clone to a stack, and use another to inspect the calls. Each
/// tool call yields to the runtime at least once, like a call of a real server. See the [module
/// docs](super) for examples.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    made: Instant,
    state: Mutex<State>,
    /// A channel that wakes [`Server::until`] each time a call has arrived or ended.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    tools: Vec<Scripted>,
    page_size: Option<usize>,
    list_failure: Option<String>,
    lists: usize,
    requests: Vec<Arc<Request>>,
    calls: Vec<RecordedCall>,
    running: usize,
    most_running: usize,
}

struct Scripted {
    tool: Tool,
    is_listed: bool,
    answer: Answer,
    calls: usize,
}

/// A guard that exists while a call is running. When it is dropped, it records whether the call was
/// answered, was dropped or has panicked.
struct Watch {
    server: Server,
    place: usize,
    is_answered: bool,
}

// === impl Server ===

impl Server {
    /// Creates a server without tools.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool without annotations, whose input schema accepts any object.
    #[must_use]
    pub fn tool(self, name: &str, answer: impl Into<Answer>) -> Self {
        self.tool_as(Tool::new(name.to_owned(), "A scripted tool", any_object()), answer)
    }

    /// Adds a tool with a complete definition, for example to set its schemas and annotations. The
    /// server does not check arguments and results against the schemas.
    #[must_use]
    pub fn tool_as(self, tool: Tool, answer: impl Into<Answer>) -> Self {
        self.add(tool, answer);
        self
    }

    /// Adds a tool that answers with a text. Shorthand for [`tool`](Self::tool) with
    /// [`Answer::text`].
    #[must_use]
    pub fn says(self, tool: &str, text: impl Into<String>) -> Self {
        self.tool(tool, Answer::text(text))
    }

    /// Adds a tool that answers with structured content. Shorthand for [`tool`](Self::tool) with
    /// [`Answer::structured`].
    #[must_use]
    pub fn gives(self, tool: &str, content: Value) -> Self {
        self.tool(tool, Answer::structured(content))
    }

    /// Adds a tool that answers with the arguments of the call. Shorthand for [`tool`](Self::tool)
    /// with [`Answer::echo`].
    #[must_use]
    pub fn echoes(self, tool: &str) -> Self {
        self.tool(tool, Answer::echo())
    }

    /// Adds a tool that answers with a failed result (`isError`). Shorthand for
    /// [`tool`](Self::tool) with [`Answer::failure`].
    #[must_use]
    pub fn fails(self, tool: &str, why: impl Into<String>) -> Self {
        self.tool(tool, Answer::failure(why))
    }

    /// Adds a tool that never answers. Shorthand for [`tool`](Self::tool) with [`Answer::never`].
    #[must_use]
    pub fn hangs(self, tool: &str) -> Self {
        self.tool(tool, Answer::never())
    }

    /// Sets the number of tools on each page of the tool list. By default, one page contains all
    /// tools.
    ///
    /// # Panics
    ///
    /// Panics if the number of tools is zero.
    #[must_use]
    pub fn page_size(self, tools: usize) -> Self {
        assert!(tools > 0, "pages without tools have no end");
        self.with(|state| state.page_size = Some(tools));
        self
    }

    /// Adds a tool at the end of the tool list. An existing tool with the same name is removed.
    /// Tools can be added while the server is in use.
    ///
    /// `add` does not notify clients or layers of the change. To notify them, bump the
    /// [`Epoch`](crate::changes::Epoch) of the layers that wrap the server, or report the change
    /// through their [`Changes`](crate::changes::Changes).
    pub fn add(&self, tool: Tool, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.with(|state| {
            state.tools.retain(|other| other.tool.name != tool.name);
            state.tools.push(Scripted { tool, is_listed: true, answer, calls: 0 });
        });
    }

    /// Removes a tool, if it exists. Tools can be removed while the server is in use. Calls of the
    /// tool that are already running continue.
    pub fn remove(&self, tool: &str) {
        self.with(|state| state.tools.retain(|other| other.tool.name != tool));
    }

    /// Removes a tool from the tool list, if it exists. Clients that know its name can still call
    /// it. Tools can be unlisted while the server is in use.
    pub fn unlist(&self, tool: &str) {
        self.with(|state| {
            for scripted in state.tools.iter_mut().filter(|scripted| scripted.tool.name == tool) {
                scripted.is_listed = false;
            }
        });
    }

    /// Makes all requests for the tool list fail with a service error, until
    /// [`mend_list`](Self::mend_list) is called.
    pub fn break_list(&self, why: impl Into<String>) {
        let why = why.into();
        self.with(|state| state.list_failure = Some(why));
    }

    /// Makes requests for the tool list succeed again, after [`break_list`](Self::break_list) has
    /// made them fail.
    pub fn mend_list(&self) {
        self.with(|state| state.list_failure = None);
    }

    /// Returns all recorded calls in the order of arrival. Calls of tools that do not exist are
    /// included.
    #[must_use]
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.with(|state| state.calls.clone())
    }

    /// Returns the tool names of all recorded calls, in the order of arrival.
    #[must_use]
    pub fn called(&self) -> Vec<String> {
        self.tools_of(|_| true)
    }

    /// Returns the tool names of the calls that were dropped before they were answered, in the
    /// order of arrival.
    #[must_use]
    pub fn dropped(&self) -> Vec<String> {
        self.tools_of(|call| call.status() == Status::Dropped)
    }

    /// Returns the arguments of the last call of a tool, or null if this call had no arguments.
    /// Returns `None` if the tool was never called.
    #[must_use]
    pub fn arguments(&self, tool: &str) -> Option<Value> {
        self.with(|state| {
            let call = state.calls.iter().rev().find(|call| call.tool() == tool)?;
            Some(call.arguments())
        })
    }

    /// Returns the arrival times of all calls of a tool, as durations since the creation of the
    /// server.
    #[must_use]
    pub fn starts(&self, tool: &str) -> Vec<Duration> {
        self.with(|state| {
            state.calls.iter().filter(|call| call.tool() == tool).map(RecordedCall::at).collect()
        })
    }

    /// Returns the number of calls that are running at the moment.
    #[must_use]
    pub fn running(&self) -> usize {
        self.with(|state| state.running)
    }

    /// Returns the maximum number of calls that were running at the same time.
    #[must_use]
    pub fn most_running(&self) -> usize {
        self.with(|state| state.most_running)
    }

    /// Returns the number of `tools/list` requests that the server has received. Each page of the
    /// tool list is a separate request.
    #[must_use]
    pub fn lists(&self) -> usize {
        self.with(|state| state.lists)
    }

    /// Returns all requests that the server has received, except for `tools/list` requests, in the
    /// order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.with(|state| state.requests.iter().map(|request| (**request).clone()).collect())
    }

    /// Waits until the condition `is_so` is true. The server checks the condition immediately, and
    /// again whenever a call has arrived or ended. For example, a test of cancellation can wait
    /// until the tool is running, and later until its call has ended:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mcp_composite::testing::{self, Server};
    /// use serde_json::json;
    ///
    /// let server = Server::new().hangs("slow");
    /// tokio::select! {
    ///     _ = testing::call(&server, "slow", json!({})) => unreachable!(),
    ///     () = server.until(|server| server.running() == 1) => (),
    /// }
    /// server.until(|server| server.running() == 0).await;
    /// assert_eq!(server.dropped(), ["slow"]);
    /// # }
    /// ```
    pub async fn until(&self, mut is_so: impl FnMut(&Self) -> bool) {
        let mut changed = self.0.changed.subscribe();
        while !is_so(self) {
            if changed.changed().await.is_err() {
                unreachable!("the sender is here");
            }
        }
    }

    fn tools_of(&self, is_meant: impl Fn(&RecordedCall) -> bool) -> Vec<String> {
        self.with(|state| {
            let calls = state.calls.iter().filter(|call| is_meant(call));
            calls.map(|call| call.tool().to_owned()).collect()
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut lock(&self.0.state))
    }
}

impl Default for Server {
    fn default() -> Self {
        Self(Arc::new(Shared {
            made: Instant::now(),
            state: Mutex::default(),
            changed: watch::Sender::default(),
        }))
    }
}

impl Service<Request> for Server {
    type Response = Reply;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Reply, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if let ClientRequest::ListToolsRequest(list) = request.message() {
            let cursor = list.params.as_ref().and_then(|params| params.cursor.as_deref());
            let page = self.with(|state| state.list(cursor));
            return Box::pin(async move { page });
        }
        let request = Arc::new(request);
        self.with(|state| state.requests.push(request.clone()));
        if request.tool_call().is_none() {
            let reply = Reply::method_not_found(request.method().to_owned());
            return Box::pin(async move { Ok(reply) });
        }
        let call = RecordedCall::new(request, self.0.made.elapsed());
        let (place, given) = self.with(|state| state.begin(call));
        let mut watch = Watch { server: self.clone(), place, is_answered: false };
        self.0.changed.send_replace(());
        Box::pin(async move {
            // A real server does not answer immediately, and tests should reveal code that relies
            // on an immediate answer.
            tokio::task::yield_now().await;
            let given = given.await;
            watch.answered();
            given
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|state| {
            let tools: Vec<_> = state.tools.iter().map(|scripted| &scripted.tool.name).collect();
            f.debug_struct("Server")
                .field("tools", &tools)
                .field("calls", &state.calls)
                .finish_non_exhaustive()
        })
    }
}

// === impl State ===

impl State {
    /// Records a call that has arrived. Returns the index of the call in `calls`, and a future that
    /// resolves to the scripted answer.
    fn begin(&mut self, call: RecordedCall) -> (usize, BoxFuture<'static, Given>) {
        let scripted = self.tools.iter_mut().find(|scripted| scripted.tool.name == call.tool());
        let given = match scripted {
            Some(scripted) => {
                scripted.calls += 1;
                scripted.answer.give(call.clone(), scripted.calls - 1)
            }
            None => Answer::from(Reply::unknown_tool(call.tool().to_owned())).give(call.clone(), 0),
        };
        self.calls.push(call);
        self.running += 1;
        self.most_running = self.most_running.max(self.running);
        (self.calls.len() - 1, given)
    }

    fn list(&mut self, cursor: Option<&str>) -> Given {
        self.lists += 1;
        if let Some(why) = &self.list_failure {
            return Err(why.clone().into());
        }
        let tools: Vec<_> = self.tools.iter().filter(|scripted| scripted.is_listed).collect();
        let start = match cursor.map(str::parse) {
            None => 0,
            Some(Ok(start)) if start < tools.len() => start,
            Some(_) => return Ok(ErrorData::invalid_params("no such cursor", None).into()),
        };
        let end = self.page_size.map_or(tools.len(), |size| tools.len().min(start + size));
        let page = tools[start..end].iter().map(|scripted| scripted.tool.clone()).collect();
        let mut page = ListToolsResult::with_all_items(page);
        page.next_cursor = (end < tools.len()).then(|| end.to_string());
        Ok(page.into())
    }
}

// === impl Watch ===

impl Watch {
    fn answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let status = match self.is_answered {
            true => Status::Answered,
            false if std::thread::panicking() => Status::Panicked,
            false => Status::Dropped,
        };
        self.server.with(|state| {
            state.running -= 1;
            state.calls[self.place].status = status;
        });
        self.server.0.changed.send_replace(());
    }
}

fn any_object() -> JsonObject {
    JsonObject::from_iter([("type".to_owned(), "object".into())])
}
