//! Checks the hostile behaviors of the program `misbehaving`: a soak among peers that are not
//! hostile would prove nothing.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{programs::example, support::HANG};

const LARGE: usize = 4 << 20;

/// A process with a raw client connected over pipes.
struct Server {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a process of this behavior, in a separate process group.
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(example("misbehaving"));
        command.args(arguments).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output }
    }

    fn connect(behavior: &str) -> Self {
        let mut server = Self::start(&[behavior]);
        server.ask("initialize", &json!({}));
        server.write(json!({ "method": "notifications/initialized" }));
        server
    }

    fn write(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        writeln!(self.input, "{message}").unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Sends a request, and returns the next message.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.write(json!({ "id": 1, "method": method, "params": params }));
        self.read()
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Returns the schema of the argument of a tool.
    fn schema(&mut self, tool: &str) -> Value {
        let list = self.ask("tools/list", &json!({}));
        let tools = list["result"]["tools"].as_array().unwrap();
        tools.iter().find(|listed| listed["name"] == tool).unwrap()["inputSchema"].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A process that it has started is in its group.
        kill(self.process.id());
        self.process.wait().unwrap();
    }
}

fn kill(group: u32) {
    let kill = format!("kill -s KILL -- -{group} 2>&1");
    Command::new("sh").args(["-c", &kill]).output().unwrap();
}

#[test]
fn list_changes_are_sent_continuously_at_a_limited_rate() {
    let mut server = Server::connect("list-changes");
    let begun = Instant::now();
    for _ in 0..100 {
        for list in ["tools", "prompts", "resources"] {
            let method = format!("notifications/{list}/list_changed");
            assert_eq!(server.read()["method"], method);
        }
    }
    // 300 messages in batches of 10, with 5 ms between two.
    assert!(begun.elapsed() >= Duration::from_millis(29 * 5));
}

#[test]
fn updates_of_small_and_large_uris_alternate() {
    let mut server = Server::connect("updates");
    let mut uris = std::iter::from_fn(|| Some(server.read()["params"]["uri"].take()));
    for number in (0..500).cycle().take(2_000) {
        assert_eq!(uris.next().unwrap(), format!("small://{number}"));
    }
    let large = uris.next().unwrap();
    assert!(large.as_str().unwrap().len() > LARGE);
}

#[test]
fn call_sets_number_and_size_of_questions() {
    let mut server = Server::connect("questions");
    let mut message = server.call("questions", &json!({ "count": 3, "bytes": LARGE }));
    for place in 0..3 {
        assert_eq!(message["method"], "elicitation/create");
        assert_eq!(message["id"], format!("question-1-{place}"));
        assert_eq!(message["params"]["message"].as_str().unwrap().len(), LARGE);
        message = server.read();
    }
    assert_eq!(message["id"], 1, "the answer comes without any to the questions");
}

#[test]
fn modern_questions_are_sent_in_the_result() {
    let mut server = Server::connect("modern-questions");
    let answer = server.call("questions", &json!({ "count": 3_000 }));
    assert_eq!(answer["result"]["resultType"], "input_required");
    assert_eq!(answer["result"]["inputRequests"].as_object().unwrap().len(), 3_000);
}

#[test]
fn listed_schemas_are_expensive_to_validate() {
    let mut server = Server::connect("schemas");
    assert_eq!(server.schema("unique")["properties"]["value"]["uniqueItems"], true);
    for (tool, keyword) in [("patterns", "pattern"), ("enums", "enum")] {
        let schema = server.schema(tool);
        assert_eq!(schema["properties"]["value"]["allOf"].as_array().unwrap().len(), 2_000);
        assert!(schema["$defs"]["value"].get(keyword).is_some());
    }
}

#[test]
fn costs_are_the_largest_representable() {
    let mut server = Server::connect("costs");
    for tool in ["cost", "spend"] {
        let answer = server.call(tool, &json!({}));
        assert_eq!(answer["result"]["_meta"]["usage"]["total_tokens"], u64::MAX);
    }
    assert_eq!(server.call("sent", &json!({}))["result"]["structuredContent"]["count"], 2);
}

#[test]
fn brief_streams_end_immediately_and_request_no_delay() {
    let mut server = Server::start(&["brief-streams", "--http", "0"]);
    let mut url = String::new();
    server.output.read_line(&mut url).unwrap();
    let address = url.trim_start_matches("http://").trim_end().trim_end_matches("/mcp");
    let send = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cut"}}"#;
    let post = format!("POST /mcp HTTP/1.1\r\nContent-Length: {}\r\n\r\n{call}", call.len());
    for answer in [send("GET /mcp HTTP/1.1\r\n\r\n"), send(&post)] {
        assert!(answer.contains("text/event-stream"), "{answer}");
        assert!(answer.ends_with("retry: 0\nid: 1\ndata:\n\n"), "{answer}");
    }
}

#[test]
fn orphan_keeps_the_pipes_of_an_exited_process_open() {
    let mut server = Server::connect("orphans");
    assert!(server.process.wait().unwrap().success());
    let group = server.process.id();
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let read = server.output.read(&mut [0]).unwrap();
        ended.send(read).unwrap();
    });
    assert!(end.recv_timeout(Duration::from_millis(300)).is_err(), "its output has ended");
    kill(group);
    assert_eq!(end.recv_timeout(HANG), Ok(0));
}

#[test]
fn claims_server_lists_the_resources_of_another_server() {
    let mut server = Server::connect("claims");
    let mut good = Server::connect("good");
    let uris = |list: &Value, kind: &str, key: &str| -> Vec<String> {
        let items = list["result"][kind].as_array().unwrap().clone();
        items.iter().filter_map(|item| item[key].as_str().map(str::to_owned)).collect()
    };
    let claimed = uris(&server.ask("resources/list", &json!({})), "resources", "uri");
    for uri in uris(&good.ask("resources/list", &json!({})), "resources", "uri") {
        assert!(claimed.contains(&uri), "{uri}");
        let read = server.ask("resources/read", &json!({ "uri": uri }));
        assert_eq!(read["result"]["contents"][0]["text"], "stolen");
    }
    let method = "resources/templates/list";
    let template =
        uris(&good.ask(method, &json!({})), "resourceTemplates", "uriTemplate").remove(0);
    let longer = uris(&server.ask(method, &json!({})), "resourceTemplates", "uriTemplate");
    assert!(longer.iter().any(|uri| uri.len() > template.len() && uri.starts_with(&template)));
    let links = uris(&server.call("links", &json!({})), "content", "uri");
    assert_eq!(links.iter().filter(|uri| *uri == "test://one").count(), 2);
}
