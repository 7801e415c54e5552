//! Tools as providers want them.

use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::{names::ToolNames, provider::Provider};

impl Provider {
    /// Tells models of this provider which tools there are, by the names that they
    /// have for it: what goes into `tools` of a request, or into the prompt of a model
    /// that writes its calls into its text.
    ///
    /// A tool that the names do not know keeps its own. Schemas stay as they are, but
    /// for a `type` and `properties`, which OpenAI wants also of a tool without
    /// arguments. They are not `strict`: that takes schemas of a special kind.
    ///
    /// ```
    /// use mcp_composite::normalize::{Provider, ToolNames};
    /// use rmcp::model::{JsonObject, Tool};
    /// use serde_json::json;
    ///
    /// let tools = [Tool::new("shop/price", "The price", JsonObject::new())];
    /// let definitions = Provider::Anthropic.definitions(&tools, &ToolNames::of(&tools));
    /// assert_eq!(definitions, [json!({
    ///     "name": "shop_price",
    ///     "description": "The price",
    ///     "input_schema": { "type": "object", "properties": {} },
    /// })]);
    /// ```
    #[must_use]
    pub fn definitions(self, tools: &[Tool], names: &ToolNames) -> Vec<Value> {
        let functions = tools.iter().map(|tool| {
            let name = names.exposed(&tool.name).unwrap_or(&tool.name);
            let mut function = json!({ "name": name });
            if let Some(description) = &tool.description {
                function["description"] = json!(description);
            }
            function[self.schema_key()] = schema(&tool.input_schema);
            function
        });
        match self {
            Self::Anthropic | Self::Lfm => functions.collect(),
            Self::OpenAiChat | Self::Hermes => functions
                .map(|function| json!({ "type": "function", "function": function }))
                .collect(),
            Self::OpenAiResponses => functions
                .map(|mut function| {
                    function["type"] = json!("function");
                    // It is the default there.
                    function["strict"] = json!(false);
                    function
                })
                .collect(),
            Self::Gemini if tools.is_empty() => Vec::new(),
            Self::Gemini => {
                vec![json!({ "functionDeclarations": functions.collect::<Vec<_>>() })]
            }
        }
    }

    const fn schema_key(self) -> &'static str {
        match self {
            Self::Anthropic => "input_schema",
            // `parameters` is for a small part of JSON Schema.
            Self::Gemini => "parametersJsonSchema",
            Self::OpenAiResponses | Self::OpenAiChat | Self::Lfm | Self::Hermes => "parameters",
        }
    }
}

fn schema(schema: &JsonObject) -> Value {
    let mut schema = schema.clone();
    schema.entry("type").or_insert_with(|| json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
    Value::Object(schema)
}
