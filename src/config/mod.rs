//! Servers, what clients see of them, and composite tools from a TOML file.
//!
//! A file has these sections, each of which may be left out:
//!
//! - [`[[composite_tools]]`](#composite-tools): tools that are made of others,
//!   [`[limits]`](#pipelines-and-workflows) of what a call of one may use, what
//!   [`[progress]`](#pipelines-and-workflows) clients are told meanwhile, and
//!   [`[state]`](#state), where those are kept that wait for a person;
//! - [`[[backends]]` and `[router]`](#backends): the servers, and how they become one;
//! - [`[validate]`, `[filter]`, `[[aliases]]`, `[advertise]`](#layers): what clients
//!   may send, see and use, and under which names;
//! - [`include`](#several-files): more composites, from other files.
//!
//! [`Config::stack_layer`] makes layers of all of them but the servers, in their
//! [fixed order](crate::stack).
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
//! Instead of `tools`, each target can have settings of its own:
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
//! What the keys mean is told by the setters of the same names of
//! [`CompositeTool`](crate::composite::CompositeTool) and
//! [`Target`](crate::composite::Target), and what `arguments` can refer to by
//! [`expr`](crate::expr).
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
//! What the keys of steps mean is told in [`composite`](crate::composite#pipelines-and-workflows).
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
//! What the stores are for, and how a key is replaced, is told in
//! [`state`](crate::state). With `store = "memory"` there are no `keys`, but
//! `max_total_bytes`, of all states together, 67108864 if left out. With
//! `store = "redis"` there are neither: they are at the server of
//! [`[redis]`](#what-replicas-share). With both, and with a `[caller]`, the states of one caller
//! take at most `max_caller_bytes`: by default a quarter of `max_total_bytes` in memory, and
//! 16777216 in Redis.
//!
//! The text of a `key` is the key, of at least 32 bytes: neither base64 nor hex is
//! read. As in [backends](#backends), `${VAR}` is a variable of the environment, and
//! neither mistakes nor `Debug` output tell it. Without `keys` nothing that waits
//! survives a restart, and no other process can go on with it.
//!
//! The `header` of `[caller]` is one of HTTP that whoever is in front of this process
//! sets, and *takes out of what clients send*. It needs the feature `http`. Without it,
//! or for a request that has none, everybody is the same caller. With it, the
//! subscriptions, sessions and open requests of each caller are
//! [limited](crate::guide::limits), and all requests without the header count as those of
//! one caller.
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
//! [bound]
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
//! What these do is told in [`budget`](crate::budget), [`bound`](crate::bound) and
//! [`redact`](crate::redact). Budgets and redactions name tools as the router does, with
//! the prefix of their backend and as its own aliases call them, like `[filter]`; they
//! are below `[[aliases]]`, so that they hold under every name that those give. A pattern
//! that matches no tool is told in the log, and by `gateway --check`.
//!
//! In memory, `[budget]` may have `max_callers`: of how many what is left of a budget is
//! kept, 100000 if left out.
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
//! It needs the feature `redis`, whose [docs](crate::redis) say what the server must be
//! like. `[state]` and `[results]` can be there, too. As with
//! `keys`, `${VAR}` is a variable of the environment, and nothing tells the `url`.
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
//! `${VAR}` in `command`, `args`, `cwd`, `url`, and the values of `env` and
//! `headers` is replaced by a variable of the environment. Directly before a `{`
//! each `$$` is a literal `$`, so `$${VAR}` is the text `${VAR}`, and `$$${VAR}`
//! is a `$` and the variable; elsewhere a `$` is only that. What comes out of a
//! variable is data: it is not looked at again. A variable that is not set is a
//! mistake, an empty one is not.
//!
//! The values of `env` and `headers`, all of a `url` but its server, and what
//! comes out of variables are secret. No mistake and no `Debug` output tells
//! them, and [`BackendConfig::secrets`] takes them out of what a backend says. Nor is
//! a [default of an argument](#layers) told.
//! Where the line of a mistake is shown, `***` stands for all that may be
//! secret; if the file is no TOML, that is nearly everything. A key that does
//! not exist is told if it is a plain word, of at most 64 letters, digits, `_`
//! and `-`; another may be something that slipped out of a value.
//!
//! `Config::connect` connects the backends, and puts a
//! [`Router`](crate::adapter::Router) over them. It exists with the features
//! `stdio` and `http`, and so do the transports.
//!
//! With backends, a target of a composite is one of these:
//!
//! - the name of another composite;
//! - `github/search` or `github.search`, whatever the separator is: the tool
//!   `search` of the backend `github`;
//! - the name that clients see, such as `gh_search`.
//!
//! In the second, the tool has the name that the backend itself gives it, or else an
//! alias of the backend. In the last, it has the name that clients see; if that is
//! another one, the mistake tells it.
//!
//! It is read in this order, but where it is spelled like a backend and also
//! begins with a prefix, the longer of the two is meant, and the prefix if they
//! are equally long. What a target is called from then on is the name that
//! clients see. One that can be none of these is a mistake. Without backends
//! every name stays as it is.
//!
//! What is spelled like a backend is its tool also where a composite wraps it
//! under the name that clients see; that name is the composite's. If the two
//! spellings are one, as with the separator `/`, `github.search` is the tool.
//!
//! With `conflicts = "priority"` or `"manual"` tools have no prefix, so any name
//! can be one, and is of the backend that it is routed to. Of several backends
//! none can be named there, so what is spelled like one is a mistake.
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
//! What the keys mean is told by [`limit`](crate::limit),
//! [`validate`](crate::validate), [`filter`](crate::filter), [`alias`](crate::alias)
//! and [`advertise`](crate::advertise). The elements of lists are
//! [patterns](crate::pattern): texts, globs and regular expressions. An empty list
//! of what is exposed or allowed lets nothing through. The same text in both lists
//! is a mistake.
//!
//! `deny = ["*"]` in `[advertise]` leaves the composites alone, which only their
//! exact names deny: clients see the whole, and not its parts.
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
//! They speak of the names that the backend itself has, without its prefix;
//! `[filter]` and `[validate]` of those that the router has. So the `hide_tools` above
//! are `github_delete_*` in `[filter]`. `[[aliases]]` make the names that clients see
//! out of those that the router has: the tool above is `github_search` there, and
//! what it is called then has no prefix. `[advertise]` and composites speak of what
//! clients see.
//!
//! A default of an argument may be secret, such as a key that only the server may
//! know. Neither mistakes nor `Debug` output tell any default. The server gets it as
//! it is, and what the server says of it is not changed.
//!
//! # Several files
//!
//! ```toml
//! include = ["workflows/*.toml"]               # relative to this file
//! ```
//!
//! adds the composites of other files behind those of this one, file by file in
//! the order of `include`, and of their names for a pattern. They hold
//! `[[composite_tools]]` and nothing else, and their targets can be whatever those
//! of this file can be. A file that is found twice is read once; a pattern that
//! finds none is no mistake, a path is. [`Config::sources`] tells when one of them
//! has changed.
//!
//! # Mistakes
//!
//! A file is accepted as a whole or not at all. What is wrong with it is told
//! all at once, each mistake with its line and column. A key that does not
//! exist is a mistake. An empty file has no backends and no composites.
//!
//! With [`Config::JSON_SCHEMA`], editors tell some of it while you write.
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
//! Backends, and targets that are spelled like them:
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
mod bound;
mod budget;
mod caller;
mod composite_tools;
#[cfg(any(feature = "stdio", feature = "http"))]
mod connect;
mod duration;
mod error;
mod failure;
mod file;
mod filter;
#[cfg(any(feature = "stdio", feature = "http"))]
mod gateway;
mod header;
mod hints;
mod include;
mod limits;
mod output;
mod progress;
mod read;
mod redactions;
mod redis;
#[cfg(any(feature = "stdio", feature = "http"))]
mod remembered_lists;
mod router;
#[cfg(test)]
mod schema;
mod secret_spans;
mod source;
mod state;
mod steps;
mod stores;
mod targets;
mod validate;
mod value;
mod variables;

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
    gateway::{Gateway, Reloaded},
};
