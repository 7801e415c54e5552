//! Which names may be those of spans and the labels of metrics.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
};

use rmcp::model::ServerResult;

use crate::message::{ItemKind, Reply};

/// How many names of a kind are known.
const MAX_NAMES: usize = 1000;
/// How long a name may be, in bytes; the protocol recommends that tools' are no longer.
const MAX_NAME: usize = 128;

/// The names of tools and prompts that there are, as far as that was seen.
///
/// A client may call anything, and who stores spans and metrics keeps a row for each name:
/// so only those count that were listed, or that have answered.
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

    /// Takes note of a name that there is.
    pub(super) fn learn(&self, kind: ItemKind, name: &str) {
        let Some(known) = self.known(kind) else { return };
        if is_fit(name) && !contains(known, name) {
            let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
            if known.len() < MAX_NAMES {
                known.insert(name.into());
            }
        }
    }

    /// Takes note of the names that a reply lists.
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
            // URIs are made by clients, out of templates.
            ItemKind::Resource | ItemKind::ResourceTemplate => None,
        }
    }
}

/// Whether it can be told to anybody as it is.
pub(super) fn is_fit(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.contains(char::is_control)
}

fn contains(known: &Known, name: &str) -> bool {
    known.read().unwrap_or_else(PoisonError::into_inner).contains(name)
}

#[cfg(test)]
mod tests {
    use rmcp::model::{JsonObject, ListToolsResult, Tool};

    use super::{ItemKind, KnownNames, MAX_NAMES};

    #[test]
    fn names_are_known_that_were_listed() {
        let names = KnownNames::of_tools(&["look".into()]);
        let tool = Tool::new("search", "Searches", JsonObject::new());
        names.learn_listed(&ListToolsResult::with_all_items(vec![tool]).into());
        assert!(names.knows(ItemKind::Tool, "look") && names.knows(ItemKind::Tool, "search"));
        assert!(!names.knows(ItemKind::Tool, "guess") && !names.knows(ItemKind::Prompt, "look"));
    }

    #[test]
    fn there_is_an_end_to_the_names_that_are_known() {
        let names = KnownNames::default();
        for name in 0..2 * MAX_NAMES {
            names.learn(ItemKind::Tool, &name.to_string());
        }
        let known =
            (0..2 * MAX_NAMES).filter(|name| names.knows(ItemKind::Tool, &name.to_string()));
        assert_eq!(known.count(), MAX_NAMES);
    }

    #[test]
    fn a_name_that_is_none_is_not_known() {
        let names = KnownNames::default();
        for name in ["", "a\nb", &"a".repeat(129)] {
            names.learn(ItemKind::Tool, name);
            assert!(!names.knows(ItemKind::Tool, name));
        }
    }
}
