//! The server that the suite's scenarios for tasks require, with rmcp's task manager.

use std::time::Duration;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::*,
    service::RequestContext,
    task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions},
};
use serde_json::{Value, json};
use tokio::{select, time::sleep};

use crate::server::{ask, content, failed, field, form, model, text};

/// The recommended interval of `tasks/get` in milliseconds.
const POLL_INTERVAL: u64 = 100;
/// The time that a tool takes in addition to the time in its description, so that the time of a
/// call never equals the time in which a gateway waits for a result.
const OVERHEAD: Duration = Duration::from_millis(200);

/// The server of the scenarios for tasks. All clones are one server.
#[derive(Clone, Default)]
pub(crate) struct TaskServer {
    tasks: TaskManager,
}

/// Returns the tools, in their listed order.
pub(crate) fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, properties: Value| {
        let schema = json!({ "type": "object", "properties": properties });
        let description = format!("What the suite asks of {name}");
        Tool::new(name, description, model::<JsonObject>(schema))
    };
    vec![
        tool("greet", json!({ "name": { "type": "string" } })),
        tool(
            "slow_compute",
            json!({ "seconds": { "type": "number" }, "label": { "type": "string" } }),
        ),
        tool("failing_job", json!({})),
        tool("protocol_error_job", json!({})),
        tool("confirm_delete", json!({ "filename": { "type": "string" } })),
        tool("multi_input", json!({})),
        tool("test_tool_with_task", json!({})),
    ]
}

fn result(message: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(message)])
}

fn missing_capability() -> ErrorData {
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    ErrorData::missing_required_client_capability(model(tasks))
}

/// Runs a tool. `task` is `None` if the client does not support tasks.
async fn run(
    tool: String,
    arguments: Value,
    user_name: Option<String>,
    task: Option<&TaskContext>,
) -> Result<CallToolResult, TaskExit> {
    let ask = async |key: &str| {
        let question = model(form(key, "confirm", "boolean"));
        match task {
            Some(task) => task.request_input(key, question).await,
            None => Err(missing_capability().into()),
        }
    };
    match &*tool {
        "slow_compute" => {
            let seconds = arguments["seconds"].as_f64().unwrap_or_default();
            sleep(Duration::from_secs_f64(seconds) + OVERHEAD).await;
            Ok(result(format!("computed {}", arguments["label"])))
        }
        "failing_job" => {
            sleep(Duration::from_secs(1) + OVERHEAD).await;
            Ok(CallToolResult::error(vec![ContentBlock::text("the job has failed")]))
        }
        "protocol_error_job" => {
            Err(ErrorData::internal_error("the server has failed", None).into())
        }
        "confirm_delete" => {
            let answer = ask("confirm").await?;
            Ok(result(format!("{}: {}", arguments["filename"], answer["action"])))
        }
        "multi_input" => {
            let (one, two) = tokio::join!(ask("one"), ask("two"));
            Ok(result(format!("{} {}", one?["action"], two?["action"])))
        }
        "test_tool_with_task" => {
            sleep(Duration::from_secs(1) + OVERHEAD).await;
            Ok(result(format!("Hello, {}!", user_name.unwrap_or_default())))
        }
        _ => Err(ErrorData::invalid_params("unknown tool", None).into()),
    }
}

// === impl TaskServer ===

impl ServerHandler for TaskServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
            .with_server_info(Implementation::new("conformance", "0"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = request.name.into_owned();
        let arguments = json!(request.arguments);
        let supports = cx.client_capabilities().is_some_and(|able| able.supports_tasks());
        let answers = request.input_responses.as_ref();
        let user_name = field(answers, "user_name", "name").and_then(Value::as_str);
        match &*tool {
            "greet" => {
                let name = arguments["name"].as_str().unwrap_or_default();
                return Ok(content([text(format!("Hello, {name}!"))]));
            }
            "failing_job" | "test_tool_with_task" if !supports => return Err(missing_capability()),
            "test_tool_with_task" if user_name.is_none() => {
                let question = form("What is your name?", "name", "string");
                return Ok(ask(json!({ "user_name": question }), None).into());
            }
            _ => (),
        }
        let user_name = user_name.map(str::to_owned);
        if !supports {
            return match run(tool, arguments, user_name, None).await {
                Ok(result) => Ok(result.into()),
                Err(TaskExit::Error(error)) => Err(error),
                Err(_) => Ok(failed("cancelled")),
            };
        }
        let options = TaskOptions::new().with_poll_interval_ms(POLL_INTERVAL);
        let task = self.tasks.spawn(options, |task| {
            Box::pin(async move {
                select! {
                    () = task.cancelled() => Err(TaskExit::Cancelled),
                    ended = run(tool, arguments, user_name, Some(&task)) => ended,
                }
            })
        });
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    async fn get_task(
        &self,
        params: GetTaskParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get_task(&params.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.update_task(&params.task_id, params.input_responses)
    }

    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&params.task_id)
    }
}
