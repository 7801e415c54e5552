//! Collects the mistakes and differences of an import from ToolHive, and reads YAML maps.

use std::ops::Range;

use super::yaml::{Content, Member, Node};
use crate::{
    config::fault::Fault,
    suggest::{DidYouMean, nearest},
    text_position::{line_number, line_start},
};

/// A setting of a ToolHive file that the import changes or leaves out.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) message: String,
    pub(super) span: Range<usize>,
    /// `true` if the import loses a protection, such as an authorization policy.
    pub(super) protects: bool,
}

/// The state of an import: the YAML text, and the mistakes and differences found so far.
#[derive(Debug, Default)]
pub(super) struct Import<'t> {
    pub(super) text: &'t str,
    pub(super) mistakes: Vec<Fault>,
    pub(super) differences: Vec<Difference>,
    /// Byte ranges of the text that error messages mask, because they may contain secrets.
    pub(super) masks: Vec<Range<usize>>,
}

/// The members of a YAML map. Their keys are in camel case, such as `onError`.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    members: Vec<(String, &'n Member)>,
    span: Range<usize>,
}

// === impl Import ===

impl Import<'_> {
    pub(super) fn mistake(&mut self, message: impl Into<String>, span: &Range<usize>) {
        self.mistakes.push(Fault::new(message, span.clone()));
    }

    pub(super) fn differs(&mut self, message: impl Into<String>, span: &Range<usize>) {
        self.difference(message.into(), span, false);
    }

    /// Records a difference, unless a difference with the same message was already recorded.
    pub(super) fn differs_once(&mut self, message: &str, span: &Range<usize>) {
        if !self.differences.iter().any(|difference| difference.message == message) {
            self.differs(message, span);
        }
    }

    pub(super) fn unprotected(&mut self, message: impl Into<String>, span: &Range<usize>) {
        self.difference(message.into(), span, true);
    }

    fn difference(&mut self, message: String, span: &Range<usize>, protects: bool) {
        self.differences.push(Difference { message, span: span.clone(), protects });
    }

    /// Masks the line of a syntax error, except for the first key in the line.
    pub(super) fn mask_line(&mut self, span: &Range<usize>) {
        let start = line_start(&self.text[..span.start]);
        let line = self.text[start..].lines().next().unwrap_or_default();
        let key = line.find(": ").map_or(0, |colon| colon + 1);
        let indentation = line[key..].len() - line[key..].trim_start().len();
        self.masks.push(start + key + indentation..start + line.len());
    }

    /// Returns the differences as TOML comments, each with its line number in the YAML file.
    pub(super) fn comments(&self) -> String {
        let mut differences: Vec<_> = self.differences.iter().collect();
        differences.sort_by_key(|difference| {
            (!difference.protects, difference.span.is_empty(), difference.span.start)
        });
        let mut comments = Vec::new();
        for Difference { message, span, protects } in differences {
            let line = line_number(&self.text[..span.start]);
            let place = if span.is_empty() { String::new() } else { format!("line {line}: ") };
            let mark = if *protects { "NOT PROTECTED, " } else { "" };
            // A line break in a key would end the comment.
            let message = message.replace(char::is_control, " ");
            comments.push(format!("# {mark}{place}{message}\n"));
        }
        comments.dedup();
        comments.concat()
    }

    /// Records an error in a Go template. The error is located at the invalid construct if the YAML
    /// text contains the construct unchanged, and otherwise at the whole template.
    pub(super) fn template(&mut self, error: Fault, template: &Node) {
        let construct = template.as_text().and_then(|text| text.get(error.span));
        let written = self.text.get(template.span.clone()).unwrap_or_default();
        let place = construct.filter(|construct| !construct.is_empty());
        let place = place.and_then(|construct| Some((written.find(construct)?, construct.len())));
        let span = match place {
            Some((start, length)) => {
                let start = template.span.start + start;
                start..start + length
            }
            None => template.span.clone(),
        };
        self.mistake(error.message, &span);
    }

    /// Returns the members of a YAML map whose keys are in `known`. Reports keys in `ignored` as
    /// differences, and all other keys as mistakes. Returns `None` if the value is not a map.
    pub(super) fn fields<'n>(
        &mut self,
        node: &'n Node,
        known: &[&str],
        ignored: &[&str],
    ) -> Option<Fields<'n>> {
        self.members(node, known, |key| ignored.contains(&key))
    }

    /// Returns the members of a YAML map whose keys are in `known`. Reports any other key as a
    /// mistake if it is similar to a known key, and otherwise as a difference. Returns `None` if
    /// the value is not a map.
    pub(super) fn section<'n>(&mut self, node: &'n Node, known: &[&str]) -> Option<Fields<'n>> {
        self.members(node, known, |key| nearest(key, known).is_none())
    }

    /// Returns the members of a YAML map whose keys are in `known`. Reports another key as a
    /// difference if `is_ignored` returns `true` for it, and otherwise as a mistake. Returns `None`
    /// if the value is not a map.
    fn members<'n>(
        &mut self,
        node: &'n Node,
        known: &[&str],
        is_ignored: impl Fn(&str) -> bool,
    ) -> Option<Fields<'n>> {
        let Content::Map(members) = &node.content else { return self.expected("a map", node) };
        let mut fields = Fields { members: Vec::new(), span: node.span.clone() };
        for member in members {
            let key = camel(&member.key);
            if known.contains(&key.as_str()) {
                if fields.get(&key).is_some() {
                    self.mistake(format!("the key `{key}` is already set"), &member.key_span);
                }
                fields.members.push((key, member));
            } else if is_ignored(&key) {
                self.differs(format!("`{}` is not imported", member.key), &member.key_span);
            } else {
                let hint = DidYouMean(nearest(&key, known));
                self.mistake(format!("unknown key `{}`{hint}", member.key), &member.key_span);
            }
        }
        Some(fields)
    }

    /// Reports a value that is not of the expected type, and returns `None`.
    fn expected<T>(&mut self, what: &str, node: &Node) -> Option<T> {
        self.mistake(format!("expected {what}, not {}", node.kind()), &node.span);
        None
    }

    /// Returns the string at a required key. If the string is missing or empty, reports a mistake
    /// and returns `None`.
    pub(super) fn required<'n>(&mut self, fields: &Fields<'n>, key: &str) -> Option<&'n str> {
        match fields.get(key) {
            Some(node) => match self.text(node) {
                Some("") => {
                    self.mistake(format!("`{key}` is empty"), &node.span);
                    None
                }
                text => text,
            },
            None => {
                let start = fields.span.start;
                self.mistake(format!("`{key}` is required"), &(start..start + 1));
                None
            }
        }
    }

    pub(super) fn optional<'n>(&mut self, fields: &Fields<'n>, key: &str) -> Option<&'n str> {
        self.text(fields.get(key)?)
    }

    pub(super) fn text<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        node.as_text().or_else(|| self.expected("a text", node))
    }

    /// Returns the string if it is one of `words`. Otherwise, reports a mistake and returns `None`.
    pub(super) fn word<'n>(&mut self, node: &'n Node, words: &[&str]) -> Option<&'n str> {
        let text = self.text(node)?;
        if words.contains(&text) {
            return Some(text);
        }
        let message = format!("expected `{}`, not `{text}`", words.join("`, `"));
        self.mistake(message, &node.span);
        None
    }

    pub(super) fn list<'n>(&mut self, node: Option<&'n Node>) -> &'n [Node] {
        match node.filter(|node| !node.is_null()) {
            None => &[],
            Some(Node { content: Content::List(list), .. }) => list,
            Some(node) => self.expected("a list", node).unwrap_or_default(),
        }
    }

    pub(super) fn texts<'n>(&mut self, node: Option<&'n Node>) -> Vec<&'n str> {
        self.list(node).iter().filter_map(|node| self.text(node)).collect()
    }

    pub(super) fn map<'n>(&mut self, node: Option<&'n Node>) -> &'n [Member] {
        match node.filter(|node| !node.is_null()) {
            None => &[],
            Some(Node { content: Content::Map(members), .. }) => members,
            Some(node) => self.expected("a map", node).unwrap_or_default(),
        }
    }

    /// Reads an integer that is not negative. If the value is anything else, reports a mistake and
    /// returns `None`.
    pub(super) fn number(&mut self, node: Option<&Node>) -> Option<u64> {
        let node = node?;
        node.to_json().as_u64().or_else(|| self.expected("a number from 0", node))
    }

    /// Reads a boolean. If the value is anything else, reports a mistake.
    pub(super) fn flag(&mut self, node: Option<&Node>) -> bool {
        let Some(node) = node else { return false };
        let flag = node.to_json().as_bool().or_else(|| self.expected("a boolean", node));
        flag.unwrap_or_default()
    }

    /// Reads a duration in Go's format, such as `1h30m` or `1.5s`, and converts it to a duration
    /// for TOML. If the duration is invalid, reports a mistake.
    pub(super) fn duration(&mut self, node: Option<&Node>) -> Option<String> {
        let node = node?;
        let text = self.text(node)?;
        let duration = go_duration(text);
        if duration.is_none() {
            let message = format!("expected a duration, such as `30s` or `1h30m`, not `{text}`");
            self.mistake(message, &node.span);
        }
        duration
    }
}

/// Converts a duration in Go's format, such as `1.5s`, to a duration for TOML, such as `1500ms`. A
/// duration without a decimal point is unchanged. Returns `None` if the duration is invalid.
fn go_duration(text: &str) -> Option<String> {
    if !text.contains('.') {
        return humantime::parse_duration(text).is_ok().then(|| text.to_owned());
    }
    let (mut rest, mut milliseconds) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, after) = rest.split_at(end);
        let unit = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let factor = match &after[..unit] {
            "h" => 3_600_000.0,
            "m" => 60_000.0,
            "s" => 1000.0,
            "ms" => 1.0,
            _ => return None,
        };
        let number = number.parse::<f64>().ok().filter(|number| *number >= 0.0)?;
        milliseconds += number * factor;
        rest = &after[unit..];
    }
    Some(format!("{}ms", milliseconds.round()))
}

/// Converts a key to camel case, because older versions of ToolHive use snake case, as in
/// `on_error`.
pub(super) fn camel(key: &str) -> String {
    let mut words = key.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut characters = word.chars();
        camel.extend(characters.next().map(|first| first.to_ascii_uppercase()));
        camel += characters.as_str();
    }
    camel
}

// === impl Fields ===

impl<'n> Fields<'n> {
    /// Returns the value of a key. Returns `None` if the key is missing or its value is null.
    pub(super) fn get(&self, key: &str) -> Option<&'n Node> {
        let found = self.members.iter().find(|(own, _)| own == key);
        found.map(|(_, member)| &member.value).filter(|value| !value.is_null())
    }

    /// Returns the keys in camel case, each with its byte range in the YAML file.
    pub(super) fn keys(&self) -> impl Iterator<Item = (String, Range<usize>)> {
        self.members.iter().map(|(key, member)| (key.clone(), member.key_span.clone()))
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub(super) fn key_span(&self, key: &str) -> Range<usize> {
        let found = self.members.iter().find(|(own, _)| own == key);
        found.map_or_else(|| self.span.clone(), |(_, member)| member.key_span.clone())
    }
}
