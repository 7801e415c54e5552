//! The compiled input schemas of tools, shared by several catalogs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::{catalog::Tools, schema::InputSchema};

/// The input schemas of the tools in a catalog, indexed by tool name.
#[doc(hidden)]
#[derive(Debug)]
pub struct Schemas(HashMap<String, Arc<InputSchema>>);

/// A cache of the compiled input schemas in all catalogs of a layer. Lets a new catalog reuse the
/// schemas that earlier catalogs have compiled.
///
/// The cache contains only weak references. A schema is dropped when no catalog uses it.
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
    /// Returns the input schemas of the tools in a catalog. If another catalog contains an equal
    /// schema for a tool of the same name, reuses its compiled form.
    pub(super) fn of(&self, tools: &Tools) -> Schemas {
        let mut compiled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
