//! Hints for users who write the keys or values that another program's configuration file uses.

use super::word::is_word;
use crate::{composite::Segment, suggest::plain};

/// A hint for a key that another program's configuration file uses. The hint names the keys to
/// write instead.
pub(super) struct Hint {
    /// The path of the table in which users write the other program's key, without array indices.
    table: &'static [&'static str],
    /// The spellings of the other program's key in lower case, without `_` and `-`.
    spellings: &'static [&'static str],
    /// The text of the hint, which is added to the error message.
    pub(super) text: &'static str,
    /// The keys to write instead. If they are missing from the table, this is not reported as
    /// another error.
    pub(super) keys: &'static [&'static str],
}

const VIEW: &[&str] = &["views"];
const BACKEND: &[&str] = &["backends"];
const STEP: &[&str] = &["composite_tools", "steps"];
const ON_ERROR: &[&str] = &["composite_tools", "steps", "on_error"];

const HINTS: [Hint; 24] = [
    Hint {
        table: VIEW,
        spellings: &["auth", "backends", "caller", "include", "redis", "router", "state", "views"],
        text: "all views share it: write it outside of `[[views]]`",
        keys: &[],
    },
    Hint {
        table: &[],
        spellings: &["mcpservers", "servers", "mcp"],
        text: "write each server as `[[backends]]`, with `name`, and `command` and `args`, or `url`",
        keys: &["backends"],
    },
    Hint {
        table: &[],
        spellings: &["proxy"],
        text: "write `separator` in `[router]` and `tool_exposure` as `mode` in `[advertise]`; \
               name, version and address are given to the program",
        keys: &[],
    },
    Hint {
        table: &[],
        spellings: &["security"],
        text: "write `max_argument_size` as `max_argument_bytes` in `[validate]`",
        keys: &[],
    },
    Hint {
        table: &[],
        spellings: &["incomingauth", "outgoingauth"],
        text: "`[auth]` authenticates callers over HTTP; backends get `headers`",
        keys: &[],
    },
    Hint {
        table: &["auth"],
        spellings: &["type"],
        text: "write `[auth.jwt]` for access tokens, or `[[auth.tokens]]` with `caller` and \
               `token` for each static token",
        keys: &[],
    },
    Hint {
        table: &[],
        spellings: &["performance", "cache"],
        text: "results are neither cached nor shared between calls",
        keys: &[],
    },
    Hint {
        table: &[],
        spellings: &["observability", "telemetry", "logging"],
        text: "logs, spans and metrics are set up in code",
        keys: &[],
    },
    Hint {
        table: &[],
        spellings: &["aggregation"],
        text: "write `conflictResolution` as `conflicts` in `[router]`, `filter` as `allow` in \
               `[advertise]`, and `overrides` as `[[backends.aliases]]`",
        keys: &[],
    },
    Hint {
        table: &[],
        spellings: &["compositetoolrefs"],
        text: "write `include = [\"workflows/*.toml\"]`",
        keys: &["include"],
    },
    Hint {
        table: BACKEND,
        spellings: &["type"],
        text: "write `transport`, or leave it out",
        keys: &["transport"],
    },
    Hint {
        table: BACKEND,
        spellings: &["bearertoken", "token"],
        text: "write `headers = { Authorization = \"Bearer …\" }`",
        keys: &["headers"],
    },
    Hint {
        table: BACKEND,
        spellings: &["paramoverrides", "defaultargs", "injectargs", "overrides"],
        text: "write `[[backends.aliases]]`, with `arguments`",
        keys: &["aliases"],
    },
    Hint {
        table: BACKEND,
        spellings: &["filter"],
        text: "write `hide_tools`, or `allow` in `[advertise]` if composites call tools that \
               clients cannot",
        keys: &[],
    },
    Hint {
        table: BACKEND,
        spellings: &["retry"],
        text: "write `on_error = \"retry\"` at the step of a composite: not every call may be \
               repeated",
        keys: &[],
    },
    Hint {
        table: BACKEND,
        spellings: &["failoverfor", "priority"],
        text: "write a composite with `strategy = \"fallback\"`",
        keys: &[],
    },
    Hint {
        table: BACKEND,
        spellings: &["concurrency", "ratelimit"],
        text: "write `[[budget.limits]]`, or put a Tower layer around the backend",
        keys: &[],
    },
    Hint {
        table: BACKEND,
        spellings: &["circuitbreaker", "outlierdetection", "hedging"],
        text: "put a Tower layer around the backend",
        keys: &[],
    },
    Hint {
        table: BACKEND,
        spellings: &["cache", "mirrorof", "mirrorpercent", "canaryof", "weight"],
        text: "results are not cached, and calls are neither mirrored nor divided",
        keys: &[],
    },
    Hint {
        table: BACKEND,
        spellings: &["disabled", "enabled"],
        text: "leave out a backend that is not used",
        keys: &[],
    },
    Hint {
        table: STEP,
        spellings: &["step"],
        text: "write `tool` and `arguments` of the loop at the step itself",
        keys: &["tool", "arguments"],
    },
    Hint {
        table: STEP,
        spellings: &["items", "foreach", "over"],
        text: "write `collection`, with `type = \"for_each\"`",
        keys: &["collection"],
    },
    Hint {
        table: ON_ERROR,
        spellings: &["retrydelay", "backoff"],
        text: "write `delay`",
        keys: &["delay"],
    },
    Hint {
        table: ON_ERROR,
        spellings: &["retries", "maxretries", "count", "attempts"],
        text: "write `retry_count`",
        keys: &["retry_count"],
    },
];

/// Maps each valid value to the synonyms that users may write instead of it.
const SYNONYMS: [(&str, &[&str]); 6] = [
    ("elicitation", &["approval", "approve", "ask", "confirm", "confirmation", "human"]),
    ("for_each", &["loop", "map"]),
    ("switch", &["branch", "case", "choice", "if"]),
    ("value", &["assign", "compute", "const", "let", "set", "transform", "variable"]),
    ("stop", &["end", "exit", "fail", "finish", "return"]),
    ("http", &["sse", "streamablehttp"]),
];

/// The hint for the URL or transport of a server that uses WebSockets.
const WEB_SOCKET: &str = "MCP has no transport over WebSockets: write the `http://` or `https://` \
                          URL of the server, or connect it in code with `RemoteService`";

/// Returns the hint for the invalid key `key` in the table at `table`. Returns `None` if there is
/// no hint for this key.
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

/// Returns the value in `expected` that has `word` as a synonym.
pub(super) fn synonym<'e>(word: &str, expected: &[&'e str]) -> Option<&'e str> {
    let word = plain(word);
    let (value, _) = SYNONYMS.iter().find(|(_, words)| words.contains(&word.as_str()))?;
    expected.iter().copied().find(|expected| expected == value)
}

/// Returns a hint for the invalid value `word`, where one of the values in `expected` is required.
pub(super) fn of_value(word: &str, expected: &[&str]) -> Option<&'static str> {
    let is_web_socket = ["websocket", "ws", "wss"].contains(&plain(word).as_str());
    (is_web_socket && expected.contains(&"http")).then_some(WEB_SOCKET)
}

/// Returns a hint for an invalid server URL.
pub(super) fn of_url(url: &str) -> Option<&'static str> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("ws" | "wss")).then_some(WEB_SOCKET)
}

/// Returns the hint for a file that contains an array of tables at `path` where a single table is
/// required.
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

/// Returns the offset of the opening brace if the text seems to be JSON instead of TOML.
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
/// program.
///
/// The message quotes only the program, because the arguments may be secret.
pub(super) fn command_line(command: &str) -> String {
    let program = command.split_whitespace().next().filter(|program| is_word(program));
    let program = program.map(|program| format!(", as in `command = \"{program}\"`"));
    format!(
        "`command` is a program without its arguments{}: write these as `args`, each as a text of \
         its own",
        program.unwrap_or_default(),
    )
}
