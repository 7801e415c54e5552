//! Tool definitions in the formats of the providers.

use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::{names::ToolNames, provider::Provider};

impl Provider {
    /// Converts tools to definitions in the format of this provider, under the [names](ToolNames)
    /// that models use. Send the definitions as `tools` of a request, or include them in the prompt
    /// of a model that writes its calls as text.
    ///
    /// A tool that is not in `names` keeps its original name. A definition contains the input
    /// schema of the tool. If the schema has no `type` or no `properties`, the missing key is
    /// added, because OpenAI requires both. The key `strict` is not set.
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
                    // Set explicitly, because the API defaults to `true`.
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
            // Gemini's `parameters` only supports a small part of JSON Schema.
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
