//! All input from any side is bounded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_composite::{
    adapter::{HandlerService, ServeService},
    composite::{
        CallLimits, Composite, CompositeLayer, CompositeTool, JsonType, Output, OutputProperty,
        Pipeline, Step, ToolCall,
    },
    message::Reply,
    store::MemoryStore,
    testing::{self, Answer, Person, Server},
};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt, model::*, service::RequestContext};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::Layer;

use crate::support::{answering, question, serve_over_pipe, soon, tool};

/// Returns this many nested arrays.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("bottom"), |value, _| json!([value]))
}

/// A person who is asked over a connection, counts the questions, and accepts.
#[derive(Clone, Default)]
struct CountingPerson(Arc<Count>);

#[derive(Default)]
struct Count {
    all: AtomicUsize,
    now: AtomicUsize,
    /// The maximum number of concurrent questions.
    peak: AtomicUsize,
}

impl CountingPerson {
    fn all(&self) -> usize {
        self.0.all.load(Ordering::Relaxed)
    }

    async fn accept(self) -> ElicitResult {
        let Count { all, now, peak } = &*self.0;
        all.fetch_add(1, Ordering::Relaxed);
        peak.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        // The time to read the question.
        tokio::time::sleep(Duration::from_millis(1)).await;
        now.fetch_sub(1, Ordering::Relaxed);
        ElicitResult::new(ElicitationAction::Accept)
    }
}

/// Returns the result of the common tool of client and server, called by this person.
async fn call_as(person: &CountingPerson, server: impl ServerHandler) -> Result<Value, String> {
    let (far, work) = serve_over_pipe(server);
    let _serving = JoinSet::from_iter([work]);
    let person = person.clone();
    let client = answering(move |_| person.clone().accept()).serve(far).await.unwrap();
    let answer = soon(client.call_tool(CallToolRequestParams::new("look"))).await;
    answer.map(|result| serde_json::to_value(result).unwrap()).map_err(|error| error.to_string())
}

fn served(service: impl Into<Answer>) -> Server {
    Server::new().tool("look", service)
}

fn serve<S>(service: S) -> ServeService<S>
where
    S: tower::Service<mcp_composite::message::Request, Response = Reply, Future: Send>
        + Clone
        + Send
        + 'static,
    S::Error: Into<tower::BoxError>,
{
    let capabilities = ServerCapabilities::builder().enable_tools().build();
    ServeService::new(service, ServerConfig::new(capabilities))
}

#[tokio::test(start_paused = true)]
async fn deeply_nested_reply_does_not_fail_the_whole_call() {
    // As received over a wire, where no parser accepts more than 128 levels in all.
    for levels in [125, 126, 200, 105, 109, 120] {
        let structured = json!({ "a": { "b": nested(levels) } });
        let in_meta = {
            let mut meta = MetaObject::default();
            meta.insert("deep".to_owned(), nested(levels));
            let mut result = CallToolResult::success(vec![]);
            result.meta = Some(meta);
            result
        };
        let in_error = ErrorData::new(ErrorCode(7), "no", Some(nested(levels)));
        let server = Server::new()
            .says("fine", "fine")
            .gives("content", structured)
            .tool("meta", in_meta)
            .tool("error", in_error);
        let targets = ["fine", "content", "meta", "error"];
        let composites = [
            CompositeTool::fan_out("inner", "Looks", targets),
            CompositeTool::fan_out("look", "Looks", ["inner", "fine"]),
        ];
        let service = CompositeLayer::new(composites).unwrap().layer(server);
        let answer = call_as(&CountingPerson::default(), serve(service)).await;
        let answer = answer.unwrap_or_else(|error| panic!("{levels}: {error}"));
        let branches = &answer["structuredContent"]["branches"];
        assert_eq!(branches["fine"]["status"], "completed", "{levels}");
        let failures = answer.to_string().matches("nested deeper than 110 levels").count();
        assert_eq!(failures > 0, levels > 105, "{levels}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn deeply_nested_parsed_text_returns_an_error_result() {
    // A text is parsed up to 127 levels, and none of them counts in the answer of the tool.
    let text = "[".repeat(126) + &"]".repeat(126);
    let pipeline = |call: ToolCall, output| {
        let steps = Pipeline::new([Step::new("a", call)]).output(output);
        CompositeTool::new("look", "Reads", steps)
    };
    let read = || ToolCall::new("text");
    let output = |kind, value: &str| Output::new().property("x", OutputProperty::new(kind, value));
    let composites = [
        pipeline(read().parse_json(), output(JsonType::Array, "$steps.a.output")),
        pipeline(read(), output(JsonType::Array, "$steps.a.text")),
        pipeline(read(), output(JsonType::Array, "{{ steps.a.text | fromjson }}")),
    ];
    for composite in composites {
        let server = Server::new().says("text", &text);
        let service = CompositeLayer::new([composite]).unwrap().layer(server);
        let answer = call_as(&CountingPerson::default(), serve(service)).await.unwrap();
        assert_eq!(answer["isError"], true, "{answer}");
        let message = answer["content"][0]["text"].as_str().unwrap();
        assert_eq!(message, "the output is nested deeper than 110 levels");
    }
}

#[tokio::test(start_paused = true)]
async fn content_metadata_counts_towards_the_result_limit() {
    let large = || "x".repeat(200_000);
    let link = |change: fn(&mut Resource, String)| {
        let mut link = Resource::new("x:y", "x");
        change(&mut link, large());
        vec![ContentBlock::ResourceLink(link)]
    };
    let icons = link(|link, text| link.icons = Some(vec![Icon::new(text)]));
    let mime = link(|link, text| link.mime_type = Some(text));
    let annotations = link(|link, text| {
        let mut annotations = Annotations::default();
        annotations.last_modified = Some(text);
        link.annotations = Some(annotations);
    });
    let embedded = ResourceContents::TextResourceContents {
        uri: "x:y".to_owned(),
        mime_type: Some(large()),
        text: String::new(),
        meta: None,
    };
    let cases = [
        ("empty texts", vec![ContentBlock::text(""); 100_000]),
        ("icons", icons),
        ("the type of a link", mime),
        ("annotations", annotations),
        ("the type of a resource", vec![ContentBlock::resource(embedded)]),
    ];
    for (what, content) in cases {
        let server = served(CallToolResult::success(content)).says("fine", "fine");
        let look = CompositeTool::fan_out("both", "Looks", ["look", "fine"]);
        let layer = CompositeLayer::new([look]).unwrap();
        let service = layer.limits(CallLimits::default().max_result_bytes(100_000)).layer(server);
        let result = testing::call(&service, "both", json!({})).await;
        let branches = &result.structured_content.unwrap()["branches"];
        let statuses = ["look", "fine"].map(|branch| branches[branch]["status"].clone());
        assert_eq!(statuses, ["failed", "completed"], "{what}");
    }
}

/// Returns a result with this many questions.
fn asks(questions: usize) -> Answer {
    let question = || InputRequest::Elicitation(ElicitRequest::new(question()));
    let requests = (0..questions).map(|key| (key.to_string(), question())).collect();
    let asks = InputRequiredResult::new(Some(requests), Some("state".to_owned()));
    Answer::from(Reply::from(ServerResult::InputRequiredResult(asks)))
}

/// Returns a composite over this many tools, all of which ask the maximum again and again.
fn over_tools_that_ask(count: usize) -> Composite<Server> {
    let tools: Vec<_> = (0..count).map(|tool| format!("tool{tool}")).collect();
    let server = tools.iter().fold(Server::new(), |server, tool| server.tool(tool, asks(32)));
    let look = CompositeTool::fan_out("look", "Looks", tools);
    // The store has space for all of them.
    CompositeLayer::new([look]).unwrap().state(MemoryStore::for_runs()).layer(server)
}

#[tokio::test(start_paused = true)]
async fn number_of_questions_of_a_server_is_limited() {
    let person = CountingPerson::default();
    let error = call_as(&person, serve(served(asks(33)))).await.unwrap_err();
    assert!(error.contains("asks too many questions at once"), "{error}");
    assert_eq!(person.all(), 0, "nobody is asked in vain");

    // The maximum number, again and again.
    let error = call_as(&person, serve(served(asks(32)))).await.unwrap_err();
    assert!(error.contains("asked for input again after 10 answers"), "{error}");
    assert_eq!(person.all(), 320);
}

const TOO_MANY: &str = "more than 1000 questions were asked for one request";

#[tokio::test(start_paused = true)]
async fn elicitations_of_many_tools_share_one_limit() {
    let person = CountingPerson::default();
    let answer = call_as(&person, serve(over_tools_that_ask(64))).await.unwrap().to_string();
    assert!(answer.contains(TOO_MANY), "{answer}");
    assert_eq!(person.all(), 1_000);
    assert_eq!(person.0.peak.load(Ordering::Relaxed), 32);
}

#[tokio::test(start_paused = true)]
async fn number_of_questions_of_a_suspended_run_is_limited() {
    // One round, and a second above the limit; or too many questions at once, none of which is
    // asked.
    for (tools, rounds) in [(31, 1), (32, 0), (64, 0)] {
        let keys = (0..tools).flat_map(|tool| (0..32).map(move |key| format!("tool{tool}:{key}")));
        let mut person = keys.fold(Person::new(), |person, key| person.declines(&key));
        let result = person.call(&over_tools_that_ask(tools), "look", json!({})).await;
        assert_eq!(person.rounds(), rounds, "{tools}");
        let answer = serde_json::to_string(&result).unwrap();
        assert!(answer.contains(TOO_MANY), "{tools}: {answer}");
    }
}

/// A server whose tool asks until it gets no answer.
struct Insistent;

impl ServerHandler for Insistent {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool("insist")]))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        loop {
            if let Err(error) = context.peer.create_elicitation(question()).await {
                let why = ContentBlock::text(error.to_string());
                return Ok(CallToolResult::error(vec![why]).into());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn number_of_questions_during_a_call_is_limited() {
    let look = CompositeTool::fan_out("look", "Looks", ["insist"]);
    let service = CompositeLayer::new([look]).unwrap().layer(HandlerService::new(Insistent));
    let person = CountingPerson::default();
    let answer = call_as(&person, serve(service)).await.unwrap().to_string();
    assert!(answer.contains("more than 1000 questions were asked for one request"), "{answer}");
    assert_eq!(person.all(), 1_000);
}

#[cfg(feature = "config")]
mod of_files {
    use mcp_composite::config::Config;
    use tower::Layer;

    use super::{Server, json, nested, testing};

    #[tokio::test(start_paused = true)]
    async fn empty_config_file_still_limits_client_requests() {
        let server = Server::new().echoes("look");
        let config = Config::from_toml_str("").unwrap();
        let service = config.stack_layer().layer(server.clone());
        let refused = |arguments| testing::refused(&service, "look", arguments);
        let text = refused(json!({ "text": "x".repeat(4 << 20) })).await.message;
        assert_eq!(text, "the request has more than 4194304 bytes (`max_argument_bytes`)");
        let text = refused(json!({ "deep": nested(128) })).await.message;
        assert_eq!(text, "the request has more than 128 levels of nesting (`max_depth`)");
        assert_eq!(server.called(), [""; 0]);
        let half = json!({ "text": "x".repeat(2 << 20), "deep": nested(100) });
        testing::call(&service, "look", half).await;
        assert_eq!(server.called(), ["look"]);
    }

    #[test]
    fn oversized_config_file_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let large = "# nothing\n".repeat(2 << 20);
        std::fs::write(path("large.toml"), &large).unwrap();
        std::fs::write(path("small.toml"), "include = ['large.toml']\n").unwrap();
        let loaded = ["large.toml", "small.toml"].map(|name| Config::load(path(name)));

        let [large, small] = loaded.map(Result::unwrap_err);
        let reason = std::error::Error::source(&large).unwrap().to_string();
        assert_eq!(reason, "all files together have more than 16 MiB");
        assert!(small.mistakes()[0].message().contains("more than 16 MiB"), "{small}");
    }
}
