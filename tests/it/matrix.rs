//! The combined settings of one file: filters, aliases, conflicts, composites, advertised tools and
//! search, over one server that is a child process and one over HTTP that requires a token.
//!
//! Each row is run twice: over servers in this process, and by the gateway over real ones.

use std::{future::ready, net::SocketAddr};

use axum::{
    extract::Request as HttpRequest, http::StatusCode, middleware::Next, middleware::from_fn,
    response::IntoResponse, serve::ListenerExt,
};
use mcp_composite::{
    adapter::{
        ServeService,
        router::{Backend, Conflicts, Router},
    },
    config::{Config, Gateway},
};
use rmcp::{
    RoleClient, ServiceError, ServiceExt,
    model::{CallToolRequestParams, ServerCapabilities, ServerConfig},
    service::Peer,
    transport::{
        TokioChildProcess,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::{net::TcpListener, process::Command, task::JoinSet};
use tower::Layer;

use crate::{
    http::send_at_once,
    programs::{PROGRAM, example},
    scripted::{Answer, Server, object},
    support::{Connection, Era, connect, soon},
};

const TOKEN: &str = "hunter2";

/// The backends, with each row's additions.
const ONE: &str = "[[backends]]
name = 'one'
command = '${ONE}'
args = ['good']
env = { WHO = 'one' }
";
const TWO: &str = "[[backends]]
name = 'two'
url = '${TWO}'
headers = { Authorization = 'Bearer ${TOKEN}' }
";

/// The tools of each of the two. `env` returns the name of the server, `echo` its arguments.
const TOOLS: [&str; 15] = [
    "echo",
    "hang",
    "die",
    "slow",
    "hold",
    "huge",
    "progress",
    "ask",
    "env",
    "pid",
    "calls",
    "cancelled",
    "meta",
    "touch",
    "add_tool",
];

/// A file, and its expected effects for clients.
struct Row {
    what: &'static str,
    /// The file's beginning, its additions to the first and second backend, and its end.
    file: [&'static str; 4],
    listed: Vec<String>,
    calls: Vec<(&'static str, Value, Result<Value, &'static str>)>,
}

/// A backend over HTTP that requires a token, until it is dropped.
struct Guarded {
    address: SocketAddr,
    _serving: JoinSet<()>,
}

/// Returns the prefixed names of the tools, except for renamed ones.
fn tools(prefix: &str, renamed: &[(&str, &str)]) -> Vec<String> {
    let name = |tool: &str| {
        let renamed = renamed.iter().find(|(own, _)| *own == tool);
        format!("{prefix}{}", renamed.map_or(tool, |(_, name)| name))
    };
    TOOLS.into_iter().map(name).collect()
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).into()
}

/// Returns arguments that request the name of the server.
fn who() -> Value {
    json!({ "name": "WHO" })
}

/// Returns the answer of a composite of one branch.
fn branch(id: &str, output: impl Into<Value>) -> Value {
    json!({ "branches": { id: { "status": "completed", "output": output.into() } } })
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    vec![
        Row {
            what: "nothing is advertised",
            file: ["", "", "", "[advertise]
                deny = ['*']
            "],
            listed: names([]),
            calls: vec![
                ("one_env", who(), Err("unknown tool `one_env`")),
                ("two_env", who(), Err("unknown tool `two_env`")),
            ],
        },
        Row {
            what: "a filter, and what is not advertised of what it leaves",
            file: ["", "expose_tools = ['e*']\n", "hide_tools = ['*', 're:pid']\n", "[advertise]
                deny = ['one_env']
            "],
            listed: names(["one_echo"]),
            calls: vec![
                ("one_echo", json!({ "text": "x" }), Ok(json!("x"))),
                ("one_env", who(), Err("unknown tool `one_env`")),
                ("one_pid", json!({}), Err("unknown tool `one_pid`")),
                ("two_env", who(), Err("unknown tool `two_env`")),
            ],
        },
        Row {
            what: "composites reach what is not advertised, and nothing that is filtered",
            file: ["", "hide_tools = ['pid']\n", "", "[advertise]
                deny = ['*']
                [[composite_tools]]
                name = 'both'
                description = 'Who is there'
                tools = ['one/env', 'two/env']
                [[composite_tools]]
                name = 'whose'
                description = 'Who is there, and which process it is'
                success = 'any'
                tools = ['one/pid', 'two/env']
                [[composite_tools]]
                name = 'process'
                description = 'Which process it is'
                tools = ['one/pid']
            "],
            listed: names(["both", "whose"]),
            calls: vec![
                ("both", who(), Ok(json!({ "branches": {
                    "one_env": { "status": "completed", "output": "one" },
                    "two_env": { "status": "completed", "output": "two" },
                } }))),
                ("whose", who(), Ok(json!({ "branches": {
                    "one_pid": { "status": "failed", "error": {
                        "kind": "protocol", "code": -32602, "message": "unknown tool `one_pid`",
                    } },
                    "two_env": { "status": "completed", "output": "two" },
                } }))),
                ("process", json!({}), Err("tool `process` is not available at the moment")),
                ("one_env", who(), Err("unknown tool `one_env`")),
                ("one_pid", json!({}), Err("unknown tool `one_pid`")),
            ],
        },
        Row {
            what: "conflicts are avoided by prefixes",
            file: ["[router]
                separator = '.'
            ", "", "prefix = 'second-'\n", ""],
            listed: [tools("one.", &[]), tools("second-", &[])].concat(),
            calls: vec![
                ("one.env", who(), Ok(json!("one"))),
                ("second-env", who(), Ok(json!("two"))),
                ("env", who(), Err("unknown tool `env`")),
            ],
        },
        Row {
            what: "conflicts are won by the first",
            file: ["[router]
                conflicts = 'priority'
            ", "hide_tools = ['echo']\n", "", ""],
            listed: names([
                "hang", "die", "slow", "hold", "huge", "progress", "ask", "env", "pid", "calls",
                "cancelled", "meta", "touch", "add_tool", "echo",
            ]),
            calls: vec![
                ("env", who(), Ok(json!("one"))),
                ("echo", json!({ "text": "x" }), Ok(json!("x"))),
                ("two_env", who(), Err("unknown tool `two_env`")),
            ],
        },
        Row {
            what: "conflicts are settled by hand",
            file: ["[router]
                conflicts = 'manual'
            ", "expose_tools = ['env', 'pid']\n", "expose_tools = ['env', 'pid']
                [[backends.aliases]]
                from = 'env'
                to = 'who'
            ", ""],
            listed: names(["env", "who"]),
            calls: vec![
                ("env", who(), Ok(json!("one"))),
                ("who", who(), Ok(json!("two"))),
                ("pid", json!({}), Err("tool `pid` is not available at the moment")),
            ],
        },
        Row {
            what: "aliases of a backend and above",
            file: ["", "[[backends.aliases]]
                from = 'env'
                to = 'variable'
                arguments = { name = { rename = 'variable' } }
            ", "", "[[aliases]]
                tool = 'two_env'
                name = 'who'
                arguments = { name = { hide = true, default = 'WHO' } }
            "],
            listed: [tools("one_", &[("env", "variable")]), tools("two_", &[])].concat().into_iter()
                .map(|name| if name == "two_env" { "who".to_owned() } else { name }).collect(),
            calls: vec![
                ("one_variable", json!({ "variable": "WHO" }), Ok(json!("one"))),
                ("one_env", who(), Err("unknown tool `one_env`")),
                ("who", json!({}), Ok(json!("two"))),
                ("who", who(), Err("invalid arguments for `who`: at `/name`: is not known to the tool")),
                ("two_env", who(), Err("unknown tool `two_env`")),
            ],
        },
        Row {
            what: "a filter above the router knows the aliases of backends",
            file: ["", "[[backends.aliases]]
                from = 'env'
                to = 'who'
            ", "", "[filter]
                expose_tools = ['one_who', 'two_echo']
            "],
            listed: names(["one_who", "two_echo"]),
            calls: vec![
                ("one_who", who(), Ok(json!("one"))),
                ("one_env", who(), Err("unknown tool `one_env`")),
                ("two_env", who(), Err("unknown tool `two_env`")),
            ],
        },
        Row {
            what: "search finds and calls composites of tools with aliases",
            file: ["", "[[backends.aliases]]
                from = 'env'
                to = 'who'
            ", "", "[advertise]
                mode = 'search'
                [[composite_tools]]
                name = 'everybody'
                description = 'Tells whose servers these are'
                tools = ['one/who', 'two/env']
            "],
            listed: names(["search_tools", "call_tool"]),
            calls: vec![
                ("search_tools", json!({ "query": "everybody" }), Ok(json!({
                    "total": 1,
                    "tools": ["everybody"],
                }))),
                ("call_tool", json!({ "name": "everybody", "arguments": who() }), Ok(json!({
                    "branches": {
                        "one_who": { "status": "completed", "output": "one" },
                        "two_env": { "status": "completed", "output": "two" },
                    },
                }))),
                ("call_tool", json!({ "name": "one_who", "arguments": who() }), Ok(json!("one"))),
                ("call_tool", json!({ "name": "one_env", "arguments": who() }), Err("unknown tool `one_env`")),
                ("everybody", json!({}), Err("invalid arguments for `everybody`: at `/name`: is required")),
            ],
        },
        Row {
            what: "a composite is checked by the schema of a part that nobody sees",
            file: ["", "expose_tools = ['slow']\n", "hide_tools = ['*']\n", "[advertise]
                deny = ['*']
                [validate]
                schema = 'strict'
                [[composite_tools]]
                name = 'wait'
                description = 'Waits'
                targets = [{ id = 'slow', tool = 'one/slow', arguments = { ms = '$input.ms' } }]
                [[composite_tools]]
                name = 'wrong'
                description = 'Waits for a word'
                targets = [{ id = 'slow', tool = 'one/slow', arguments = { ms = 'long' } }]
                [[composite_tools]]
                name = 'told'
                description = 'Waits for as long as a text says'
                strategy = 'pipeline'
                steps = [{ id = 'slow', tool = 'one/slow', arguments = { ms = '{{ input.digits }}{{ input.more }}' } }]
            "],
            listed: names(["wait", "wrong", "told"]),
            calls: vec![
                ("wait", json!({ "ms": 1 }), Ok(branch("slow", "at last"))),
                ("told", json!({ "digits": "1", "more": 1 }), Ok(json!("at last"))),
                ("told", json!({ "digits": "one", "more": 1 }), Ok(json!("step `slow` (tool `one_slow`) failed: invalid arguments for `one_slow`: at `/ms`: the value is not of type \"integer\""))),
                ("wait", json!({ "ms": "x" }), Err("invalid arguments for `wait`: at `/ms`: the value is not of type \"integer\"")),
                ("wrong", json!({}), Ok(json!({ "branches": { "slow": {
                    "status": "failed",
                    "error": {
                        "kind": "protocol", "code": -32602,
                        "message": "invalid arguments for `one_slow`: at `/ms`: the value is not of type \"integer\"",
                        "data": { "violations": [{ "path": "/ms", "message": "the value is not of type \"integer\"" }] },
                    },
                } } }))),
                ("one_slow", json!({ "ms": 1 }), Err("unknown tool `one_slow`")),
            ],
        },
        Row {
            what: "a backend's filter knows its own names and not its aliases",
            file: ["", "expose_tools = ['env', 'words']
                [[backends.aliases]]
                from = 'env'
                to = 'who'
                [[backends.aliases]]
                from = 'echo'
                to = 'words'
            ", "expose_tools = ['echo']\n", ""],
            listed: names(["one_who", "two_echo"]),
            calls: vec![
                ("one_who", who(), Ok(json!("one"))),
                ("one_words", json!({ "text": "x" }), Err("unknown tool `one_words`")),
                ("one_env", who(), Err("unknown tool `one_env`")),
            ],
        },
        Row {
            what: "all of it at once",
            file: ["[router]
                conflicts = 'priority'
            ", "expose_tools = ['env', 'echo']
                [[backends.aliases]]
                from = 'env'
                to = 'first'
            ", "hide_tools = ['re:[^e].*', 'a*']\n", "[validate]
                max_argument_bytes = 100
                schema = 'strict'
                [filter]
                hide_tools = ['nothing']
                [[aliases]]
                tool = 'env'
                name = 'second'
                arguments = { name = { hide = true, default = 'WHO' } }
                [advertise]
                mode = 'search'
                deny = ['*']
                [[composite_tools]]
                name = 'everybody'
                description = 'Tells whose servers these are'
                targets = [
                    { id = 'one', tool = 'first', arguments = { name = 'WHO' } },
                    { id = 'two', tool = 'second' },
                ]
            "],
            listed: names(["search_tools", "call_tool"]),
            calls: vec![
                ("search_tools", json!({ "query": "" }), Ok(json!({
                    "total": 1,
                    "tools": ["everybody"],
                }))),
                ("call_tool", json!({ "name": "everybody" }), Ok(json!({ "branches": {
                    "one": { "status": "completed", "output": "one" },
                    "two": { "status": "completed", "output": "two" },
                } }))),
                ("everybody", json!({}), Ok(json!({ "branches": {
                    "one": { "status": "completed", "output": "one" },
                    "two": { "status": "completed", "output": "two" },
                } }))),
                ("call_tool", json!({ "name": "first", "arguments": who() }), Err("unknown tool `first`")),
                ("call_tool", json!({ "name": "second" }), Err("unknown tool `second`")),
                ("echo", json!({ "text": "x" }), Err("unknown tool `echo`")),
                ("everybody", json!({ "name": "x".repeat(101) }), Err("the request has more than 100 bytes (`max_argument_bytes`)")),
            ],
        },
    ]
}

// === impl Row ===

impl Row {
    fn text(&self) -> String {
        let [first, one, two, last] = self.file;
        [first, ONE, one, TWO, two, last].concat()
    }

    async fn check(&self, client: &Peer<RoleClient>) {
        let what = self.what;
        let listed = soon(client.list_all_tools()).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|tool| &*tool.name).collect();
        assert_eq!(listed, self.listed, "{what}");
        for (tool, arguments, expected) in &self.calls {
            let answer = answer(client, tool, arguments).await;
            let answer = answer.as_ref().map_err(String::as_str);
            let expected = expected.as_ref().map_err(|error| *error);
            assert_eq!(answer, expected, "{what}: {tool} {arguments}");
        }
    }
}

/// Returns the answer of a tool, structured or as a text, or the error.
async fn answer(client: &Peer<RoleClient>, tool: &str, arguments: &Value) -> Result<Value, String> {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = Some(object(arguments.clone()));
    let result = match soon(client.call_tool(params)).await {
        Ok(result) => result,
        Err(ServiceError::McpError(error)) => return Err(error.message.into_owned()),
        Err(error) => panic!("{error}"),
    };
    let is_report = |answer: &Value| answer.get("steps").is_some();
    let Some(mut answer) = result.structured_content.filter(|answer| !is_report(answer)) else {
        return Ok(result.content[0].as_text().unwrap().text.clone().into());
    };
    // Of search results, only the names are compared.
    for found in answer.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        *found = found["name"].clone();
    }
    Ok(answer)
}

// === Servers in this process ===

/// A server that has the tools, and returns its name.
fn server(who: &'static str) -> Server {
    TOOLS.into_iter().fold(Server::new(), |server, name| {
        let (argument, kind) = match name {
            "env" => ("name", "string"),
            "slow" => ("ms", "integer"),
            _ => ("text", "string"),
        };
        let schema = json!({
            "type": "object", "properties": { argument: { "type": kind } }, "required": [argument],
        });
        let schema = if matches!(name, "env" | "slow" | "echo") { schema } else { json!({}) };
        let tool = rmcp::model::Tool::new(name, "A tool", object(schema));
        let answer = Answer::from_fn(move |call| {
            let given = call.arguments();
            ready(Answer::text(match call.tool() {
                "env" => who,
                "slow" => "at last",
                _ => given["text"].as_str().unwrap_or_default(),
            }))
        });
        server.tool_as(tool, answer)
    })
}

/// Connects to a stack of the file over servers in this process.
async fn in_process(config: &Config) -> Connection {
    let conflicts = config.router().conflicts();
    let mut router = Router::builder().separator(config.router().separator()).conflicts(conflicts);
    for (backend, who) in config.backends().iter().zip(["one", "two"]) {
        let mut routed = Backend::new(backend.name(), backend.layer().layer(server(who)));
        if conflicts == Conflicts::Prefix {
            routed = routed.prefix(backend.prefix());
        }
        router = router.backend(routed);
    }
    let router = router.build().unwrap();
    let base = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
    connect(ServeService::new(config.stack_layer().layer(router), base), Era::Modern).await
}

#[tokio::test(start_paused = true)]
async fn config_file_options_work_together() {
    for row in rows() {
        let config = Config::from_toml_str_with_env(&row.text(), |_| Some("http://x/".to_owned()));
        let connection = in_process(&config.unwrap()).await;
        row.check(connection.client.peer()).await;
    }
}

// === Real servers ===

impl Guarded {
    async fn new() -> Self {
        let base = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        let served = ServeService::new(server("two"), base);
        let service = StreamableHttpService::new(
            move || Ok(served.clone()),
            LocalSessionManager::default().into(),
            StreamableHttpServerConfig::default(),
        );
        let guard = from_fn(async |request: HttpRequest, next: Next| {
            let given = request.headers().get("authorization");
            if given.is_some_and(|given| given == &format!("Bearer {TOKEN}")) {
                next.run(request).await
            } else {
                StatusCode::UNAUTHORIZED.into_response()
            }
        });
        let app = axum::Router::new().fallback_service(service).layer(guard);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving
            .spawn(async move { axum::serve(listener.tap_io(send_at_once), app).await.unwrap() });
        Self { address, _serving: serving }
    }

    /// Returns the environment variables of the file.
    fn variables(&self, token: &str) -> [(&'static str, String); 3] {
        let program = example("misbehaving").display().to_string();
        let url = format!("http://{}/", self.address);
        [("ONE", program), ("TWO", url), ("TOKEN", token.to_owned())]
    }
}

#[tokio::test]
async fn gateway_applies_the_config_file_to_real_servers() {
    let guarded = Guarded::new().await;
    let folder = tempdir().unwrap();
    for (number, row) in rows().into_iter().enumerate() {
        let file = folder.path().join(format!("{number}.toml"));
        std::fs::write(&file, row.text()).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(&file).envs(guarded.variables(TOKEN));
        let gateway = ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap();
        row.check(gateway.peer()).await;
        gateway.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn backend_rejecting_its_token_loses_only_its_own_tools() {
    let guarded = Guarded::new().await;
    for (token, listed) in [
        (TOKEN, [tools("one_", &[]), tools("two_", &[])].concat()),
        ("wrong-token", tools("one_", &[])),
    ] {
        let variables = guarded.variables(token);
        let text = [ONE, TWO].concat();
        let config = Config::from_toml_str_with_env(&text, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
        });
        let gateway = Gateway::connect(&config.unwrap()).unwrap();
        let connection = connect(gateway.serve(ServerConfig::default()), Era::Legacy).await;
        let client = connection.client.peer();
        let names: Vec<_> = soon(client.list_all_tools()).await.unwrap();
        let names: Vec<_> = names.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, listed, "{token}");
        assert_eq!(answer(client, "one_env", &who()).await, Ok(json!("one")));
        let two = answer(client, "two_env", &who()).await;
        match two {
            Ok(two) => assert!(two == "two" && token == TOKEN),
            Err(error) => {
                assert_ne!(token, TOKEN, "{error}");
                assert!(error.contains("`two`") && !error.contains("wrong-token"), "{error}");
            }
        }
        gateway.close().await;
    }
}
