//! Views of the program over HTTP, each at its own path.

use std::{cell::Cell, fs};

use futures::future::join_all;
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::{
    authentication::{
        ALICE, Backend, Issuer, Program, TOKENS, answer, challenge, claims, jwt, path,
    },
    support::{soon, until},
};

/// Two views: one without composites, and one with the same composites as the file.
const VIEWS: &str = "[[views]]\npath = '/team-a'\ncomposite_tools = []\n\
                     [[views]]\npath = '/team-b'\nfilter.hide_tools = ['other']\n";

// === impl Program ===

impl Program {
    /// Lists the tools at a path, and returns the status and the names.
    async fn names(&self, path: &str, token: &str) -> (u16, Vec<String>) {
        let request = self.request_at(path, "tools/list", json!({})).bearer_auth(token);
        let (status, answer) = answer(request).await;
        let tools = answer["result"]["tools"].as_array().cloned().unwrap_or_default();
        (status, tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect())
    }

    /// Opens a session of an older client, and returns its id.
    async fn open(&self, path: &str, token: &str) -> String {
        let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "0" },
        } });
        let request = self.post_at(path).bearer_auth(token).body(initialize.to_string());
        let opened = soon(request.send()).await.unwrap();
        assert_eq!(opened.status(), 200);
        opened.headers()["mcp-session-id"].to_str().unwrap().to_owned()
    }

    /// Sends a ping in a session, and returns the status.
    async fn ping(&self, path: &str, token: &str, session: &str) -> u16 {
        let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string();
        let request = self.post_at(path).header("mcp-session-id", session).bearer_auth(token);
        soon(request.body(body).send()).await.unwrap().status().as_u16()
    }
}

/// Returns a file with this backend and more sections.
fn file(backend: &Backend, more: &[&str]) -> String {
    backend.sections() + &more.concat()
}

#[tokio::test]
async fn view_is_served_at_exactly_its_path_with_all_protections() {
    let backend = Backend::start().await;
    let program = Program::start(&file(&backend, &[VIEWS, TOKENS]), "127.0.0.1:0").await;
    let all = ["b_echo", "both", "careful"].map(str::to_owned).to_vec();
    assert_eq!(program.names("/mcp", ALICE).await, (200, all.clone()));
    assert_eq!(program.names("/team-a", ALICE).await, (200, vec!["b_echo".to_owned()]));
    assert_eq!(program.names("/team-b", ALICE).await, (200, all));
    for path in ["/team-a/", "/team-a/x", "/team-A", "/team-", "/team-c", "/", "/mcp-2"] {
        assert_eq!(program.names(path, ALICE).await, (404, Vec::new()), "{path}");
    }
    for path in ["/team-a", "/team-c"] {
        assert_eq!(program.names(path, "mallory-has-no-token").await.0, 401, "{path}");
    }
    for (header, value) in [("origin", "https://example.com"), ("host", "example.com")] {
        let request = program.request_at("/team-a", "tools/list", json!({})).bearer_auth(ALICE);
        assert_eq!(answer(request.header(header, value)).await.0, 403, "{header}");
    }
    // Without a backend, it would say that it is not connected.
    let call = json!({ "name": "b_echo", "arguments": { "q": "hello" } });
    let request = program.request_at("/team-a", "tools/call", call).bearer_auth(ALICE);
    assert!(answer(request).await.1["result"].to_string().contains("hello"));
}

#[tokio::test]
async fn session_belongs_to_the_view_in_which_it_was_opened() {
    let backend = Backend::start().await;
    for (tokens, count) in [(TOKENS, 2), ("", 2)] {
        let program = Program::start(&file(&backend, &[VIEWS, tokens]), "127.0.0.1:0").await;
        let paths = ["/mcp", "/team-a", "/team-b"];
        for here in paths {
            let session = program.open(here, ALICE).await;
            assert_eq!(program.ping(here, ALICE, &session).await, 200, "{here}");
            let others = paths.iter().filter(|there| **there != here);
            let mut rejected = 0;
            for there in others {
                assert_eq!(program.ping(there, ALICE, &session).await, 404, "{here} {there}");
                rejected += 1;
            }
            assert_eq!(rejected, count);
        }
    }
}

#[tokio::test]
async fn connection_limit_is_shared_by_all_views() {
    let backend = Backend::start().await;
    let text = file(&backend, &[VIEWS]);
    let program = Program::start_with(&text, "127.0.0.1:0", &["--max-connections", "2"]).await;
    program.open("/mcp", "").await;
    program.open("/team-a", "").await;
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "0" },
    } });
    let request = program.post_at("/team-b").body(initialize.to_string());
    assert_eq!(soon(request.send()).await.unwrap().status(), 429);
}

#[tokio::test]
async fn suspended_run_resumes_only_in_a_view_with_the_same_composite() {
    let backend = Backend::start().await;
    let changed = "[[views]]\npath = '/changed'\n[[views.composite_tools]]\nname = 'careful'\n\
                   description = 'Asks first'\nstrategy = 'pipeline'\nsteps = [\
                   { id = 'ask', type = 'elicitation', message = 'Really?', \
                     schema = { type = 'object', properties = {} } },\
                   { id = 'echo', tool = 'b_echo', arguments = { q = 'done' } }]\n";
    let text = file(&backend, &[VIEWS, changed, TOKENS]);
    let program = Program::start(&text, "127.0.0.1:0").await;
    let call = async |path: &str, more: Value| {
        let mut params = json!({ "name": "careful", "arguments": {} });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        answer(program.request_at(path, "tools/call", params).bearer_auth(ALICE)).await.1
    };
    let question = call("/team-b", json!({})).await;
    let state = question["result"]["requestState"].clone();
    let key =
        question["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let answers = json!({
        "requestState": state,
        "inputResponses": { key: { "action": "accept", "content": {} } },
    });
    for path in ["/team-a", "/changed"] {
        let refused = call(path, answers.clone()).await;
        assert!(refused["error"].is_object(), "{path}: {refused}");
        assert!(!refused.to_string().contains("done"), "{path}: {refused}");
    }
    for path in ["/mcp", "/team-b"] {
        assert!(call(path, answers.clone()).await["result"].to_string().contains("done"), "{path}");
    }
}

#[tokio::test]
async fn view_requires_its_scopes_and_has_metadata_of_its_own() {
    let (backend, issuer) = (Backend::start().await, Issuer::new("one", 1));
    let folder = tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    fs::write(&keys, issuer.key_set().to_string()).unwrap();
    let views = "[[views]]\npath = '/team-a'\nscopes = ['tools:a', 'read']\n\
                 [[views]]\npath = '/open'\n";
    let text = file(&backend, &[views, &jwt(path(&keys), "scopes = ['read']")]);
    let program = Program::start(&text, "127.0.0.1:0").await;
    let token = |scope: &str, audience: &str| {
        issuer.sign(&claims(&json!({ "scope": scope, "aud": audience })))
    };
    let main = "https://tools.example.com/mcp";
    let own = "https://tools.example.com/team-a";
    for (path, scope, audience, status) in [
        ("/mcp", "read", main, 200),
        ("/open", "read", main, 200),
        ("/team-a", "read", main, 403),
        ("/team-a", "tools:a", main, 403),
        ("/team-a", "read tools:b", main, 403),
        ("/team-a", "read tools:a", main, 200),
        ("/mcp", "tools:a", main, 403),
        // A token for the URL of a view is valid there only.
        ("/team-a", "read tools:a", own, 200),
        ("/mcp", "read tools:a", own, 401),
        ("/open", "read tools:a", own, 401),
    ] {
        let got = program.names(path, &token(scope, audience)).await.0;
        assert_eq!(got, status, "{path} {scope} {audience}");
    }

    let request = program.request_at("/team-a", "tools/list", json!({}));
    let response = soon(request.bearer_auth(token("read", main)).send()).await.unwrap();
    let metadata = "https://tools.example.com/.well-known/oauth-protected-resource/team-a";
    let expected = format!(
        "Bearer error=\"insufficient_scope\", resource_metadata=\"{metadata}\", \
         scope=\"read tools:a\""
    );
    assert_eq!(challenge(&response), (403, expected));
    for (suffix, resource, scopes) in [
        ("/team-a", own, json!(["read", "tools:a"])),
        ("/open", "https://tools.example.com/open", json!(["read"])),
        ("/mcp", main, json!(["read"])),
        ("", main, json!(["read"])),
    ] {
        let path = format!("/.well-known/oauth-protected-resource{suffix}");
        let url = program.url.replace("/mcp", &path);
        let (_, metadata) = answer(program.client.get(url)).await;
        let got = (&metadata["resource"], &metadata["scopes_supported"]);
        assert_eq!(got, (&json!(resource), &scopes), "{suffix}");
    }

    // Another audience was set on purpose.
    let jwt = jwt(path(&keys), &format!("audience = '{main}/'"));
    program.reload(&file(&backend, &["[[views]]\npath = '/team-a'\n", &jwt]));
    until(async || program.names("/team-a", &token("", &format!("{main}/"))).await.0 == 200).await;
    assert_eq!(program.names("/team-a", &token("", own)).await.0, 401);
}

#[tokio::test]
async fn reload_adds_and_removes_views_and_ends_their_streams() {
    let backend = Backend::start().await;
    let view = |path: &str| format!("[[views]]\npath = '{path}'\n");
    let text = file(&backend, &[&view("/kept"), &view("/removed"), TOKENS]);
    let program = Program::start_with(&text, "127.0.0.1:0", &["--drain", "0s"]).await;
    let [kept, removed] =
        [program.open("/kept", ALICE).await, program.open("/removed", ALICE).await];
    let stream = async |path: &str, session: &str| {
        let url = program.url.replace("/mcp", path);
        let request = program.client.get(url).bearer_auth(ALICE).header("mcp-session-id", session);
        let response = soon(request.header("accept", "text/event-stream").send()).await.unwrap();
        assert_eq!(response.status(), 200);
        response
    };
    let mut ends = stream("/removed", &removed).await;
    let mut stays = stream("/kept", &kept).await;
    assert_eq!(program.names("/added", ALICE).await.0, 404);

    program.reload(&file(&backend, &[&view("/kept"), &view("/added"), TOKENS]));
    until(async || program.names("/added", ALICE).await.0 == 200).await;
    assert_eq!(program.names("/removed", ALICE).await.0, 404);
    assert_eq!(program.ping("/removed", ALICE, &removed).await, 404);
    assert_eq!(program.ping("/kept", ALICE, &kept).await, 200);
    // The stream ends, possibly after the notifications of the reload.
    while let Ok(Some(_)) = soon(ends.chunk()).await {}
    let waits = tokio::time::timeout(std::time::Duration::from_millis(200), async {
        while let Ok(Some(_)) = stays.chunk().await {}
    });
    assert!(waits.await.is_err());
    program.logs("the view /removed was removed").await;

    // A session does not come back with its view.
    program.reload(&file(&backend, &[&view("/removed"), TOKENS]));
    until(async || program.names("/removed", ALICE).await.0 == 200).await;
    assert_eq!(program.ping("/removed", ALICE, &removed).await, 404);
}

/// Returns a view with a composite that returns the path of the view and a version.
fn which(path: &str, version: usize) -> String {
    format!(
        "[[views]]\npath = '{path}'\n[[views.composite_tools]]\nname = 'which'\n\
         description = 'Names the view'\nstrategy = 'pipeline'\n\
         steps = [{{ id = 'echo', tool = 'b_echo', arguments = {{ q = '<{path} {version}>' }} }}]\n"
    )
}

#[tokio::test]
async fn calls_during_reloads_are_answered_by_their_own_view() {
    const RELOADS: usize = 10;
    let backend = Backend::start().await;
    // The first view is replaced by each reload, and the others are added and removed.
    let text = |version: usize| {
        let other = ["/even", "/odd"][version % 2];
        file(&backend, &[&which("/kept", version), &which(other, version)])
    };
    let program = Program::start(&text(0), "127.0.0.1:0").await;
    let is_over = Cell::new(false);
    // The versions that have last answered in each place.
    let seen = [const { Cell::new(None) }; 6];
    let (program, is_over, seen) = (&program, &is_over, &seen);
    let paths = ["/kept", "/kept", "/even", "/even", "/odd", "/odd"];
    let calls = move |place: usize| async move {
        let (path, seen) = (paths[place], &seen[place]);
        while !is_over.get() {
            let call = json!({ "name": "which", "arguments": {} });
            let (status, answer) = answer(program.request_at(path, "tools/call", call)).await;
            let text = answer.to_string();
            let named = text.split('<').skip(1).filter_map(|rest| rest.split_once('>'));
            let named: Vec<_> = named.map(|(name, _)| name.split_once(' ').unwrap()).collect();
            assert!(named.iter().all(|(view, _)| *view == path), "{path}: {text}");
            let Some((_, version)) = named.first() else {
                assert_ne!(path, "/kept", "{status} {text}");
                // It had been removed before the call or during it.
                assert!(status == 404 || answer["error"].is_object(), "{path}: {status} {text}");
                continue;
            };
            let version: usize = version.parse().unwrap();
            assert!(Some(version) >= seen.get(), "{path}: {version} after {seen:?}");
            seen.set(Some(version));
        }
    };
    let reloads = async {
        for version in 1..=RELOADS {
            program.reload(&text(version));
            until(async || program.log().matches("reloaded: ").count() == version).await;
            // All clients of the current views have reached this version.
            let removed = ["/odd", "/even"][version % 2];
            let is_current =
                |(path, seen): (&str, &Cell<_>)| path == removed || seen.get() == Some(version);
            until(async || paths.into_iter().zip(seen).all(is_current)).await;
        }
        is_over.set(true);
    };
    tokio::join!(join_all((0..paths.len()).map(calls)), reloads);
}
