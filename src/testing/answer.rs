//! The scripted answers of tools.

use std::{collections::BTreeMap, fmt, future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use rmcp::model::{
    CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams, ElicitationSchema, ErrorCode,
    ErrorData, InputRequest, InputRequests, InputRequiredResult, ServerResult,
};
use serde_json::{Map, Value};
use tower::BoxError;

use super::RecordedCall;
use crate::message::Reply;

/// The answer of a scripted tool of a test [`Server`](super::Server): for example a result, an
/// error, or a sequence of answers.
///
/// The functions of `Answer` create common answers. Convert a [`CallToolResult`], an [`ErrorData`]
/// or a [`Reply`] to an `Answer` for others, such as several content blocks or an error with
/// `data`.
///
/// An `Answer` can be a sequence: the first call of the tool receives the first answer of the
/// sequence, and so on. Calls after the end of the sequence receive the last answer. See the
/// [module docs](super) for examples.
#[derive(Clone)]
#[must_use]
pub struct Answer {
    /// The answers of the sequence, in the order of the calls. There is at least one.
    turns: Vec<Turn>,
}

/// One answer of a sequence, with the delay before it is given.
#[derive(Clone)]
struct Turn {
    after: Duration,
    script: Script,
}

#[derive(Clone)]
enum Script {
    Reply(Reply),
    Echo,
    Unavailable(String),
    Panic(String),
    Never,
    Made(Arc<Maker>),
}

type Maker = dyn Fn(RecordedCall) -> BoxFuture<'static, Answer> + Send + Sync;

// === impl Answer ===

impl Answer {
    /// Creates an answer with a text.
    pub fn text(text: impl Into<String>) -> Self {
        CallToolResult::success(vec![ContentBlock::text(text)]).into()
    }

    /// Creates an answer with structured content. The answer also contains a text block with the
    /// same value as JSON.
    pub fn structured(content: Value) -> Self {
        CallToolResult::structured(content).into()
    }

    /// Creates an answer that returns the arguments of the call as structured content. If the call
    /// has no arguments, the content is `{}`.
    pub fn echo() -> Self {
        Self::new(Script::Echo)
    }

    /// Creates an answer that asks the user a question with the given key and message, and with an
    /// empty form. The answer has the request state `asked`, which the client returns together with
    /// the user's answer.
    ///
    /// To ask a question with a form that has fields, use a [`Reply`] with an
    /// [`InputRequiredResult`](rmcp::model::InputRequiredResult) instead of `asks`.
    pub fn asks(key: impl Into<String>, message: impl Into<String>) -> Self {
        question(key, message).into()
    }

    /// Creates an answer with a failed tool result (`isError`), whose content is the text `why`.
    pub fn failure(why: impl Into<String>) -> Self {
        CallToolResult::error(vec![ContentBlock::text(why)]).into()
    }

    /// Creates an answer with a JSON-RPC error.
    pub fn error(code: i32, message: impl Into<String>) -> Self {
        ErrorData::new(ErrorCode(code), message.into(), None).into()
    }

    /// Creates an answer that fails the call with the service error `why`, as if the server could
    /// not be reached.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::new(Script::Unavailable(why.into()))
    }

    /// Creates an answer that panics with the message `text` when the tool is called.
    pub fn panic(text: impl Into<String>) -> Self {
        Self::new(Script::Panic(text.into()))
    }

    /// Creates an answer that never arrives: each call runs until it is dropped.
    pub fn never() -> Self {
        Self::new(Script::Never)
    }

    /// Creates an answer from a closure. The closure receives each call, and returns the answer to
    /// it.
    ///
    /// If the closure returns a sequence of answers, the tool uses only the first answer in it.
    pub fn from_fn<F, R, A>(make: F) -> Self
    where
        F: Fn(RecordedCall) -> R + Send + Sync + 'static,
        R: Future<Output = A> + Send + 'static,
        A: Into<Self>,
    {
        Self::new(Script::Made(Arc::new(move |call| {
            let answer = make(call);
            Box::pin(async move { answer.await.into() })
        })))
    }

    /// Sends the answer only when `delay` has passed since the start of the call. If the answer is
    /// a sequence, all of its answers are delayed.
    ///
    /// Calls to a tool with a delayed answer require a Tokio runtime with an enabled time driver.
    pub fn after(mut self, delay: Duration) -> Self {
        for turn in &mut self.turns {
            turn.after = delay;
        }
        self
    }

    /// Repeats the answer for `calls` calls. After that, the tool gives the [next](Self::then)
    /// answer. If the answer is a sequence, repeats the whole sequence.
    ///
    /// # Panics
    ///
    /// Panics if `calls` is zero.
    pub fn times(mut self, calls: usize) -> Self {
        assert!(calls > 0, "an answer that is given to no call");
        let turns = self.turns.len() * calls;
        self.turns = self.turns.into_iter().cycle().take(turns).collect();
        self
    }

    /// Appends the answer `next` to the sequence. The tool gives `next` after all earlier answers.
    pub fn then(mut self, next: impl Into<Self>) -> Self {
        self.turns.extend(next.into().turns);
        self
    }

    /// Returns a future that resolves to the answer to `call`, after the delay of the answer.
    /// `before` is the number of earlier calls of the same tool, which selects the answer of the
    /// sequence.
    pub(super) fn give(&self, call: RecordedCall, before: usize) -> BoxFuture<'static, Given> {
        let Turn { after, script } = self.turns[before.min(self.turns.len() - 1)].clone();
        Box::pin(async move {
            if !after.is_zero() {
                tokio::time::sleep(after).await;
            }
            match script {
                Script::Reply(reply) => Ok(reply),
                Script::Echo => {
                    let arguments = match call.arguments() {
                        Value::Null => Value::Object(Map::new()),
                        arguments => arguments,
                    };
                    Ok(CallToolResult::structured(arguments).into())
                }
                Script::Unavailable(why) => Err(why.into()),
                Script::Panic(text) => panic!("{text}"),
                Script::Never => future::pending().await,
                Script::Made(make) => make(call.clone()).await.give(call, 0).await,
            }
        })
    }

    fn new(script: Script) -> Self {
        Self { turns: vec![Turn { after: Duration::ZERO, script }] }
    }
}

/// Creates a reply that asks the user a question. The question has the given key and message, and
/// an empty form. The request state of the reply is the string `asked`.
pub(super) fn question(key: impl Into<String>, message: impl Into<String>) -> Reply {
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.into(),
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    };
    let request = InputRequest::Elicitation(ElicitRequest::new(params));
    let questions = InputRequests::from([(key.into(), request)]);
    let asks = InputRequiredResult::new(Some(questions), Some("asked".to_owned()));
    ServerResult::InputRequiredResult(asks).into()
}

/// The outcome of a call to a scripted service: a reply, or an error of the service.
pub(super) type Given = Result<Reply, BoxError>;

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self::new(Script::Reply(reply))
    }
}

impl From<CallToolResult> for Answer {
    fn from(result: CallToolResult) -> Self {
        Reply::from(result).into()
    }
}

impl From<ErrorData> for Answer {
    fn from(error: ErrorData) -> Self {
        Reply::from(error).into()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.turns).finish()
    }
}

// === impl Turn ===

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.script {
            Script::Reply(reply) => reply.fmt(f)?,
            Script::Echo => f.write_str("echo")?,
            Script::Unavailable(why) => write!(f, "unavailable: {why}")?,
            Script::Panic(text) => write!(f, "panic: {text}")?,
            Script::Never => f.write_str("never")?,
            Script::Made(_) => f.write_str("from_fn")?,
        }
        if self.after.is_zero() { Ok(()) } else { write!(f, " after {:?}", self.after) }
    }
}
