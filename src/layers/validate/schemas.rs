//! The compiled input schemas of tools, shared between catalogs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::{catalog::Tools, schema::InputSchema};

/// The schemas of the tools of one catalog, by name.
#[derive(Debug)]
pub struct Schemas(HashMap<String, Arc<InputSchema>>);

/// The schemas of all catalogs of a layer, so that a new catalog reuses compiled schemas.
///
/// The references are weak: the catalogs own the schemas.
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
    /// Returns the schemas of these tools; unchanged schemas are reused.
    pub(super) fn of(&self, tools: &Tools) -> Schemas {
        let mut compiled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Different callers may see different tools of one name.
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
