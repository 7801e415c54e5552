//! Lists of tools, in which tools can be looked up by name.

use std::{collections::HashMap, slice};

use rmcp::model::Tool;

/// A list of tools that a service offers. Tools can be looked up by name.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    tools: Vec<Tool>,
    positions: HashMap<String, usize>,
    shadowed: Vec<Tool>,
    /// The size in bytes of the list of tools as JSON. Zero if the list was not received from a
    /// service.
    pub(super) bytes: usize,
}

// === impl Tools ===

impl Tools {
    /// Returns the tool with the name `name`. If several tools have this name, returns the first of
    /// them.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.position(name).map(|position| &self.tools[position])
    }

    /// Returns the index in the list of the first tool with this name. Returns `None` if there is
    /// no such tool.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// Iterates over the tools, in the order of the list.
    pub fn iter(&self) -> slice::Iter<'_, Tool> {
        self.tools.iter()
    }

    /// Iterates over the tools that [`get`](Self::get) does not return. Such a tool has the same
    /// name as an earlier tool in the list, but a different definition. The server decides which of
    /// these tools a call reaches.
    pub fn shadowed(&self) -> slice::Iter<'_, Tool> {
        self.shadowed.iter()
    }

    /// Returns the number of tools.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Returns `true` if there are no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

impl Extend<Tool> for Tools {
    /// Appends tools to the list. If several tools have the same name, [`get`](Self::get) returns
    /// the first of them.
    fn extend<T: IntoIterator<Item = Tool>>(&mut self, tools: T) {
        for tool in tools {
            match self.positions.get(&*tool.name) {
                None => {
                    self.positions.insert(tool.name.to_string(), self.tools.len());
                    self.tools.push(tool);
                }
                Some(&first) if self.tools[first] != tool => self.shadowed.push(tool),
                Some(_) => (),
            }
        }
    }
}

impl<'a> IntoIterator for &'a Tools {
    type Item = &'a Tool;
    type IntoIter = slice::Iter<'a, Tool>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Tool> for Tools {
    fn from_iter<T: IntoIterator<Item = Tool>>(tools: T) -> Self {
        let mut collected = Self::default();
        collected.extend(tools);
        collected
    }
}
