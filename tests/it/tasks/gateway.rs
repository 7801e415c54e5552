//! Tasks of gateways.

use mcp_composite::{
    config::{Config, Gateway},
    reload::Reload,
};
use rmcp::model::{ServerCapabilities, ServerConfig};

use super::*;

/// A composite that asks a question, as a file defines it. Nothing listens on the port of the
/// backend.
const FILE: &str = "[[backends]]\nname = 'away'\nurl = 'http://127.0.0.1:1'\n\
    [[composite_tools]]\nname = 'sure'\ndescription = 'Asks'\nstrategy = 'pipeline'\n\
    task = 'always'\n\
    steps = [{ id = 'sure', type = 'elicitation', message = 'Sure?', schema = {} }]\n";

type Service = Reload<Stack<mcp_composite::adapter::Router>>;

fn config(text: &str) -> Config {
    Config::from_toml_str(text).unwrap_or_else(|error| panic!("{error}"))
}

async fn start(service: &Service) -> String {
    let reply = service.clone().oneshot(supporting(call("sure", json!({})))).await.unwrap();
    match reply.into_tool_answer() {
        ToolAnswer::Task(id) => id,
        other => panic!("not a task: {other:?}"),
    }
}

/// Waits until a task no longer works.
async fn settled(service: &Service, id: &str) -> Result<TaskStatus, ErrorData> {
    loop {
        let request = by(None, GetTaskRequest::new(GetTaskParams::new(id)));
        match service.clone().oneshot(request).await.unwrap().into_result()? {
            ServerResult::GetTaskResult(task) => match task.task.status() {
                TaskStatus::Working => sleep(SECOND / 10).await,
                status => return Ok(status),
            },
            other => panic!("not a task: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_survive_reloads_and_belong_to_their_view() {
    let view = "[[views]]\npath = '/team'\n";
    let gateway = Gateway::connect(&config(&format!("{FILE}{view}"))).unwrap();
    let (main, team) = (gateway.service(), gateway.view("/team").unwrap().service());
    let ids = [start(&main).await, start(&team).await];
    assert_eq!(settled(&main, &ids[0]).await.unwrap(), TaskStatus::InputRequired);
    assert_eq!(settled(&main, &ids[1]).await.unwrap_err().message, "unknown task");
    assert_eq!(settled(&team, &ids[0]).await.unwrap_err().message, "unknown task");

    let changed = FILE.replace("Sure?", "Really?");
    gateway.reload(&config(&format!("{changed}{view}"))).await.unwrap();
    let yes = json!({ "1:sure": { "action": "accept", "content": {} } });
    for (service, id) in [(&main, &ids[0]), (&team, &ids[1])] {
        let answers = serde_json::from_value(yes.clone()).unwrap();
        let update = by(None, UpdateTaskRequest::new(UpdateTaskParams::new(&**id, answers)));
        acknowledged(service.clone().oneshot(update).await.unwrap());
        assert_eq!(settled(service, id).await.unwrap(), TaskStatus::Completed);
    }
    gateway.close().await;
}

#[tokio::test(start_paused = true)]
async fn gateway_declares_tasks_only_if_a_composite_has_them() {
    for (mode, is_declared) in [("never", false), ("optional", true), ("always", true)] {
        let text = FILE.replace("'always'", &format!("'{mode}'"));
        let gateway = Gateway::connect(&config(&text)).unwrap();
        let described = gateway.describe(ServerConfig::new(ServerCapabilities::default()));
        assert_eq!(described.capabilities.supports_tasks(), is_declared, "{mode}");
        gateway.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn closing_a_gateway_cancels_its_tasks() {
    let gateway = Gateway::connect(&config(FILE)).unwrap();
    let service = gateway.service();
    let id = start(&service).await;
    assert_eq!(settled(&service, &id).await.unwrap(), TaskStatus::InputRequired);
    gateway.tasks_finished().await;
    assert_eq!(settled(&service, &id).await.unwrap(), TaskStatus::Cancelled);
    gateway.close().await;
}

#[cfg(feature = "cli")]
#[tokio::test]
async fn program_serves_tasks_to_their_caller() {
    use crate::authentication::{ALICE, BOB, Backend, Program, TOKENS, answer};

    let backend = Backend::start().await;
    let text = backend.sections() + TOKENS;
    let text = text.replace("name = 'careful'\n", "name = 'careful'\ntask = 'always'\n");
    let program = Program::start(&text, "127.0.0.1:0").await;
    let send = async |token: &str, method: &str, mut params: Value| {
        let extensions = json!({ EXTENSION: {} });
        params["_meta"][CAPABILITIES] = json!({ "elicitation": {}, "extensions": extensions });
        let request = program.request(method, params);
        answer(request.bearer_auth(token)).await.1
    };
    let params = json!({ "name": "careful", "arguments": {} });
    let called = send(ALICE, "tools/call", params).await;
    assert_eq!(called["result"]["resultType"], "task", "{called}");
    let id = called["result"]["taskId"].as_str().unwrap().to_owned();
    let settled = async |token: &str| loop {
        let got = send(token, "tasks/get", json!({ "taskId": id })).await;
        if got["result"]["status"] != "working" {
            return got;
        }
        sleep(SECOND / 100).await;
    };
    let refused = settled(BOB).await;
    assert_eq!(refused["error"]["message"], "unknown task", "{refused}");
    let task = settled(ALICE).await;
    assert_eq!(task["result"]["status"], "input_required", "{task}");
    let yes = json!({ "1:ask": { "action": "accept", "content": {} } });
    let params = json!({ "taskId": id, "inputResponses": yes });
    let updated = send(ALICE, "tasks/update", params).await;
    assert!(updated["result"].is_object(), "{updated}");
    let ended = settled(ALICE).await;
    assert_eq!(ended["result"]["status"], "completed", "{ended}");
    assert!(ended["result"]["result"].to_string().contains("done"), "{ended}");
}
