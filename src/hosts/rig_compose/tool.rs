//! Creates `rig-compose` tools from the tools of a service.

use std::{
    error::Error,
    fmt::{self, Write},
    sync::Arc,
};

use ::rig_compose::{KernelError, Tool as RigTool, ToolSchema};
use futures::future::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ErrorCode, ErrorData, JsonObject,
    MetaObject, ResourceContents, Tool,
};
use serde_json::Value;
use tower::{BoxError, ServiceExt};

use super::REQUEST;
use crate::{
    catalog::{self, ListError},
    composite::{BRANCH, LIMIT},
    message::{Cause, Context, Refusal, Request, ToolAnswer, ToolService, tasks::cancel_task},
    truncate::SHORTENED,
    warnings::sanitize::Reason,
};

/// The key under which a converted tool result lists the reasons why the result is incomplete.
///
/// The value of `_notes` is an array of strings. It is only present if a layer of this crate has
/// [truncated](SHORTENED) the result, or if a [limit](LIMIT) has ended the run.
pub const NOTES: &str = "_notes";

/// A `rig-compose` tool that calls a tool of a service.
struct OurTool<S> {
    schema: ToolSchema,
    service: S,
    context: Context,
}

/// Displays the number of bytes that a base64 string encodes.
struct Size<'b>(&'b str);

/// Creates `rig-compose` tools from all tools that a service currently lists, in order.
///
/// Each invocation of a created tool calls the service. If it belongs to a
/// [request](super#tools-from-rig-compose), it is made for the caller of the request. Otherwise, it
/// has no caller. Tools that the service lists later are not included. If two tools have the same
/// name, the first one is used. See the [module docs](super#tools-for-rig-compose) for the
/// conversion of results.
///
/// # Errors
///
/// Returns an error if the tools cannot be listed.
pub async fn tools<S>(service: S) -> Result<Vec<Arc<dyn RigTool>>, ListError>
where
    S: ToolService + Sync,
{
    tools_as(service, Context::default()).await
}

/// Creates `rig-compose` tools like [`tools`], but lists and calls the tools with the caller and
/// the cancellation token of `context`. A call that belongs to a request uses the context of the
/// request instead.
///
/// # Errors
///
/// Returns an error if the tools cannot be listed.
pub async fn tools_as<S>(service: S, context: Context) -> Result<Vec<Arc<dyn RigTool>>, ListError>
where
    S: ToolService + Sync,
{
    let listed = catalog::list_all(service.clone(), context.clone()).await?;
    let tool = |tool: &Tool| -> Arc<dyn RigTool> {
        let (service, context) = (service.clone(), context.clone());
        Arc::new(OurTool { schema: to_schema(tool), service, context })
    };
    Ok(listed.iter().map(tool).collect())
}

/// Converts an MCP tool definition to a `rig-compose` schema.
fn to_schema(tool: &Tool) -> ToolSchema {
    let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    let output = tool.output_schema.as_deref().cloned().unwrap_or_default();
    ToolSchema {
        name: tool.name.to_string(),
        description: description.to_owned(),
        args_schema: Value::Object(JsonObject::clone(&tool.input_schema)),
        result_schema: Value::Object(output),
    }
}

// === impl OurTool ===

impl<S> OurTool<S>
where
    S: ToolService + Sync,
{
    async fn call(&self, arguments: Value) -> Result<Value, KernelError> {
        let name = &self.schema.name;
        let mut call = CallToolRequestParams::new(name.clone());
        call.arguments = match arguments {
            Value::Object(arguments) => Some(arguments),
            Value::Null => None,
            _ => {
                let text = format!("`{name}` takes an object");
                return Err(KernelError::InvalidArgument(text));
            }
        };
        let request = Request::call_tool_with(call);
        let request = match REQUEST.try_with(Context::clone) {
            Ok(outer) => request.within(&outer),
            Err(_) => request.with_context(self.context.clone()),
        };
        let context = request.context().clone();
        let answer = match self.service.clone().oneshot(request).await {
            Ok(reply) => reply.into_tool_answer(),
            Err(error) => {
                return Err(KernelError::ToolFailed(service_error(name, &error.into())));
            }
        };
        if let ToolAnswer::Task(id) = &answer {
            cancel_task(self.service.clone(), id.clone(), context).await;
        }
        value(name, answer)
    }
}

impl<S> RigTool for OurTool<S>
where
    S: ToolService + Sync,
{
    fn schema(&self) -> ToolSchema {
        self.schema.clone()
    }

    fn name(&self) -> String {
        self.schema.name.clone()
    }

    // This signature is the one that the macro `async_trait` generates.
    fn invoke<'tool, 'future>(
        &'tool self,
        arguments: Value,
    ) -> BoxFuture<'future, Result<Value, KernelError>>
    where
        'tool: 'future,
        Self: 'future,
    {
        Box::pin(self.call(arguments))
    }
}

fn value(tool: &str, answer: ToolAnswer) -> Result<Value, KernelError> {
    let failed = |text: &str| Err(KernelError::ToolFailed(text.to_owned()));
    match answer {
        ToolAnswer::Result(result) if result.is_error == Some(true) => {
            Err(KernelError::ToolFailed(failure(&result)))
        }
        ToolAnswer::Result(mut result) => Ok(match result.structured_content.take() {
            Some(structured) => noted(tool, structured, &result),
            None => Value::String(text(&result.content)),
        }),
        ToolAnswer::InputRequired(_) => {
            failed("the tool asks the user, and no user can be asked here")
        }
        ToolAnswer::Task(_) => failed("the tool returned a task, which is not supported here"),
        ToolAnswer::Error(ErrorData { code: ErrorCode::INVALID_PARAMS, message, .. }) => {
            Err(KernelError::InvalidArgument(message.into_owned()))
        }
        ToolAnswer::Error(error) => failed(&error.message),
        ToolAnswer::Refused(refusal) => Err(match refusal {
            Refusal::Unknown { name, .. } => KernelError::ToolNotFound(name.into_owned()),
            Refusal::InvalidArguments { .. } | Refusal::OverLimit { .. } => {
                KernelError::InvalidArgument(refusal.to_string())
            }
            // Reported like a stop by a `rig-compose` hook, so that the call is not retried
            // immediately.
            Refusal::OverBudget { .. } | Refusal::EgressDenied { .. } | Refusal::Endless { .. } => {
                KernelError::ToolDispatchTerminated(refusal.to_string())
            }
            Refusal::Unavailable { .. } => KernelError::ToolFailed(refusal.to_string()),
        }),
        ToolAnswer::Invalid => failed("the server returned an invalid result"),
    }
}

/// Returns the structured content of a tool result. If the result is incomplete, adds the notices
/// that state why it is incomplete.
fn noted(tool: &str, mut structured: Value, result: &CallToolResult) -> Value {
    let notes = notes(result);
    let has_place = match &mut structured {
        _ if notes.is_empty() => true,
        Value::Object(members) if !members.contains_key(NOTES) => {
            members.insert(NOTES.to_owned(), notes.into());
            true
        }
        _ => false,
    };
    if !has_place || result.content.iter().any(|block| block.as_text().is_none()) {
        tracing::warn!(tool, "dropped everything of a result except its structured content");
    }
    structured
}

/// Returns the notices that state why a result is incomplete. Returns an empty list if the result
/// is complete.
fn notes(result: &CallToolResult) -> Vec<&str> {
    let is_marked = |meta: &MetaObject| meta.contains_key(SHORTENED) || meta.contains_key(LIMIT);
    if !result.meta.as_ref().is_some_and(is_marked) {
        return Vec::new();
    }
    let of_branch = |meta: &MetaObject| meta.contains_key(BRANCH);
    let texts = result.content.iter().filter_map(ContentBlock::as_text);
    texts
        .filter(|text| !text.meta.as_ref().is_some_and(of_branch))
        .map(|text| text.text.as_str())
        .filter(|text| !is_container(text))
        .collect()
}

/// Returns `true` if a text is a JSON array or object. Such a text repeats structured content, and
/// is not a notice about an incomplete result.
fn is_container(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Returns the error message of a result with `isError`.
fn failure(result: &CallToolResult) -> String {
    match (&*result.content, &result.structured_content) {
        ([], Some(structured)) => structured.to_string(),
        ([], None) => "the tool failed without an error message".to_owned(),
        (content, _) => text(content),
    }
}

/// Returns the texts of all blocks, separated by blank lines. Each block of other content is
/// replaced by a description.
fn text(content: &[ContentBlock]) -> String {
    let mut text = String::new();
    for (index, block) in content.iter().enumerate() {
        if index > 0 {
            text.push_str("\n\n");
        }
        let _ = match block {
            ContentBlock::Text(block) => write!(text, "{}", block.text),
            ContentBlock::Image(image) => {
                write!(text, "[image of type {}, {}]", image.mime_type, Size(&image.data))
            }
            ContentBlock::Audio(audio) => {
                write!(text, "[audio of type {}, {}]", audio.mime_type, Size(&audio.data))
            }
            ContentBlock::ResourceLink(link) => {
                write!(text, "[resource {} at {}]", link.name, link.uri)
            }
            ContentBlock::Resource(resource) => match &resource.resource {
                ResourceContents::TextResourceContents { uri, text: contents, .. } => {
                    write!(text, "[resource {uri}]\n{contents}")
                }
                ResourceContents::BlobResourceContents { uri, blob, .. } => {
                    write!(text, "[resource {uri}, {}]", Size(blob))
                }
                _ => write!(text, "[resource]"),
            },
            _ => write!(text, "[content that is not text]"),
        };
    }
    text
}

/// Returns an error message for a failed service, without internal details.
fn service_error(tool: &str, error: &BoxError) -> String {
    match Cause::of(&**error) {
        Cause::TimedOut => "no answer in time".to_owned(),
        Cause::Overloaded => "the tool's server is overloaded".to_owned(),
        Cause::Backend(backend) => {
            tracing::warn!(tool, %error, source = backend.source(), "a backend failed to answer");
            backend.to_string()
        }
        Cause::Unknown => {
            tracing::warn!(tool, error = %Reason(error), "the server of a tool failed to answer");
            "the tool's server failed to answer".to_owned()
        }
    }
}

// === impl Size ===

impl fmt::Display for Size<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.trim_end_matches('=').len();
        write!(f, "{} bytes", digits * 3 / 4)
    }
}
