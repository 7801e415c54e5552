//! Reads the strings of a table, in which environment variables are expanded.

use super::{read::Reader, variables::Text};
use crate::composite::Segment;

/// Reads the strings of one table of the file, and reports errors in the table.
pub(super) struct TextReader<'r, 'a, 't> {
    /// The path of the table in the file, such as `backends[0].auth`.
    pub(super) path: Vec<Segment>,
    /// The secrets found so far in the table, such as the values of variables. A backend redacts
    /// its secrets in log messages.
    pub(super) secrets: Vec<String>,
    pub(super) reader: &'r mut Reader<'a, 't>,
}

// === impl TextReader ===

impl TextReader<'_, '_, '_> {
    /// Returns the path in the file of a value in the table. `keys` is the path of the value in the
    /// table.
    pub(super) fn at<K: Clone + Into<Segment>>(&self, keys: &[K]) -> Vec<Segment> {
        self.path.iter().cloned().chain(keys.iter().cloned().map(Into::into)).collect()
    }

    /// Reports an error in the value at `keys`.
    pub(super) fn report<K: Clone + Into<Segment>>(
        &mut self,
        keys: &[K],
        message: impl Into<String>,
    ) {
        let path = self.at(keys);
        self.reader.report(&path, message);
    }

    /// Reports an error if the required value at `keys` is missing.
    pub(super) fn required<T>(&mut self, keys: &[&str], value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.report(keys, format!("missing key `{}`", keys[keys.len() - 1]));
        }
        value
    }

    /// Replaces each `${VAR}` in `written`, the string at `keys`, and records the values of the
    /// variables as secrets. If a variable cannot be replaced, reports an error and returns `None`.
    pub(super) fn expand<K: Clone + Into<Segment>>(
        &mut self,
        keys: &[K],
        written: String,
    ) -> Option<Text> {
        let path = self.at(keys);
        let text = self.reader.expand(&path, written)?;
        self.secrets.extend(text.replaced.iter().cloned());
        Some(text)
    }

    /// Replaces each `${VAR}` like [`expand`](Self::expand). If the result is blank, also reports
    /// an error and returns `None`.
    pub(super) fn text(&mut self, keys: &[&str], written: String) -> Option<Text> {
        let text = self.expand(keys, written)?;
        if text.value.trim().is_empty() {
            self.report(keys, "the value is empty");
            return None;
        }
        Some(text)
    }
}
