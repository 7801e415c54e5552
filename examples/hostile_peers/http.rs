//! A client of 2026-07-28 over HTTP, one request at a time.

use serde_json::{Value, json};

use crate::system::Error;

/// A caller that the gateway knows by its header.
#[derive(Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    url: String,
    caller: String,
}

// === impl Http ===

impl Http {
    pub(crate) fn new(url: &str, caller: &str) -> Self {
        Self { client: reqwest::Client::new(), url: url.to_owned(), caller: caller.to_owned() }
    }

    /// Calls a tool, again after its questions if there is a state, and returns the whole answer.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        state: Option<&Value>,
    ) -> Result<Value, Error> {
        let mut params = json!({
            "name": tool,
            "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "http", "version": "0" },
                "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
            },
        });
        if let Some(state) = state {
            let yes = json!({ "action": "accept", "content": {} });
            params["requestState"] = state.clone();
            params["inputResponses"] = json!({ "sure": yes });
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let request = self
            .client
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool)
            .header("x-caller", &self.caller)
            .body(body.to_string());
        let text = request.send().await?.text().await?;
        // With notifications before it, the answer is the last event.
        let answer = text.lines().rev().find_map(|line| line.strip_prefix("data: "));
        Ok(serde_json::from_str(answer.unwrap_or(&text))
            .map_err(|error| format!("{error} in {text:.200}"))?)
    }
}
