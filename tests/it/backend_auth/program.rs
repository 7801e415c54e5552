//! The program, which exchanges the tokens of its callers.

use std::{
    future::ready,
    sync::{Arc, Mutex},
};

use rmcp::{
    ClientLifecycleMode, ClientServiceExt, Peer, RoleClient,
    model::{CallToolRequestParams, ElicitRequestParams, ElicitResult, ElicitationAction},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::json;

use super::{
    issuer::{CLIENT, Issuer, SECRET},
    protected::{Protected, bearer},
};
use crate::{
    authentication::{ALICE, BOB, Program, TOKENS, answer},
    support::{Era, answering, soon, until},
};

/// The questions that a user was asked.
type Questions = Arc<Mutex<Vec<String>>>;

/// Returns a file with a backend whose tokens are exchanged, and composites that call it.
fn file(issuer: &Issuer, backend: &Protected, more: &str) -> String {
    format!(
        "{TOKENS}\n[[backends]]\nname = 'docs'\nurl = '{}'\n[backends.auth.exchange]\n\
         token_url = '{}'\nclient_id = '{CLIENT}'\nclient_secret = '{SECRET}'\n{more}\n\
         [[composite_tools]]\nname = 'both'\ndescription = 'Calls it'\ntools = ['docs_whoami']\n\
         [[composite_tools]]\nname = 'careful'\ndescription = 'Asks first'\n\
         strategy = 'pipeline'\n\
         steps = [\n\
           {{ id = 'ask', type = 'elicitation', message = 'Go on?', \
              schema = {{ type = 'object', properties = {{}} }} }},\n\
           {{ id = 'whoami', tool = 'docs_whoami' }},\n\
         ]\n",
        backend.url(),
        issuer.url(),
    )
}

/// Calls a tool, and returns the answer.
async fn call(program: &Program, token: &str, tool: &str) -> String {
    let (status, answer) = program.call(token, tool, json!({})).await;
    assert_eq!(status, 200, "{answer}");
    answer.to_string()
}

#[tokio::test]
async fn program_exchanges_the_token_of_each_caller() {
    for era in [Era::Legacy, Era::Modern] {
        let (issuer, backend) = (Issuer::start().await, Protected::start(era, true).await);
        let program = Program::start(&file(&issuer, &backend, ""), "127.0.0.1:0").await;
        until(async || issuer.count() == 1 && !backend.headers().is_empty()).await;
        until(async || call(&program, ALICE, "docs_whoami").await.contains("alice-")).await;
        assert!(call(&program, BOB, "docs_whoami").await.contains("bob-"));
        // The steps of a composite have the token of its caller, even after a question.
        assert!(call(&program, ALICE, "both").await.contains("alice-"));
        assert!(call(&program, BOB, "both").await.contains("bob-"));
        for (token, name) in [(ALICE, "alice-"), (BOB, "bob-")] {
            let (_, suspended) = program.call(token, "careful", json!({})).await;
            let result = &suspended["result"];
            assert_eq!(result["resultType"], "input_required", "{suspended}");
            let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap();
            let params = json!({
                "name": "careful",
                "arguments": {},
                "requestState": result["requestState"],
                "inputResponses": { key: { "action": "accept", "content": {} } },
            });
            let resumed = program.request("tools/call", params).bearer_auth(token);
            let (_, resumed) = answer(resumed).await;
            assert!(resumed.to_string().contains(name), "{resumed}");
        }
        assert_eq!(issuer.count(), 3);
        for headers in backend.headers() {
            let text = format!("{headers:?}");
            assert!(!text.contains(ALICE) && !text.contains(BOB), "{text}");
        }
        let log = program.log();
        for secret in [ALICE, BOB, SECRET, "alice-2", "alice-3", "bob-2", "bob-3"] {
            assert!(!log.contains(secret), "{log}");
        }
    }
}

#[tokio::test]
async fn reload_keeps_the_connections_of_an_unchanged_backend() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Legacy, true).await);
    let text = file(&issuer, &backend, "");
    let program = Program::start(&text, "127.0.0.1:0").await;
    until(async || call(&program, ALICE, "docs_whoami").await.contains("alice-")).await;
    let count = issuer.count();

    let added = "[[composite_tools]]\nname = 'new'\ndescription = 'New'\ntools = ['docs_whoami']\n";
    program.reload(&format!("{text}{added}"));
    until(async || call(&program, ALICE, "new").await.contains("alice-")).await;
    assert_eq!((issuer.count(), backend.ended_sessions()), (count, 0));

    // Other settings need other connections: one of the program and one of the caller end.
    program.reload(&file(&issuer, &backend, "max_callers = 7"));
    until(async || backend.ended_sessions() == 2).await;
    assert!(call(&program, ALICE, "docs_whoami").await.contains("alice-"));
    assert_eq!(issuer.count(), count + 2);
    let tokens: Vec<_> = backend.headers().iter().map(bearer).collect();
    assert!(tokens.iter().all(Option::is_some));
}

/// Answers a question with a name.
fn answer_with(name: &str, question: ElicitRequestParams, questions: &Questions) -> ElicitResult {
    let ElicitRequestParams::FormElicitationParams { message, .. } = question else {
        panic!("{question:?}");
    };
    questions.lock().unwrap().push(message);
    let content = json!({ "name": format!("I am {name}") });
    ElicitResult::new(ElicitationAction::Accept).with_content(content)
}

#[tokio::test]
async fn question_of_a_backend_is_asked_of_the_caller_of_the_request() {
    let (issuer, backend) = (Issuer::start().await, Protected::start(Era::Legacy, true).await);
    let program = Program::start(&file(&issuer, &backend, ""), "127.0.0.1:0").await;
    until(async || call(&program, ALICE, "docs_whoami").await.contains("alice-")).await;
    let questions: [Questions; 2] = Default::default();
    let connect = async |name: &'static str, token: &str, questions: &Questions| {
        let config = StreamableHttpClientTransportConfig::with_uri(program.url.clone());
        let transport = StreamableHttpClientTransport::from_config(config.auth_header(token));
        let questions = questions.clone();
        let person = answering(move |question| ready(answer_with(name, question, &questions)));
        let lifecycle = ClientLifecycleMode::Initialize;
        soon(person.serve_with_lifecycle(transport, lifecycle)).await.unwrap()
    };
    let alice = connect("alice", ALICE, &questions[0]).await;
    let bob = connect("bob", BOB, &questions[1]).await;
    let ask = async |client: &Peer<RoleClient>| {
        let result = soon(client.call_tool(CallToolRequestParams::new("docs_ask"))).await.unwrap();
        result.content[0].as_text().unwrap().text.clone()
    };
    for _ in 0..20 {
        let (of_alice, of_bob) = tokio::join!(ask(alice.peer()), ask(bob.peer()));
        for (answer, name, other) in [(of_alice, "alice", "bob"), (of_bob, "bob", "alice")] {
            assert!(answer.starts_with(&format!("[\"{name}-")), "{answer}");
            assert!(answer.contains(&format!("I am {name}")), "{answer}");
            assert!(!answer.contains(other), "{answer}");
        }
    }
    for (name, questions) in [("alice", &questions[0]), ("bob", &questions[1])] {
        let questions = questions.lock().unwrap();
        assert_eq!(questions.len(), 20);
        assert!(questions.iter().all(|message| message.starts_with(name)), "{name}: {questions:?}");
    }
}
