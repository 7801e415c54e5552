//! Configures backends, layers and composite tools in a TOML file.
//!
//! A configuration file has the following sections, all of them optional:
//!
//! - [`[[composite_tools]]`](#composite-tools): composites, which are tools that call other tools;
//! - [`[limits]` and `[progress]`](#pipelines-and-workflows): limits on each run of a composite,
//!   and its progress notifications;
//! - [`[auth]`](#authentication): the authentication of callers over HTTP;
//! - [`[state]` and `[caller]`](#state): the store of runs that wait for user input, and the header
//!   that identifies callers;
//! - [`[budget]`, `[truncate]`, `[results]`, `[[cache]]` and
//!   `[[redactions]]`](#budgets-and-results): limits on the usage of tools and the size of tool
//!   results, the store of full results, the result cache, and the removal of data from results;
//! - [`[redis]`](#what-replicas-share): the Redis server in which several processes share their
//!   state;
//! - [`[[backends]]` and `[router]`](#backends): the backend servers, and how they are merged into
//!   one server;
//! - [`[lock]`](#approved-tools): the approved tool definitions of the backends;
//! - [`[[flow]]` and `[flow_session]`](#information-flow): labels of tools, the check that
//!   composites use labeled data only where it is allowed, and the check of calls by clients;
//! - [`[validate]`, `[filter]`, `[[aliases]]`, `[advertise]`](#layers): validation, filtering,
//!   renaming and advertising of tools, prompts and resources;
//! - [`[[views]]`](#views): different layers and composites over the same backends, at other paths;
//! - [`include`](#several-files): the paths of other files that define more composites.
//!
//! [`Config::stack_layer`] returns the layers that a configuration file defines, in their [fixed
//! order](crate::stack). The backends, the router and the lock are not part of this stack;
//! `Config::connect` creates them.
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
//! A composite can have `targets` instead of `tools`. In `targets`, each tool has its own settings:
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
//! retry_lost = true                            # calls the tool again if the server has stopped
//! ```
//!
//! To find the documentation of a key in `[[composite_tools]]`, look for the setter of the same
//! name of [`CompositeTool`](crate::composite::CompositeTool), [`FanOut`](crate::composite::FanOut)
//! or [`Target`](crate::composite::Target). The key `on_error` is documented at
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
//! task = "optional"                            # or "never", "always"
//! strict = true                                # texts that begin with `$` must be references
//! max_parallel = 10                            # only of a workflow
//!
//! [[composite_tools.steps]]
//! id = "search"                                # required
//! tool = "web_search"                          # required
//! arguments = { query = "$input.topic", limit = 5 }
//! timeout = "30s"                              # of each attempt
//! on_error = { action = "retry", retry_count = 3, delay = "1s", max_delay = "60s", then = "abort" }
//! parse = "json"                               # or "csv"
//! retry_lost = true                            # calls the tool again if the server has stopped
//!
//! [[composite_tools.steps]]
//! id = "read"
//! type = "for_each"                            # or "tool", "repeat", "switch", "elicitation", "value", "stop"
//! condition = "steps.search.output.hits | length > 0"
//! collection = "$steps.search.output.hits"     # required
//! item_var = "hit"                             # default: `item`
//! max_parallel = 10
//! max_iterations = 100
//! delay = "100ms"                              # between two calls; default: none
//! tool = "read_page"
//! arguments = { url = "$hit.url", title = "{{ index }}: {{ hit.title }}" }
//! on_error = "continue"                        # or "abort", "retry"
//! default_results = { completed = 0 }
//!
//! [[composite_tools.steps]]
//! id = "index"
//! type = "repeat"                              # calls the tool until the condition holds
//! tool = "index_pages"
//! arguments = { topic = "$input.topic", after = "$last.cursor?" } # the output of the last call
//! until = "last.cursor is undefined"           # required
//! delay = "1s"                                 # between two calls; default: none
//! backoff = 2                                  # factor of the delay; default: 1
//! max_delay = "60s"
//! max_iterations = 100
//! timeout = "10m"                              # of all calls with their delays
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
//! id = "clean_up"
//! tool = "drop_index"
//! condition = "steps.index.status == 'completed'"
//! finally = true                               # runs at the end, whatever the outcome; default: false
//! # finally = { grace = "30s" }                # the time of all finally steps
//! # finally = { on_cancel = true }             # also if the call is cancelled; default: false
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
//! content = ["tell"]                           # steps whose content blocks are added to the result
//! properties.pages = { type = "integer", description = "How many", value = "$steps.read.output.completed" }
//! properties.top = { type = "object", description = "The best", properties = { url = { type = "string", description = "Where", value = "$steps.search.output.hits[0].url", default = "" } } }
//!
//! [limits]                                     # of each call of a composite
//! max_calls = 10000
//! max_result_bytes = 4194304
//! max_rounds = 10
//! max_cancelled_runs = 1000                    # of all calls together, in their finally steps
//!
//! [progress]                                   # for clients that request progress
//! heartbeat = "15s"                            # while a run makes no progress; "0s": never
//! ```
//!
//! The keys of a step in `[[composite_tools.steps]]` are documented in
//! [`composite`](crate::composite#pipelines-and-workflows).
//!
//! TOML has no null. Wherever a configuration file contains a JSON value, the text `"$null"` is
//! null, and `"$$null"` is the text `$null`. This applies to [expressions](crate::expr), and to
//! values that are not evaluated: `default_results`, schemas, and the `default` of an output
//! property or of an argument of an alias.
//!
//! # Variables
//!
//! ```toml
//! [vars]
//! team = "platform"                            # any JSON value but an object
//! server = { value = { host = "${HOST}", ports = [80, 443] } } # an object
//! key = { value = "${API_KEY}", secret = true } # a text of at least 4 characters
//! ```
//!
//! Expressions of composites refer to the constants in `[vars]` as `$vars.team` or `{{ vars.team
//! }}`. They are documented at [`Variables`](crate::expr::Variables). In all texts, `${VAR}` is
//! replaced by the value of an environment variable.
//!
//! # State
//!
//! ```toml
//! [state]                                      # of runs that wait for user input
//! store = "sealed"                             # at clients; or "signed", "memory", "redis"
//! keys = [{ id = "2026-11", key = "${STATE_KEY}" }] # the first is used; default: a random key
//! ttl = "1h"                                   # how long a run may wait
//! max_state_bytes = 65536                      # per state; default of other stores: 4194304
//!
//! [caller]
//! header = "x-forwarded-user"                  # identifies the caller, who alone can resume a run
//! ```
//!
//! The `[state]` section selects the store for the states of runs that wait for user input. The
//! [`store`](crate::store) module describes the stores and key rotation. With `store = "redis"`,
//! the states are stored in the Redis server of the [`[redis]`](#what-replicas-share) section, and
//! so are [tasks](crate::tasks).
//!
//! Some keys of `[state]` are only valid with certain stores:
//!
//! - `keys` is only valid with `store = "sealed"` or `store = "signed"`. Both send the states to
//!   clients: sealed states are encrypted, but clients can read signed states.
//! - `max_total_bytes` is only valid with `store = "memory"`. It limits the total size of all
//!   states, and defaults to 67108864.
//! - `max_caller_bytes` is only valid with `store = "memory"` or `store = "redis"`, and requires
//!   `[caller]`. It limits the total size of the states of one caller. It defaults to a quarter of
//!   `max_total_bytes` in memory, and to 16777216 in Redis.
//!
//! The value of a `key` in `[state] keys` is used as it is written: base64 and hex are not decoded.
//! It must have at least 32 bytes. As in [backends](#backends), `${VAR}` is replaced by the value
//! of an environment variable, which never appears in error messages or `Debug` output. If there
//! are no `keys`, this process creates a random key. Then waiting runs do not survive a restart,
//! and other processes cannot resume them.
//!
//! The `header` of `[caller]` is the name of the HTTP header that identifies the caller of a
//! request. A proxy in front of this process must set this HTTP header, and *remove it from the
//! requests of clients*. The key `header` needs the feature `http`. If the key is missing, all
//! clients are treated as one caller. If the key is set, all requests without the HTTP header
//! belong to one caller, and the subscriptions, sessions and open requests of each caller are
//! [limited](crate::guide::limits).
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
//! store = "memory"                             # or "redis": replicas share the results
//!
//! [[redactions]]
//! tools = ["users_*"]                          # required
//! remove = ["/users/*/email"]                  # or `only`: the values to keep
//! keep_texts = false                           # whether to keep texts that are not JSON
//! ```
//!
//! The sections for budgets and results are documented in [`budget`](crate::budget),
//! [`truncate`](crate::truncate), [`cache`](crate::cache) and [`redact`](crate::redact).
//! `[[cache]]` needs the feature `cache`. The patterns in their `tools` match the tool names of the
//! router, as in `[filter]`: names with the prefix of the backend, and with the alias that the
//! backend's own `aliases` define. They do not match the aliases of `[[aliases]]`, even if a client
//! calls a tool by such an alias. A pattern that matches no tool is reported in the log and by
//! `mcp-composite check`.
//!
//! With `store = "memory"`, `[budget]` may have the key `max_callers`: the maximum number of
//! callers for which each budget stores a balance. It defaults to 100000.
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
//! Instead of `jwt`, the `[auth]` section can have static tokens:
//!
//! ```toml
//! [[auth.tokens]]
//! caller = "ci"                                # required
//! token = "${CI_TOKEN}"                        # required, at least 16 bytes
//! ```
//!
//! The program `mcp-composite` verifies the tokens of requests over HTTP as `[auth]` requires. A
//! server that uses this crate as a library must verify them itself, and [take](Config::take_auth)
//! the section before it connects the backends. The name of the verified caller replaces the value
//! of the `[caller]` header. In all strings of the section except `caller` and `scopes`, each
//! `${VAR}` is replaced by the value of an environment variable.
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
//! The `[redis]` section needs the feature `redis`, whose [docs](crate::redis) describe the
//! requirements on the Redis server. If `[state]` or `[results]` has `store = "redis"`, its data is
//! stored in the same server. `${VAR}` in `url` is replaced by the value of an environment
//! variable. The `url` never appears in logs, errors or `Debug` output.
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
//! If a backend has the key `auth`, requests to it contain an access token from an OAuth
//! authorization server. With `client_credentials`, all requests use one token that is issued to
//! this program. With `exchange`, which needs `[auth]`, the token of each caller is exchanged for a
//! token for the backend, and each caller has a separate connection. The
//! [guide](crate::guide::deployment#tokens-for-backends) describes both. A `token_url` must use
//! `https`, unless the authorization server is on the same machine.
//!
//! In a `[[backends]]` table, each `${VAR}` in `command`, `args`, `cwd`, `url`, the values of `env`
//! and `headers`, and the strings of `auth` except `scopes` is replaced by the value of an
//! environment variable. If this value contains `${…}`, it is not expanded again. A variable may be
//! empty, but a variable that is not set is an error.
//!
//! To write a literal `$` directly before a `{` in a text with environment variables, double it:
//! `$${VAR}` is the text `${VAR}`, and `$$${VAR}` is a `$` followed by the value of the variable.
//! Everywhere else, a `$` is literal.
//!
//! The following values in a `[[backends]]` table are secret: the values of `env` and `headers`,
//! all parts of `url` and `token_url` except the server, the `client_secret`, and the values of
//! variables. Secrets never appear in error messages or `Debug` output, and
//! [`BackendConfig::secrets`] redacts them in the output of the backend. The [defaults of
//! arguments](#layers) never appear in error messages or `Debug` output either.
//!
//! An error message about a configuration file quotes the line that contains the mistake, and
//! replaces everything that may be secret with `***`. If the file is not valid TOML, nearly the
//! whole line is replaced. An unknown key is quoted only if it is a plain word of at most 64
//! letters, digits, `_` and `-`, because other unknown keys may be fragments of a secret value.
//!
//! `Config::connect` connects to the backends of a configuration file, and returns them with a
//! [`Router`](crate::adapter::Router) that merges them into one server. This method needs the
//! feature `stdio` or `http`. Each backend needs the feature of its transport, and an `https://`
//! URL needs the feature `tls`.
//!
//! A target is a tool that a composite calls. If a file has backends, a target has one of the
//! following forms:
//!
//! - the name of another composite;
//! - a backend and a tool, such as `github/search` or `github.search`. Both mean the tool `search`
//!   of the backend `github`, regardless of the router's separator;
//! - the name of a tool as clients see it, such as `gh_search`.
//!
//! In a target such as `github/search`, the part `search` is the name that the backend uses, or an
//! alias from the backend's own `aliases`. If `[[aliases]]` renames a tool, clients no longer see
//! the old name, so the old name is an invalid target. The error message suggests the new name.
//!
//! The forms of a target are tried in this order: composite, backend and tool, tool name. A name
//! that `[[aliases]]` defines is never parsed as a backend and a tool. If a target begins both with
//! the name of a backend and with the prefix of a backend, the longer of them selects the backend.
//! If they have the same length, the prefix selects the backend. A target such as `github/search`
//! is replaced by the name that clients see. A target that has none of the three forms is an error.
//! If the file has no backends, a target can be any name, unless `[[aliases]]` has replaced the
//! name.
//!
//! A composite may have the same name as a tool of a backend, such as `github_search`. Then the
//! targets `github.search` and `github/search` still refer to the tool. With the separator `/`,
//! `github/search` is the name of this composite itself, and only `github.search` refers to the
//! tool.
//!
//! With `conflicts = "priority"` or `"manual"`, tool names have no prefix. Then a target can be any
//! tool name, and the router selects the backend at runtime. If there are several backends, a
//! target such as `github/search` is an error, because the plain name `search` does not identify a
//! backend.
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
//! The [lock](crate::lock) file contains the approved tool definitions of the backends. If a tool
//! differs from its definition in the file, or is not in the file, the tool is hidden before any
//! other layer applies. The lock file is written by the command `mcp-composite lock`, or by code
//! that calls [`Lock::to_toml_string`]. It is read when the backends are connected. If it is not
//! valid, connecting fails.
//!
//! [`Lock::to_toml_string`]: crate::lock::Lock::to_toml_string
//!
//! # Information flow
//!
//! ```toml
//! [[flow]]
//! tools = ["mail_*"]                           # default: all tools of `backends`
//! labels = ["private", "untrusted"]            # required; also "egress", "destructive"
//!
//! [[flow]]
//! backends = ["web"]                           # default: all backends
//! labels = ["untrusted", "egress"]
//!
//! [[backends]]
//! name = "mail"
//! command = "mail-mcp"
//!
//! [[backends]]
//! name = "web"
//! command = "web-mcp"
//!
//! [[composite_tools]]
//! name = "publish"
//! description = "Publish the latest newsletter"
//! strategy = "pipeline"
//!
//! [[composite_tools.steps]]
//! id = "read"
//! tool = "mail/read"
//! arguments = { folder = "newsletters" }
//!
//! [[composite_tools.steps]]
//! id = "post"
//! tool = "web/post"
//! arguments = { body = "$prev.text" }
//! allow_flow = "newsletters are public"        # also in `targets`
//! ```
//!
//! The `labels` describe the results of tools (`private`, `untrusted`) and the effects of calls
//! (`egress`, `destructive`). A file is rejected if a composite sends private data to an egress
//! tool, or if untrusted data reaches the arguments of a destructive tool, a condition, a switch or
//! the collection of a loop. A step or target is exempt if its `allow_flow` gives a reason. The
//! [guide](crate::guide::flow) describes the rules. As in `[filter]`, the patterns match the tool
//! names of the router. The section also applies to views, which cannot replace it.
//!
//! With `annotations = true` in a `[[flow]]` table, the annotations of the tools are labels, too.
//! They are known when the tools are listed. If a composite then violates a rule, it is not listed
//! and cannot be called. `mcp-composite check` reports the reason.
//!
//! ```toml
//! [[flow]]
//! tools = ["*"]
//! annotations = true
//!
//! [flow_session]
//! mode = "deny"                                # required; or "off", "warn"
//! expires_after = "1h"                         # since the last labeled result
//! ```
//!
//! The section `[flow_session]` checks the calls of clients. With `mode = "deny"`, a call of an
//! egress tool is denied if its session has received private and untrusted data. The module
//! [`flow`](crate::flow) describes the rules. A session consists of the requests with the same
//! caller and the same `Mcp-Session-Id`. A reload keeps the labels of sessions.
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
//! The keys of `[validate]`, `[filter]`, `[[aliases]]` and `[advertise]` are documented in
//! [`limit`](crate::limit), [`validate`](crate::validate), [`filter`](crate::filter),
//! [`alias`](crate::alias) and [`advertise`](crate::advertise). The elements of lists are
//! [patterns](crate::pattern): exact strings, globs or regular expressions. If a list of exposed or
//! allowed items is empty, no items are allowed. It is an error if two opposite lists, such as
//! `expose_tools` and `hide_tools`, contain the same pattern. If names have prefixes, it is also an
//! error if a pattern begins with the name of a backend and a `/`, such as `docs/search`: write
//! `docs_search`.
//!
//! With `deny = ["*"]` in `[advertise]`, only the composites are advertised, because composites are
//! denied only by their exact names.
//!
//! A backend can have its own filter, validation and aliases. Its `[[backends]]` table accepts all
//! keys of `[filter]`, the table `validate`, and the tables `aliases`:
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
//! The name of a tool depends on the section that refers to it:
//!
//! - The keys of a backend use the names that the backend itself uses, without the prefix.
//! - `[filter]` and `[validate]` use the names in the router, which have the backend's prefix. For
//!   example, the pattern `delete_*` in the `hide_tools` of the backend `github` corresponds to
//!   `github_delete_*` in `[filter]`.
//! - `[[aliases]]` maps the names in the router to the names that clients see. For example, it can
//!   rename `github_search`, which is the tool `search` of the backend `github`. The new name gets
//!   no prefix.
//! - `[advertise]` and composites use the names that clients see.
//!
//! The default that an alias sets for an argument may be secret, such as an API key for the
//! backend. Defaults never appear in error messages or `Debug` output. The backend receives them
//! unchanged. If the backend repeats a default in its output, the default is not redacted.
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
//! A view is a copy of the file's configuration in which some sections are replaced. A view can
//! replace the sections `composite_tools`, `limits`, `progress`, `validate`, `filter`, `aliases`,
//! `advertise`, `cache`, `redactions`, `budget`, `truncate` and `results`. If a view contains one
//! of these sections, even an empty one, it replaces the whole section of the file. All other
//! sections are inherited from the file. For example, a view without `redactions` redacts the same
//! data as the file. An inherited section must also be valid in the view: if the view replaces
//! `aliases`, the targets of inherited composites must be names that the view's aliases define.
//!
//! All views of a configuration file share the backends and their connections, the callers, the
//! waiting runs, and the stores of inherited sections. A view with its own `[budget]` or
//! `[results]` section has a separate store with the settings of that section. With `store =
//! "redis"`, the budgets of such a view are stored under separate keys. A waiting run can be
//! resumed in another view only if that view has exactly the same composite.
//!
//! The `path` of a view consists of `/` and letters, digits, `-`, `.`, `_` and `~`. It must not
//! begin with `/mcp`, `/healthz`, `/readyz`, `/metrics` or `/.well-known`. The program
//! `mcp-composite` serves the view at exactly this path, and the file itself at `/mcp`. In code,
//! [`Config::view`] returns the configuration of a view, and `Gateway::view` returns a running
//! view. If you write your own server, it must check the `scopes` of the view.
//!
//! # Several files
//!
//! ```toml
//! include = ["workflows/*.toml"]               # relative to this file
//! ```
//!
//! The key `include` adds the composites of other files after the composites of the main file, in
//! the order of the list. If a pattern matches several files, they are sorted by name. Included
//! files may contain only `[[composite_tools]]`, whose targets follow the same rules as in the main
//! file. A file that is matched twice is read once. It is an error if the file at a path is
//! missing, but not if a pattern matches no files. Use [`Config::sources`] to detect changes of the
//! included files.
//!
//! # Mistakes
//!
//! A configuration file with mistakes is rejected as a whole. All mistakes are reported at once,
//! each with its line and column. Unknown keys are mistakes. An empty file is valid, and has no
//! backends and no composites. With [`Config::JSON_SCHEMA`], editors report some mistakes while you
//! edit the file.
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
//! A file that defines a backend, and a composite that calls a tool of the backend:
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
mod drawable;
mod duration;
mod error;
mod failure;
mod fault;
mod file;
mod filter;
mod flow;
mod flow_session;
#[cfg(any(feature = "stdio", feature = "http"))]
mod gateway;
mod header;
mod hints;
mod include;
mod json_schema;
mod limits;
mod literal;
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
#[cfg(test)]
mod tests;
mod text_reader;
mod tool_patterns;
#[cfg(feature = "toolhive")]
mod toolhive;
mod truncate;
mod validate;
mod value;
mod variables;
mod vars;
mod views;
mod word;

pub use self::{
    auth::{AuthConfig, AuthMethod, JwksSource, JwtConfig, StaticToken},
    backend::{BackendConfig, HttpConfig, StdioConfig, Transport},
    backend_auth::{BackendAuth, ExchangeConfig, OAuthClientConfig},
    drawable::DrawableConfig,
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
