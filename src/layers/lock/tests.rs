use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use rmcp::model::{CallToolResult, JsonObject, ListToolsResult, Tool, ToolAnnotations};
use serde_json::{Value, json};
use tower::{Service, ServiceExt, service_fn};
use tower_layer::Layer;

use super::{definition::Definition, *};
use crate::{
    changes::Epoch,
    message::{Context, Reply, Request},
};

/// The pages of the tool list that a server returns.
type Pages = Arc<Mutex<Vec<Vec<Tool>>>>;

fn schema(value: Value) -> Arc<JsonObject> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn tool(name: &'static str) -> Tool {
    Tool::new(name, "Searches", schema(json!({ "type": "object", "properties": {} })))
}

fn lock(tools: &[Tool]) -> Lock {
    let mut lock = Lock::new();
    for tool in tools {
        lock.pin("web", tool).unwrap();
    }
    lock
}

/// Returns a server that lists `pages` and answers every tool call.
fn server(
    pages: &Pages,
) -> impl Service<Request, Response = Reply, Error = Infallible, Future: Send> + Clone + Send + 'static
{
    let pages = pages.clone();
    service_fn(move |request: Request| {
        let pages = pages.lock().unwrap().clone();
        async move {
            if !request.lists_tools() {
                return Ok(CallToolResult::success(vec![]).into());
            }
            let cursor = match request.message() {
                rmcp::model::ClientRequest::ListToolsRequest(list) => {
                    list.params.as_ref().and_then(|params| params.cursor.clone())
                }
                _ => None,
            };
            let index: usize = cursor.map_or(0, |cursor| cursor.parse().unwrap());
            let mut page = ListToolsResult::with_all_items(pages[index].clone());
            page.next_cursor = (index + 1 < pages.len()).then(|| (index + 1).to_string());
            Ok(page.into())
        }
    })
}

fn pages(tools: Vec<Vec<Tool>>) -> Pages {
    Arc::new(Mutex::new(tools))
}

/// Returns the names of all tools that the service lists, on all pages.
async fn listed<S>(service: &S) -> Result<Vec<String>, String>
where
    S: Service<Request, Response = Reply, Error = Infallible> + Clone,
{
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let reply = service.clone().oneshot(Request::list_tools_from(cursor)).await.unwrap();
        let Some(page) = reply.tools() else {
            return Err(reply.error().unwrap().message.to_string());
        };
        names.extend(page.tools.iter().map(|tool| tool.name.to_string()));
        cursor = page.next_cursor.clone();
        if cursor.is_none() {
            return Ok(names);
        }
    }
}

/// Returns the error message of a tool call, or an empty string if the call succeeds.
async fn called<S>(service: &S, name: &'static str) -> String
where
    S: Service<Request, Response = Reply, Error = Infallible> + Clone,
{
    let reply = service.clone().oneshot(Request::call_tool(name)).await.unwrap();
    reply.error().map(|error| error.message.to_string()).unwrap_or_default()
}

#[tokio::test]
async fn tool_that_differs_in_any_pinned_part_is_hidden() {
    let mut annotated = tool("search");
    annotated.annotations = Some(ToolAnnotations::new().read_only(true));
    let mut titled = tool("search");
    titled.title = Some("Search".to_owned());
    let mut described = tool("search");
    described.description = Some("Sеarches".into()); // with a Cyrillic letter
    let mut undescribed = tool("search");
    undescribed.description = None;
    let mut input = tool("search");
    input.input_schema = schema(json!({ "type": "object", "properties": { "q": {} } }));
    let mut output = tool("search");
    output.output_schema = Some(schema(json!({ "type": "object" })));
    for (changed, parts) in [
        (annotated, "`annotations`"),
        (titled, "`title`"),
        (described, "`description`"),
        (undescribed, "`description`"),
        (input, "`inputSchema`"),
        (output, "`outputSchema`"),
    ] {
        let layer = LockLayer::new(&lock(&[tool("search"), tool("fetch")]), "web");
        let service = layer.layer(server(&pages(vec![vec![changed, tool("fetch")]])));
        assert_eq!(called(&service, "search").await, "unknown tool `search`", "{parts}");
        assert_eq!(listed(&service).await.unwrap(), ["fetch"], "{parts}");
        assert_eq!(called(&service, "fetch").await, "");
        let warning = format!(
            "tool `search` of backend `web` differs from the lock in {parts}: it is neither \
             listed nor callable until it is locked again"
        );
        assert_eq!(layer.warnings(), [warning]);
    }
}

#[tokio::test]
async fn order_of_tools_and_members_and_unpinned_parts_are_no_drift() {
    let mut one = tool("search");
    one.input_schema = Arc::new(serde_json::from_str(r#"{"a":{"x":1,"y":[2]},"b":2}"#).unwrap());
    let mut same = tool("search");
    same.input_schema = Arc::new(serde_json::from_str(r#"{"b":2,"a":{"y":[2],"x":1}}"#).unwrap());
    same.icons = Some(Vec::new());
    let layer = LockLayer::new(&lock(&[one, tool("fetch")]), "web");
    let service = layer.layer(server(&pages(vec![vec![tool("fetch")], vec![same]])));
    assert_eq!(listed(&service).await.unwrap(), ["fetch", "search"]);
    assert_eq!(called(&service, "search").await, "");
    assert_eq!(layer.warnings(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn tool_that_alternates_stays_hidden() {
    let mut changed = tool("search");
    changed.description = Some("Steals".into());
    let (good, bad) = (vec![vec![tool("search")]], vec![vec![changed]]);
    let pages = pages(good.clone());
    let epoch = Epoch::default();
    let layer = LockLayer::new(&lock(&[tool("search")]), "web").epoch(epoch.clone());
    let service = layer.layer(server(&pages));
    assert_eq!(listed(&service).await.unwrap(), ["search"]);
    assert_eq!(called(&service, "search").await, "");

    // The catalog contains the approved definition, and only the client's list contains the other.
    *pages.lock().unwrap() = bad.clone();
    assert_eq!(listed(&service).await.unwrap(), [""; 0]);
    assert_eq!(called(&service, "search").await, "unknown tool `search`");
    for list in [&good, &bad, &good] {
        list.clone_into(&mut pages.lock().unwrap());
        epoch.bump();
        assert_eq!(listed(&service).await.unwrap(), [""; 0]);
        assert_eq!(called(&service, "search").await, "unknown tool `search`");
    }
    assert_eq!(layer.warnings().len(), 1);
}

#[tokio::test]
async fn duplicate_with_another_definition_on_a_later_page_hides_both() {
    let mut changed = tool("search");
    changed.description = Some("Steals".into());
    let layer = LockLayer::new(&lock(&[tool("search"), tool("fetch")]), "web");
    let service =
        layer.layer(server(&pages(vec![vec![tool("search")], vec![tool("fetch")], vec![changed]])));
    assert_eq!(listed(&service).await.unwrap(), ["fetch"]);
    assert_eq!(called(&service, "search").await, "unknown tool `search`");
}

#[tokio::test]
async fn new_and_similar_names_are_handled_as_on_new_says() {
    let names = ["search", "sеarch", "Search", "search "];
    let tools: Vec<_> = names.into_iter().map(tool).collect();
    for (on_new, visible, warnings) in
        [(OnNew::Hide, 1, 1), (OnNew::Warn, 4, 1), (OnNew::Allow, 4, 0)]
    {
        let layer = LockLayer::new(&lock(&[tool("search")]), "web").on_new(on_new);
        let service = layer.layer(server(&pages(vec![tools.clone()])));
        assert_eq!(listed(&service).await.unwrap(), names[..visible], "{on_new:?}");
        for (index, name) in names.into_iter().enumerate() {
            assert_eq!(
                called(&service, name).await.is_empty(),
                index < visible,
                "{on_new:?} {name}"
            );
        }
        assert_eq!(layer.warnings().len(), warnings, "{on_new:?}: {:?}", layer.warnings());
    }
    // For a backend that is not in the lock, all tools are new.
    let service = LockLayer::new(&lock(&tools), "other").layer(server(&pages(vec![tools.clone()])));
    assert_eq!(listed(&service).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn drift_with_warn_keeps_the_tool_and_with_fail_fails_all_requests() {
    let mut changed = tool("search");
    changed.description = Some("Steals".into());
    let approved = lock(&[tool("search"), tool("fetch")]);
    let pages = pages(vec![vec![changed, tool("fetch")]]);
    let warn = LockLayer::new(&approved, "web").on_drift(OnDrift::Warn);
    let service = warn.layer(server(&pages));
    assert_eq!(listed(&service).await.unwrap(), ["search", "fetch"]);
    assert_eq!(called(&service, "search").await, "");
    assert_eq!(warn.warnings().len(), 1);

    let fail = LockLayer::new(&approved, "web").on_drift(OnDrift::Fail);
    let service = fail.layer(server(&pages));
    let error = "backend `web` is blocked: a tool differs from its approved definition";
    assert_eq!(called(&service, "fetch").await, error);
    assert_eq!(listed(&service).await.unwrap_err(), error);
    let prompts = Request::new(rmcp::model::ListPromptsRequest::default(), Context::default());
    let reply = service.clone().oneshot(prompts).await.unwrap();
    assert_eq!(reply.error().unwrap().message, error);
}

#[tokio::test]
async fn tools_that_cannot_be_listed_cannot_be_called() {
    async fn down(request: Request) -> Result<Reply, Infallible> {
        Ok(match request.lists_tools() {
            true => rmcp::model::ErrorData::internal_error("down", None).into(),
            false => CallToolResult::success(vec![]).into(),
        })
    }
    let service = LockLayer::new(&lock(&[tool("search")]), "web").layer(service_fn(down));
    assert_eq!(called(&service, "search").await, "unknown tool `search`");
    let service = LockLayer::default().layer(service_fn(down));
    assert_eq!(called(&service, "search").await, "");
}

#[test]
fn differences_show_each_changed_value_and_reveal_lookalikes() {
    let mut before = tool("search");
    before.input_schema =
        schema(json!({ "type": "object", "properties": { "q": { "type": "string" } } }));
    let mut after = before.clone();
    after.description = Some("Sеarches\u{202e}\u{e0041}".into()); // with a Cyrillic letter
    after.input_schema =
        schema(json!({ "type": "object", "properties": { "q": { "type": "number" }, "r": 1 } }));
    let differences =
        lock(&[before, tool("old")]).differences(&lock(&[after, tool("new"), tool("näme")]));
    let text: String = differences.iter().map(Difference::to_string).collect();
    assert_eq!(
        text,
        r#"+ tool `new` of backend `web` (new)
    description
      + "Searches"
    inputSchema
      + {"properties":{},"type":"object"}
+ tool `näme` of backend `web` (new)
    description
      + "Searches"
    inputSchema
      + {"properties":{},"type":"object"}
- tool `old` of backend `web` (not listed)
    description
      - "Searches"
    inputSchema
      - {"properties":{},"type":"object"}
~ tool `search` of backend `web`
    description
      - "Searches"
      + "S\u{435}arches\u{202e}\u{e0041}"
    inputSchema/properties/q/type
      - "string"
      + "number"
    inputSchema/properties/r
      + 1
"#
    );
}

#[test]
fn tool_with_two_definitions_cannot_be_pinned() {
    let mut lock = lock(&[tool("search")]);
    lock.pin("web", &tool("search")).unwrap();
    let mut other = tool("search");
    other.title = Some("Other".to_owned());
    let error = lock.pin("web", &other).unwrap_err();
    assert_eq!(error.to_string(), "backend `web` has several tools named `search`");
    lock.pin("mail", &other).unwrap();
    assert_eq!(lock.len(), 2);
}

#[test]
fn definitions_of_other_parts_have_other_fingerprints() {
    let of = |tool: &Tool| Definition::of(tool).fingerprint().to_string();
    let mut other = tool("search");
    other.title = Some("Searches".to_owned());
    assert_ne!(of(&tool("search")), of(&other));
    let mut unpinned = tool("search");
    unpinned.icons = Some(Vec::new());
    assert_eq!(of(&tool("search")), of(&unpinned));
}
