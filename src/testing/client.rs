//! Functions with which a test calls a service in the role of a client.

use std::panic::Location;

use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorData, Tool};
use serde_json::Value;
#[cfg(feature = "config")]
use tower::timeout::Timeout;
use tower::{BoxError, ServiceExt};
#[cfg(feature = "config")]
use tower_layer::Layer;
use tower_service::Service;

use crate::message::{Reply, Request, ToolAnswer};
#[cfg(feature = "config")]
use crate::{
    adapter::{
        Router,
        router::{Backend, Conflicts},
    },
    config::Config,
    stack::Stack,
    testing::Server,
};

/// The maximum number of pages that are requested from a tool list.
const MAX_TOOL_PAGES: usize = 1_000;

/// Creates a `tools/call` request for the tool `tool`. `arguments` is an object, or null for a call
/// without arguments.
///
/// # Panics
///
/// Panics if the arguments are neither an object nor null.
#[must_use]
#[track_caller]
pub fn request(tool: &str, arguments: Value) -> Request {
    let mut call = CallToolRequestParams::new(tool.to_owned());
    call.arguments = match arguments {
        Value::Object(arguments) => Some(arguments),
        Value::Null => None,
        other => panic!("arguments are an object or null, and not {other}"),
    };
    Request::call_tool_with(call)
}

/// Calls a tool and returns its result. The result can be a failure (`isError`).
///
/// `arguments` is an object, or null for a call without arguments. The returned future does not
/// borrow the service, and does nothing until it is awaited.
///
/// # Panics
///
/// Panics if the reply is not a tool result but, for example, a JSON-RPC error. The panic message
/// contains the reply, and the location in the test from which this function was called. Also
/// panics if `arguments` is neither an object nor null.
#[track_caller]
pub fn call<S>(
    service: &S,
    tool: &str,
    arguments: Value,
) -> impl Future<Output = CallToolResult> + use<S>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    let place = Location::caller();
    let answer = answer(service.clone(), request(tool, arguments));
    let tool = tool.to_owned();
    async move {
        let why = match answer.await {
            Ok(ToolAnswer::Result(result)) => return result,
            Ok(answer) => described(answer),
            Err(error) => format!("the service's error: {error}"),
        };
        panic!("`{tool}`, called at {place}, gave no result, but {why}")
    }
}

/// Calls a tool, and returns the JSON-RPC error with which the call is rejected. Use this function
/// if the test expects a rejection.
///
/// `arguments` is an object, or null for a call without arguments. The returned future does not
/// borrow the service, and does nothing until it is awaited.
///
/// # Panics
///
/// Panics if the reply is not a JSON-RPC error but, for example, a failed tool result (`isError`).
/// The panic message contains the reply, and the location in the test from which this function was
/// called. Also panics if `arguments` is neither an object nor null.
#[track_caller]
pub fn refused<S>(
    service: &S,
    tool: &str,
    arguments: Value,
) -> impl Future<Output = ErrorData> + use<S>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    let place = Location::caller();
    let answer = answer(service.clone(), request(tool, arguments));
    let tool = tool.to_owned();
    async move {
        let why = match answer.await {
            Ok(ToolAnswer::Error(error)) => return error,
            Ok(ToolAnswer::Refused(refusal)) => return refusal.to_error(),
            Ok(answer) => described(answer),
            Err(error) => format!("the service's error: {error}"),
        };
        panic!("`{tool}`, called at {place}, was not refused, but gave {why}")
    }
}

/// Requests all pages of the service's tool list, and returns all tools.
///
/// # Panics
///
/// Panics if the service returns an error, or if the list has more than 1000 pages.
#[track_caller]
pub fn listed<S>(service: &S) -> impl Future<Output = Vec<Tool>> + use<S>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    let place = Location::caller();
    let service = service.clone();
    async move {
        let mut tools = Vec::new();
        let mut request = Request::list_tools();
        for _ in 0..MAX_TOOL_PAGES {
            let reply = match service.clone().oneshot(request).await.map_err(Into::into) {
                Ok(reply) => reply,
                Err(error) => panic!("the tools, listed at {place}: the service's error: {error}"),
            };
            let Some(page) = reply.tools() else {
                panic!("the tools, listed at {place}, are not a list, but {reply:?}");
            };
            tools.extend(page.tools.iter().cloned());
            match page.next_cursor.clone() {
                Some(cursor) => request = Request::list_tools_from(Some(cursor)),
                None => return tools,
            }
        }
        panic!("the tools, listed at {place}, have more than {MAX_TOOL_PAGES} pages");
    }
}

/// Builds the stack of layers that a configuration file describes, for tests. Scripted servers
/// replace the backends of the file.
///
/// The timeouts for calls of backends apply as configured in the file. Settings that describe how
/// to connect to a backend are ignored.
///
/// A file can have no backends, because the program connects them in code. In this case, all
/// scripted servers are placed below the stack. Their names have no meaning, and their tools have
/// no prefix. If two servers have a tool of the same name, the first server receives the calls.
///
/// # Panics
///
/// Panics if a backend of the file has no server in `servers`. If the file has backends, also
/// panics if a server has the name of none of them.
#[cfg(feature = "config")]
#[must_use]
#[track_caller]
pub fn stack<'a>(
    config: &Config,
    servers: impl IntoIterator<Item = (&'a str, Server)>,
) -> Stack<Router> {
    let mut servers: Vec<_> = servers.into_iter().collect();
    let mut router = Router::builder().separator(config.router().separator());
    if config.backends().is_empty() {
        router = router.conflicts(Conflicts::Priority);
        if servers.is_empty() {
            servers.push(("tools", Server::new()));
        }
        for (name, server) in servers.drain(..) {
            router = router.backend(Backend::new(name, server));
        }
    } else {
        router = router.conflicts(config.router().conflicts());
    }
    for backend in config.backends() {
        let name = backend.name();
        let Some(place) = servers.iter().position(|(of, _)| *of == name) else {
            panic!("the backend `{name}` has no server");
        };
        let (_, server) = servers.remove(place);
        let service = backend.layer().layer(Timeout::new(server, backend.timeout()));
        let mut backend_of_router = Backend::new(name, service);
        if config.router().conflicts() == Conflicts::Prefix {
            backend_of_router = backend_of_router.prefix(backend.prefix());
        }
        router = router.backend(backend_of_router);
    }
    if let [(name, _), ..] = &servers[..] {
        panic!("the server `{name}` is of no backend of the file, or of one that has another");
    }
    match router.build() {
        Ok(router) => config.stack_layer().layer(router),
        Err(error) => panic!("{error}"),
    }
}

pub(super) async fn answer<S>(service: S, request: Request) -> Result<ToolAnswer, BoxError>
where
    S: Service<Request, Response = Reply>,
    S::Error: Into<BoxError>,
{
    let reply = service.oneshot(request).await.map_err(Into::into)?;
    Ok(reply.into_tool_answer())
}

pub(super) fn described(answer: ToolAnswer) -> String {
    let error = |error: ErrorData| {
        let data = error.data.map(|data| format!(", {data}")).unwrap_or_default();
        format!("the JSON-RPC error {}: {}{data}", error.code.0, error.message)
    };
    match answer {
        ToolAnswer::Result(result) => match serde_json::to_string(&result) {
            Ok(result) => format!("the result {result}"),
            Err(_) => format!("the result {result:?}"),
        },
        ToolAnswer::InputRequired(wanted) => format!("a question: {wanted:?}"),
        ToolAnswer::Task(id) => format!("the task `{id}`"),
        ToolAnswer::Error(data) => error(data),
        ToolAnswer::Refused(refusal) => error(refusal.to_error()),
        ToolAnswer::Invalid => "what does not answer a call".to_owned(),
    }
}
