//! The mistakes and differences that an import collects, and the reading of its maps.

use std::ops::Range;

use super::{
    go_template::TemplateError,
    yaml::{Content, Member, Node, YamlError},
};
use crate::{
    suggest::{DidYouMean, nearest},
    text_position::{line_number, line_start},
};

/// Something that an import changes or leaves out.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) message: String,
    pub(super) span: Range<usize>,
    /// Whether ToolHive protects something that the result does not protect.
    pub(super) protects: bool,
}

/// The mistakes and differences of a file.
#[derive(Debug, Default)]
pub(super) struct Import<'t> {
    pub(super) text: &'t str,
    pub(super) mistakes: Vec<YamlError>,
    pub(super) differences: Vec<Difference>,
    /// The bytes that may be secret, which errors do not show.
    pub(super) masks: Vec<Range<usize>>,
}

/// The members of a map, by their keys in camel case.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    members: Vec<(String, &'n Member)>,
    span: Range<usize>,
}

// === impl Import ===

impl Import<'_> {
    pub(super) fn mistake(&mut self, message: impl Into<String>, span: &Range<usize>) {
        self.mistakes.push(YamlError { message: message.into(), span: span.clone() });
    }

    pub(super) fn differs(&mut self, message: impl Into<String>, span: &Range<usize>) {
        self.difference(message.into(), span, false);
    }

    /// Records a difference at the first place where it occurs.
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

    /// Masks the values in the line of a syntax error. The keys remain.
    pub(super) fn mask_line(&mut self, span: &Range<usize>) {
        let start = line_start(&self.text[..span.start]);
        let line = self.text[start..].lines().next().unwrap_or_default();
        let key = line.find(": ").map_or(0, |colon| colon + 1);
        let indentation = line[key..].len() - line[key..].trim_start().len();
        self.masks.push(start + key + indentation..start + line.len());
    }

    /// Returns the differences as comments, with the lines that they refer to.
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

    /// Records the mistake of a template at its construct, if the text has no escapes there.
    pub(super) fn template(&mut self, error: TemplateError, template: &Node) {
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

    /// Reads a map. Reports keys that are neither known nor ignored.
    pub(super) fn fields<'n>(
        &mut self,
        node: &'n Node,
        known: &[&str],
        ignored: &[&str],
    ) -> Option<Fields<'n>> {
        let (fields, others) = self.split(node, known)?;
        for member in others {
            if ignored.contains(&camel(&member.key).as_str()) {
                self.is_left_out(member);
            } else {
                self.is_unknown(member, known);
            }
        }
        Some(fields)
    }

    /// Reads a map with many keys that concern other products. Reports unknown keys only if they
    /// are similar to a known one.
    pub(super) fn section<'n>(&mut self, node: &'n Node, known: &[&str]) -> Option<Fields<'n>> {
        let (fields, others) = self.split(node, known)?;
        for member in others {
            if nearest(&camel(&member.key), known).is_none() {
                self.is_left_out(member);
            } else {
                self.is_unknown(member, known);
            }
        }
        Some(fields)
    }

    /// Returns the known members of a map, and the others.
    fn split<'n>(
        &mut self,
        node: &'n Node,
        known: &[&str],
    ) -> Option<(Fields<'n>, Vec<&'n Member>)> {
        let Content::Map(members) = &node.content else {
            self.mistake(format!("expected a map, not {}", node.kind()), &node.span);
            return None;
        };
        let mut fields = Fields { members: Vec::new(), span: node.span.clone() };
        let mut others = Vec::new();
        for member in members {
            let key = camel(&member.key);
            if !known.contains(&key.as_str()) {
                others.push(member);
                continue;
            }
            if fields.get(&key).is_some() {
                self.mistake(format!("the key `{key}` is already set"), &member.key_span);
            }
            fields.members.push((key, member));
        }
        Some((fields, others))
    }

    fn is_left_out(&mut self, member: &Member) {
        self.differs(format!("`{}` is not imported", member.key), &member.key_span);
    }

    fn is_unknown(&mut self, member: &Member, known: &[&str]) {
        let hint = DidYouMean(nearest(&camel(&member.key), known));
        self.mistake(format!("unknown key `{}`{hint}", member.key), &member.key_span);
    }

    /// Reads a required text, which is not empty.
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
        let text = node.as_text();
        if text.is_none() {
            self.mistake(format!("expected a text, not {}", node.kind()), &node.span);
        }
        text
    }

    /// Reads one of several words.
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
        match node.map(|node| (&node.content, node)) {
            None => &[],
            Some((Content::List(list), _)) => list,
            Some((_, node)) if node.is_null() => &[],
            Some((_, node)) => {
                self.mistake(format!("expected a list, not {}", node.kind()), &node.span);
                &[]
            }
        }
    }

    pub(super) fn texts<'n>(&mut self, node: Option<&'n Node>) -> Vec<&'n str> {
        self.list(node).iter().filter_map(|node| self.text(node)).collect()
    }

    pub(super) fn map<'n>(&mut self, node: Option<&'n Node>) -> &'n [Member] {
        match node.map(|node| (&node.content, node)) {
            None => &[],
            Some((Content::Map(members), _)) => members,
            Some((_, node)) if node.is_null() => &[],
            Some((_, node)) => {
                self.mistake(format!("expected a map, not {}", node.kind()), &node.span);
                &[]
            }
        }
    }

    /// Reads a number that is not negative.
    pub(super) fn number(&mut self, node: Option<&Node>) -> Option<u64> {
        let node = node?;
        let number = node.to_json().as_u64();
        if number.is_none() {
            self.mistake(format!("expected a number from 0, not {}", node.kind()), &node.span);
        }
        number
    }

    /// Reads a duration of Go, such as `1h30m` or `1.5s`.
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

/// Converts a duration of Go. Keeps one without fractions.
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

/// Converts snake case to camel case: older versions of ToolHive wrote `on_error`.
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
    /// Returns the value of a key. Null is like a missing key.
    pub(super) fn get(&self, key: &str) -> Option<&'n Node> {
        let found = self.members.iter().find(|(own, _)| own == key);
        found.map(|(_, member)| &member.value).filter(|value| !value.is_null())
    }

    /// Returns the keys, in camel case, with their positions.
    pub(super) fn keys(&self) -> impl Iterator<Item = (String, Range<usize>)> {
        self.members.iter().map(|(key, member)| (key.clone(), member.key_span.clone()))
    }

    /// Returns the position of the map.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub(super) fn key_span(&self, key: &str) -> Range<usize> {
        let found = self.members.iter().find(|(own, _)| own == key);
        found.map_or_else(|| self.span.clone(), |(_, member)| member.key_span.clone())
    }
}
