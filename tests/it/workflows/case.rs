//! A case of `tests/workflows`: its scripted tools, composites, calls and expectations.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_composite::{
    composite::{STEPS, TRACE},
    config::Config,
    message::{Request, ToolService},
    stack::{Stack, StackLayer},
    testing::{self, Answer, Person, Server},
};
use rmcp::model::{
    CallToolResult, ContentBlock, ErrorCode, ErrorData, JsonObject, Tool, ToolAnnotations,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};

/// The way in which a case is run.
pub(crate) trait Driver {
    /// Whether the clock stands still while code runs, so that times can be compared.
    const HAS_EXACT_TIMES: bool;

    /// Adapts the table of a composite.
    fn adapt(&self, composite: &mut toml::Table);

    /// Returns the service that clients call.
    fn service(&self, layer: StackLayer, server: Server) -> impl ToolService;
}

/// Runs a case in the memory of this process, with two replicas. A run that asks the user resumes
/// on the other replica each time.
pub(crate) struct InMemory;

/// Returns the name and the text of each case whose name contains the text of the environment
/// variable `CASE`, which defaults to all cases.
pub(crate) fn all() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workflows");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let only = std::env::var("CASE").unwrap_or_default();
    let named = |file: PathBuf| {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        name.contains(&only).then(|| (name, fs::read_to_string(&file).unwrap()))
    };
    files.into_iter().filter_map(named).collect()
}

#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    /// A description, as a sentence.
    pub(crate) about: String,
    /// The tools behind the composites.
    #[serde(default)]
    pub(crate) tools: Vec<ScriptedTool>,
    /// The composites, as in any file.
    pub(crate) composite_tools: toml::Value,
    /// Other sections of the file.
    #[serde(flatten)]
    pub(crate) sections: BTreeMap<String, toml::Value>,
}

/// A call and its expected outcome.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Exchange {
    /// The name of the composite. Defaults to the first.
    pub(crate) tool: Option<String>,
    pub(crate) arguments: JsonObject,
    /// The answers of tools in this call by their names, in place of their usual ones.
    pub(crate) answers: BTreeMap<String, Vec<ScriptedAnswer>>,
    /// The responses of a person, in any order. Without them, the client cannot be asked.
    pub(crate) person: Option<Vec<PersonResponse>>,
    pub(crate) expect: Expected,
}

/// The response of a person to one question.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PersonResponse {
    /// The key of the question.
    pub(crate) to: String,
    pub(crate) accept: Option<Value>,
    /// The whole response, of any form.
    pub(crate) answer: Option<Value>,
    #[serde(default)]
    pub(crate) decline: bool,
    #[serde(default)]
    pub(crate) cancel: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedTool {
    pub(crate) name: String,
    pub(crate) input_schema: Option<JsonObject>,
    pub(crate) output_schema: Option<JsonObject>,
    /// Whether it has the read-only annotation.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// In turn, repeating the last. Defaults to returning the arguments.
    #[serde(default)]
    pub(crate) answers: Vec<ScriptedAnswer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ScriptedAnswer {
    pub(crate) text: Option<String>,
    pub(crate) structured: Option<Value>,
    /// Content blocks as in MCP; can be combined with `structured`.
    pub(crate) content: Option<Vec<ContentBlock>>,
    /// Whether a result of `content` has `isError`.
    pub(crate) is_error: bool,
    /// The text of a result with `isError`.
    pub(crate) failure: Option<String>,
    /// A JSON-RPC error.
    pub(crate) error: Option<RpcError>,
    /// A question with this key and text.
    pub(crate) asks: Option<(String, String)>,
    /// The service's own error.
    pub(crate) unavailable: Option<String>,
    pub(crate) panic: Option<String>,
    pub(crate) never: bool,
    pub(crate) echo: bool,
    /// The delay of the answer, such as `100ms`.
    pub(crate) after_ms: u64,
    /// How often it is returned.
    pub(crate) times: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RpcError {
    code: i32,
    message: String,
    data: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Expected {
    /// All errors of the file, as `path: message`; no call is made then.
    pub(crate) mistakes: Option<Vec<String>>,
    /// The warnings of the layer once it knows the tools, each in part.
    pub(crate) warnings: Option<Vec<String>>,
    /// The names that clients see.
    pub(crate) listed: Option<Vec<String>>,
    /// The listed composite; only the given fields are compared.
    pub(crate) tool: Option<Value>,
    /// The complete listed output schema.
    pub(crate) output_schema: Option<Value>,
    /// All calls, in their order: the tool and its arguments.
    pub(crate) calls: Option<Vec<ExpectedCall>>,
    /// The questions to the person: keys and messages.
    pub(crate) asked: Option<Vec<(String, String)>>,
    /// The number of rounds of questions.
    pub(crate) rounds: Option<usize>,
    /// The maximum number of concurrent calls.
    pub(crate) most_at_once: Option<usize>,
    /// The structured content; `null` for none.
    pub(crate) structured: Option<Value>,
    /// The steps in `_meta` of a failure.
    pub(crate) steps: Option<Value>,
    /// The content blocks of the result, as in MCP.
    pub(crate) content: Option<Value>,
    /// The texts of the result.
    pub(crate) texts: Option<Vec<String>>,
    /// The first text of a result that is a failure (`isError`).
    pub(crate) failure: Option<String>,
    /// The other texts of a failure: the completed steps.
    pub(crate) completed: Option<Vec<String>>,
    /// The message of a JSON-RPC error.
    pub(crate) refused: Option<String>,
    /// All steps: `id status`, then ` × attempts` unless it is one, and `: kind: message`.
    pub(crate) trace: Option<Vec<String>>,
    /// The time of the answer.
    pub(crate) after_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedCall {
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) arguments: JsonObject,
    /// The responses to the questions of the tool; `null` for none.
    pub(crate) answers: Option<Value>,
    /// The time of the call.
    pub(crate) at_ms: Option<u64>,
}

/// Returns a server with the scripted tools. `answers` replaces the answers of single tools.
pub(crate) fn server(
    tools: &[ScriptedTool],
    answers: &BTreeMap<String, Vec<ScriptedAnswer>>,
) -> Server {
    tools.iter().fold(Server::new(), |server, tool| {
        let answers = answers.get(&tool.name).unwrap_or(&tool.answers);
        server.tool_as(tool.described(), ScriptedAnswer::in_turn(answers))
    })
}

/// Runs a case, and returns the differences from its expectations.
pub(crate) async fn run(text: &str, driver: &impl Driver) -> Result<(), Vec<String>> {
    let (case, mut exchanges) = Case::parse(text).map_err(|error| vec![error])?;
    let mut differences = Vec::new();
    if case.about.trim().is_empty() {
        differences.push("`about` says nothing".to_owned());
    }

    let config = match Config::from_toml_str(&case.config(driver).to_string()) {
        Ok(config) => config,
        Err(error) => {
            let mistakes = error.mistakes().iter();
            let mistakes =
                mistakes.map(|mistake| format!("{}: {}", mistake.path(), mistake.message()));
            let mut mistakes: Vec<_> = mistakes.collect();
            let first = exchanges.first_mut().and_then(|exchange| exchange.expect.mistakes.take());
            let mut expected = first.unwrap_or_default();
            mistakes.sort();
            expected.sort();
            compare("mistakes", &expected, &mistakes, &mut differences);
            return if differences.is_empty() { Ok(()) } else { Err(differences) };
        }
    };

    for exchange in exchanges {
        exchange.run(&config, &case.tools, driver, &mut differences).await;
    }
    if differences.is_empty() { Ok(()) } else { Err(differences) }
}

fn compare<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: &T,
    found: &T,
    differences: &mut Vec<String>,
) {
    if expected != found {
        differences.push(format!("{what}:\n      expected {expected:?}\n      found    {found:?}"));
    }
}

// === impl InMemory ===

impl Driver for InMemory {
    const HAS_EXACT_TIMES: bool = true;

    fn adapt(&self, _: &mut toml::Table) {}

    fn service(&self, layer: StackLayer, server: Server) -> impl ToolService {
        let replicas: [Stack<Server>; 2] = [layer.layer(server.clone()), layer.layer(server)];
        let resumed = Arc::new(AtomicUsize::new(0));
        service_fn(move |request: Request| {
            let is_resumed = request.tool_call().is_some_and(|call| call.request_state.is_some());
            let replica = if is_resumed { 1 + resumed.fetch_add(1, Ordering::Relaxed) } else { 0 };
            replicas[replica % 2].clone().oneshot(request)
        })
    }
}

// === impl Case ===

impl Case {
    /// Parses a file, and returns the case and its calls.
    pub(crate) fn parse(text: &str) -> Result<(Self, Vec<Exchange>), String> {
        let mut case: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let calls = case.sections.remove("call").ok_or("no `[[call]]`: nothing is shown")?;
        let exchanges = calls.try_into().map_err(|error| error.to_string())?;
        Ok((case, exchanges))
    }

    /// Returns the configuration file: the composites and the other sections.
    pub(crate) fn config(&self, driver: &impl Driver) -> toml::Table {
        let mut file = toml::Table::new();
        let mut composites = self.composite_tools.clone();
        let tables = composites.as_array_mut().into_iter().flatten();
        tables.filter_map(toml::Value::as_table_mut).for_each(|table| driver.adapt(table));
        file.insert("composite_tools".to_owned(), composites);
        file.extend(self.sections.clone());
        file
    }
}

// === impl Exchange ===

impl Exchange {
    async fn run<D: Driver>(
        self,
        config: &Config,
        tools: &[ScriptedTool],
        driver: &D,
        differences: &mut Vec<String>,
    ) {
        let Self { tool, arguments, answers, person, expect } = self;
        let can_be_asked = person.is_some();
        let mut person =
            person.unwrap_or_default().iter().fold(Person::new(), PersonResponse::add_response);
        let composite = tool.unwrap_or_else(|| config.composite_tools()[0].name().to_owned());
        for name in answers.keys() {
            if !tools.iter().any(|tool| tool.name == *name) {
                differences.push(format!("answers: no tool `{name}`"));
            }
        }
        let server = server(tools, &answers);
        let layer = config.stack_layer();
        // Cases compare the trace, which must be requested.
        let service = driver.service(layer.clone(), server.clone());
        let service = service.map_request(|mut request: Request| {
            request.context_mut().meta_mut().insert(TRACE.to_owned(), true.into());
            request
        });
        let start = Instant::now();

        if expect.mistakes.is_some() {
            differences.push("mistakes: the file has none".to_owned());
        }
        let lists = expect.listed.is_some()
            || expect.tool.is_some()
            || expect.output_schema.is_some()
            || expect.warnings.is_some();
        if expect.calls.is_none() && !lists {
            differences.push("expects no `calls`: nothing is shown".to_owned());
        }
        if lists {
            let listed = testing::listed(&service).await;
            if let Some(expected) = &expect.listed {
                let names: Vec<_> = listed.iter().map(|tool| tool.name.to_string()).collect();
                compare("listed", expected, &names, differences);
            }
            let tool = listed.iter().find(|tool| tool.name == composite.as_str());
            if let Some(expected) = &expect.output_schema {
                let found = json!(tool.and_then(|tool| tool.output_schema.clone()));
                compare("output_schema", expected, &found, differences);
            }
            if let Some(expected) = &expect.tool {
                let found = json!(tool);
                if !contains(&found, expected) {
                    differences.push(format!("tool: {expected}\n      is not in {found}"));
                }
            }
        }
        if let Some(expected) = &expect.warnings {
            let warnings = layer.warnings();
            let all = expected.len() == warnings.len()
                && expected.iter().zip(&warnings).all(|(part, warning)| warning.contains(part));
            if !all {
                differences.push(format!(
                    "warnings:\n      expected {expected:?}\n      found    {warnings:?}"
                ));
            }
        }
        let Some(calls) = expect.calls else { return };

        let result = match expect.refused {
            Some(expected) => {
                let error = testing::refused(&service, &composite, arguments.into()).await;
                compare("refused", &expected, &error.message.to_string(), differences);
                None
            }
            None if can_be_asked => Some(person.call(&service, &composite, arguments.into()).await),
            None => Some(testing::call(&service, &composite, arguments.into()).await),
        };
        if let Some(expected) = expect.asked {
            compare("asked", &&*expected, &person.asked(), differences);
        }
        if let Some(expected) = expect.rounds {
            compare("rounds", &expected, &person.rounds(), differences);
        }
        if let Some(expected) = expect.after_ms.filter(|_| D::HAS_EXACT_TIMES) {
            compare("after_ms", &u128::from(expected), &start.elapsed().as_millis(), differences);
        }
        let made = server.calls();
        let expected: Vec<_> =
            calls.iter().map(|call| (call.tool.as_str(), json!(call.arguments))).collect();
        let found: Vec<_> = made
            .iter()
            .map(|call| match call.arguments() {
                Value::Null => (call.tool(), json!({})),
                arguments => (call.tool(), arguments),
            })
            .collect();
        let by_text = |calls: &[(&str, Value)]| {
            let mut calls: Vec<_> = calls.iter().map(|call| format!("{call:?}")).collect();
            calls.sort_unstable();
            calls
        };
        // Without exact times, the order of calls that start at the same time is not determined.
        if D::HAS_EXACT_TIMES || by_text(&expected) != by_text(&found) {
            compare("calls", &expected, &found, differences);
        }
        for (call, expected) in made.iter().zip(&calls) {
            if let Some(answers) = &expected.answers {
                let what = format!("the answers to `{}`", expected.tool);
                compare(&what, answers, &call.answers(), differences);
            }
            if let Some(at) = expected.at_ms.filter(|_| D::HAS_EXACT_TIMES) {
                let what = format!("when `{}` was called", expected.tool);
                compare(&what, &u128::from(at), &call.at().as_millis(), differences);
            }
        }
        if let Some(expected) = expect.most_at_once {
            compare("most_at_once", &expected, &server.most_running(), differences);
        }

        let Some(result) = result else { return };
        let texts: Vec<_> = result
            .content
            .iter()
            .filter_map(|block| block.as_text())
            .map(|text| text.text.clone())
            .collect();
        match expect.failure {
            Some(expected) => {
                compare("failure", &Some(&expected), &texts.first(), differences);
                compare("isError", &Some(true), &result.is_error, differences);
            }
            None if result.is_error == Some(true) => {
                differences.push(format!("it has failed: {texts:?}"));
            }
            None => (),
        }
        if let Some(expected) = expect.completed {
            compare("completed", &&*expected, &texts.get(1..).unwrap_or_default(), differences);
        }
        if let Some(expected) = expect.content {
            compare("content", &expected, &json!(result.content), differences);
        }
        if let Some(expected) = expect.texts {
            compare("texts", &expected, &texts, differences);
        }
        if let Some(expected) = expect.structured {
            let found = result.structured_content.clone().unwrap_or_default();
            compare("structured", &expected, &found, differences);
        }
        if let Some(expected) = expect.steps {
            let found = result.meta.as_ref().and_then(|meta| meta.get(STEPS));
            compare("steps", &Some(&expected), &found, differences);
        }
        if let Some(expected) = expect.trace {
            compare("trace", &expected, &trace(&result), differences);
        }
    }
}

/// Returns whether all of `part` is in `whole`.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part)))
        }
        (whole, part) => whole == part,
    }
}

fn trace(result: &CallToolResult) -> Vec<String> {
    let steps = result.meta.as_ref().and_then(|meta| meta.0.get(TRACE)?.as_array());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    steps
        .into_iter()
        .flatten()
        .map(|step| {
            let mut line = format!("{} {}", text(&step["step"]), text(&step["status"]));
            // Writing to a string cannot fail.
            if let Some(attempts) = step["attempts"].as_u64() {
                let _ = write!(line, " × {attempts}");
            }
            if let Some(error) = step.get("error") {
                let (kind, message) = (text(&error["kind"]), text(&error["message"]));
                let _ = write!(line, ": {kind}: {message}");
            }
            line
        })
        .collect()
}

// === impl PersonResponse ===

impl PersonResponse {
    fn add_response(person: Person, response: &Self) -> Person {
        let Self { to, accept, answer, decline, cancel } = response;
        match (accept, answer) {
            (Some(content), _) => person.accepts(to, content.clone()),
            (None, Some(answer)) => person.answers(to, answer.clone()),
            (None, None) if *decline => person.declines(to),
            (None, None) if *cancel => person.cancels(to),
            (None, None) => person.ignores(to),
        }
    }
}

// === impl ScriptedTool ===

impl ScriptedTool {
    fn described(&self) -> Tool {
        let schema = self.input_schema.clone().unwrap_or_else(|| {
            json!({ "type": "object" }).as_object().cloned().unwrap_or_default()
        });
        let mut tool = Tool::new(self.name.clone(), "A tool", schema);
        tool.output_schema = self.output_schema.clone().map(Into::into);
        if self.read_only {
            tool.annotations = Some(ToolAnnotations::new().read_only(true).open_world(false));
        }
        tool
    }
}

// === impl ScriptedAnswer ===

impl ScriptedAnswer {
    fn in_turn(answers: &[Self]) -> Answer {
        let mut answers = answers.iter().map(Self::answer);
        let first = answers.next().unwrap_or_else(Answer::echo);
        answers.fold(first, Answer::then)
    }

    fn answer(&self) -> Answer {
        let answer = if let Some(text) = &self.text {
            Answer::text(text)
        } else if let Some(content) = &self.content {
            let mut result = CallToolResult::success(content.clone());
            result.is_error = Some(self.is_error);
            result.structured_content = self.structured.clone();
            result.into()
        } else if let Some(structured) = &self.structured {
            Answer::structured(structured.clone())
        } else if let Some(why) = &self.failure {
            Answer::failure(why)
        } else if let Some(RpcError { code, message, data }) = &self.error {
            ErrorData::new(ErrorCode(*code), message.clone(), data.clone()).into()
        } else if let Some((key, message)) = &self.asks {
            Answer::asks(key, message)
        } else if let Some(why) = &self.unavailable {
            Answer::unavailable(why)
        } else if let Some(text) = &self.panic {
            Answer::panic(text)
        } else if self.never {
            Answer::never()
        } else if self.echo {
            Answer::echo()
        } else {
            panic!("an answer that says nothing: {self:?}")
        };
        let answer = answer.after(Duration::from_millis(self.after_ms));
        match self.times {
            Some(times) => answer.times(times),
            None => answer,
        }
    }
}
