//! The tools, and the state that they and their callers leave behind.

use std::{
    collections::HashMap,
    env,
    path::Path,
    process,
    sync::{Mutex, MutexGuard, mpsc},
    thread,
    time::Duration,
};

use serde_json::{Map, Value, json};

use crate::{Behaviour, Refusal, Request, refusal, send};

/// A tool's name, description, and arguments with their types. The first
/// argument is required.
type Declaration = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const DECLARATIONS: &[Declaration] = &[
    ("echo", "Returns its text", &[("text", "string")]),
    ("hang", "Never answers", &[]),
    ("die", "Ends the server without an answer", &[]),
    ("slow", "Answers after a while", &[("ms", "integer")]),
    ("hold", "Answers once this file exists", &[("file", "string")]),
    ("huge", "Answers with a text of this size", &[("bytes", "integer")]),
    ("progress", "Tells its progress, then answers", &[("steps", "integer"), ("ms", "integer")]),
    ("ask", "Asks the user", &[]),
    ("env", "Returns an environment variable", &[("name", "string")]),
    ("pid", "Returns the server's process id", &[]),
    ("calls", "Counts the calls so far, with this one", &[]),
    ("cancelled", "Lists the requests that were cancelled", &[]),
    ("meta", "Returns the `_meta` that came with the call", &[]),
    ("touch", "Says that test://one changed, to whoever subscribed to it", &[]),
    ("add_tool", "Adds a tool that says that it was called", &[("name", "string")]),
];

/// The state of a connection.
#[derive(Debug, Default)]
struct Memory {
    added: Vec<String>,
    calls: usize,
    cancelled: Vec<Value>,
    /// Resources that were subscribed to before 2026-07-28.
    subscribed: Vec<String>,
    /// Open streams since 2026-07-28: the request's id, and its subscriptions.
    streams: Vec<(Value, Value)>,
    /// Questions that the client has not answered yet.
    questions: HashMap<String, mpsc::Sender<Value>>,
}

#[derive(Debug, Default)]
pub(crate) struct Tools {
    memory: Mutex<Memory>,
}

impl Tools {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("nothing panics with the lock")
    }

    pub(crate) fn note_call(&self) {
        self.memory().calls += 1;
    }

    pub(crate) fn note_cancellation(&self, id: &Value) {
        let mut memory = self.memory();
        memory.streams.retain(|(stream, _)| stream != id);
        memory.cancelled.push(id.clone());
    }

    pub(crate) fn was_cancelled(&self, id: &Value) -> bool {
        self.memory().cancelled.contains(id)
    }

    pub(crate) fn note_answer(&self, message: &Value) {
        let question = message["id"].as_str().unwrap_or_default();
        if let Some(asker) = self.memory().questions.remove(question) {
            // A caller that is gone needs no answer.
            let _ = asker.send(message.clone());
        }
    }

    pub(crate) fn subscribe(&self, params: &Value) -> Value {
        self.memory().subscribed.extend(params["uri"].as_str().map(str::to_owned));
        json!({})
    }

    pub(crate) fn unsubscribe(&self, params: &Value) -> Value {
        self.memory().subscribed.retain(|uri| params["uri"] != *uri);
        json!({})
    }

    pub(crate) fn listen(&self, id: &Value, params: &Value) {
        let mut wanted = params["notifications"].clone();
        if let Some(wanted) = wanted.as_object_mut() {
            // Only acknowledged kinds are sent.
            wanted.retain(|kind, _| kind == "toolsListChanged" || kind == "resourceSubscriptions");
        }
        let acknowledged = json!({"notifications": wanted});
        self.memory().streams.push((id.clone(), wanted));
        notify_stream(id, "notifications/subscriptions/acknowledged", acknowledged);
    }

    pub(crate) fn list(&self, behaviour: Behaviour, params: &Value) -> Value {
        let tools: Vec<Value> = match behaviour {
            Behaviour::Flood => {
                let cursor = params["cursor"].as_str().unwrap_or_default();
                let page = cursor.parse::<u64>().unwrap_or(0);
                return json!({
                    "tools": [named(&format!("page_{page}"))],
                    "nextCursor": (page + 1).to_string(),
                });
            }
            Behaviour::BadNames => {
                let long = "n".repeat(200);
                ["with space", "ünïcode", "", &long, "good"].map(named).into()
            }
            Behaviour::Twins => ["twin", "twin", "good"].map(named).into(),
            Behaviour::Faulty => {
                let anything = json!({"type": "object", "properties": {}});
                let fault = json!({"name": "fault", "inputSchema": anything});
                DECLARATIONS.iter().map(declared).chain([fault]).collect()
            }
            Behaviour::Hostile(attack) => {
                DECLARATIONS.iter().map(declared).chain(attack.tools()).collect()
            }
            _ => {
                let added = self.memory().added.clone();
                let added = added.iter().map(|name| named(name));
                DECLARATIONS.iter().map(declared).chain(added).collect()
            }
        };
        json!({"tools": tools})
    }

    /// Returns the outcome of a call; `None` for no answer at all.
    pub(crate) fn call(
        &self,
        behaviour: Behaviour,
        request: &Request,
    ) -> Option<Result<Value, Refusal>> {
        let modern = behaviour.is_modern();
        let name = request.params["name"].as_str().unwrap_or_default();
        let arguments = &request.params["arguments"];
        let listed = matches!(behaviour, Behaviour::Flood | Behaviour::BadNames | Behaviour::Twins);
        if listed || self.memory().added.iter().any(|added| added == name) {
            return Some(Ok(text(format!("called {name}"))));
        }
        if let Some(result) = behaviour.attack().and_then(|attack| attack.call(request)) {
            return Some(Ok(result));
        }
        Some(Ok(match name {
            "echo" => text(arguments["text"].as_str().unwrap_or_default()),
            "hang" => return None,
            "die" => process::exit(3),
            "slow" => {
                thread::sleep(milliseconds(arguments));
                text("at last")
            }
            "hold" => {
                let file = arguments["file"].as_str().unwrap_or_default();
                while !Path::new(file).exists() {
                    thread::sleep(Duration::from_millis(5));
                }
                text("at last")
            }
            "huge" => {
                let bytes = arguments["bytes"].as_u64().unwrap_or_default();
                text("x".repeat(usize::try_from(bytes).expect("a size that fits into memory")))
            }
            "progress" => progress(request),
            "ask" if modern => ask_by_result(&request.params),
            "ask" => self.ask_by_request(&request.id),
            "env" => {
                let variable = arguments["name"].as_str().unwrap_or_default();
                text(env::var(variable).unwrap_or_else(|_| "unset".to_owned()))
            }
            "pid" => structured(&json!({"pid": process::id()})),
            "calls" => structured(&json!({"count": self.memory().calls})),
            "cancelled" => {
                let ids = &self.memory().cancelled;
                structured(&json!({"requestIds": ids, "count": ids.len()}))
            }
            "meta" => match &request.params["_meta"] {
                Value::Null => structured(&json!({})),
                meta => structured(meta),
            },
            "touch" => {
                self.touch();
                text("touched")
            }
            "add_tool" => {
                let name = arguments["name"].as_str().unwrap_or_default();
                self.memory().added.push(name.to_owned());
                self.tell_tools_changed(modern);
                text(format!("added {name}"))
            }
            _ => return Some(Err(refusal(-32602, format!("no such tool: {name}")))),
        }))
    }

    fn touch(&self) {
        let memory = self.memory();
        let method = "notifications/resources/updated";
        let uri = "test://one";
        if memory.subscribed.iter().any(|subscribed| subscribed == uri) {
            notify(method, &json!({"uri": uri}));
        }
        for (id, wanted) in &memory.streams {
            let uris = wanted["resourceSubscriptions"].as_array();
            if uris.is_some_and(|uris| uris.iter().any(|wanted| wanted == uri)) {
                notify_stream(id, method, json!({"uri": uri}));
            }
        }
    }

    fn tell_tools_changed(&self, modern: bool) {
        let method = "notifications/tools/list_changed";
        if !modern {
            return notify(method, &json!({}));
        }
        for (id, wanted) in &self.memory().streams {
            if wanted["toolsListChanged"] == true {
                notify_stream(id, method, json!({}));
            }
        }
    }

    /// Asks with a request, as servers did before 2026-07-28.
    fn ask_by_request(&self, call: &Value) -> Value {
        let question = format!("question-{call}");
        let (asker, answer) = mpsc::channel();
        self.memory().questions.insert(question.clone(), asker);
        send(&json!({
            "jsonrpc": "2.0",
            "id": question,
            "method": "elicitation/create",
            "params": question_params(),
        }));
        let answer = answer.recv().expect("questions stay until they are answered");
        match answer.get("error") {
            Some(error) => structured(&json!({"error": error})),
            None => structured(&answer["result"]),
        }
    }
}

/// Asks with a result that requests another call with the answer, as servers do since 2026-07-28.
fn ask_by_result(params: &Value) -> Value {
    match &params["inputResponses"]["question"] {
        Value::Null => json!({
            "resultType": "input_required",
            "inputRequests": {
                "question": {"method": "elicitation/create", "params": question_params()},
            },
            "requestState": "asked",
        }),
        answer => structured(answer),
    }
}

fn question_params() -> Value {
    json!({
        "mode": "form",
        "message": "How are you?",
        "requestedSchema": {
            "type": "object",
            "properties": {"answer": {"type": "string"}},
            "required": ["answer"],
        },
    })
}

fn progress(request: &Request) -> Value {
    let arguments = &request.params["arguments"];
    let steps = arguments["steps"].as_u64().unwrap_or_default();
    let token = &request.params["_meta"]["progressToken"];
    for step in 1..=steps {
        if !token.is_null() {
            notify(
                "notifications/progress",
                &json!({
                    "progressToken": token,
                    "progress": step,
                    "total": steps,
                    "message": format!("step {step} of {steps}"),
                }),
            );
        }
        thread::sleep(milliseconds(arguments));
    }
    text(format!("{steps} steps"))
}

fn milliseconds(arguments: &Value) -> Duration {
    Duration::from_millis(arguments["ms"].as_u64().unwrap_or_default())
}

fn notify(method: &str, params: &Value) {
    send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
}

fn notify_stream(id: &Value, method: &str, mut params: Value) {
    params["_meta"]["io.modelcontextprotocol/subscriptionId"] = id.clone();
    notify(method, &params);
}

fn text(text: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": text.into()}]})
}

fn structured(value: &Value) -> Value {
    json!({"content": [{"type": "text", "text": value.to_string()}], "structuredContent": value})
}

fn declared((name, description, arguments): &Declaration) -> Value {
    let properties: Map<String, Value> = arguments
        .iter()
        .map(|(argument, kind)| ((*argument).to_owned(), json!({"type": kind})))
        .collect();
    let required: Vec<_> = arguments.iter().take(1).map(|(argument, _)| argument).collect();
    json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
    })
}

fn named(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}
