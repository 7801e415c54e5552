//! Merges the server descriptions of all backends into the description of the router.

use std::fmt::Write as _;

use rmcp::model::{JsonObject, SKILLS_EXTENSION_ID, ServerCapabilities, ServerConfig};

use super::shared::Shared;

/// The maximum size in bytes of the instructions of each backend. Longer instructions are
/// truncated.
const MAX_INSTRUCTIONS: usize = 8 << 10;
/// The text that is appended to truncated instructions.
const CUT: &str = " […]";

/// Adds the capabilities and instructions of all backends to a server description.
pub(super) fn describe(shared: &Shared, mut base: ServerConfig) -> ServerConfig {
    let described: Vec<_> = shared.backends.iter().map(|backend| backend.describe()).collect();
    add_capabilities(&mut base.capabilities, shared, &described);
    let instructions = base.instructions.take().unwrap_or_default();
    let instructions = with_instructions(instructions, shared, &described);
    base.instructions = Some(instructions).filter(|instructions| !instructions.is_empty());
    base
}

/// Adds to `capabilities` everything that a backend in `described` declares. If the description of
/// a backend is unknown, prompts, resources and completions are added in any case, because the
/// backend may support them.
fn add_capabilities(
    capabilities: &mut ServerCapabilities,
    shared: &Shared,
    described: &[Option<ServerConfig>],
) {
    // Clients only use declared capabilities, and many clients read the description only once,
    // before any backend is connected. If the backend does not support them, its empty lists do no
    // harm.
    let unknown = described.iter().any(Option::is_none);
    let known = || described.iter().flatten().map(|described| &described.capabilities);
    let resources = || known().filter_map(|capabilities| capabilities.resources.as_ref());

    capabilities.tools.get_or_insert_default().list_changed = Some(true);
    if unknown || known().any(|capabilities| capabilities.prompts.is_some()) {
        capabilities.prompts.get_or_insert_default().list_changed = Some(true);
    }
    if unknown || resources().next().is_some() {
        let declared = capabilities.resources.get_or_insert_default();
        declared.list_changed = Some(true);
        let subscribed = resources().any(|resources| resources.subscribe == Some(true));
        declared.subscribe = (unknown || subscribed).then_some(true);
    }
    if unknown || known().any(|capabilities| capabilities.completions.is_some()) {
        capabilities.completions = Some(JsonObject::new());
    }
    if let Some(owner) = shared.owner(has_skills)
        && let Some(described) = &described[owner]
        && let Some(declared) = &described.capabilities.extensions
        && let Some(skills) = declared.get(SKILLS_EXTENSION_ID)
    {
        let extensions = capabilities.extensions.get_or_insert_default();
        extensions.insert(SKILLS_EXTENSION_ID.to_owned(), skills.clone());
    }

    if let Some(owner) = shared.owner(has_logging)
        && let Some(described) = &described[owner]
    {
        capabilities.logging.clone_from(&described.capabilities.logging);
    }
}

/// Appends the instructions of each backend below a heading with the backend's name.
fn with_instructions(
    mut instructions: String,
    shared: &Shared,
    described: &[Option<ServerConfig>],
) -> String {
    for (place, described) in described.iter().enumerate() {
        let said = described.as_ref().and_then(|described| described.instructions.as_deref());
        let said = said.unwrap_or_default().trim();
        if said.is_empty() {
            continue;
        }
        if !instructions.is_empty() {
            instructions.push_str("\n\n");
        }
        let _ = write!(instructions, "## {}\n\n", shared.names.of(place));
        match said.len() {
            0..=MAX_INSTRUCTIONS => instructions.push_str(said),
            _ => {
                let mut ends = (0..=MAX_INSTRUCTIONS - CUT.len()).rev();
                let end = ends.find(|&end| said.is_char_boundary(end)).unwrap_or_default();
                instructions.push_str(&said[..end]);
                instructions.push_str(CUT);
            }
        }
    }
    instructions
}

/// Returns `true` if a server with these capabilities supports `logging`.
pub(super) const fn has_logging(capabilities: &ServerCapabilities) -> bool {
    capabilities.logging.is_some()
}

/// Returns `true` if a server with these capabilities supports the skills extension.
pub(super) fn has_skills(capabilities: &ServerCapabilities) -> bool {
    let extensions = capabilities.extensions.as_ref();
    extensions.is_some_and(|extensions| extensions.contains_key(SKILLS_EXTENSION_ID))
}
