//! The tools whose results are cached, and their definitions.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use foldhash::{HashMap, HashMapExt};
use rmcp::model::Tool;

use super::rule::CacheRule;
use crate::{
    catalog::{Known, Tools},
    fingerprint::Fingerprint,
    mutex::lock,
};

/// The maximum number of tools whose definitions are tracked. If it is exceeded, all tracked
/// definitions are dropped.
const MAX_DEFINITIONS: usize = 10_000;

/// The tools whose results are cached, by name.
#[derive(Debug)]
pub(super) struct CachedTools(HashMap<Box<str>, CachedTool>);

/// A tool whose results are cached.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedTool {
    /// The index of the first cache rule that selects the tool.
    pub(super) rule: usize,
    /// The number of the tool's current definition, which [`Definitions`] has assigned. It is part
    /// of the keys of cached results.
    pub(super) definition: u64,
}

/// Assigns a number to the current definition of each cached tool. The number is part of the keys
/// of cached results. If the definition changes, it receives a new number, so that the cached
/// results are no longer found.
#[derive(Default)]
pub(super) struct Definitions {
    latest: Mutex<HashMap<String, (Fingerprint, u64)>>,
    next: AtomicU64,
}

// === impl CachedTools ===

impl CachedTools {
    /// Selects the tools to cache: the read-only tools that a rule selects and whose names are
    /// unambiguous.
    pub(super) fn new(rules: &[CacheRule], definitions: &Definitions, tools: &Tools) -> Self {
        let mut cached = HashMap::new();
        for tool in tools {
            let rule = rules.iter().position(|rule| rule.tools.selects(&tool.name));
            // If two tools with different definitions have the same name, a call could reach either
            // of them.
            let is_shadowed = || tools.shadowed().any(|other| other.name == tool.name);
            match rule {
                Some(rule) if is_read_only(tool) && !is_shadowed() => {
                    let definition = definitions.number(tool);
                    cached.insert((*tool.name).into(), CachedTool { rule, definition });
                }
                Some(_) => definitions.forget(&tool.name),
                None => (),
            }
        }
        Self(cached)
    }

    pub(super) fn get(&self, tool: &str) -> Option<CachedTool> {
        self.0.get(tool).copied()
    }

    /// Returns `true` if the definition of a cached tool in `listed` differs from that in `known`.
    /// Drops the number of each changed definition, so that its cached results are no longer used.
    pub(super) fn differ(known: &Known<Self>, listed: &[Tool], definitions: &Definitions) -> bool {
        let mut differ = false;
        for tool in listed {
            if known.derived().get(&tool.name).is_some()
                && known.tools().get(&tool.name) != Some(tool)
            {
                definitions.forget(&tool.name);
                differ = true;
            }
        }
        differ
    }
}

fn is_read_only(tool: &Tool) -> bool {
    let hint = tool.annotations.as_ref().and_then(|annotations| annotations.read_only_hint);
    hint == Some(true)
}

// === impl Definitions ===

impl Definitions {
    /// Returns the number of a tool's current definition. Assigns a new number if the definition is
    /// new or has changed.
    fn number(&self, tool: &Tool) -> u64 {
        let value = serde_json::to_value(tool).unwrap_or_default();
        let fingerprint = Fingerprint::of(&value);
        let mut latest = lock(&self.latest);
        if let Some((known, number)) = latest.get(&*tool.name)
            && *known == fingerprint
        {
            return *number;
        }
        if latest.len() >= MAX_DEFINITIONS {
            latest.clear();
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        latest.insert(tool.name.to_string(), (fingerprint, number));
        number
    }

    /// Returns the fingerprint of a tool's current definition. Returns `None` if the definition has
    /// changed, so that its number is no longer `number`.
    pub(super) fn fingerprint(&self, tool: &str, number: u64) -> Option<Fingerprint> {
        let latest = lock(&self.latest);
        let (fingerprint, latest) = latest.get(tool)?;
        (*latest == number).then_some(*fingerprint)
    }

    /// Drops the number of a tool's definition. Cached results of the tool are then no longer used.
    fn forget(&self, tool: &str) {
        lock(&self.latest).remove(tool);
    }
}
