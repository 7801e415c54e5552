//! Tokens of callers, which are exchanged for tokens of the backend.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, SystemTime},
};

use axum::http::StatusCode;
use futures::{StreamExt, stream};
use mcp_composite::{
    adapter::{
        AuthenticatedCaller, CallerToken, RemoteService,
        remote::oauth::{OAuth, TokenExchange},
    },
    message::{BackendErrorKind, Context, Request},
};
use rmcp::model::CallToolRequestParams;
use serde_json::{Value, json};
use tower::{Service, ServiceExt};

use super::{
    issuer::Issuer,
    protected::{Protected, bearer},
};
use crate::support::{Era, capture_logs, soon, until};

fn connect(backend: &Protected, exchange: TokenExchange) -> RemoteService {
    let oauth = OAuth::TokenExchange(exchange);
    RemoteService::builder("docs").http_with_oauth(&backend.url(), [], oauth)
}

/// Returns the context of a request of a caller.
fn context(caller: &str, token: CallerToken) -> Context {
    let mut parts = http::Request::new(()).into_parts().0;
    parts.extensions.insert(AuthenticatedCaller::new(caller));
    parts.extensions.insert(token);
    let mut context = Context::default();
    context.extensions_mut().insert(parts);
    context
}

/// Returns a call with this argument and the token `TOKEN/secret` of the caller.
fn call(caller: &str, token: &str, argument: &Value) -> Request {
    let params = CallToolRequestParams::new("whoami")
        .with_arguments(json!({ "n": argument }).as_object().cloned().unwrap());
    let token = CallerToken::new(format!("{token}/secret"));
    Request::call_tool_with(params).with_context(context(caller, token))
}

/// Makes a call, and returns its argument and the token that the backend received.
async fn answer<S>(service: &S, request: Request) -> (Value, String)
where
    S: Service<Request, Response = mcp_composite::message::Reply> + Clone,
    S::Error: std::fmt::Debug,
{
    let reply = soon(service.clone().oneshot(request)).await.unwrap();
    let Some(result) = reply.tool_result() else { panic!("{:?}", reply.error()) };
    let text = result.content[0].as_text().unwrap().text.clone();
    let [arguments, token]: [Value; 2] = serde_json::from_str(&text).unwrap();
    (arguments["n"].clone(), token.as_str().unwrap().to_owned())
}

async fn token_of_call(service: &RemoteService, caller: &str, token: &str) -> String {
    answer(service, call(caller, token, &Value::Null)).await.1
}

/// Returns the bearer tokens that a backend received.
fn tokens(backend: &Protected) -> BTreeSet<String> {
    backend.headers().iter().map(|headers| bearer(headers).unwrap()).collect()
}

#[tokio::test]
async fn token_of_each_caller_is_exchanged_once() {
    for era in [Era::Legacy, Era::Modern] {
        let (issuer, backend) = (Issuer::start().await, Protected::start(era, true).await);
        let client = issuer.client().scopes(["read"]).audience("docs").resource("urn:docs");
        let remote = connect(&backend, TokenExchange::new(client));
        soon(remote.connected()).await.unwrap();
        assert_eq!(tokens(&backend), ["token-1".to_owned()].into());
        for _ in 0..3 {
            assert_eq!(token_of_call(&remote, "alice", "alice").await, "alice-2", "{era:?}");
            assert_eq!(token_of_call(&remote, "bob", "bob").await, "bob-3", "{era:?}");
        }
        let expected = [
            ("audience", "docs"),
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("resource", "urn:docs"),
            ("scope", "read"),
            ("subject_token", "alice/secret"),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ];
        let expected: BTreeMap<_, _> =
            expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(issuer.requests()[1], expected);
        assert_eq!(issuer.count(), 3);

        // Lists have the token of the program, even if a caller requests them.
        let before = backend.headers().len();
        let list = Request::list_tools().with_context(context("alice", CallerToken::new("alice")));
        let reply = soon(remote.clone().oneshot(list)).await.unwrap();
        assert_eq!(reply.tools().unwrap().tools.len(), 2);
        let lists = &backend.headers()[before..];
        assert!(lists.iter().all(|headers| bearer(headers).as_deref() == Some("token-1")));
        remote.close().await;
        let closed = remote.oneshot(call("alice", "alice", &Value::Null)).await.unwrap_err();
        assert_eq!(closed.kind(), BackendErrorKind::NotConnected);
    }
}

#[tokio::test]
async fn each_connection_serves_one_caller_in_10_000_interleaved_calls() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Legacy, true).await);
    let remote = connect(&backend, TokenExchange::new(issuer.client()));
    let callers = ["alice", "bob", "carol", "dave"];
    let answers: Vec<_> = stream::iter(0..10_000_usize)
        .map(|n| {
            let (remote, caller) = (&remote, callers[n % callers.len()]);
            async move { (n, answer(remote, call(caller, caller, &json!(n))).await) }
        })
        .buffer_unordered(32)
        .collect()
        .await;
    assert_eq!(answers.len(), 10_000);
    for (n, (argument, token)) in answers {
        let caller = callers[n % callers.len()];
        assert_eq!((argument, token.split('-').next().unwrap()), (json!(n), caller));
    }

    let mut of_sessions = HashMap::<_, BTreeSet<_>>::new();
    for headers in backend.headers() {
        let name = bearer(&headers).unwrap().split('-').next().unwrap().to_owned();
        if let Some(session) = headers.get("mcp-session-id") {
            of_sessions.entry(session.to_str().unwrap().to_owned()).or_default().insert(name);
        }
        let text = format!("{headers:?}");
        assert!(!text.contains("secret"), "the token of a caller was forwarded: {text}");
    }
    // One of the program, and one of each caller.
    assert_eq!(of_sessions.len(), 1 + callers.len(), "{of_sessions:?}");
    assert!(of_sessions.values().all(|names| names.len() == 1), "{of_sessions:?}");
    // One token for each, too.
    assert_eq!(issuer.count(), 1 + callers.len());
}

#[tokio::test]
async fn request_has_the_token_of_its_own_caller_token() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Legacy, true).await);
    let remote = connect(&backend, TokenExchange::new(issuer.client()));
    soon(remote.connected()).await.unwrap();
    // One caller with two tokens, such as one with more scopes than the other.
    for _ in 0..3 {
        assert_eq!(token_of_call(&remote, "alice", "narrow").await, "narrow-2");
        assert_eq!(token_of_call(&remote, "alice", "wide").await, "wide-3");
    }
    let sessions: BTreeSet<_> = backend
        .headers()
        .iter()
        .filter(|headers| bearer(headers).as_deref() != Some("token-1"))
        .filter_map(|headers| Some(headers.get("mcp-session-id")?.to_str().unwrap().to_owned()))
        .collect();
    assert_eq!(sessions.len(), 1, "both have one connection");
}

#[tokio::test]
async fn request_without_a_caller_is_an_error() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    let remote = connect(&backend, TokenExchange::new(issuer.client()));
    soon(remote.connected()).await.unwrap();
    let mut parts = http::Request::new(()).into_parts().0;
    parts.extensions.insert(AuthenticatedCaller::new("alice"));
    let mut without_token = Context::default();
    without_token.extensions_mut().insert(parts);
    for context in [Context::default(), without_token] {
        let request = Request::call_tool("whoami").with_context(context);
        let reply = soon(remote.clone().oneshot(request)).await.unwrap();
        let expected = "backend `docs` needs an authenticated caller with a bearer token, and \
                        this request has none";
        assert_eq!(reply.error().unwrap().message, expected);
    }
    assert_eq!(issuer.count(), 1);
    assert_eq!(tokens(&backend), ["token-1".to_owned()].into());
}

#[tokio::test]
async fn refused_exchange_is_an_error_without_the_token() {
    let (log, _guard) = capture_logs();
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    let exchange = TokenExchange::new(issuer.client()).max_callers(1);
    let remote = connect(&backend, exchange);
    soon(remote.connected()).await.unwrap();
    let text = r#"{"error":"invalid_target","error_description":"not for alice/secret"}"#;
    issuer.answers((StatusCode::BAD_REQUEST, text));
    let reply = soon(remote.clone().oneshot(call("alice", "alice", &Value::Null))).await.unwrap();
    let expected = "the caller has no access to backend `docs`";
    assert_eq!(reply.error().unwrap().message, expected);
    assert!(log.text().contains("invalid_target: not for ***"), "{}", log.text());

    issuer.answers((StatusCode::SERVICE_UNAVAILABLE, ""));
    let failed = soon(remote.clone().oneshot(call("alice", "other", &Value::Null))).await;
    assert_eq!(failed.unwrap_err().kind(), BackendErrorKind::NotConnected);
    // Neither request has taken the only place.
    assert_eq!(token_of_call(&remote, "bob", "bob").await, "bob-4");
    assert!(!log.text().contains("alice/secret"));
}

#[tokio::test]
async fn refused_token_is_not_exchanged_again_for_a_moment() {
    let (log, _guard) = capture_logs();
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    let remote = connect(&backend, TokenExchange::new(issuer.client()));
    soon(remote.connected()).await.unwrap();
    issuer.answers((StatusCode::BAD_REQUEST, r#"{"error":"invalid_grant"}"#));
    for _ in 0..20 {
        let call = call("alice", "alice", &Value::Null);
        let reply = soon(remote.clone().oneshot(call)).await.unwrap();
        let expected = "the caller has no access to backend `docs`";
        assert_eq!(reply.error().unwrap().message, expected);
    }
    assert_eq!(issuer.count(), 2);
    assert_eq!(log.text().matches("invalid_grant").count(), 1, "{}", log.text());
    // Neither another token nor another caller is affected.
    assert_eq!(token_of_call(&remote, "alice", "new").await, "new-3");
    assert_eq!(token_of_call(&remote, "bob", "alice").await, "alice-4");
}

#[tokio::test]
async fn expired_token_of_a_caller_is_exchanged_once_for_a_call() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    let remote = connect(&backend, TokenExchange::new(issuer.client()));
    soon(remote.connected()).await.unwrap();
    // A server accepts such a token for a moment, because clocks differ.
    let token = CallerToken::new("alice/secret").expires_at(SystemTime::now());
    let request = Request::call_tool("whoami").with_context(context("alice", token));
    assert_eq!(answer(&remote, request).await.1, "alice-2");
    assert_eq!(issuer.count(), 2);
}

#[tokio::test]
async fn rejected_token_of_a_caller_is_exchanged_again() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Legacy, true).await);
    let remote = connect(&backend, TokenExchange::new(issuer.client()));
    soon(remote.connected()).await.unwrap();
    assert_eq!(token_of_call(&remote, "alice", "alice").await, "alice-2");
    assert_eq!(token_of_call(&remote, "bob", "bob").await, "bob-3");
    backend.revoke("alice-2");
    assert_eq!(token_of_call(&remote, "alice", "alice").await, "alice-4");
    assert_eq!(token_of_call(&remote, "bob", "bob").await, "bob-3");
}

#[tokio::test]
async fn exchanged_token_is_not_kept_longer_than_the_token_of_the_caller() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    issuer.lifetime(3600);
    let remote = connect(&backend, TokenExchange::new(issuer.client()));
    soon(remote.connected()).await.unwrap();
    let begun = SystemTime::now();
    let lifetime = Duration::from_millis(1500);
    let token = CallerToken::new("alice/secret").expires_at(begun + lifetime);
    let request = || Request::call_tool("whoami").with_context(context("alice", token.clone()));
    assert_eq!(answer(&remote, request()).await.1, "alice-2");
    let again = answer(&remote, request()).await.1;
    // A busy machine may take longer for the two calls than the token is kept.
    assert!(again == "alice-2" || begun.elapsed().unwrap() > lifetime / 2, "{again}");
    tokio::time::sleep(lifetime + Duration::from_millis(100)).await;
    assert_ne!(answer(&remote, request()).await.1, "alice-2");
}

#[tokio::test]
async fn number_of_connections_is_bounded() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Legacy, true).await);
    let remote = connect(&backend, TokenExchange::new(issuer.client()).max_callers(2));
    soon(remote.connected()).await.unwrap();
    for (caller, token) in [("alice", "alice-2"), ("bob", "bob-3"), ("alice", "alice-2")] {
        assert_eq!(token_of_call(&remote, caller, caller).await, token);
    }
    // Bob's connection was not in use for the longest time.
    assert_eq!(token_of_call(&remote, "carol", "carol").await, "carol-4");
    assert_eq!(token_of_call(&remote, "alice", "alice").await, "alice-2");
    assert_eq!(token_of_call(&remote, "bob", "bob").await, "bob-5");
    until(async || backend.ended_sessions() == 2).await;

    let busy: Vec<_> = ["alice", "bob"]
        .into_iter()
        .map(|caller| {
            let params = CallToolRequestParams::new("wait");
            let token = CallerToken::new(format!("{caller}/secret"));
            let request = Request::call_tool_with(params).with_context(context(caller, token));
            tokio::task::JoinSet::from_iter([remote.clone().oneshot(request)])
        })
        .collect();
    until(async || backend.waiting() == 2).await;
    let failed = soon(remote.clone().oneshot(call("dave", "dave", &Value::Null))).await;
    let error = failed.unwrap_err();
    assert_eq!(error.to_string(), "backend `docs` is overloaded");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "the connections of all 2 callers are in use");
    // A caller with a connection is served.
    assert!(token_of_call(&remote, "bob", "bob").await.starts_with("bob-"));
    drop(busy);
    until(async || remote.clone().oneshot(call("dave", "dave", &Value::Null)).await.is_ok()).await;
}

#[tokio::test]
async fn unused_connection_is_closed() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Legacy, true).await);
    let exchange = TokenExchange::new(issuer.client()).idle_timeout(Duration::from_millis(300));
    let remote = connect(&backend, exchange);
    soon(remote.connected()).await.unwrap();
    assert_eq!(token_of_call(&remote, "alice", "alice").await, "alice-2");
    assert_eq!(backend.ended_sessions(), 0);
    until(async || backend.ended_sessions() == 1).await;
    // Its token is forgotten, too.
    assert_eq!(token_of_call(&remote, "alice", "alice").await, "alice-3");
}
