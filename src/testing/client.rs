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
use crate::{
    message::{ItemKind, Refusal, Reply, Request, ToolAnswer},
    suggest::{DidYouMean, nearest},
};

/// The maximum number of pages that are requested when the tools of a service are listed.
const MAX_TOOL_PAGES: usize = 1_000;

/// A panic message about a missing tool lists at most this many of the available tools.
const MAX_SHOWN: usize = 20;

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
/// borrow the service. The tool is called when the future is awaited.
///
/// # Panics
///
/// Panics if the reply is not a tool result but, for example, a JSON-RPC error. The panic message
/// contains the reply, and the location in the test from which this function was called. If the
/// tool does not exist, it also contains the tools that the service lists. Also panics if
/// `arguments` is neither an object nor null.
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
    let service = service.clone();
    let answer = answer(service.clone(), request(tool, arguments));
    let tool = tool.to_owned();
    async move {
        let why = match answer.await {
            Ok(ToolAnswer::Result(result)) => return result,
            Ok(answer) => explained(service, answer).await,
            Err(error) => format!("the service's error: {error}"),
        };
        panic!("`{tool}`, called at {place}, gave no result, but {why}")
    }
}

/// Calls a tool, and returns the JSON-RPC error with which the call is rejected. Use this function
/// if the test expects a rejection.
///
/// `arguments` is an object, or null for a call without arguments. The returned future does not
/// borrow the service. The tool is called when the future is awaited.
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
    let tools = all_tools(service.clone());
    async move {
        match tools.await {
            Ok(tools) => tools,
            Err(why) => panic!("the tools, listed at {place}{why}"),
        }
    }
}

/// Requests all pages of the service's tool list, and returns all tools.
///
/// # Errors
///
/// Returns an error message if the tools cannot be listed. It continues a sentence that begins with
/// `the tools`, as in `, have more than 1000 pages`.
async fn all_tools<S>(service: S) -> Result<Vec<Tool>, String>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    let mut tools = Vec::new();
    let mut request = Request::list_tools();
    for _ in 0..MAX_TOOL_PAGES {
        let reply = service.clone().oneshot(request).await.map_err(Into::into);
        let reply = reply.map_err(|error| format!(": the service's error: {error}"))?;
        let Some(page) = reply.tools() else {
            return Err(format!(", are not a list, but {reply:?}"));
        };
        tools.extend(page.tools.iter().cloned());
        match page.next_cursor.clone() {
            Some(cursor) => request = Request::list_tools_from(Some(cursor)),
            None => return Ok(tools),
        }
    }
    Err(format!(", have more than {MAX_TOOL_PAGES} pages"))
}

/// Builds the layers of a configuration file as one stack for a test. Scripted servers replace the
/// backends of the file.
///
/// The stack applies the `timeout` of each backend in the file. It ignores settings that describe
/// how to connect to a backend, such as `command` and `url`.
///
/// If the file has no backends, the stack wraps all servers in `servers`, and their tools have no
/// prefix. If two servers have a tool of the same name, calls go to the first server. The names of
/// the servers have no effect.
///
/// # Panics
///
/// Panics if the file has a backend, and `servers` has no server of this name. If the file has
/// backends, also panics if `servers` has a server with another name.
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
            let is_of_backend = |of: &str| config.backends().iter().any(|it| it.name() == of);
            let others: Vec<_> =
                servers.iter().map(|(of, _)| *of).filter(|of| !is_of_backend(of)).collect();
            match nearest(name, &others).or(others.first().copied()) {
                Some(other) => panic!(
                    "the backend `{name}` has no server, and the server `{other}` is of no \
                     backend: did you mean `{name}`?"
                ),
                None => panic!("the backend `{name}` has no server"),
            }
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

/// Describes an unexpected answer for a panic message. If the answer says that the tool does not
/// exist, adds the names of the tools that the service lists.
pub(super) async fn explained<S>(service: S, answer: ToolAnswer) -> String
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    use Refusal::{Unavailable, Unknown};

    let kind = ItemKind::Tool;
    let (missing, why) = match &answer {
        ToolAnswer::Refused(Unknown { kind: of, name }) if *of == kind => (name.to_string(), ""),
        ToolAnswer::Refused(Unavailable { kind: of, name }) if *of == kind => (
            name.to_string(),
            ": a tool that it calls may be missing, see the `warnings` of its layer",
        ),
        _ => return described(answer),
    };
    let described = described(answer) + why;
    let Ok(tools) = all_tools(service).await else { return described };
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    if names.contains(&&*missing) {
        return described;
    }
    let listed: Vec<_> = names.iter().take(MAX_SHOWN).map(|name| format!("`{name}`")).collect();
    let more = names.len() - listed.len();
    let listed = match (listed.join(", "), more) {
        (listed, _) if listed.is_empty() => "no tools".to_owned(),
        (listed, 0) => listed,
        (listed, more) => format!("{listed} and {more} more"),
    };
    format!("{described}; the service lists {listed}{}", DidYouMean(nearest(&missing, &names)))
}

fn described(answer: ToolAnswer) -> String {
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
