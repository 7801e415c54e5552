//! Tokens of the program itself.

use std::{collections::BTreeMap, io::ErrorKind, net::TcpListener, time::Duration};

use axum::http::StatusCode;
use futures::future::join_all;
use mcp_composite::{
    adapter::{
        RemoteService,
        remote::oauth::{OAuth, OAuthClient},
    },
    message::Request,
};
use serde_json::{Value, json};
use tempfile::tempdir;
use tower::ServiceExt;

use super::{
    issuer::{CLIENT, Issuer, SECRET},
    protected::{Protected, bearer},
};
use crate::support::{Era, capture_logs, soon, until};

fn connect(backend: &Protected, client: OAuthClient) -> RemoteService {
    let oauth = OAuth::ClientCredentials(client);
    RemoteService::builder("docs").http_with_oauth(&backend.url(), [], oauth)
}

/// Calls the tool of a backend, and returns the token of the call.
async fn token_of_call(remote: &RemoteService) -> String {
    let reply = soon(remote.clone().oneshot(Request::call_tool("whoami"))).await.unwrap();
    let text = reply.tool_result().unwrap().content[0].as_text().unwrap().text.clone();
    let [_, token]: [Value; 2] = serde_json::from_str(&text).unwrap();
    token.as_str().unwrap().to_owned()
}

/// Returns the reason why a backend is not connected.
async fn trouble(remote: &RemoteService) -> String {
    soon(remote.connected()).await.unwrap_err()
}

#[tokio::test]
async fn one_token_serves_all_requests_until_it_expires() {
    for era in [Era::Legacy, Era::Modern] {
        let (issuer, backend) = (Issuer::start().await, Protected::start(era, true).await);
        let client = issuer.client().scopes(["read", "search"]).audience("docs");
        let remote = connect(&backend, client.resource("https://docs.example.com/mcp?a=b"));
        assert_eq!(token_of_call(&remote).await, "token-1", "{era:?}");
        assert_eq!(token_of_call(&remote).await, "token-1", "{era:?}");
        let expected = [
            ("audience", "docs"),
            ("grant_type", "client_credentials"),
            ("resource", "https://docs.example.com/mcp?a=b"),
            ("scope", "read search"),
        ];
        let expected: BTreeMap<_, _> =
            expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(issuer.requests(), [expected]);
        // The handshake and the list of tools had the token, too.
        let headers = backend.headers();
        assert!(headers.len() > 2);
        assert!(headers.iter().all(|headers| bearer(headers).as_deref() == Some("token-1")));
        assert!(!format!("{remote:?}").contains("token-1"));
    }
}

#[tokio::test]
async fn token_is_renewed_shortly_before_it_expires() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    issuer.lifetime(2);
    let remote = connect(&backend, issuer.client());
    token_of_call(&remote).await;
    // On a busy machine, the first call may already use a second token.
    let before = issuer.count();
    // A quarter of the lifetime is left.
    tokio::time::sleep(Duration::from_millis(1600)).await;
    issuer.lifetime(3600);
    // All calls wait for the same token.
    let tokens = join_all((0..20).map(|_| token_of_call(&remote))).await;
    let next = format!("token-{}", before + 1);
    assert!(tokens.iter().all(|token| *token == next), "{tokens:?}");
    assert_eq!(issuer.count(), before + 1);
}

#[tokio::test]
async fn rejected_token_is_replaced_once() {
    for (era, challenges) in [(Era::Legacy, true), (Era::Modern, true), (Era::Modern, false)] {
        let (issuer, backend) = (Issuer::start().await, Protected::start(era, challenges).await);
        let remote = connect(&backend, issuer.client());
        assert_eq!(token_of_call(&remote).await, "token-1");
        backend.revoke("token-1");
        let tokens = join_all((0..20).map(|_| token_of_call(&remote))).await;
        assert!(tokens.iter().all(|token| token == "token-2"), "{tokens:?}");
        assert_eq!(issuer.count(), 2, "{era:?}");

        // A second rejection is the backend's answer.
        ["token-2", "token-3"].iter().for_each(|token| backend.revoke(token));
        let failed = soon(remote.clone().oneshot(Request::call_tool("whoami"))).await;
        assert_eq!(failed.unwrap_err().to_string(), "backend `docs` could not answer");
        assert_eq!(issuer.count(), 3, "{era:?}");
        assert_eq!(token_of_call(&remote).await, "token-4");
    }
}

#[tokio::test]
async fn metadata_of_a_backend_is_neither_fetched_nor_executed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let folder = tempdir().unwrap();
    let executed = folder.path().join("executed");
    let url =
        format!("http://{}/$(touch${{IFS}}{})", listener.local_addr().unwrap(), executed.display());
    let challenge = format!("Bearer resource_metadata=\"{url}\", authorization_uri=\"{url}\"");
    let issuer = Issuer::start().await;
    for era in [Era::Legacy, Era::Modern] {
        let backend = Protected::start_with(era, Some(challenge.clone())).await;
        let remote = connect(&backend, issuer.client());
        let token = token_of_call(&remote).await;
        let number: usize = token.strip_prefix("token-").unwrap().parse().unwrap();
        [number, number + 1].iter().for_each(|number| backend.revoke(&format!("token-{number}")));
        soon(remote.clone().oneshot(Request::call_tool("whoami"))).await.unwrap_err();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{era:?}");
        assert!(!executed.exists(), "{era:?}");
    }
}

#[tokio::test]
async fn wrong_secret_is_an_error_without_the_secret() {
    let (log, _guard) = capture_logs();
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    for in_body in [false, true] {
        let client = OAuthClient::new(issuer.url(), CLIENT, "wrong-secret");
        let client = if in_body { client.secret_in_body() } else { client };
        assert!(!format!("{client:?}").contains("wrong-secret"));
        let remote = connect(&backend, client);
        let trouble = trouble(&remote).await;
        let host = issuer.url().replace("/token", "/…");
        let expected = "it answered 401 Unauthorized: invalid_client: wrong secret ***";
        assert_eq!(trouble, format!("no token from `{host}`: {expected}"));
        let call = remote.oneshot(Request::call_tool("whoami"));
        assert_eq!(soon(call).await.unwrap_err().to_string(), "backend `docs` is not connected");
    }
    assert!(log.text().contains("invalid_client") && !log.text().contains("wrong-secret"));
    assert_eq!(backend.headers().len(), 0);

    // The same with the right secret, in the body.
    let remote = connect(&backend, issuer.client().secret_in_body());
    assert!(token_of_call(&remote).await.starts_with("token-"));
    assert!(!log.text().contains(SECRET));
}

#[tokio::test]
async fn invalid_answers_of_the_token_endpoint_are_connect_errors() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    let huge = json!({ "access_token": "x".repeat(70_000) }).to_string();
    let moved = [("location", "http://127.0.0.1:1/other")];
    let json = json!({ "error": "server\nerror" }).to_string();
    type Answer = Box<dyn Fn(&Issuer)>;
    let answers: [(Answer, &str); 6] = [
        (Box::new(|it| it.answers("<html>")), "its answer is not a JSON object"),
        (Box::new(|it| it.answers("{}")), "its answer has no `access_token`"),
        (Box::new(move |it| it.answers(huge.clone())), "its answer has more than 65536 bytes"),
        (
            Box::new(move |it| it.answers((StatusCode::TEMPORARY_REDIRECT, moved))),
            "it answered 307 Temporary Redirect, and redirects are not followed",
        ),
        (
            Box::new(|it| it.answers((StatusCode::BAD_GATEWAY, "<html>"))),
            "it answered 502 Bad Gateway",
        ),
        (
            Box::new(move |it| it.answers((StatusCode::BAD_REQUEST, json.clone()))),
            "it answered 400 Bad Request: server error",
        ),
    ];
    for (answer, expected) in answers {
        answer(&issuer);
        let remote = connect(&backend, issuer.client());
        let trouble = trouble(&remote).await;
        assert!(trouble.ends_with(&format!(": {expected}")), "{trouble}");
        remote.close().await;
    }
    assert_eq!(backend.headers().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn token_endpoint_has_a_timeout() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    issuer.hangs();
    let remote = connect(&backend, issuer.client());
    let trouble = trouble(&remote).await;
    assert!(trouble.ends_with(": it did not answer within 10s"), "{trouble}");
}

#[tokio::test]
async fn connecting_is_retried_until_the_token_endpoint_is_up() {
    let backend = Protected::start(Era::Modern, true).await;
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let url = format!("http://{address}/token");
    let remote = connect(&backend, OAuthClient::new(url, CLIENT, SECRET));
    let trouble = trouble(&remote).await;
    assert!(trouble.contains("Connection refused"), "{trouble}");

    let _issuer = Issuer::start_at(address).await;
    until(async || remote.connected().await.is_ok()).await;
    assert_eq!(token_of_call(&remote).await, "token-1");
}

#[tokio::test]
async fn token_that_a_backend_quotes_is_redacted() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    let remote = connect(&backend, issuer.client());
    assert_eq!(token_of_call(&remote).await, "token-1");
    let reply = soon(remote.oneshot(Request::call_tool("quote"))).await.unwrap();
    assert_eq!(reply.error().unwrap().message, "no access for ***");
}

#[cfg(feature = "config")]
#[tokio::test]
async fn file_defines_the_client_of_a_backend() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Modern, true).await);
    let text = format!(
        "[[backends]]\nname = 'docs'\nurl = '{}'\n[backends.auth.client_credentials]\n\
         token_url = '{}'\nclient_id = '{CLIENT}'\nclient_secret = '${{SECRET}}'\n\
         token_endpoint_auth_method = 'client_secret_post'\nscopes = ['read']\n\
         audience = 'docs'\nresource = 'https://docs.example.com'\n",
        backend.url(),
        issuer.url()
    );
    let environment = |name: &str| (name == "SECRET").then(|| SECRET.to_owned());
    let config = mcp_composite::config::Config::from_toml_str_with_env(&text, environment).unwrap();
    assert!(!format!("{config:?}").contains(SECRET));
    assert_eq!(config.backends()[0].secrets().redact(SECRET), "***");
    let backends = config.connect().unwrap();
    assert_eq!(token_of_call(&backends.remotes()[0]).await, "token-1");
    let names: Vec<_> = issuer.requests()[0].keys().cloned().collect();
    assert_eq!(names, ["audience", "grant_type", "resource", "scope"]);
    backends.close().await;
}
