//! Names through routers, aliases and filters: each listed name refers to one tool, and no name
//! reaches a hidden tool.

use std::collections::{HashMap, HashSet};

use arbitrary::{Arbitrary, Result, Unstructured};
use mcp_composite::{
    adapter::router::{Backend, Conflicts, Router},
    alias::{AliasLayer, ToolAlias},
    filter::FilterLayer,
    message::{ItemKind, ToolAnswer},
    pattern::Selection,
    stack::{BackendLayer, Stack, StackLayer},
    testing::{self, Server},
};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;
use tower::{Layer, ServiceExt};

use super::run;

/// Some backends behind a router, all with rules about names.
#[derive(Arbitrary, Debug)]
struct Gateway {
    backends: [BackendOf; 3],
    count: u8,
    separator: Separator,
    conflicts: u8,
    rules: Rules,
    /// Names that a client tries besides all known ones.
    tried: Vec<Name>,
}

#[derive(Arbitrary, Debug)]
struct BackendOf {
    name: Name,
    prefix: Option<Name>,
    tools: Vec<Name>,
    rules: Rules,
}

#[derive(Arbitrary, Debug)]
struct Rules {
    aliases: Vec<(Name, Name)>,
    allow: Option<Vec<Name>>,
    deny: Vec<Name>,
}

/// A name, or a pattern of names, from few parts, so that collisions are frequent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name(String);

#[derive(Debug)]
struct Separator(&'static str);

const PARTS: [&str; 20] = [
    "a", "b", "c", "ab", "_", "_", "__", "/", ".", "-", "*", "?", "[ab]", "{a,b}", "re:", "\\*",
    ":", "é", " ", "A",
];

const SEPARATORS: [&str; 8] = ["_", "__", "/", ".", "::", "-", "", "é"];

impl<'a> Arbitrary<'a> for Name {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        if bytes.ratio(1, 30)? {
            return bytes.arbitrary().map(Self);
        }
        let count = bytes.int_in_range(1..=3)?;
        (0..count).map(|_| bytes.choose(&PARTS).copied()).collect::<Result<_>>().map(Self)
    }
}

impl<'a> Arbitrary<'a> for Separator {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        bytes.choose(&SEPARATORS).copied().map(Self)
    }
}

pub(super) fn check(data: &[u8]) {
    let Ok(gateway) = Gateway::arbitrary_take_rest(Unstructured::new(data)) else { return };
    run(gateway.check());
}

// === impl Gateway ===

impl Gateway {
    async fn check(&self) {
        let Some(rules) = self.rules.layers(self.separator.0) else { return };
        let Some((router, backends)) = self.router() else { return };
        let layer = StackLayer::new().alias(rules.alias.clone()).filter(rules.filter.clone());
        let stack = layer.layer(router.clone());

        let listed: Vec<_> = testing::listed(&stack).await;
        let listed: Vec<_> = listed.into_iter().map(|tool| tool.name.into_owned()).collect();
        let visible: HashSet<_> = listed.iter().cloned().collect();
        assert_eq!(visible.len(), listed.len(), "one name twice: {listed:?}");

        let mut reached: HashMap<(usize, String), &str> = HashMap::new();
        for name in &listed {
            let (index, tool) = called(&stack, &backends, name)
                .await
                .unwrap_or_else(|| panic!("`{name}` is shown and reaches nothing: {self:?}"));
            let Layered { name: backend, rules: own, .. } = &backends[index];
            assert!(own.selection.selects(&tool), "`{name}` reaches `{tool}`, which is hidden");
            let renamed = own.alias.name_of(ItemKind::Tool, &tool).expect("a name for clients");
            let routed = router.exposed_name(backend, renamed).expect("a backend");
            assert!(rules.selection.selects(&routed), "`{name}` reaches `{routed}`");
            assert_eq!(rules.alias.name_of(ItemKind::Tool, &routed), Some(&**name));
            assert_eq!(rules.alias.original_of(ItemKind::Tool, name), Some(&*routed));
            if let Some(other) = reached.insert((index, tool.clone()), name) {
                panic!("`{tool}` is shown as `{other}` and as `{name}`");
            }
        }
        for name in self.guesses(&router, &backends) {
            if visible.contains(&name) {
                continue;
            }
            // A tool without a legal name cannot be listed, but is not hidden either.
            if let Some((index, tool)) = called(&stack, &backends, &name).await {
                let Layered { name: backend, rules: own, .. } = &backends[index];
                let renamed = own.alias.name_of(ItemKind::Tool, &tool).expect("a name for clients");
                let routed = router.exposed_name(backend, renamed).expect("a backend");
                let is_allowed = own.selection.selects(&tool) && rules.selection.selects(&routed);
                assert!(is_allowed, "`{name}` reaches `{tool}`, which is hidden: {self:?}");
                let separator = self.separator.0;
                let is_legal = is_legal(&routed, separator) && is_legal(&name, separator);
                assert!(!is_legal, "`{name}` reaches `{tool}`, and is not shown: {self:?}");
            }
        }
    }

    /// Returns the router, and its backends behind their own layers.
    fn router(&self) -> Option<(Router, Vec<Layered>)> {
        let conflicts = match self.conflicts % 4 {
            0 | 1 => Conflicts::Prefix,
            2 => Conflicts::Priority,
            _ => Conflicts::Manual,
        };
        let mut builder = Router::builder().separator(self.separator.0).conflicts(conflicts);
        let mut backends = Vec::new();
        for backend in self.backends.iter().take(1 + usize::from(self.count % 3)) {
            let rules = backend.rules.layers(self.separator.0)?;
            let server = backend.server();
            let layer = BackendLayer::new().alias(rules.alias.clone()).filter(rules.filter.clone());
            let name = backend.name.0.clone();
            let mut added = Backend::new(&*name, layer.layer(server.clone()));
            if let Some(Name(prefix)) = &backend.prefix {
                added = added.prefix(prefix);
            }
            builder = builder.backend(added);
            let tools = backend.tools().map(|Name(name)| name.clone()).collect();
            backends.push(Layered { server, tools, name, rules });
        }
        match builder.build() {
            Ok(router) => Some((router, backends)),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                None
            }
        }
    }

    /// Returns all names that have a meaning on some level.
    fn guesses(&self, router: &Router, backends: &[Layered]) -> HashSet<String> {
        let mut guesses: HashSet<String> =
            self.tried.iter().map(|Name(name)| name.clone()).collect();
        guesses.extend(self.rules.names());
        for (backend, Layered { name, .. }) in self.backends.iter().zip(backends) {
            let own = backend.tools.iter().map(|Name(tool)| tool.clone());
            for tool in own.chain(backend.rules.names()) {
                guesses.extend(router.exposed_name(name, &tool));
                guesses.insert(format!("{name}{}{tool}", self.separator.0));
                guesses.insert(tool);
            }
        }
        guesses
    }
}

// === impl BackendOf ===

impl BackendOf {
    /// Returns a server with at most one tool per page.
    fn server(&self) -> Server {
        self.tools().fold(Server::new().page_size(2), |server, Name(name)| {
            let tool = Tool::new(name.clone(), "A tool", JsonObject::new());
            server.tool_as(tool, testing::Answer::text("there"))
        })
    }

    fn tools(&self) -> impl Iterator<Item = &Name> {
        self.tools.iter().take(6)
    }
}

/// A backend as the router has it.
struct Layered {
    server: Server,
    tools: Vec<String>,
    name: String,
    rules: Layers,
}

struct Layers {
    alias: AliasLayer,
    filter: FilterLayer,
    selection: Selection,
}

// === impl Rules ===

impl Rules {
    /// Returns the layers, or `None` if a rule is invalid.
    fn layers(&self, separator: &str) -> Option<Layers> {
        let aliases = self.aliases.iter().take(4).map(|(Name(original), Name(name))| {
            let alias = ToolAlias::new(original.clone());
            if original == name { alias } else { alias.name(name.clone()) }
        });
        let alias = AliasLayer::new().separator(separator).tools(aliases);
        let alias = alias.map_err(|errors| assert!(!errors.to_string().is_empty())).ok()?;
        let mut selection = Selection::default();
        if let Some(allow) = &self.allow {
            selection = selection.allow(patterns(allow)).ok()?;
        }
        let selection = selection.deny(patterns(&self.deny)).ok()?;
        Some(Layers { alias, filter: FilterLayer::new().tools(selection.clone()), selection })
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let aliases = self.aliases.iter().flat_map(|(original, name)| [original, name]);
        let selected = self.allow.iter().flatten().chain(&self.deny);
        aliases.chain(selected).map(|Name(name)| name.clone())
    }
}

/// Returns whether a tool may have this name, according to the protocol's specification and with
/// the characters of the separator, so a slash is legal only if the separator contains one.
fn is_legal(name: &str, separator: &str) -> bool {
    let is_allowed =
        |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c) || separator.contains(c);
    (1..=128).contains(&name.len()) && name.chars().all(is_allowed)
}

fn patterns(names: &[Name]) -> impl Iterator<Item = &str> {
    names.iter().take(4).map(|Name(name)| &**name)
}

/// Returns which tool of which backend a call reaches.
async fn called(
    stack: &Stack<Router>,
    backends: &[Layered],
    name: &str,
) -> Option<(usize, String)> {
    let before: Vec<_> = backends.iter().map(|backend| backend.server.calls().len()).collect();
    let request = testing::request(name, json!({}));
    let answer = stack.clone().oneshot(request).await.expect("an answer").into_tool_answer();
    let mut reached =
        backends.iter().zip(before).enumerate().flat_map(|(index, (backend, before))| {
            // Only the backend knows whether the name is one of its tools.
            let mut called = backend.server.called().split_off(before);
            called.retain(|tool| backend.tools.contains(tool));
            called.into_iter().map(move |tool| (index, tool))
        });
    match (reached.next(), answer) {
        (Some(tool), ToolAnswer::Result(_)) => {
            assert_eq!(reached.next(), None, "one call of `{name}` is two");
            Some(tool)
        }
        (None, ToolAnswer::Refused(refusal)) => {
            assert_eq!(refusal.name(), Some(name), "{refusal:?}");
            None
        }
        (None, ToolAnswer::Error(_)) => None,
        (reached, answer) => panic!("`{name}` reaches {reached:?} with {answer:?}"),
    }
}
