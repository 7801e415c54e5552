//! The outcome of a suspended run when its client returns with another state, call or caller.

use std::{future::ready, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
#[cfg(feature = "sealed")]
use mcp_composite::store::SealedStore;
use mcp_composite::{
    composite::{
        CallLimits, Composite, CompositeLayer, CompositeTool, Elicitation, FanOut, Step, ToolCall,
    },
    message::{Context, ToolAnswer},
    store::{MemoryStore, PutError, SignedStore, Store, TakeError},
};
use rmcp::model::{CallToolResult, InputRequiredResult, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use tokio::time::advance;
use tower::{Layer, ServiceExt};

use crate::scripted::{Answer, Server, call, can_be_asked};

mod rotation;
#[cfg(feature = "sealed")]
mod sealed;

const KEY: &str = "a key of at least thirty-two bytes";

/// The caller, set by a test.
#[derive(Clone)]
struct Name(&'static str);

/// A call of a client that can be asked.
#[derive(Clone)]
struct Call {
    tool: &'static str,
    arguments: Value,
    /// `None` if the request does not identify it.
    caller: Option<&'static str>,
    state: Option<String>,
    answers: Value,
}

type Service = Composite<Server>;

// === impl Call ===

impl Call {
    fn new(tool: &'static str, arguments: Value) -> Self {
        Self { tool, arguments, caller: Some("alice"), state: None, answers: json!({}) }
    }

    /// Returns the same call with all its questions accepted.
    fn again(&self, state: impl Into<String>) -> Self {
        let yes = json!({ "action": "accept", "content": {} });
        let answers = json!({ "approve": yes, "inner:approve": yes });
        Self { state: Some(state.into()), answers, ..self.clone() }
    }

    async fn make(self, service: &Service) -> ToolAnswer {
        let mut request = call(self.tool, self.arguments);
        *request.context_mut().meta_mut() = can_be_asked();
        if let Some(caller) = self.caller {
            request.context_mut().extensions_mut().insert(Name(caller));
        }
        let params = request.tool_call_mut().unwrap();
        params.request_state = self.state;
        params.input_responses = Some(serde_json::from_value(self.answers).unwrap());
        service.clone().oneshot(request).await.unwrap().into_tool_answer()
    }

    async fn asks(self, service: &Service) -> InputRequiredResult {
        match self.make(service).await {
            ToolAnswer::InputRequired(asks) => asks,
            other => panic!("no question, but {other:?}"),
        }
    }

    async fn state(self, service: &Service) -> String {
        self.asks(service).await.request_state.unwrap()
    }

    async fn result(self, service: &Service) -> CallToolResult {
        match self.make(service).await {
            ToolAnswer::Result(result) => result,
            other => panic!("no result, but {other:?}"),
        }
    }

    /// Makes a call that is rejected like every call with an invalid state, without calling a tool.
    async fn refused(self, service: &Service, server: &Server, why: &str) {
        let before = server.called();
        match self.make(service).await {
            ToolAnswer::Error(error) => {
                assert_eq!(error.code.0, -32602, "{why}");
                assert_eq!(error.message, "invalid `requestState`", "{why}");
                assert_eq!(error.data, None, "{why}");
            }
            other => panic!("{why}: not refused, but {other:?}"),
        }
        assert_eq!(server.called(), before, "{why}");
    }
}

fn server() -> Server {
    Server::new().gives("details", json!({ "version": "1.4.0" })).echoes("deploy")
}

/// Returns a deployment with this approval question.
fn approval(name: &str, question: &str) -> CompositeTool {
    let steps = [
        Step::new("details", "details"),
        Step::new("approve", Elicitation::new(question, json!({}))).depends_on(["details"]),
        Step::new(
            "deploy",
            ToolCall::new("deploy").arguments(json!({ "service": "$input.service?" })),
        )
        .depends_on(["approve"]),
    ];
    CompositeTool::workflow(name, "Deploys if a person says so", steps)
}

/// Composites that ask, one that asks through another, and one that never asks.
fn composites() -> Vec<CompositeTool> {
    vec![
        approval("release", "Sure?"),
        approval("other", "Sure?"),
        approval("inner", "Sure?"),
        CompositeTool::fan_out("outer", "Asks through another", ["inner"]),
        CompositeTool::fan_out("quiet", "Never asks", ["details"]),
    ]
}

fn service(
    composites: impl IntoIterator<Item = CompositeTool>,
    store: impl Store + 'static,
    server: &Server,
) -> Service {
    let caller =
        |context: &Context| context.extensions().get::<Name>().map(|Name(name)| (*name).to_owned());
    let layer = CompositeLayer::new(composites).unwrap_or_else(|errors| panic!("{errors}"));
    layer.state(store).caller(caller).layer(server.clone())
}

fn signed() -> SignedStore {
    SignedStore::new(KEY).unwrap()
}

#[cfg(feature = "sealed")]
fn sealed() -> SealedStore {
    SealedStore::new(KEY).unwrap()
}

/// Returns the stores that keep a state at the client.
fn client_stores() -> Vec<Arc<dyn Store>> {
    vec![
        Arc::new(signed()),
        #[cfg(feature = "sealed")]
        Arc::new(sealed()),
    ]
}

fn stores() -> Vec<Arc<dyn Store>> {
    [client_stores(), vec![Arc::new(MemoryStore::for_runs())]].concat()
}

fn release() -> Call {
    Call::new("release", json!({ "service": "shop" }))
}

fn outer() -> Call {
    Call::new("outer", json!({ "service": "shop" }))
}

// === Rejected calls ===

#[tokio::test(start_paused = true)]
async fn malformed_state_is_rejected() {
    for store in stores() {
        let server = server();
        let service = service(composites(), store, &server);
        for text in ["", " ", ".", "null", "{}", "rs2.default..", "es1.default.", "\u{0}", "健🚀"]
        {
            release().again(text).refused(&service, &server, text).await;
        }
        let huge = "A".repeat(16 << 20);
        release().again(huge).refused(&service, &server, "huge").await;
    }
}

#[tokio::test(start_paused = true)]
async fn state_with_any_changed_character_is_rejected() {
    for store in stores() {
        let server = server();
        let service = service(composites(), store, &server);
        let state = release().state(&service).await;
        for at in 0..state.len() {
            let mut bytes = state.clone().into_bytes();
            bytes[at] = if bytes[at] == b'a' { b'b' } else { b'a' };
            let changed = String::from_utf8(bytes).unwrap();
            release().again(&changed).refused(&service, &server, &changed).await;
            release().again(&state[..at]).refused(&service, &server, &state[..at]).await;
        }
        release().again(format!("{state}a")).refused(&service, &server, "longer").await;
        release().again(&state).result(&service).await;
        assert_eq!(server.called(), ["details", "deploy"]);
    }
}

#[tokio::test(start_paused = true)]
async fn state_of_another_call_is_rejected() {
    type Change = fn(&mut Call);
    let rows: [(&str, Change); 9] = [
        ("other arguments", |call| call.arguments = json!({ "service": "bank" })),
        ("more arguments", |call| call.arguments = json!({ "service": "shop", "force": true })),
        ("no arguments", |call| call.arguments = Value::Null),
        ("another composite", |call| call.tool = "other"),
        ("a composite that is made of it", |call| call.tool = "outer"),
        ("one that never asks", |call| call.tool = "quiet"),
        ("another caller", |call| call.caller = Some("bob")),
        ("a caller with no name", |call| call.caller = Some("")),
        ("an unknown caller", |call| call.caller = None),
    ];
    for store in stores() {
        let server = server();
        let service = service(composites(), store, &server);
        let state = release().state(&service).await;
        for (why, change) in rows {
            let mut call = release().again(&state);
            change(&mut call);
            call.refused(&service, &server, why).await;
        }
        // The rejected calls have not used the state.
        release().again(&state).result(&service).await;
        assert_eq!(server.called(), ["details", "deploy"]);
    }
}

#[tokio::test(start_paused = true)]
async fn state_is_rejected_after_its_definition_changes() {
    let changed = |name: &str, question| {
        let mut composites = composites();
        composites.retain(|composite| composite.name() != name);
        composites.insert(0, approval(name, question));
        composites
    };
    for (call, definition, question, is_taken) in [
        (release(), "release", "Really?", false),
        (release(), "release", "Sure?", true),
        (release(), "inner", "Really?", true),
        (outer(), "inner", "Really?", false),
        (outer(), "inner", "Sure?", true),
        (outer(), "release", "Really?", true),
    ] {
        for store in stores() {
            let server = server();
            let before = service(composites(), store.clone(), &server);
            let after = service(changed(definition, question), store, &server);
            let again = call.again(call.clone().state(&before).await);
            let why = format!("`{}` after `{definition}` asks {question:?}", call.tool);
            if is_taken {
                again.result(&after).await;
                assert_eq!(server.called(), ["details", "deploy"], "{why}");
            } else {
                again.refused(&after, &server, &why).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn state_of_another_key_or_store_is_rejected() {
    let other = SignedStore::new("another key of at least 32 bytes.").unwrap();
    let new = SignedStore::ring([("new", KEY)]).unwrap();
    let rows: Vec<(Arc<dyn Store>, Arc<dyn Store>)> = vec![
        (Arc::new(signed()), Arc::new(other)),
        (Arc::new(signed()), Arc::new(new)),
        (Arc::new(signed()), Arc::new(MemoryStore::for_runs())),
        (Arc::new(MemoryStore::for_runs()), Arc::new(MemoryStore::for_runs())),
        (Arc::new(MemoryStore::for_runs()), Arc::new(signed())),
        #[cfg(feature = "sealed")]
        (
            Arc::new(sealed()),
            Arc::new(SealedStore::new("another key of at least 32 bytes.").unwrap()),
        ),
        #[cfg(feature = "sealed")]
        (Arc::new(sealed()), Arc::new(SealedStore::ring([("new", KEY)]).unwrap())),
        #[cfg(feature = "sealed")]
        (Arc::new(sealed()), Arc::new(signed())),
        #[cfg(feature = "sealed")]
        (Arc::new(signed()), Arc::new(sealed())),
        #[cfg(feature = "sealed")]
        (Arc::new(MemoryStore::for_runs()), Arc::new(sealed())),
    ];
    for (here, there) in rows {
        let why = format!("{here:?} at {there:?}");
        let server = server();
        let state = release().state(&service(composites(), here, &server)).await;
        let elsewhere = service(composites(), there, &server);
        release().again(state).refused(&elsewhere, &server, &why).await;
    }
}

#[tokio::test(start_paused = true)]
async fn expired_stored_state_is_rejected() {
    let server = server();
    let store = MemoryStore::for_runs().ttl(Duration::from_secs(60));
    let service = service(composites(), store, &server);
    let [early, late] = [release().state(&service).await, release().state(&service).await];
    advance(Duration::from_secs(59)).await;
    release().again(early).result(&service).await;
    advance(Duration::from_secs(1)).await;
    release().again(late).refused(&service, &server, "expired").await;
}

#[tokio::test]
async fn expired_client_state_is_rejected() {
    let stores: Vec<Arc<dyn Store>> = vec![
        Arc::new(signed().ttl(Duration::ZERO)),
        #[cfg(feature = "sealed")]
        Arc::new(sealed().ttl(Duration::ZERO)),
    ];
    for store in stores {
        let server = server();
        let service = service(composites(), store, &server);
        let state = release().state(&service).await;
        // The stores use the system time, which a test cannot advance.
        tokio::time::sleep(Duration::from_millis(10)).await;
        release().again(state).refused(&service, &server, "expired").await;
    }
}

// === Reused states ===

#[tokio::test(start_paused = true)]
async fn client_state_can_be_answered_repeatedly() {
    for store in client_stores() {
        let server = server();
        let service = service(composites(), store, &server);
        let state = release().state(&service).await;
        let mut no = release().again(&state);
        no.answers = json!({ "approve": { "action": "decline" } });
        assert_eq!(no.result(&service).await.is_error, Some(true));
        for _ in 0..2 {
            release().again(&state).result(&service).await;
        }
        assert_eq!(server.called(), ["details", "deploy", "deploy"], "what was done stays done");
    }
}

#[tokio::test(start_paused = true)]
async fn stored_state_can_be_answered_only_once() {
    let server = server();
    let service = service(composites(), MemoryStore::for_runs(), &server);
    let first = release().state(&service).await;
    // Without an answer it is asked again, with a new handle.
    let mut unanswered = release().again(&first);
    unanswered.answers = json!({});
    let second = unanswered.state(&service).await;
    assert_ne!(first, second);
    release().again(&first).refused(&service, &server, "taken").await;
    release().again(&second).result(&service).await;
    release().again(&second).refused(&service, &server, "taken").await;
    assert_eq!(server.called(), ["details", "deploy"]);
}

// === Unexpected answers ===

#[tokio::test(start_paused = true)]
async fn answers_without_a_state_start_a_new_run() {
    let server = server();
    let service = service(composites(), signed(), &server);
    let mut eager = release().again("");
    eager.state = None;
    let asks = eager.asks(&service).await;
    assert!(asks.input_requests.unwrap().contains_key("approve"));
    assert_eq!(server.called(), ["details"], "nobody was asked yet");

    let mut quiet = Call::new("quiet", json!({})).again("");
    quiet.state = None;
    quiet.result(&service).await;
}

#[tokio::test(start_paused = true)]
async fn unsolicited_answers_are_ignored() {
    let server = server();
    let service = service(composites(), signed(), &server);
    let yes = json!({ "action": "accept", "content": { "x": 1 } });
    let mut stray = release().again(release().state(&service).await);
    stray.answers =
        json!({ "": yes, "deploy": yes, "approve:approve": yes, "details:approve": yes });
    let asks = stray.asks(&service).await;
    assert_eq!(asks.input_requests.unwrap().into_keys().collect::<Vec<_>>(), ["approve"]);
    assert_eq!(server.called(), ["details"]);
}

#[tokio::test(start_paused = true)]
async fn number_of_question_rounds_of_a_run_is_limited() {
    let server = Server::new().tool("curious", Answer::asks("why", "Why?")).says("done", "done");
    let all = CompositeTool::fan_out("all", "Asks on and on", ["curious", "done"]);
    let layer = CompositeLayer::new([all]).unwrap().limits(CallLimits::default().max_rounds(3));
    let service = layer.layer(server.clone());
    let mut call = Call::new("all", json!({}));
    for round in 1..=3 {
        let asks = call.clone().asks(&service).await;
        assert_eq!(server.called().len(), round + 1);
        call.state = asks.request_state;
        call.answers = json!({ "curious:why": { "action": "decline" } });
    }
    let result = call.result(&service).await;
    assert_eq!(result.is_error, Some(true));
    // The one that asks has failed, and no output of the other is lost.
    let texts: Vec<_> =
        result.content.iter().map(|block| &*block.as_text().unwrap().text).collect();
    let limit = "the run asked more than 3 times (`max_rounds`)";
    let failure = format!("branch `curious` (tool `curious`) failed: {limit}");
    assert_eq!(texts[0], failure);
    assert_eq!(texts[2], "done");
}

/// A store that is unavailable for `put` or for `take`.
#[derive(Debug)]
enum Away {
    ToPut,
    ToTake,
}

impl Store for Away {
    fn put<'a>(
        &'a self,
        _: Vec<u8>,
        _: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<String, PutError>> {
        match self {
            Self::ToPut => ready(Err(PutError::Unavailable("no route to 10.0.0.7".into()))).boxed(),
            Self::ToTake => ready(Ok("a handle".to_owned())).boxed(),
        }
    }

    fn take<'a>(
        &'a self,
        _: &'a str,
        _: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        ready(Err(TakeError::Unavailable("no route to 10.0.0.7".into()))).boxed()
    }

    fn get<'a>(
        &'a self,
        _: &'a str,
        _: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        panic!("states are taken")
    }
}

#[tokio::test(start_paused = true)]
async fn error_of_an_unavailable_store_reveals_no_details() {
    let server = server();
    let call = Call::new("release", json!({}));
    let result = call.clone().result(&service(composites(), Away::ToPut, &server)).await;
    let expected = "step `approve` failed: the run cannot wait for an answer at the moment";
    assert_eq!(result.content[0].as_text().unwrap().text, expected);

    let service = service(composites(), Away::ToTake, &server);
    let state = call.clone().state(&service).await;
    match call.again(state).make(&service).await {
        ToolAnswer::Error(error) => {
            let expected = "the state of the run is not available at the moment";
            assert_eq!((error.code.0, &*error.message, error.data), (-32603, expected, None));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.called(), ["details", "details"], "nothing was deployed");
}

/// A composite that reads an output of an earlier step after its question.
fn keeps_notes() -> CompositeTool {
    let steps = [
        Step::new("details", "details"),
        Step::new("approve", Elicitation::new("Sure?", json!({}))).depends_on(["details"]),
        Step::new(
            "deploy",
            ToolCall::new("deploy").arguments(json!({ "notes": "$steps.details.output.notes" })),
        )
        .depends_on(["approve"]),
    ];
    CompositeTool::workflow("release", "Deploys if a person says so", steps)
}

#[tokio::test(start_paused = true)]
async fn too_deeply_nested_result_fails_before_the_question() {
    let deep = (0..98).fold(json!("bottom"), |deep, _| json!([deep]));
    let server = Server::new().gives("details", json!({ "notes": deep })).echoes("deploy");
    let release = keeps_notes();
    // Each composite around it adds levels to the state.
    let around = |depth: usize| {
        let within = if depth == 1 { "release".to_owned() } else { format!("around{}", depth - 1) };
        CompositeTool::fan_out(format!("around{depth}"), "Calls it", [within])
    };
    let composites: Vec<_> = [release].into_iter().chain((1..=7).map(around)).collect();
    let service = service(composites, signed(), &server);
    let result = Call::new("around7", json!({})).result(&service).await;
    let text = &result.content[0].as_text().unwrap().text;
    let why =
        "step `approve` failed: the run cannot wait for an answer: a result is nested too deep";
    assert!(text.contains(why), "{text}");
    assert_eq!(server.called(), ["details"]);
}

#[tokio::test(start_paused = true)]
async fn fan_out_with_approval_has_no_effect_without_elicitation() {
    let server = Server::new().echoes("create").echoes("deploy");
    let approve = CompositeTool::workflow(
        "approve",
        "Asks",
        [Step::new("sure", Elicitation::new("Sure?", json!({}))), Step::new("deploy", "deploy")],
    );
    let fan_out = FanOut::new(["create", "approve"]).sequential();
    let all = CompositeTool::new("all", "Creates, and asks", fan_out);
    let service = service([all, approve], signed(), &server);
    let result = mcp_composite::testing::call(&service, "all", json!({})).await;
    assert_eq!(result.is_error, Some(true));
    assert_eq!(server.called(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn oversized_state_fails_the_call() {
    let large = "x".repeat(10_000);
    let release = keeps_notes();
    let rows: Vec<(Arc<dyn Store>, &str)> = vec![
        (Arc::new(signed().max_item_bytes(5_000)), "at most 5000 (`max_state_bytes`)"),
        #[cfg(feature = "sealed")]
        (Arc::new(sealed().max_item_bytes(5_000)), "at most 5000 (`max_state_bytes`)"),
        (
            Arc::new(MemoryStore::for_runs().max_item_bytes(5_000)),
            "at most 5000 (`max_state_bytes`)",
        ),
        (
            Arc::new(MemoryStore::for_runs().max_total_bytes(5_000)),
            "more than 5000 bytes (`max_total_bytes`)",
        ),
    ];
    for (store, reason) in rows {
        let server = Server::new().gives("details", json!({ "notes": large })).echoes("deploy");
        let service = service([release.clone()], store, &server);
        let result = Call::new("release", json!({})).result(&service).await;
        assert_eq!(result.is_error, Some(true));
        let text = &result.content[0].as_text().unwrap().text;
        let begin = "step `approve` failed: the run cannot wait for an answer: ";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.ends_with(reason), "{text}");
        assert_eq!(server.called(), ["details"]);
    }
}

/// Returns the text of a call whose run cannot be suspended because its caller's share is used up.
async fn refused_for_the_share(call: Call, service: &Service) {
    let caller = call.caller;
    let result = call.result(service).await;
    assert_eq!(result.is_error, Some(true), "{caller:?}");
    let text = &result.content[0].as_text().unwrap().text;
    let begin = "step `approve` failed: the run cannot wait for an answer: the caller's share of \
                 the state store is used up";
    assert!(text.starts_with(begin), "{caller:?}: {text}");
    assert!(text.ends_with("at most 10000 (`max_caller_bytes`)"), "{caller:?}: {text}");
}

#[tokio::test(start_paused = true)]
async fn caller_with_a_full_share_is_rejected_and_others_are_not() {
    let server = server();
    let store = MemoryStore::for_runs().ttl(Duration::from_secs(60)).max_caller_bytes(10_000);
    let service = service(composites(), store, &server);
    let by = |caller| Call { caller, ..release() };
    let fill = async |caller| {
        let mut states = Vec::new();
        while let ToolAnswer::InputRequired(asks) = by(caller).make(&service).await {
            states.push(asks.request_state.unwrap());
            assert!(states.len() < 100, "{caller:?} has no share");
        }
        states
    };

    // Unknown callers and one with an empty name have different shares.
    for caller in [Some("alice"), None, Some(""), Some("bob")] {
        let states = fill(caller).await;
        assert!(states.len() > 1, "{caller:?}");
        refused_for_the_share(by(caller), &service).await;
        // An answered question releases its part of the share.
        let answered = Call { caller, ..release().again(&states[0]) };
        assert_eq!(answered.result(&service).await.is_error, Some(false), "{caller:?}");
        by(caller).state(&service).await;
        refused_for_the_share(by(caller), &service).await;
    }

    advance(Duration::from_secs(60)).await;
    by(Some("alice")).state(&service).await;
}

#[tokio::test(start_paused = true)]
async fn caller_share_does_not_apply_without_callers() {
    let server = server();
    let layer = CompositeLayer::new(composites()).unwrap();
    let service = layer.state(MemoryStore::for_runs().max_caller_bytes(1)).layer(server);
    for _ in 0..3 {
        release().state(&service).await;
    }
}

#[tokio::test(start_paused = true)]
async fn state_omits_outputs_that_no_later_step_reads() {
    let server = Server::new().gives("details", json!({ "secret": "x".repeat(10_000) }));
    let server = server.echoes("deploy");
    let store = signed().max_item_bytes(5_000);
    let service = service(composites(), store, &server);
    let state = release().state(&service).await;
    release().again(state).result(&service).await;
}

/// A composite that creates something, and asks before it deploys with the result.
fn approval_after(creates: Step) -> CompositeTool {
    let steps = [
        Step::new("details", "details"),
        creates.depends_on(["details"]),
        Step::new("approve", Elicitation::new("Sure?", json!({}))).depends_on(["create"]),
        Step::new(
            "deploy",
            ToolCall::new("deploy").arguments(json!({ "notes": "$steps.create.output.notes?" })),
        )
        .depends_on(["approve"]),
    ];
    CompositeTool::workflow("release", "Deploys if a person says so", steps)
}

#[tokio::test(start_paused = true)]
async fn outputs_are_reported_in_full_if_a_state_is_too_large() {
    let server = Server::new()
        .says("details", "d".repeat(20_000))
        .gives("create", json!({ "notes": "n".repeat(10_000) }))
        .echoes("deploy");
    let release = approval_after(Step::new("create", "create"));
    let service = service([release], signed().max_item_bytes(5_000), &server);
    let result = Call::new("release", json!({})).result(&service).await;
    assert_eq!(server.called(), ["details", "create"]);
    let steps = &result.structured_content.unwrap()["steps"];
    assert_eq!(steps["details"]["output"], "d".repeat(20_000));
    assert_eq!(steps["create"]["output"], json!({ "notes": "n".repeat(10_000) }));
}

/// Outputs for the report never take space from the state.
#[tokio::test(start_paused = true)]
async fn state_drops_report_outputs_when_space_is_short() {
    let server = Server::new()
        .says("details", "d".repeat(900))
        .gives("create", json!({ "notes": "n".repeat(2_600) }))
        .fails("deploy", "no quota");
    let release = approval_after(Step::new("create", "create"));
    for (bytes, details) in [(6_000, "d".repeat(900).into()), (5_000, Value::Null)] {
        let service = service([release.clone()], signed().max_item_bytes(bytes), &server);
        let release = Call::new("release", json!({}));
        let state = release.clone().state(&service).await;
        let result = release.again(state).result(&service).await;
        let steps = &result.structured_content.unwrap()["steps"];
        assert_eq!(steps["details"]["output"], details);
        assert_eq!(steps["create"]["output"]["notes"], "n".repeat(2_600));
    }
}

#[tokio::test(start_paused = true)]
async fn possibly_oversized_state_is_reported() {
    let tool = |name: &'static str, is_read_only: bool| {
        let tool = Tool::new(name, name, JsonObject::new());
        tool.with_annotations(ToolAnnotations::new().read_only(is_read_only))
    };
    let server = |is_read_only: bool| {
        Server::new()
            .tool_as(tool("details", true), Answer::text("d"))
            .tool_as(tool("create", is_read_only), Answer::text("c"))
            .echoes("deploy")
    };
    let creates = || Step::new("create", "create");
    // Arguments from earlier steps are checked before the step runs.
    let steps = [
        Step::new("details", "details"),
        creates().depends_on(["details"]),
        Step::new("approve", Elicitation::new("Sure?", json!({}))).depends_on(["create"]),
        Step::new(
            "deploy",
            ToolCall::new("deploy").arguments(json!({ "notes": "$steps.details.text" })),
        )
        .depends_on(["approve"]),
    ];
    let checked = CompositeTool::workflow("release", "Deploys if a person says so", steps);
    let (signed, memory): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(signed()), Arc::new(MemoryStore::for_runs()));
    let small = approval_after(creates()).max_result_bytes(40_000);
    let rows = [
        ("signed", approval_after(creates()), false, &signed, true),
        ("read-only", approval_after(creates()), true, &signed, false),
        ("memory", approval_after(creates()), false, &memory, false),
        ("checked", checked, false, &signed, false),
        ("small", small, false, &signed, false),
    ];
    for (what, composite, is_read_only, store, is_remarked) in rows {
        let layer = CompositeLayer::new([composite]).unwrap().state(store.clone());
        let service = layer.layer(server(is_read_only));
        assert_eq!(layer.remarks(), [""; 0], "{what}: before the tools are known");
        mcp_composite::testing::listed(&service).await;
        let remarks = layer.remarks();
        assert_eq!(remarks.len(), usize::from(is_remarked), "{what}: {remarks:?}");
        for remark in remarks {
            let expected = "composite `release`: step `create` may change something, and the output \
                            of `create` is kept for later until `approve` is answered; if the \
                            state is then larger than 49152 bytes, the run fails after `create`: \
                            set";
            assert!(remark.starts_with(expected), "{remark}");
        }
    }
}
