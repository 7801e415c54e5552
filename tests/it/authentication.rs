//! Callers of the program over HTTP, who have bearer tokens.

use std::{
    fs,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode, header::WWW_AUTHENTICATE},
    routing::get,
};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use futures::future::join_all;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, jwk::Jwk};
use mcp_composite::{
    adapter::ServeService,
    config::{Config, Gateway},
    message::Request as Message,
};
use rmcp::{
    model::{
        CallToolResult, ContentBlock, ListToolsResult, ServerCapabilities, ServerConfig, Tool,
    },
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, service_fn};

use crate::{
    http::{Server, listen},
    programs::{PROGRAM, signal},
    support::{soon, until},
};

/// The public URL of the program in tests.
pub(crate) const RESOURCE: &str = "https://tools.example.com/mcp";
pub(crate) const ALICE: &str = "alice-has-this-token";
pub(crate) const BOB: &str = "bob-has-that-token-";
/// The static tokens of Alice and Bob.
pub(crate) const TOKENS: &str = "[[auth.tokens]]\ncaller = 'alice'\ntoken = 'alice-has-this-token'\n\
                      [[auth.tokens]]\ncaller = 'bob'\ntoken = 'bob-has-that-token-'\n";

/// A private key for P-256, which nothing else uses.
const EC_KEY: &str = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgsE3vXgk6j2wElJ0LypsxH+68virBHnziZDaHv964Cl6hRANCAAT+K8Y//BmfgOpizDXIb1jsLZCAw1DTArL/Yqer9sOnPnIEK62EpkPS4hl1DBRMKuA+V6NhyUGMouvVRS3dZhP6";
/// A private key for RSA, which nothing else uses.
const RSA_KEY: &str = "MIIEowIBAAKCAQEAucuNKxarnFbfqaoqJs7BsTQFhw8hyRVStrc9QZRxjqwM8N0WPsiWybCG22wCnPP6Cg8PmPRrPJ/kjLAkJOFMnJUQRENljebk/l/7or9GkxPk30BoJOB4Q+9bghwAolFlpRkMPuk6S4OKvf1uS9E4AMhFoCtznxr8X3JUMUs1FZFRAJycgCYLX+/I6kxtjvgFWncyYs9d5iwVCOoDn+KiZpdrgo/LqNIf3sst3x4v6fVChfH6/sYWXEh9qt9w88zB3Biem7Ke5wpx8n2NE/UWyqJUB/B0gV97/JV89CIxRne34upcUo6x6jPiVMkL7NoDDhYRIvpr4YhjdjpSjhGGkwIDAQABAoIBAAnOryYfH6kP3y6SIqUwooHyZQqWWeWiRxXAT5N3xe/qC+34q2CCwY5T9EpsRbucYMVburzCfHRcgOdnspMEX0Eyat8dT6S/E2v6C++MeTwVtncgIqhY0QBgdZVFNSNcVASrA4cKCvG4XG3x1jHIEXlLYjPH8tOiFZvB6cj06aK4lV7xryqudSXtIPEbvp8OFoArqqnchgreHg5sxXhJkvgg+e2syzTVgvy4ev/n6WwZgGIEP+lXuSMvJdbPRjj83DWuQ3+YNtbYqsKLZZi2c+w7R63bKH+kbO5jvCG7bCW+rckJoOFvPdaXw6yXzimqRHC3LE81yezdBx4at44bSYECgYEA5X5Ss94edBGiYKwY5pK6H6rmr+13bUxjuJblN9maVKh3BLpqJpUHzvX027Rj0kJ0n27fsFEsrAB83WujnzODtcUsZyM+0uAQbzWdK/lRIXFBVp1XePm3LaBI1Gi3/dkmI0u0Dt92wZxIzTuYZgxyCDHvOOChu13wkklN+sV1+9kCgYEAz0EnShNHSVgdB/YNfWQAbMq4jmWWsxPEJhFQB96Kc6yU9XhnzLStkyIsmvR4jhIvdFCpHEHL+amUqbN69e255567VM5w8+4mH4ImkFRbeazTdwgdYAxTOfCBVFQ44hEYUUrNYCrGdwTbLymX4DUH9igrH9ehVmrkD3FKec4l7ksCgYBmMPUk0RDggIW85IWGDupAdbqZtnWKvwxcwxy43PYDIq009smT+qLqfs2VE+OrWhpScG29Nrhcsy7m7iqDFs5cn7thBenQvyOyUb52OWPuL1938UJlRVVTRN+JbkQYDp0T9H7ubIWWO0CT2yjGsF4K1il/O0/pfjBFA81skIc0KQKBgQC++kSgB5+6wA0QVvUbRFj35t2lqYryPRaUFYPvnGtsJ+2jPG45vYvsdqMvrnKgR7Wesu0B8sdoqZEpxw9ZKtQR0LzCavC+dgZ/Jkku2ezo9A5wMvQOm4zdaPdjo7A+8I296vXQ1dnHtpvam7MtkPBjLaR/VQ2AOkMoz7ZXA1UEfQKBgHhGy9dJOQ8imAdfzX/Tl3xS7MbteaabEHv/AbHOCXShBBIwHa9UAsQcor7QCRwNCBCmNAX6hpj2Ai3D7xRilOXZf0mB4KQb2/h9sNUuw6xCSyyKOzGNmAtDyV/O0eayKdysQK8d7Pek4JEzWFc/AWDAl5aG/uvewpjD7WoaBMhY";

/// The program, which serves a file over HTTP.
pub(crate) struct Program {
    folder: TempDir,
    child: Child,
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
}

/// A backend with the tool `echo`, which records the headers of its requests.
pub(crate) struct Backend {
    server: Server,
    headers: Arc<Mutex<Vec<HeaderMap>>>,
}

/// An authorization server: a key, and the key set that contains it.
pub(crate) struct Issuer {
    key: EncodingKey,
    id: &'static str,
    jwk: Value,
}

// === impl Program ===

impl Program {
    pub(crate) async fn start(text: &str, address: &str) -> Self {
        Self::start_with(text, address, &[]).await
    }

    /// Starts the program with more arguments.
    pub(crate) async fn start_with(text: &str, address: &str, more: &[&str]) -> Self {
        let folder = tempdir().unwrap();
        let file = folder.path().join("tools.toml");
        fs::write(&file, text).unwrap();
        let child = Command::new(PROGRAM)
            .args(["serve", path(&file), "--http", address])
            .args(more)
            .env_remove("RUST_LOG")
            .stderr(fs::File::create(folder.path().join("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut this = Self { folder, child, url: String::new(), client: reqwest::Client::new() };
        this.logs("serving http://").await;
        let log = this.log();
        let (_, address) = log.split_once("serving http://").unwrap();
        let address = address.lines().next().unwrap().replace("0.0.0.0", "127.0.0.1");
        this.url = format!("http://{address}");
        this
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    pub(crate) async fn logs(&self, text: &str) {
        until(async || self.log().contains(text)).await;
    }

    /// Replaces the file, and requests a reload.
    pub(crate) fn reload(&self, text: &str) {
        fs::write(self.folder.path().join("tools.toml"), text).unwrap();
        assert!(signal(self.child.id().unwrap().into(), "HUP"));
    }

    /// Starts a request of a client of 2026-07-28.
    pub(crate) fn request(&self, method: &str, params: Value) -> reqwest::RequestBuilder {
        self.request_at("/mcp", method, params)
    }

    /// Starts a request of a client of 2026-07-28 at a path.
    pub(crate) fn request_at(
        &self,
        path: &str,
        method: &str,
        mut params: Value,
    ) -> reqwest::RequestBuilder {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "0" });
        let capabilities = &mut meta["io.modelcontextprotocol/clientCapabilities"];
        if capabilities.is_null() {
            *capabilities = json!({ "elicitation": {} });
        }
        let mut request = self.post_at(path).header("mcp-protocol-version", "2026-07-28");
        if let Some(name) = params["name"].as_str().or(params["taskId"].as_str()) {
            request = request.header("mcp-name", name);
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        request.header("mcp-method", method).body(body.to_string())
    }

    fn post(&self) -> reqwest::RequestBuilder {
        self.post_at("/mcp")
    }

    pub(crate) fn post_at(&self, path: &str) -> reqwest::RequestBuilder {
        let url = self.url.replace("/mcp", path);
        let request = self.client.post(url).header("content-type", "application/json");
        request.header("accept", "application/json, text/event-stream")
    }

    /// Calls a tool, and returns the status and the JSON-RPC message.
    pub(crate) async fn call(&self, token: &str, name: &str, arguments: Value) -> (u16, Value) {
        let params = json!({ "name": name, "arguments": arguments });
        answer(self.request("tools/call", params).bearer_auth(token)).await
    }

    /// Lists the tools, and returns the status and the header `WWW-Authenticate`.
    async fn list(&self, token: &str) -> (u16, String) {
        let request = self.request("tools/list", json!({})).bearer_auth(token);
        challenge(&soon(request.send()).await.unwrap())
    }
}

pub(crate) async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = soon(request.send()).await.unwrap();
    let status = response.status().as_u16();
    let text = soon(response.text()).await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

pub(crate) fn challenge(response: &reqwest::Response) -> (u16, String) {
    let header = response.headers().get(WWW_AUTHENTICATE);
    let header = header.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    (response.status().as_u16(), header)
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs the program until it ends, and returns its exit code and its errors.
async fn fails(text: &str) -> (Option<i32>, String) {
    let folder = tempdir().unwrap();
    let file = folder.path().join("tools.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["serve", path(&file), "--http", "127.0.0.1:0"]).env("RUST_LOG", "off");
    let output = soon(command.stdin(Stdio::null()).kill_on_drop(true).output()).await.unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

// === impl Backend ===

impl Backend {
    pub(crate) async fn start() -> Self {
        let echo = service_fn(async |message: Message| {
            let Some(call) = message.tool_call() else {
                let schema = json!({ "type": "object" }).as_object().cloned().unwrap();
                let tools = vec![Tool::new("echo", "Returns its argument", schema)];
                return Ok::<_, BoxError>(ListToolsResult::with_all_items(tools).into());
            };
            let text = json!(call.arguments).to_string();
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
        });
        let config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        let handler = ServeService::new(echo, config);
        let service = StreamableHttpService::new(
            move || Ok(handler.clone()),
            LocalSessionManager::default().into(),
            StreamableHttpServerConfig::default(),
        );
        let headers = Arc::new(Mutex::new(Vec::new()));
        let seen = headers.clone();
        let record =
            axum::middleware::from_fn(move |request: Request, next: axum::middleware::Next| {
                seen.lock().unwrap().push(request.headers().clone());
                next.run(request)
            });
        let router = axum::Router::new().fallback_service(service).layer(record);
        Self { server: listen(router, CancellationToken::new()).await, headers }
    }

    /// Returns the sections of a file with this backend and a composite that calls it.
    pub(crate) fn sections(&self) -> String {
        format!(
            "[[backends]]\nname = 'b'\nurl = 'http://{}/'\n\
             [[composite_tools]]\nname = 'both'\ndescription = 'Calls it'\ntools = ['b_echo']\n\
             [[composite_tools]]\nname = 'careful'\ndescription = 'Asks first'\n\
             strategy = 'pipeline'\n\
             steps = [\n\
               {{ id = 'ask', type = 'elicitation', message = 'Go on?', \
                  schema = {{ type = 'object', properties = {{}} }} }},\n\
               {{ id = 'echo', tool = 'b_echo', arguments = {{ q = 'done' }} }},\n\
             ]\n",
            self.server.address
        )
    }
}

// === impl Issuer ===

impl Issuer {
    /// Creates an issuer whose Ed25519 key has this seed.
    pub(crate) fn new(id: &'static str, seed: u8) -> Self {
        // The fixed bytes of PKCS #8 before the seed of an Ed25519 key, as in RFC 8410.
        let mut der = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
        der.extend([seed; 32]);
        let key = EncodingKey::from_ed_der(&der);
        let mut jwk = Jwk::from_encoding_key(&key, Algorithm::EdDSA).unwrap();
        jwk.common.key_id = Some(id.to_owned());
        Self { key, id, jwk: serde_json::to_value(jwk).unwrap() }
    }

    pub(crate) fn key_set(&self) -> Value {
        json!({ "keys": [self.jwk] })
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::EdDSA) };
        encode(&header, claims, &self.key).unwrap()
    }

    /// Serves the key set.
    async fn serve(&self) -> Server {
        let key_set = self.key_set().to_string();
        let keys = get(async move || key_set.clone());
        let moved = get(async || (StatusCode::FOUND, [("location", "/keys")]));
        let router = axum::Router::new().route("/keys", keys).route("/moved", moved);
        listen(router, CancellationToken::new()).await
    }
}

/// Returns the `[auth]` section for the tokens of an issuer.
pub(crate) fn jwt(keys: &str, more: &str) -> String {
    format!(
        "[auth]\nresource = '{RESOURCE}'\n\
         [auth.jwt]\nissuer = 'https://id.example.com'\njwks = '{keys}'\n{more}\n"
    )
}

/// Returns the claims of a valid token, with some of them replaced. A null removes a claim.
pub(crate) fn claims(changed: &Value) -> Value {
    let mut claims = json!({
        "iss": "https://id.example.com", "sub": "alice", "aud": RESOURCE, "exp": now() + 60,
        "scope": "read write",
    });
    for (name, value) in changed.as_object().unwrap().clone() {
        claims[name] = value;
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Encodes a part of a token.
fn part(value: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
}

// === Tests ===

#[tokio::test]
async fn access_token_is_accepted_only_if_every_claim_and_the_signature_are_valid() {
    let (backend, issuer) = (Backend::start().await, Issuer::new("one", 1));
    let keys = issuer.serve().await;
    let keys = format!("http://{}/keys", keys.address);
    let text = backend.sections() + &jwt(&keys, "leeway = '0s'");
    let program = Program::start(&text, "127.0.0.1:0").await;

    for changed in [
        json!({}),
        json!({ "aud": ["other", RESOURCE], "nbf": now() - 1, "scope": null }),
        json!({ "sub": "b".repeat(256) }),
    ] {
        let token = issuer.sign(&claims(&changed));
        assert_eq!(program.list(&token).await.0, 200, "{changed}");
    }

    let valid = issuer.sign(&claims(&json!({})));
    let (head, signature) = valid.rsplit_once('.').unwrap();
    let payload = head.rsplit_once('.').unwrap().1;
    let none = format!("{}.{payload}.", part(&json!({ "alg": "none", "typ": "JWT" })));
    // Signed with the public key as a secret: the confusion of algorithms.
    let public = BASE64_URL_SAFE_NO_PAD.decode(issuer.jwk["x"].as_str().unwrap()).unwrap();
    let hs256 = Header { kid: Some("one".to_owned()), ..Header::new(Algorithm::HS256) };
    let confused = encode(&hs256, &claims(&json!({})), &EncodingKey::from_secret(&public)).unwrap();
    let critical = Header {
        kid: Some("one".to_owned()),
        crit: Some(vec!["exp".to_owned()]),
        ..Header::new(Algorithm::EdDSA)
    };
    let critical = encode(&critical, &claims(&json!({})), &issuer.key).unwrap();
    let changed_payload = part(&claims(&json!({ "sub": "bob" })));
    let header = head.split_once('.').unwrap().0;
    let stranger = Issuer::new("one", 2);
    let unknown = Issuer::new("two", 1);
    for (attack, token) in [
        ("no JWT", "not.a.jwt".to_owned()),
        ("static token", ALICE.to_owned()),
        ("algorithm `none`", none),
        ("algorithm of secrets", confused),
        ("critical header", critical),
        ("changed payload", format!("{header}.{changed_payload}.{signature}")),
        ("other key", stranger.sign(&claims(&json!({})))),
        ("unknown key id", unknown.sign(&claims(&json!({})))),
        ("wrong issuer", issuer.sign(&claims(&json!({ "iss": "https://evil.example" })))),
        (
            "issuer among others",
            issuer.sign(&claims(&json!({
                "iss": ["https://id.example.com", "https://evil.example"]
            }))),
        ),
        ("no issuer", issuer.sign(&claims(&json!({ "iss": null })))),
        ("wrong audience", issuer.sign(&claims(&json!({ "aud": "https://other.example" })))),
        ("no audience", issuer.sign(&claims(&json!({ "aud": null })))),
        ("expired", issuer.sign(&claims(&json!({ "exp": now() - 2 })))),
        ("no expiry", issuer.sign(&claims(&json!({ "exp": null })))),
        ("not valid yet", issuer.sign(&claims(&json!({ "nbf": now() + 60 })))),
        ("no subject", issuer.sign(&claims(&json!({ "sub": null })))),
        ("empty subject", issuer.sign(&claims(&json!({ "sub": "" })))),
        ("long subject", issuer.sign(&claims(&json!({ "sub": "b".repeat(257) })))),
        ("subject with a line break", issuer.sign(&claims(&json!({ "sub": "a\nb" })))),
    ] {
        let (status, challenge) = program.list(&token).await;
        assert_eq!(status, 401, "{attack}");
        assert_eq!(
            challenge,
            "Bearer error=\"invalid_token\", resource_metadata=\
             \"https://tools.example.com/.well-known/oauth-protected-resource/mcp\"",
            "{attack}"
        );
        assert!(!program.log().contains(&token), "{attack}");
    }
    assert_eq!(
        backend
            .headers
            .lock()
            .unwrap()
            .iter()
            .filter(|it| it.contains_key("authorization"))
            .count(),
        0
    );
}

#[tokio::test]
async fn token_outside_of_its_header_is_rejected() {
    let backend = Backend::start().await;
    let program = Program::start(&(backend.sections() + TOKENS), "127.0.0.1:0").await;
    let list = || program.request("tools/list", json!({}));
    let query = program.client.post(format!("{}?access_token={ALICE}", program.url));
    let status = |request: reqwest::RequestBuilder| async {
        challenge(&soon(request.send()).await.unwrap())
    };
    assert_eq!(status(list().bearer_auth(ALICE)).await.0, 200);
    let required = (401, "Bearer".to_owned());
    assert_eq!(status(list()).await, required);
    assert_eq!(status(query).await, required);
    assert_eq!(status(list().header("cookie", format!("access_token={ALICE}"))).await, required);
    assert_eq!(status(list().basic_auth("alice", Some(ALICE))).await, required);
    let invalid = (400, "Bearer error=\"invalid_request\"".to_owned());
    assert_eq!(status(list().bearer_auth(ALICE).bearer_auth(BOB)).await, invalid);
    let unknown = (401, "Bearer error=\"invalid_token\"".to_owned());
    assert_eq!(status(list().bearer_auth("mallory-has-no-token")).await, unknown);
    assert_eq!(status(list().bearer_auth(&ALICE[1..])).await, unknown);
    for method in [reqwest::Method::GET, reqwest::Method::DELETE, reqwest::Method::OPTIONS] {
        assert_eq!(status(program.client.request(method, &program.url)).await, required);
    }
    // Probes need no token, and say nothing about the tools.
    let health = program.url.replace("/mcp", "/healthz");
    assert_eq!(program.client.get(health).send().await.unwrap().text().await.unwrap(), "ok\n");
    let metadata = program.url.replace("/mcp", "/.well-known/oauth-protected-resource");
    assert_eq!(program.client.get(metadata).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn metadata_names_the_authorization_server_and_the_scopes() {
    let (backend, issuer) = (Backend::start().await, Issuer::new("one", 1));
    let folder = tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    fs::write(&keys, issuer.key_set().to_string()).unwrap();
    let text = backend.sections() + &jwt(path(&keys), "scopes = ['read', 'write']");
    // A file with `[auth]` may be served to other machines.
    let program = Program::start(&text, "0.0.0.0:0").await;
    for suffix in ["", "/mcp"] {
        let url = program.url.replace("/mcp", "/.well-known/oauth-protected-resource") + suffix;
        let (status, metadata) = answer(program.client.get(url)).await;
        assert_eq!(status, 200);
        assert_eq!(
            metadata,
            json!({
                "resource": RESOURCE,
                "authorization_servers": ["https://id.example.com"],
                "bearer_methods_supported": ["header"],
                "scopes_supported": ["read", "write"],
            })
        );
    }
    let token = |changed: Value| issuer.sign(&claims(&changed));
    for granted in [json!({}), json!({ "scope": null, "scp": ["write", "read"] })] {
        assert_eq!(program.list(&token(granted)).await.0, 200);
    }
    for lacking in ["read", "write", "read writer", ""] {
        let (status, challenge) = program.list(&token(json!({ "scope": lacking }))).await;
        assert_eq!(status, 403, "{lacking}");
        assert!(challenge.starts_with("Bearer error=\"insufficient_scope\""), "{challenge}");
        assert!(challenge.ends_with("scope=\"read write\""), "{challenge}");
    }
}

#[tokio::test]
async fn session_is_answered_only_for_the_caller_who_opened_it() {
    let backend = Backend::start().await;
    let program = Program::start(&(backend.sections() + TOKENS), "127.0.0.1:0").await;
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "0" },
    } });
    let opened = program.post().bearer_auth(ALICE).body(initialize.to_string()).send();
    let opened = soon(opened).await.unwrap();
    assert_eq!(opened.status(), 200);
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let ping = async |token: &str, session: &str| {
        let body = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }).to_string();
        let request = program.post().header("mcp-session-id", session).bearer_auth(token);
        soon(request.body(body).send()).await.unwrap().status().as_u16()
    };
    assert_eq!(ping(ALICE, &session).await, 200);
    assert_eq!(ping(BOB, &session).await, 404);
    // The id that the session has inside of the program.
    assert_eq!(ping(BOB, session.split_once('.').unwrap().0).await, 404);
    // Nor can another caller end the session.
    let end = program.client.delete(&program.url).header("mcp-session-id", &session);
    assert_eq!(soon(end.bearer_auth(BOB).send()).await.unwrap().status(), 404);
    assert_eq!(ping(ALICE, &session).await, 200);
}

#[tokio::test]
async fn suspended_run_resumes_only_for_its_caller() {
    let backend = Backend::start().await;
    let program = Program::start(&(backend.sections() + TOKENS), "127.0.0.1:0").await;
    let (_, suspended) = program.call(ALICE, "careful", json!({})).await;
    let state = suspended["result"]["requestState"].clone();
    assert!(state.is_string(), "{suspended}");
    let key =
        suspended["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let resume = async |token: &str| {
        let params = json!({
            "name": "careful", "arguments": {}, "requestState": state,
            "inputResponses": { key.clone(): { "action": "accept", "content": {} } },
        });
        answer(program.request("tools/call", params).bearer_auth(token)).await.1
    };
    let refused = resume(BOB).await;
    assert!(refused["error"].is_object() && !refused.to_string().contains("done"), "{refused}");
    assert!(resume(ALICE).await["result"].to_string().contains("done"));
}

#[tokio::test]
async fn tasks_of_backends_are_out_of_reach() {
    let backend = Backend::start().await;
    let program = Program::start(&(backend.sections() + TOKENS), "127.0.0.1:0").await;
    for (method, params) in [
        ("tasks/get", json!({ "taskId": "1" })),
        ("tasks/cancel", json!({ "taskId": "1" })),
        ("tasks/update", json!({ "taskId": "1", "inputResponses": {} })),
    ] {
        let request = program.request(method, params);
        let (_, answer) = answer(request.bearer_auth(BOB)).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let (_, called) = program.call(BOB, "b_echo", json!({ "q": "done" })).await;
    assert!(called["result"].to_string().contains("done"), "{called}");
    let headers = backend.headers.lock().unwrap();
    let methods = headers.iter().filter_map(|headers| headers.get("mcp-method")?.to_str().ok());
    let methods: Vec<_> = methods.collect();
    assert!(methods.contains(&"tools/call"), "{methods:?}");
    assert!(!methods.iter().any(|method| method.starts_with("tasks/")), "{methods:?}");
}

#[tokio::test]
async fn budget_belongs_to_the_verified_caller() {
    let backend = Backend::start().await;
    let budget = "[[budget.limits]]\nname = 'calls'\nper = 'caller'\nlimit = 2\n";
    let text = backend.sections() + budget + TOKENS;
    let program = Program::start(&text, "127.0.0.1:0").await;
    let used = async |token: &str| {
        // A header of the client changes nothing.
        let params = json!({ "name": "b_echo", "arguments": {} });
        let request = program.request("tools/call", params).bearer_auth(token);
        let (status, answer) = answer(request.header("x-forwarded-user", "carol")).await;
        assert_eq!(status, 200, "{answer}");
        answer["result"]["isError"] != json!(true) && answer["error"].is_null()
    };
    assert_eq!((used(ALICE).await, used(ALICE).await, used(ALICE).await), (true, true, false));
    assert_eq!((used(BOB).await, used(BOB).await, used(BOB).await), (true, true, false));
}

#[tokio::test]
async fn interleaved_calls_get_their_own_answers_and_backends_no_token() {
    let backend = Backend::start().await;
    let program = Program::start(&(backend.sections() + TOKENS), "127.0.0.1:0").await;
    for round in 0..50 {
        let calls = (0..40).map(|call| {
            let (token, caller) = if call % 2 == 0 { (ALICE, "alice") } else { (BOB, "bob") };
            let text = format!("{caller}-{round}-{call}");
            let program = &program;
            async move {
                let tool = if call % 3 == 0 { "both" } else { "b_echo" };
                let (status, answer) = program.call(token, tool, json!({ "q": text })).await;
                assert_eq!(status, 200);
                let answer = answer["result"].to_string();
                assert!(answer.contains(&text), "{text}: {answer}");
                assert_eq!(answer.contains("alice"), caller == "alice", "{text}: {answer}");
            }
        });
        join_all(calls).await;
    }
    let headers = backend.headers.lock().unwrap();
    assert!(headers.len() >= 2000);
    let is_secret = |headers: &HeaderMap| {
        headers.values().any(|value| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            value.contains(ALICE) || value.contains(BOB)
        })
    };
    assert!(!headers.iter().any(is_secret));
}

#[tokio::test]
async fn reload_replaces_tokens_but_neither_adds_nor_removes_authentication() {
    let backend = Backend::start().await;
    let program = Program::start(&(backend.sections() + TOKENS), "127.0.0.1:0").await;
    let renewed = TOKENS.replace(BOB, "bob-has-a-new-token");
    program.reload(&(backend.sections() + &renewed));
    until(async || program.list("bob-has-a-new-token").await.0 == 200).await;
    assert_eq!((program.list(BOB).await.0, program.list(ALICE).await.0), (401, 200));

    program.reload(&backend.sections());
    program.logs("`[auth]` was added or removed: restart the program").await;
    assert_eq!(
        (program.list("mallory-has-no-token").await.0, program.list(ALICE).await.0),
        (401, 200)
    );
    // Callers with the same names could be others.
    program.reload(&(backend.sections() + &jwt("/nowhere/keys.json", "")));
    program.logs("`[auth]` has another issuer or method: restart the program").await;
    assert_eq!(program.list(ALICE).await.0, 200);
}

#[tokio::test]
async fn reload_reads_the_key_set_again() {
    let backend = Backend::start().await;
    let (first, second) = (Issuer::new("one", 1), Issuer::new("two", 2));
    let folder = tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    let write = |issuer: &Issuer| fs::write(&keys, issuer.key_set().to_string()).unwrap();
    write(&first);
    let text = backend.sections() + &jwt(path(&keys), "");
    let program = Program::start(&text, "127.0.0.1:0").await;
    let is_valid =
        async |issuer: &Issuer| program.list(&issuer.sign(&claims(&json!({})))).await.0 == 200;
    assert!(is_valid(&first).await && !is_valid(&second).await);
    write(&second);
    program.reload(&text);
    until(async || is_valid(&second).await).await;
    assert!(!is_valid(&first).await);

    // Other settings with a key set that cannot be read change nothing.
    program.reload(&(backend.sections() + &jwt("/nowhere/keys.json", "")));
    program.logs("cannot read /nowhere/keys.json").await;
    assert!(is_valid(&second).await);
}

#[tokio::test]
async fn access_token_may_be_signed_with_rsa_or_ecdsa() {
    let decode = |key: &str| BASE64_STANDARD.decode(key).unwrap();
    let rsa = EncodingKey::from_rsa_der(&decode(RSA_KEY));
    let ec = EncodingKey::from_ec_der(&decode(EC_KEY));
    let jwk = |key: &EncodingKey, algorithm: Algorithm| {
        let mut jwk =
            serde_json::to_value(Jwk::from_encoding_key(key, algorithm).unwrap()).unwrap();
        // Many key sets do not restrict the algorithm of a key.
        jwk.as_object_mut().unwrap().remove("alg");
        jwk
    };
    let keys = [jwk(&rsa, Algorithm::RS256), jwk(&ec, Algorithm::ES256)];
    let folder = tempdir().unwrap();
    let file = folder.path().join("keys.json");
    fs::write(&file, json!({ "keys": keys }).to_string()).unwrap();
    let backend = Backend::start().await;
    let program =
        Program::start(&(backend.sections() + &jwt(path(&file), "")), "127.0.0.1:0").await;
    for (key, algorithm) in
        [(&rsa, Algorithm::RS256), (&rsa, Algorithm::PS512), (&ec, Algorithm::ES256)]
    {
        for (typ, status) in
            [(Some("at+jwt"), 200), (Some("JWT"), 200), (None, 200), (Some("logout+jwt"), 401)]
        {
            let header = Header { typ: typ.map(str::to_owned), ..Header::new(algorithm) };
            let token = encode(&header, &claims(&json!({})), key).unwrap();
            assert_eq!(program.list(&token).await.0, status, "{algorithm:?} {typ:?}");
        }
    }
}

#[tokio::test]
async fn unusable_key_set_ends_the_program_with_its_reason() {
    let issuer = Issuer::new("one", 1);
    let server = issuer.serve().await;
    let folder = tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        path(&file).to_owned()
    };
    let secret = json!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0", "kid": "one" }] });
    let encryption =
        json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "use": "enc", "x": "AA" }] });
    for (keys, reason) in [
        ("http://127.0.0.1:1/keys?key=secret".to_owned(), "cannot fetch the key set"),
        (format!("http://{}/other", server.address), "status 404"),
        (format!("http://{}/moved", server.address), "status 302"),
        ("/nowhere/keys.json".to_owned(), "cannot read /nowhere/keys.json"),
        (write("text", "no json"), "no JSON"),
        (write("object", "{}"), "expected an object with `keys`"),
        (write("secret", &secret.to_string()), "no public key"),
        (write("encryption", &encryption.to_string()), "no public key"),
    ] {
        let backend = "[[backends]]\nname = 'b'\nurl = 'http://127.0.0.1:1/'\n";
        let (code, error) = fails(&format!("{backend}{}", jwt(&keys, ""))).await;
        assert_eq!((code, error.lines().count()), (Some(1), 1), "{keys}: {error}");
        assert!(error.contains(reason) && !error.contains("key=secret"), "{keys}: {error}");
    }
}

#[tokio::test]
async fn gateway_refuses_a_file_whose_authentication_nobody_took() {
    let text = format!("[[backends]]\nname = 'b'\nurl = 'http://127.0.0.1:1/'\n{TOKENS}");
    let mut config = Config::from_toml_str(&text).unwrap();
    assert!(!format!("{config:?}").contains(ALICE));
    let error = Gateway::connect(&config).unwrap_err().to_string();
    assert!(error.contains("does not authenticate callers"), "{error}");
    assert!(config.take_auth().is_some() && config.take_auth().is_none());
    let gateway = Gateway::connect(&config).unwrap();
    let again = Config::from_toml_str(&text).unwrap();
    assert!(gateway.reload(&again).await.is_err());
    soon(gateway.close()).await;
}
