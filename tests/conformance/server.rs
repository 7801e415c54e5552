//! The server that the suite's scenarios require. Its features are described by `conformance list
//! --server` and by the descriptions of the scenarios.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::*,
    service::{RequestContext, SubscriptionContext},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{sync::broadcast, time::sleep};

/// An image of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// A sound without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
/// Signs the states that clients store.
const KEY: [u8; 32] = *b"the key of the conformance tests";
/// The pause between two notifications of one call.
const PAUSE: Duration = Duration::from_millis(50);

const SKILL: &str = "skill://greeting/SKILL.md";
const SKILL_TEXT: &str = "---\nname: greeting\ndescription: How to greet\n---\n\n# Greeting\n\nSee `templates/short.md`.\n";
const SKILL_TEMPLATES: &str = "skill://greeting/templates";
const SKILL_TEMPLATE: &str = "skill://greeting/templates/short.md";
const SKILL_TEMPLATE_TEXT: &str = "# Short\n\nHello.\n";

/// A list of the server that has changed.
#[derive(Clone, Copy, Debug)]
enum Changed {
    Tools,
    Prompts,
}

/// The server of the suite. All clones are one server.
#[derive(Clone, Debug)]
pub(crate) struct Conformance {
    changed: broadcast::Sender<Changed>,
    /// The minimum level of log messages of clients of 2025-11-25.
    level: Arc<AtomicU8>,
}

/// Returns a value of an rmcp type, from the JSON in the specification.
pub(crate) fn model<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn text(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

fn resource(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime_type, "text": text } })
}

/// Returns a tool result with this content.
pub(crate) fn content(blocks: impl Into<Value>) -> CallToolResponse {
    CallToolResult::success(model(blocks.into())).into()
}

pub(crate) fn failed(message: impl Into<String>) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(message)]).into()
}

/// Returns a form with one required field.
pub(crate) fn form(message: &str, field: &str, kind: &str) -> Value {
    let schema = json!({
        "type": "object",
        "properties": { field: { "type": kind } },
        "required": [field],
    });
    json!({
        "method": "elicitation/create",
        "params": { "message": message, "requestedSchema": schema },
    })
}

fn sampling(prompt: &str, max_tokens: u32) -> Value {
    let message = json!({ "role": "user", "content": text(prompt) });
    json!({
        "method": "sampling/createMessage",
        "params": { "messages": [message], "maxTokens": max_tokens },
    })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// Asks the client, with a state to store.
pub(crate) fn ask(questions: Value, state: Option<&str>) -> InputRequiredResult {
    let state = state.map(|state| RequestStateCodec::new(KEY).seal(state.as_bytes()));
    InputRequiredResult::new(Some(model(questions)), state)
}

/// Returns the state that the client stored, if its signature is valid.
fn state(sealed: Option<&str>) -> Result<Option<String>, ErrorData> {
    let invalid = |_| ErrorData::invalid_params("invalid request state", None);
    let opened = sealed.map(|sealed| RequestStateCodec::new(KEY).open(sealed)).transpose();
    Ok(opened.map_err(invalid)?.map(|state| String::from_utf8(state).unwrap()))
}

/// Returns the client's answer to a question, by its key.
fn answer<'r>(responses: Option<&'r InputResponses>, key: &str) -> Option<&'r Value> {
    responses?.get(key).filter(|answer| answer.is_object())
}

/// Returns a field of a submitted form.
pub(crate) fn field<'r>(
    responses: Option<&'r InputResponses>,
    key: &str,
    name: &str,
) -> Option<&'r Value> {
    let answer = answer(responses, key)?;
    (answer["action"] == "accept").then(|| answer["content"].get(name)).flatten()
}

/// Returns the schema that must reach clients with all its keywords.
fn schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": {
            "properties": { "contactMethod": { "const": "phone" } },
            "required": ["contactMethod"],
        },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

/// Returns the tools, in their listed order.
pub(crate) fn tools() -> Vec<Tool> {
    let no_arguments = || json!({ "type": "object", "properties": {} });
    let required = |name: &str, more: Value| {
        let mut property = json!({ "type": "string" });
        property.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "type": "object", "properties": { name: property }, "required": [name] })
    };
    let with_arguments = [
        ("test_sampling", required("prompt", json!({}))),
        ("test_elicitation", required("message", json!({}))),
        ("json_schema_2020_12_tool", schema_2020_12()),
        ("test_header", required("region", json!({ "x-mcp-header": "Region" }))),
    ];
    let without = [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_tool_with_logging",
        "test_error_handling",
        "test_tool_with_progress",
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
        "test_reconnection",
        "test_missing_capability",
        "test_streaming_elicitation",
        "test_logging_tool",
        "test_trigger_tool_change",
        "test_trigger_prompt_change",
        "test_input_required_result_elicitation",
        "test_input_required_result_sampling",
        "test_input_required_result_list_roots",
        "test_input_required_result_request_state",
        "test_input_required_result_multiple_inputs",
        "test_input_required_result_multi_round",
        "test_input_required_result_tampered_state",
        "test_input_required_result_capabilities",
    ];
    let without = without.into_iter().map(|name| (name, no_arguments()));
    let tool = |(name, schema): (&'static str, Value)| {
        Tool::new(name, format!("What the suite asks of {name}"), model::<JsonObject>(schema))
    };
    with_arguments.into_iter().chain(without).map(tool).collect()
}

fn skill() -> Skill {
    let files = [(SKILL, SKILL_TEXT), (SKILL_TEMPLATE, SKILL_TEMPLATE_TEXT)];
    let files = files.map(|(uri, text)| SkillResource::from_bytes(uri, text.as_bytes()));
    let frontmatter = SkillFrontmatter::new("greeting", "How to greet");
    Skill::new(SKILL, frontmatter, SkillResources::Files(files.into()))
}

// === impl Conformance ===

impl Conformance {
    pub(crate) fn new() -> Self {
        let level = Arc::new(AtomicU8::new(LoggingLevel::Debug as u8));
        Self { changed: broadcast::channel(16).0, level }
    }

    /// Sends log messages, as far as the client requests them.
    async fn log<const N: usize>(&self, messages: [&str; N], cx: &RequestContext<RoleServer>) {
        // Since 2026-07-28 each request sets its log level.
        let lowest = match cx.meta.protocol_version() {
            Some(_) => cx.meta.log_level().map(|level| level as u8),
            None => Some(self.level.load(Ordering::Relaxed)),
        };
        let wanted = lowest.is_some_and(|lowest| LoggingLevel::Info as u8 >= lowest);
        for (index, message) in messages.into_iter().enumerate() {
            if index > 0 {
                sleep(PAUSE).await;
            }
            if wanted {
                let message =
                    LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
                let _ = cx.peer.notify_logging_message(message).await;
            }
        }
    }

    /// Asks the client, as its revision requires, and returns its answer, or the reply with the
    /// question.
    async fn ask_client(
        &self,
        mut question: Value,
        responses: Option<&InputResponses>,
        cx: &RequestContext<RoleServer>,
    ) -> Result<Value, CallToolResponse> {
        if cx.meta.protocol_version().is_some() {
            let answer = answer(responses, "question").cloned();
            return answer.ok_or_else(|| ask(json!({ "question": question }), None).into());
        }
        let params = question["params"].take();
        let answer = match question["method"].as_str() {
            Some("sampling/createMessage") => {
                cx.peer.create_message(model(params)).await.map(|result| json!(result))
            }
            _ => cx.peer.create_elicitation(model(params)).await.map(|result| json!(result)),
        };
        answer.map_err(|error| failed(format!("the client was not asked: {error}")))
    }

    /// Asks for a form to be filled in, and returns the person's response.
    async fn elicit(
        &self,
        what: &str,
        message: &str,
        schema: &Value,
        responses: Option<&InputResponses>,
        cx: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let form = json!({
            "method": "elicitation/create",
            "params": { "mode": "form", "message": message, "requestedSchema": schema },
        });
        match self.ask_client(form, responses, cx).await {
            Ok(answer) => {
                let action = answer["action"].as_str().unwrap_or_default();
                content([text(format!("{what}: action={action}, content={}", answer["content"]))])
            }
            Err(other) => other,
        }
    }
}

impl ServerHandler for Conformance {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging()
            .enable_skills_with_directory_read()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("conformance", "0"))
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values = vec!["paris".to_owned(), "park".to_owned()];
        Ok(CompleteResult::new(CompletionInfo::with_all_values(values).unwrap()))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.level.store(request.level as u8, Ordering::Relaxed);
        Ok(())
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changed = self.changed.subscribe();
        loop {
            let changed = tokio::select! {
                () = cx.cancelled() => return Ok(()),
                changed = changed.recv() => changed,
            };
            // The sink rejects notifications that the client has not subscribed to.
            let _ = match changed {
                Ok(Changed::Tools) => cx.sink().notify_tool_list_changed().await,
                Ok(Changed::Prompts) => cx.sink().notify_prompt_list_changed().await,
                Err(_) => return Ok(()),
            };
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    #[expect(clippy::too_many_lines, reason = "one arm per tool of the suite")]
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = json!(request.arguments);
        let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let responses = request.input_responses.as_ref();
        let state = state(request.request_state.as_deref())?;
        Ok(match &*request.name {
            "test_simple_text" => content([text("This is a simple text response for testing.")]),
            "test_image_content" => content([image()]),
            "test_audio_content" => {
                content([json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })])
            }
            "test_embedded_resource" => content([resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )]),
            "test_multiple_content_types" => {
                let uri = "test://mixed-content-resource";
                let data = r#"{"test":"data","value":123}"#;
                let resource = resource(uri, "application/json", data);
                content([text("Multiple content types test:"), image(), resource])
            }
            "test_tool_with_logging" | "test_logging_tool" => {
                let messages =
                    ["Tool execution started", "Tool processing data", "Tool execution completed"];
                self.log(messages, &cx).await;
                content([text("logged")])
            }
            "test_error_handling" => failed("This tool intentionally returns an error for testing"),
            "test_tool_with_progress" => {
                for progress in [0.0, 50.0, 100.0] {
                    if let Some(token) = cx.meta.get_progress_token() {
                        let progress = ProgressNotificationParam::new(token, progress);
                        let _ = cx.peer.notify_progress(progress.with_total(100.0)).await;
                    }
                    if progress < 100.0 {
                        sleep(PAUSE).await;
                    }
                }
                content([text("done")])
            }
            "test_sampling" => {
                let question = sampling(&argument("prompt"), 100);
                match self.ask_client(question, responses, &cx).await {
                    Ok(answer) => {
                        let answered = answer["content"]["text"].as_str().unwrap_or_default();
                        content([text(format!("LLM response: {answered}"))])
                    }
                    Err(other) => other,
                }
            }
            "test_elicitation" => {
                let schema = json!({
                    "type": "object",
                    "properties": {
                        "username": { "type": "string", "description": "User's response" },
                        "email": { "type": "string", "description": "User's email address" },
                    },
                    "required": ["username", "email"],
                });
                self.elicit("User response", &argument("message"), &schema, responses, &cx).await
            }
            "test_elicitation_sep1034_defaults" => {
                let states = ["active", "inactive", "pending"];
                let schema = json!({
                    "type": "object",
                    "properties": {
                        "name": { "type": "string", "default": "John Doe" },
                        "age": { "type": "integer", "default": 30 },
                        "score": { "type": "number", "default": 95.5 },
                        "status": { "type": "string", "enum": states, "default": "active" },
                        "verified": { "type": "boolean", "default": true },
                    },
                });
                self.elicit("Elicitation completed", "Your data", &schema, responses, &cx).await
            }
            "test_elicitation_sep1330_enums" => {
                let options = ["option1", "option2", "option3"];
                let titled = ["First", "Second", "Third"].into_iter().enumerate().map(
                    |(index, title)| json!({ "const": format!("value{}", index + 1), "title": title }),
                );
                let titled: Vec<_> = titled.collect();
                let schema = json!({
                    "type": "object",
                    "properties": {
                        "untitledSingle": { "type": "string", "enum": options },
                        "titledSingle": { "type": "string", "oneOf": titled },
                        "legacyEnum": {
                            "type": "string",
                            "enum": ["opt1", "opt2", "opt3"],
                            "enumNames": ["Option One", "Option Two", "Option Three"],
                        },
                        "untitledMulti": {
                            "type": "array",
                            "items": { "type": "string", "enum": options },
                        },
                        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
                    },
                });
                self.elicit("Elicitation completed", "Your choice", &schema, responses, &cx).await
            }
            "test_missing_capability" => {
                let capabilities = cx.meta.client_capabilities().unwrap_or_default();
                if capabilities.sampling.is_none() {
                    let required = json!({ "requiredCapabilities": { "sampling": {} } });
                    let message = "the client does not declare sampling";
                    return Err(ErrorData::new(ErrorCode(-32021), message, Some(required)));
                }
                content([text("the client declares sampling")])
            }
            "test_trigger_tool_change" => {
                let _ = self.changed.send(Changed::Tools);
                content([text("the tools have changed")])
            }
            "test_trigger_prompt_change" => {
                let _ = self.changed.send(Changed::Prompts);
                content([text("the prompts have changed")])
            }
            "test_streaming_elicitation" | "test_input_required_result_elicitation" => {
                match field(responses, "user_name", "name").and_then(Value::as_str) {
                    Some(name) => content([text(format!("Hello, {name}!"))]),
                    None => {
                        let form = form("What is your name?", "name", "string");
                        ask(json!({ "user_name": form }), None).into()
                    }
                }
            }
            "test_input_required_result_sampling" => match answer(responses, "capital_question") {
                Some(answer) => {
                    content([text(answer["content"]["text"].as_str().unwrap_or_default())])
                }
                None => {
                    let question = sampling("What is the capital of France?", 100);
                    ask(json!({ "capital_question": question }), None).into()
                }
            },
            "test_input_required_result_list_roots" => match answer(responses, "client_roots") {
                Some(answer) => content([text(format!("Roots: {}", answer["roots"]))]),
                None => ask(json!({ "client_roots": roots() }), None).into(),
            },
            "test_input_required_result_request_state"
            | "test_input_required_result_tampered_state" => {
                match (field(responses, "confirm", "ok"), state.as_deref()) {
                    (Some(_), Some("confirm")) => content([text("state-ok")]),
                    _ => {
                        let form = form("Please confirm", "ok", "boolean");
                        ask(json!({ "confirm": form }), Some("confirm")).into()
                    }
                }
            }
            "test_input_required_result_multiple_inputs" => {
                let keys = ["user_name", "greeting", "client_roots"];
                if state.is_some() && keys.iter().all(|key| answer(responses, key).is_some()) {
                    content([text("all answered")])
                } else {
                    let questions = json!({
                        "user_name": form("What is your name?", "name", "string"),
                        "greeting": sampling("Generate a greeting", 50),
                        "client_roots": roots(),
                    });
                    ask(questions, Some("all")).into()
                }
            }
            "test_input_required_result_multi_round" => {
                let name = field(responses, "step1", "name");
                let color = field(responses, "step2", "color");
                match (name, color, state.as_deref()) {
                    (_, Some(color), Some("round 2")) => content([text(format!("{color}"))]),
                    (Some(_), None, Some("round 1")) => {
                        let form = form("Step 2: What is your favorite color?", "color", "string");
                        ask(json!({ "step2": form }), Some("round 2")).into()
                    }
                    _ => {
                        let form = form("Step 1: What is your name?", "name", "string");
                        ask(json!({ "step1": form }), Some("round 1")).into()
                    }
                }
            }
            "test_input_required_result_capabilities" => {
                let capabilities = cx.meta.client_capabilities().unwrap_or_default();
                let mut questions = json!({});
                if capabilities.elicitation.is_some() {
                    questions["name"] = form("What is your name?", "name", "string");
                }
                if capabilities.sampling.is_some() {
                    questions["greeting"] = sampling("Generate a greeting", 50);
                }
                match responses {
                    None if questions != json!({}) => ask(questions, None).into(),
                    _ => content([text("asked what could be asked")]),
                }
            }
            "test_reconnection" | "json_schema_2020_12_tool" | "test_header" => {
                content([text("done")])
            }
            name => {
                return Err(ErrorData::invalid_params(format!("unknown tool `{name}`"), None));
            }
        })
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = |name: &str, arguments: &[&str]| {
            let argument = |name: &&str| json!({ "name": name, "required": true });
            let arguments: Vec<_> = arguments.iter().map(argument).collect();
            json!({ "name": name, "description": "A prompt", "arguments": arguments })
        };
        Ok(ListPromptsResult::with_all_items(model(json!([
            prompt("test_simple_prompt", &[]),
            prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
            prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
            prompt("test_prompt_with_image", &[]),
            prompt("test_input_required_result_prompt", &[]),
        ]))))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = json!(request.arguments);
        let argument = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let blocks = match &*request.name {
            "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments" => {
                let (one, two) = (argument("arg1"), argument("arg2"));
                vec![text(format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
            }
            "test_prompt_with_embedded_resource" => {
                let uri = argument("resourceUri");
                let embedded = "Embedded resource content for testing.";
                let resource = resource(&uri, "text/plain", embedded);
                vec![resource, text("Please process the embedded resource above.")]
            }
            "test_prompt_with_image" => vec![image(), text("Please analyze the image above.")],
            "test_input_required_result_prompt" => {
                match field(request.input_responses.as_ref(), "user_context", "context") {
                    Some(context) => vec![text(format!("Use {context}"))],
                    None => {
                        let message = "What context should the prompt use?";
                        let form = form(message, "context", "string");
                        return Ok(ask(json!({ "user_context": form }), None).into());
                    }
                }
            }
            name => {
                return Err(ErrorData::invalid_params(format!("unknown prompt `{name}`"), None));
            }
        };
        let message = |block| json!({ "role": "user", "content": block });
        let messages: Vec<_> = blocks.into_iter().map(message).collect();
        Ok(GetPromptResult::new(model(json!(messages))).into())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = |uri: &str, name: &str, description: &str, mime_type: &str| json!({ "uri": uri, "name": name, "description": description, "mimeType": mime_type });
        Ok(ListResourcesResult::with_all_items(model(json!([
            resource("test://static-text", "text", "A text", "text/plain"),
            resource("test://static-binary", "binary", "An image", "image/png"),
            resource("test://watched-resource", "watched", "A text", "text/plain"),
            resource(SKILL, "greeting", "How to greet", "text/markdown"),
        ]))))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(model(json!([{
            "uriTemplate": "test://template/{id}/data",
            "name": "template",
            "description": "Data by id",
            "mimeType": "application/json",
        }]))))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = &*request.uri;
        let text = |mime_type: &str, text: &str| json!({ "uri": uri, "mimeType": mime_type, "text": text });
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let contents = match uri {
            "test://static-text" => {
                text("text/plain", "This is the content of the static text resource.")
            }
            "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
            "test://watched-resource" => text("text/plain", "watched"),
            SKILL => text("text/markdown", SKILL_TEXT),
            SKILL_TEMPLATE => text("text/markdown", SKILL_TEMPLATE_TEXT),
            _ => match id {
                Some(id) => {
                    let data = format!("Data for ID: {id}");
                    let data = json!({ "id": id, "templateTest": true, "data": data });
                    text("application/json", &data.to_string())
                }
                None => {
                    let data = json!({ "uri": uri });
                    return Err(ErrorData::invalid_params("Resource not found", Some(data)));
                }
            },
        };
        Ok(ReadResourceResult::new(vec![model(contents)]).into())
    }

    async fn list_skills(
        &self,
        _request: Option<PaginatedRequestParams>,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        Ok(ListSkillsResult::with_all_items(vec![skill()]))
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        match &*request.uri {
            SKILL => Ok(GetSkillResult::new(skill())),
            uri => Err(ErrorData::invalid_params(format!("no skill at {uri}"), None)),
        }
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        _cx: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        let file = |uri: &str, name: &str, mime_type: &str| json!({ "uri": uri, "name": name, "mimeType": mime_type });
        let template = file(SKILL_TEMPLATE, "short.md", "text/markdown");
        let children = match request.uri.trim_end_matches('/') {
            "skill://greeting" => json!([
                file(SKILL, "SKILL.md", "text/markdown"),
                file(SKILL_TEMPLATES, "templates", "inode/directory"),
            ]),
            SKILL_TEMPLATES => json!([template]),
            uri => {
                return Err(ErrorData::invalid_params(format!("no directory at {uri}"), None));
            }
        };
        Ok(ListResourcesResult::with_all_items(model(children)))
    }
}
