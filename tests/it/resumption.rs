//! A run that asks in several rounds, each of which reaches another instance: finished steps are
//! not repeated, and each tool receives its own answers and state.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use mcp_composite::{
    config::Config,
    message::{Reply, Request},
    testing::{self, Answer, Person, Server},
};
use rmcp::model::{
    CallToolResult, ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest,
    InputRequests, InputRequiredResult, ServerResult,
};
use serde_json::{Value, json};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

/// The configuration of all instances.
const KEY: &str = "[state]
keys = [{ id = 'shared', key = 'a key of at least thirty-two bytes' }]
";

/// A workflow that reads all pages, and asks whether to delete them if it cannot publish them.
const IMPORT: &str = "[[composite_tools]]
name = 'import'
description = 'Imports all pages'
strategy = 'workflow'

[[composite_tools.steps]]
id = 'pages'
type = 'repeat'
tool = 'page'
arguments = { at = '$index', after = '$last.n?' }
until = 'last.n == 8'

[[composite_tools.steps]]
id = 'publish'
tool = 'publish'
depends_on = ['pages']

[[composite_tools.steps]]
id = 'delete_all'
type = 'elicitation'
message = 'Delete {{ steps.pages.output.count }} pages?'
condition = \"steps.pages.status == 'completed' and steps.publish.status != 'completed'\"
finally = true

[[composite_tools.steps]]
id = 'delete'
tool = 'delete'
condition = \"steps.delete_all.status == 'completed' and steps.pages.status == 'completed'\"
arguments = { last = '$steps.pages.output.last.n' }
finally = true
";

/// Two tools that ask, one of which asks twice; one that fails and one that succeeds.
const ALL: &str = "[[composite_tools]]
name = 'all'
description = 'All at once'
success = 'any'
tools = ['twice', 'once', 'broken', 'fine']
";

/// Returns a question with this key, and the state of its tool.
fn asks(key: &str, state: &str) -> Answer {
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: format!("{key}?"),
        requested_schema: ElicitationSchema::new(Default::default()),
    };
    let request = InputRequest::Elicitation(ElicitRequest::new(params));
    let questions = InputRequests::from([(key.to_owned(), request)]);
    let asks = InputRequiredResult::new(Some(questions), Some(state.to_owned()));
    Reply::from(ServerResult::InputRequiredResult(asks)).into()
}

fn server() -> Server {
    Server::new()
        .tool("twice", asks("sure", "twice: 1").then(asks("sure", "twice: 2")).then(done("twice")))
        .tool("once", asks("sure", "once: 1").then(done("once")))
        .fails("broken", "disk full")
        .gives("fine", json!({ "by": "fine" }))
}

fn done(tool: &str) -> Answer {
    Answer::structured(json!({ "by": tool }))
}

/// Returns a service in which each request reaches a new instance made from the file.
fn replicas<S>(
    instance: impl Fn() -> S + Clone + Send + 'static,
) -> (
    impl Service<Request, Response = Reply, Error = BoxError, Future: Send> + Clone,
    Arc<AtomicUsize>,
)
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send> + Send + 'static,
{
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let service = service_fn(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let instance = instance();
        async move { instance.oneshot(request).await.map_err(Into::into) }
    });
    (service, made)
}

fn accepted(of: &str) -> Value {
    json!({ "sure": { "action": "accept", "content": { "of": of } } })
}

/// Calls the composite `all`, and checks the calls that reached the tools.
async fn check<S>(
    why: &str,
    instance: impl Fn() -> S + Clone + Send + 'static,
    server: &Server,
    (tool, arguments): (&str, Value),
    [twice, once]: [&str; 2],
) -> CallToolResult
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send> + Send + 'static,
{
    let (service, made) = replicas(instance);
    let mut person = Person::new()
        .accepts(twice, json!({ "of": "twice: 1" }))
        .accepts(once, json!({ "of": "once: 1" }))
        .accepts(twice, json!({ "of": "twice: 2" }));
    let result = person.call(&service, tool, arguments).await;
    assert_eq!(made.load(Ordering::Relaxed), 3, "{why}");
    assert_eq!(person.rounds(), 2, "{why}");
    let keys: Vec<_> = person.asked().iter().map(|(key, _)| &**key).collect();
    let mut first = [twice, once];
    first.sort_unstable();
    assert_eq!(keys, [first[0], first[1], twice], "{why}");

    let calls = server.calls();
    let of = |name: &str| {
        let calls = calls.iter().filter(|call| call.tool() == name);
        calls.map(|call| (call.answers(), call.state())).collect::<Vec<_>>()
    };
    let begun = (Value::Null, None);
    assert_eq!(
        of("twice"),
        [
            begun.clone(),
            (accepted("twice: 1"), Some("twice: 1")),
            (accepted("twice: 2"), Some("twice: 2"))
        ],
        "{why}"
    );
    assert_eq!(of("once"), [begun, (accepted("once: 1"), Some("once: 1"))], "{why}");
    for done in ["broken", "fine"] {
        assert_eq!(of(done), [(Value::Null, None)], "{why}");
    }
    result
}

/// The report of `all`.
fn report([twice, once]: [&str; 2]) -> Value {
    json!({ "branches": {
        twice: { "status": "completed", "output": { "by": "twice" } },
        once: { "status": "completed", "output": { "by": "once" } },
        "broken": { "status": "failed", "error": { "kind": "tool", "message": "disk full" } },
        "fine": { "status": "completed", "output": { "by": "fine" } },
    } })
}

/// Aliases of the two tools that ask.
const ALIASES: &str = "[[aliases]]
tool = 'twice'
name = 'zwei'

[[aliases]]
tool = 'once'
name = 'eins'
";

const NESTED: &str = "[[composite_tools]]
name = 'nested'
description = 'All, and more'
tools = ['all', 'fine_too']
";

const LOOPED: &str = "[[composite_tools]]
name = 'looped'
description = 'All, for each'
strategy = 'workflow'

[[composite_tools.steps]]
id = 'each'
type = 'for_each'
collection = ['x']
tool = 'nested'
";

/// Returns a file with these sections, with these branch names in `all`.
fn file(names: [&str; 2], sections: &[&str]) -> String {
    let [twice, once] = names.map(|name| format!("'{name}'"));
    let all = ALL.replace("'twice'", &twice).replace("'once'", &once);
    [KEY, &all].into_iter().chain(sections.iter().copied()).collect()
}

#[tokio::test(start_paused = true)]
async fn fan_out_resumes_on_another_instance_in_every_position() {
    let plain = ["twice", "once"];
    let direct = |name: &'static str| (name, json!({}));
    let search = json!({ "name": "all", "arguments": {} });
    let within = "/branches/all/output";
    let rows: [(_, _, &[&str], _, _, _); 6] = [
        ("alone", plain, &[], direct("all"), "", ""),
        ("in another", plain, &[NESTED], direct("nested"), "all:", within),
        (
            "in one that is in a loop",
            plain,
            &[NESTED, LOOPED],
            direct("looped"),
            "each[0]:all:",
            "/iterations/0/output/branches/all/output",
        ),
        ("above aliases", ["zwei", "eins"], &[ALIASES], direct("all"), "", ""),
        ("above checks", plain, &["[validate]\nschema = 'strict'\n"], direct("all"), "", ""),
        (
            "behind a search",
            plain,
            &["[advertise]\nmode = 'search'\n"],
            ("call_tool", search),
            "",
            "",
        ),
    ];
    for (why, names, sections, call, prefix, place) in rows {
        let server = server().says("fine_too", "fine");
        let below = server.clone();
        let text = file(names, sections);
        let instance = move || {
            let config = Config::from_toml_str(&text).unwrap_or_else(|error| panic!("{error}"));
            config.stack_layer().layer(below.clone())
        };
        let keys = names.map(|name| format!("{prefix}{name}:sure"));
        let result = check(why, instance, &server, call, keys.each_ref().map(|key| &**key)).await;
        let structured = result.structured_content.unwrap();
        assert_eq!(structured.pointer(place), Some(&report(names)), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn backends_receive_names_without_the_router_prefix() {
    let backend = "[[backends]]\nname = 'shop'\ncommand = 'none'\n";
    let all = ALL.replace("['", "['shop/").replace(", '", ", 'shop/");
    let text = [KEY, &all, backend].concat();
    let server = server();
    let below = server.clone();
    let instance =
        move || testing::stack(&Config::from_toml_str(&text).unwrap(), [("shop", below.clone())]);
    let keys = ["shop_twice:sure", "shop_once:sure"];
    let result = check("behind a router", instance, &server, ("all", json!({})), keys).await;
    let structured = result.structured_content.unwrap();
    assert_eq!(structured["branches"]["shop_once"]["output"], json!({ "by": "once" }));
}

#[tokio::test(start_paused = true)]
async fn repeated_call_and_finally_step_resume_on_another_instance() {
    let page = |n: u64| Answer::structured(json!({ "n": n }));
    let first = (1..7).fold(page(0), |pages, n| pages.then(page(n)));
    let server = Server::new()
        .tool("page", first.then(asks("sure", "page 7")).then(page(7)).then(page(8)))
        .fails("publish", "no room")
        .echoes("delete");
    let below = server.clone();
    let text = [KEY, IMPORT].concat();
    let instance = move || {
        let config = Config::from_toml_str(&text).unwrap_or_else(|error| panic!("{error}"));
        config.stack_layer().layer(below.clone())
    };
    let (service, made) = replicas(instance);
    let mut person = Person::new()
        .accepts("pages[7]:sure", json!({ "of": "page 7" }))
        .accepts("delete_all", json!({}));
    let result = person.call(&service, "import", json!({})).await;

    assert_eq!((made.load(Ordering::Relaxed), person.rounds()), (3, 2));
    let expected = [("pages[7]:sure", "sure?"), ("delete_all", "Delete 9 pages?")];
    assert_eq!(person.asked(), expected.map(|(key, message)| (key.to_owned(), message.to_owned())));
    let calls = server.calls();
    let pages: Vec<_> = calls.iter().filter(|call| call.tool() == "page").collect();
    let at: Vec<_> = pages.iter().map(|call| call.arguments()["at"].as_u64().unwrap()).collect();
    assert_eq!(at, [0, 1, 2, 3, 4, 5, 6, 7, 7, 8]);
    assert_eq!(pages[8].arguments(), json!({ "at": 7, "after": 6 }));
    assert_eq!((pages[8].answers(), pages[8].state()), (accepted("page 7"), Some("page 7")));
    let [.., publish, delete] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((calls.len(), publish.tool(), delete.tool()), (12, "publish", "delete"));
    assert_eq!(delete.arguments(), json!({ "last": 8 }));
    let text = &result.content[0].as_text().unwrap().text;
    assert_eq!(text, "step `publish` (tool `publish`) failed: no room");
}
