//! Checks the name patterns for tools, and the original names of aliases, in all sections except
//! `[[backends]]`.

use super::{
    aliases, backend::BackendConfig, backends, read::Reader, router::RouterConfig,
    source::sanitized,
};
use crate::{
    adapter::router::Conflicts, alias::AliasLayer, composite::CompositeTool, message::ItemKind,
};

/// Reports name patterns such as `github/delete_*`, which match no tool. In composites, users can
/// write `backend/tool` or `backend.tool`. In patterns, they must write the backend's prefix, as in
/// `github_delete_*`. Without an error, such a pattern in a deny list would silently hide nothing.
/// Names of aliased tools and prompts are checked too.
pub(super) fn check(
    backends: &[BackendConfig],
    router: &RouterConfig,
    composites: &[CompositeTool],
    alias: &AliasLayer,
    reader: &mut Reader<'_, '_>,
) {
    if router.conflicts() != Conflicts::Prefix {
        // Without prefixes, the original name of a tool may begin with the name of a backend, so
        // the pattern may be valid.
        return;
    }
    for (path, pattern) in reader.take_tool_patterns() {
        if path.first() == Some(&backends::SECTION.into()) {
            // Patterns in the table of a backend match the backend's original names.
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
        // An alias replaces a name of the router, and not that of another alias or a composite.
        let is_alias = path.contains(&aliases::SECTION.into());
        let is_possible = backends.iter().any(|backend| pattern.starts_with(&*backend.prefix))
            || !is_alias
                && (alias.original_of(ItemKind::Tool, &pattern) != Some(&*pattern)
                    || composites.iter().any(|composite| composite.name().starts_with(form)));
        if !is_possible {
            let is_prompt = is_alias && path.last() == Some(&"prompt".into());
            let message = format!(
                "`{}` matches no {}: expected the prefix of the backend, as in `{}`",
                sanitized(&pattern),
                if is_prompt { ItemKind::Prompt } else { ItemKind::Tool },
                sanitized(&format!("{}{tool}", backend.prefix)),
            );
            reader.report(&path, message);
        }
    }
}
