//! Go templates, their values in ToolHive, and those of their translations.

use std::{collections::BTreeMap, fs, path::Path};

use mcp_composite::{
    config::Config,
    testing::{self, Server},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The contents of `templates.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    /// The arguments of the composite.
    params: Map<String, Value>,
    /// The outputs of the tools. A text is returned as content.
    outputs: BTreeMap<String, Value>,
    arguments: Vec<Template>,
    conditions: Vec<Template>,
    /// Arguments in the step of a `forEach`.
    elements: Vec<Template>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Template {
    text: String,
    /// The value in ToolHive. `None` if ToolHive rejects the template or fails to evaluate it.
    go: Option<String>,
    /// The outcome here. `None` if it is the value in ToolHive.
    here: Option<Outcome>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// The value as JSON, or `omitted`.
    Value(String),
    /// A part of the message with which the import rejects the template.
    Rejected(String),
    /// A part of the message with which the run fails.
    Fails(String),
}

/// The numbers of templates with each outcome.
#[derive(Default)]
struct Counts {
    same: usize,
    different: usize,
    /// Also invalid in ToolHive.
    invalid: usize,
    unsupported: usize,
}

/// The place of a template in a workflow.
#[derive(Clone, Copy)]
enum Place {
    Argument,
    Condition,
    Element,
}

// === impl Corpus ===

impl Corpus {
    fn server(&self) -> Server {
        let server = Server::new().fails("broken", "no route").echoes("use");
        self.outputs.iter().fold(server, |server, (tool, output)| match output {
            Value::String(text) => server.says(tool, text),
            output => server.gives(tool, output.clone()),
        })
    }

    /// Returns a file of ToolHive with a workflow that contains the template.
    fn file(&self, text: &str, place: Place) -> String {
        let before =
            self.outputs.keys().map(|tool| json!({ "id": tool, "tool": format!("be.{tool}") }));
        let mut steps: Vec<_> = before.collect();
        let on_error = json!({ "action": "continue" });
        steps.push(json!({ "id": "broken", "tool": "be.broken", "onError": on_error }));
        let after: Vec<_> = steps.iter().map(|step| step["id"].clone()).collect();
        let call = json!({ "id": "call", "tool": "be.use", "arguments": { "x": text } });
        steps.push(match place {
            Place::Argument => call,
            Place::Condition => json!({ "id": "call", "tool": "be.use", "condition": text }),
            Place::Element => json!({
                "id": "each", "type": "forEach", "collection": "{{json .params.rows}}",
                "itemVar": "row", "maxParallel": 1, "step": call,
            }),
        });
        if let Some(last) = steps.last_mut() {
            last["dependsOn"] = json!(after);
        }
        let declared = self.params.keys().map(|name| (name.clone(), json!({})));
        let mut properties: Map<_, _> = declared.collect();
        properties.insert("note".to_owned(), json!({ "type": "string" }));
        let required: Vec<_> = self.params.keys().collect();
        let parameters =
            json!({ "type": "object", "properties": properties, "required": required });
        let tool = json!({
            "name": "run", "description": "A case", "parameters": parameters, "steps": steps,
        });
        json!({ "compositeTools": [tool] }).to_string()
    }

    /// Imports and runs a workflow with the template, and returns the outcome with whole messages.
    async fn outcome(&self, text: &str, place: Place) -> Outcome {
        let url = |_: &str| Some("http://be.example/mcp".to_owned());
        let config = match Config::from_toolhive_str_with_env(&self.file(text, place), url) {
            Ok(config) => config,
            Err(error) => return Outcome::Rejected(error.to_string()),
        };
        let server = self.server();
        let service = testing::stack(&config, [("be", server.clone())]);
        let result = testing::call(&service, "run", json!(self.params)).await;
        if result.is_error == Some(true) {
            return Outcome::Fails(result.content[0].as_text().unwrap().text.clone());
        }
        let calls = server.calls();
        let mut calls = calls.iter().filter(|call| call.tool() == "use");
        let first = calls.next().map(|call| call.arguments());
        Outcome::Value(match (place, first) {
            (Place::Condition, first) => first.is_some().to_string(),
            (_, first) => match first.unwrap().get("x") {
                Some(value) => value.to_string(),
                None => "omitted".to_owned(),
            },
        })
    }
}

// === impl Counts ===

impl Counts {
    /// Returns the number that the outcome of the template increases. Returns `None` if the outcome
    /// is not the expected one.
    fn of(&mut self, template: &Template, outcome: &Outcome) -> Option<&mut usize> {
        let go = template.go.as_deref();
        let is_same = |value: &str| go.is_some_and(|go| is_same(go, value));
        match (&template.here, outcome) {
            (None, Outcome::Value(value)) if is_same(value) => Some(&mut self.same),
            (Some(Outcome::Value(here)), Outcome::Value(value))
                if here == value && !is_same(value) =>
            {
                Some(&mut self.different)
            }
            (Some(Outcome::Fails(part)), Outcome::Fails(message)) if message.contains(part) => {
                Some(if go.is_none() { &mut self.same } else { &mut self.different })
            }
            (Some(Outcome::Rejected(part)), Outcome::Rejected(message))
                if message.contains(part) =>
            {
                Some(if go.is_none() { &mut self.invalid } else { &mut self.unsupported })
            }
            _ => None,
        }
    }
}

/// Reads a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns `true` if the text that ToolHive sends is the value that is sent here, or its JSON if it
/// is not a text.
fn is_same(go: &str, value: &str) -> bool {
    match serde_json::from_str(value) {
        Ok(Value::String(text)) => text == go,
        Ok(value) => serde_json::from_str::<Value>(go).is_ok_and(|go| go == value),
        Err(_) => false,
    }
}

#[tokio::test(start_paused = true)]
async fn translated_templates_give_the_values_of_toolhive() {
    let corpus: Corpus = toml::from_str(&read("tests/it/toolhive/templates.toml")).unwrap();
    let (mut counts, mut wrong) = (Counts::default(), Vec::new());
    let places = [
        (Place::Argument, &corpus.arguments),
        (Place::Condition, &corpus.conditions),
        (Place::Element, &corpus.elements),
    ];
    for (place, templates) in places {
        for template in templates {
            let outcome = corpus.outcome(&template.text, place).await;
            match counts.of(template, &outcome) {
                Some(count) => *count += 1,
                None => {
                    let Template { text, go, .. } = template;
                    wrong.push(format!("{text}\n  in ToolHive: {go:?}\n  here: {outcome:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let guide = read("src/guide/from_toolhive.md");
    let words: Vec<_> = guide.split_whitespace().collect();
    let Counts { same, different, invalid, unsupported } = counts;
    let (accepted, rejected) = (same + different, invalid + unsupported);
    for sentence in [
        format!("translates {accepted} of {} different templates", accepted + rejected),
        format!("{same} of these give the same result as in Go, and {different} differ"),
        format!("{rejected} are rejected with a reason: {invalid} of them are invalid in ToolHive"),
    ] {
        assert!(words.join(" ").contains(&sentence), "the guide lacks: {sentence}");
    }
}
