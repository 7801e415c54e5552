//! Reads TOML tables key by key, and reports all errors in the tables.

use std::time;

use rmcp::model::{JsonObject, ToolAnnotations};
use serde::Deserialize;
use toml::de::DeTable;

use super::{
    annotations::AnnotationsTable,
    duration::Duration,
    failure::Failure,
    literal::Literal,
    node::Node,
    read::{Reader, placeholder},
    value::Value,
};
use crate::{composite::Segment, named::Named};

/// The valid values of a tag, a key such as `type` that determines which other keys a table can
/// have. For each value, the list contains the keys that the value allows, and a value of type `T`,
/// for example a function that reads these keys.
pub(super) type Variants<T> = [(&'static str, &'static [&'static str], T)];

/// Reads a TOML table key by key, and reports errors to a [`Reader`].
pub(super) struct TableReader<'r, 'a, 't> {
    pub(super) reader: &'r mut Reader<'a, 't>,
    /// The TOML table. `None` if the file contains no table, for example because it contains the
    /// short form `on_error = "abort"`.
    table: Option<&'a DeTable<'t>>,
    /// The name and value of the table's tag, as in `type = "switch"`. Error messages about missing
    /// keys contain it. `None` if the table has no valid tag.
    tag: Option<(&'static str, &'static str)>,
}

/// A type that can be read from a TOML value.
pub(super) trait FromToml: Sized {
    /// Converts a TOML value to this type.
    ///
    /// # Errors
    ///
    /// Returns an error that describes the first invalid part of the value.
    fn from_toml<'a>(value: Value<'_, 'a, '_>) -> Result<Self, Failure>;
}

// === impl TableReader ===

impl<'a, 't> TableReader<'_, 'a, 't> {
    /// Calls `read` for each table in the array `node`, and returns the results. `key` is the key
    /// of the array in the current table.
    pub(super) fn of_array<T>(
        reader: &mut Reader<'a, 't>,
        key: &str,
        node: &'a Node<'t>,
        mut read: impl FnMut(&mut TableReader<'_, 'a, 't>) -> T,
    ) -> Vec<T> {
        reader.path.push(key.into());
        let mut values = Vec::new();
        match (Value { reader, node }).array() {
            Ok(array) => {
                for (place, node) in array.iter().enumerate() {
                    if reader.is_full() {
                        break;
                    }
                    reader.path.push(place.into());
                    values.push(TableReader::of_node(reader, node, &mut read));
                    reader.path.pop();
                }
            }
            Err(failure) => reader.fail_here(failure, node),
        }
        reader.path.pop();
        values
    }

    /// Calls `read` for the table `node` at the reader's current path. If `node` is not a table,
    /// reports an error, and calls `read` with an empty table.
    fn of_node<T>(
        reader: &mut Reader<'a, 't>,
        node: &'a Node<'t>,
        read: impl FnOnce(&mut TableReader<'_, 'a, 't>) -> T,
    ) -> T {
        let table = match (Value { reader, node }).table() {
            Ok(table) => Some(table),
            Err(failure) => {
                reader.report_here(failure.message, node.span());
                None
            }
        };
        read(&mut TableReader { reader, table, tag: None })
    }

    /// Returns the path of a key of this table, from the root of the file.
    fn at(&self, key: &str) -> Vec<Segment> {
        [&self.reader.path[..], &[key.into()]].concat()
    }

    fn node(&self, key: &str) -> Option<&'a Node<'t>> {
        self.table?.get(key).filter(|node| !self.reader.hides(node))
    }

    /// Returns `true` if the table contains the key. A key whose value was hidden because it is
    /// invalid counts as missing.
    pub(super) fn has(&self, key: &str) -> bool {
        self.node(key).is_some()
    }

    /// Returns `true` if the value of the key is a string.
    pub(super) fn is_text(&self, key: &str) -> bool {
        self.node(key).is_some_and(|node| node.get_ref().is_str())
    }

    /// Returns `true` if the value of the key is a table.
    pub(super) fn is_table(&self, key: &str) -> bool {
        self.node(key).is_some_and(|node| node.get_ref().is_table())
    }

    /// Reports an error in the value of a key.
    pub(super) fn report(&mut self, key: &str, message: impl Into<String>) {
        let path = self.at(key);
        self.reader.report(&path, message.into());
    }

    /// Reports an error in the table as a whole.
    pub(super) fn report_here(&mut self, message: &str) {
        let path = self.reader.path.clone();
        self.reader.report(&path, message);
    }

    /// Reports each key of the table that is not in `keys` as unknown.
    pub(super) fn only(&mut self, keys: &[&str]) {
        if let Some(table) = self.table {
            self.reader.check_keys(table, keys, |_| None);
        }
    }

    /// Reads the tag of the table: the value of the key `tag`, or `default` if the key is missing.
    /// Reports all keys of the table that are neither in `common` nor valid for the value of the
    /// tag.
    ///
    /// Returns the value of type `T` that `variants` lists for the tag value. Returns `None` if the
    /// tag is invalid, or if the table has no tag and `default` is `None`. In this case, the keys
    /// of all tag values are accepted.
    pub(super) fn tag<T: Copy>(
        &mut self,
        tag: &'static str,
        default: Option<&'static str>,
        common: &[&'static str],
        variants: &Variants<T>,
    ) -> Option<T> {
        let table = self.table?;
        let has_tag = self.has(tag);
        let given = self.word(tag, &names(variants));
        let name = given.or(default.filter(|_| !has_tag));
        let own = variants.iter().filter(|(other, ..)| name.is_none_or(|name| name == *other));
        let own = own.flat_map(|(_, keys, _)| keys.iter());
        let mut keys = Vec::new();
        for key in common.iter().chain([&tag]).chain(own) {
            if !keys.contains(key) {
                keys.push(*key);
            }
        }
        self.reader.check_keys(table, &keys, |key| {
            let others = variants.iter().filter(|(_, keys, _)| keys.contains(&key));
            let others: Vec<_> = others.map(|(other, ..)| format!("`{other}`")).collect();
            let (name, (last, others)) = (name?, others.split_last()?);
            let others = match others {
                [] => String::new(),
                others => format!("{} or ", others.join(", ")),
            };
            Some(format!("unknown key `{key}` with `{tag} = \"{name}\"`: it needs {others}{last}"))
        });
        self.tag = given.map(|name| (tag, name));
        if name.is_none() && !has_tag {
            self.missing(tag);
        }
        meaning(name?, variants)
    }

    /// Suppresses further error messages for this table and everything in it.
    pub(super) fn mute(&mut self) {
        let path = self.reader.path.clone();
        self.reader.mute(&path);
    }

    /// Calls `read` with the value of the key `key`. If a part of the value is invalid, reports and
    /// hides this part, and calls `read` again. Returns `None` if the key is missing, if the whole
    /// value is invalid, or if the maximum number of errors was reported.
    fn with<T>(
        &mut self,
        key: &str,
        read: impl Fn(Value<'_, 'a, 't>) -> Result<T, Failure>,
    ) -> Option<T> {
        let node = self.node(key)?;
        self.reader.path.push(key.into());
        let mut result = None;
        while result.is_none() && !self.reader.hides(node) && !self.reader.is_full() {
            match read(Value { reader: self.reader, node }) {
                Ok(value) => result = Some(value),
                Err(failure) => self.reader.fail_here(failure, node),
            }
        }
        self.reader.path.pop();
        result
    }

    /// Returns the value of a key. Returns `None` if the key is missing, or if its value is
    /// invalid. An invalid value is reported as an error.
    pub(super) fn get<T: FromToml>(&mut self, key: &str) -> Option<T> {
        self.with(key, T::from_toml)
    }

    /// Assigns the value of the key to `field`. If the key is missing or its value is invalid,
    /// `field` does not change.
    pub(super) fn set<T: FromToml>(&mut self, key: &str, field: &mut T) {
        if let Some(value) = self.get(key) {
            *field = value;
        }
    }

    /// Returns the value of a key as JSON, without evaluating expressions. Returns `None` if the
    /// key is missing or its value is invalid.
    pub(super) fn literal<T>(&mut self, key: &str) -> Option<T>
    where
        Literal<T>: FromToml,
    {
        self.get(key).map(Literal::into_inner)
    }

    /// Returns the value of a required key. Reports an error and returns `None` if the key is
    /// missing or its value is invalid.
    pub(super) fn required<T: FromToml>(&mut self, key: &str) -> Option<T> {
        self.require(key);
        self.get(key)
    }

    /// Reports an error if the table does not contain a required key.
    pub(super) fn require(&mut self, key: &str) {
        if !self.has(key) {
            self.missing(key);
        }
    }

    fn missing(&mut self, key: &str) {
        let needed = self.tag.map(|(tag, name)| format!(": `{tag} = \"{name}\"` needs it"));
        self.report(key, format!("missing key `{key}`{}", needed.unwrap_or_default()));
    }

    /// Returns the string value of a required key. If the value is missing or invalid, reports an
    /// error, and returns a placeholder that causes no further errors.
    pub(super) fn text(&mut self, key: &str) -> String {
        self.required(key).unwrap_or_else(|| placeholder(key, &self.reader.path))
    }

    /// Calls `read` for each table in the array at `key`, and returns the results. Returns `None`
    /// if the key is missing.
    pub(super) fn tables<T>(
        &mut self,
        key: &str,
        read: impl FnMut(&mut TableReader<'_, 'a, 't>) -> T,
    ) -> Option<Vec<T>> {
        let node = self.node(key)?;
        Some(TableReader::of_array(self.reader, key, node, read))
    }

    /// Calls `read` for the table at `key`, and returns the result. Returns `None` if the key is
    /// missing.
    pub(super) fn table<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut TableReader<'_, 'a, 't>) -> T,
    ) -> Option<T> {
        let node = self.node(key)?;
        self.reader.path.push(key.into());
        let value = TableReader::of_node(self.reader, node, read);
        self.reader.path.pop();
        Some(value)
    }

    /// Calls `read` for each table in this table, and returns the results with their keys. The keys
    /// can have any names. Reports an error for each value that is not a table.
    pub(super) fn members<T>(
        &mut self,
        mut read: impl FnMut(&mut TableReader<'_, 'a, 't>) -> T,
    ) -> Vec<(String, T)> {
        let keys = self.table.into_iter().flat_map(|table| table.keys());
        let names: Vec<_> = keys.map(|key| key.get_ref().to_string()).collect();
        let member = |name: String| Some((self.table(&name, &mut read)?, name));
        names.into_iter().filter_map(member).map(|(value, name)| (name, value)).collect()
    }

    /// Returns the string value of a key. Reports an error and returns `None` if the string is not
    /// one of `words`.
    pub(super) fn word(&mut self, key: &str, words: &[&'static str]) -> Option<&'static str> {
        self.with(key, |value| value.one_of(words)).map(|place| words[place])
    }

    /// Reads a value that can be written as a string or as a table. The string, such as `on_error =
    /// "retry"`, is short for a table whose `tag` has this value. Only a table can have further
    /// keys. `variants` lists the valid tag values.
    pub(super) fn word_or_table<T, M: Copy>(
        &mut self,
        key: &str,
        tag: &'static str,
        variants: &Variants<M>,
        read: impl FnOnce(M, &mut TableReader<'_, 'a, 't>) -> T,
    ) -> Option<T> {
        if self.is_text(key) {
            let meaning = meaning(self.word(key, &names(variants))?, variants)?;
            let mut table = TableReader { reader: self.reader, table: None, tag: None };
            return Some(read(meaning, &mut table));
        }
        self.table(key, |table| Some(read(table.tag(tag, None, &[], variants)?, table)))?
    }
}

/// Returns the valid tag values in `variants`.
pub(super) fn names<T>(variants: &Variants<T>) -> Vec<&'static str> {
    variants.iter().map(|(name, ..)| *name).collect()
}

/// Returns the value of type `T` that `variants` lists for the tag value `name`. Returns `None` if
/// `name` is not listed.
fn meaning<T: Copy>(name: &str, variants: &Variants<T>) -> Option<T> {
    variants.iter().find(|(other, ..)| *other == name).map(|&(.., meaning)| meaning)
}

// === impl FromToml ===

impl<T: Named> FromToml for T {
    fn from_toml<'a>(value: Value<'_, 'a, '_>) -> Result<Self, Failure> {
        let names: Vec<_> = T::ALL.iter().map(|(name, _)| *name).collect();
        value.one_of(&names).map(|place| T::ALL[place].1)
    }
}

impl<T: FromToml> FromToml for Option<T> {
    fn from_toml<'a>(value: Value<'_, 'a, '_>) -> Result<Self, Failure> {
        T::from_toml(value).map(Some)
    }
}

impl FromToml for time::Duration {
    fn from_toml<'a>(value: Value<'_, 'a, '_>) -> Result<Self, Failure> {
        Duration::deserialize(value).map(|Duration(duration)| duration)
    }
}

impl FromToml for ToolAnnotations {
    fn from_toml<'a>(value: Value<'_, 'a, '_>) -> Result<Self, Failure> {
        AnnotationsTable::deserialize(value).map(Into::into)
    }
}

/// Implements [`FromToml`] by deserialization, for types that implement `Deserialize`.
macro_rules! deserialized {
    ($($Type:ty)+) => {$(
        impl FromToml for $Type {
            fn from_toml<'a>(value: Value<'_, 'a, '_>) -> Result<Self, Failure> {
                Self::deserialize(value)
            }
        }
    )+};
}

deserialized!(bool u32 u64 usize f64 String Vec<String> JsonObject serde_json::Value);
deserialized!(Literal<JsonObject> Literal<serde_json::Value>);
