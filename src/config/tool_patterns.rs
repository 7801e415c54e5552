//! Checks the patterns of tools in sections that apply to all backends.

use super::{
    backend::BackendConfig, backends, read::Reader, router::RouterConfig, source::sanitized,
};
use crate::{
    adapter::router::Conflicts, alias::AliasLayer, composite::CompositeTool, message::ItemKind,
};

/// Reports each pattern such as `github/delete_*`, the form in which composites name the tools of a
/// backend. Patterns match names with the backend's prefix, such as `github_delete_repository`. So
/// a deny list with this form would deny nothing.
pub(super) fn check(
    backends: &[BackendConfig],
    router: &RouterConfig,
    composites: &[CompositeTool],
    alias: &AliasLayer,
    reader: &mut Reader<'_, '_>,
) {
    if router.conflicts() != Conflicts::Prefix {
        // The own name of a tool may begin with the name of a backend.
        return;
    }
    for (path, pattern) in reader.take_tool_patterns() {
        if path.first() == Some(&backends::SECTION.into()) {
            // The layers of a backend use the backend's own names.
            continue;
        }
        let named = backends.iter().filter_map(|backend| {
            let tool = pattern.strip_prefix(&backend.name)?.strip_prefix(['/', '.'])?;
            Some((backend, tool))
        });
        let Some((backend, tool)) = named.max_by_key(|(backend, _)| backend.name.len()) else {
            continue;
        };
        let form = &pattern[..pattern.len() - tool.len()];
        let is_possible = alias.original_of(ItemKind::Tool, &pattern) != Some(&*pattern)
            || composites.iter().any(|composite| composite.name().starts_with(form))
            || backends.iter().any(|backend| pattern.starts_with(&*backend.prefix));
        if !is_possible {
            let message = format!(
                "`{}` matches no tool: expected the prefix of the backend, as in `{}`",
                sanitized(&pattern),
                sanitized(&format!("{}{tool}", backend.prefix)),
            );
            reader.report(&path, message);
        }
    }
}
