//! The tools, composites and backends that the page shows.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use futures::{FutureExt, future::join_all};
use mcp_composite::{
    adapter::{Router, router::Problem},
    advertise::AdvertiseLayer,
    alias::AliasLayer,
    composite::CompositeLayer,
    config::{BackendConfig, Backends, Config, Gateway, Transport, View},
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

/// The tools of a connected backend.
struct OwnTools<'c> {
    backend: &'c BackendConfig,
    /// All tools that the backend lists.
    tools: Vec<Tool>,
    /// The names that the layers of the backend leave.
    names: HashSet<String>,
}

/// Returns the catalog of a running file, and in `views` those of its views.
pub(super) async fn live(gateway: &Gateway, config: &Config, redacted: &Redacted) -> Value {
    let backends = gateway.backends();
    let own = config.backends().iter().map(|backend| OwnTools::list(&backends, backend));
    let own = tokio::time::timeout(PATIENCE, join_all(own)).await;
    let own: Option<Vec<_>> = own.ok().map(|own| own.into_iter().flatten().collect());
    let router = backends.router();
    let catalog = async |view: View, config: &Config| {
        let listed = match &own {
            Some(own) => {
                tokio::time::timeout(PATIENCE, tools(&view, config, own, router)).await.ok()
            }
            None => None,
        };
        let (tools, error) = match listed {
            Some(Ok(tools)) => (tools, None),
            Some(Err(error)) => (Vec::new(), Some(error)),
            None => (Vec::new(), Some("the backends did not list their tools in time".to_owned())),
        };
        let remarks = [config.stack_layer().remarks(), view.warnings()].concat();
        let view = config.view_path();
        let catalog = json!({ "view": view, "tools": tools, "error": error, "remarks": remarks });
        let mut catalog = redacted.json(catalog);
        let composites = CompositeRecord::of_view(config, redacted);
        catalog["composites"] = redacted.json(diagrams(&composites));
        catalog
    };
    let views = config.views().iter().filter_map(|view| {
        let path = view.path();
        Some((gateway.view(path)?, config.view(path)?))
    });
    let views = views.map(|(view, config)| async move { catalog(view, &config).await });
    let (mut main, views) = tokio::join!(catalog(gateway.main(), config), join_all(views));
    let warnings = backends.warnings().into_iter().map(|warning| json!(redacted.text(&warning)));
    if let Some(remarks) = main["remarks"].as_array_mut() {
        remarks.extend(warnings);
    }
    main["views"] = json!(views);
    main
}

/// Returns the catalog of a recording, which has no tools.
pub(super) fn recorded(composites: &[CompositeRecord]) -> Value {
    let catalog = |view: Option<&str>| {
        let composites = composites.iter().filter(|composite| composite.view.as_deref() == view);
        let composites = diagrams(composites);
        json!({ "view": view, "tools": null, "error": null, "remarks": [], "composites": composites })
    };
    let views: BTreeSet<_> = composites.iter().filter_map(|it| it.view.as_deref()).collect();
    let mut main = catalog(None);
    main["views"] = views.into_iter().map(|view| catalog(Some(view))).collect();
    main
}

fn diagrams<'c>(composites: impl IntoIterator<Item = &'c CompositeRecord>) -> Value {
    let entries = composites.into_iter().map(|CompositeRecord { name, mermaid, .. }| {
        CompositeEntry { name, mermaid, graph: Graph::parse(mermaid) }
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

/// Returns all tools of a view: those of the backends, also hidden ones, and those that this
/// program adds.
async fn tools(
    view: &View,
    config: &Config,
    own: &[OwnTools<'_>],
    router: &Router,
) -> Result<Vec<ToolEntry>, String> {
    let stack = config.stack_layer();
    let levels = Levels::list(view, &stack, router).await?;
    let entries = own.iter().flat_map(|own| own.entries(router, &stack, &levels));
    let mut entries: Vec<ToolEntry> = entries.collect();
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

// === impl OwnTools ===

impl<'c> OwnTools<'c> {
    /// Returns `None` if the backend is not connected or does not list its tools.
    async fn list(backends: &Backends, backend: &'c BackendConfig) -> Option<Self> {
        let remote = backends.remotes().iter().find(|remote| remote.name() == backend.name())?;
        // Without a connection, the list would fail.
        remote.connected().now_or_never()?.ok()?;
        let tools = listed(remote.clone()).await.ok()?;
        let names = names(backend.layer().layer(remote.clone())).await.ok()?;
        Some(Self { backend, tools, names })
    }

    /// Returns the tools as a view shows them, also hidden ones.
    fn entries(&self, router: &Router, stack: &StackLayer, levels: &Levels) -> Vec<ToolEntry> {
        let Self { backend, tools, names } = self;
        let entries = tools.iter().map(|tool| {
            let mut entry = ToolEntry { source: backend.name().to_owned(), ..ToolEntry::of(tool) };
            entry.names.push(NameEntry {
                name: tool.name.to_string(),
                reason: format!("backend {}", backend.name()),
            });
            entry.hidden_by = entry.apply_layers(backend, names, router, stack, levels);
            entry
        });
        entries.collect()
    }
}

// === impl Levels ===

impl Levels {
    async fn list(view: &View, stack: &StackLayer, router: &Router) -> Result<Self, String> {
        let everything = stack.clone().advertise(AdvertiseLayer::new());
        let filter = everything.clone().composite(CompositeLayer::default());
        let filter = filter.alias(AliasLayer::new());
        Ok(Self {
            router: names(router.clone()).await?,
            filtered: names(filter.layer(router.clone())).await?,
            all: names(everything.layer(router.clone())).await?,
            listed: by_name(listed(view.service()).await?),
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
