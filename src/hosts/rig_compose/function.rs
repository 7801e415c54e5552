//! Creates functions from the tools of `rig-compose`.

use std::{borrow::Cow, sync::Arc};

use ::rig_compose::{KernelError, Tool as RigTool, ToolRegistry, ToolSchema};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use serde_json::Value;
use tower::service_fn;

use super::REQUEST;
use crate::{
    functions::{Function, FunctionCall, IntoToolResult},
    message::Reply,
};

/// Creates a [`Function`], which composites and clients can call, from a `rig-compose` tool. See
/// the [module docs](super#tools-from-rig-compose) for the conversion of schemas, results and
/// errors.
pub fn function(tool: Arc<dyn RigTool>) -> Function {
    made(tool.schema(), move |_, arguments| {
        let tool = tool.clone();
        async move { tool.invoke(arguments).await }
    })
}

/// Creates [`Function`]s, which composites and clients can call, from all visible tools in a
/// registry, sorted by name.
///
/// Each call of a created function looks up its tool in the registry by name. If another tool was
/// registered under this name in the meantime, the function calls the new tool. If the registry
/// does not authorize a tool, its calls are rejected like calls of an unknown tool.
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
    let service = service_fn(move |FunctionCall { tool, arguments, context, .. }: FunctionCall| {
        // In the scope of the request, because `invoke` may already do its work while it creates
        // the future.
        let answer =
            REQUEST.sync_scope(context.clone(), || invoke(tool.clone(), Value::Object(arguments)));
        async move { Ok(reply(tool, REQUEST.scope(context, answer).await)) }
    });
    Function::answered_by(to_tool(schema), service)
}

/// Converts the schema of a `rig-compose` tool to the definition of an MCP tool.
fn to_tool(schema: ToolSchema) -> Tool {
    let ToolSchema { name, description, args_schema, result_schema } = schema;
    let any_object = || JsonObject::from_iter([("type".to_owned(), "object".into())]);
    let arguments = of_object(args_schema).unwrap_or_else(any_object);
    let mut tool = Tool::new(name, description, arguments);
    // Empty output schemas are omitted.
    let says_something = |schema: &JsonObject| !schema.is_empty();
    if says_something(result_schema.as_object().unwrap_or(&JsonObject::new())) {
        tool.output_schema = of_object(result_schema).map(Arc::new);
    }
    tool
}

/// Returns the schema if its type is `object` or missing. A missing type is added. Otherwise
/// returns `None`.
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
        // The error message of a tool, possibly of a tool of this crate.
        KernelError::ToolFailed(text) | KernelError::ToolDispatchTerminated(text) => text,
        KernelError::BudgetFailed(why) => {
            tracing::warn!(%tool, why, "failed to check the budget of a tool");
            "the budget could not be checked".to_owned()
        }
        other => other.to_string(),
    };
    CallToolResult::error(vec![ContentBlock::text(text)]).into()
}
