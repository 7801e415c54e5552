use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use crate::{catalog::Tools, schema::InputSchema};

/// The schemas of the tools of one catalog, by name.
#[derive(Debug)]
pub struct Schemas(HashMap<String, Arc<InputSchema>>);

/// All schemas of tools that are known to any catalog of a layer, so that the
/// next catalog has them compiled already.
///
/// They are kept by the catalogs, and end with them.
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
    /// The schemas of these tools; one that has not changed is the same as before.
    pub(super) fn of(&self, tools: &Tools) -> Schemas {
        let mut compiled = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Callers may be shown different tools of one name.
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
