//! Reads a table key by key, and reports every mistake in it.

use std::time;

use rmcp::model::{JsonObject, ToolAnnotations};
use serde::Deserialize;
use toml::de::DeTable;

use super::{
    annotations::AnnotationsTable,
    duration::Duration,
    failure::Failure,
    node::Node,
    read::{Reader, placeholder},
    value::Value,
};
use crate::{composite::Segment, named::Named};

/// The alternatives of a table: the values of its tag, each with the keys that it adds.
pub(super) type Variants = [(&'static str, &'static [&'static str])];

/// A table of the file whose keys are read one by one.
pub(super) struct TableReader<'r, 'a, 't> {
    pub(super) reader: &'r mut Reader<'a, 't>,
    /// `None` in the place of a table that cannot be read, and of a word that stands for a table.
    table: Option<&'a DeTable<'t>>,
    /// The tag of the table, and its value as written.
    tag: Option<(&'static str, &'static str)>,
}

/// A value that is read from a file.
pub(super) trait FromToml: Sized {
    /// Reads the value.
    ///
    /// # Errors
    ///
    /// Returns the first mistake.
    fn from_toml<'a>(value: Value<'_, 'a, '_>) -> Result<Self, Failure>;
}

// === impl TableReader ===

impl<'a, 't> TableReader<'_, 'a, 't> {
    /// Reads the tables of an array in the file.
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

    /// Reads the table at the current path, or an empty one if it is not a table.
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

    /// Returns the path of a key.
    fn at(&self, key: &str) -> Vec<Segment> {
        [&self.reader.path[..], &[key.into()]].concat()
    }

    fn node(&self, key: &str) -> Option<&'a Node<'t>> {
        self.table?.get(key).filter(|node| !self.reader.hides(node))
    }

    /// Returns `true` if the table has the key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.node(key).is_some()
    }

    /// Returns `true` if the value of the key is a text.
    pub(super) fn is_text(&self, key: &str) -> bool {
        self.node(key).is_some_and(|node| node.get_ref().is_str())
    }

    /// Reports a mistake at a key.
    pub(super) fn report(&mut self, key: &str, message: impl Into<String>) {
        let path = self.at(key);
        self.reader.report(&path, message.into());
    }

    /// Reports a mistake in the whole table.
    pub(super) fn report_here(&mut self, message: &str) {
        let path = self.reader.path.clone();
        self.reader.report(&path, message.to_owned());
    }

    /// Reports keys other than these.
    pub(super) fn only(&mut self, keys: &[&str]) {
        if let Some(table) = self.table {
            self.reader.check_keys(table, keys, |_| None);
        }
    }

    /// Reads the tag of a table, and reports keys that do not belong to its value.
    ///
    /// Returns `None` after a mistake in the tag; then the keys of all values are allowed.
    pub(super) fn tag(
        &mut self,
        tag: &'static str,
        default: Option<&'static str>,
        common: &[&'static str],
        variants: &Variants,
    ) -> Option<&'static str> {
        let table = self.table?;
        let has_tag = self.has(tag);
        let given = self.word(tag, &names(variants));
        let name = given.or(default.filter(|_| !has_tag));
        let own = variants.iter().filter(|(other, _)| name.is_none_or(|name| name == *other));
        let own = own.flat_map(|(_, keys)| keys.iter());
        let mut keys = Vec::new();
        for key in common.iter().chain([&tag]).chain(own) {
            if !keys.contains(key) {
                keys.push(*key);
            }
        }
        self.reader.check_keys(table, &keys, |key| {
            let others = variants.iter().filter(|(_, keys)| keys.contains(&key));
            let others: Vec<_> = others.map(|(other, _)| format!("`{other}`")).collect();
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
        name
    }

    /// Suppresses further reports about the table.
    pub(super) fn mute(&mut self) {
        let path = self.reader.path.clone();
        self.reader.mute(&path);
    }

    /// Reads the value of a key, again after each mistake within it.
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

    /// Reads the value of a key.
    pub(super) fn get<T: FromToml>(&mut self, key: &str) -> Option<T> {
        self.with(key, T::from_toml)
    }

    /// Reads the value of a key, if the table has it.
    pub(super) fn set<T: FromToml>(&mut self, key: &str, field: &mut T) {
        if let Some(value) = self.get(key) {
            *field = value;
        }
    }

    /// Reads the value of a required key; reports it if it is missing.
    pub(super) fn required<T: FromToml>(&mut self, key: &str) -> Option<T> {
        self.require(key);
        self.get(key)
    }

    /// Reports a required key if it is missing.
    pub(super) fn require(&mut self, key: &str) {
        if !self.has(key) {
            self.missing(key);
        }
    }

    fn missing(&mut self, key: &str) {
        let needed = self.tag.map(|(tag, name)| format!(": `{tag} = \"{name}\"` needs it"));
        self.report(key, format!("missing key `{key}`{}", needed.unwrap_or_default()));
    }

    /// Reads a required text. If it is missing or mistaken, returns a placeholder that causes no
    /// other mistake.
    pub(super) fn text(&mut self, key: &str) -> String {
        self.required(key).unwrap_or_else(|| placeholder(key, &self.reader.path))
    }

    /// Reads an array of tables.
    pub(super) fn tables<T>(
        &mut self,
        key: &str,
        read: impl FnMut(&mut TableReader<'_, 'a, 't>) -> T,
    ) -> Option<Vec<T>> {
        let node = self.node(key)?;
        Some(TableReader::of_array(self.reader, key, node, read))
    }

    /// Reads a table.
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

    /// Reads a table with any keys, all of them tables.
    pub(super) fn members<T>(
        &mut self,
        mut read: impl FnMut(&mut TableReader<'_, 'a, 't>) -> T,
    ) -> Vec<(String, T)> {
        let keys = self.table.into_iter().flat_map(|table| table.keys());
        let names: Vec<_> = keys.map(|key| key.get_ref().to_string()).collect();
        let member = |name: String| Some((self.table(&name, &mut read)?, name));
        names.into_iter().filter_map(member).map(|(value, name)| (name, value)).collect()
    }

    /// Reads a text that is one of these words.
    pub(super) fn word(&mut self, key: &str, words: &[&'static str]) -> Option<&'static str> {
        self.with(key, |value| value.one_of(words)).map(|place| words[place])
    }

    /// Reads a word, or a table in which `tag` is that word and which has the keys of its variant.
    pub(super) fn word_or_table<T>(
        &mut self,
        key: &str,
        tag: &'static str,
        variants: &Variants,
        read: impl FnOnce(&'static str, &mut TableReader<'_, 'a, 't>) -> T,
    ) -> Option<T> {
        if self.is_text(key) {
            let word = self.word(key, &names(variants))?;
            return Some(read(
                word,
                &mut TableReader { reader: self.reader, table: None, tag: None },
            ));
        }
        self.table(key, |table| Some(read(table.tag(tag, None, &[], variants)?, table)))?
    }
}

/// Returns the values of a tag.
fn names(variants: &Variants) -> Vec<&'static str> {
    variants.iter().map(|(name, _)| *name).collect()
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

/// Implements [`FromToml`] for types that implement `Deserialize`.
macro_rules! deserialized {
    ($($Type:ty)+) => {$(
        impl FromToml for $Type {
            fn from_toml<'a>(value: Value<'_, 'a, '_>) -> Result<Self, Failure> {
                Self::deserialize(value)
            }
        }
    )+};
}

deserialized!(bool u32 u64 usize String Vec<String> JsonObject serde_json::Value);
