//! Configuration of backends, layers and composite tools in a TOML file.
//!
//! A file has the following sections, all of them optional:
//!
//! - [`[[composite_tools]]`](#composite-tools): tools composed of other tools,
//!   [`[limits]`](#pipelines-and-workflows) of their calls,
//!   [`[progress]`](#pipelines-and-workflows) notifications, and [`[state]`](#state), the store of
//!   runs that wait for user input;
//! - [`[[backends]]` and `[router]`](#backends): the servers, and how they are merged into one;
//! - [`[validate]`, `[filter]`, `[[aliases]]`, `[advertise]`](#layers): validation, filtering,
//!   renaming and advertising of tools, prompts and resources;
//! - [`include`](#several-files): more composites, from other files.
//!
//! [`Config::stack_layer`] builds the layers of all sections except the servers, in their [fixed
//! order](crate::stack).
//!
//! # Composite tools
//!
//! ```toml
//! [[composite_tools]]
//! name = "search_all"                          # required
//! description = "Search everywhere"            # required
//! title = "Search"
//! input_schema = { type = "object" }           # or `parameters`; else derived from the targets
//! output_schema = { type = "object" }          # else it describes the report
//! annotations = { readOnlyHint = true }        # as in MCP; what is left open is derived
//! timeout = "30s"                              # of the whole run
//! strategy = "parallel"                        # "sequential", "race", "fallback"
//! success = "all"                              # "any", { quorum = 2 }
//! order = "declared"                           # "completion"
//! report = true
//! labels = "text"                              # "meta": branches are named in `_meta` only
//! max_parallel = 4
//! tools = ["github_search", "docs_search"]     # each is called with the input
//! ```
//!
//! Instead of `tools`, each target can have its own settings:
//!
//! ```toml
//! [[composite_tools]]
//! name = "search_all"
//! description = "Search everywhere"
//!
//! [[composite_tools.targets]]
//! tool = "github_search"                       # required
//! id = "code"                                  # else the tool's name
//! arguments = { q = "$input.query", limit = 5 }
//! timeout = "5s"
//! optional = true
//! ```
//!
//! The keys are documented at the setters of the same names of
//! [`CompositeTool`](crate::composite::CompositeTool) and [`Target`](crate::composite::Target), and
//! references in `arguments` in [`expr`](crate::expr).
//!
//! # Pipelines and workflows
//!
//! ```toml
//! [[composite_tools]]
//! name = "research"
//! description = "Research a topic"
//! strategy = "workflow"                        # "pipeline"
//! max_calls = 50                               # of a run; also `max_result_bytes`
//! max_cost = 1000                              # of all calls of a run
//! on_limit = "partial"                         # "fail"
//! strict = true                                # what looks like a reference is one
//! max_parallel = 10                            # of a workflow
//!
//! [[composite_tools.steps]]
//! id = "search"                                # required
//! tool = "web_search"                          # required
//! arguments = { query = "$input.topic", limit = 5 }
//! timeout = "30s"                              # of each attempt
//! on_error = { action = "retry", retry_count = 3, delay = "1s", max_delay = "60s", then = "abort" }
//! parse = "json"
//!
//! [[composite_tools.steps]]
//! id = "read"
//! type = "for_each"                            # "tool", "switch", "elicitation"
//! condition = "steps.search.output.hits | length > 0"
//! collection = "$steps.search.output.hits"     # required
//! item_var = "hit"                             # else `item`
//! max_parallel = 10
//! max_iterations = 100
//! tool = "read_page"
//! arguments = { url = "$hit.url", title = "{{ index }}: {{ hit.title }}" }
//! on_error = "continue"                        # "abort", "retry"
//! default_results = { completed = 0 }
//!
//! [[composite_tools.steps]]
//! id = "tell"
//! type = "switch"
//! depends_on = ["read"]
//! cases = [{ when = "input.mail is defined", tool = "send_mail", arguments = { to = "$input.mail" } }]
//! default = "skip"                             # or a `tool` and its `arguments`
//!
//! [[composite_tools.steps]]
//! id = "ask"
//! type = "elicitation"
//! condition = "input.mail is undefined"
//! message = "Keep the {{ steps.read.output.completed }} pages on {{ input.topic }}?"
//! schema.properties.folder = { type = "string", title = "Folder", default = "inbox" }
//! timeout = "10m"                              # to answer
//! on_decline = "continue"                      # "abort", "skip_remaining"
//! on_cancel = "continue"                       # the same
//!
//! [composite_tools.output]
//! required = ["pages"]
//! properties.pages = { type = "integer", description = "How many", value = "$steps.read.output.completed" }
//! properties.top = { type = "object", description = "The best", properties = { url = { type = "string", description = "Where", value = "$steps.search.output.hits[0].url", default = "" } } }
//!
//! [limits]                                     # of one call of a composite
//! max_calls = 10000
//! max_result_bytes = 4194304
//! max_rounds = 10
//!
//! [progress]                                   # for clients that want to know of it
//! heartbeat = "15s"                            # while nothing moves; "0s": never
//! ```
//!
//! The keys of steps are documented in [`composite`](crate::composite#pipelines-and-workflows).
//!
//! # State
//!
//! ```toml
//! [state]                                      # of runs that wait for a person
//! store = "signed"                             # their clients; "memory": this process; "redis"
//! keys = [{ id = "2026-11", key = "${STATE_KEY}" }] # the first signs; else one of this process
//! ttl = "1h"                                   # how long they may wait
//! max_state_bytes = 65536                      # of one; in memory 4194304, if left out
//!
//! [caller]
//! header = "x-forwarded-user"                  # who calls; no other goes on with a run
//! ```
//!
//! [`store`](crate::store) describes the stores and key rotation. With `store = "memory"` there are
//! no `keys`, but `max_total_bytes`, the maximum total size of all states (67108864 by default).
//! With `store = "redis"` there are neither: states are kept by the server of
//! [`[redis]`](#what-replicas-share). With both, and with a `[caller]`, the states of one caller
//! take at most `max_caller_bytes`, which defaults to a quarter of `max_total_bytes` in memory, and
//! to 16777216 in Redis.
//!
//! The text of a `key` is the key itself, of at least 32 bytes: neither base64 nor hex is decoded.
//! As in [backends](#backends), `${VAR}` is an environment variable, and its value never appears in
//! mistakes or `Debug` output. Without `keys`, waiting runs do not survive a restart, and no other
//! process can resume them.
//!
//! The `header` of `[caller]` is an HTTP header that a proxy in front of this process must set, and
//! *remove from the requests of clients*. It needs the feature `http`. Without it, or for requests
//! without the header, all clients are the same caller. With it, the subscriptions, sessions and
//! open requests of each caller are [limited](crate::guide::limits), and all requests without the
//! header count as one caller.
//!
//! # Budgets and results
//!
//! ```toml
//! [[budget.limits]]
//! name = "searches"                            # required; told to who is refused
//! count = "calls"                              # "bytes" of results, "cost"
//! limit = 1000                                 # required
//! tools = ["github_*"]                         # all, if left out
//! per = "caller"                               # "run", "global"
//! refill = { amount = 100, every = "1m" }      # all of it, without an `amount`
//!
//! [[budget.costs]]                             # else 1; the first that names a tool counts
//! tools = ["ask_*"]                            # required
//! cost = 500                                   # required; what is reserved
//! actual = "/_meta/usage/total_tokens"         # where a result tells what it was
//!
//! [truncate]
//! max_result_bytes = 65536                     # what is larger is shortened
//!
//! [results]                                    # keeps whole what is shortened
//! store = "memory"                             # "redis"
//! ttl = "10m"
//! max_result_bytes = 16777216                  # of one
//! max_total_bytes = 67108864                   # of all, in memory
//! max_caller_bytes = 67108864                  # of one caller, if there is a `[caller]`
//!
//! [[redactions]]
//! tools = ["users_*"]                          # required
//! remove = ["/users/*/email"]                  # or `only`: what alone is left
//! keep_texts = false                           # that are no JSON
//! ```
//!
//! The sections are documented in [`budget`](crate::budget), [`truncate`](crate::truncate) and
//! [`redact`](crate::redact). Budgets and redactions use the names of the router, like `[filter]`:
//! with the prefix of the backend and after its own aliases. They apply below `[[aliases]]`, so
//! they hold under every name that these define. A pattern that matches no tool is reported in the
//! log and by `gateway --check`.
//!
//! In memory, `[budget]` may have `max_callers`, the maximum number of callers per budget whose
//! balance is kept. It defaults to 100000.
//!
//! # What replicas share
//!
//! ```toml
//! [redis]                                      # or Valkey
//! url = "redis://:${REDIS_PASSWORD}@cache:6379" # required
//! prefix = "mcp-composite"                     # of all keys
//! timeout = "1s"                               # of one command
//!
//! [budget]
//! store = "redis"                              # "memory": each process has its own
//! when_away = "refuse"                         # "admit": nothing is counted then
//! lease = "10m"                                # what a replica that dies gives back; longer than calls
//! ```
//!
//! It needs the feature `redis`, whose [docs](crate::redis) describe the requirements on the
//! server. `[state]` and `[results]` can be stored there, too. As in `keys`, `${VAR}` is an
//! environment variable, and the `url` never appears in logs, errors or `Debug` output.
//!
//! # Backends
//!
//! ```toml
//! [router]
//! separator = "_"                              # 1 to 8 characters, also "/"
//! conflicts = "prefix"                         # "priority", "manual"
//!
//! [[backends]]
//! name = "github"                              # required
//! transport = "stdio"                          # what else has a `command`
//! command = "${HOME}/bin/github-mcp"           # required
//! args = ["--read-only"]
//! env = { GITHUB_TOKEN = "${GITHUB_TOKEN}" }
//! cwd = "/srv"
//! timeout = "60s"                              # of one call
//! connect_timeout = "30s"
//! elicitation = true                           # whether it may ask callers for input
//! prefix = "gh_"                               # else `name` and `separator`
//!
//! [[backends]]
//! name = "docs"
//! transport = "http"                           # what else has a `url`
//! url = "https://docs.example/mcp"             # required
//! headers = { Authorization = "Bearer ${DOCS_TOKEN}" }
//! ```
//!
//! `${VAR}` in `command`, `args`, `cwd`, `url`, and the values of `env` and `headers` is replaced
//! by an environment variable. Directly before a `{`, each `$$` is a literal `$`, so `$${VAR}` is
//! the text `${VAR}`, and `$$${VAR}` is a `$` and the variable; elsewhere a `$` is literal. The
//! value of a variable is not expanded again. A variable that is not set is a mistake, an empty one
//! is not.
//!
//! The values of `env` and `headers`, all of a `url` except its server, and the values of variables
//! are secret. They never appear in mistakes or `Debug` output, and [`BackendConfig::secrets`]
//! removes them from the output of a backend. [Defaults of arguments](#layers) do not appear
//! either. In the displayed line of a mistake, `***` replaces everything that may be secret; if the
//! file is not valid TOML, that is nearly everything. An unknown key is displayed if it is a plain
//! word of at most 64 letters, digits, `_` and `-`; others may be fragments of a value.
//!
//! `Config::connect` connects the backends and returns a [`Router`](crate::adapter::Router) over
//! them. It exists with the features `stdio` and `http`, and so do the transports.
//!
//! With backends, a target of a composite is one of the following:
//!
//! - the name of another composite;
//! - `github/search` or `github.search`, with any router separator: the tool `search` of the
//!   backend `github`;
//! - the name that clients see, such as `gh_search`.
//!
//! In the second form, the tool has its name on the backend, or else an alias of the backend. In
//! the last form, it has the name that clients see; if that name was changed by an alias, the
//! mistake suggests the new name.
//!
//! The forms are tried in this order. If a target begins both with a backend's name and with a
//! prefix, the longer of the two applies, and the prefix if they are equally long. The target is
//! then replaced by the name that clients see. A target that can be none of these is a mistake.
//! Without backends, every name is kept.
//!
//! A target such as `github.search` is the tool of the backend even if a composite has the name
//! that clients see for this tool. If the two spellings are equal, as with the separator `/`,
//! `github.search` is the tool.
//!
//! With `conflicts = "priority"` or `"manual"`, tools have no prefix, so any name can be a tool,
//! and belongs to the backend that it is routed to. With several backends, a backend cannot be
//! selected, so targets such as `github/search` are mistakes.
//!
//! # Layers
//!
//! ```toml
//! [validate]
//! max_argument_bytes = 65536                   # of a request; 4 MiB, if not set
//! max_depth = 16                               # of arrays and objects in it
//! schema = "off"                               # "warn", "strict"
//!
//! [filter]
//! expose_tools = ["github_*"]                  # nothing else; all, if left out
//! hide_tools = ["*_delete_*"]                  # whatever is exposed
//! expose_prompts = ["github_review"]
//! hide_prompts = ["*_draft"]
//! expose_resources = ["file:///srv/*"]         # by their URIs
//! hide_resources = ['re:.*\.key']
//! expose_resource_templates = ["file:///{path}"]
//! hide_resource_templates = ["git://*"]
//! read_only_only = true                        # only tools that say that they change nothing
//! hide_destructive = true                      # only tools that say that they destroy nothing
//!
//! [[aliases]]
//! tool = "github_search_code"                  # or `from`
//! name = "search_code"                         # or `to`
//! title = "Search code"
//! description = "Searches the code of our organisation"
//! annotations = { readOnlyHint = true }        # as in MCP; your claim about the tool
//!
//! [aliases.arguments]
//! q = { rename = "query", description = "What to search for" }
//! limit = { default = 20 }                     # if the client does not say
//! api_key = { hide = true, default = "…" }     # always
//!
//! [[aliases]]
//! prompt = "github_review"
//! name = "review"                              # also `title`, `description`
//!
//! [[aliases]]
//! resource = "file:///srv/readme.md"           # or a template of URIs
//! uri = "docs:///readme.md"
//! name = "readme"                              # also `title`, `description`
//!
//! [advertise]
//! allow = ["search_*"]                         # besides composites; all, if left out
//! deny = ["search_users"]                      # whatever is allowed
//! calls = "refuse"                             # "allow": not listed, but callable
//! mode = "list"                                # "search": two tools to find and call them
//! ```
//!
//! The keys are documented in [`limit`](crate::limit), [`validate`](crate::validate),
//! [`filter`](crate::filter), [`alias`](crate::alias) and [`advertise`](crate::advertise). The
//! elements of lists are [patterns](crate::pattern): texts, globs and regular expressions. An empty
//! list of exposed or allowed items allows nothing. The same text in both lists is a mistake.
//!
//! With `deny = ["*"]` in `[advertise]`, only the composites are advertised, since they can only be
//! denied by their exact names.
//!
//! A backend can have all keys of `[filter]`, the table `validate`, and `aliases`:
//!
//! ```toml
//! [[backends]]
//! name = "github"
//! command = "github-mcp"
//! hide_tools = ["delete_*"]
//! validate = { schema = "strict" }
//!
//! [[backends.aliases]]
//! from = "search_code"
//! to = "search"
//! ```
//!
//! They use the backend's own names, without its prefix; `[filter]` and `[validate]` use the names
//! of the router. So the `hide_tools` above are `github_delete_*` in `[filter]`. `[[aliases]]` map
//! the names of the router to the names that clients see: the tool above is `github_search` there,
//! and its new name has no prefix. `[advertise]` and composites use the names that clients see.
//!
//! The default of an argument may be secret, such as a key for the server. Defaults never appear in
//! mistakes or `Debug` output. The server receives them unchanged, and its output is not redacted.
//!
//! # Several files
//!
//! ```toml
//! include = ["workflows/*.toml"]               # relative to this file
//! ```
//!
//! adds the composites of other files after those of this file, in the order of `include`, and
//! sorted by name for a pattern. The files contain only `[[composite_tools]]`, whose targets follow
//! the same rules as in this file. A file that is found twice is read once. A pattern without
//! matches is not a mistake, a missing path is. [`Config::sources`] detects changes of these files.
//!
//! # Mistakes
//!
//! A file is accepted as a whole or not at all. All mistakes are reported at once, each with its
//! line and column. Unknown keys are mistakes. An empty file has no backends and no composites.
//!
//! With [`Config::JSON_SCHEMA`], editors report some of them while you write.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::config::Config;
//!
//! let config = Config::from_toml_str(
//!     r#"
//! [[composite_tools]]
//! name = "search_all"
//! description = "Search everywhere"
//! tools = ["github_search", "docs_search"]
//! "#,
//! )?;
//! assert_eq!(config.composite_tools().len(), 1);
//! let layer = config.composite_layer();
//! # drop(layer);
//!
//! let error = Config::from_toml_str(
//!     r#"
//! [[composite_tools]]
//! name = "search all"
//! description = "Search everywhere"
//! tols = ["github_search", "docs_search"]
//! tools = ["github_search"]
//! "#,
//! )
//! .unwrap_err();
//! let [name, key] = error.mistakes() else { panic!("{error}") };
//! assert_eq!((name.path(), name.line(), name.column()), ("composite_tools[0].name", 3, 8));
//! assert_eq!((key.path(), key.line(), key.column()), ("composite_tools[0].tols", 5, 1));
//! assert!(key.message().starts_with("unknown key `tols`: did you mean `tools`?"));
//! # Ok::<(), mcp_composite::config::ConfigError>(())
//! ```
//!
//! Backends, and targets that refer to them:
//!
//! ```
//! use mcp_composite::config::{Config, Transport};
//!
//! let text = r#"
//! [[backends]]
//! name = "docs"
//! url = "https://docs.example/mcp"
//! headers = { Authorization = "Bearer ${DOCS_TOKEN}" }
//!
//! [[composite_tools]]
//! name = "look_up"
//! description = "Search the docs"
//! tools = ["docs/search"]
//! "#;
//! let token = |name: &str| (name == "DOCS_TOKEN").then(|| "hunter2".to_owned());
//! let config = Config::from_toml_str_with_env(text, token)?;
//!
//! let [docs] = config.backends() else { panic!("{config:?}") };
//! let Transport::Http(server) = docs.transport() else { panic!("{docs:?}") };
//! assert_eq!(server.headers()["Authorization"], "Bearer hunter2");
//! assert_eq!(docs.prefix(), "docs_");
//! assert!(format!("{:?}", config.composite_tools()).contains("docs_search"));
//!
//! assert!(!format!("{config:?}").contains("hunter2"));
//! assert_eq!(docs.secrets().redact("no user with hunter2"), "no user with ***");
//!
//! let error = Config::from_toml_str_with_env(text, |_| None).unwrap_err();
//! assert_eq!(error.mistakes()[0].message(), "environment variable `DOCS_TOKEN` is not set");
//! # Ok::<(), mcp_composite::config::ConfigError>(())
//! ```

mod advertise;
mod aliases;
mod annotations;
mod backend;
mod backends;
mod budget;
mod caller;
mod composite_tools;
#[cfg(any(feature = "stdio", feature = "http"))]
mod connect;
mod duration;
mod error;
mod failure;
mod fault;
mod file;
mod filter;
#[cfg(any(feature = "stdio", feature = "http"))]
mod gateway;
mod header;
mod hints;
mod include;
mod json_schema;
mod limits;
mod node;
mod output;
mod progress;
mod read;
mod redactions;
mod redis;
#[cfg(any(feature = "stdio", feature = "http"))]
mod reloaded;
mod router;
#[cfg(test)]
mod schema;
mod secret;
mod secret_spans;
mod set_some;
mod source;
mod state;
mod steps;
mod store_limits;
mod stores;
mod table;
mod targets;
mod truncate;
mod validate;
mod value;
mod variables;
mod word;

pub use self::{
    backend::{BackendConfig, HttpConfig, StdioConfig, Transport},
    error::{ConfigError, Mistake},
    file::Config,
    include::{Sources, Stamp},
    router::RouterConfig,
};
#[cfg(any(feature = "stdio", feature = "http"))]
pub use self::{
    connect::{Backends, ConnectError},
    gateway::Gateway,
    reloaded::Reloaded,
};
