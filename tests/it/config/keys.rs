//! Every key has an effect, visible in the parsed configuration or in the replies that clients get
//! through its layers.

use std::{collections::BTreeSet, convert::Infallible, fmt::Write};

use mcp_composite::{
    config::Config,
    message::{Context, Reply, Request},
};
use rmcp::model::{
    CallToolResult, ClientRequest, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, MetaObject, Prompt, Resource, ResourceTemplate,
    ServerResult, Tool, ToolAnnotations,
};
use serde_json::{Value, json};
use tempfile::tempdir;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::is_supported;
use crate::{
    scripted::{call, object},
    support::capture_logs,
};

/// Each key of a file: a table that has it, and its expected effect.
///
/// The values are such that a key that is read but not used is detected.
static KEYS: [(&str, &str, &str, &str); 284] = [
    ("", "include", "[\"no/*.toml\"]", "include: [\"no/*.toml\"]"),
    ("", "router", "separator = \"/\"", "separator: \"/\""),
    ("", "backends", "name = \"base\"\ncommand = \"base\"", "BackendConfig"),
    ("", "limits", "max_calls = 7", "max_calls: 7"),
    ("", "vars", "team = \"base\"", "\"team\": String(\"base\")"),
    ("", "progress", "heartbeat = \"7s\"", "heartbeat: 7s"),
    ("progress", "heartbeat", "\"0s\"", "heartbeat: 0ns"),
    ("limits", "max_calls", "8", "max_calls: 8"),
    ("limits", "max_result_bytes", "9", "max_result_bytes: 9"),
    ("limits", "max_rounds", "3", "max_rounds: 3"),
    ("limits", "max_cancelled_runs", "4", "max_runs: 4"),
    ("", "state", "store = \"memory\"", "state: MemoryStore"),
    ("state", "store", "\"memory\"", "state: MemoryStore"),
    (
        "state",
        "keys",
        "[{ id = \"base\", key = \"of at least thirty-two bytes, as it must\" }]",
        "keys: [(\"base\", …)]",
    ),
    ("keys", "id", "\"other\"", "keys: [(\"other\", …)]"),
    ("keys", "key", "\"of at least thirty-two bytes, as it must\"", "keys: [(\"base\", …)]"),
    ("state", "ttl", "\"7s\"", "ttl: 7s"),
    ("state", "max_state_bytes", "100", "max_item_bytes: 100"),
    ("state", "max_total_bytes", "200", "max_total_bytes: 200"),
    ("state", "max_caller_bytes", "300", "max_caller_bytes: Bytes(300)"),
    ("", "auth", "tokens = [{ caller = \"a\", token = \"at-least-sixteen\" }]", "Tokens(["),
    ("auth", "resource", "\"https://a.example/mcp\"", "resource: Some(\"https://a.example/mcp\")"),
    ("auth", "tokens", "[{ caller = \"b\", token = \"another-of-sixteen\" }]", "caller: \"b\""),
    ("auth", "jwt", "{ issuer = \"https://b.example\", jwks = \"keys.json\" }", "Jwt(JwtConfig"),
    ("jwt", "issuer", "\"https://c.example\"", "issuer: \"https://c.example\""),
    ("jwt", "jwks", "\"https://c.example/keys\"", "jwks: Url(\"https://c.example/…\")"),
    ("jwt", "audience", "\"others\"", "audience: \"others\""),
    ("jwt", "scopes", "[\"read\"]", "scopes: [\"read\"]"),
    ("jwt", "leeway", "\"7s\"", "leeway: 7s"),
    ("tokens", "caller", "\"carol\"", "caller: \"carol\""),
    ("tokens", "token", "\"another-of-sixteen\"", "StaticToken { caller: \"base\""),
    ("", "caller", "header = \"x-user\"", "caller: Header(\"x-user\")"),
    ("caller", "header", "\"x-user\"", "caller: Header(\"x-user\")"),
    ("", "redis", "url = \"redis://base\"\nprefix = \"base\"", "prefix: Some(\"base\")"),
    ("redis", "url", "\"redis://base\"", "store: RedisBudgets"),
    ("redis", "prefix", "\"other\"", "prefix: Some(\"other\")"),
    ("redis", "timeout", "\"7s\"", "timeout: Some(Duration(7s))"),
    (
        "",
        "budget",
        "limits = [{ name = \"calls\", limit = 1 }]",
        "stack found all: the budget `calls`",
    ),
    ("budget", "store", "\"redis\"", "store: RedisBudgets"),
    ("budget", "when_away", "\"admit\"", "admit: true"),
    ("budget", "lease", "\"7s\"", "lease: Some(7s)"),
    ("budget", "max_callers", "11", "max_callers: Some(11)"),
    (
        "budget",
        "limits",
        "[{ name = \"calls\", limit = 2 }]",
        "stack found all: the budget `calls`",
    ),
    (
        "budget",
        "costs",
        "[{ tools = [\"search\"], cost = 6 }]",
        "stack search 1: the budget `base`",
    ),
    ("budget.limits", "name", "\"other\"", "stack erase: the budget `other` is used up"),
    ("budget.limits", "count", "\"bytes\"", "stack search query: the budget `base` is used up"),
    ("budget.limits", "limit", "1", "stack search 1: the budget `base` is used up"),
    ("budget.limits", "tools", "[\"found\"]", "stack erase: erase {}"),
    ("budget.limits", "per", "\"run\"", "stack found all: found"),
    ("budget.limits", "refill", "{ every = \"7s\" }", "try again in 7 s"),
    ("budget.limits", "max_per_call", "7", "max_per_call: Some(7)"),
    ("refill", "amount", "1", "Refill { amount: 1, every: 7s }"),
    ("refill", "every", "\"8s\"", "try again in 8 s"),
    ("costs", "tools", "[\"erase\"]", "stack search query: search"),
    ("costs", "cost", "6", "stack search 1: the budget `base`"),
    ("costs", "actual", "\"/_meta/cost\"", "stack search 1: the budget `base`"),
    ("", "truncate", "max_result_bytes = 7", "max_result_bytes: Some(7)"),
    ("truncate", "max_result_bytes", "8", "max_result_bytes: Some(8)"),
    ("", "results", "ttl = \"7s\"", "ttl: Some(7s)"),
    ("results", "store", "\"redis\"", "RedisStore"),
    ("results", "ttl", "\"7s\"", "ttl: Some(7s)"),
    ("results", "max_result_bytes", "9", "max_item_bytes: Some(9)"),
    ("results", "max_total_bytes", "10", "max_total_bytes: Some(10)"),
    ("results", "max_caller_bytes", "11", "max_caller_bytes: Some(11)"),
    ("", "cache", "tools = [\"search\"]\nttl = \"7s\"", "CacheRule {"),
    (
        "cache",
        "tools",
        "[\"erase\"]",
        "cache: CacheLayer { rules: [CacheRule { tools: Selection { allow: Some([\"erase\"])",
    ),
    ("cache", "ttl", "\"8s\"", "ttl: 8s"),
    ("cache", "per", "\"all\"", "per: All"),
    ("cache", "max_bytes", "99", "max_bytes: 99"),
    ("cache", "store", "\"redis\"", "store: Some(RedisCache"),
    ("", "redactions", "tools = [\"search\"]\nremove = [\"\"]", "stack search: [redacted]"),
    ("redactions", "tools", "[\"erase\"]", "stack erase: [redacted]"),
    ("redactions", "remove", "[\"/other\"]", "stack search: search {}"),
    ("redactions", "only", "[\"\"]", "stack search: search {}"),
    ("redactions", "keep_texts", "true", "keeps_texts: true"),
    ("composite_tools", "max_calls", "3", "max_calls: Some(3)"),
    ("composite_tools", "max_result_bytes", "4", "max_result_bytes: Some(4)"),
    ("composite_tools", "max_cost", "5", "max_cost: Some(5)"),
    ("composite_tools", "on_limit", "\"fail\"", "on_limit: Fail"),
    ("composite_tools", "task", "\"always\"", "task: Some(Always)"),
    ("", "validate", "schema = \"strict\"", "stack search 1: invalid arguments"),
    ("", "filter", "hide_tools = [\"erase\"]", "stack lists search, note\n"),
    ("", "aliases", "tool = \"search\"\nname = \"found\"", "stack lists found, note, erase\n"),
    ("", "advertise", "deny = [\"note\"]", "stack lists search, erase\n"),
    (
        "",
        "composite_tools",
        "name = \"new\"\ndescription = \"New\"\ntools = [\"search\"]",
        "stack lists search, note, erase, new\n",
    ),
    ("composite_tools", "name", "\"other\"", "name: \"other\""),
    ("composite_tools", "description", "\"another\"", "description: \"another\""),
    ("composite_tools", "title", "\"Title\"", "title: Some(\"Title\")"),
    ("composite_tools", "input_schema", "{ a = 1 }", "input_schema: Some({\"a\": Number(1)})"),
    ("composite_tools", "parameters", "{ a = 2 }", "input_schema: Some({\"a\": Number(2)})"),
    ("composite_tools", "output_schema", "{ a = 3 }", "output_schema: Some({\"a\": Number(3)})"),
    ("composite_tools", "annotations", "{ title = \"Shown\" }", "title: Some(\"Shown\")"),
    ("composite_tools", "timeout", "\"1h 30m\"", "timeout: 5400s"),
    ("composite_tools", "strategy", "\"sequential\"", "max_parallel: 1 "),
    ("composite_tools", "success", "{ quorum = 1 }", "success: Quorum(1)"),
    ("composite_tools", "order", "\"completion\"", "order: Completion"),
    ("composite_tools", "report", "false", "report: false"),
    ("composite_tools", "labels", "\"meta\"", "labels: Meta"),
    ("composite_tools", "trace", "\"always\"", "trace: Always"),
    ("composite_tools", "max_parallel", "2", "max_parallel: 2"),
    (
        "composite_tools",
        "tools",
        "[\"short\"]",
        "targets: [Target { id: None, call: ToolCall { tool: \"short\",",
    ),
    (
        "composite_tools",
        "targets",
        "[{ tool = \"long\" }]",
        "targets: [Target { id: None, call: ToolCall { tool: \"long\",",
    ),
    ("composite_tools", "steps", "[{ id = \"s\", tool = \"t\" }]", "steps: [Step { id: \"s\","),
    ("composite_tools", "output", "{ properties.p = { type = \"array\", value = [] } }", "Array"),
    ("composite_tools", "strict", "false", "strict: false"),
    ("steps", "id", "\"other\"", "id: \"other\""),
    ("steps", "type", "\"for_each\"", "ForEach("),
    ("steps", "tool", "\"called\"", "tool: \"called\""),
    ("steps", "arguments", "{ a = 4 }", "arguments: Some(Object {\"a\": Number(4)})"),
    ("steps", "depends_on", "[\"a\"]", "depends_on: [\"a\"]"),
    ("steps", "condition", "\"true\"", "condition: Some(\"true\")"),
    ("steps", "timeout", "\"7s\"", "timeout: Some(7s)"),
    ("steps", "on_error", "\"continue\"", "on_error: Continue"),
    ("steps", "default_results", "{ a = 5 }", "default_results: Some(Object {\"a\": Number(5)})"),
    ("steps", "retry_lost", "true", "retry_lost: true"),
    ("steps", "allow_flow", "\"why\"", "allow_flow: Some(\"why\")"),
    ("steps", "parse", "\"json\"", "parse: Some(Json)"),
    ("steps", "collection", "[6]", "collection: Array [Number(6)]"),
    ("steps", "item_var", "\"it\"", "item_var: \"it\""),
    ("steps", "max_parallel", "2", "max_parallel: 2"),
    ("steps", "max_iterations", "3", "max_iterations: 3"),
    ("steps", "cases", "[{ when = \"false\", tool = \"t\" }]", "when: \"false\""),
    ("steps", "default", "{ tool = \"other\" }", "default: Call(ToolCall { tool: \"other\""),
    ("steps", "message", "\"Really?\"", "message: \"Really?\""),
    ("steps", "schema", "{ title = \"Form\" }", "schema: Object {\"title\""),
    ("steps", "finally", "true", "finally: Some(Finally"),
    ("finally", "grace", "\"7s\"", "grace: 7s"),
    ("finally", "on_cancel", "true", "on_cancel: true"),
    ("steps", "stop", "\"first_success\"", "first_success: true"),
    ("steps", "until", "\"last.a == 7\"", "until: \"last.a == 7\""),
    ("steps", "delay", "\"7s\"", "delay: 7s"),
    ("steps", "backoff", "3", "backoff: 3.0"),
    ("steps", "max_delay", "\"7s\"", "max_delay: Some(7s)"),
    ("steps", "value", "{ a = 7 }", "value: Object {\"a\": Number(7)}"),
    ("steps", "is_error", "true", "is_error: true"),
    ("steps", "output", "7", "Stop(Stop { result: Output(Number(7)"),
    ("steps", "on_decline", "\"continue\"", "on_decline: Continue"),
    ("steps", "on_cancel", "\"skip_remaining\"", "on_cancel: SkipRemaining"),
    ("on_decline", "action", "\"continue\"", "on_decline: Continue"),
    ("on_cancel", "action", "\"continue\"", "on_cancel: Continue"),
    ("on_error", "action", "\"continue\"", "on_error: Continue"),
    ("on_error", "retry_count", "2", "count: 2"),
    ("on_error", "delay", "\"2s\"", "delay: 2s"),
    ("on_error", "max_delay", "\"9s\"", "max_delay: 9s"),
    ("on_error", "then", "\"continue\"", "then: Continue"),
    ("cases", "when", "\"false\"", "when: \"false\""),
    ("cases", "tool", "\"called\"", "tool: \"called\""),
    ("cases", "parse", "\"csv\"", "parse: Some(Csv)"),
    ("cases", "arguments", "{ a = 4 }", "arguments: Some(Object {\"a\": Number(4)})"),
    ("default", "tool", "\"called\"", "tool: \"called\""),
    ("default", "parse", "\"json\"", "parse: Some(Json)"),
    ("default", "arguments", "{ a = 4 }", "arguments: Some(Object {\"a\": Number(4)})"),
    ("output", "properties", "{ q = { type = \"array\", value = [] } }", "(\"q\", OutputProperty"),
    ("output", "required", "[\"p\"]", "required: [\"p\"]"),
    ("output", "content", "[\"b\"]", "content: [\"b\"]"),
    ("properties", "type", "\"array\"", "Value(Array, "),
    ("properties", "description", "\"What it is\"", "description: Some(\"What it is\")"),
    ("properties", "value", "\"7\"", "String(\"7\")"),
    ("properties", "properties", "{}", "Properties([])"),
    ("properties", "default", "{ a = 8 }", "default: Some(Object {\"a\": Number(8)})"),
    ("targets", "id", "\"branch\"", "id: Some(\"branch\")"),
    ("targets", "tool", "\"called\"", "tool: \"called\""),
    ("targets", "arguments", "{ a = 4 }", "arguments: Some(Object {\"a\": Number(4)})"),
    ("targets", "timeout", "\"7s\"", "timeout: 7s"),
    ("targets", "optional", "true", "optional: true"),
    ("targets", "retry_lost", "true", "retry_lost: true"),
    ("targets", "allow_flow", "\"why\"", "allow_flow: Some(\"why\")"),
    ("targets", "on_error", "\"retry\"", "retry: Some(Retry { count: 3"),
    ("targets.on_error", "action", "\"retry\"", "retry: Some(Retry { count: 3"),
    ("targets.on_error", "retry_count", "2", "count: 2"),
    ("targets.on_error", "delay", "\"2s\"", "delay: 2s"),
    ("targets.on_error", "max_delay", "\"9s\"", "max_delay: 9s"),
    ("annotations", "title", "\"Hint\"", "title: Some(\"Hint\")"),
    ("annotations", "readOnlyHint", "true", "read_only_hint: Some(true)"),
    ("annotations", "destructiveHint", "true", "destructive_hint: Some(true)"),
    ("annotations", "idempotentHint", "true", "idempotent_hint: Some(true)"),
    ("annotations", "openWorldHint", "true", "open_world_hint: Some(true)"),
    ("router", "separator", "\"/\"", "separator: \"/\""),
    ("router", "conflicts", "\"manual\"", "conflicts: Manual"),
    ("", "lock", "file = \"base.lock\"", "lock: Some(LockConfig"),
    ("lock", "file", "\"other.lock\"", "other.lock\""),
    ("lock", "on_drift", "\"fail\"", "on_drift: Fail"),
    ("lock", "on_new", "\"allow\"", "on_new: Allow"),
    ("", "flow", "tools = [\"search\"]\nlabels = [\"private\"]", "labels: [Private]"),
    ("flow", "tools", "[\"erase\"]", "FlowRule { tools: Selection { allow: Some([\"erase\"])"),
    ("flow", "backends", "[\"base\"]", "prefixes: Some([\"base_\"])"),
    ("flow", "labels", "[\"egress\"]", "labels: [Egress]"),
    ("flow", "annotations", "true", "trusts_annotations: true"),
    ("", "flow_session", "mode = \"warn\"", "mode: Warn"),
    ("flow_session", "mode", "\"deny\"", "mode: Deny"),
    ("flow_session", "expires_after", "\"7s\"", "expires_after: 7s"),
    ("backends", "name", "\"other\"", "name: \"other\""),
    ("backends", "transport", "\"http\"", "transport: Http("),
    ("backends", "timeout", "\"7s\"", "timeout: Some(7s)"),
    ("backends", "connect_timeout", "\"8s\"", "connect_timeout: Some(8s)"),
    ("backends", "elicitation", "false", "elicitation: false"),
    ("backends", "prefix", "\"other_\"", "prefix: \"other_\""),
    ("backends", "command", "\"other\"", "command: \"other\""),
    ("backends", "args", "[\"a\", \"b\"]", "args: […, …]"),
    ("backends", "env", "{ A = \"b\" }", "env: {\"A\": …}"),
    ("backends", "cwd", "\"/other\"", "cwd: Some(\"/other\")"),
    ("backends", "url", "\"http://other\"", "url: \"http://other\""),
    ("backends", "headers", "{ A = \"b\" }", "headers: {\"A\": …}"),
    (
        "backends",
        "auth",
        "{ client_credentials = { token_url = \"https://a.example/t\", client_id = \"a\", client_secret = \"b\" } }",
        "auth: Some(ClientCredentials(",
    ),
    (
        "backends.auth",
        "client_credentials",
        "{ token_url = \"https://a.example/t\", client_id = \"a\", client_secret = \"b\" }",
        "auth: Some(ClientCredentials(",
    ),
    ("client_credentials", "token_url", "\"https://c.example/token\"", "\"https://c.example/…\""),
    ("client_credentials", "client_id", "\"other\"", "client_id: \"other\""),
    ("client_credentials", "client_secret", "\"other\"", "client_secret: …"),
    (
        "client_credentials",
        "token_endpoint_auth_method",
        "\"client_secret_post\"",
        "secret_in_body: true",
    ),
    ("client_credentials", "scopes", "[\"read\"]", "scopes: [\"read\"]"),
    ("client_credentials", "audience", "\"others\"", "audience: Some(\"others\")"),
    ("client_credentials", "resource", "\"urn:x\"", "resource: Some(\"urn:x\")"),
    (
        "backends.auth",
        "exchange",
        "{ token_url = \"https://a.example/t\", client_id = \"a\", client_secret = \"b\" }",
        "auth: Some(Exchange(",
    ),
    ("exchange", "token_url", "\"https://c.example/token\"", "\"https://c.example/…\""),
    ("exchange", "client_id", "\"other\"", "client_id: \"other\""),
    ("exchange", "client_secret", "\"other\"", "client_secret: …"),
    ("exchange", "token_endpoint_auth_method", "\"client_secret_post\"", "secret_in_body: true"),
    ("exchange", "scopes", "[\"read\"]", "scopes: [\"read\"]"),
    ("exchange", "audience", "\"others\"", "audience: Some(\"others\")"),
    ("exchange", "resource", "\"urn:x\"", "resource: Some(\"urn:x\")"),
    ("exchange", "max_callers", "7", "max_callers: 7"),
    ("exchange", "idle_timeout", "\"7s\"", "idle_timeout: 7s"),
    ("backends", "expose_tools", "[\"erase\"]", "base lists erase\n"),
    ("backends", "hide_tools", "[\"erase\"]", "base lists search, note\n"),
    ("backends", "expose_prompts", "[\"other\"]", "base prompts none\n"),
    ("backends", "hide_prompts", "[\"g*\"]", "base prompts none\n"),
    ("backends", "expose_resources", "[\"other\"]", "base resources none\n"),
    ("backends", "hide_resources", "[\"file:*\"]", "base resources none\n"),
    ("backends", "expose_resource_templates", "[\"other\"]", "base templates none\n"),
    ("backends", "hide_resource_templates", "[\"data:*\"]", "base templates none\n"),
    ("backends", "read_only_only", "true", "base lists search\n"),
    ("backends", "hide_destructive", "true", "base lists search, note\n"),
    (
        "backends",
        "aliases",
        "[{ tool = \"search\", name = \"found\" }]",
        "base lists found, note, erase\n",
    ),
    ("backends", "validate", "{ schema = \"strict\" }", "base search 1: invalid arguments"),
    ("backends.validate", "schema", "\"strict\"", "base search 1: invalid arguments"),
    (
        "backends.validate",
        "max_argument_bytes",
        "100",
        "base search long: the request has more than 100 bytes",
    ),
    ("backends.validate", "max_depth", "3", "base search deep: the request has more than 3 levels"),
    ("validate", "schema", "\"strict\"", "stack search 1: invalid arguments"),
    (
        "validate",
        "max_argument_bytes",
        "100",
        "stack search long: the request has more than 100 bytes",
    ),
    ("validate", "max_depth", "3", "stack search deep: the request has more than 3 levels"),
    ("filter", "expose_tools", "[\"erase\"]", "stack lists erase\n"),
    ("filter", "hide_tools", "[\"erase\"]", "stack lists search, note\n"),
    ("filter", "expose_prompts", "[\"other\"]", "stack prompts none\n"),
    ("filter", "hide_prompts", "[\"g*\"]", "stack prompts none\n"),
    ("filter", "expose_resources", "[\"other\"]", "stack resources none\n"),
    ("filter", "hide_resources", "[\"file:*\"]", "stack resources none\n"),
    ("filter", "expose_resource_templates", "[\"other\"]", "stack templates none\n"),
    ("filter", "hide_resource_templates", "[\"data:*\"]", "stack templates none\n"),
    ("filter", "read_only_only", "true", "stack lists search\n"),
    ("filter", "hide_destructive", "true", "stack lists search, note\n"),
    ("aliases", "tool", "\"search\"", "stack lists found, note, erase\n"),
    ("aliases", "from", "\"search\"", "stack lists found, note, erase\n"),
    ("aliases", "prompt", "\"greet\"", "stack prompts found\n"),
    ("aliases", "resource", "\"file:///a\"", "\"name\":\"found\",\"uri\":\"file:///a\""),
    ("aliases", "name", "\"gone\"", "stack lists search, note, gone\n"),
    ("aliases", "to", "\"gone\"", "stack lists search, note, gone\n"),
    ("aliases", "uri", "\"file:///b\"", "stack resources file:///b\n"),
    ("aliases", "title", "\"Eraser\"", "\"title\":\"Eraser\""),
    ("aliases", "description", "\"Rubs out\"", "\"description\":\"Rubs out\""),
    ("aliases", "annotations", "{ idempotentHint = true }", "\"idempotentHint\":true"),
    ("aliases", "arguments", "{ id = { hide = true } }", "stack found all: invalid arguments"),
    ("arguments", "hide", "true", "stack search 1: invalid arguments"),
    ("arguments", "rename", "\"query\"", "stack search query: search {\"q\":\"x\"}"),
    ("arguments", "default", "\"much\"", "stack search: search {\"q\":\"much\"}"),
    ("arguments", "description", "\"What for\"", "\"description\":\"What for\""),
    ("advertise", "allow", "[\"other\"]", "stack lists none\n"),
    ("advertise", "deny", "[\"note\"]", "stack lists search, erase\n"),
    ("advertise", "calls", "\"allow\"", "stack erase: erase {}"),
    ("advertise", "mode", "\"search\"", "stack lists search_tools, call_tool\n"),
    ("", "views", "path = \"/a\"", "view lists search, note, erase\n"),
    ("views", "path", "\"/b\"", "path: \"/b\""),
    ("views", "scopes", "[\"read\"]", "scopes: [\"read\"]"),
    ("views", "limits", "{ max_calls = 7 }", "max_calls: 7"),
    ("views", "progress", "{ heartbeat = \"7s\" }", "heartbeat: 7s"),
    ("views", "validate", "{ schema = \"strict\" }", "view search 1: invalid arguments"),
    ("views", "filter", "{ hide_tools = [\"erase\"] }", "view lists search, note\n"),
    ("views", "cache", "[{ tools = [\"search\"], ttl = \"7s\" }]", "ttl: 7s"),
    (
        "views",
        "redactions",
        "[{ tools = [\"search\"], remove = [\"\"] }]",
        "view search: [redacted]",
    ),
    (
        "views",
        "budget",
        "{ limits = [{ name = \"calls\", limit = 1 }] }",
        "view found all: the budget `calls`",
    ),
    ("views", "truncate", "{ max_result_bytes = 7 }", "max_result_bytes: Some(7)"),
    ("views", "results", "{ ttl = \"7s\" }", "ttl: Some(7s)"),
    (
        "views",
        "aliases",
        "[{ tool = \"search\", name = \"found\" }]",
        "view lists found, note, erase\n",
    ),
    ("views", "advertise", "{ deny = [\"note\"] }", "view lists search, erase\n"),
    (
        "views",
        "composite_tools",
        "[{ name = \"new\", description = \"New\", tools = [\"search\"] }]",
        "view lists search, note, erase, new\n",
    ),
];

/// The tables with keys.
const TABLES: [&str; 46] = [
    "",
    "composite_tools",
    "targets",
    "targets.on_error",
    "steps",
    "finally",
    "on_error",
    "on_decline",
    "on_cancel",
    "cases",
    "default",
    "output",
    "properties",
    "limits",
    "progress",
    "state",
    "keys",
    "annotations",
    "router",
    "lock",
    "flow",
    "flow_session",
    "backends",
    "backends.validate",
    "backends.auth",
    "client_credentials",
    "exchange",
    "validate",
    "filter",
    "aliases",
    "arguments",
    "advertise",
    "auth",
    "jwt",
    "tokens",
    "caller",
    "redis",
    "budget",
    "budget.limits",
    "refill",
    "costs",
    "truncate",
    "results",
    "cache",
    "redactions",
    "views",
];

/// A section that labels tools.
const LABELS: &str = "[[flow]]\ntools = [\"search\"]\nlabels = [\"private\"]\n";

/// A section that authenticates callers.
const CALLERS: &str = "[[auth.tokens]]\ncaller = \"base\"\ntoken = \"at-least-sixteen\"\n";

#[tokio::test(start_paused = true)]
async fn every_config_key_has_an_effect() {
    // A file, since a text cannot include others.
    let folder = tempdir().unwrap();
    let path = folder.path().join("every_key.toml");
    for (table, key, value, effect) in &KEYS {
        let text = file(table, Some((key, value)));
        if !is_supported(&text) {
            continue;
        }
        std::fs::write(&path, text).unwrap();
        let config = Config::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let seen = seen(&config).await;
        assert!(seen.contains(effect), "`{key}` of `{table}`: {seen}");

        let without = Config::from_toml_str(&file(table, None));
        let without = match without {
            Ok(config) => self::seen(&config).await,
            Err(error) => error.to_string(),
        };
        assert!(!without.contains(effect), "`{key}` of `{table}` is not what does it: {without}");
    }

    for table in TABLES {
        let tried: BTreeSet<_> =
            KEYS.iter().filter(|row| row.0 == table).map(|row| row.1.to_owned()).collect();
        assert_eq!(tried, keys_of(table), "the keys of `{table}`");
    }
}

#[tokio::test(start_paused = true)]
async fn option_values_select_their_behavior() {
    for (text, listed, is_refused, is_logged) in [
        ("[validate]\nschema = \"off\"", 3, false, false),
        ("[validate]\nschema = \"warn\"", 3, false, true),
        ("[validate]\nschema = \"strict\"", 3, true, false),
        ("[advertise]\ndeny = [\"search\"]\ncalls = \"allow\"", 2, false, false),
        ("[advertise]\ndeny = [\"search\"]\ncalls = \"refuse\"", 2, true, false),
        ("[advertise]\nmode = \"list\"", 3, false, false),
        ("[advertise]\nmode = \"search\"", 2, false, false),
    ] {
        let (log, _guard) = capture_logs();
        let config = Config::from_toml_str(text).unwrap();
        let service = config.stack_layer().layer(service_fn(server));
        let list = service.clone().oneshot(Request::list_tools()).await.unwrap();
        assert_eq!(list.tools().unwrap().tools.len(), listed, "{text}");
        let reply = service.oneshot(call("search", json!({ "q": 1 }))).await.unwrap();
        assert_eq!(reply.error().is_some(), is_refused, "{text}");
        assert_eq!(log.text().contains("WARN"), is_logged, "{text}: {}", log.text());
    }
}

/// Returns a file with one more key, or another value of it, in one of its tables.
fn file(table: &str, entry: Option<(&str, &str)>) -> String {
    match (table, entry) {
        ("", None) => String::new(),
        ("", Some(("include" | "zzzzzzzzzzzzzzzz", _))) => lines(entry),
        (
            "",
            Some((
                section @ ("backends" | "aliases" | "composite_tools" | "cache" | "redactions"
                | "views" | "flow"),
                text,
            )),
        ) => {
            format!("[[{section}]]\n{text}\n")
        }
        ("", Some(("redis", text))) => {
            format!("[budget]\nstore = \"redis\"\n[redis]\n{text}\n")
        }
        ("", Some(("results", text))) => {
            format!("[results]\n{text}\n[truncate]\nmax_result_bytes = 1000\n")
        }
        ("", Some(("flow_session", text))) => format!("{LABELS}[flow_session]\n{text}\n"),
        ("", Some((section, text))) => format!("[{section}]\n{text}\n"),
        ("state", Some(("max_total_bytes", _))) => {
            format!("[state]\nstore = \"memory\"\n{}", lines(entry))
        }
        ("state", Some(("max_caller_bytes", _))) => {
            let caller = "[caller]\nheader = \"x-user\"";
            format!("{caller}\n[state]\nstore = \"memory\"\n{}", lines(entry))
        }
        ("keys", _) => {
            let base =
                [("id", "\"base\""), ("key", "\"of at least thirty-two bytes, as it must\"")];
            // Both are required, so a table without one is an error.
            let base = if entry.is_some() { &base[..] } else { &base[..1] };
            format!("[[state.keys]]\n{}", lines(replaced(base, &[], entry)))
        }
        (
            "router" | "validate" | "filter" | "limits" | "progress" | "state" | "caller"
            | "truncate",
            _,
        ) => {
            format!("[{table}]\n{}", lines(entry))
        }
        ("auth", _) => {
            let resource = ("resource", "\"https://base.example/mcp\"");
            let tokens = ("tokens", "[{ caller = \"base\", token = \"at-least-sixteen\" }]");
            let base: &[_] = match entry {
                Some(("jwt", _)) => &[resource],
                Some(_) => &[resource, tokens],
                None => &[],
            };
            format!("[auth]\n{}", lines(replaced(base, &[], entry)))
        }
        ("jwt", _) => {
            let base = [("issuer", "\"https://base.example\""), ("jwks", "\"base.json\"")];
            let base = if entry.is_some() { &base[..] } else { &base[..1] };
            let resource = "[auth]\nresource = \"https://base.example/mcp\"\n";
            format!("{resource}[auth.jwt]\n{}", lines(replaced(base, &[], entry)))
        }
        ("tokens", _) => {
            let base = [("caller", "\"base\""), ("token", "\"at-least-sixteen\"")];
            let base = if entry.is_some() { &base[..] } else { &base[..1] };
            format!("[[auth.tokens]]\n{}", lines(replaced(base, &[], entry)))
        }
        ("advertise", _) => {
            let base = [("deny", "[\"erase\"]")];
            format!("[advertise]\n{}", lines(replaced(&base, &[], entry)))
        }
        ("redis", _) => {
            // Without it, the error is that it is missing.
            let base: &[_] = if entry.is_some() { &[("url", "\"redis://base\"")] } else { &[] };
            let entries = lines(replaced(base, &[], entry));
            format!("[budget]\nstore = \"redis\"\n[redis]\n{entries}")
        }
        ("lock", _) => {
            let base: &[_] = if entry.is_some() { &[("file", "\"base.lock\"")] } else { &[] };
            format!("[lock]\n{}", lines(replaced(base, &[], entry)))
        }
        ("results", _) => {
            let others = "[redis]\nurl = \"redis://base\"\n[truncate]\nmax_result_bytes = 1000\n\
                          [caller]\nheader = \"x-user\"\n";
            format!("{others}[results]\n{}", lines(entry))
        }
        ("cache", _) => {
            let base = [("tools", "[\"search\"]"), ("ttl", "\"7s\"")];
            let redis = "[redis]\nurl = \"redis://base\"\n";
            format!("{redis}[[cache]]\n{}", lines(replaced(&base, &[], entry)))
        }
        ("flow", _) => {
            let base = [("tools", "[\"search\"]"), ("labels", "[\"private\"]")];
            let backend = match entry {
                Some(("backends", _)) => backend(None),
                _ => String::new(),
            };
            format!("[[flow]]\n{}{backend}", lines(replaced(&base, &[], entry)))
        }
        ("flow_session", _) => {
            let base: &[_] = if entry.is_some() { &[("mode", "\"warn\"")] } else { &[] };
            format!("{LABELS}[flow_session]\n{}", lines(replaced(base, &[], entry)))
        }
        ("redactions", _) => {
            let base = [("tools", "[\"search\"]"), ("remove", "[\"\"]")];
            let without: &[_] = if matches!(entry, Some(("only", _))) { &["remove"] } else { &[] };
            format!("[[redactions]]\n{}", lines(replaced(&base, without, entry)))
        }
        ("budget" | "budget.limits" | "refill" | "costs", _) => budget(table, entry),
        ("views", _) => {
            let base: &[_] = match entry {
                Some(("results", _)) => {
                    &[("path", "\"/a\""), ("truncate", "{ max_result_bytes = 1000 }")]
                }
                _ => &[("path", "\"/a\"")],
            };
            let auth = "[auth]\nresource = \"https://base.example/mcp\"\n[auth.jwt]\n\
                        issuer = \"https://base.example\"\njwks = \"base.json\"\n";
            let auth = if matches!(entry, Some(("scopes", _))) { auth } else { "" };
            format!("{auth}[[views]]\n{}", lines(replaced(base, &[], entry)))
        }
        ("aliases", _) => alias(entry),
        ("arguments", _) => {
            format!("[[aliases]]\ntool = \"search\"\n[aliases.arguments.q]\n{}", lines(entry))
        }
        ("backends", _) => backend(entry),
        ("backends.validate", _) => {
            format!("{}[backends.validate]\n{}", backend(None), lines(entry))
        }
        ("backends.auth", _) => {
            format!("{CALLERS}{}[backends.auth]\n{}", of_http(), lines(entry))
        }
        ("client_credentials" | "exchange", _) => {
            let base = [
                ("token_url", "\"https://base.example/token\""),
                ("client_id", "\"base\""),
                ("client_secret", "\"base\""),
            ];
            let base = if entry.is_some() { &base[..] } else { &base[..1] };
            let entries = lines(replaced(base, &[], entry));
            format!("{CALLERS}{}[backends.auth.{table}]\n{entries}", of_http())
        }
        (
            "steps" | "finally" | "on_error" | "on_decline" | "on_cancel" | "cases" | "default"
            | "output" | "properties",
            _,
        ) => workflow(table, entry),
        _ => composite(table, entry),
    }
}

/// Returns a workflow of two steps, the second of which has the key.
fn workflow(table: &str, entry: Option<(&str, &str)>) -> String {
    let call = [("id", "\"b\""), ("tool", "\"base\"")];
    let each = [("type", "\"for_each\""), ("collection", "[1]")];
    let until = ("until", "\"last.a == 6\"");
    let repeat = [("type", "\"repeat\""), until, ("delay", "\"6s\""), ("backoff", "2")];
    let one = "[{ when = \"true\", tool = \"base\" }]";
    let switch = [("id", "\"b\""), ("type", "\"switch\""), ("cases", one), ("default", "\"skip\"")];
    let value = [("id", "\"b\""), ("type", "\"value\""), ("value", "1")];
    let stop = [("id", "\"b\""), ("type", "\"stop\""), ("message", "\"base\"")];
    let end = [("id", "\"b\""), ("type", "\"stop\""), ("output", "6")];
    let question = [("id", "\"b\""), ("type", "\"elicitation\""), ("message", "\"base\"")];
    let inner = |base| {
        let entries = replaced(base, &[], entry).into_iter();
        let entries: Vec<_> = entries.map(|(key, value)| format!("{key} = {value}")).collect();
        format!("{{ {} }}", entries.join(", "))
    };
    let refusal = inner(&[("action", "\"abort\"")]);
    let finally = inner(&[]);
    let on_error = inner(&[("action", "\"retry\"")]);
    let cases = format!("[{}]", inner(&[("when", "\"true\""), ("tool", "\"base\"")]));
    let default = inner(&[("tool", "\"base\"")]);
    let step = match (table, entry) {
        (
            "steps",
            Some((
                "type" | "collection" | "item_var" | "max_parallel" | "max_iterations" | "stop",
                _,
            )),
        ) => replaced(&[call, each].concat(), &[], entry),
        ("steps", Some(("until" | "delay" | "backoff" | "max_delay", _))) => {
            replaced(&[&call[..], &repeat].concat(), &[], entry)
        }
        ("steps", Some(("cases" | "default", _))) => replaced(&switch, &[], entry),
        ("steps", Some(("is_error", _))) => replaced(&stop, &[], entry),
        ("steps", Some(("output", _))) => replaced(&end, &[], entry),
        ("steps", Some(("value", _))) => replaced(&value, &[], entry),
        ("steps", Some(("message" | "schema" | "on_decline" | "on_cancel", _))) => {
            replaced(&question, &[], entry)
        }
        ("on_decline" | "on_cancel", _) => replaced(&question, &[], Some((table, &refusal))),
        ("steps", Some(("default_results", _))) => {
            replaced(&[&call[..], &[("on_error", "\"continue\"")]].concat(), &[], entry)
        }
        ("steps", _) => replaced(&call, &[], entry),
        ("finally", _) => replaced(&call, &[], Some(("finally", &finally))),
        ("on_error", _) => replaced(&call, &[], Some(("on_error", &on_error))),
        ("cases", _) => replaced(&switch, &[], Some(("cases", &cases))),
        ("default", _) => replaced(&switch, &[], Some(("default", &default))),
        _ => call.to_vec(),
    };
    let property = [("type", "\"object\""), ("value", "{}")];
    let output = match (table, entry) {
        ("properties", Some(("properties", properties))) => {
            format!("properties.p = {{ type = \"object\", properties = {properties} }}")
        }
        ("properties", Some(("type", kind))) => {
            format!("properties.p = {{ type = {kind}, value = \"[]\" }}")
        }
        ("properties", _) => format!("properties.p = {}", inner(&property)),
        ("output", Some(("properties", properties))) => format!("properties = {properties}"),
        ("output", _) => {
            format!("properties.p = {{ type = \"string\", value = \"\" }}\n{}", lines(entry))
        }
        _ => "properties.p = { type = \"string\", value = \"\" }".to_owned(),
    };
    let head = [("name", "\"base\""), ("description", "\"base\""), ("strategy", "\"workflow\"")];
    format!(
        "[[composite_tools]]\n{}[[composite_tools.steps]]\nid = \"a\"\ntool = \"base\"\n\
         [[composite_tools.steps]]\n{}[composite_tools.output]\n{output}\n",
        lines(head),
        lines(step),
    )
}

fn composite(table: &str, entry: Option<(&str, &str)>) -> String {
    let base = [("name", "\"base\""), ("description", "\"base\""), ("tools", "[\"base\"]")];
    let inner = entry.map_or(String::new(), |(key, value)| format!("{key} = {value}"));
    let targets = match entry {
        Some(("tool", _)) => format!("[{{ {inner} }}]"),
        Some(_) => format!("[{{ tool = \"base\", {inner} }}]"),
        None => "[{ tool = \"base\" }]".to_owned(),
    };
    let action = if let Some(("action", _)) = entry { "" } else { "action = \"retry\", " };
    let retried = format!("[{{ tool = \"base\", on_error = {{ {action}{inner} }} }}]");
    let annotations = format!("{{ {inner} }}");
    let strategy = [("strategy", "\"pipeline\"")];
    let steps = [("steps", "[{ id = \"a\", tool = \"base\" }]")];
    let entries = match (table, entry) {
        (_, Some(("steps", _))) => replaced(&[&base[..2], &strategy].concat(), &[], entry),
        (_, Some(("output", _))) => replaced(&[&base[..2], &strategy, &steps].concat(), &[], entry),
        ("targets.on_error", Some(_)) => replaced(&base, &["tools"], Some(("targets", &retried))),
        ("targets" | "targets.on_error", _) => {
            replaced(&base, &["tools"], Some(("targets", &targets)))
        }
        ("annotations", _) => replaced(&base, &[], Some(("annotations", &annotations))),
        (_, Some(("targets", _))) => replaced(&base, &["tools"], entry),
        _ => replaced(&base, &[], entry),
    };
    format!("[[composite_tools]]\n{}", lines(entries))
}

fn backend(entry: Option<(&str, &str)>) -> String {
    let command = match entry {
        Some(("transport" | "url" | "headers" | "auth", _)) => ("url", "\"http://base\""),
        _ => ("command", "\"base\""),
    };
    format!("[[backends]]\n{}", lines(replaced(&[command, ("name", "\"base\"")], &[], entry)))
}

/// Returns a backend over HTTP.
fn of_http() -> String {
    backend(Some(("url", "\"http://base\"")))
}

/// A budget of five units, for seven calls.
fn budget(table: &str, entry: Option<(&str, &str)>) -> String {
    let limit = [("name", "\"base\""), ("limit", "5")];
    let limit_of = |entries: &[_], entry| {
        let entries = replaced(entries, &[], entry).into_iter();
        let entries: Vec<_> = entries.map(|(key, value)| format!("{key} = {value}")).collect();
        format!("[{{ {} }}]", entries.join(", "))
    };
    let base = limit_of(&limit, None);
    let cost = limit_of(&[&limit[..], &[("count", "\"cost\"")]].concat(), None);
    let entries = match table {
        "budget" => match entry {
            Some(("store" | "when_away" | "lease", _)) => {
                let redis = "[redis]\nurl = \"redis://127.0.0.1:1\"\n[budget]\n";
                let entries = replaced(&[("store", "\"redis\"")], &[], entry);
                return format!("{redis}{}", lines(entries));
            }
            Some(("costs", _)) => replaced(&[("limits", &cost)], &[], entry),
            _ => replaced(&[("limits", &base)], &[], entry),
        },
        "budget.limits" => {
            return format!("[[budget.limits]]\n{}", lines(replaced(&limit, &[], entry)));
        }
        "refill" => {
            let refill = limit_of(&[("every", "\"7s\"")], entry);
            let refill = refill.trim_matches(['[', ']']);
            let limit = limit_of(&limit, Some(("refill", refill)));
            return format!("[budget]\nlimits = {limit}\n");
        }
        _ => {
            let base = [("tools", "[\"search\"]"), ("cost", "2")];
            let costs = limit_of(&base, entry);
            return format!("[budget]\nlimits = {cost}\ncosts = {costs}\n");
        }
    };
    format!("[budget]\n{}", lines(entries))
}

fn alias(entry: Option<(&str, &str)>) -> String {
    let base = [("tool", "\"erase\""), ("name", "\"found\"")];
    let entries = match entry {
        Some(("from" | "prompt" | "resource", _)) => replaced(&base, &["tool"], entry),
        Some(("to", _)) => replaced(&base, &["name"], entry),
        Some(("uri", _)) => {
            let base = [("resource", "\"file:///a\"")];
            replaced(&base, &[], entry)
        }
        _ => replaced(&base, &[], entry),
    };
    format!("[[aliases]]\n{}", lines(entries))
}

/// Returns the entries without some of them, and with another value of one, or one more.
fn replaced<'e>(
    base: &[(&'e str, &'e str)],
    without: &[&str],
    entry: Option<(&'e str, &'e str)>,
) -> Vec<(&'e str, &'e str)> {
    let is_removed =
        |key: &str| without.contains(&key) || entry.is_some_and(|(name, _)| name == key);
    base.iter().copied().filter(|(key, _)| !is_removed(key)).chain(entry).collect()
}

fn lines<'e>(entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> String {
    entries.into_iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

/// Returns the keys that the error for an unknown key lists for a table.
fn keys_of(table: &str) -> BTreeSet<String> {
    // With an unknown tag, the keys of all its values are expected.
    let value = match table {
        "composite_tools" => "1\nstrategy = \"none\"",
        "steps" => "1\ntype = \"none\"",
        _ => "1",
    };
    let unknown = file(table, Some(("zzzzzzzzzzzzzzzz", value)));
    let error = Config::from_toml_str(&unknown).unwrap_err();
    let mut mistakes = error.mistakes().iter();
    let mistake = mistakes.find(|mistake| mistake.message().contains("zzzz")).unwrap();
    let (_, expected) = mistake.message().split_once("expected ").unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the configuration of a file, and the replies of its layers.
async fn seen(config: &Config) -> String {
    let mut seen = format!("{config:?}\n");
    seen += &gotten("stack", config.stack_layer().layer(service_fn(server))).await;
    for backend in config.backends() {
        seen += &gotten(backend.name(), backend.layer().layer(service_fn(server))).await;
    }
    for view in config.views() {
        let view = config.view(view.path()).unwrap();
        seen += &gotten("view", view.stack_layer().layer(service_fn(server))).await;
    }
    seen
}

/// Returns the replies to a fixed set of requests, one line each.
async fn gotten<S>(name: &str, service: S) -> String
where
    S: Service<Request, Response = Reply, Error = Infallible> + Clone,
{
    let mut gotten = String::new();
    for (what, method, list, key) in [
        ("lists", "tools/list", "tools", "name"),
        ("prompts", "prompts/list", "prompts", "name"),
        ("resources", "resources/list", "resources", "uri"),
        ("templates", "resources/templates/list", "resourceTemplates", "uriTemplate"),
    ] {
        let reply = service.clone().oneshot(request(method)).await.unwrap();
        let result = serde_json::to_value(reply.result().unwrap()).unwrap();
        let items = result[list].as_array().unwrap();
        let names: Vec<_> = items.iter().map(|item| item[key].as_str().unwrap()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        writeln!(gotten, "{name} {what} {names}").unwrap();
        for item in items {
            writeln!(gotten, "{item}").unwrap();
        }
    }
    let calls = [
        ("search", "search", json!({})),
        ("search 1", "search", json!({ "q": 1 })),
        ("search long", "search", json!({ "q": "x".repeat(101) })),
        ("search deep", "search", json!({ "q": "x", "more": [[[1]]] })),
        ("search query", "search", json!({ "query": "x" })),
        ("erase", "erase", json!({})),
        ("found all", "found", json!({ "id": "all" })),
    ];
    for (what, tool, arguments) in calls {
        let reply = service.clone().oneshot(call(tool, arguments)).await.unwrap();
        let answer = match (reply.tool_result(), reply.error()) {
            (Some(result), _) => match &result.structured_content {
                Some(Value::String(text)) => text.clone(),
                Some(report) => report.to_string(),
                None => result.content[0].as_text().unwrap().text.clone(),
            },
            (_, error) => error.unwrap().message.to_string(),
        };
        writeln!(gotten, "{name} {what}: {answer}").unwrap();
    }
    gotten
}

/// A server with three tools, a prompt, a resource and a template, whose tools return their calls.
async fn server(request: Request) -> Result<Reply, Infallible> {
    if let Some(tool) = request.tool_call() {
        let arguments = Value::from(tool.arguments.clone().unwrap_or_default());
        let mut result = CallToolResult::structured(json!(format!("{} {arguments}", tool.name)));
        result.meta = Some(MetaObject(object(json!({ "cost": 5 }))));
        return Ok(result.into());
    }
    let tool = |name: &'static str, argument: &str, hints: ToolAnnotations| {
        let properties = json!({ argument: { "type": "string" } });
        let schema = json!({ "type": "object", "properties": properties });
        Tool::new(name, name, object(schema)).with_annotations(hints)
    };
    Ok(match request.method() {
        "tools/list" => ListToolsResult::with_all_items(vec![
            tool("search", "q", ToolAnnotations::new().read_only(true)),
            tool("note", "text", ToolAnnotations::new().destructive(false)),
            tool("erase", "id", ToolAnnotations::new().destructive(true)),
        ])
        .into(),
        "prompts/list" => {
            let greet = Prompt::new("greet", Some("Greets"), None);
            result(ListPromptsResult::with_all_items(vec![greet]))
        }
        "resources/list" => {
            let resource = Resource::new("file:///a", "a");
            result(ListResourcesResult::with_all_items(vec![resource]))
        }
        "resources/templates/list" => {
            let template = ResourceTemplate::new("data:{id}", "data");
            result(ListResourceTemplatesResult::with_all_items(vec![template]))
        }
        method => Reply::method_not_found(method.to_owned()),
    })
}

fn result(result: impl Into<ServerResult>) -> Reply {
    result.into().into()
}

fn request(method: &str) -> Request {
    let request = json!({ "method": method, "params": {} });
    let request: ClientRequest = serde_json::from_value(request).unwrap();
    Request::new(request, Context::default())
}
