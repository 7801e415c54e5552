//! Configuration of backends, layers and composite tools in a TOML file.
//!
//! A file has the following sections, all of them optional:
//!
//! - [`[[composite_tools]]`](#composite-tools): the composites, which are tools that call other
//!   tools;
//! - [`[limits]` and `[progress]`](#pipelines-and-workflows): limits on each call of a composite,
//!   and its progress notifications;
//! - [`[auth]`](#authentication): the bearer tokens of callers over HTTP;
//! - [`[state]` and `[caller]`](#state): the store of runs that wait for user input, and the header
//!   that identifies callers;
//! - [`[budget]`, `[truncate]`, `[results]`, `[[cache]]` and
//!   `[[redactions]]`](#budgets-and-results): limits on the usage of tools and the size of results,
//!   the store of full results, the cache of results, and the removal of data from results;
//! - [`[redis]`](#what-replicas-share): the Redis server that several processes share;
//! - [`[[backends]]` and `[router]`](#backends): the backend servers, and how they are merged into
//!   one server;
//! - [`[lock]`](#approved-tools): the approved definitions of the backends' tools;
//! - [`[validate]`, `[filter]`, `[[aliases]]`, `[advertise]`](#layers): validation, filtering,
//!   renaming and advertising of tools, prompts and resources;
//! - [`[[views]]`](#views): other layers and composites over the same backends, at other paths;
//! - [`include`](#several-files): the paths of files with more composites.
//!
//! [`Config::stack_layer`] returns the layers of all sections except `[[backends]]`, `[router]` and
//! `[lock]`, in their [fixed order](crate::stack).
//!
//! # Composite tools
//!
//! ```toml
//! [[composite_tools]]
//! name = "search_all"                          # required
//! description = "Search everywhere"            # required
//! title = "Search"
//! input_schema = { type = "object" }           # or `parameters`; default: derived from the targets
//! output_schema = { type = "object" }          # default: that of the report
//! annotations = { readOnlyHint = true }        # as in MCP; missing ones are derived
//! timeout = "30s"                              # of the whole run
//! strategy = "parallel"                        # or "sequential", "race", "fallback"
//! success = "all"                              # or "any", { quorum = 2 }
//! order = "declared"                           # or "completion"
//! report = true
//! labels = "text"                              # or "meta": name branches only in `_meta`
//! max_parallel = 4
//! tools = ["github_search", "docs_search"]     # each target receives the input
//! ```
//!
//! Instead of `tools`, a composite can have `targets`, each with its own settings:
//!
//! ```toml
//! [[composite_tools]]
//! name = "search_all"
//! description = "Search everywhere"
//!
//! [[composite_tools.targets]]
//! tool = "github_search"                       # required
//! id = "code"                                  # default: the tool's name
//! arguments = { q = "$input.query", limit = 5 }
//! timeout = "5s"
//! optional = true
//! on_error = { action = "retry", retry_count = 2 } # also `delay` and `max_delay`
//! ```
//!
//! Each key is documented at the setter of the same name of
//! [`CompositeTool`](crate::composite::CompositeTool), [`FanOut`](crate::composite::FanOut) or
//! [`Target`](crate::composite::Target), and `on_error` at
//! [`Target::retry`](crate::composite::Target::retry). The syntax of references in `arguments`,
//! such as `$input.query`, is documented in [`expr`](crate::expr).
//!
//! # Pipelines and workflows
//!
//! ```toml
//! [[composite_tools]]
//! name = "research"
//! description = "Research a topic"
//! strategy = "workflow"                        # or "pipeline"
//! max_calls = 50                               # per run; also `max_result_bytes`
//! max_cost = 1000                              # total cost per run
//! on_limit = "partial"                         # or "fail"
//! strict = true                                # texts that begin with `$` must be references
//! max_parallel = 10                            # only of a workflow
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
//! type = "for_each"                            # or "tool", "switch", "elicitation", "value", "stop"
//! condition = "steps.search.output.hits | length > 0"
//! collection = "$steps.search.output.hits"     # required
//! item_var = "hit"                             # default: `item`
//! max_parallel = 10
//! max_iterations = 100
//! tool = "read_page"
//! arguments = { url = "$hit.url", title = "{{ index }}: {{ hit.title }}" }
//! on_error = "continue"                        # or "abort", "retry"
//! default_results = { completed = 0 }
//!
//! [[composite_tools.steps]]
//! id = "nothing"
//! type = "stop"                                # ends the run
//! condition = "steps.read.output.completed == 0"
//! message = "No page on {{ input.topic }} can be read" # or `output`, any JSON
//! is_error = true                              # whether the run has failed; default: false
//!
//! [[composite_tools.steps]]
//! id = "title"
//! type = "value"                               # calls no tool
//! value = "{{ steps.read.output.completed }} pages on {{ input.topic }}"
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
//! message = "Keep the {{ steps.title.output }}?"
//! schema.properties.folder = { type = "string", title = "Folder", default = "inbox" }
//! timeout = "10m"                              # for the user to answer
//! on_decline = "continue"                      # or "abort", "skip_remaining"
//! on_cancel = "continue"                       # same values
//!
//! [composite_tools.output]
//! required = ["pages"]
//! properties.pages = { type = "integer", description = "How many", value = "$steps.read.output.completed" }
//! properties.top = { type = "object", description = "The best", properties = { url = { type = "string", description = "Where", value = "$steps.search.output.hits[0].url", default = "" } } }
//!
//! [limits]                                     # of each call of a composite
//! max_calls = 10000
//! max_result_bytes = 4194304
//! max_rounds = 10
//!
//! [progress]                                   # for clients that request progress
//! heartbeat = "15s"                            # while a run makes no progress; "0s": never
//! ```
//!
//! The keys of steps are documented in [`composite`](crate::composite#pipelines-and-workflows).
//!
//! # State
//!
//! ```toml
//! [state]                                      # of runs that wait for user input
//! store = "signed"                             # kept by clients; or "memory", "redis"
//! keys = [{ id = "2026-11", key = "${STATE_KEY}" }] # the first one signs; default: a random key
//! ttl = "1h"                                   # how long a run may wait
//! max_state_bytes = 65536                      # per state; default of other stores: 4194304
//!
//! [caller]
//! header = "x-forwarded-user"                  # identifies the caller, who alone can resume a run
//! ```
//!
//! [`store`](crate::store) describes the stores and key rotation. With `store = "redis"`, the
//! states are stored in the Redis server that [`[redis]`](#what-replicas-share) configures.
//!
//! Some keys are only valid with certain stores:
//!
//! - `keys` is only valid with `store = "signed"`.
//! - `max_total_bytes` is only valid with `store = "memory"`. It limits the total size of all
//!   states, and defaults to 67108864.
//! - `max_caller_bytes` is only valid with `store = "memory"` or `store = "redis"`, and requires
//!   `[caller]`. It limits the total size of the states of one caller. It defaults to a quarter of
//!   `max_total_bytes` in memory, and to 16777216 in Redis.
//!
//! A `key` is used as it is written: base64 and hex are not decoded. It must have at least 32
//! bytes. As in [backends](#backends), `${VAR}` is replaced by the value of an environment
//! variable, which never appears in error messages or `Debug` output. Without `keys`, this process
//! signs with a random key of its own. Then waiting runs do not survive a restart, and no other
//! process can resume them.
//!
//! The `header` of `[caller]` names the HTTP header that identifies the caller of a request. A
//! proxy in front of this process must set this HTTP header, and *remove it from the requests of
//! clients*. The key `header` needs the feature `http`. Without the key, all clients are treated as
//! one caller. With the key, all requests that lack the HTTP header belong to one caller, and the
//! subscriptions, sessions and open requests of each caller are [limited](crate::guide::limits).
//!
//! # Budgets and results
//!
//! ```toml
//! [[budget.limits]]
//! name = "searches"                            # required; appears in errors
//! count = "calls"                              # or "bytes" of results, "cost"
//! limit = 1000                                 # required
//! tools = ["github_*"]                         # default: all tools
//! per = "caller"                               # or "run", "global"
//! refill = { amount = 100, every = "1m" }      # default of `amount`: the limit
//!
//! [[budget.costs]]                             # first match applies; other calls cost 1
//! tools = ["ask_*"]                            # required
//! cost = 500                                   # required; reserved before the call
//! actual = "/_meta/usage/total_tokens"         # JSON Pointer to the actual cost in the result
//!
//! [truncate]
//! max_result_bytes = 65536                     # larger results are truncated
//!
//! [results]                                    # keeps the full versions of truncated results
//! store = "memory"                             # or "redis"
//! ttl = "10m"
//! max_result_bytes = 16777216                  # per result
//! max_total_bytes = 67108864                   # of all results; only in memory
//! max_caller_bytes = 67108864                  # per caller; needs `[caller]`
//!
//! [[cache]]                                    # read-only tools only; first match applies
//! tools = ["docs_*"]                           # required
//! ttl = "10m"                                  # required; at most 365 days
//! per = "caller"                               # or "all": all callers share the results
//! max_bytes = 67108864                         # of all results of this entry
//!
//! [[redactions]]
//! tools = ["users_*"]                          # required
//! remove = ["/users/*/email"]                  # or `only`: the values to keep
//! keep_texts = false                           # whether to keep texts that are not JSON
//! ```
//!
//! These sections are documented in [`budget`](crate::budget), [`truncate`](crate::truncate),
//! [`cache`](crate::cache) and [`redact`](crate::redact). `[[cache]]` needs the feature `cache`. As
//! in `[filter]`, their patterns match the names that tools have in the router. Such a name has the
//! prefix of the tool's backend, and the alias that the backend defines. Clients can call a tool by
//! an alias of `[[aliases]]`, but these sections still match the name in the router. A pattern that
//! matches no tool is reported in the log and by `mcp-composite check`.
//!
//! With `store = "memory"`, `[budget]` may have `max_callers`, the maximum number of callers whose
//! balances are kept for each budget. It defaults to 100000.
//!
//! # Authentication
//!
//! ```toml
//! [auth]
//! resource = "https://tools.example.com/mcp"   # required with `jwt`: the public URL
//!
//! [auth.jwt]                                   # or `[[auth.tokens]]`
//! issuer = "https://id.example.com"            # required: the claim `iss`
//! jwks = "https://id.example.com/keys"         # required: a URL or a file
//! audience = "https://tools.example.com/mcp"   # the claim `aud`; default: `resource`
//! scopes = ["tools"]                           # of each token; default: none
//! leeway = "1m"                                # tolerance for different clocks
//! ```
//!
//! Instead of `jwt`, the section can have static tokens:
//!
//! ```toml
//! [[auth.tokens]]
//! caller = "ci"                                # required
//! token = "${CI_TOKEN}"                        # required, at least 16 bytes
//! ```
//!
//! The program `mcp-composite` verifies these tokens for requests over HTTP. This crate does not:
//! a server that uses the crate verifies them itself, and [takes](Config::take_auth) the section
//! before it connects the backends. The name of the verified caller replaces the `header` of
//! `[caller]`. In all texts of the section except `caller` and `scopes`, each `${VAR}` is replaced
//! by the value of an environment variable.
//!
//! # What replicas share
//!
//! ```toml
//! [redis]                                      # or Valkey
//! url = "redis://:${REDIS_PASSWORD}@cache:6379" # required
//! prefix = "mcp-composite"                     # of all keys
//! timeout = "1s"                               # per command
//!
//! [budget]
//! store = "redis"                              # or "memory": each process has its own budgets
//! when_away = "refuse"                         # or "admit": calls are not counted meanwhile
//! lease = "10m"                                # for which a dead replica keeps its reservations
//! ```
//!
//! `[redis]` needs the feature `redis`, whose [docs](crate::redis) describe the requirements on the
//! server. If `[state]` or `[results]` has `store = "redis"`, the same server stores them, too.
//! `${VAR}` in `url` is replaced by the value of an environment variable. The `url` never appears
//! in logs, errors or `Debug` output.
//!
//! # Backends
//!
//! ```toml
//! [router]
//! separator = "_"                              # 1 to 8 characters, also "/"
//! conflicts = "prefix"                         # or "priority", "manual"
//!
//! [[backends]]
//! name = "github"                              # required
//! transport = "stdio"                          # default with a `command`
//! command = "${HOME}/bin/github-mcp"           # required
//! args = ["--read-only"]
//! env = { GITHUB_TOKEN = "${GITHUB_TOKEN}" }
//! cwd = "/srv"
//! timeout = "60s"                              # per call
//! connect_timeout = "30s"
//! elicitation = true                           # whether the backend may ask callers for input
//! prefix = "gh_"                               # default: `name` and `separator`
//!
//! [[backends]]
//! name = "docs"
//! transport = "http"                           # default with a `url`
//! url = "https://docs.example/mcp"             # required
//! headers = { Authorization = "Bearer ${DOCS_TOKEN}" }
//!
//! [[auth.tokens]]                              # or `[auth.jwt]`: `exchange` needs one of them
//! caller = "ci"
//! token = "${CI_TOKEN}"
//!
//! [[backends]]
//! name = "mail"
//! url = "https://mail.example/mcp"
//!
//! [backends.auth.exchange]                     # or `client_credentials`
//! token_url = "https://id.example.com/token"   # required
//! client_id = "gateway"                        # required
//! client_secret = "${GATEWAY_SECRET}"          # required
//! token_endpoint_auth_method = "client_secret_basic" # or "client_secret_post"
//! scopes = ["mail.read"]                       # to request; default: none
//! audience = "mail"                            # to request; default: none
//! resource = "https://mail.example/mcp"        # to request; default: none
//! max_callers = 100                            # with a connection; only with `exchange`
//! idle_timeout = "5m"                          # of a connection; only with `exchange`
//! ```
//!
//! With `auth`, requests to a backend have an access token from an OAuth authorization server. With
//! `client_credentials`, one token of this program is used for all requests. With `exchange`, which
//! needs `[auth]`, the token of each caller is exchanged for a token of the backend, and each
//! caller has a connection of its own. The [guide](crate::guide::deployment#tokens-for-backends)
//! describes both. A `token_url` must use `https`, unless the server is on the same machine.
//!
//! In `command`, `args`, `cwd`, `url`, the values of `env` and `headers`, and the texts of `auth`
//! except `scopes`, each `${VAR}` is replaced by the value of an environment variable. This value
//! is not expanded again. A variable that is not set is an error, but an empty variable is not.
//!
//! To write a literal `$` directly before a `{`, double it: `$${VAR}` is the text `${VAR}`, and
//! `$$${VAR}` is a `$` followed by the value of the variable. Everywhere else, a `$` is literal.
//!
//! The following are secret: the values of `env` and `headers`, all of a `url` and `token_url`
//! except its server, the `client_secret`, and the values of variables. Secrets never appear in
//! error messages or `Debug` output, and [`BackendConfig::secrets`] redacts them in the output of
//! the backend. The [defaults of arguments](#layers) never appear in error messages or `Debug`
//! output either.
//!
//! An error is displayed with its line of the file, in which `***` replaces everything that may be
//! secret. If the file is not valid TOML, that is nearly the whole line. An unknown key is
//! displayed only if it is a plain word of at most 64 letters, digits, `_` and `-`. Any other
//! unknown key may be a fragment of a secret value.
//!
//! `Config::connect` connects the backends, and returns them with a
//! [`Router`](crate::adapter::Router) over them. This method needs the feature `stdio` or `http`.
//! Each backend needs the feature of its transport, and `tls` for an `https://` URL.
//!
//! If a file has backends, each target of a composite is one of the following:
//!
//! - the name of another composite;
//! - a backend and a tool, such as `github/search` or `github.search`. Both mean the tool `search`
//!   of the backend `github`, with any separator of the router;
//! - the name of a tool as clients see it, such as `gh_search`.
//!
//! In `github/search`, `search` is the tool's name on the backend, or an alias that the backend's
//! `aliases` define. A target that `[[aliases]]` has renamed is an error, since clients no longer
//! see the old name. The error message suggests the new name.
//!
//! The three forms are tried in this order, but a name that `[[aliases]]` defines is not parsed as
//! a backend and a tool. If a target begins with both a backend's name and a backend's prefix, the
//! longer of the two determines the backend. If both are equally long, the prefix does. A target
//! such as `github/search` is replaced by the name that clients see. A target that has none of the
//! three forms is an error. If the file has no backends, any name that `[[aliases]]` has not
//! replaced is accepted.
//!
//! A composite may have the same name as a tool of a backend, such as `github_search`. Then the
//! targets `github.search` and `github/search` still refer to the tool. With the separator `/`,
//! `github/search` is the name of this composite itself, and only `github.search` refers to the
//! tool.
//!
//! With `conflicts = "priority"` or `"manual"`, names have no prefix. So a target can be any name,
//! and the router determines the backend that is called. If there are several backends, a target
//! cannot select one of them: targets such as `github/search` are errors.
//!
//! # Approved tools
//!
//! ```toml
//! [lock]
//! file = "tools.lock"                          # required; relative to this file
//! on_drift = "hide"                            # or "warn", "fail": the backend's requests fail
//! on_new = "hide"                              # or "warn", "allow"
//! ```
//!
//! The [lock](crate::lock) contains the approved definitions of the backends' tools. A tool that
//! differs from the lock, or that is not in the lock, is hidden before any other layer applies. The
//! command `mcp-composite lock` writes the file, and so does [`Lock::to_toml_string`]. The file is
//! read when the backends are connected, which fails if the file is not valid.
//!
//! [`Lock::to_toml_string`]: crate::lock::Lock::to_toml_string
//!
//! # Layers
//!
//! ```toml
//! [validate]
//! max_argument_bytes = 65536                   # per request; default: 4 MiB
//! max_depth = 16                               # of nested arrays and objects
//! schema = "off"                               # or "warn", "strict"
//!
//! [filter]
//! expose_tools = ["github_*"]                  # only these; default: all
//! hide_tools = ["*_delete_*"]                  # even if they are exposed
//! expose_prompts = ["github_review"]
//! hide_prompts = ["*_draft"]
//! expose_resources = ["file:///srv/*"]         # by their URIs
//! hide_resources = ['re:.*\.key']
//! expose_resource_templates = ["file:///{path}"]
//! hide_resource_templates = ["git://*"]
//! read_only_only = true                        # only tools annotated as read-only
//! hide_destructive = true                      # only tools annotated as non-destructive
//!
//! [[aliases]]
//! tool = "github_search_code"                  # or `from`
//! name = "search_code"                         # or `to`
//! title = "Search code"
//! description = "Searches the code of our organisation"
//! annotations = { readOnlyHint = true }        # as in MCP; override those of the server
//!
//! [aliases.arguments]
//! q = { rename = "query", description = "What to search for" }
//! limit = { default = 20 }                     # if the client does not set it
//! api_key = { hide = true, default = "…" }     # always sent; the client cannot set it
//!
//! [[aliases]]
//! prompt = "github_review"
//! name = "review"                              # also `title`, `description`
//!
//! [[aliases]]
//! resource = "file:///srv/readme.md"           # or a URI template
//! uri = "docs:///readme.md"
//! name = "readme"                              # also `title`, `description`
//!
//! [advertise]
//! allow = ["search_*"]                         # besides composites; default: all
//! deny = ["search_users"]                      # even if they are allowed
//! calls = "refuse"                             # or "allow": unlisted tools can be called
//! mode = "list"                                # or "search": list two tools that find and call all
//! ```
//!
//! The keys are documented in [`limit`](crate::limit), [`validate`](crate::validate),
//! [`filter`](crate::filter), [`alias`](crate::alias) and [`advertise`](crate::advertise). The
//! elements of lists are [patterns](crate::pattern): exact texts, globs or regular expressions. An
//! empty list of exposed or allowed items allows no items. A pattern that is in two opposite lists,
//! such as `expose_tools` and `hide_tools`, is an error. So is one that begins with the name of a
//! backend, such as `docs/search`, if names have prefixes: write `docs_search`.
//!
//! With `deny = ["*"]` in `[advertise]`, only the composites are advertised, since a composite can
//! only be denied by its exact name.
//!
//! A backend can have its own filter, validation and aliases, with all keys of `[filter]`, the
//! table `validate`, and the tables `aliases`:
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
//! The sections refer to tools by different names:
//!
//! - The keys of a backend use the backend's own names, without its prefix.
//! - `[filter]` and `[validate]` use the names of the router. For example, `delete_*` in the
//!   `hide_tools` of the backend `github` would be `github_delete_*` in `[filter]`.
//! - `[[aliases]]` maps the names of the router to the names that clients see. For example, it can
//!   rename `github_search`, which is the tool `search` of the backend `github`. The new name gets
//!   no prefix.
//! - `[advertise]` and composites use the names that clients see.
//!
//! The default of an argument may be secret, such as a key for the server. Defaults never appear in
//! error messages or `Debug` output. The server receives them unchanged. If the server repeats a
//! default in its output, the default is not redacted.
//!
//! # Views
//!
//! ```toml
//! [[views]]
//! path = "/team-a"                             # required
//! scopes = ["tools:a"]                         # of each token, only with `[auth.jwt]`
//!
//! [views.filter]                               # replaces `[filter]`
//! expose_tools = ["docs_*"]
//!
//! [[views.budget.limits]]                      # counted separately
//! name = "calls"
//! limit = 1000
//!
//! [[views.composite_tools]]                    # replaces all `[[composite_tools]]`
//! name = "search_docs"
//! description = "Search the docs"
//! tools = ["docs_search"]
//! ```
//!
//! A view is the file with some sections replaced: `composite_tools`, `limits`, `progress`,
//! `validate`, `filter`, `aliases`, `advertise`, `cache`, `redactions`, `budget`, `truncate` and
//! `results`.
//! Each of these sections that the view has replaces the whole section of the file, even if it is
//! empty. All other sections are those of the file. So a view without `redactions` redacts what the
//! file redacts. An inherited section must also be valid in the view: if the view replaces
//! `aliases`, the targets of inherited composites are the names that its aliases define.
//!
//! All views share the backends and their connections, callers, waiting runs, and the stores of
//! inherited sections. A view with its own `[budget]` or `[results]` has a separate store with the
//! settings of its section; with `store = "redis"`, its budgets have their own keys. A waiting run
//! can be resumed in another view only if that view has exactly the same composite.
//!
//! A `path` consists of `/` and letters, digits, `-`, `.`, `_` and `~`. It must not begin with
//! `/mcp`, `/healthz`, `/readyz`, `/metrics` or `/.well-known`. The program `mcp-composite` serves
//! the view at exactly this path, and the file itself at `/mcp`. In code, [`Config::view`] returns
//! the configuration of a view, and `Gateway::view` a running view. A server of your own must check
//! the `scopes`.
//!
//! # Several files
//!
//! ```toml
//! include = ["workflows/*.toml"]               # relative to this file
//! ```
//!
//! The key `include` adds the composites of other files after those of this file, in the order of
//! the list. Files that match the same pattern are sorted by name. Included files may contain only
//! `[[composite_tools]]`. Targets in them follow the same rules as in this file. A file that is
//! found twice is read once. The path of a missing file is an error, but a pattern without matches
//! is not. Use [`Config::sources`] to detect changes of these files.
//!
//! # Mistakes
//!
//! A file is accepted as a whole or not at all. All mistakes are reported at once, each with its
//! line and column. Unknown keys are mistakes. An empty file is valid, and has no backends and no
//! composites.
//!
//! With [`Config::JSON_SCHEMA`], editors report some mistakes while you write.
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
//! A file with a backend, and a composite that calls a tool of the backend:
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
mod auth;
mod backend;
mod backend_auth;
mod backends;
mod budget;
#[cfg(any(feature = "stdio", feature = "http"))]
mod budget_state;
mod cache;
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
mod lock;
mod lock_file;
#[cfg(any(feature = "stdio", feature = "http"))]
mod locking;
mod node;
mod output;
mod progress;
mod read;
mod redactions;
mod redis;
#[cfg(any(feature = "stdio", feature = "http"))]
mod reloaded;
mod router;
#[cfg(any(feature = "stdio", feature = "http"))]
mod running;
#[cfg(test)]
mod schema;
mod secret;
mod secret_spans;
mod sections;
mod set_some;
mod source;
mod state;
mod steps;
mod store_limits;
mod stores;
mod table;
mod targets;
mod tool_patterns;
mod truncate;
mod unread;
mod validate;
mod value;
mod variables;
mod views;
mod word;

pub use self::{
    auth::{AuthConfig, AuthMethod, JwksSource, JwtConfig, StaticToken},
    backend::{BackendConfig, HttpConfig, StdioConfig, Transport},
    backend_auth::{BackendAuth, ExchangeConfig, OAuthClientConfig},
    error::{ConfigError, Mistake},
    file::Config,
    include::{Sources, Stamp},
    lock::LockConfig,
    lock_file::LockError,
    router::RouterConfig,
    views::ViewConfig,
};
#[cfg(any(feature = "stdio", feature = "http"))]
pub use self::{
    budget_state::BudgetState,
    connect::{Backends, ConnectError},
    gateway::Gateway,
    locking::LockingError,
    reloaded::Reloaded,
    running::View,
};
