//! Resolves the targets of composites to other composites and tools.

use std::collections::HashSet;

use super::{backend::BackendConfig, failure::one_of, router::RouterConfig, source::sanitized};
use crate::{adapter::router::Conflicts, alias::AliasLayer, message::ItemKind, suggest::nearest};

/// Maximum number of backends that an error message lists.
const MAX_NAMED_BACKENDS: usize = 8;

/// All items of a file that the target of a composite can refer to.
pub(super) struct Targets<'f> {
    composites: &'f [String],
    names: HashSet<&'f str>,
    backends: &'f [BackendConfig],
    router: &'f RouterConfig,
    /// The aliases of the section `[[aliases]]`, which rename the tools of the router.
    alias: &'f AliasLayer,
}

/// The item that the target of a composite refers to.
pub(super) enum Meaning<'t> {
    /// The target is the name of a composite. If there is no such composite, it is the name of a
    /// tool as clients see it.
    Named,
    /// The target names a tool as `backend/tool`. Contains the name of the tool that clients see.
    Tool(String),
    /// The target names a tool as `backend/tool`, but it cannot select the backend, because there
    /// are several backends and names have no prefix. Contains the name of the tool.
    Bare(&'t str),
    /// The target is a name that clients cannot call because of an alias. Contains the tool's name
    /// for clients, or `None` if they cannot call the tool.
    Renamed(Option<String>),
    /// An unknown tool.
    Unknown,
}

/// Returns the aliases in the table of a backend.
const fn own_alias(backend: &BackendConfig) -> &AliasLayer {
    backend.layer.aliases()
}

/// Returns the router's name for a backend's tool, which begins with the backend's prefix. `tool`
/// is the tool's name on the backend, or its alias in the table of the backend.
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

    /// Finds the item that `written`, a target of `composite`, refers to.
    pub(super) fn resolve<'t>(&self, written: &'t str, composite: &str) -> Meaning<'t> {
        // A target with the name of its own composite refers to the wrapped tool.
        if written != composite && self.names.contains(written) {
            return Meaning::Named;
        }
        let Some(exposed) = self.alias.original_of(ItemKind::Tool, written) else {
            return Meaning::Renamed(self.client_name(written));
        };
        // An alias that clients see.
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
            // The longer prefix is more specific: `git_hub/search` is not a tool of `git`, though
            // it begins with `git_`.
            (Some((length, backend, tool)), prefixed)
                if prefixed.is_none_or(|(backend, _)| backend.prefix.len() < length) =>
            {
                // The router may send a bare name to another backend that has a tool of this name.
                if self.router.conflicts() != Conflicts::Prefix && self.backends.len() > 1 {
                    return Meaning::Bare(tool);
                }
                match self.client_name(&exposed_name(backend, tool)) {
                    Some(name) => Meaning::Tool(name),
                    None => Meaning::Renamed(None),
                }
            }
            // The backend's own name of a tool that has an alias.
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

    /// Converts a tool's name in the router, `exposed`, to the name that clients see. `None` if
    /// clients cannot call the tool.
    fn client_name(&self, exposed: &str) -> Option<String> {
        self.alias.name_of(ItemKind::Tool, exposed).map(str::to_owned)
    }

    /// Returns the error message for a target that clients know by another name.
    pub(super) fn renamed(&self, written: &str, name: Option<&str>) -> String {
        let written = sanitized(written);
        match name {
            Some(name) => {
                format!("`{written}` has an alias: expected its name `{}`", sanitized(name))
            }
            None => format!("`{written}` cannot be called: its name is the alias of another tool"),
        }
    }

    /// Returns the error message for a target such as `backend/tool` if there are several backends
    /// and names have no prefix.
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

    /// Returns the error message for a target that is neither a composite nor a tool.
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

    /// Returns the target that `written` is most likely a typo of, if there is one.
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
