//! The results of searches, and their order.

use std::time::Duration;

use mcp_composite::{
    advertise::{Advertise, AdvertiseLayer, Mode},
    changes::Epoch,
    message::{Refusal, Request},
};
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use super::{answer, deny, found, names, refusal, server};
use crate::scripted::{Answer, Server, call, object, search_tool};

/// Tools of real servers, in their listed order.
const TOOLS: [(&str, &str); 22] = [
    ("github_add_issue_comment", "Add a comment to an existing issue"),
    ("github_create_issue", "Create a new issue in a GitHub repository"),
    ("github_create_pull_request", "Create a new pull request in a GitHub repository"),
    ("github_list_issues", "List issues in a GitHub repository with filtering options"),
    ("github_search_code", "Search for code across GitHub repositories"),
    ("github_merge_pull_request", "Merge a pull request"),
    ("jira_search", "Search Jira issues using JQL"),
    ("jira_create_issue", "Create a new Jira issue with optional epic link"),
    ("jira_transition_issue", "Move a Jira ticket to a new status"),
    ("filesystem_read_text_file", "Read the complete contents of a file as text"),
    ("filesystem_write_file", "Create a new file or overwrite an existing file"),
    ("filesystem_list_directory", "Get a listing of all files and directories in a path"),
    ("filesystem_search_files", "Recursively search for files matching a pattern"),
    ("slack_post_message", "Post a new message to a Slack channel"),
    ("slack_get_channel_history", "Get recent messages from a channel"),
    ("postgres_query", "Run a read-only SQL query"),
    ("browserNavigate", "Navigate to a URL"),
    ("browserTakeScreenshot", "Take a screenshot of the current page"),
    ("s3_get_object", "Download an object from an S3 bucket"),
    ("send_email", "Send an e-mail via OAuth2"),
    ("weather", "Aktuelles Wetter für Zürich und Umgebung"),
    ("地图搜索", "搜索地点和路线"),
];

fn tool(name: &str, description: &str) -> Tool {
    Tool::new(name.to_owned(), description.to_owned(), object(json!({ "type": "object" })))
}

fn searching(server: Server) -> Advertise<Server> {
    AdvertiseLayer::new().mode(Mode::Search).layer(server)
}

fn tools<'t>(tools: impl IntoIterator<Item = (&'t str, &'t str)>) -> Advertise<Server> {
    let add = |server: Server, (name, description)| {
        server.tool_as(tool(name, description), Answer::echo())
    };
    searching(tools.into_iter().fold(Server::new(), add))
}

#[tokio::test(start_paused = true)]
async fn best_match_is_listed_first() {
    let service = tools(TOOLS);
    let mut others = Vec::new();
    for (query, first) in [
        ("create issue", &["github_create_issue", "jira_create_issue"][..]),
        ("create an issue in jira", &["jira_create_issue"]),
        ("open a new github issue", &["github_create_issue"]),
        ("comment on issue", &["github_add_issue_comment"]),
        ("pull request", &["github_create_pull_request", "github_merge_pull_request"]),
        ("merge PR", &["github_merge_pull_request"]),
        ("jira", &["jira_search", "jira_create_issue", "jira_transition_issue"]),
        ("jira_search", &["jira_search"]),
        ("Jira Search", &["jira_search"]),
        ("move ticket", &["jira_transition_issue"]),
        ("read a file", &["filesystem_read_text_file"]),
        ("list files", &["filesystem_list_directory"]),
        ("find files by pattern", &["filesystem_search_files"]),
        ("search code", &["github_search_code"]),
        ("sql", &["postgres_query"]),
        ("query the database with SQL", &["postgres_query"]),
        ("messages", &["slack_post_message", "slack_get_channel_history"]),
        ("screenshots", &["browserTakeScreenshot"]),
        ("browser navigate", &["browserNavigate"]),
        ("S3", &["s3_get_object"]),
        ("oauth", &["send_email"]),
        ("e-mail", &["send_email"]),
        ("zürich", &["weather"]),
        ("ZÜRICH WETTER", &["weather"]),
        ("路线", &["地图搜索"]),
        ("GitHub", &["github_create_issue"]),
        ("repo", &["github_create_issue"]),
    ] {
        let mut names = names(&service, query).await;
        names.truncate(first.len());
        if names != first {
            others.push((query, names));
        }
    }
    assert_eq!(others, []);
}

#[tokio::test(start_paused = true)]
async fn each_factor_of_the_score_affects_the_order() {
    for (query, listed, expected) in [
        // A name that equals the query, however rare the words of others are.
        (
            "get",
            &[("get_get", "get"), ("get", ""), ("Get", "")][..],
            &["get", "Get", "get_get"][..],
        ),
        ("a_b", &[("ab", "a b"), ("a-b", ""), ("a_b", "")], &["a_b", "a-b", "ab"]),
        // Matches in names before matches in descriptions.
        ("send", &[("x", "send"), ("send_it", "")], &["send_it", "x"]),
        // Short names before long ones.
        ("send", &[("send_it_all", ""), ("send_it", "")], &["send_it", "send_it_all"]),
        // The word itself before any number of words with it as a prefix.
        (
            "file",
            &[("filesystem_x", ""), ("file_x", ""), ("x_file", "")],
            &["file_x", "x_file", "filesystem_x"],
        ),
        // Among those, the closer ones.
        ("file", &[("filesystem_x", ""), ("files_x", "")], &["files_x", "filesystem_x"]),
        // And words that are a prefix of it.
        ("files", &[("fil_x", ""), ("file_x", ""), ("fi_x", "")], &["file_x", "fil_x"]),
        // Short words do not match as prefixes.
        ("fi", &[("file", ""), ("x", "fi")], &["x"]),
        // Rare words before frequent ones.
        (
            "get mail",
            &[("get_x", ""), ("get_y", ""), ("mail_z", "")],
            &["mail_z", "get_x", "get_y"],
        ),
        // Two words before one.
        (
            "read file",
            &[("read_it", ""), ("file_it", ""), ("file_read", "")],
            &["file_read", "read_it", "file_it"],
        ),
        // Repeating a word has no effect, neither in a tool nor in a query.
        ("send", &[("x", "send"), ("y", "send send send")], &["x", "y"]),
        ("b b b a", &[("a_x", ""), ("b_x", "")], &["a_x", "b_x"]),
        // Ties stay in their listed order.
        ("x", &[("x_c", ""), ("x_a", ""), ("x_b", "")], &["x_c", "x_a", "x_b"]),
    ] {
        assert_eq!(names(&tools(listed.iter().copied()), query).await, expected, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn titles_weigh_more_than_descriptions_and_less_than_names() {
    let annotated = ToolAnnotations::with_title("Post");
    let service = searching(
        Server::new()
            .tool_as(tool("a", "post"), Answer::echo())
            .tool_as(tool("b", "x").with_title("Post"), Answer::echo())
            .tool_as(tool("c", "x").with_annotations(annotated), Answer::echo())
            .tool_as(tool("d_post", "x"), Answer::echo()),
    );
    assert_eq!(names(&service, "post").await, ["d_post", "b", "c", "a"]);
}

#[tokio::test(start_paused = true)]
async fn unusual_queries_match_only_by_their_words() {
    let service = tools(TOOLS);
    let all: Vec<_> = TOOLS.map(|(name, _)| name.to_owned()).into();
    for query in ["", " ", "\n\t", "...", "🦀", "!?*()[]{}|\\^$", "\u{0}", "___"] {
        assert_eq!(names(&service, query).await, all, "{query:?}");
    }
    for query in ["xyzzy", ".*x{0,100000}", "x".repeat(1_000_000).as_str()] {
        assert_eq!(names(&service, query).await, [""; 0], "{query:.20}");
    }
    // Words beside special characters are words.
    assert_eq!(names(&service, "🦀 weather? (weather)+").await, ["weather"]);
    // Only the beginning of a huge query counts.
    for rest in ["a ", "🦀", "\u{301}", "weather ", "ü"] {
        let names = names(&service, &format!("send email {}", rest.repeat(500_000))).await;
        assert_eq!(names[0], "send_email", "{rest}");
    }
}

#[tokio::test(start_paused = true)]
async fn search_result_omits_the_output_schema_of_tools() {
    let schema = object(json!({ "type": "object", "required": ["q"] }));
    let full = Tool::new("full", "Does it", schema.clone())
        .with_title("Full")
        .with_annotations(ToolAnnotations::new().read_only(true))
        .with_raw_output_schema(object(json!({ "type": "object" })).into());
    let bare = Tool::new_with_raw("bare", None, schema);
    let service =
        searching(Server::new().tool_as(full, Answer::echo()).tool_as(bare, Answer::echo()));

    let reply = answer(&service, call("search_tools", json!({ "query": "" }))).await;

    let schema = json!({ "type": "object", "required": ["q"] });
    let expected = json!({
        "tools": [
            {
                "name": "full",
                "title": "Full",
                "description": "Does it",
                "inputSchema": schema,
                "annotations": { "readOnlyHint": true },
            },
            { "name": "bare", "inputSchema": schema },
        ],
        "total": 2,
    });
    let result = reply.tool_result().unwrap();
    assert_eq!(result.structured_content.as_ref(), Some(&expected));
    let text = &result.content[0].as_text().unwrap().text;
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);

    let list = answer(&service, Request::list_tools()).await;
    let search = &list.tools().unwrap().tools[0];
    let schema = Value::Object((**search.output_schema.as_ref().unwrap()).clone());
    assert!(jsonschema::is_valid(&schema, &expected));
    let hints = search.annotations.as_ref().unwrap();
    let hints = [hints.read_only_hint, hints.idempotent_hint, hints.open_world_hint];
    assert_eq!(hints, [Some(true), Some(true), Some(false)]);
}

#[tokio::test(start_paused = true)]
async fn search_returns_at_most_the_requested_number() {
    let named: Vec<String> = (0..100).map(|number| format!("tool_{number:02}")).collect();
    let service = tools(named.iter().map(|name| (&**name, "x")));
    for (arguments, expected) in [
        (json!({ "query": "tool" }), 10),
        (json!({ "query": "", "limit": 1 }), 1),
        (json!({ "query": "x", "limit": 50 }), 50),
    ] {
        let found = found(&service, arguments.clone()).await;
        let names: Vec<_> =
            found["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, named[..expected].iter().collect::<Vec<_>>(), "{arguments}");
        assert_eq!(found["total"], 100);
    }
    assert_eq!(found(&service, json!({ "query": "42" })).await["total"], 1);
}

#[tokio::test(start_paused = true)]
async fn search_covers_all_pages_and_lists_them_once() {
    let server = server().page_size(1);
    let service = searching(server.clone());
    for cursor in [Some(String::new()), Some("1".into()), Some("🦀".into())] {
        let reply = answer(&service, Request::list_tools_from(cursor)).await;
        let page = reply.tools().unwrap();
        assert!(page.tools.is_empty() && page.next_cursor.is_none());
    }
    let reply = answer(&service, Request::list_tools()).await;
    assert_eq!(reply.tools().unwrap().tools.len(), 2);
    assert_eq!(server.lists(), 0);

    assert_eq!(names(&service, "").await.len(), 3);
    assert_eq!(server.lists(), 3);
    names(&service, "reset").await;
    assert_eq!(server.lists(), 3, "tools are listed once");
}

#[tokio::test(start_paused = true)]
async fn search_finds_new_tools_after_an_epoch_bump() {
    let epoch = Epoch::default();
    let server = server();
    let layer = AdvertiseLayer::new().mode(Mode::Search).epoch(epoch.clone());
    let service = layer.layer(server.clone());
    assert_eq!(names(&service, "late").await, [""; 0]);
    server.add(search_tool("late"), Answer::text("x"));
    server.remove("reset");
    assert_eq!(names(&service, "late").await, [""; 0], "nobody said that anything changed");

    epoch.bump();

    assert_eq!(names(&service, "late").await, ["late"]);
    assert_eq!(names(&service, "reset").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn search_finds_only_tools_that_its_caller_sees() {
    let list = |request: Request| async move {
        let caller = request.context().extensions().get::<&str>().copied().unwrap_or("nobody");
        let list = rmcp::model::ListToolsResult::with_all_items(vec![search_tool(caller)]);
        Ok::<mcp_composite::message::Reply, std::convert::Infallible>(list.into())
    };
    let layer = AdvertiseLayer::new()
        .mode(Mode::Search)
        .vary_by(|context| context.extensions().get::<&str>().map(|caller| (*caller).to_owned()));
    let service = layer.layer(service_fn(list));
    for caller in ["ann", "bob", "ann"] {
        let mut request = call("search_tools", json!({ "query": "" }));
        request.context_mut().extensions_mut().insert(caller);
        let reply = answer(&service, request).await;
        let content = reply.tool_result().unwrap().structured_content.as_ref().unwrap();
        assert_eq!(content["tools"][0]["name"], caller);
    }
    assert_eq!(names(&service, "").await, ["nobody"]);
}

#[tokio::test(start_paused = true)]
async fn search_is_rejected_while_tools_cannot_be_listed() {
    let server = server();
    server.break_list("connection refused");
    let layer = AdvertiseLayer::new().tools(deny(&["reset"])).mode(Mode::Search);
    let service = layer.layer(server.clone());
    let search = || call("search_tools", json!({ "query": "price" }));

    let refused = refusal(&service, search()).await.unwrap();
    assert!(matches!(refused, Refusal::Unavailable { .. }));
    assert_eq!(refused.to_string(), "tool `search_tools` is not available at the moment");
    for request in [super::through("get_price", json!({})), call("get_price", json!({}))] {
        let reply = service.clone().oneshot(request).await.unwrap();
        assert!(reply.error().is_none());
    }

    server.mend_list();
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(names(&service, "price").await, ["get_price"]);
    server.break_list("connection refused");
    tokio::time::advance(Duration::from_secs(120)).await;
    assert_eq!(names(&service, "price").await, ["get_price"], "what is known serves on");
}
