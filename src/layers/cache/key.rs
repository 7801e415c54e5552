//! The keys of cached tool results.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use moka::Equivalent;
use rmcp::model::JsonObject;

use super::arguments;
use crate::message::content_size;

/// The key of a cached tool result.
#[derive(Debug)]
pub(super) struct Key {
    hash: u64,
    /// The number of the tool's definition. Because each definition of each tool has its own
    /// number, it also identifies the tool.
    definition: u64,
    caller: Option<Box<str>>,
    arguments: Option<JsonObject>,
}

/// A borrowed form of [`Key`]. Used to look up entries without copying the arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyRef<'k> {
    /// The hash of the arguments.
    pub(super) hash: u64,
    pub(super) definition: u64,
    pub(super) caller: Option<&'k str>,
    pub(super) arguments: Option<&'k JsonObject>,
}

// === impl Key ===

impl Key {
    /// Returns the size of the key in bytes, as measured by [`content_size`].
    pub(super) fn size(&self) -> usize {
        let caller = self.caller.as_ref().map_or(0, |caller| caller.len());
        caller + self.arguments.as_ref().map_or(0, content_size::of_object)
    }

    fn borrowed(&self) -> KeyRef<'_> {
        let Self { hash, definition, caller, arguments } = self;
        KeyRef {
            hash: *hash,
            definition: *definition,
            caller: caller.as_deref(),
            arguments: arguments.as_ref(),
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.borrowed().matches(other)
    }
}

impl Eq for Key {}

// === impl KeyRef ===

impl KeyRef<'_> {
    pub(super) fn to_key(self) -> Key {
        let Self { hash, definition, caller, arguments } = self;
        let (caller, arguments) = (caller.map(Box::from), arguments.cloned());
        Key { hash, definition, caller, arguments }
    }

    fn matches(&self, key: &Key) -> bool {
        self.hash == key.hash
            && self.definition == key.definition
            && self.caller == key.caller.as_deref()
            && arguments::equal(self.arguments, key.arguments.as_ref())
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Equivalent<Arc<Key>> for KeyRef<'_> {
    fn equivalent(&self, key: &Arc<Key>) -> bool {
        self.matches(key)
    }
}
