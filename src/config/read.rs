//! Reads a parsed TOML file, and collects all errors in the file.
//!
//! serde stops deserializing at the first invalid value. To find all errors, the reader reports the
//! invalid value, hides it, and deserializes the whole file again, until it finds no more invalid
//! values.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
    ops::Range,
};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    failure::{Culprit, Failure, unknown},
    fault::{Fault, Faults, MAX_MISTAKES},
    hints,
    node::{Node, address},
    secret_spans::{is_masked, masked_path, values},
    source::{Source, is_unprintable, sanitized},
    variables::{Environment, Text},
    word::is_word,
};
use crate::{
    composite::{DisplayPath, Segment},
    suggest::nearest,
};

/// Pairs of keys with the same meaning, such as `targets` and `tools`. Errors are reported for the
/// first key of a pair. If the file contains only the second key, the reader moves the error to
/// this key.
const SHORT_FORMS: [(&str, &str); 2] = [("targets", "tools"), ("input_schema", "parameters")];
/// Maximum number of characters in an error message. Longer messages are truncated, because they
/// may quote long strings of the file.
const MAX_MESSAGE: usize = 2000;
/// The key of the `[[views]]` section. Each view can replace other sections of the file by its own.
pub(super) const VIEWS: &str = "views";

/// Reads a parsed TOML file, and collects all errors in the file. A function that reports an error
/// returns an incomplete value or a placeholder, so that reading continues. After an error, the
/// configuration as a whole is discarded.
pub(super) struct Reader<'a, 't> {
    pub(super) source: &'a Source<'t>,
    root: &'a Node<'t>,
    environment: Environment<'a>,
    /// The addresses of TOML values that were found to be invalid. When the file is read again,
    /// these values are treated as missing.
    hidden: HashSet<usize>,
    /// The indices of the invalid elements of each array, by the path of the array. These elements
    /// are skipped when the file is read again.
    hidden_elements: HashMap<String, BTreeSet<usize>>,
    /// The path of the value that is currently being read.
    pub(super) path: Vec<Segment>,
    faults: Faults,
    /// The name patterns for tools in the file, each with its path. They are checked after all
    /// backends have been read, because names depend on the backends' prefixes.
    tool_patterns: Vec<(Vec<Segment>, String)>,
    /// The paths at which no further errors are reported. Contains the paths of reported errors,
    /// and those of missing keys that the user probably misspelled.
    reported: BTreeSet<String>,
    /// Spans that error messages must mask, because they may contain secrets. These are unknown or
    /// duplicate keys that are not [plain words](is_word), and the values of such unknown keys.
    masks: Vec<Range<usize>>,
    /// The view whose sections are being read. `None` while the sections at the top level of the
    /// file are being read.
    view: Option<CurrentView<'a, 't>>,
}

/// The view whose sections are being read. The view inherits all other sections from the top level
/// of the file.
struct CurrentView<'a, 't> {
    /// The index of the view in the file's `[[views]]` array.
    index: usize,
    /// The URL path at which the view is served, such as `/readonly`.
    path: String,
    table: &'a DeTable<'t>,
}

// === impl Reader ===

impl<'a, 't> Reader<'a, 't> {
    pub(super) fn new(
        source: &'a Source<'t>,
        root: &'a Node<'t>,
        environment: Environment<'a>,
    ) -> Self {
        Self {
            source,
            root,
            environment,
            hidden: HashSet::new(),
            hidden_elements: HashMap::new(),
            path: Vec::new(),
            faults: Faults { all: Vec::new(), is_complete: true, forbidden_flows: 0 },
            tool_patterns: Vec::new(),
            reported: BTreeSet::new(),
            masks: Vec::new(),
            view: None,
        }
    }

    /// Calls `read` to read the sections of one view. `index` is the index of the view among the
    /// valid elements of the `[[views]]` array. `path` is the URL path of the view. Returns `None`
    /// if the file contains no such view.
    pub(super) fn in_view<T>(
        &mut self,
        index: usize,
        path: &str,
        read: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let index = self.index_in_file(&[VIEWS.into()], index);
        let root: &'a Node<'t> = self.root;
        let views = root.get_ref().as_table()?.get(VIEWS)?.get_ref().as_array()?;
        let table = views.get(index)?.get_ref().as_table()?;
        self.view = Some(CurrentView { index, path: path.to_owned(), table });
        let value = read(self);
        self.view = None;
        Some(value)
    }

    /// Returns the URL path of the view that is being read, if the table of the view contains
    /// `section`. Returns `None` if the view inherits the section from the file, or if no view is
    /// being read.
    pub(super) fn own_view(&self, section: &str) -> Option<&str> {
        let view = self.view.as_ref().filter(|view| view.table.contains_key(section))?;
        Some(&view.path)
    }

    /// Reports the TOML syntax errors of one file. `start` is the offset of its text in the
    /// concatenated text. Returns `true` if the file can still be read, because all errors are
    /// duplicate keys.
    pub(super) fn parsed(&mut self, errors: &[toml::de::Error], start: usize) -> bool {
        const DUPLICATE: &str = "duplicate key";
        // The keys that the parser returns are reliable only if duplicate keys are the only errors.
        let readable = errors.iter().all(|error| error.message() == DUPLICATE);
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            let span = span.start + start..span.end + start;
            let message = match error.message() {
                // For duplicate keys, the parser uses the first value, and the rest of the table is
                // correct.
                DUPLICATE => match self.source.slice(&span).trim_matches(['"', '\'']) {
                    key if is_word(key) && readable => format!("duplicate key `{key}`"),
                    key if is_word(key) => {
                        format!("duplicate key `{}`", self.source.sanitized(&span))
                    }
                    _ => {
                        self.masks.push(span.clone());
                        DUPLICATE.to_owned()
                    }
                },
                message => match self.source.slice(&span) {
                    "null" | "nil" | "None" | "~" => {
                        "TOML has no null: write `\"$null\"`".to_owned()
                    }
                    _ => message.replacen(", expected ", ": expected ", 1),
                },
            };
            self.faults.all.push(Fault::new(message, span));
        }
        readable
    }

    /// Adds mistakes that were found while the files were parsed and merged.
    pub(super) fn found(&mut self, faults: Vec<Fault>) {
        self.faults.all.extend(faults);
    }

    /// Calls `read` to read the whole file. If `read` fails, reports the invalid value, hides it,
    /// and calls `read` again. Returns `T::default()` if 100 errors were found, or if the file
    /// cannot be read at all.
    pub(super) fn retry<T: Default>(
        &mut self,
        mut read: impl FnMut(&mut Self, &'a Node<'t>) -> Result<T, Failure>,
    ) -> T {
        // Each failure hides one value. Then the table that contained the value may fail once more,
        // because it lacks the value. So there are at most two failures for each mistake.
        for _ in 0..2 * MAX_MISTAKES {
            if self.is_full() {
                break;
            }
            let root = self.root;
            match read(self, root) {
                Ok(value) => return value,
                Err(failure) => match failure.of(&[], root) {
                    Failure { message, culprit: Some(culprit) } if !culprit.path.is_empty() => {
                        self.fail(culprit, message);
                    }
                    // The root of the file is invalid, so nothing is left to read.
                    Failure { message, .. } => {
                        self.push(&[], message, root.span());
                        break;
                    }
                },
            }
        }
        self.faults.is_complete = false;
        T::default()
    }

    /// Reports an invalid value, and hides it: when the file is read again, the value is skipped.
    fn fail(&mut self, Culprit { address, path, span }: Culprit, message: String) {
        self.hidden.insert(address);
        if let [array @ .., Segment::Index(index)] = path.as_slice() {
            let array = DisplayPath(array).to_string();
            self.hidden_elements.entry(array).or_default().insert(*index);
        }
        // Skips errors that were caused by a nested value that was reported and hidden before.
        if !self.is_reported_below(&path) {
            let message = if is_masked(&path) { without_word(message) } else { message };
            self.push(&path, message, span);
        }
    }

    fn push(&mut self, path: &[Segment], message: String, span: Range<usize>) {
        self.reported.insert(DisplayPath(path).to_string());
        let message = harmless(message);
        self.faults.all.push(Fault { path: masked_path(path, false), message, span });
    }

    /// Reports an error that was found after a value was read, such as a duplicate name. Does
    /// nothing if an error was already reported for the value or for a table that contains it. For
    /// example, several views may inherit a section with an error, which is reported only once. If
    /// the error occurs only in a view, the message names the view.
    ///
    /// The array indices in `path` count only valid elements, because the reader skips invalid
    /// elements.
    pub(super) fn report(&mut self, path: &[Segment], message: impl Into<String>) {
        let (path, span) = self.locate(path);
        let is_reported = |end| {
            self.reported.contains(&DisplayPath(path.get(..end).unwrap_or(&path)).to_string())
        };
        if (1..=path.len()).any(is_reported) {
            return;
        }
        let mut message = message.into();
        if let (Some(view), Some(Segment::Key(section))) = (&self.view, path.first())
            && section != VIEWS
        {
            message = format!("{message} (in the view `{}`)", sanitized(&view.path));
        }
        self.push(&path, message, span);
    }

    /// Reports a forbidden flow of data, like [`report`](Self::report).
    pub(super) fn report_flow(&mut self, path: &[Segment], message: String) {
        let before = self.faults.all.len();
        self.report(path, message);
        self.faults.forbidden_flows += self.faults.all.len() - before;
    }

    /// Records a name pattern for tools. It is checked after all backends of the file have been
    /// read.
    pub(super) fn note_tool_pattern(&mut self, path: Vec<Segment>, pattern: String) {
        self.tool_patterns.push((path, pattern));
    }

    pub(super) fn take_tool_patterns(&mut self) -> Vec<(Vec<Segment>, String)> {
        mem::take(&mut self.tool_patterns)
    }

    /// Reports an error if `value`, the optional number or duration of the key `key`, is zero.
    /// `path` is the path of the table that contains the key. Returns the value unchanged.
    pub(super) fn not_zero<T: Copy + Default + PartialEq>(
        &mut self,
        path: &[Segment],
        key: &str,
        value: Option<T>,
    ) -> Option<T> {
        if value == Some(T::default()) {
            let message = format!("`{key}` is zero: expected more, or leave the key out");
            self.report(&[path, &[key.into()]].concat(), message);
        }
        value
    }

    /// Returns `value`, the string value of the required key `key` in the table at `path`. If it is
    /// `None`, reports that the key is missing, and returns a placeholder that causes no further
    /// errors.
    pub(super) fn required(
        &mut self,
        value: Option<String>,
        key: &str,
        path: &[Segment],
    ) -> String {
        value.unwrap_or_else(|| {
            self.report(&[path, &[key.into()]].concat(), format!("missing key `{key}`"));
            placeholder(key, path)
        })
    }

    /// Replaces each `${VAR}` in `written`, the string at `path`, with the value of an environment
    /// variable. If a variable has an invalid name or is not set, reports an error and returns
    /// `None`.
    pub(super) fn expand(&mut self, path: &[Segment], written: String) -> Option<Text> {
        Text::expand(written, self.environment).map_err(|message| self.report(path, message)).ok()
    }

    /// Returns `true` if the file contains the section `key`, and its value has a valid type.
    pub(super) fn has_section(&self, key: &str) -> bool {
        let node = self.root.get_ref().as_table().and_then(|table| table.get(key));
        node.is_some_and(|node| !self.hides(node))
    }

    /// Suppresses all further error messages about the value at `path`.
    pub(super) fn mute(&mut self, path: &[Segment]) {
        let (path, _) = self.locate(path);
        self.reported.insert(DisplayPath(&path).to_string());
    }

    /// Returns `true` if an error was reported for the value at `path` or for a value within it.
    pub(super) fn has_fault_in(&self, path: &[Segment]) -> bool {
        let (path, _) = self.locate(path);
        self.reported.contains(&DisplayPath(&path).to_string()) || self.is_reported_below(&path)
    }

    fn is_reported_below(&self, path: &[Segment]) -> bool {
        ["[", "."].into_iter().any(|separator| {
            let below = format!("{}{separator}", DisplayPath(path));
            self.reported
                .range(below.clone()..)
                .next()
                .is_some_and(|reported| reported.starts_with(&below))
        })
    }

    /// Converts a path whose indices count only valid array elements to a path whose indices count
    /// all elements in the file. Also returns the span of the value at this path. If the file does
    /// not contain the value, returns the span of the innermost table or array on the path.
    fn locate(&self, path: &[Segment]) -> (Vec<Segment>, Range<usize>) {
        let in_view = match path {
            [Segment::Key(section), ..] if self.own_view(section).is_some() => self.view_path(),
            _ => Vec::new(),
        };
        let mut located = Vec::new();
        let mut span = self.root.span();
        let mut node = Some(self.root);
        for segment in in_view.iter().chain(path) {
            let (segment, child) = match (segment, node.map(Spanned::get_ref)) {
                (Segment::Key(key), Some(DeValue::Table(table))) => {
                    let key = match SHORT_FORMS.iter().find(|(long, _)| long == key) {
                        Some((_, short))
                            if !table.contains_key(key.as_str()) && table.contains_key(*short) =>
                        {
                            short
                        }
                        _ => key.as_str(),
                    };
                    (key.into(), table.get(key))
                }
                // The file contains a string where a table is also possible, such as `on_error =
                // "abort"`.
                (Segment::Key(_), Some(DeValue::String(_))) => break,
                (Segment::Index(index), Some(DeValue::Array(array))) => {
                    let is_view = self.view.is_some() && located == [VIEWS.into()];
                    let index = if is_view { *index } else { self.index_in_file(&located, *index) };
                    (Segment::Index(index), array.get(index))
                }
                _ => (segment.clone(), None),
            };
            located.push(segment);
            node = child;
            span = child.map_or(span, Spanned::span);
        }
        (located, span)
    }

    /// Converts an index that counts only the valid elements of `array` to an index that counts all
    /// elements in the file.
    fn index_in_file(&self, array: &[Segment], index: usize) -> usize {
        let hidden = self.hidden_elements.get(&DisplayPath(array).to_string());
        let hidden = hidden.into_iter().flatten();
        hidden.fold(index, |index, hidden| index + usize::from(*hidden <= index))
    }

    pub(super) fn hides(&self, node: &Node<'_>) -> bool {
        self.hidden.contains(&address(node))
    }

    /// Returns `true` if the maximum number of mistakes was found. Reading then stops, and the
    /// error states that the file may contain more mistakes.
    pub(super) const fn is_full(&mut self) -> bool {
        let is_full = self.faults.all.len() >= MAX_MISTAKES;
        if is_full {
            self.faults.is_complete = false;
        }
        is_full
    }

    /// Reports and hides the value that caused `failure`: the value at the current path, or a value
    /// within it.
    pub(super) fn fail_here(&mut self, failure: Failure, node: &Node<'t>) {
        if let Failure { message, culprit: Some(culprit) } = failure.of(&self.path, node) {
            self.fail(culprit, message);
        }
    }

    /// Reports an error in the value at the current path. Does nothing if an error was already
    /// reported there.
    pub(super) fn report_here(&mut self, message: String, span: Range<usize>) {
        let path = self.path.clone();
        if !self.reported.contains(&DisplayPath(&path).to_string()) {
            self.push(&path, message, span);
        }
    }

    /// Calls `read` with the value of the section `key`. If a view is being read and contains the
    /// section, passes the value from the view, and otherwise the value from the top level of the
    /// file. Returns `None` if the section is missing, or is invalid and was reported.
    pub(super) fn with_section<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Self, &'a Node<'t>) -> T,
    ) -> Option<T> {
        let root: &'a Node<'t> = self.root;
        let own = self.view.as_ref().filter(|view| view.table.contains_key(key));
        let (table, path) = match own {
            Some(view) => (view.table, self.view_path()),
            None => (root.get_ref().as_table()?, Vec::new()),
        };
        let node = table.get(key).filter(|node| !self.hides(node))?;
        let outer = mem::replace(&mut self.path, path);
        let value = read(self, node);
        self.path = outer;
        Some(value)
    }

    /// Returns the path of the view's table in the file, such as `views[0]`. Returns an empty path
    /// if no view is being read.
    fn view_path(&self) -> Vec<Segment> {
        let view = self.view.as_ref();
        view.map_or_else(Vec::new, |view| vec![VIEWS.into(), view.index.into()])
    }

    /// Reports and hides all keys of a table that are not in `fields`. For a key that is valid in
    /// other tables, `elsewhere` returns an error message that names these tables. If it returns
    /// `None`, a general message is reported.
    pub(super) fn check_keys(
        &mut self,
        table: &'a DeTable<'t>,
        fields: &[&str],
        elsewhere: impl Fn(&str) -> Option<String>,
    ) {
        for (key, node) in table {
            if fields.contains(&key.get_ref().as_ref()) || self.hides(node) {
                continue;
            }
            let what = if self.path.is_empty() && is_section(node) { "section" } else { "key" };
            let hint = hints::of_key(&self.path, key.get_ref());
            let elsewhere = elsewhere(key.get_ref());
            let is_foreign = elsewhere.is_some() || hint.is_some();
            let message = match (elsewhere, &hint) {
                (Some(message), _) => message,
                (None, Some(hint)) => format!("unknown {what} `{}`: {}", key.get_ref(), hint.text),
                (None, None) => unknown(what, key.get_ref(), fields),
            };
            self.hidden.insert(address(node));
            let mut path = self.path.clone();
            // If the key is a misspelling of a valid key, the valid key is not reported as missing.
            let near = nearest(key.get_ref(), fields).filter(|_| !is_foreign);
            let meant = hint.map_or(&[][..], |hint| hint.keys).iter().copied().chain(near);
            for near in meant.filter(|near| !table.contains_key(*near)) {
                path.push(near.into());
                self.reported.insert(DisplayPath(&path).to_string());
                path.pop();
            }
            path.push(Segment::Key(key.get_ref().to_string()));
            self.reported.insert(DisplayPath(&path).to_string());
            let path = masked_path(&path, true);
            self.faults.all.push(Fault { path, message, span: key.span() });
            if !is_word(key.get_ref()) {
                self.masks.push(key.span());
                values(node, &mut self.masks);
            }
        }
    }

    /// Returns all mistakes that were found, and the spans that this reader has found to contain
    /// possible secrets. Error messages must mask them, in addition to the spans that the source
    /// already masks.
    pub(super) fn finish(self) -> (Faults, Vec<Range<usize>>) {
        (self.faults, self.masks)
    }
}

/// Returns a placeholder for the string `key` that the table at `path` lacks. Each table gets a
/// different placeholder, because equal names would be reported as duplicates.
pub(super) fn placeholder(key: &str, path: &[Segment]) -> String {
    let places = path.iter().map(|segment| match segment {
        Segment::Index(index) => format!("_{index}"),
        Segment::Key(_) => String::new(),
    });
    format!("missing_{key}{}", places.collect::<String>())
}

/// Removes the quoted value from an error message of the form ``unknown value `…` ``, because the
/// value may be secret.
fn without_word(message: String) -> String {
    const UNKNOWN: &str = "unknown value";
    let rest = message.strip_prefix(UNKNOWN).and_then(|rest| rest.strip_prefix(" `"));
    match rest.and_then(|rest| rest.split_once('`')) {
        Some((_, expected)) => format!("{UNKNOWN}{expected}"),
        None => message,
    }
}

/// Makes an error message safe to print. The message may quote any string of the file, so it is
/// truncated, and unprintable characters are replaced.
fn harmless(message: String) -> String {
    if message.len() <= MAX_MESSAGE && !message.contains(is_unprintable) {
        return message;
    }
    let mut characters = message.chars().map(|c| if is_unprintable(c) { '\u{fffd}' } else { c });
    let mut harmless: String = characters.by_ref().take(MAX_MESSAGE).collect();
    if characters.next().is_some() {
        harmless.push('…');
    }
    harmless
}

fn is_section(node: &Node<'_>) -> bool {
    match node.get_ref() {
        DeValue::Table(_) => true,
        DeValue::Array(array) => array.iter().any(|element| element.get_ref().is_table()),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
