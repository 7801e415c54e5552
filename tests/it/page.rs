//! The page of the program, as HTTP requests see it. `tests/browser` tests it in a browser.

use std::{fs, path::Path, process::Stdio};

use mcp_composite::testing::{self, Server};
use rmcp::{
    RoleClient, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, GetTaskParams,
        Implementation, TaskStatus,
    },
    service::RunningService,
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
};

use crate::{
    programs::{PROGRAM, example},
    support::{soon, until},
};

/// A program that serves a page.
struct Served {
    child: Child,
    errors: Lines<BufReader<ChildStderr>>,
    /// The host and port of the page.
    page: String,
}

const FILE: &str = "\
[[backends]]
name = 'shop'
command = '${SHOP}'
args = ['catalogue']
env = { TOKEN = 'hunter2-hunter2' }

[[backends]]
name = 'away'
url = 'http://127.0.0.1:1/hunter2-hunter2'

[[composite_tools]]
name = 'offer'
description = 'The token is hunter2-hunter2'
strategy = 'pipeline'
steps = [{ id = 'price', tool = 'shop/price', arguments = { article = '$input.article' } }]
";

/// Returns a folder with a file of two backends that share a secret.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tools.toml"), FILE).unwrap();
    folder
}

// === impl Served ===

impl Served {
    async fn start(folder: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.current_dir(folder).env("SHOP", example("shop")).env_remove("RUST_LOG");
        command.args(["serve", "tools.toml", "--ui", "127.0.0.1:0"]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut served = Self { child, errors, page: String::new() };
        let url = served.after("serving a page at http://").await;
        url.trim_end_matches('/').clone_into(&mut served.page);
        served
    }

    /// Waits for a line of standard error with this text, and returns the rest of the line.
    async fn after(&mut self, text: &str) -> String {
        soon(async {
            loop {
                let line = self.errors.next_line().await.unwrap().unwrap();
                if let Some((_, rest)) = line.split_once(text) {
                    return rest.to_owned();
                }
            }
        })
        .await
    }

    /// Sends a request, and returns the status and the rest of the response.
    async fn request(&self, method: &str, path: &str, headers: &str) -> (u16, String) {
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        let request =
            format!("{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
        let mut stream = TcpStream::connect(&self.page).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        soon(stream.read_to_string(&mut response)).await.unwrap();
        let (line, rest) = response.split_once("\r\n").unwrap();
        (line.split(' ').nth(1).unwrap().parse().unwrap(), rest.to_owned())
    }

    async fn json(&self, path: &str) -> Value {
        let (status, response) = self.request("GET", path, "").await;
        assert_eq!(status, 200, "{response}");
        serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Returns the runs that a page receives when it is opened.
    async fn runs(&self) -> Vec<Value> {
        let request = "GET /api/events HTTP/1.0\r\nHost: localhost\r\n\r\n";
        let mut stream = TcpStream::connect(&self.page).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        soon(async {
            loop {
                let line = lines.next_line().await.unwrap().unwrap();
                if let Some(data) = line.strip_prefix("data: ") {
                    let data: Value = serde_json::from_str(data).unwrap();
                    return data["runs"].as_array().unwrap().clone();
                }
            }
        })
        .await
    }

    /// Asks the program to end, and returns whether it succeeded.
    async fn stop(mut self) -> bool {
        crate::programs::signal(self.child.id().unwrap().into(), "TERM");
        soon(self.child.wait()).await.unwrap().success()
    }
}

async fn client(url: &str) -> RunningService<RoleClient, ()> {
    ().serve(StreamableHttpClientTransport::from_uri(url)).await.unwrap()
}

async fn offer(client: &RunningService<RoleClient, ()>) {
    offer_of(client, "hunter2-hunter2").await;
}

async fn offer_of(client: &RunningService<RoleClient, ()>, article: &str) {
    let article = json!({ "article": article });
    let call =
        CallToolRequestParams::new("offer").with_arguments(article.as_object().unwrap().clone());
    let result = client.call_tool(call).await.unwrap();
    assert_ne!(result.is_error, Some(true), "{result:?}");
}

#[tokio::test]
async fn page_answers_only_requests_of_this_machine() {
    let folder = folder();
    // Over stdio, too.
    let served = Served::start(folder.path(), &[]).await;
    for (method, path, headers, status) in [
        ("GET", "/", "", 200),
        ("HEAD", "/page.js", "", 200),
        ("GET", "/api/about", "Host: evil.example\r\n", 403),
        ("GET", "/", "Host: localhost.evil.example\r\n", 403),
        ("GET", "/api/about", "Origin: https://evil.example\r\n", 403),
        ("GET", "/api/about", "Sec-Fetch-Site: cross-site\r\n", 403),
        ("POST", "/api/about", "Content-Length: 0\r\n", 405),
        ("GET", "/api/runs/unknown/cancel", "", 405),
        ("POST", "/api/runs/unknown/cancel", "Content-Length: 0\r\n", 404),
        ("POST", "/api/runs/unknown/cancel", "Origin: https://evil.example\r\n", 403),
        ("POST", "/api/runs/unknown/cancel", "Sec-Fetch-Site: cross-site\r\n", 403),
        ("GET", "/api/runs/unknown", "", 404),
        ("GET", "/../Cargo.toml", "", 404),
    ] {
        let (got, response) = served.request(method, path, headers).await;
        assert_eq!(got, status, "{method} {path} {headers}: {response}");
        let policy = "content-security-policy: default-src 'none'; script-src 'self'";
        assert!(response.contains(policy), "{response}");
        assert!(!response.contains("access-control-allow"), "{response}");
    }
    assert!(served.stop().await);
}

#[tokio::test]
async fn secrets_are_neither_on_the_page_nor_in_a_recording() {
    let folder = folder();
    let options = ["--http", "127.0.0.1:0", "--show-data", "--record", "runs.ndjson"];
    let mut served = Served::start(folder.path(), &options).await;
    let url = served.after("mcp_composite::serve: serving ").await;
    offer(&client(&url).await).await;
    let runs = served.runs().await;
    assert_eq!(runs[0]["composite"], "offer");
    let run = served.json(&format!("/api/runs/{}", runs[0]["id"].as_str().unwrap())).await;
    assert_eq!(run["run"]["arguments"], json!({ "article": "***" }));
    let attempt = &run["run"]["branches"][0]["attempts"][0];
    assert_eq!(attempt["arguments"], json!({ "article": "***" }));
    let catalog = served.json("/api/catalog").await;
    let backends = served.json("/api/backends").await;
    assert_eq!(backends[1]["is_connected"], false);
    let offer = catalog["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "offer");
    assert_eq!(offer.unwrap()["description"], "The token is ***");
    assert!(served.stop().await);
    let recording = fs::read_to_string(folder.path().join("runs.ndjson")).unwrap();
    assert_eq!(recording.lines().count(), 3, "{recording}");
    for text in [&run, &catalog, &backends].map(Value::to_string).iter().chain([&recording]) {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn recording_is_replayed_with_the_results_of_its_tools() {
    let folder = folder();
    let options = ["--http", "127.0.0.1:0", "--show-data", "--record", "runs.ndjson"];
    let mut served = Served::start(folder.path(), &options).await;
    let url = served.after("mcp_composite::serve: serving ").await;
    let client = client(&url).await;
    offer_of(&client, "b10").await;
    offer_of(&client, "b1000").await;
    assert!(served.stop().await);
    let server = Server::replay(folder.path().join("runs.ndjson")).unwrap();
    let price = async |article: &str| {
        let result = testing::call(&server, "shop_price", json!({ "article": article })).await;
        result.content[0].as_text().unwrap().text.clone()
    };
    assert_eq!((&*price("b1000").await, &*price("b10").await), ("10 €", "8 €"));
}

#[tokio::test]
async fn runs_and_tools_are_those_of_their_view() {
    let folder = folder();
    let view = "[[views]]\npath = '/team-a'\nfilter.expose_tools = ['shop_price']\n";
    fs::write(folder.path().join("tools.toml"), FILE.to_owned() + view).unwrap();
    let options = ["--http", "127.0.0.1:0", "--record", "runs.ndjson"];
    let mut served = Served::start(folder.path(), &options).await;
    let url = served.after("mcp_composite::serve: serving ").await;
    offer(&client(&url).await).await;
    offer(&client(&url.replace("/mcp", "/team-a")).await).await;
    let runs = served.runs().await;
    assert_eq!((&runs[0]["view"], &runs[1]["view"]), (&Value::Null, &json!("/team-a")));
    let run = served.json(&format!("/api/runs/{}", runs[1]["id"].as_str().unwrap())).await;
    assert_eq!(run["run"]["view"], "/team-a");
    let catalog = served.json("/api/catalog").await;
    let own = &catalog["views"][0];
    assert_eq!((&catalog["view"], &own["view"]), (&Value::Null, &json!("/team-a")));
    let seen = |catalog: &Value| {
        let tools = catalog["tools"].as_array().unwrap().iter();
        let seen = tools.filter(|tool| tool["hidden_by"].is_null());
        seen.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(seen(own), ["offer", "shop_price"]);
    assert!(seen(&catalog).len() > 2);
    assert_eq!(own["composites"][0]["name"], "offer");
    assert!(served.stop().await);
    let recording = fs::read_to_string(folder.path().join("runs.ndjson")).unwrap();
    // The header, the composites, and two runs.
    let lines: Vec<Value> =
        recording.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["composites"][1]["view"], "/team-a");
    assert_eq!((&lines[2]["view"], &lines[3]["view"]), (&Value::Null, &json!("/team-a")));
}

/// Runs a command for the runs on a page. Returns whether it succeeded, and its output.
async fn runs_command(served: &Served, arguments: &[&str]) -> (bool, String) {
    let arguments = [&["runs", "--ui", &*served.page], arguments].concat();
    let output = crate::programs::run(&arguments).await;
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn runs_are_listed_shown_and_cancelled_by_commands() {
    let folder = folder();
    let slow = "
[[composite_tools]]
name = 'slow'
description = 'Waits for an hour between two articles'
strategy = 'workflow'

[[composite_tools.steps]]
id = 'prices'
type = 'for_each'
collection = '$input.articles'
delay = '1h'
max_parallel = 1
tool = 'shop/price'
arguments = { article = '$item' }
";
    fs::write(folder.path().join("tools.toml"), FILE.to_owned() + slow).unwrap();
    let mut served = Served::start(folder.path(), &["--http", "127.0.0.1:0"]).await;
    let url = served.after("mcp_composite::serve: serving ").await;
    let client = client(&url).await;
    offer_of(&client, "b10").await;
    let arguments = json!({ "articles": ["b10", "b1000"] }).as_object().unwrap().clone();
    let call = client.call_tool(CallToolRequestParams::new("slow").with_arguments(arguments));
    let operator = async {
        let mut listed = Value::Null;
        until(async || {
            let (_, list) = runs_command(&served, &["list", "--open", "--json"]).await;
            listed = serde_json::from_str(&list).unwrap();
            let run = &listed[0];
            run["composite"] == "slow" && run["branches"].as_u64() > Some(1)
        })
        .await;
        assert_eq!(listed.as_array().unwrap().len(), 1);
        let id = listed[0]["id"].as_str().unwrap().to_owned();
        let (_, list) = runs_command(&served, &["list"]).await;
        let lines: Vec<_> = list.lines().collect();
        assert_eq!(lines.len(), 3, "{list}");
        assert!(lines[1].contains("completed") && lines[1].ends_with("offer"), "{list}");
        assert!(lines[2].starts_with(&id) && lines[2].contains("running"), "{list}");
        let (_, details) = runs_command(&served, &["show", &id]).await;
        assert!(details.starts_with(&format!("slow  {id}  running")), "{details}");
        assert!(details.contains("prices[0]") && details.contains("1 calls"), "{details}");
        let cancelled = runs_command(&served, &["cancel", &id]).await;
        assert_eq!(cancelled, (true, format!("cancelled the run {id}\n")));
        id
    };
    let (result, id) = soon(async { tokio::join!(call, operator) }).await;
    let result = result.unwrap();
    let text = &result.content[0].as_text().unwrap().text;
    assert_eq!((result.is_error, &**text), (Some(true), "the run was cancelled by an operator"));
    let (_, details) = runs_command(&served, &["show", &id]).await;
    assert!(details.starts_with(&format!("slow  {id}  dropped")), "{details}");
    for (arguments, error) in [
        (["cancel", &*id], "the run is not running"),
        (["cancel", "unknown"], "the run is unknown or no longer kept"),
        (["show", "../about"], "the run is unknown or no longer kept"),
    ] {
        let (is_success, text) = runs_command(&served, &arguments).await;
        assert!(!is_success && text.contains(error), "{arguments:?}: {text}");
    }
    let (_, open) = runs_command(&served, &["list", "--open"]).await;
    assert_eq!(open, "no runs\n");
    let nowhere = crate::programs::run(&["runs", "list", "--ui", "127.0.0.1:1"]).await;
    let error = String::from_utf8(nowhere.stderr).unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(error.contains("http://127.0.0.1:1/ cannot be reached"), "{error}");
}

#[tokio::test]
async fn waiting_task_is_cancelled_by_a_command() {
    let folder = folder();
    let approval = "
[[composite_tools]]
name = 'approval'
description = 'Asks'
strategy = 'workflow'
task = 'always'
steps = [{ id = 'sure', type = 'elicitation', message = 'Sure?', schema = {} }]
";
    fs::write(folder.path().join("tools.toml"), FILE.to_owned() + approval).unwrap();
    let mut served = Served::start(folder.path(), &["--http", "127.0.0.1:0"]).await;
    let url = served.after("mcp_composite::serve: serving ").await;
    let capabilities = ClientCapabilities::builder().enable_elicitation().enable_tasks().build();
    let client = ClientConfig::new(capabilities, Implementation::new("client", "0"));
    let client = client.serve(StreamableHttpClientTransport::from_uri(url)).await.unwrap();
    let created = client.call_tool_once(CallToolRequestParams::new("approval")).await.unwrap();
    let CallToolResponse::Task(created) = created else { panic!("not a task: {created:?}") };

    let mut run = Value::Null;
    until(async || {
        let (_, list) = runs_command(&served, &["list", "--open", "--json"]).await;
        run = serde_json::from_str::<Value>(&list).unwrap()[0].clone();
        run["status"] == "waiting"
    })
    .await;
    assert_eq!(run["waiting"], json!(["sure"]));
    let (id, task) = (run["id"].as_str().unwrap(), run["task"].as_str().unwrap());
    assert_ne!(task, created.task.task_id);
    let (_, list) = runs_command(&served, &["list"]).await;
    assert!(list.ends_with(&format!("approval (task {task})\n")), "{list}");
    let cancelled = runs_command(&served, &["cancel", id]).await;
    assert_eq!(cancelled, (true, format!("cancelled the run {id}\n")));
    let (_, details) = runs_command(&served, &["show", id]).await;
    assert!(details.starts_with(&format!("approval  {id}  dropped")), "{details}");
    assert!(details.contains(&format!("\n  task {task}\n")), "{details}");
    let ended = client.get_task(GetTaskParams::new(created.task.task_id)).await.unwrap();
    assert_eq!(ended.task.status(), TaskStatus::Cancelled);
    let (is_success, error) = runs_command(&served, &["cancel", id]).await;
    assert!(!is_success && error.contains("the run is not running"), "{error}");
}

/// Reads events of a page until one of this kind has data that meet a condition.
async fn event(served: &Served, kind: &str, is_it: impl Fn(&Value) -> bool) {
    let request = "GET /api/events HTTP/1.0\r\nHost: localhost\r\n\r\n";
    let mut stream = TcpStream::connect(&served.page).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut is_kind = false;
    soon(async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            if let Some(data) = line.strip_prefix("data: ") {
                if is_kind && is_it(&serde_json::from_str(data).unwrap()) {
                    return;
                }
            } else if let Some(name) = line.strip_prefix("event: ") {
                is_kind = name == kind;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn budgets_are_shown_with_their_usage_but_without_callers() {
    let folder = folder();
    let budgets = "[caller]\nheader = 'x-user'\n\
                   [[budget.limits]]\nname = 'calls'\nlimit = 5\nrefill = { every = '1h' }\n\
                   [[budget.limits]]\nname = 'each'\nlimit = 9\nper = 'caller'\n\
                   [[budget.limits]]\nname = 'runs'\nlimit = 9\nper = 'run'\n\
                   [[views]]\npath = '/team-a'\n\
                   budget.limits = [{ name = 'own', limit = 2, count = 'bytes' }]\n\
                   [[views]]\npath = '/team-b'\n";
    fs::write(folder.path().join("tools.toml"), FILE.to_owned() + budgets).unwrap();
    let mut served = Served::start(folder.path(), &["--http", "127.0.0.1:0"]).await;
    let url = served.after("mcp_composite::serve: serving ").await;
    for user in ["alice-in-secret", "bob-in-secret"] {
        let mut config = StreamableHttpClientTransportConfig::with_uri(url.clone());
        let user = user.parse().unwrap();
        config.custom_headers.insert("x-user".parse().unwrap(), user);
        let client = ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap();
        offer(&client).await;
    }
    let all = served.json("/api/budgets").await;
    let states = all.as_array().unwrap().iter().map(|budget| {
        let of = |key: &str| budget[key].clone();
        (
            of("name").as_str().unwrap().to_owned(),
            of("view"),
            of("used"),
            of("callers"),
            of("limit"),
        )
    });
    let mut states: Vec<_> = states.collect();
    states.sort_by(|a, b| a.0.cmp(&b.0));
    let state = |name: &str, view: Value, used: Value, callers: Value, limit: u64| {
        (name.to_owned(), view, used, callers, json!(limit))
    };
    let null = || Value::Null;
    let expected = [
        state("calls", null(), json!(2), null(), 5),
        state("each", null(), null(), json!(2), 9),
        state("own", json!("/team-a"), json!(0), null(), 2),
        state("runs", null(), null(), null(), 9),
    ];
    assert_eq!(states, expected);
    let calls = all.as_array().unwrap().iter().find(|budget| budget["name"] == "calls").unwrap();
    assert_eq!(calls["refill"], "5 every 1h");
    assert!(!all.to_string().contains("in-secret"), "{all}");

    // A page that is open receives a change.
    let client = client(&url).await;
    let changed = event(&served, "budgets", |budgets| {
        let calls = budgets.as_array().unwrap().iter().find(|budget| budget["name"] == "calls");
        calls.unwrap()["used"] == 3
    });
    tokio::join!(changed, offer(&client));
    assert!(served.stop().await);
}

#[cfg(unix)]
#[tokio::test]
async fn runs_are_logged_after_a_reload_and_the_catalog_is_that_of_the_new_file() {
    let folder = folder();
    let mut served = Served::start(folder.path(), &["--http", "127.0.0.1:0"]).await;
    let url = served.after("mcp_composite::serve: serving ").await;
    let client = client(&url).await;
    offer(&client).await;
    let renamed = FILE.replace("id = 'price'", "id = 'cost'");
    fs::write(folder.path().join("tools.toml"), renamed).unwrap();
    crate::programs::signal(served.child.id().unwrap().into(), "HUP");
    served.after("reloaded: ").await;
    offer(&client).await;
    until(async || served.runs().await.len() == 2).await;
    let graph = &served.json("/api/catalog").await["composites"][0]["graph"];
    assert_eq!(graph["nodes"][1]["lines"][0], "cost");
    assert!(served.stop().await);
}
