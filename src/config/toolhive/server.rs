//! Converts the configuration of a virtual MCP server.

use std::{collections::HashSet, ops::Range};

use serde_json::{Map, Value, json};

use super::{
    auth,
    composite::{Call, Composite},
    import::Import,
    objects::{self, Objects},
    write::Table,
    yaml::Node,
};
use crate::adapter::router::Conflicts;

/// The default format of tool name prefixes, both in ToolHive and in this crate.
const PREFIX_FORMAT: &str = "{workload}_";

/// The settings of a virtual server in ToolHive. Its workloads become backends.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// The name of the group to which the server's workloads belong.
    group: Option<String>,
    workloads: Vec<Workload>,
    conflicts: Conflicts,
    prefix_format: Option<String>,
    excludes_all: bool,
    searches: bool,
    /// The timeout of workloads that set no timeout.
    timeout: Option<String>,
    /// The headers of requests to workloads that set no headers.
    headers: Map<String, Value>,
    auth: Vec<Table>,
}

/// A workload, which becomes a backend, and the settings of its tools.
#[derive(Debug, Default)]
struct Workload {
    name: String,
    origin: Range<usize>,
    url: Option<String>,
    headers: Option<Map<String, Value>>,
    timeout: Option<String>,
    filter: Option<Vec<String>>,
    excludes_all: bool,
    overrides: Vec<Override>,
}

/// A new name or description for a tool.
#[derive(Debug)]
struct Override {
    tool: String,
    name: Option<String>,
    alias: Table,
}

/// The sections of a virtual server that the import knows.
const SECTIONS: [&str; 14] = [
    "name",
    "group",
    "groupRef",
    "aggregation",
    "backends",
    "compositeTools",
    "compositeToolRefs",
    "config",
    "embeddingServerRef",
    "incomingAuth",
    "metadata",
    "operational",
    "optimizer",
    "outgoingAuth",
];

// === impl Server ===

impl Server {
    /// Reads the sections of a virtual server. Returns its composite tools.
    pub(super) fn read<'n>(
        &mut self,
        import: &mut Import<'_>,
        node: &'n Node,
        objects: &Objects<'n>,
    ) -> Vec<&'n Node> {
        let Some(fields) = import.section(node, &SECTIONS) else { return Vec::new() };
        let mut composites = match fields.get("config") {
            Some(config) => self.read(import, config, objects),
            None => Vec::new(),
        };
        let group = fields.get("groupRef").or_else(|| fields.get("group")).and_then(name_of);
        self.group = group.map(str::to_owned).or(self.group.take());
        for node in import.list(fields.get("backends")) {
            self.backend(import, node);
        }
        if let Some(node) = fields.get("aggregation") {
            self.aggregation(import, node, objects);
        }
        if let Some(node) = fields.get("operational") {
            self.operational(import, node);
        }
        if let Some(node) = fields.get("outgoingAuth") {
            self.outgoing(import, node);
        }
        if let Some(node) = fields.get("incomingAuth") {
            self.auth = auth::incoming(import, node);
        }
        for key in ["optimizer", "embeddingServerRef"] {
            if fields.get(key).is_some() && !self.searches {
                self.searches = true;
                let message = "clients find tools with `search_tools`, which ToolHive calls \
                               `find_tool`, and call them with `call_tool`; it searches words";
                import.differs(message, &fields.key_span(key));
            }
        }
        composites.extend(import.list(fields.get("compositeTools")));
        for node in import.list(fields.get("compositeToolRefs")) {
            let Some(fields) = import.fields(node, &["name"], &["namespace"]) else { continue };
            let Some(name) = import.required(&fields, "name") else { continue };
            match objects::find(&objects.definitions, name) {
                Some(spec) => composites.push(spec),
                None => import.mistake(format!("the file has no definition `{name}`"), &node.span),
            }
        }
        composites
    }

    /// Adds the workloads of the file, except for those that belong to another group than the
    /// server.
    pub(super) fn add_workloads(&mut self, import: &mut Import<'_>, objects: &Objects<'_>) {
        for (name, spec) in &objects.workloads {
            let group = spec.get("groupRef").and_then(name_of);
            if group.is_some() && self.group.is_some() && group != self.group.as_deref() {
                continue;
            }
            let url = spec.get("remoteUrl").or_else(|| spec.get("remoteURL"));
            let url = url.and_then(|url| import.text(url)).map(str::to_owned);
            let workload = self.workload(name, &spec.span);
            workload.url = workload.url.take().or(url);
        }
    }

    /// Adds a workload for each called tool of the form `workload.tool`.
    pub(super) fn name_workloads<'c>(&mut self, calls: impl Iterator<Item = &'c Call>) {
        for (workload, _) in calls.filter_map(|call| call.tool.split_once('.')) {
            self.workload(workload, &(0..0));
        }
    }

    /// Returns the workload with the given name, and adds it if it is new.
    fn workload(&mut self, name: &str, origin: &Range<usize>) -> &mut Workload {
        let place = self.workloads.iter().position(|workload| workload.name == name);
        let place = place.unwrap_or_else(|| {
            let (name, origin) = (name.to_owned(), origin.clone());
            self.workloads.push(Workload { name, origin, ..Workload::default() });
            self.workloads.len() - 1
        });
        &mut self.workloads[place]
    }

    pub(super) const fn has_workloads(&self) -> bool {
        !self.workloads.is_empty()
    }

    fn backend(&mut self, import: &mut Import<'_>, node: &Node) {
        let known = ["name", "url", "transport"];
        let Some(fields) = import.section(node, &known) else { return };
        let Some(name) = import.required(&fields, "name") else { return };
        let url = import.optional(&fields, "url").map(str::to_owned);
        if let Some(node) = fields.get("transport") {
            import.word(node, &["streamable-http"]);
        }
        self.workload(name, &fields.span()).url = url;
    }

    fn aggregation(&mut self, import: &mut Import<'_>, node: &Node, objects: &Objects<'_>) {
        let known = ["conflictResolution", "conflictResolutionConfig", "tools", "excludeAllTools"];
        let Some(fields) = import.fields(node, &known, &[]) else { return };
        if let Some(node) = fields.get("conflictResolution") {
            self.conflicts = match import.word(node, &["prefix", "priority", "manual"]) {
                Some("priority") => Conflicts::Priority,
                Some("manual") => Conflicts::Manual,
                _ => Conflicts::Prefix,
            };
        }
        if let Some(node) = fields.get("conflictResolutionConfig")
            && let Some(inner) = import.fields(node, &["prefixFormat", "priorityOrder"], &[])
        {
            let format = import.optional(&inner, "prefixFormat");
            if format.is_some_and(|format| !format.contains("{workload}")) {
                let message = "`prefixFormat` needs `{workload}`: backends need different prefixes";
                import.mistake(message, &node.span);
            }
            self.prefix_format =
                format.filter(|format| *format != PREFIX_FORMAT).map(str::to_owned);
            let rest = std::mem::take(&mut self.workloads);
            for node in import.list(inner.get("priorityOrder")) {
                if let Some(name) = import.text(node) {
                    self.workload(name, &node.span);
                }
            }
            for workload in rest {
                let (name, origin) = (workload.name.clone(), workload.origin.clone());
                *self.workload(&name, &origin) = workload;
            }
        }
        self.excludes_all = import.flag(fields.get("excludeAllTools"));
        for node in import.list(fields.get("tools")) {
            self.tools(import, node, objects);
        }
    }

    fn tools(&mut self, import: &mut Import<'_>, node: &Node, objects: &Objects<'_>) {
        let known = ["workload", "filter", "excludeAll", "overrides", "toolConfigRef"];
        let Some(fields) = import.fields(node, &known, &[]) else { return };
        let Some(name) = import.required(&fields, "workload") else { return };
        let excludes_all = import.flag(fields.get("excludeAll"));
        self.workload(name, &node.span).excludes_all = excludes_all;
        let Some(reference) = fields.get("toolConfigRef") else {
            let [filter, overrides] = ["filter", "overrides"].map(|key| fields.get(key));
            return self.tool_settings(import, name, filter, overrides);
        };
        let config = name_of(reference).unwrap_or_default();
        let Some(spec) = objects::find(&objects.tool_configs, config) else {
            let message = format!(
                "the file has no `MCPToolConfig` `{config}`: its filter and overrides are missing"
            );
            return import.unprotected(message, &reference.span);
        };
        // Then the keys `filter` and `overrides` have no effect.
        if let Some(fields) = import.fields(spec, &["toolsFilter", "toolsOverride"], &[]) {
            let [filter, overrides] = ["toolsFilter", "toolsOverride"].map(|key| fields.get(key));
            self.tool_settings(import, name, filter, overrides);
        }
    }

    fn tool_settings(
        &mut self,
        import: &mut Import<'_>,
        workload: &str,
        filter: Option<&Node>,
        overrides: Option<&Node>,
    ) {
        let filter: Vec<_> = import.texts(filter).into_iter().map(str::to_owned).collect();
        let workload = self.workload(workload, &(0..0));
        // An empty filter selects all tools, as in ToolHive.
        workload.filter = (!filter.is_empty()).then_some(filter);
        for member in import.map(overrides) {
            let known = ["name", "description", "annotations"];
            let Some(fields) = import.fields(&member.value, &known, &[]) else { continue };
            let mut alias = Table::from_fields("[[backends.aliases]]", &fields);
            alias.set("tool", member.key.as_str());
            let mut is_empty = true;
            for key in known {
                alias.set_some(key, fields.get(key).map(Node::to_json));
                is_empty &= fields.get(key).is_none();
            }
            if is_empty {
                import.mistake("an override needs a `name` or a `description`", &member.key_span);
            }
            let name = fields.get("name").and_then(Node::as_text).map(str::to_owned);
            let filter = workload.filter.as_deref().unwrap_or_default();
            if let Some(name) = &name
                && filter.contains(&member.key)
                && !filter.contains(name)
            {
                let message = format!(
                    "`{}` is hidden, as in ToolHive: a filter has the names after overrides, here \
                     `{name}`",
                    member.key
                );
                import.differs(message, &member.key_span);
            }
            workload.overrides.push(Override { tool: member.key.clone(), name, alias });
        }
    }

    fn operational(&mut self, import: &mut Import<'_>, node: &Node) {
        let Some(fields) = import.section(node, &["timeouts"]) else { return };
        let Some(node) = fields.get("timeouts") else { return };
        let Some(timeouts) = import.fields(node, &["default", "perWorkload"], &[]) else { return };
        for member in import.map(timeouts.get("perWorkload")) {
            let timeout = import.duration(Some(&member.value));
            self.workload(&member.key, &member.key_span).timeout = timeout;
        }
        self.timeout = import.duration(timeouts.get("default")).or(self.timeout.take());
    }

    fn outgoing(&mut self, import: &mut Import<'_>, node: &Node) {
        let known = ["source", "default", "backends"];
        let Some(fields) = import.section(node, &known) else { return };
        if let Some(node) = fields.get("default") {
            self.headers = auth::headers(import, node);
        }
        for member in import.map(fields.get("backends")) {
            let headers = auth::headers(import, &member.value);
            self.workload(&member.key, &member.key_span).headers = Some(headers);
        }
    }

    /// Records two kinds of differences from ToolHive: calls of hidden tools whose arguments are
    /// converted to other types, and composites with the same name as a tool.
    pub(super) fn compare(&self, import: &mut Import<'_>, composites: &[Composite]) {
        let calls = || composites.iter().flat_map(|composite| &composite.calls);
        for Call { tool, texts } in calls() {
            if let Some(span) = texts.as_ref().filter(|_| self.hides(&self.listed_name(tool))) {
                let message = format!(
                    "clients do not see `{tool}`: its arguments have the types of its schema; \
                     ToolHive sends texts"
                );
                import.differs(message, span);
            }
        }
        let called = calls().map(|call| self.listed_name(&call.tool));
        let named = self
            .workloads
            .iter()
            .flat_map(|workload| workload.known_tools().map(|tool| self.prefixed(workload, tool)));
        let tools: HashSet<_> = called.chain(named).collect();
        let names = composites.iter().filter_map(|composite| composite.name.as_ref());
        for (name, span) in names.filter(|(name, _)| tools.contains(name)) {
            let message = format!(
                "`{name}` is also the name of a tool: clients call the composite; in ToolHive, \
                 they call the tool, and no composite is listed"
            );
            import.differs(message, span);
        }
    }

    /// Returns the name of a tool as clients see it. `tool` is this name, or has the form
    /// `workload.tool`.
    fn listed_name(&self, tool: &str) -> String {
        let own = tool.split_once('.').and_then(|(name, own)| {
            let workload = self.workloads.iter().find(|workload| workload.name == name)?;
            Some(self.prefixed(workload, own))
        });
        own.unwrap_or_else(|| tool.to_owned())
    }

    /// Returns `true` if clients do not see the tool, but composites can call it.
    fn hides(&self, listed_name: &str) -> bool {
        let is_hidden = |workload: &Workload| {
            let tool = listed_name.strip_prefix(&self.prefix(workload));
            tool.is_some_and(|tool| workload.hides(tool))
        };
        self.excludes_all
            || (self.conflicts == Conflicts::Prefix && self.workloads.iter().any(is_hidden))
    }

    fn prefixed(&self, workload: &Workload, tool: &str) -> String {
        match self.conflicts {
            Conflicts::Prefix => self.prefix(workload) + tool,
            Conflicts::Priority | Conflicts::Manual => tool.to_owned(),
        }
    }

    fn prefix(&self, workload: &Workload) -> String {
        self.prefix_format.as_deref().unwrap_or(PREFIX_FORMAT).replace("{workload}", &workload.name)
    }

    /// Converts the server to TOML tables, except for its composite tools.
    pub(super) fn tables(mut self, import: &mut Import<'_>) -> Vec<Table> {
        let mut tables = Vec::new();
        if self.conflicts != Conflicts::Prefix {
            let mut router = Table::new("[router]", &(0..0));
            router.set("conflicts", self.conflicts.as_str());
            tables.push(router);
        }
        let advertise = self.advertise();
        let variables: Vec<_> = self
            .workloads
            .iter()
            .filter(|workload| workload.url.is_none())
            .map(|workload| variable(&workload.name))
            .collect();
        if !variables.is_empty() {
            let names = variables.join(", ");
            let message =
                format!("set {names} to the URLs of the workloads, which the file does not have");
            import.differs(message, &(0..0));
        }
        let hides = |workload: &Workload| workload.filter.is_some() || workload.excludes_all;
        if self.conflicts != Conflicts::Prefix && self.workloads.iter().any(hides) {
            let message = "`filter` and `excludeAll` hide tools from composites, too, since names \
                           have no prefixes";
            import.differs(message, &(0..0));
        }
        for workload in std::mem::take(&mut self.workloads) {
            self.backend_tables(workload, &mut tables);
        }
        tables.extend(advertise);
        tables.extend(self.auth);
        tables
    }

    fn backend_tables(&self, workload: Workload, tables: &mut Vec<Table>) {
        let mut backend = Table::new("[[backends]]", &workload.origin);
        let url = workload.url.clone();
        let url = url.unwrap_or_else(|| format!("${{{}}}", variable(&workload.name)));
        backend.set("name", workload.name.as_str());
        backend.set("url", url);
        let headers = workload.headers.as_ref().unwrap_or(&self.headers);
        if !headers.is_empty() {
            backend.set("headers", headers.clone());
        }
        backend.set_some("timeout", workload.timeout.as_ref().or(self.timeout.as_ref()).cloned());
        if self.conflicts == Conflicts::Prefix && self.prefix_format.is_some() {
            backend.set("prefix", self.prefix(&workload));
        }
        if self.conflicts != Conflicts::Prefix {
            // Without prefixes, patterns of `[advertise]` cannot select a backend.
            backend.set_some("expose_tools", workload.original_filter());
            backend.set_some("hide_tools", workload.excludes_all.then(|| json!(["*"])));
        }
        tables.push(backend);
        tables.extend(workload.overrides.into_iter().map(|renamed| renamed.alias));
    }

    /// Returns the `[advertise]` table, which selects the tools that clients see. Returns `None` if
    /// the table would be empty.
    fn advertise(&self) -> Option<Table> {
        let mut advertise = Table::new("[advertise]", &(0..0));
        if self.searches {
            advertise.set("mode", "search");
        }
        if self.excludes_all {
            advertise.set("deny", json!(["*"]));
            return Some(advertise);
        }
        if self.conflicts != Conflicts::Prefix {
            return (!advertise.is_empty()).then_some(advertise);
        }
        let (excluded, listed): (Vec<_>, Vec<_>) =
            self.workloads.iter().partition(|workload| workload.excludes_all);
        if listed.iter().any(|workload| workload.filter.is_some()) {
            let names = listed.iter().flat_map(|workload| {
                let prefix = self.prefix(workload);
                let tools = workload.filter.clone().unwrap_or_else(|| vec!["*".to_owned()]);
                tools.into_iter().map(move |tool| format!("{prefix}{tool}"))
            });
            advertise.set("allow", names.collect::<Vec<_>>());
        } else if !excluded.is_empty() {
            let patterns = excluded.iter().map(|workload| format!("{}*", self.prefix(workload)));
            advertise.set("deny", patterns.collect::<Vec<_>>());
        }
        (!advertise.is_empty()).then_some(advertise)
    }
}

// === impl Workload ===

impl Workload {
    /// Returns `true` if clients do not see the tool.
    fn hides(&self, tool: &str) -> bool {
        let filter = self.filter.as_ref();
        self.excludes_all || filter.is_some_and(|filter| !filter.iter().any(|name| name == tool))
    }

    /// Returns the names of the tools that the file mentions. A renamed tool has its new name.
    fn known_tools(&self) -> impl Iterator<Item = &str> {
        let overrides = self.overrides.iter();
        let renamed = overrides.map(|own| own.name.as_deref().unwrap_or(&own.tool));
        self.filter.iter().flatten().map(String::as_str).chain(renamed)
    }

    /// Returns the tools of the filter by their names on the backend. In ToolHive, a filter
    /// contains the new names of renamed tools. Returns `None` if there is no filter.
    fn original_filter(&self) -> Option<Vec<&str>> {
        let names = self.filter.as_ref()?.iter();
        Some(names.map(|name| self.original(name)).collect())
    }

    /// Returns the name of a tool on the backend. `name` is the new name if the tool was renamed.
    fn original<'w>(&'w self, name: &'w str) -> &'w str {
        let renamed = self.overrides.iter().find(|own| own.name.as_deref() == Some(name));
        renamed.map_or(name, |renamed| &renamed.tool)
    }
}

/// Returns the name in a reference to an object. In older versions of ToolHive, the reference is a
/// plain string.
fn name_of(node: &Node) -> Option<&str> {
    node.as_text().or_else(|| node.get("name")?.as_text())
}

/// Returns the name of the environment variable for the URL of a workload, such as `GITHUB_URL`.
fn variable(workload: &str) -> String {
    let upper = workload
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    upper.chain("_URL".chars()).collect()
}
