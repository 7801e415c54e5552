//! A tool whose implementation is a closure or a Tower service.

use std::{borrow::Cow, fmt, sync::Arc};

use rmcp::model::{JsonObject, Tool};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::{BoxError, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_service::Service;

use super::IntoToolResult;
use crate::message::{Context, Refusal, Reply, Violation};

/// An MCP tool that is implemented in this process: a tool definition, together with the code that
/// implements it. Created by [`tool_fn`] and [`tool_service`].
#[derive(Clone)]
pub struct Function {
    pub(super) tool: Tool,
    pub(super) service: BoxCloneSyncService<FunctionCall, Reply, BoxError>,
}

/// A call of a tool, as the [`Function`] that implements the tool receives it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FunctionCall {
    /// The name of the called tool. A service that implements several tools uses it to select the
    /// tool.
    pub tool: Cow<'static, str>,
    /// The arguments of the call. Empty if the request contains no arguments.
    pub arguments: JsonObject,
    /// The context of the request that made the call. If the implementation calls other tools, it
    /// makes these calls [within](crate::message::Request::within) this context.
    pub context: Context,
}

/// Creates a tool from a closure.
///
/// The closure of a `tool_fn` receives the arguments and the context of each call. serde
/// deserializes the arguments, a JSON object, into the type of the closure's first parameter. The
/// closure returns any [`IntoToolResult`], such as a `Result<String, E>`. Calls can run
/// concurrently. Dropping a call drops the closure's future.
///
/// The future that the closure returns cannot borrow from the closure. To use captured values,
/// write a closure that clones them and returns an `async move` block. An async closure works only
/// if it captures nothing.
///
/// See the [module docs](super) for an example.
pub fn tool_fn<A, R, F>(
    tool: Tool,
    function: impl Fn(A, Context) -> F + Send + Sync + 'static,
) -> Function
where
    A: DeserializeOwned,
    F: Future<Output = R> + Send + 'static,
    R: IntoToolResult,
{
    let function = Arc::new(function);
    let service = service_fn(move |FunctionCall { tool, arguments, context }: FunctionCall| {
        let answer = read(tool, arguments).map(|arguments| function(arguments, context));
        async move {
            Ok(match answer {
                Ok(answer) => answer.await.into_tool_result().into(),
                Err(refusal) => Reply::from(refusal),
            })
        }
    });
    Function { tool, service: BoxCloneSyncService::new(service) }
}

/// Creates a tool from a Tower service. The service may have its own layers, such as a timeout or a
/// concurrency limit.
///
/// Each call of the tool waits until a clone of the service is ready. If the service returns an
/// error, the tool counts as unavailable: the error message is logged, but not returned to the
/// caller. To return an error to the caller as a tool result, use a response type such as
/// `Result<String, E>`.
///
/// # Examples
///
/// ```
/// use std::{convert::Infallible, sync::Arc};
///
/// use mcp_composite::{functions::{FunctionCall, ToolSet, tool_service}, message::Request};
/// use rmcp::model::Tool;
/// use tower::{BoxError, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let one_at_a_time = ServiceBuilder::new()
///     .layer(ConcurrencyLimitLayer::new(1))
///     .service_fn(async |call: FunctionCall| Ok::<_, Infallible>(format!("printed {:?}", call.arguments)));
/// let tool = Tool::new("print", "Prints", Arc::default());
/// let server = ToolSet::new([tool_service(tool, one_at_a_time)])?;
///
/// let reply = server.oneshot(Request::call_tool("print")).await?;
/// assert_eq!(reply.tool_result().unwrap().content[0].as_text().unwrap().text, "printed {}");
/// # Ok(())
/// # }
/// ```
pub fn tool_service<S>(tool: Tool, service: S) -> Function
where
    S: Service<
            FunctionCall,
            Response: IntoToolResult,
            Error: Into<BoxError>,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static,
{
    let service = service.map_response(|result: S::Response| result.into_tool_result().into());
    Function { tool, service: BoxCloneSyncService::new(service.map_err(Into::into)) }
}

/// Deserializes the arguments of a tool call. The error does not quote the arguments' values, which
/// may be private.
fn read<A: DeserializeOwned>(tool: Cow<'static, str>, arguments: JsonObject) -> Result<A, Refusal> {
    A::deserialize(Value::Object(arguments)).map_err(|error| {
        let text = error.to_string();
        // serde's error message contains the found value, followed by the expected type.
        let message = match text.rfind(", expected ") {
            Some(at) => text[at + 2..].to_owned(),
            None => text,
        };
        Refusal::InvalidArguments {
            tool,
            violations: vec![Violation { path: String::new(), message }],
        }
    })
}

// === impl Function ===

impl Function {
    /// Creates a tool whose calls `service` answers. The caller receives the replies of the service
    /// unchanged.
    #[cfg(feature = "rig-compose")]
    pub(crate) fn answered_by<S>(tool: Tool, service: S) -> Self
    where
        S: Service<FunctionCall, Response = Reply, Error = BoxError, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        Self { tool, service: BoxCloneSyncService::new(service) }
    }

    /// Returns the definition of the tool.
    #[must_use]
    pub const fn tool(&self) -> &Tool {
        &self.tool
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("tool", &self.tool).finish_non_exhaustive()
    }
}
