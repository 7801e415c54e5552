//! The tools, composites and backends that the page shows.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::{FutureExt, future::join_all};
use mcp_composite::{
    adapter::{RemoteService, Router, router::Problem},
    advertise::AdvertiseLayer,
    alias::AliasLayer,
    composite::CompositeLayer,
    config::{BackendConfig, Config, Gateway, Transport},
    message::{BackendError, ItemKind, Reply, Request},
    stack::StackLayer,
};
use rmcp::model::Tool;
use serde::Serialize;
use serde_json::{Value, json};
use tower::{Layer, Service};

use super::graph::Graph;
use crate::{check::list, redacted::Redacted, report::described, runs::CompositeRecord};

/// The maximum time that the backends have to list their tools.
const PATIENCE: Duration = Duration::from_secs(5);

/// A tool of a backend, or a tool that this program adds.
#[derive(Debug, Default, Serialize)]
struct ToolEntry {
    /// The name that clients see, or would see if no layer hid the tool.
    name: String,
    /// The backend, or `composite` or `search`.
    source: String,
    /// The name of the tool on the backend, and its later names, each with the reason.
    names: Vec<NameEntry>,
    /// The layer that hides the tool from clients.
    hidden_by: Option<String>,
    /// The name and the arguments.
    signature: String,
    description: String,
}

/// A name of a tool.
#[derive(Debug, Serialize)]
struct NameEntry {
    name: String,
    /// The setting that causes the name.
    reason: String,
}

/// A composite, and its diagram.
#[derive(Debug, Serialize)]
struct CompositeEntry<'c> {
    name: &'c str,
    mermaid: &'c str,
    graph: Graph,
}

/// The names that exist above each layer.
struct Levels {
    router: HashSet<String>,
    filtered: HashSet<String>,
    all: HashSet<String>,
    /// The tools that clients see.
    listed: HashMap<String, Tool>,
    problems: Vec<Problem>,
}

/// Returns the catalog of a running file.
pub(super) async fn live(gateway: &Gateway, config: &Config, redacted: &Redacted) -> Value {
    let composites = CompositeRecord::of(config, redacted);
    let listed = tokio::time::timeout(PATIENCE, tools(gateway, config)).await;
    let (tools, error) = match listed {
        Ok(Ok(tools)) => (tools, None),
        Ok(Err(error)) => (Vec::new(), Some(error)),
        Err(_) => (Vec::new(), Some("the backends did not list their tools in time".to_owned())),
    };
    let remarks = [config.composite_layer().remarks(), gateway.warnings()].concat();
    let mut catalog = redacted.json(json!({ "tools": tools, "error": error, "remarks": remarks }));
    catalog["composites"] = redacted.json(diagrams(&composites));
    catalog
}

/// Returns the catalog of a recording, which has no tools.
pub(super) fn recorded(composites: &[CompositeRecord]) -> Value {
    json!({ "tools": null, "error": null, "remarks": [], "composites": diagrams(composites) })
}

fn diagrams(composites: &[CompositeRecord]) -> Value {
    let entries = composites.iter().map(|CompositeRecord { name, mermaid }| CompositeEntry {
        name,
        mermaid,
        graph: Graph::parse(mermaid),
    });
    json!(entries.collect::<Vec<_>>())
}

/// Returns the states of the backends.
pub(super) fn backends(gateway: &Gateway, config: &Config) -> Value {
    let backends = gateway.backends();
    let entries = backends.remotes().iter().map(|remote| {
        let configured = config.backends().iter().find(|backend| backend.name() == remote.name());
        let transport = configured.map(|backend| match backend.transport() {
            Transport::Stdio(_) => "stdio",
            Transport::Http(_) => "http",
            _ => "other",
        });
        let (is_connected, reason) = match remote.connected().now_or_never() {
            Some(Ok(())) => (true, None),
            Some(Err(reason)) => (false, Some(reason)),
            None => (false, Some("it is being connected".to_owned())),
        };
        let info = remote.server_info().filter(|_| is_connected);
        let server = info.as_ref().and_then(|info| info.server_info.as_ref());
        json!({
            "name": remote.name(),
            "transport": transport,
            "is_connected": is_connected,
            "reason": reason,
            "server": server.map(|server| format!("{} {}", server.name, server.version)),
            "protocol": info.as_ref().map(|info| info.protocol_version.as_str()),
        })
    });
    json!(entries.collect::<Vec<_>>())
}

/// Returns all tools: those of the backends, also hidden ones, and those that this program adds.
async fn tools(gateway: &Gateway, config: &Config) -> Result<Vec<ToolEntry>, String> {
    let backends = gateway.backends();
    let router = backends.router();
    let stack = config.stack_layer();
    let levels = Levels::list(gateway, &stack, router).await?;
    let own = config.backends().iter().filter_map(|backend| {
        let remote = backends.remotes().iter().find(|remote| remote.name() == backend.name())?;
        Some(tools_of(backend, remote, router, &stack, &levels))
    });
    let own = join_all(own);
    let mut entries: Vec<ToolEntry> = own.await.into_iter().flatten().collect();
    let composites = config.composite_tools().iter().map(|tool| tool.name());
    let composites: HashSet<_> = composites.collect();
    let known: HashSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    for tool in levels.listed.values() {
        let name = tool.name.to_string();
        let is_composite = composites.contains(&*name);
        // The other ones are those of `mode = "search"`.
        if is_composite || !known.contains(&name) {
            let source = if is_composite { "composite" } else { "search" };
            entries.push(ToolEntry { name, source: source.to_owned(), ..ToolEntry::of(tool) });
        }
    }
    for name in composites {
        if !levels.listed.contains_key(name) {
            let is_listed = levels.all.contains(name);
            let reason = if is_listed { "[advertise]" } else { "a target is missing" };
            entries.push(ToolEntry {
                name: name.to_owned(),
                source: "composite".to_owned(),
                hidden_by: Some(reason.to_owned()),
                signature: name.to_owned(),
                ..ToolEntry::default()
            });
        }
    }
    entries.sort_by(|a, b| (a.hidden_by.is_some(), &a.name).cmp(&(b.hidden_by.is_some(), &b.name)));
    Ok(entries)
}

/// Returns the tools of a backend, also hidden ones.
async fn tools_of(
    backend: &BackendConfig,
    remote: &RemoteService,
    router: &Router,
    stack: &StackLayer,
    levels: &Levels,
) -> Vec<ToolEntry> {
    // Without a connection, the list would fail.
    if !matches!(remote.connected().now_or_never(), Some(Ok(()))) {
        return Vec::new();
    }
    let Ok(tools) = listed(remote.clone()).await else { return Vec::new() };
    let Ok(own) = names(backend.layer().layer(remote.clone())).await else { return Vec::new() };
    let entries = tools.iter().map(|tool| {
        let mut entry = ToolEntry { source: backend.name().to_owned(), ..ToolEntry::of(tool) };
        entry.names.push(NameEntry {
            name: tool.name.to_string(),
            reason: format!("backend {}", backend.name()),
        });
        entry.hidden_by = entry.apply_layers(backend, &own, router, stack, levels);
        entry
    });
    entries.collect()
}

async fn names<S>(service: S) -> Result<HashSet<String>, String>
where
    S: Service<Request, Response = Reply, Error = BackendError> + Clone,
{
    Ok(listed(service).await?.into_iter().map(|tool| tool.name.into_owned()).collect())
}

fn by_name(tools: Vec<Tool>) -> HashMap<String, Tool> {
    tools.into_iter().map(|tool| (tool.name.to_string(), tool)).collect()
}

async fn listed<S>(service: S) -> Result<Vec<Tool>, String>
where
    S: Service<Request, Response = Reply, Error = BackendError> + Clone,
{
    list(service).await.map_err(|error| error.to_string())
}

// === impl Levels ===

impl Levels {
    async fn list(gateway: &Gateway, stack: &StackLayer, router: &Router) -> Result<Self, String> {
        let everything = stack.clone().advertise(AdvertiseLayer::new());
        let filter = everything.clone().composite(CompositeLayer::default());
        let filter = filter.alias(AliasLayer::new());
        Ok(Self {
            router: names(router.clone()).await?,
            filtered: names(filter.layer(router.clone())).await?,
            all: names(everything.layer(router.clone())).await?,
            listed: by_name(listed(gateway.service()).await?),
            problems: router.problems(),
        })
    }

    /// Returns the reason why the router leaves out a tool, if it does.
    fn conflict(&self, backend: &str, name: &str) -> Option<String> {
        let problem = self.problems.iter().find(|problem| match problem {
            Problem::Shadowed { hidden, name: other, .. } => **hidden == *backend && other == name,
            Problem::Contested { backends, name: other, .. } => {
                other == name && backends.iter().any(|other| **other == *backend)
            }
            Problem::IllegalName { backend: other, name: illegal, .. } => {
                **other == *backend && illegal == name
            }
            _ => false,
        });
        match problem {
            Some(problem) => Some(format!("[router]: {problem}")),
            None => (!self.router.contains(name)).then(|| "[router]".to_owned()),
        }
    }
}

// === impl ToolEntry ===

impl ToolEntry {
    fn of(tool: &Tool) -> Self {
        let text = described(tool);
        let signature = text.lines().next().unwrap_or_default().trim().to_owned();
        let description = tool.description.as_deref().unwrap_or_default().to_owned();
        Self { name: tool.name.to_string(), signature, description, ..Self::default() }
    }

    /// Adds the names that the tool has above each layer. Returns the layer that hides it, if any.
    fn apply_layers(
        &mut self,
        backend: &BackendConfig,
        own: &HashSet<String>,
        router: &Router,
        stack: &StackLayer,
        levels: &Levels,
    ) -> Option<String> {
        let of = |setting: &str| format!("{setting} of backend {}", backend.name());
        let Some(name) = backend.layer().aliases().name_of(ItemKind::Tool, &self.name) else {
            return Some(of("another name in `aliases`"));
        };
        self.rename(name.to_owned(), || of("`aliases`"));
        if !own.contains(&self.name) {
            return Some(of("the filter"));
        }
        let name = router.exposed_name(backend.name(), &self.name)?;
        self.rename(name, || of("the prefix"));
        if let Some(conflict) = levels.conflict(backend.name(), &self.name) {
            return Some(conflict);
        }
        if !levels.filtered.contains(&self.name) {
            return Some("[filter]".to_owned());
        }
        let Some(name) = stack.aliases().name_of(ItemKind::Tool, &self.name) else {
            return Some("another tool with this name in [[aliases]]".to_owned());
        };
        self.rename(name.to_owned(), || "[[aliases]]".to_owned());
        if !levels.all.contains(&self.name) {
            return Some("a composite or an alias with the same name".to_owned());
        }
        let Some(tool) = levels.listed.get(&self.name) else {
            return Some("[advertise]".to_owned());
        };
        // Aliases may have changed them.
        let Self { signature, description, .. } = Self::of(tool);
        (self.signature, self.description) = (signature, description);
        None
    }

    fn rename(&mut self, name: String, reason: impl FnOnce() -> String) {
        if name != self.name {
            self.names.push(NameEntry { name: name.clone(), reason: reason() });
            self.name = name;
        }
    }
}
