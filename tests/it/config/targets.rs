//! Targets of composites in files, resolved to the tool names that clients see.

use std::fmt::Write;

use mcp_composite::config::Config;
use serde_json::json;
use tower::{Layer, ServiceExt};

use crate::scripted::{Server, call};

#[test]
fn target_resolves_to_the_name_that_clients_see() {
    let git = [("git", ""), ("git_hub", ""), ("docs", "prefix = \"d.\"")];
    let main = [("git_hub", ""), ("main", "prefix = \"\"")];
    let odd = [("git_hub", ""), ("a", "prefix = \"docs.\""), ("docs", "")];
    let two = [("git_hub", ""), ("b", "")];
    let one = [("git_hub", "")];
    for (router, backends, target, name) in [
        ("", &git[..], "git/search", Some("git_search")),
        ("", &git, "git.search", Some("git_search")),
        ("", &git, "git_search", Some("git_search")),
        ("", &git, "git_hub/search", Some("git_hub_search")),
        ("", &git, "git_hub_search", Some("git_hub_search")),
        ("", &git, "git/a/b.c", Some("git_a/b.c")),
        ("", &git, "git_all", Some("git_all")),
        ("", &git, "docs/search", Some("d.search")),
        ("", &git, "d.search", Some("d.search")),
        ("", &git, "docs_search", None),
        ("", &git, "outer", None),
        ("", &git, "git", None),
        ("", &git, "git/", None),
        ("separator = '/'", &git, "git/search", Some("git/search")),
        ("separator = '/'", &git, "git_search", None),
        ("separator = '.'", &git, "git/search", Some("git.search")),
        ("", &main, "anything", Some("anything")),
        ("", &main, "main/search", Some("search")),
        ("", &odd, "docs.search", Some("docs.search")),
        ("", &odd, "docs/search", Some("docs_search")),
        // The backend of the tool would be ambiguous.
        ("conflicts = 'priority'", &two, "b/search", None),
        ("conflicts = 'manual'", &two, "b.search", None),
        ("conflicts = 'priority'", &two, "search", Some("search")),
        ("conflicts = 'priority'", &one, "git_hub/search", Some("search")),
        ("conflicts = 'manual'", &one, "git_hub.search", Some("search")),
        ("conflicts = 'manual'", &two, "c/search", Some("c/search")),
        ("", &[], "git/search", Some("git/search")),
    ] {
        assert_eq!(resolved(router, backends, target).as_deref(), name, "{target} {router}");
    }
}

/// Returns the resolved target of a composite in a file with backends.
fn resolved(router: &str, backends: &[(&str, &str)], target: &str) -> Option<String> {
    let mut text = format!("[router]\n{router}\n");
    for (name, more) in backends {
        writeln!(text, "[[backends]]\nname = '{name}'\ncommand = 'a'\n{more}").unwrap();
    }
    for (name, target) in [("outer", target), ("git_all", "git_hub.search")] {
        let keys = format!("name = '{name}'\ndescription = 'd'\ntools = ['{target}']");
        writeln!(text, "[[composite_tools]]\n{keys}").unwrap();
    }
    // Errors about bare names are not expected from the other composite.
    let text = match (router.contains("conflicts"), backends.len()) {
        (true, 2..) => text.replace("git_hub.search", "search"),
        _ => text,
    };
    let config = Config::from_toml_str(&text).ok()?;
    let definition = format!("{:?}", config.composite_tools()[0]);
    let (_, tool) = definition.split_once("tool: \"")?;
    Some(tool.split_once('"')?.0.to_owned())
}

#[tokio::test(start_paused = true)]
async fn backend_target_never_resolves_to_its_wrapping_composite() {
    let server = Server::new().says("github_search", "the tool");
    for (wrapper, helper, called) in [
        // Nested in each other, they are not a cycle, since the tool is meant.
        (r#"["github/search", "helper"]"#, "github/search", "the tool"),
        (r#"["github/search"]"#, "github.search", "the tool"),
        (r#"["github/search", "github/search"]"#, "github/search", "the tool"),
        // By the name that clients see, it is the wrapper.
        (r#"["github/search", "github/search"]"#, "github_search", "the tool the tool"),
    ] {
        let text = format!(
            r#"
[[backends]]
name = "github"
command = "a"

[[composite_tools]]
name = "github_search"
description = "The tool, and more"
labels = "meta"
tools = {wrapper}

[[composite_tools]]
name = "helper"
description = "The tool alone"
report = false
labels = "meta"
tools = ["{helper}"]
"#
        );
        let config = Config::from_toml_str(&text).unwrap_or_else(|error| panic!("{error}"));
        let service = config.composite_layer().layer(server.clone());
        let reply = service.oneshot(call("helper", json!({}))).await.unwrap();
        let content = &reply.tool_result().unwrap().content;
        let texts: Vec<_> = content.iter().map(|block| &*block.as_text().unwrap().text).collect();
        assert_eq!(texts.join(" "), called, "{text}");
    }
}

/// Backends with their own aliases, below aliases of the router's tools.
const ALIASES: &str = r#"
[[backends]]
name = "git"
command = "a"
aliases = [
    { from = "search_code", to = "search" },
    { from = "list", to = "issues" },
    { from = "issues", to = "list" },
    { from = "deep", to = "middle" },
    { tool = "plain", title = "Plain" },
]

[[backends]]
name = "docs"
url = "http://docs"
prefix = "d."

[[aliases]]
from = "git_get"
to = "fetch"

[[aliases]]
from = "git_middle"
to = "top"

[[aliases]]
from = "d.a"
to = "d.b"

[[aliases]]
from = "d.b"
to = "d.a"

[[aliases]]
from = "d.old"
to = "git_new"

[[aliases]]
prompt = "git_ask"
name = "ask"
"#;

#[test]
fn targets_are_resolved_through_aliases() {
    for (target, meant) in [
        ("git/search_code", Ok("git_search")),
        ("git.search_code", Ok("git_search")),
        ("git_search", Ok("git_search")),
        // A tool with this name at the backend itself could not be meant.
        ("git/search", Ok("git_search")),
        ("git.middle", Ok("top")),
        ("git/plain", Ok("git_plain")),
        ("git/ask", Ok("git_ask")),
        // The names of two tools are swapped.
        ("git/list", Ok("git_issues")),
        ("git/issues", Ok("git_list")),
        ("git_list", Ok("git_list")),
        ("docs/a", Ok("d.b")),
        ("docs.b", Ok("d.a")),
        ("d.a", Ok("d.a")),
        ("git/get", Ok("fetch")),
        ("fetch", Ok("fetch")),
        // Through both.
        ("git/deep", Ok("top")),
        ("top", Ok("top")),
        ("docs/old", Ok("git_new")),
        ("git_new", Ok("git_new")),
        // Names that clients do not know.
        ("git_search_code", Err("`git_search_code` has an alias: expected its name `git_search`")),
        ("git_get", Err("`git_get` has an alias: expected its name `fetch`")),
        ("git_middle", Err("`git_middle` has an alias: expected its name `top`")),
        ("git_deep", Err("`git_deep` has an alias: expected its name `top`")),
        ("d.old", Err("`d.old` has an alias: expected its name `git_new`")),
        // Tools that clients do not know by any name.
        ("git/new", Err("`git/new` cannot be called: its name is the alias of another tool")),
    ] {
        let found = found(ALIASES, target);
        assert_eq!(found.as_deref().map_err(String::as_str), meant, "{target}");
    }
}

#[test]
fn aliases_of_a_single_backend_apply_without_prefixes() {
    let backend = |name: &str| {
        let alias = "aliases = [{ from = 'search_code', to = 'search' }]";
        format!("[[backends]]\nname = '{name}'\ncommand = 'a'\n{alias}\n")
    };
    let alias = "[[aliases]]\nfrom = 'get'\nto = 'fetch'\n";
    for conflicts in ["priority", "manual"] {
        let router = format!("[router]\nconflicts = '{conflicts}'\n");
        let one = format!("{router}{}{alias}", backend("a"));
        for (target, name) in [("a/search_code", "search"), ("a.get", "fetch"), ("fetch", "fetch")]
        {
            assert_eq!(found(&one, target).as_deref(), Ok(name), "{target} {conflicts}");
        }
        let two = format!("{router}{}{}{alias}", backend("a"), backend("b"));
        assert_eq!(found(&two, "search").as_deref(), Ok("search"));
        let error = found(&two, "get").unwrap_err();
        assert_eq!(error, "`get` has an alias: expected its name `fetch`");
        let error = found(&two, "a/get").unwrap_err();
        assert!(error.starts_with("`a/get` names a backend, but names have no prefix"), "{error}");
    }
}

#[test]
fn aliases_apply_to_targets_without_backends() {
    let aliases = "[[aliases]]\nfrom = 'get'\nto = 'fetch'\n";
    assert_eq!(found(aliases, "fetch").as_deref(), Ok("fetch"));
    assert_eq!(found(aliases, "other").as_deref(), Ok("other"));
    let error = found(aliases, "get").unwrap_err();
    assert_eq!(error, "`get` has an alias: expected its name `fetch`");
}

#[tokio::test(start_paused = true)]
async fn composite_calls_the_tool_that_its_target_resolves_to() {
    let text = "[[aliases]]\nfrom = 'a'\nto = 'b'\n[[aliases]]\nfrom = 'b'\nto = 'a'\n\
                [[backends]]\nname = 'main'\ncommand = 'c'\nprefix = ''\n";
    for (target, called) in [("main/a", "a"), ("main.b", "b"), ("a", "b"), ("b", "a")] {
        let composite = composite(target);
        let config = Config::from_toml_str(&format!("{text}{composite}")).unwrap();
        let server = Server::new().says("a", "").says("b", "");
        let service = config.stack_layer().layer(server.clone());
        service.oneshot(call("outer", json!({}))).await.unwrap();
        assert_eq!(server.called(), [called], "{target}");
    }
}

fn composite(target: &str) -> String {
    format!("[[composite_tools]]\nname = 'outer'\ndescription = 'd'\ntools = ['{target}']\n")
}

/// Returns the resolved name of a target in a file, or its error.
fn found(text: &str, target: &str) -> Result<String, String> {
    let config = match Config::from_toml_str(&format!("{text}{}", composite(target))) {
        Ok(config) => config,
        Err(error) => match error.mistakes() {
            [mistake] => return Err(mistake.message().to_owned()),
            _ => panic!("{error}"),
        },
    };
    let definition = format!("{:?}", config.composite_tools()[0]);
    let (_, tool) = definition.split_once("tool: \"").unwrap();
    Ok(tool.split_once('"').unwrap().0.to_owned())
}
