//! Hints for keys and values that come from the configuration formats of other programs.

use super::word::is_word;
use crate::{composite::Segment, suggest::plain};

/// A hint for a key that is valid in another program's configuration file, but not in this one. The
/// hint suggests the keys to write instead.
pub(super) struct Hint {
    /// The path of the table to which the hint applies, such as `["composite_tools", "steps"]`.
    /// Contains no array indices.
    table: &'static [&'static str],
    /// The keys of other programs that the hint recognizes, such as `mcpservers`. In lower case,
    /// without `_` and `-`.
    spellings: &'static [&'static str],
    /// The text of the hint, which is added to the error message.
    pub(super) text: &'static str,
    /// The keys that the hint suggests. If one of them is required but missing in the table, this
    /// is not reported as a second error.
    pub(super) keys: &'static [&'static str],
}

const VIEW: &[&str] = &["views"];
const BACKEND: &[&str] = &["backends"];
const STEP: &[&str] = &["composite_tools", "steps"];
const ON_ERROR: &[&str] = &["composite_tools", "steps", "on_error"];

const fn hint(
    table: &'static [&'static str],
    spellings: &'static [&'static str],
    text: &'static str,
) -> Hint {
    Hint { table, spellings, text, keys: &[] }
}

const HINTS: [Hint; 25] = [
    hint(
        VIEW,
        &[
            "auth",
            "backends",
            "caller",
            "flow",
            "flowsession",
            "include",
            "redis",
            "router",
            "state",
            "vars",
            "views",
        ],
        "all views share it: write it outside of `[[views]]`",
    ),
    hint(
        &[],
        &["mcpservers", "servers", "mcp"],
        "write each server as `[[backends]]`, with `name`, and `command` and `args`, or `url`",
    )
    .instead(&["backends"]),
    hint(
        &[],
        &["proxy"],
        "write `separator` in `[router]` and `tool_exposure` as `mode` in `[advertise]`; \
         name, version and address are given to the program",
    ),
    hint(&[], &["security"], "write `max_argument_size` as `max_argument_bytes` in `[validate]`"),
    hint(
        &[],
        &["incomingauth", "outgoingauth"],
        "`[auth]` authenticates callers over HTTP; backends get `headers`",
    ),
    hint(
        &["auth"],
        &["type"],
        "write `[auth.jwt]` for access tokens, or `[[auth.tokens]]` with `caller` and \
         `token` for each static token",
    ),
    hint(&[], &["performance"], "write `[[cache]]` to cache the results of read-only tools"),
    hint(
        &[],
        &["observability", "telemetry", "logging"],
        "use options and environment variables: `--metrics` and `--log-format` of the program, \
         `RUST_LOG`, and `OTEL_EXPORTER_OTLP_ENDPOINT` for spans",
    ),
    hint(
        &[],
        &["aggregation"],
        "write `conflictResolution` as `conflicts` in `[router]`, `filter` as `allow` in \
         `[advertise]`, and `overrides` as `[[backends.aliases]]`",
    ),
    hint(&[], &["compositetoolrefs"], "write `include = [\"workflows/*.toml\"]`")
        .instead(&["include"]),
    hint(BACKEND, &["type"], "write `transport`, or leave it out").instead(&["transport"]),
    hint(BACKEND, &["bearertoken", "token"], "write `headers = { Authorization = \"Bearer …\" }`")
        .instead(&["headers"]),
    hint(
        BACKEND,
        &["paramoverrides", "defaultargs", "injectargs", "overrides"],
        "write `[[backends.aliases]]`, with `arguments`",
    )
    .instead(&["aliases"]),
    hint(
        BACKEND,
        &["filter"],
        "write `expose_tools` or `hide_tools`, or `allow` in `[advertise]` if composites call \
         tools that clients cannot",
    ),
    hint(
        BACKEND,
        &["retry"],
        "write `on_error = \"retry\"` at the step of a composite: not every call may be \
         repeated",
    ),
    hint(BACKEND, &["failoverfor", "priority"], "write a composite with `strategy = \"fallback\"`"),
    hint(
        BACKEND,
        &["ratelimit"],
        "write `[[budget.limits]]` with `refill`, and the tools of the backend as `tools`",
    ),
    hint(
        BACKEND,
        &["concurrency", "circuitbreaker", "outlierdetection", "hedging"],
        "put a Tower layer around the backend, in code",
    ),
    hint(
        BACKEND,
        &["cache"],
        "write `[[cache]]`, with the tools of the backend as `tools`, and `ttl`",
    ),
    hint(
        BACKEND,
        &["mirrorof", "mirrorpercent", "canaryof", "weight"],
        "calls are neither mirrored nor divided between backends",
    ),
    hint(BACKEND, &["disabled", "enabled"], "leave out a backend that is not used"),
    hint(STEP, &["step"], "write `tool` and `arguments` of the loop at the step itself")
        .instead(&["tool", "arguments"]),
    hint(STEP, &["items", "foreach", "over"], "write `collection`, with `type = \"for_each\"`")
        .instead(&["collection"]),
    hint(ON_ERROR, &["retrydelay", "backoff"], "write `delay`").instead(&["delay"]),
    hint(ON_ERROR, &["retries", "maxretries", "count", "attempts"], "write `retry_count`")
        .instead(&["retry_count"]),
];

/// Maps valid values to their synonyms: words that users often write by mistake instead of the
/// valid value.
const SYNONYMS: [(&str, &[&str]); 7] = [
    ("elicitation", &["approval", "approve", "ask", "confirm", "confirmation", "human"]),
    ("for_each", &["loop", "map"]),
    ("repeat", &["loopuntil", "paginate", "poll", "until", "wait", "while"]),
    ("switch", &["branch", "case", "choice", "if"]),
    ("value", &["assign", "compute", "const", "let", "set", "transform", "variable"]),
    ("stop", &["end", "exit", "fail", "finish", "return"]),
    ("http", &["sse", "streamablehttp"]),
];

/// The error hint for a server that is configured with a WebSocket URL or transport, which MCP does
/// not support.
const WEB_SOCKET: &str = "MCP has no transport over WebSockets: write the `http://` or `https://` \
                    URL of the server, or connect it in code with `RemoteService`";

// === impl Hint ===

impl Hint {
    /// Sets the keys that the hint suggests.
    const fn instead(self, keys: &'static [&'static str]) -> Self {
        Self { keys, ..self }
    }
}

/// Returns the hint for the unknown key `key` in the table at `table`. Returns `None` if no hint
/// applies.
pub(super) fn of_key(table: &[Segment], key: &str) -> Option<&'static Hint> {
    let table = table.iter().filter_map(|segment| match segment {
        Segment::Key(key) => Some(key.as_str()),
        Segment::Index(_) => None,
    });
    let key = plain(key);
    let find = |table: &[&str]| {
        HINTS.iter().find(|hint| hint.spellings.contains(&key.as_str()) && hint.table == table)
    };
    let table: Vec<_> = table.collect();
    // A view has the same sections as the file.
    let in_view = table.strip_prefix(VIEW);
    find(&table).or_else(|| find(in_view?))
}

/// Returns the word in `expected` for which `word` is a known synonym.
pub(super) fn synonym<'e>(word: &str, expected: &[&'e str]) -> Option<&'e str> {
    let word = plain(word);
    let (value, _) = SYNONYMS.iter().find(|(_, words)| words.contains(&word.as_str()))?;
    expected.iter().copied().find(|expected| expected == value)
}

/// Returns a hint for the invalid value `word`. `expected` contains the valid values.
pub(super) fn of_value(word: &str, expected: &[&str]) -> Option<&'static str> {
    let is_web_socket = ["websocket", "ws", "wss"].contains(&plain(word).as_str());
    (is_web_socket && expected.contains(&"http")).then_some(WEB_SOCKET)
}

/// Returns a hint for an invalid server URL.
pub(super) fn of_url(url: &str) -> Option<&'static str> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("ws" | "wss")).then_some(WEB_SOCKET)
}

/// Returns a hint for an array of tables (`[[name]]`) at `path`, where the configuration requires a
/// single table (`[name]`).
pub(super) fn of_array(path: &[Segment]) -> Option<String> {
    let (in_view, path) = match path {
        [Segment::Key(section), Segment::Index(_), path @ ..] if *section == VIEW[0] => {
            ("views.", path)
        }
        path => ("", path),
    };
    let keys = path.iter().map(|segment| match segment {
        Segment::Key(key) if is_word(key) => Some(key.as_str()),
        _ => None,
    });
    let path = keys.collect::<Option<Vec<_>>>()?.join(".");
    Some(match path.as_str() {
        "" => return None,
        "budget" => format!("write `[[{in_view}budget.limits]]` for each limit"),
        path => format!("write `[{in_view}{path}]`"),
    })
}

/// Returns the byte offset of the first `{`, if the text seems to be JSON instead of TOML.
pub(super) fn start_of_json(text: &str) -> Option<usize> {
    let at = text.len() - text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).len();
    text[at..].starts_with('{').then_some(at)
}

/// Returns the error message for a file that contains JSON instead of TOML.
pub(super) fn json(text: &str) -> String {
    let servers = match text.contains("\"mcpServers\"") || text.contains("\"servers\"") {
        true => {
            ", and each server as `[[backends]]`, with `name`, and `command` and `args`, or `url`"
        }
        false => "",
    };
    format!("this is JSON: write it as TOML{servers}")
}

/// Returns the error message for a `command` value that contains arguments in addition to the
/// program. The message quotes only the program, because the arguments may be secret.
pub(super) fn command_line(command: &str) -> String {
    let program = command.split_whitespace().next().filter(|program| is_word(program));
    let program = program.map(|program| format!(", as in `command = \"{program}\"`"));
    format!(
        "`command` is a program without its arguments{}: write these as `args`, each as a text of \
         its own",
        program.unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    /// Adds the names of all members of the objects that `schema` describes.
    fn add_keys<'s>(schema: &'s Value, keys: &mut BTreeSet<&'s str>) {
        let properties = schema.get("properties").and_then(Value::as_object);
        keys.extend(properties.into_iter().flatten().map(|(key, _)| key.as_str()));
        match schema {
            Value::Object(members) => members.values().for_each(|it| add_keys(it, keys)),
            Value::Array(elements) => elements.iter().for_each(|it| add_keys(it, keys)),
            _ => (),
        }
    }

    #[test]
    fn hints_name_only_keys_that_exist() {
        let schema = include_str!("mcp-composite.schema.json");
        let schema: Value = serde_json::from_str(schema).unwrap();
        let mut keys = BTreeSet::new();
        add_keys(&schema, &mut keys);
        let mut names = 0;
        for Hint { text, .. } in HINTS {
            let mut parts = text.split('`');
            while let (Some(_), Some(code)) = (parts.next(), parts.next()) {
                let is_of_other_program = parts.clone().next().unwrap().starts_with(" as ");
                let is_option = code.starts_with("--") || code.chars().any(char::is_uppercase);
                if is_of_other_program || (is_option && !code.contains('=')) {
                    continue;
                }
                let key = code.split(" = ").next().unwrap();
                for key in key.trim_matches(['[', ']']).split('.') {
                    assert!(keys.contains(key), "`{key}` in: {text}");
                    names += 1;
                }
            }
        }
        assert!(names > 40, "{names}");
    }
}
