//! What clients must repeat of a tool's arguments in HTTP headers.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

use crate::room::{Room, json_bytes};

/// How many tools are remembered. Calls of others are not checked.
const MOST_TOOLS: usize = 10_000;
/// How long the name of one may be, in bytes.
const MAX_NAME: usize = 1 << 10;
/// How large those with annotations may be together, as JSON.
const MAX_ANNOTATED: usize = 16 << 20;
/// The annotation of a property that clients repeat in a header (SEP-2243).
pub(super) const HEADER_KEYWORD: &str = "x-mcp-header";

/// The tools that clients were shown, for rmcp to check the headers of a call.
///
/// rmcp asks for a tool without waiting, so only what has passed can be known. With the
/// feature `http`, a call of a tool that is not known lists the tools first, as its
/// caller would, and is checked then: see `ServeService::check_headers`.
///
/// rmcp looks at nothing but the annotations of the schema. Most tools have none,
/// and of those only the name is kept, since they need not be looked at again.
///
/// What is listed again replaces what was known of the same name. Nothing is
/// forgotten at the first page of a listing: several clients list at once, not
/// all see the same tools, and the next page may be long in coming. That a tool
/// is gone costs nothing, since a call of it is refused anyway. But that it looks
/// different now must not be missed, or good calls are refused; so all is
/// forgotten when the tools have changed. A tool that was not shown is not
/// checked: what the handler itself knows may be hidden by a layer, or shown under
/// other names, and whoever is told that a header is missing knows that there is
/// such a tool. Nor is one checked that is too large to be kept.
#[derive(Default)]
pub(super) struct ListedTools(RwLock<Listed>);

#[derive(Default)]
struct Listed {
    epoch: u64,
    /// None for a tool without annotations.
    tools: HashMap<Cow<'static, str>, Option<Annotated>>,
    /// How large all with annotations are.
    bytes: usize,
}

struct Annotated {
    tool: Tool,
    bytes: usize,
}

// === impl ListedTools ===

impl ListedTools {
    /// Remembers tools that were asked for at epoch `asked` and came at `now`.
    pub(super) fn remember(&self, tools: &[Tool], asked: u64, now: u64) {
        // Perhaps from before the change.
        if asked != now {
            return;
        }
        // Nearly always all is known, and nobody need wait for that.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let short = || tools.iter().filter(|tool| tool.name.len() <= MAX_NAME);
        if known.epoch == now && short().all(|tool| known.has(tool)) {
            return;
        }
        drop(known);

        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.epoch > now {
            return;
        }
        // Too many are not worth keeping count of which came first.
        if known.epoch < now || known.tools.len() + tools.len() > MOST_TOOLS {
            known.epoch = now;
            known.tools.clear();
            known.bytes = 0;
        }
        for tool in short().take(MOST_TOOLS) {
            if !known.has(tool) {
                known.insert(tool);
            }
        }
    }

    /// Whether a tool of this name was listed, or is never remembered.
    #[cfg(feature = "http")]
    pub(super) fn knows(&self, name: &str, now: u64) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        name.len() > MAX_NAME || (known.epoch == now && known.tools.contains_key(name))
    }

    /// The tool of this name, if there is something to check.
    pub(super) fn get(&self, name: &str, now: u64) -> Option<Tool> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let tool = known.tools.get(name).filter(|_| known.epoch == now)?;
        tool.as_ref().map(|Annotated { tool, .. }| tool.clone())
    }
}

// === impl Listed ===

impl Listed {
    fn has(&self, tool: &Tool) -> bool {
        match self.tools.get(&tool.name) {
            None => false,
            Some(None) => !is_annotated(tool),
            Some(Some(Annotated { tool: known, .. })) => {
                Arc::ptr_eq(&known.input_schema, &tool.input_schema) || known == tool
            }
        }
    }

    fn insert(&mut self, tool: &Tool) {
        if let Some(Some(before)) = self.tools.remove(&tool.name) {
            self.bytes -= before.bytes;
        }
        let mut annotated = None;
        if is_annotated(tool) {
            // What has no room is not read to its end.
            if !Room::new(MAX_ANNOTATED - self.bytes).holds(tool) {
                return;
            }
            let bytes = json_bytes(tool);
            self.bytes += bytes;
            annotated = Some(Annotated { tool: tool.clone(), bytes });
        }
        self.tools.insert(tool.name.clone(), annotated);
    }
}

/// Whether a property has the annotation, at a place where rmcp looks for it.
fn is_annotated(tool: &Tool) -> bool {
    fn properties_of(schema: &JsonObject) -> bool {
        let properties = schema.get("properties").and_then(Value::as_object);
        properties.into_iter().flatten().any(|(_, property)| {
            property.as_object().is_some_and(|property| {
                property.contains_key(HEADER_KEYWORD) || properties_of(property)
            })
        })
    }
    properties_of(&tool.input_schema)
}
