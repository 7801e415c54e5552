//! The names of tools and prompts that may appear in span names and metric labels.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
};

use rmcp::model::ServerResult;

use crate::message::{ItemKind, Reply};

/// Maximum number of tool names in [`KnownNames`]. The same maximum applies separately to prompt
/// names.
const MAX_TRACED_NAMES: usize = 1000;
/// Maximum length, in bytes, of a name that is recorded. The protocol recommends this maximum for
/// tool names.
const MAX_TRACED_NAME: usize = 128;

/// The names of the tools and prompts that are known to exist.
///
/// A client can send any name, and telemetry backends store a separate time series for each name.
/// To bound the number of time series, a name is recorded only after a server has listed the tool
/// or prompt, or has successfully answered a request for it.
#[derive(Debug, Default)]
pub(super) struct KnownNames {
    tools: Known,
    prompts: Known,
}

type Known = RwLock<HashSet<Arc<str>>>;

// === impl KnownNames ===

impl KnownNames {
    pub(super) fn of_tools(tools: &[Arc<str>]) -> Self {
        Self { tools: RwLock::new(tools.iter().cloned().collect()), prompts: Known::default() }
    }

    pub(super) fn knows(&self, kind: ItemKind, name: &str) -> bool {
        self.known(kind).is_some_and(|known| contains(known, name))
    }

    /// Adds the name of an existing tool or prompt. Does nothing if the maximum number of names is
    /// reached, or if the name is [too long or contains control characters](is_fit).
    pub(super) fn learn(&self, kind: ItemKind, name: &str) {
        let Some(known) = self.known(kind) else { return };
        if is_fit(name) && !contains(known, name) {
            let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() < MAX_TRACED_NAMES {
                known.insert(name.into());
            }
        }
    }

    /// Adds the names of all tools or prompts in `reply`. Does nothing if the reply is not a list
    /// of tools or prompts.
    pub(super) fn learn_listed(&self, reply: &Reply) {
        match reply.result() {
            Some(ServerResult::ListToolsResult(list)) => {
                list.tools.iter().for_each(|tool| self.learn(ItemKind::Tool, &tool.name));
            }
            Some(ServerResult::ListPromptsResult(list)) => {
                list.prompts.iter().for_each(|prompt| self.learn(ItemKind::Prompt, &prompt.name));
            }
            _ => (),
        }
    }

    const fn known(&self, kind: ItemKind) -> Option<&Known> {
        match kind {
            ItemKind::Tool => Some(&self.tools),
            ItemKind::Prompt => Some(&self.prompts),
            // Resource URIs are not recorded, because clients can create any number of URIs from
            // templates.
            ItemKind::Resource | ItemKind::ResourceTemplate => None,
        }
    }
}

/// Returns `true` if spans and metrics may contain the name: it must have 1 to 128 bytes and no
/// control characters.
pub(super) fn is_fit(name: &str) -> bool {
    (1..=MAX_TRACED_NAME).contains(&name.len()) && !name.contains(char::is_control)
}

fn contains(known: &Known, name: &str) -> bool {
    known.read().unwrap_or_else(PoisonError::into_inner).contains(name)
}

#[cfg(test)]
mod tests {
    use rmcp::model::{JsonObject, ListToolsResult, Tool};

    use super::{ItemKind, KnownNames, MAX_TRACED_NAMES};

    #[test]
    fn listed_names_are_known() {
        let names = KnownNames::of_tools(&["look".into()]);
        let tool = Tool::new("search", "Searches", JsonObject::new());
        names.learn_listed(&ListToolsResult::with_all_items(vec![tool]).into());
        assert!(names.knows(ItemKind::Tool, "look") && names.knows(ItemKind::Tool, "search"));
        assert!(!names.knows(ItemKind::Tool, "guess") && !names.knows(ItemKind::Prompt, "look"));
    }

    #[test]
    fn known_names_are_limited_in_number() {
        let names = KnownNames::default();
        for name in 0..2 * MAX_TRACED_NAMES {
            names.learn(ItemKind::Tool, &name.to_string());
        }
        let known =
            (0..2 * MAX_TRACED_NAMES).filter(|name| names.knows(ItemKind::Tool, &name.to_string()));
        assert_eq!(known.count(), MAX_TRACED_NAMES);
    }

    #[test]
    fn malformed_name_is_not_learned() {
        let names = KnownNames::default();
        for name in ["", "a\nb", &"a".repeat(129)] {
            names.learn(ItemKind::Tool, name);
            assert!(!names.knows(ItemKind::Tool, name));
        }
    }
}
