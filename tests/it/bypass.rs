//! Every rule that restricts clients, and every way that a client could try to bypass it.

use mcp_composite::{
    adapter::{
        HandlerService,
        router::{Backend, Router},
    },
    advertise::{AdvertiseLayer, Mode},
    alias::{AliasLayer, ArgumentAlias, PromptAlias, ResourceAlias, ToolAlias},
    composite::{CompositeLayer, CompositeTool, Target},
    filter::FilterLayer,
    limit::LimitLayer,
    message::{Context, Reply, Request},
    pattern::Selection,
    stack::{BackendLayer, Stack, StackLayer},
    validate::{SchemaMode, ValidateLayer},
};
use rmcp::model::{ClientRequest, Tool};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::{
    scripted::{Answer, Server, call, object},
    support::Full,
};

/// The size limit of requests, if there is one.
const LIMIT: usize = 100;

/// The level of a rule or an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Above the router.
    Top,
    /// Below the router, with the backend's own names.
    Backend,
}

const LEVELS: [Level; 2] = [Level::Top, Level::Backend];

/// A restriction of the calls of a tool, or of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    HideByName(Level),
    ReadOnlyOnly(Level),
    HideDestructive(Level),
    NotAdvertised,
    /// The tool has an alias, and clients call it by its original name.
    OriginalName(Level),
    HiddenArgument(Level),
    Limit,
    StrictSchema(Level),
}

/// The way in which a client reaches a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It calls the tool.
    Direct,
    /// It calls a composite that forwards its input to the tool.
    PassedOn,
    /// It calls a composite that calls the tool with fixed arguments.
    Sent,
    /// It calls a composite that calls that composite.
    Nested,
    /// It calls the tool by `call_tool`.
    CallTool,
    /// It calls the composite by `call_tool`.
    CallComposite,
    /// The tool has an alias as well, by which the client calls it.
    Alias(Level),
    /// The tool has an alias as well, and the client calls it by its original name.
    Original(Level),
}

const RULES: [Rule; 14] = [
    Rule::HideByName(Level::Top),
    Rule::HideByName(Level::Backend),
    Rule::ReadOnlyOnly(Level::Top),
    Rule::ReadOnlyOnly(Level::Backend),
    Rule::HideDestructive(Level::Top),
    Rule::HideDestructive(Level::Backend),
    Rule::NotAdvertised,
    Rule::OriginalName(Level::Top),
    Rule::OriginalName(Level::Backend),
    Rule::HiddenArgument(Level::Top),
    Rule::HiddenArgument(Level::Backend),
    Rule::Limit,
    Rule::StrictSchema(Level::Top),
    Rule::StrictSchema(Level::Backend),
];

const WAYS: [Way; 10] = [
    Way::Direct,
    Way::PassedOn,
    Way::Sent,
    Way::Nested,
    Way::CallTool,
    Way::CallComposite,
    Way::Alias(Level::Top),
    Way::Alias(Level::Backend),
    Way::Original(Level::Top),
    Way::Original(Level::Backend),
];

/// A tool behind a rule, and its names.
struct World {
    server: Server,
    stack: Stack<Router>,
    /// The client's name of the tool.
    tool: &'static str,
    /// The router's name of the tool.
    exposed: &'static str,
}

/// The layers at both levels.
#[derive(Default)]
struct Layers {
    alias: Option<ToolAlias>,
    filter: FilterLayer,
    validate: ValidateLayer,
}

/// The backend's own name of the tool, and its alias there.
const WIPE: &str = "wipe";
const CLEAN: &str = "clean";
/// Its names behind the router, and its alias above.
const B_WIPE: &str = "b_wipe";
const B_CLEAN: &str = "b_clean";
const NEAT: &str = "neat";

/// All texts by which an answer could reveal a tool.
const TELLING: [&str; 7] = [WIPE, CLEAN, B_WIPE, B_CLEAN, NEAT, "token", "hunter2"];

fn deny(pattern: &str) -> Selection {
    Selection::default().deny([pattern]).unwrap()
}

// === impl Rule ===

impl Rule {
    /// Returns the level of the alias that the rule itself adds.
    fn alias(self) -> Option<Level> {
        match self {
            Self::OriginalName(level) => Some(level),
            _ => None,
        }
    }

    /// Returns the arguments that the client may not send, if it may call the tool.
    fn arguments(self) -> Value {
        match self {
            Self::HiddenArgument(_) => json!({ "text": "x", "token": "mine" }),
            Self::Limit => json!({ "text": "x".repeat(LIMIT + 1) }),
            Self::StrictSchema(_) => json!({ "text": ["x"] }),
            _ => json!({ "text": "x" }),
        }
    }

    fn is_about_arguments(self) -> bool {
        matches!(self, Self::HiddenArgument(_) | Self::Limit | Self::StrictSchema(_))
    }

    /// Returns the error of a call of the tool by this name.
    fn refusal(self, tool: &str) -> String {
        match self {
            Self::HiddenArgument(_) => {
                format!("invalid arguments for `{tool}`: at `/token`: is not known to the tool")
            }
            Self::Limit => {
                format!("the request has more than {LIMIT} bytes (`max_argument_bytes`)")
            }
            Self::StrictSchema(_) => {
                format!(
                    "invalid arguments for `{tool}`: at `/text`: the value is not of type \"string\""
                )
            }
            _ => format!("unknown tool `{tool}`"),
        }
    }

    /// Sets the rule at its level, where the tool has this name.
    fn set(self, layers: &mut Layers, tool: &'static str) {
        match self {
            Self::HideByName(_) => layers.filter = FilterLayer::new().tools(deny(tool)),
            Self::ReadOnlyOnly(_) => layers.filter = FilterLayer::new().read_only_only(true),
            Self::HideDestructive(_) => layers.filter = FilterLayer::new().hide_destructive(true),
            Self::HiddenArgument(_) => {
                let hidden = ArgumentAlias::new().hide().default(json!("hunter2"));
                let alias = layers.alias.take().unwrap_or_else(|| ToolAlias::new(tool));
                layers.alias = Some(alias.argument("token", hidden));
            }
            Self::StrictSchema(_) => {
                layers.validate = ValidateLayer::new().schema(SchemaMode::Strict);
            }
            Self::Limit => layers.validate = ValidateLayer::new().max_argument_bytes(LIMIT),
            Self::NotAdvertised | Self::OriginalName(_) => (),
        }
    }

    const fn level(self) -> Level {
        match self {
            Self::HideByName(level)
            | Self::ReadOnlyOnly(level)
            | Self::HideDestructive(level)
            | Self::OriginalName(level)
            | Self::HiddenArgument(level)
            | Self::StrictSchema(level) => level,
            Self::NotAdvertised | Self::Limit => Level::Top,
        }
    }

    /// Returns the expected outcome of a call under the rule.
    fn expected(self, way: Way, world: &World) -> Result<(), String> {
        let World { tool, exposed, .. } = world;
        let unavailable =
            |composite| Err(format!("tool `{composite}` is not available at the moment"));
        match (self, way) {
            // Hiding the parts while exposing the whole is the purpose of the rule.
            (Self::NotAdvertised, Way::PassedOn | Way::Sent | Way::Nested | Way::CallComposite) => {
                Ok(())
            }
            // A composite is checked like any tool, before it runs.
            (Self::StrictSchema(_), Way::PassedOn) => Err(self.refusal("pass")),
            (_, Way::PassedOn | Way::Sent | Way::Nested | Way::CallComposite)
                if self.is_about_arguments() =>
            {
                Err(self.refusal(tool))
            }
            (_, Way::PassedOn) => unavailable("pass"),
            (_, Way::Sent | Way::CallComposite) => unavailable("send"),
            (_, Way::Nested) => unavailable("nest"),
            (Self::HiddenArgument(_) | Self::StrictSchema(_), Way::CallTool) => {
                Err(self.refusal(tool).replace("at `", "at `/arguments"))
            }
            (_, Way::Direct | Way::CallTool | Way::Alias(_)) => Err(self.refusal(tool)),
            (Self::Limit, Way::Original(_)) => Err(self.refusal(tool)),
            (_, Way::Original(Level::Backend)) => Err(format!("unknown tool `{B_WIPE}`")),
            (_, Way::Original(Level::Top)) => Err(format!("unknown tool `{exposed}`")),
        }
    }
}

fn limit() -> LimitLayer {
    LimitLayer::new().max_argument_bytes(LIMIT)
}

// === impl Way ===

impl Way {
    /// Returns the level of the tool's alias besides those of the rule.
    fn alias(self) -> Option<Level> {
        match self {
            Self::Alias(level) | Self::Original(level) => Some(level),
            _ => None,
        }
    }

    fn request(self, world: &World, arguments: Value) -> Request {
        match self {
            Self::Direct | Self::Alias(_) => call(world.tool, arguments),
            Self::PassedOn => call("pass", arguments),
            Self::Sent => call("send", json!({})),
            Self::Nested => call("nest", json!({})),
            Self::CallTool => {
                call("call_tool", json!({ "name": world.tool, "arguments": arguments }))
            }
            Self::CallComposite => call("call_tool", json!({ "name": "send" })),
            Self::Original(Level::Top) => call(world.exposed, arguments),
            Self::Original(Level::Backend) => call(B_WIPE, arguments),
        }
    }
}

// === impl World ===

impl World {
    /// Returns a world with an optional rule, an optional alias, and composites of the tool.
    fn new(rule: Option<Rule>, alias: Option<Level>, mode: Mode, arguments: Value) -> Self {
        let of_the_rule = rule.and_then(Rule::alias);
        let has = |level| alias == Some(level) || of_the_rule == Some(level);
        let (mut below, mut above) = (Layers::default(), Layers::default());
        let mut exposed = B_WIPE;
        if has(Level::Backend) {
            below.alias = Some(ToolAlias::new(WIPE).name(CLEAN));
            exposed = B_CLEAN;
        }
        let mut tool = exposed;
        if has(Level::Top) {
            above.alias = Some(ToolAlias::new(exposed).name(NEAT));
            tool = NEAT;
        }
        match of_the_rule {
            Some(Level::Top) => tool = exposed,
            Some(Level::Backend) => tool = B_WIPE,
            None => (),
        }
        if let Some(rule) = rule {
            match rule.level() {
                Level::Top => rule.set(&mut above, exposed),
                Level::Backend => rule.set(&mut below, WIPE),
            }
        }

        let send = Target::new(tool).id("part").arguments(arguments);
        let composites = [
            CompositeTool::fan_out("pass", "Passes its input on", [Target::new(tool).id("part")]),
            CompositeTool::fan_out("send", "Sends something", [send]),
            CompositeTool::fan_out("nest", "Calls another", [Target::new("send").id("whole")]),
        ];
        let mut advertise = AdvertiseLayer::new().mode(mode);
        if rule == Some(Rule::NotAdvertised) {
            advertise = advertise.tools(deny("*"));
        }
        let mut door = LimitLayer::new();
        if rule == Some(Rule::Limit) {
            door = limit();
        }

        let schema = json!({
            "type": "object",
            "properties": { "text": { "type": "string" }, "token": { "type": "string" } },
        });
        let server = Server::new().tool_as(Tool::new(WIPE, "Acts", object(schema)), Answer::echo());
        let backend = BackendLayer::new()
            .alias(below.aliases())
            .filter(below.filter)
            .validate(below.validate)
            .layer(server.clone());
        let router = Router::builder().backend(Backend::new("b", backend)).build().unwrap();
        let stack = StackLayer::new()
            .limit(door)
            .advertise(advertise)
            .composite(CompositeLayer::new(composites).unwrap())
            .alias(above.aliases())
            .filter(above.filter)
            .validate(above.validate)
            .layer(router);
        Self { server, stack, tool, exposed }
    }

    async fn ask(&self, request: Request) -> Reply {
        self.stack.clone().oneshot(request).await.unwrap()
    }

    /// Returns the listed tools.
    async fn listed(&self) -> Value {
        json!(self.ask(Request::list_tools()).await.tools().unwrap().tools)
    }

    /// Returns the tools found by search.
    async fn found(&self) -> Value {
        let query = json!({ "query": "" });
        let reply = self.ask(call("search_tools", query)).await;
        reply.tool_result().unwrap().structured_content.as_ref().unwrap()["tools"].clone()
    }
}

// === impl Layers ===

impl Layers {
    fn aliases(&self) -> AliasLayer {
        AliasLayer::new().tools(self.alias.clone()).unwrap()
    }
}

/// Returns every applicable combination of rule and way.
fn cells() -> Vec<(Rule, Way)> {
    let cells = RULES.into_iter().flat_map(|rule| WAYS.map(|way| (rule, way)));
    // Its alias is the one way that such a rule allows.
    cells.filter(|(rule, way)| rule.alias().is_none() || way.alias().is_none()).collect()
}

fn mode(way: Way) -> Mode {
    match way {
        Way::CallTool | Way::CallComposite => Mode::Search,
        _ => Mode::List,
    }
}

/// Returns the error, or the reason for which the branch of a composite failed.
fn outcome(reply: &Reply) -> Result<(), String> {
    if let Some(error) = reply.error() {
        return Err(error.message.to_string());
    }
    let result = reply.tool_result().unwrap();
    if result.is_error != Some(true) {
        return Ok(());
    }
    let mut report = &result.structured_content.as_ref().unwrap()["branches"];
    if report["whole"].is_object() {
        report = &report["whole"]["output"]["branches"];
    }
    Err(report["part"]["error"]["message"].as_str().unwrap().to_owned())
}

/// Returns the names that appear in a text.
fn names_in(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| TELLING.contains(word)).collect()
}

fn names_of(tools: &Value) -> Vec<&str> {
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

// === tools ===

#[tokio::test(start_paused = true)]
async fn rules_apply_to_every_way_of_calling_a_tool() {
    for (rule, way) in cells() {
        let arguments = rule.arguments();
        let world = World::new(Some(rule), way.alias(), mode(way), arguments.clone());
        let request = way.request(&world, arguments);
        let reply = world.ask(request).await;
        let outcome = outcome(&reply);
        assert_eq!(outcome, rule.expected(way, &world), "{rule:?} {way:?}");
        assert_eq!(world.server.called().is_empty(), outcome.is_err(), "{rule:?} {way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn tool_without_a_rule_is_reachable_in_every_way() {
    for (rule, way) in cells() {
        // A composite checks its input, and the arguments of its targets, in any case.
        let is_checked = matches!(
            (rule, way),
            (Rule::StrictSchema(_), Way::PassedOn | Way::Sent | Way::Nested | Way::CallComposite)
        );
        if is_checked || matches!(way, Way::Original(_)) {
            continue;
        }
        let arguments = rule.arguments();
        let world = World::new(None, way.alias(), mode(way), arguments.clone());
        let reply = world.ask(way.request(&world, arguments.clone())).await;
        assert_eq!(outcome(&reply), Ok(()), "{rule:?} {way:?}");
        assert_eq!(world.server.arguments(WIPE), Some(arguments), "{rule:?} {way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejections_reveal_no_names_unknown_to_the_client() {
    for (rule, way) in cells() {
        let arguments = rule.arguments();
        let world = World::new(Some(rule), way.alias(), mode(way), arguments.clone());
        let request = way.request(&world, arguments);
        let sent = json!(request.message()).to_string();
        let reply = world.ask(request).await;
        let text = serde_json::to_string(&reply.into_result()).unwrap();
        // The definition of a composite may name its parts.
        let is_known = |name: &&str| {
            names_in(&sent).contains(name)
                || !matches!(way, Way::Direct | Way::CallTool | Way::Alias(_) | Way::Original(_))
                    && (*name == world.tool || *name == "token")
        };
        let unknown: Vec<_> = names_in(&text).into_iter().filter(|name| !is_known(name)).collect();
        assert_eq!(unknown, [""; 0], "{rule:?} {way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn uncallable_tools_are_neither_listed_nor_found() {
    for rule in RULES {
        for alias in [None, Some(Level::Top), Some(Level::Backend)] {
            if rule.alias().is_some() && alias.is_some() {
                continue;
            }
            let world = |mode| World::new(Some(rule), alias, mode, rule.arguments());
            let (list, search) = (world(Mode::List), world(Mode::Search));
            for tools in [list.listed().await, search.found().await] {
                let is_shown = names_of(&tools).contains(&list.tool);
                assert_eq!(is_shown, rule.is_about_arguments(), "{rule:?} {alias:?}");
                // Composites disappear with their parts, unless those are only not advertised.
                let composites = rule.is_about_arguments() || rule == Rule::NotAdvertised;
                for name in ["pass", "send", "nest"] {
                    let is_shown = names_of(&tools).contains(&name);
                    assert_eq!(is_shown, composites, "{rule:?} {alias:?} {name}");
                }
                if let Rule::HiddenArgument(_) = rule {
                    let text = tools.to_string();
                    assert!(!text.contains("token"), "{rule:?} {alias:?} {text}");
                }
            }
        }
    }
}

// === prompts and resources ===

/// A request of a client for an item of this name.
type Asks = (&'static str, fn(&str) -> Value);

/// The requests about a prompt.
const OF_PROMPTS: [Asks; 2] = [
    ("prompts/get", |name| json!({ "name": name })),
    ("completion/complete", |name| {
        json!({
            "ref": { "type": "ref/prompt", "name": name },
            "argument": { "name": "about", "value": "" },
        })
    }),
];

/// The requests about a resource.
const OF_RESOURCES: [Asks; 3] = [
    ("resources/read", |uri| json!({ "uri": uri })),
    ("resources/subscribe", |uri| json!({ "uri": uri })),
    ("completion/complete", |uri| {
        json!({
            "ref": { "type": "ref/resource", "uri": uri },
            "argument": { "name": "x", "value": "" },
        })
    }),
];

/// The rule of an item: hidden or renamed.
#[derive(Clone, Copy, Debug)]
enum Keeping {
    Nothing,
    Hidden(Level),
    Renamed(Level),
    /// Both at one level.
    RenamedAndHidden(Level),
}

/// A server of a prompt and a resource behind layers, and its items by their original names and by
/// their current names.
struct Shelf {
    full: Full,
    stack: Stack<Router>,
    original: [&'static str; 2],
    now: [&'static str; 2],
}

impl Shelf {
    fn new(keeping: Keeping) -> Self {
        let hidden = |prompt: &str| {
            FilterLayer::new()
                .prompts(deny(prompt))
                .resources(deny("full://a"))
                .resource_templates(deny("full://{x}"))
        };
        let renamed = |prompt: &str| {
            AliasLayer::new()
                .prompts([PromptAlias::new(prompt).name("poem")])
                .and_then(|it| it.resources([ResourceAlias::new("full://a").uri("other://a")]))
                .unwrap()
        };
        let layers = |level, prompt: &str| match keeping {
            Keeping::Hidden(at) if at == level => (AliasLayer::new(), hidden(prompt)),
            Keeping::Renamed(at) if at == level => (renamed(prompt), FilterLayer::new()),
            Keeping::RenamedAndHidden(at) if at == level => (renamed(prompt), hidden(prompt)),
            _ => (AliasLayer::new(), FilterLayer::new()),
        };
        let (above, below) = (layers(Level::Top, "b_haiku"), layers(Level::Backend, "haiku"));
        let full = Full::default();
        let backend = BackendLayer::new().alias(below.0).filter(below.1);
        let backend = Backend::new("b", backend.layer(HandlerService::new(full.clone())));
        let router = Router::builder().backend(backend).build().unwrap();
        let stack = StackLayer::new().alias(above.0).filter(above.1).layer(router);
        let original = ["b_haiku", "full://a"];
        let now = match keeping {
            Keeping::Renamed(Level::Top) | Keeping::RenamedAndHidden(Level::Top) => {
                ["poem", "other://a"]
            }
            Keeping::Renamed(Level::Backend) | Keeping::RenamedAndHidden(Level::Backend) => {
                ["b_poem", "other://a"]
            }
            Keeping::Nothing | Keeping::Hidden(_) => original,
        };
        Self { full, stack, original, now }
    }

    /// Returns whether a request reaches the server, or else the error.
    async fn ask(&self, method: &str, params: &Value) -> Result<(), String> {
        let request = json!({ "method": method, "params": params });
        let request: ClientRequest = serde_json::from_value(request).unwrap();
        let before = self.request_count(method);
        let reply = self.stack.clone().oneshot(Request::new(request, Context::default())).await;
        let reply = reply.unwrap();
        let error = serde_json::to_string(&reply.into_result()).unwrap();
        if self.request_count(method) > before { Ok(()) } else { Err(error) }
    }

    fn request_count(&self, method: &str) -> usize {
        self.full.log.lines().iter().filter(|line| line.starts_with(method)).count()
    }

    /// Returns all names and URIs listed to the client.
    async fn listed(&self) -> String {
        let mut listed = String::new();
        for method in ["prompts/list", "resources/list", "resources/templates/list"] {
            let request: ClientRequest =
                serde_json::from_value(json!({ "method": method })).unwrap();
            let request = Request::new(request, Context::default());
            let reply = self.stack.clone().oneshot(request).await.unwrap();
            listed += &serde_json::to_string(&reply.into_result()).unwrap();
        }
        listed
    }
}

#[tokio::test(start_paused = true)]
async fn prompts_and_resources_are_reached_only_by_visible_names() {
    let mut kept = vec![Keeping::Nothing];
    for level in LEVELS {
        kept.extend([
            Keeping::Hidden(level),
            Keeping::Renamed(level),
            Keeping::RenamedAndHidden(level),
        ]);
    }
    for keeping in kept {
        let shelf = Shelf::new(keeping);
        let listed = shelf.listed().await;
        let (by_original, by_name) = match keeping {
            Keeping::Nothing => (true, true),
            Keeping::Renamed(_) => (false, true),
            Keeping::Hidden(_) | Keeping::RenamedAndHidden(_) => (false, false),
        };
        for (names, is_reached) in [(shelf.original, by_original), (shelf.now, by_name)] {
            let [prompt, uri] = names;
            let prompts = OF_PROMPTS.map(|(method, params)| (method, prompt, params(prompt)));
            let resources = OF_RESOURCES.map(|(method, params)| (method, uri, params(uri)));
            for (method, name, params) in prompts.into_iter().chain(resources) {
                let quoted = format!("\"{name}\"");
                assert_eq!(listed.contains(&quoted), is_reached, "{keeping:?} {quoted} {listed}");
                match shelf.ask(method, &params).await {
                    Ok(()) => assert!(is_reached, "{keeping:?} {method} {name}"),
                    Err(error) => {
                        assert!(!is_reached, "{keeping:?} {method} {name}: {error}");
                        let others = ["haiku", "b_haiku", "full://a", "poem", "other://a"];
                        let mut others = others.iter().filter(|other| !name.contains(*other));
                        assert!(!others.any(|other| error.contains(other)), "{keeping:?} {error}");
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_requests_of_any_method_are_rejected() {
    let full = Full::default();
    let router = Router::builder()
        .backend(Backend::new("b", HandlerService::new(full.clone())))
        .build()
        .unwrap();
    let stack = StackLayer::new().limit(limit()).layer(router);
    let shelf = Shelf { full, stack, original: ["", ""], now: ["", ""] };
    let large = "x".repeat(LIMIT + 1);
    let long = format!("full://{}", "x".repeat(1024 + LIMIT));
    for (method, params) in [
        ("prompts/get", json!({ "name": "b_haiku", "arguments": { "about": large } })),
        (
            "completion/complete",
            json!({
                "ref": { "type": "ref/prompt", "name": "b_haiku" },
                "argument": { "name": "about", "value": large },
            }),
        ),
        ("resources/read", json!({ "uri": long })),
        ("resources/subscribe", json!({ "uri": long })),
    ] {
        let error = shelf.ask(method, &params).await.unwrap_err();
        assert!(error.contains("max_argument_bytes"), "{method} {error}");
    }
}
