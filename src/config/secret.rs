//! Values of a configuration file that must never be displayed.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;

/// A value that must not be displayed, such as a password.
///
/// All secret keys of a configuration file have this type. The JSON Schema marks them as
/// `writeOnly`. As a consequence, [`secret_spans`](super::secret_spans) hides their values when an
/// error message quotes a line of the file.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct Secret<T>(T);

/// A placeholder whose `Debug` output is `…`. Used in place of a secret value.
struct Hidden;

// === impl Secret ===

impl<T> Secret<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the secret value, which must not be displayed.
    pub(super) const fn expose(&self) -> &T {
        &self.0
    }

    /// Returns the secret value, which must not be displayed.
    pub(super) fn into_exposed(self) -> T {
        self.0
    }
}

impl fmt::Debug for Secret<String> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hidden.fmt(f)
    }
}

impl fmt::Debug for Secret<Vec<String>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|_| Hidden)).finish()
    }
}

/// Prints the keys, and hides the values.
impl fmt::Debug for Secret<BTreeMap<String, String>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|key| (key, Hidden))).finish()
    }
}

#[cfg(test)]
impl<T: schemars::JsonSchema> schemars::JsonSchema for Secret<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let mut schema = T::json_schema(generator);
        schema.insert("writeOnly".to_owned(), true.into());
        schema
    }
}

// === impl Hidden ===

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
