//! A placeholder type for sections that serde skips, because other code reads them key by key.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Visitor};

/// A placeholder that deserializes from any TOML value. Used for sections that other code reads key
/// by key.
#[derive(Default)]
pub(super) struct Unread;

// === impl Unread ===

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct("Unread", Self)
    }
}

impl<'de> Visitor<'de> for Unread {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a section")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, _: D) -> Result<Self, D::Error> {
        Ok(Self)
    }
}
