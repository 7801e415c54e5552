//! The compiled input schemas of tools, shared by several catalogs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use crate::{catalog::Tools, mutex::lock, schema::InputSchema};

/// The input schemas of the tools in a catalog, indexed by tool name.
#[doc(hidden)]
#[derive(Debug)]
pub struct Schemas(HashMap<String, Arc<InputSchema>>);

/// A cache of compiled input schemas, which all catalogs of a layer share. A new catalog reuses the
/// compiled schemas of unchanged tools.
///
/// The cache contains weak references, so a schema is dropped when no catalog uses it.
#[derive(Debug, Default)]
pub(super) struct Compiled(Mutex<HashMap<String, Vec<Weak<InputSchema>>>>);

// === impl Schemas ===

impl Schemas {
    pub(super) fn get(&self, tool: &str) -> Option<&InputSchema> {
        self.0.get(tool).map(|schema| &**schema)
    }
}

// === impl Compiled ===

impl Compiled {
    /// Returns the compiled input schemas of `tools`. Reuses a compiled schema if another catalog
    /// contains a tool with the same name and an equal schema.
    pub(super) fn of(&self, tools: &Tools) -> Schemas {
        let mut compiled = lock(&self.0);
        // Each name can have several schemas, because callers may see different tools with the same
        // name.
        compiled.retain(|_, schemas| {
            schemas.retain(|schema| schema.strong_count() > 0);
            !schemas.is_empty()
        });
        let schemas = tools.iter().map(|tool| {
            let same = |schema: &Arc<InputSchema>| *schema.schema() == tool.input_schema;
            let before = compiled.entry(tool.name.to_string()).or_default();
            let schema = before.iter().filter_map(Weak::upgrade).find(same).unwrap_or_else(|| {
                let schema = Arc::new(InputSchema::new(tool.input_schema.clone()));
                before.push(Arc::downgrade(&schema));
                schema
            });
            (tool.name.to_string(), schema)
        });
        Schemas(schemas.collect())
    }
}

#[cfg(test)]
mod tests;
