//! Names of tools, prompts and resources behind a router, and their conflicts.

use std::collections::HashSet;

use mcp_composite::adapter::router::{
    Backend, Conflicts, Router, RouterBuilder, RouterMistakeKind as Kind,
};
use proptest::prelude::*;
use serde_json::json;

use super::{Server, ask, call, error_of, names, problems, router, tools};
use crate::{scripted::search_tool, support::capture_logs};

fn with(conflicts: Conflicts, backends: impl IntoIterator<Item = Backend>) -> Router {
    let builder = Router::builder().conflicts(conflicts);
    backends.into_iter().fold(builder, |builder, backend| builder.backend(backend)).build().unwrap()
}

fn mistakes(builder: RouterBuilder) -> Vec<Kind> {
    let error = builder.build().expect_err("mistakes");
    error.iter().map(|mistake| mistake.kind().clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn names_have_the_prefix_of_their_backend() {
    let (a, b) = (Server::tools(&["x"]), Server::tools(&["x", "y"]));
    let router = router([a.backend("a"), b.backend("b").prefix("other.")]);

    assert_eq!(tools(&router).await, ["a_x", "other.x", "other.y"]);
    assert_eq!(router.exposed_name("a", "x").as_deref(), Some("a_x"));
    assert_eq!(router.exposed_name("b", "x").as_deref(), Some("other.x"));
    assert_eq!(router.exposed_name("c", "x"), None);
    assert_eq!(router.backends().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(call(&router, "other.y").await, None);
    assert_eq!(b.take_requests(), ["tools/list -", "tools/call y"]);
    assert_eq!(a.take_requests(), ["tools/list -"]);
}

#[tokio::test(start_paused = true)]
async fn separator_may_be_a_slash() {
    let server = Server::tools(&["x", "x y"]);
    let router = Router::builder().separator("/").backend(server.backend("a/b")).build().unwrap();
    assert_eq!(tools(&router).await, ["a/b/x"]);
    assert_eq!(call(&router, "a/b/x").await, None);
    assert_eq!((router.separator(), router.conflicts()), ("/", Conflicts::Prefix));
}

#[tokio::test(start_paused = true)]
async fn backend_may_have_an_empty_prefix() {
    let (a, b) = (Server::tools(&["x"]), Server::tools(&["x"]));
    let router = router([a.backend("a").prefix(""), b.backend("b")]);
    assert_eq!(tools(&router).await, ["x", "b_x"]);
    assert_eq!(call(&router, "b_x").await, None);
    assert_eq!(b.take_requests(), ["tools/list -", "tools/call x"]);
}

#[tokio::test(start_paused = true)]
async fn ambiguous_prefixed_names_are_hidden_and_reported() {
    let (logged, _guard) = capture_logs();
    let (a, ab) = (Server::tools(&["b_x", "y"]), Server::tools(&["x", "z"]));
    let router = router([a.backend("a"), ab.backend("a_b")]);

    assert_eq!(tools(&router).await, ["a_y", "a_b_z"]);
    tools(&router).await;

    let problem = "the tool `a_b_x` is left out: both backend `a` and backend `a_b` have it";
    assert_eq!(problems(&router), [problem]);
    assert_eq!(logged.text().matches(problem).count(), 1, "{}", logged.text());
    let refusal = (-32602, "tool `a_b_x` is not available at the moment".to_owned());
    assert_eq!(call(&router, "a_b_x").await, Some(refusal));
    // An unambiguous name is routed to the backend that lists it, not to the longest prefix.
    a.with(|has| has.tools.push(search_tool("b_only")));
    assert_eq!(tools(&router).await, ["a_y", "a_b_only", "a_b_z"]);
    ab.take_requests();
    assert_eq!(call(&router, "a_b_only").await, None);
    assert_eq!(ab.take_requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn priority_mode_lists_the_tool_of_the_first_backend() {
    let (logged, _guard) = capture_logs();
    let (a, b) = (Server::tools(&["x", "y"]), Server::tools(&["z", "x"]));
    let router = with(Conflicts::Priority, [a.backend("a"), b.backend("b")]);

    assert_eq!(tools(&router).await, ["x", "y", "z"]);
    tools(&router).await;

    assert_eq!(call(&router, "x").await, None);
    assert_eq!(a.take_requests().last().unwrap(), "tools/call x");
    let problem = "the tool `x` of backend `b` is left out: the earlier backend `a`";
    assert_eq!(logged.text().matches(problem).count(), 1, "{}", logged.text());
    assert_eq!(problems(&router).len(), 1);
    assert_eq!(router.exposed_name("b", "z").as_deref(), Some("z"));
}

#[tokio::test(start_paused = true)]
async fn manual_mode_hides_and_rejects_duplicates() {
    let give = |server: Server| {
        server.set(|has| {
            has.prompts = vec!["p".into()];
            has.resources = vec!["r:1".into()];
            has.templates = vec!["t:{x}".into()];
        })
    };
    let a = give(Server::tools(&["x", "y"]));
    let b = give(Server::tools(&["x"]));
    let router = with(Conflicts::Manual, [a.backend("a"), b.backend("b")]);

    assert_eq!(tools(&router).await, ["y"]);
    for method in ["prompts/list", "resources/list", "resources/templates/list"] {
        assert_eq!(names(&router, method).await, [""; 0], "{method}");
    }
    a.take_requests();
    b.take_requests();
    let refused = "tool `x` is not available at the moment".to_owned();
    assert_eq!(call(&router, "x").await, Some((-32602, refused)));
    let (code, _) = error_of(&router, "prompts/get", json!({ "name": "p" })).await.unwrap();
    assert_eq!(code, -32602);
    let (code, _) = error_of(&router, "resources/read", json!({ "uri": "r:1" })).await.unwrap();
    assert_eq!(code, -32002);
    assert_eq!((a.take_requests(), b.take_requests()), (vec![], vec![]));
    let problems = problems(&router);
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(
        problems.iter().all(|problem| problem.contains("both backend `a` and backend `b` have it"))
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_names_are_hidden_and_reported_once() {
    let (logged, _guard) = capture_logs();
    let long = "l".repeat(127);
    let bad = ["white space", "", "\u{1b}[2J", "größe", &long, "fine", "fine"];
    let server = Server::tools(&bad).set(|has| has.prompts = vec!["a b".into(), "good".into()]);
    let router = router([server.backend("a")]);

    for _ in 0..3 {
        assert_eq!(tools(&router).await, ["a_fine"]);
        assert_eq!(names(&router, "prompts/list").await, ["a_good"]);
    }

    let problems = problems(&router);
    assert_eq!(problems.len(), 7, "{problems:#?}");
    assert!(
        problems[0].starts_with("the tool `a_white space` of backend `a` is left out"),
        "{problems:?}"
    );
    assert!(
        problems.contains(&"backend `a` has two tools `a_fine`: the second is ignored".to_owned())
    );
    let text = logged.text();
    assert_eq!(text.lines().count(), 7, "{text}");
    assert!(text.contains("\\u{1b}[2J") && !text.contains('\u{1b}'), "{text}");
    assert!(!text.contains(&long));
}

#[tokio::test(start_paused = true)]
async fn duplicate_uri_belongs_to_the_first_backend() {
    let give = |has: &mut super::Has| {
        has.resources = vec!["r:1".into()];
        has.templates = vec!["t:{x}".into()];
    };
    let (a, b) = (Server::default().set(give), Server::default().set(give));
    let router = router([a.backend("a"), b.backend("b")]);
    assert_eq!(names(&router, "resources/list").await, ["r:1"]);
    assert_eq!(names(&router, "resources/templates/list").await, ["t:{x}"]);
    ask(&router, "resources/read", json!({ "uri": "r:1" })).await;
    ask(&router, "resources/read", json!({ "uri": "t:1" })).await;
    assert_eq!(a.take_requests()[2..], ["resources/read r:1", "resources/read t:1"]);
    assert_eq!(problems(&router).len(), 2);
}

#[test]
fn all_errors_are_reported_at_once() {
    let server = Server::default();
    let backend = |name: &str| server.backend(name);
    assert_eq!(mistakes(Router::builder()), [Kind::NoBackends]);
    let builder = Router::builder()
        .separator("a-b c-d-e")
        .backend(backend(""))
        .backend(backend("größe"))
        .backend(backend("a"))
        .backend(backend("a"))
        .backend(backend("b").prefix("p "))
        .backend(backend("c").prefix("a/"))
        .backend(backend("d").prefix("same"))
        .backend(backend("e").prefix("same"));
    let error = builder.build().unwrap_err();
    let positions: Vec<_> = error.iter().map(|mistake| mistake.backend()).collect();
    let places = [None, Some(0), Some(1), Some(3), Some(5), Some(7)];
    assert_eq!(positions, places, "{error}");
    assert_eq!(error.to_string().lines().count(), 6);
    assert!(
        error.to_string().ends_with("backends `d` and `e` have the same prefix `same`"),
        "{error}"
    );
    let builder = Router::builder().separator("").backend(backend("a").prefix("x".repeat(65)));
    assert!(matches!(
        &mistakes(builder)[..],
        [Kind::IllegalSeparator { .. }, Kind::IllegalPrefix { .. }]
    ));
    // The prefix of one backend is the name and separator of another.
    let builder = Router::builder().backend(backend("a")).backend(backend("b").prefix("a_"));
    assert!(matches!(&mistakes(builder)[..], [Kind::DuplicatePrefix { .. }]));
    let builder = Router::builder().conflicts(Conflicts::Manual).backend(backend("a").prefix("x"));
    assert_eq!(
        builder.build().unwrap_err().to_string(),
        "the prefix of backend `a` cannot be used with `conflicts = \"manual\"`"
    );
}

fn some_names(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<String>> {
    proptest::collection::hash_set("[ab_]{1,4}", range).prop_map(|set| set.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Few letters, so that prefixes overlap often.
    #[test]
    fn listed_name_reaches_its_own_tool(
        backends in some_names(1..5),
        tools in proptest::collection::vec(some_names(0..6), 5),
        conflicts in prop_oneof![
            Just(Conflicts::Prefix), Just(Conflicts::Priority), Just(Conflicts::Manual),
        ],
    ) {
        let servers: Vec<_> = tools
            .iter()
            .map(|tools| Server::tools(&tools.iter().map(String::as_str).collect::<Vec<_>>()))
            .collect();
        let all = backends.iter().zip(&servers).map(|(name, server)| server.backend(name));
        let router = with(conflicts, all);
        futures::executor::block_on(async {
            let listed = super::tools(&router).await;
            let unique: HashSet<_> = listed.iter().collect();
            assert_eq!(unique.len(), listed.len(), "nothing is listed twice");
            servers.iter().for_each(|server| drop(server.take_requests()));
            for name in listed {
                assert_eq!(call(&router, &name).await, None, "{name}");
                let mut reached = backends.iter().zip(&servers).flat_map(|(backend, server)| {
                    let requests = server.take_requests();
                    requests.into_iter().map(move |request| (backend, request))
                });
                let (backend, request) = reached.next().expect("a call");
                assert!(reached.next().is_none());
                let own = request.strip_prefix("tools/call ").expect("a call");
                assert_eq!(router.exposed_name(backend, own).as_deref(), Some(&*name));
            }
        });
    }
}
