use std::collections::HashSet;

use super::{backend::BackendConfig, failure::one_of, router::RouterConfig, source::shown};
use crate::{adapter::router::Conflicts, near::nearest};

/// How many backends a message names.
const MAX_NAMED: usize = 8;

/// What the targets of a file's composites can be.
pub(super) struct Targets<'f> {
    pub(super) composites: &'f [String],
    pub(super) names: HashSet<&'f str>,
    pub(super) backends: &'f [BackendConfig],
    pub(super) router: &'f RouterConfig,
}

/// What a composite means by a target.
pub(super) enum Meaning<'t> {
    /// What has this name, as clients see it: a composite, else a tool.
    Named,
    /// The tool of a backend, by the name that clients see of it.
    Tool(String),
    /// This tool of one backend, which has no name that says which one.
    Bare(&'t str),
    /// Nothing that there can be.
    Unknown,
}

// === impl Targets ===

impl Targets<'_> {
    /// What the target is that a composite writes.
    pub(super) fn resolve<'t>(&self, written: &'t str, composite: &str) -> Meaning<'t> {
        // A composite of its own name means the tool behind it.
        let is_composite = written != composite && self.names.contains(written);
        if self.backends.is_empty() || is_composite {
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
            .map(|backend| backend.prefix.as_str())
            .filter(|prefix| written.len() > prefix.len() && written.starts_with(prefix))
            .map(str::len)
            .max();
        match (spelled, prefixed) {
            // The longer one says more: `git_hub/search` is no tool of `git`,
            // though it begins with `git_`.
            (Some((length, backend, tool)), prefixed) if prefixed.is_none_or(|p| p < length) => {
                // A bare name would be called on another backend that has it.
                if self.router.conflicts() != Conflicts::Prefix && self.backends.len() > 1 {
                    return Meaning::Bare(tool);
                }
                Meaning::Tool(format!("{}{tool}", backend.prefix))
            }
            (_, Some(_)) => Meaning::Named,
            (_, None) => Meaning::Unknown,
        }
    }

    /// What is wrong with a target of one backend among several whose names
    /// have no prefix.
    pub(super) fn bare(&self, written: &str, tool: &str) -> String {
        let conflicts = self.router.conflicts();
        let owner = match conflicts {
            Conflicts::Manual => "the tool of the one backend",
            _ => "the tool of the first backend",
        };
        format!(
            "`{}` names a backend, but names have no prefix with `conflicts = \"{}\"`: expected \
             `{}`, {owner} that has it",
            shown(written),
            conflicts.as_str(),
            shown(tool),
        )
    }

    /// What is wrong with a target that can be no tool.
    pub(super) fn unknown(&self, written: &str) -> String {
        let hint = self.near(written).map(|near| format!("did you mean `{near}`? "));
        let spelled: Vec<_> = self.backends.iter().map(|b| format!("{}/…", b.name)).collect();
        let mut spelled: Vec<_> = spelled.iter().take(MAX_NAMED).map(String::as_str).collect();
        if self.backends.len() > MAX_NAMED {
            spelled.push("…");
        }
        format!(
            "unknown tool `{}`: {}expected a composite of this file or a tool of a backend, {}",
            shown(written),
            hint.unwrap_or_default(),
            one_of(&spelled),
        )
    }

    /// The target that was most likely meant.
    fn near(&self, written: &str) -> Option<String> {
        let composites = self.composites.iter().map(String::as_str);
        let composites: Vec<_> = composites.filter(|composite| *composite != written).collect();
        if let Some(composite) = nearest(written, &composites) {
            return Some(composite.to_owned());
        }
        let backends: Vec<_> = self.backends.iter().map(|backend| backend.name.as_str()).collect();
        for separator in ["/", ".", self.router.separator()] {
            for (at, _) in written.match_indices(separator).take(MAX_NAMED) {
                let tool = &written[at + separator.len()..];
                if let Some(backend) = nearest(&written[..at], &backends)
                    && !tool.is_empty()
                {
                    return Some(shown(&format!("{backend}/{tool}")).into_owned());
                }
            }
        }
        None
    }
}
