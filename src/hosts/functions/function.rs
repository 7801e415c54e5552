//! A tool implemented by a closure or a service.

use std::{borrow::Cow, fmt, sync::Arc};

use rmcp::model::{JsonObject, Tool};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::{BoxError, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_service::Service;

use super::IntoToolResult;
use crate::message::{Context, Refusal, Reply, Violation};

/// A tool together with its implementation.
#[derive(Clone)]
pub struct Function {
    pub(super) tool: Tool,
    pub(super) service: BoxCloneSyncService<Call, Reply, BoxError>,
}

/// A call of a [`Function`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Call {
    /// The name of the tool, for a service that implements several tools.
    pub tool: Cow<'static, str>,
    /// The arguments. Empty if the call has none.
    pub arguments: JsonObject,
    /// The context of the call. Make nested requests [within](crate::message::Request::within) it.
    pub context: Context,
}

/// Creates a tool from a closure.
///
/// The closure takes the arguments, as any type that serde can deserialize from their object, and
/// the context of the call. It returns any [`IntoToolResult`], such as a `Result<String, E>`. Calls
/// can run concurrently; dropping a call drops its future.
///
/// The closure returns a future that borrows nothing from it, or is an async closure without
/// captures. Captured values must be cloned for each call.
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
    let service = service_fn(move |Call { tool, arguments, context }: Call| {
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

/// Creates a tool from a Tower service, which may have its own layers, such as a timeout or a
/// concurrency limit.
///
/// Each call waits until a clone of the service is ready. A service error means that the service is
/// unavailable, and its text is only logged. To return an error to the caller, use a response such
/// as `Result`.
///
/// # Examples
///
/// ```
/// use std::{convert::Infallible, sync::Arc};
///
/// use mcp_composite::{functions::{Call, ToolSet, tool_service}, message::Request};
/// use rmcp::model::Tool;
/// use tower::{BoxError, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let one_at_a_time = ServiceBuilder::new()
///     .layer(ConcurrencyLimitLayer::new(1))
///     .service_fn(async |call: Call| Ok::<_, Infallible>(format!("printed {:?}", call.arguments)));
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
    S: Service<Call, Response: IntoToolResult, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let service = service.map_response(|result: S::Response| result.into_tool_result().into());
    Function { tool, service: BoxCloneSyncService::new(service.map_err(Into::into)) }
}

/// Deserializes the arguments of a call. The error does not contain their values.
fn read<A: DeserializeOwned>(tool: Cow<'static, str>, arguments: JsonObject) -> Result<A, Refusal> {
    A::deserialize(Value::Object(arguments)).map_err(|error| {
        let text = error.to_string();
        // serde's message has the found value before the expected type.
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
    /// Creates a tool whose replies come from a service unchanged.
    #[cfg(feature = "rig-compose")]
    pub(crate) fn answered_by<S>(tool: Tool, service: S) -> Self
    where
        S: Service<Call, Response = Reply, Error = BoxError, Future: Send + 'static>
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
