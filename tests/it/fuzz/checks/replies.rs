//! Replies of servers: whatever they are, every client gets an answer without hidden or redacted
//! data.

use std::{
    future::{Ready, ready},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use arbitrary::{Arbitrary, Result, Unstructured};
use mcp_composite::{
    message::{Reply, Request},
    stack::Stack,
    testing,
};
use rmcp::model::{ClientRequest, ErrorCode, ErrorData, ServerResult};
use serde_json::{Map, Value, json};
use tower::{BoxError, Service, ServiceExt};

use super::{
    json::{Json, members, word},
    run,
    stack::{DEFAULT, SECRET, TOOLS, check_answer, is_hidden, stack},
};

/// The maximum number of pages of a server, and of tools on each.
const MAX_PAGES: usize = 3;
const MAX_TOOLS: usize = 4;

/// A server with arbitrary replies, and a client that calls it.
#[derive(Arbitrary, Debug)]
struct Conversation {
    pages: Vec<Page>,
    /// Of the tools, in order.
    answers: [Answer; 3],
    arguments: Arguments,
    calls: [u8; 3],
}

/// Some tools, and whether more follow.
#[derive(Debug)]
struct Page(Value);

#[derive(Debug)]
enum Answer {
    /// A possibly valid result.
    Result(Value),
    Error(ErrorData),
    /// The server cannot be reached.
    Unavailable,
}

/// The arguments of a client.
#[derive(Debug)]
struct Arguments(Value);

impl<'a> Arbitrary<'a> for Page {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        if bytes.ratio(1, 20)? {
            return Json::arbitrary(bytes).map(|Json(anything)| Self(anything));
        }
        let count = bytes.int_in_range(0..=MAX_TOOLS)?;
        let tools = (0..count).map(|_| tool(bytes)).collect::<Result<Vec<_>>>()?;
        let mut page = json!({ "tools": tools });
        if bytes.ratio(1, 8)? {
            // The same page once more, one that does not exist, or the first.
            page["nextCursor"] = json!(*bytes.choose(&["0", "1", "7", ""])?);
        }
        Ok(Self(page))
    }
}

impl<'a> Arbitrary<'a> for Answer {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match bytes.int_in_range(0..=15)? {
            0 => Self::Unavailable,
            1 | 2 => {
                let code = ErrorCode(bytes.arbitrary()?);
                let message = format!("it broke: {SECRET}");
                let data = bytes.arbitrary::<Option<u8>>()?.map(|_| json!({ "why": SECRET }));
                Self::Error(ErrorData::new(code, message, data))
            }
            3 => Self::Result(with_secrets(bytes)?),
            4 => Self::Result(json!({
                "resultType": "input_required",
                "requestState": SECRET,
                "inputRequests": { "a": { "method": "elicitation/create", "params": {
                    "message": SECRET, "requestedSchema": { "type": "object", "properties": {} }
                } } },
            })),
            5 => Self::Result(json!({
                "resultType": "task",
                "taskId": SECRET,
                "status": "working",
                "createdAt": "2026-01-01T00:00:00Z",
                "lastUpdatedAt": "2026-01-01T00:00:00Z",
                "ttlMs": null,
            })),
            _ => result(bytes).map(Self::Result)?,
        })
    }
}

impl<'a> Arbitrary<'a> for Arguments {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let sent = members(bytes, |bytes| Json::arbitrary(bytes).map(|Json(value)| value))?;
        Ok(Self(if bytes.ratio(1, 8)? { Value::Null } else { sent }))
    }
}

fn tool(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let name = if bytes.ratio(1, 12)? { word(bytes)? } else { (*bytes.choose(&TOOLS)?).to_owned() };
    let mut tool = json!({ "name": name, "inputSchema": schema(bytes)? });
    if bytes.arbitrary()? {
        tool["outputSchema"] = schema(bytes)?;
    }
    if bytes.ratio(1, 8)? {
        let Json(anything) = Json::arbitrary(bytes)?;
        let key = *bytes.choose(&["annotations", "title", "description", "_meta", "icons"])?;
        tool[key] = anything;
    }
    Ok(tool)
}

/// Returns a possibly valid schema.
fn schema(bytes: &mut Unstructured<'_>) -> Result<Value> {
    if bytes.arbitrary()? {
        return Ok(json!({ "type": "object" }));
    }
    let mut schema = json!({ "type": "object" });
    if bytes.arbitrary()? {
        schema["properties"] =
            members(bytes, |bytes| Json::arbitrary(bytes).map(|Json(value)| value))?;
    }
    if let (Value::Object(schema), Json(Value::Object(more))) =
        (&mut schema, Json::arbitrary(bytes)?)
    {
        schema.extend(more);
    }
    Ok(schema)
}

/// Returns an almost valid tool result, with secrets in redacted places.
fn result(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let mut result = Map::new();
    let content = with_secrets(bytes)?;
    let mut blocks = Vec::new();
    for _ in 0..bytes.int_in_range(0..=3)? {
        blocks.push(block(bytes, &content)?);
    }
    if bytes.ratio(7, 8)? {
        result.insert("content".into(), blocks.into());
    }
    if bytes.arbitrary()? {
        result.insert("structuredContent".into(), content);
    }
    if bytes.ratio(1, 4)? {
        result.insert("isError".into(), bytes.arbitrary::<bool>()?.into());
    }
    if bytes.ratio(1, 4)? {
        result.insert("_meta".into(), json!({ "a": SECRET, "b": with_secrets(bytes)? }));
    }
    if bytes.ratio(1, 20)? {
        let Json(anything) = Json::arbitrary(bytes)?;
        let key = *bytes.choose(&["content", "isError", "_meta", "resultType", "tools"])?;
        result.insert(key.into(), anything);
    }
    Ok(result.into())
}

fn block(bytes: &mut Unstructured<'_>, content: &Value) -> Result<Value> {
    let json = content.to_string();
    let text = |text: String| json!({ "type": "text", "text": text });
    Ok(match bytes.int_in_range(0..=10)? {
        0 => text(format!("it is {SECRET}")),
        1 => text(SECRET.repeat(200)),
        2..=4 => text(json),
        5 => text(format!(" {json}\n")),
        // No longer JSON, or not only JSON.
        6 => {
            let cut = bytes.choose_index(json.len() + 1)?;
            let cut = (0..=cut).rev().find(|cut| json.is_char_boundary(*cut)).unwrap_or(0);
            text(format!("{}{SECRET}", &json[..cut]))
        }
        7 => text(format!("{json}{json}{SECRET}")),
        8 => json!({ "type": "image", "data": SECRET, "mimeType": "image/png" }),
        9 => json!({ "type": "resource_link", "uri": format!("a:{SECRET}"), "name": SECRET,
            "_meta": { "a": SECRET } }),
        _ => json!({ "type": "resource", "resource": { "uri": "a:b", "text": SECRET } }),
    })
}

/// Returns JSON in which every member called `secret` is one.
fn with_secrets(bytes: &mut Unstructured<'_>) -> Result<Value> {
    let Json(mut value) = Json::arbitrary(bytes)?;
    if bytes.arbitrary()? {
        let inner = value.take();
        value = json!({ "rows": inner, "secret": SECRET });
    }
    if bytes.ratio(1, 6)? {
        let times = bytes.int_in_range(1..=100)?;
        value = Value::Array(vec![value; times]);
    }
    if bytes.arbitrary()? && !value.is_object() {
        value = json!({ "rows": value, "secret": [SECRET, { SECRET: SECRET }] });
    }
    Ok(value)
}

pub(super) fn check(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let Ok(conversation) = Conversation::arbitrary(&mut bytes) else { return };
    run(conversation.check());
}

// === impl Conversation ===

impl Conversation {
    async fn check(&self) {
        let server = Server(Arc::new(Said {
            pages: self.pages.iter().take(MAX_PAGES).map(|Page(page)| page.clone()).collect(),
            answers: self.answers.iter().map(Answer::given).collect(),
            called: Mutex::default(),
        }));
        let stack = stack(server.clone());
        ask(&stack, Request::list_tools()).await;
        let Arguments(arguments) = &self.arguments;
        for call in self.calls {
            let name = CALLED[usize::from(call) % CALLED.len()];
            ask(&stack, testing::request(name, arguments.clone())).await;
        }
        let called = server.0.called.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!called.iter().any(|tool| is_hidden(tool)), "{called:?}");
    }
}

/// The names that the client calls.
const CALLED: [&str; 9] =
    ["a", "renamed", "hidden_1", "all", "either", "raced", "chain", "flow", "nested"];

async fn ask(stack: &Stack<Server>, request: Request) {
    // The server of the stack reports unavailable backends to clients.
    let Ok(reply) = stack.clone().oneshot(request).await else { return };
    check_answer(&reply.into_result(), &[SECRET, DEFAULT]);
}

impl Answer {
    fn given(&self) -> std::result::Result<Reply, ()> {
        match self {
            // As received over a connection: a value that is not a tool result is another result.
            Self::Result(value) => {
                let read = serde_json::from_value::<ServerResult>(value.clone());
                read.map(Reply::from).map_err(|_| ())
            }
            Self::Error(error) => Ok(error.clone().into()),
            Self::Unavailable => Err(()),
        }
    }
}

/// A server with scripted replies.
#[derive(Clone)]
struct Server(Arc<Said>);

struct Said {
    pages: Vec<Value>,
    answers: Vec<std::result::Result<Reply, ()>>,
    called: Mutex<Vec<String>>,
}

impl Service<Request> for Server {
    type Response = Reply;
    type Error = BoxError;
    type Future = Ready<std::result::Result<Reply, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ready(match request.message() {
            ClientRequest::ListToolsRequest(list) => {
                let cursor = list.params.as_ref().and_then(|params| params.cursor.as_deref());
                let place = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0_usize);
                let page = self.0.pages.get(place).cloned().unwrap_or(json!({ "tools": [] }));
                let read = serde_json::from_value::<ServerResult>(page);
                read.map(Reply::from).map_err(Into::into)
            }
            ClientRequest::CallToolRequest(call) => {
                let name = &call.params.name;
                let mut called = self.0.called.lock().unwrap_or_else(PoisonError::into_inner);
                called.push(name.to_string());
                let place = TOOLS.iter().position(|tool| *tool == &**name).unwrap_or(0);
                let answer = &self.0.answers[place % self.0.answers.len()];
                answer.clone().map_err(|()| format!("no route to {SECRET}").into())
            }
            _ => Ok(Reply::method_not_found(request.method().to_owned())),
        })
    }
}
