//! The compiled input schemas of tools, shared between catalogs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::{catalog::Tools, schema::InputSchema};

/// The input schemas of the tools in one catalog, by tool name.
#[doc(hidden)]
#[derive(Debug)]
pub struct Schemas(HashMap<String, Arc<InputSchema>>);

/// The compiled schemas of all catalogs of a layer, so that a new catalog reuses the schemas of
/// earlier ones.
///
/// The catalogs own the schemas. This cache only holds weak references to them.
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
    /// Returns the schemas of the tools in a catalog. If another catalog still uses an equal schema
    /// for a tool with the same name, the schema is reused.
    pub(super) fn of(&self, tools: &Tools) -> Schemas {
        let mut compiled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Different callers may see different tools with the same name, so a name may have several
        // schemas.
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
