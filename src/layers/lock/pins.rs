//! A lock: the approved tool definitions of all backends.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    sync::Arc,
};

use rmcp::model::Tool;

use super::{definition::Definition, difference::Difference};
use crate::warnings::sanitize::Sanitized;

/// The tool definitions that an operator has approved, for all backends.
///
/// A lock identifies a tool by the names of its backend and of the tool. With the feature `config`,
/// a lock can be written to a file and read from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    backends: BTreeMap<String, BTreeMap<String, Definition>>,
}

/// The error for a backend that has several tools with the same name but different definitions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("backend `{}` has several tools named `{}`", Sanitized(.backend), Sanitized(.tool))]
pub struct Ambiguous {
    backend: String,
    tool: String,
}

// === impl Lock ===

impl Lock {
    /// Creates a lock that contains no tools. Compared with this lock, every tool is new.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Approves the definition of a tool. `backend` is any name for the server that has the tool.
    /// Pass the same name to [`LockLayer::new`](super::LockLayer::new).
    ///
    /// # Errors
    ///
    /// Returns an error if the lock already contains a different definition of the tool.
    pub fn pin(&mut self, backend: &str, tool: &Tool) -> Result<(), Ambiguous> {
        let definition = Definition::of(tool);
        match self.backends.entry(backend.to_owned()).or_default().entry(tool.name.to_string()) {
            Entry::Vacant(entry) => {
                entry.insert(definition);
                Ok(())
            }
            Entry::Occupied(entry) if *entry.get() == definition => Ok(()),
            Entry::Occupied(_) => {
                Err(Ambiguous { backend: backend.to_owned(), tool: tool.name.to_string() })
            }
        }
    }

    /// Returns the number of approved tools in all backends.
    #[must_use]
    pub fn len(&self) -> usize {
        self.backends.values().map(BTreeMap::len).sum()
    }

    /// Returns `true` if the lock contains no approved tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the differences between this lock and a newer lock `now`, sorted by backend and
    /// tool. The result contains tools whose definitions differ, and tools that only one of the two
    /// locks contains.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<Difference> {
        let all = self.iter().chain(now.iter()).map(|(backend, name, _)| (backend, name));
        let all: BTreeSet<_> = all.collect();
        let difference = |(backend, name): (&str, &str)| {
            let [locked, listed] = [self, now].map(|lock| lock.get(backend, name));
            (locked != listed).then(|| Difference::new(backend, name, locked, listed))
        };
        all.into_iter().filter_map(difference).collect()
    }

    /// Iterates over all approved tools, sorted by backend and name. Yields the backend, name and
    /// definition of each tool.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &Definition)> {
        self.backends.iter().flat_map(|(backend, tools)| {
            tools.iter().map(move |(name, definition)| (&**backend, &**name, definition))
        })
    }

    fn get(&self, backend: &str, name: &str) -> Option<&Definition> {
        self.backends.get(backend)?.get(name)
    }

    /// Iterates over the approved tools of a backend, sorted by name.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn tools(&self, backend: &str) -> impl Iterator<Item = Tool> {
        let tools = self.backends.get(backend).into_iter().flat_map(BTreeMap::values);
        tools.map(Definition::to_tool)
    }

    /// Returns the approved tools of a backend, indexed by their names.
    pub(super) fn of_backend(&self, backend: &str) -> Arc<HashMap<String, Definition>> {
        Arc::new(self.backends.get(backend).cloned().unwrap_or_default().into_iter().collect())
    }
}
