use std::{borrow::Cow, sync::Arc};

use ::rig_compose::{KernelError, Tool as RigTool, ToolRegistry, ToolSchema};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use serde_json::Value;
use tower::service_fn;

use super::REQUEST;
use crate::{
    functions::{Call, Function, IntoToolResult},
    message::Reply,
};

/// Makes a function of a tool of theirs.
///
/// See the [module docs](super#tools-of-theirs) for what becomes of its schemas, results
/// and errors.
pub fn function(tool: Arc<dyn RigTool>) -> Function {
    made(tool.schema(), move |_, arguments| {
        let tool = tool.clone();
        async move { tool.invoke(arguments).await }
    })
}

/// Makes functions of all tools in a registry that it lets be seen, in the order of their
/// names.
///
/// A call goes through the registry: a tool that was registered anew is what is called, one
/// that is not allowed is unknown.
#[must_use]
pub fn functions(registry: &ToolRegistry) -> Vec<Function> {
    let function = |schema| {
        let registry = registry.clone();
        made(schema, move |name, arguments| {
            let registry = registry.clone();
            async move { registry.invoke(&name, arguments).await }
        })
    };
    registry.schemas().into_iter().map(function).collect()
}

fn made<F>(
    schema: ToolSchema,
    invoke: impl Fn(Cow<'static, str>, Value) -> F + Send + Sync + 'static,
) -> Function
where
    F: Future<Output = Result<Value, KernelError>> + Send + 'static,
{
    let invoke = Arc::new(invoke);
    let service = service_fn(move |Call { tool, arguments, context, .. }: Call| {
        // The future may do its work when it is made, too.
        let answer =
            REQUEST.sync_scope(context.clone(), || invoke(tool.clone(), Value::Object(arguments)));
        async move { Ok(reply(tool, REQUEST.scope(context, answer).await)) }
    });
    Function::answered_by(to_tool(schema), service)
}

/// How a tool is listed.
fn to_tool(schema: ToolSchema) -> Tool {
    let ToolSchema { name, description, args_schema, result_schema } = schema;
    let any_object = || JsonObject::from_iter([("type".to_owned(), "object".into())]);
    let arguments = of_object(args_schema).unwrap_or_else(any_object);
    let mut tool = Tool::new(name, description, arguments);
    // One that says nothing is not worth to be told.
    let says_something = |schema: &JsonObject| !schema.is_empty();
    if says_something(result_schema.as_object().unwrap_or(&JsonObject::new())) {
        tool.output_schema = of_object(result_schema).map(Arc::new);
    }
    tool
}

/// The schema, if it is one of objects, as it is if it says no type.
fn of_object(schema: Value) -> Option<JsonObject> {
    let Value::Object(mut schema) = schema else { return None };
    match schema.get("type") {
        Some(kind) if kind == "object" => (),
        Some(_) => return None,
        None => drop(schema.insert("type".to_owned(), "object".into())),
    }
    Some(schema)
}

fn reply(tool: Cow<'static, str>, result: Result<Value, KernelError>) -> Reply {
    let error = match result {
        Ok(value) => return value.into_tool_result().into(),
        Err(error) => error,
    };
    let text = match error {
        KernelError::ToolNotFound(name) | KernelError::ToolNotAuthorised(name) => {
            if name == tool {
                return Reply::unknown_tool(tool);
            }
            format!("unknown tool `{name}`")
        }
        // As it came from one of ours, if it did.
        KernelError::ToolFailed(text) | KernelError::ToolDispatchTerminated(text) => text,
        KernelError::BudgetFailed(why) => {
            tracing::warn!(%tool, why, "a budget of a tool could not be asked");
            "a budget could not be asked".to_owned()
        }
        other => other.to_string(),
    };
    CallToolResult::error(vec![ContentBlock::text(text)]).into()
}
