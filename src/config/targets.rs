//! Resolves the targets of composites: finds the tool or composite that each target refers to.

use std::collections::HashSet;

use super::{backend::BackendConfig, failure::one_of, router::RouterConfig, source::sanitized};
use crate::{adapter::router::Conflicts, alias::AliasLayer, message::ItemKind, suggest::nearest};

/// Maximum number of backends that an error message names.
const MAX_NAMED_BACKENDS: usize = 8;

/// The composites and tools of a configuration file to which the targets of composites can refer.
pub(super) struct Targets<'f> {
    composites: &'f [String],
    names: HashSet<&'f str>,
    backends: &'f [BackendConfig],
    router: &'f RouterConfig,
    /// The layer of the `[[aliases]]` section. It maps the tool names of the router to the names
    /// that clients see.
    alias: &'f AliasLayer,
}

/// The result of looking up a target in the configuration file.
pub(super) enum Meaning<'t> {
    /// The target is the name of another composite, or the name of a tool as clients see it. If
    /// both exist, the target refers to the composite.
    Named,
    /// The target has the form `backend/tool`. Contains the name under which clients see the tool.
    Tool(String),
    /// The target has the form `backend/tool`, but cannot select a backend: there are several
    /// backends, and the router does not prefix names. Contains the name of the tool.
    Bare(&'t str),
    /// The target is the name of a tool that an alias has renamed, so that clients cannot use this
    /// name. Contains the new name, or `None` if clients cannot call the tool at all.
    Renamed(Option<String>),
    /// The target refers to no known tool.
    Unknown,
}

/// Returns the layer with the aliases in the backend's own table, as opposed to the section
/// `[[aliases]]`.
const fn own_alias(backend: &BackendConfig) -> &AliasLayer {
    backend.layer.aliases()
}

/// Returns the name that a backend's tool has in the router, which includes the backend's prefix.
/// `tool` is the original name on the backend, or an alias from the backend's own `aliases`.
fn exposed_name(backend: &BackendConfig, tool: &str) -> String {
    let own = own_alias(backend).name_of(ItemKind::Tool, tool).unwrap_or(tool);
    format!("{}{own}", backend.prefix)
}

// === impl Targets ===

impl<'f> Targets<'f> {
    pub(super) fn new(
        composites: &'f [String],
        backends: &'f [BackendConfig],
        router: &'f RouterConfig,
        alias: &'f AliasLayer,
    ) -> Self {
        let names = composites.iter().map(String::as_str).collect();
        Self { composites, names, backends, router, alias }
    }

    /// Finds the tool or composite to which a target refers. `written` is the target as it is
    /// written in the file. `composite` is the name of the composite that contains the target.
    pub(super) fn resolve<'t>(&self, written: &'t str, composite: &str) -> Meaning<'t> {
        // If the target has the same name as the composite that contains it, it refers to the tool
        // that the composite wraps.
        if written != composite && self.names.contains(written) {
            return Meaning::Named;
        }
        let Some(exposed) = self.alias.original_of(ItemKind::Tool, written) else {
            return Meaning::Renamed(self.client_name(written));
        };
        // The target is an alias that clients see.
        if exposed != written || self.backends.is_empty() {
            return Meaning::Named;
        }
        let spelled = self
            .backends
            .iter()
            .filter_map(|backend| {
                let tool = written.strip_prefix(&backend.name)?.strip_prefix(['/', '.'])?;
                (!tool.is_empty()).then(|| (written.len() - tool.len(), backend, tool))
            })
            .max_by_key(|(length, _, _)| *length);
        let prefixed = self
            .backends
            .iter()
            .filter_map(|backend| Some((backend, written.strip_prefix(&*backend.prefix)?)))
            .filter(|(_, own)| !own.is_empty())
            .max_by_key(|(backend, _)| backend.prefix.len());
        match (spelled, prefixed) {
            // The longer match determines the backend. For example, `git_hub/search` is a tool of
            // the backend `git_hub`, not of `git` with the prefix `git_`.
            (Some((length, backend, tool)), prefixed)
                if prefixed.is_none_or(|(backend, _)| backend.prefix.len() < length) =>
            {
                // Without prefixes, the router may call the tool on another backend that has a tool
                // of the same name.
                if self.router.conflicts() != Conflicts::Prefix && self.backends.len() > 1 {
                    return Meaning::Bare(tool);
                }
                match self.client_name(&exposed_name(backend, tool)) {
                    Some(name) => Meaning::Tool(name),
                    None => Meaning::Renamed(None),
                }
            }
            // The target contains the backend's original tool name, but the backend's own `aliases`
            // rename the tool.
            (_, Some((backend, own)))
                if self.router.conflicts() == Conflicts::Prefix
                    && own_alias(backend).original_of(ItemKind::Tool, own).is_none() =>
            {
                Meaning::Renamed(self.client_name(&exposed_name(backend, own)))
            }
            (_, Some(_)) => Meaning::Named,
            (_, None) => Meaning::Unknown,
        }
    }

    /// Converts a tool name of the router to the name that clients see. Returns `None` if clients
    /// cannot call the tool.
    fn client_name(&self, exposed: &str) -> Option<String> {
        self.alias.name_of(ItemKind::Tool, exposed).map(str::to_owned)
    }

    /// Returns the error message for a target that uses the original name of a renamed tool.
    /// `written` is the target, and `name` the new name of the tool. `name` is `None` if clients
    /// cannot call the tool.
    pub(super) fn renamed(&self, written: &str, name: Option<&str>) -> String {
        let written = sanitized(written);
        match name {
            Some(name) => {
                format!("`{written}` has an alias: expected its name `{}`", sanitized(name))
            }
            None => format!("`{written}` cannot be called: its name is the alias of another tool"),
        }
    }

    /// Returns the error message for a target of the form `backend/tool` that cannot select a
    /// backend, because there are several backends and the router does not prefix names. `written`
    /// is the target, and `tool` the name of the tool in it.
    pub(super) fn bare(&self, written: &str, tool: &str) -> String {
        let conflicts = self.router.conflicts();
        let owner = match conflicts {
            Conflicts::Manual => "the tool of the one backend",
            _ => "the tool of the first backend",
        };
        format!(
            "`{}` names a backend, but names have no prefix with `conflicts = \"{}\"`: expected \
             `{}`, {owner} that has it",
            sanitized(written),
            conflicts.as_str(),
            sanitized(tool),
        )
    }

    /// Returns the error message for a target that refers to no composite and no tool.
    pub(super) fn unknown(&self, written: &str) -> String {
        let hint = self.near(written).map(|near| format!("did you mean `{near}`? "));
        let spelled: Vec<_> = self.backends.iter().map(|b| format!("{}/…", b.name)).collect();
        let mut spelled: Vec<_> =
            spelled.iter().take(MAX_NAMED_BACKENDS).map(String::as_str).collect();
        if self.backends.len() > MAX_NAMED_BACKENDS {
            spelled.push("…");
        }
        format!(
            "unknown tool `{}`: {}expected a composite of this file or a tool of a backend, {}",
            sanitized(written),
            hint.unwrap_or_default(),
            one_of(&spelled),
        )
    }

    /// Returns the name of the composite or tool that is most similar to `written`, as a
    /// suggestion. Returns `None` if no name is similar enough.
    fn near(&self, written: &str) -> Option<String> {
        let composites = self.composites.iter().map(String::as_str);
        let composites: Vec<_> = composites.filter(|composite| *composite != written).collect();
        if let Some(composite) = nearest(written, &composites) {
            return Some(composite.to_owned());
        }
        let backends: Vec<_> = self.backends.iter().map(|backend| backend.name.as_str()).collect();
        for separator in ["/", ".", self.router.separator()] {
            for (at, _) in written.match_indices(separator).take(MAX_NAMED_BACKENDS) {
                let tool = &written[at + separator.len()..];
                if let Some(backend) = nearest(&written[..at], &backends)
                    && !tool.is_empty()
                {
                    return Some(sanitized(&format!("{backend}/{tool}")).into_owned());
                }
            }
        }
        None
    }
}
