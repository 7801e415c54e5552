//! Requests of clients: each one is answered, reaches no hidden tool and none that needs approval,
//! and is only echoed where expected.

use arbitrary::{Arbitrary, Result, Unstructured};
use mcp_composite::{
    message::{Context, Request},
    testing::{Answer, Server},
};
use rmcp::model::{ClientRequest, CustomRequest, MetaObject, RequestMetaObject};
use serde_json::{Map, Value, json};
use tower::ServiceExt;

use super::{
    json::{Json, members, word},
    run,
    stack::{ARGUMENT, DEFAULT, NAMES, SECRET, check_answer, is_hidden, stack},
};

/// The maximum number of consecutive requests.
const MAX_REQUESTS: usize = 4;

const METHODS: [&str; 16] = [
    "tools/call",
    "tools/call",
    "tools/call",
    "tools/call",
    "tools/list",
    "ping",
    "initialize",
    "server/discover",
    "completion/complete",
    "logging/setLevel",
    "prompts/get",
    "prompts/list",
    "resources/read",
    "resources/subscribe",
    "tasks/get",
    "example/custom",
];

/// The keys of `_meta` that the crate reads.
const META: [&str; 8] = [
    "traceparent",
    "tracestate",
    "baggage",
    "progressToken",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/protocolVersion",
    "mcp-composite/run",
    "a",
];

/// Their values, valid and invalid.
const TRACES: [&str; 7] = [
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-00000000000000000000000000000000-0000000000000000-00",
    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01-more",
    "a=1,b=2,a=3",
    "2026-07-28",
    "\u{0}\r\n",
];

/// A request as JSON, and the `_meta` of its context.
#[derive(Debug)]
struct Sent {
    method: &'static str,
    params: Option<Value>,
    meta: Map<String, Value>,
}

impl<'a> Arbitrary<'a> for Sent {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let method = *bytes.choose(&METHODS)?;
        let mut params = match bytes.ratio(1, 20)? {
            true => Json::arbitrary(bytes)?.0,
            false => params(bytes, method)?,
        };
        let meta = meta(bytes)?;
        if let Value::Object(params) = &mut params
            && bytes.ratio(1, 3)?
        {
            params.insert("_meta".to_owned(), meta.clone().into());
        }
        let params = if bytes.ratio(1, 30)? { None } else { Some(params) };
        Ok(Self { method, params, meta })
    }
}

fn params(bytes: &mut Unstructured<'_>, method: &str) -> Result<Value> {
    let name = match bytes.ratio(1, 12)? {
        true => word(bytes)?,
        false => (*bytes.choose(&NAMES)?).to_owned(),
    };
    let mut params = match method {
        "tools/call" => json!({ "name": name, "arguments": arguments(bytes)? }),
        "completion/complete" => json!({
            "ref": { "type": "ref/prompt", "name": name },
            "argument": { "name": word(bytes)?, "value": ARGUMENT },
        }),
        "prompts/get" => json!({ "name": name, "arguments": { "a": ARGUMENT } }),
        "resources/read" | "resources/subscribe" => json!({ "uri": format!("a:{name}") }),
        "tasks/get" => json!({ "taskId": name }),
        _ => json!({}),
    };
    for key in ["cursor", "requestState", "inputResponses", "task"] {
        if bytes.ratio(1, 10)? {
            params[key] = match (key, bytes.arbitrary()?) {
                (_, false) => Json::arbitrary(bytes)?.0,
                ("inputResponses", true) => {
                    json!({ "approve": { "action": "accept", "content": {} } })
                }
                _ => word(bytes)?.into(),
            };
        }
    }
    Ok(params)
}

/// Returns arguments whose texts must not appear in errors.
fn arguments(bytes: &mut Unstructured<'_>) -> Result<Value> {
    members(bytes, |bytes| {
        let Json(mut value) = Json::arbitrary(bytes)?;
        mark(&mut value);
        if bytes.ratio(1, 40)? {
            value = ARGUMENT.repeat(1_000).into();
        }
        Ok(value)
    })
}

fn mark(value: &mut Value) {
    match value {
        Value::String(text) => text.push_str(ARGUMENT),
        Value::Array(elements) => elements.iter_mut().for_each(mark),
        Value::Object(members) => members.values_mut().for_each(mark),
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

fn meta(bytes: &mut Unstructured<'_>) -> Result<Map<String, Value>> {
    let count = bytes.int_in_range(0..=3)?;
    let mut meta = Map::new();
    for _ in 0..count {
        let key = *bytes.choose(&META)?;
        let value = match bytes.int_in_range(0..=3)? {
            0 => Json::arbitrary(bytes)?.0,
            1 => json!({ "elicitation": { "form": {} } }),
            _ => (*bytes.choose(&TRACES)?).into(),
        };
        meta.insert(key.to_owned(), value);
    }
    Ok(meta)
}

pub(super) fn check(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let mut requests = Vec::new();
    while requests.len() < MAX_REQUESTS && (requests.is_empty() || !bytes.is_empty()) {
        let Ok(sent) = Sent::arbitrary(&mut bytes) else { return };
        requests.push(sent);
    }
    run(answered(requests));
}

async fn answered(requests: Vec<Sent>) {
    let server = Server::new()
        .page_size(2)
        .says("a", "a text")
        .gives("b", json!({ "rows": [1, { "secret": SECRET }] }))
        .fails("plain", "it failed")
        .tool("hidden_1", Answer::text(SECRET))
        .tool("hidden_2", Answer::error(-32000, SECRET))
        .says("guarded", "done");
    let stack = stack(server.clone());
    for request in requests {
        let request = request.into_request();
        let reply = stack.clone().oneshot(request).await.expect("an answer");
        check_answer(&reply.into_result(), &[SECRET, DEFAULT, ARGUMENT]);
    }
    let called = server.called();
    assert!(!called.iter().any(|tool| is_hidden(tool) || tool == "guarded"), "{called:?}");
}

// === impl Sent ===

impl Sent {
    /// Parses it as received over a connection: an unreadable request is a custom request.
    fn into_request(self) -> Request {
        let json = json!({ "method": self.method, "params": self.params });
        let message = serde_json::from_value::<ClientRequest>(json)
            .unwrap_or_else(|_| CustomRequest::new(self.method, self.params).into());
        let mut context = Context::default();
        *context.meta_mut() = RequestMetaObject(MetaObject(self.meta));
        Request::new(message, context)
    }
}
