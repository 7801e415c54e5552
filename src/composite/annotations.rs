//! Derives the annotations of a composite from those of the tools that it calls.

use rmcp::model::ToolAnnotations;

/// Derives the annotations of a composite from the annotations of its targets. If at least one
/// target may be destructive, for example, the composite is annotated as destructive. As a result,
/// the composite never seems safer than its targets.
///
/// A target without annotations (`None`) is assumed to have all effects.
pub(super) fn derive_annotations(targets: &[Option<&ToolAnnotations>]) -> ToolAnnotations {
    let read_only = |target: &Option<&ToolAnnotations>| {
        target.and_then(|annotations| annotations.read_only_hint).unwrap_or(false)
    };
    let destructive = |target: &Option<&ToolAnnotations>| {
        // The destructive hint applies only to tools that are not read-only.
        !read_only(target) && target.is_none_or(ToolAnnotations::is_destructive)
    };
    let open_world = |target: &Option<&ToolAnnotations>| {
        target.and_then(|annotations| annotations.open_world_hint).unwrap_or(true)
    };
    ToolAnnotations::new()
        .read_only(targets.iter().all(read_only))
        .destructive(targets.iter().any(destructive))
        .open_world(targets.iter().any(open_world))
}

/// Combines the derived annotations of a composite with those that its definition sets. The
/// definition takes precedence, except for annotations that claim more safety than the derived
/// ones. Also returns the names of these ignored annotations.
pub(super) fn merge_annotations(
    given: &ToolAnnotations,
    derived: &ToolAnnotations,
) -> (ToolAnnotations, Vec<&'static str>) {
    let mut unsafe_claims = Vec::new();
    let mut merge = |name, given: Option<bool>, derived: Option<bool>, safe: bool| match given {
        Some(given) if given == safe && derived != Some(safe) => {
            unsafe_claims.push(name);
            derived
        }
        Some(given) => Some(given),
        None => derived,
    };
    let mut merged = given.clone();
    merged.read_only_hint =
        merge("readOnlyHint", given.read_only_hint, derived.read_only_hint, true);
    merged.destructive_hint =
        merge("destructiveHint", given.destructive_hint, derived.destructive_hint, false);
    merged.open_world_hint =
        merge("openWorldHint", given.open_world_hint, derived.open_world_hint, false);
    (merged, unsafe_claims)
}
