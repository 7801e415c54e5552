//! Parses YAML documents, and records the byte range of each value.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Value};

use crate::{
    config::fault::Fault,
    text_position::{line_number, line_start},
};

/// Maximum size of a YAML file in bytes.
const MAX_YAML_BYTES: usize = 1 << 20;
/// Maximum number of values in a YAML file. An alias counts as all values of its anchor.
const MAX_YAML_VALUES: usize = 100_000;
/// Maximum nesting depth of lists and maps in a YAML file.
const MAX_YAML_DEPTH: usize = 64;

/// A YAML value and its position in the text.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    /// The byte range of the value in the text.
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A scalar: null, a boolean, a number or a string.
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<Member>),
}

/// A key of a YAML map, its position in the text, and its value.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) key_span: Range<usize>,
    pub(super) value: Node,
}

/// Builds the values of YAML documents from the events of a [`Parser`].
struct Builder<'t> {
    text: &'t str,
    /// The byte offset of each character. Needed because the parser reports character indices.
    /// Empty if the text is ASCII, because the offsets are then equal to the indices.
    offsets: Vec<usize>,
    open: Vec<Open>,
    /// The values that have an anchor, such as `&base`, by the parser's number of the anchor. Each
    /// value is stored with the number of values that it contains, including itself.
    anchors: HashMap<usize, (Node, usize)>,
    values: usize,
    documents: Vec<Node>,
}

/// A list or map whose end the parser has not reported yet.
struct Open {
    anchor: usize,
    start: Range<usize>,
    /// The number of values in the text before this list or map. Used to count the values that it
    /// contains.
    before: usize,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Node>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    members: Vec<Member>,
    keys: HashSet<String>,
    /// The key that was read last, with its byte range, if its value was not read yet. Otherwise,
    /// `None`.
    pending: Option<(String, Range<usize>)>,
}

/// Parses a YAML text, and returns the value of each document.
///
/// # Errors
///
/// Returns the first error: a syntax error, a duplicate key, an unsupported tag, or an exceeded
/// limit.
pub(super) fn parse(text: &str) -> Result<Vec<Node>, Fault> {
    if text.len() > MAX_YAML_BYTES {
        let message =
            format!("the file has {} bytes: at most {MAX_YAML_BYTES} are read", text.len());
        return Err(Fault::new(message, 0..0));
    }
    let offsets = if text.is_ascii() {
        Vec::new()
    } else {
        text.char_indices().map(|(offset, _)| offset).collect()
    };
    let mut builder = Builder {
        text,
        offsets,
        open: Vec::new(),
        anchors: HashMap::new(),
        values: 0,
        documents: Vec::new(),
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let at = builder.offset(*error.marker());
            Fault::new(builder.syntax(error.info(), at), at..at + 1)
        })?;
        let span = builder.span(span);
        builder.event(event, span)?;
    }
    Ok(builder.documents)
}

// === impl Builder ===

impl Builder<'_> {
    fn offset(&self, marker: Marker) -> usize {
        match self.offsets.is_empty() {
            true => marker.index().min(self.text.len()),
            false => self.offsets.get(marker.index()).copied().unwrap_or(self.text.len()),
        }
    }

    fn span(&self, span: Span) -> Range<usize> {
        let start = self.offset(span.start);
        start..self.offset(span.end).max(start)
    }

    /// Returns the message of a syntax error at the byte offset `at`. `info` is the parser's
    /// message. It is replaced if the line is indented with a tab, because a tab is invisible.
    fn syntax(&self, info: &str, at: usize) -> String {
        let line = line_start(&self.text[..at]);
        let indentation = self.text[line..].trim_start_matches(' ');
        if indentation.starts_with('\t') {
            return "YAML does not allow tabs as indentation: use spaces".to_owned();
        }
        format!("invalid YAML: {info}")
    }

    fn event(&mut self, event: Event<'_>, span: Range<usize>) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, &span)?;
                let value = scalar(&text, style, tag.as_deref(), &span)?;
                let node = Node { content: Content::Scalar(value), span };
                self.anchor(anchor, &node, 1);
                self.push(node)
            }
            Event::Alias(anchor) => {
                let Some((node, values)) = self.anchors.get(&anchor) else {
                    return Err(error("the alias refers to a value that contains it", &span));
                };
                let (node, values) = (Node { span: span.clone(), ..node.clone() }, *values);
                self.count(values, &span)?;
                self.push(node)
            }
            Event::SequenceStart(anchor, tag) => {
                self.begin(anchor, tag.as_deref(), span, OpenKind::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.begin(anchor, tag.as_deref(), span, OpenKind::Map(OpenMap::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(&span),
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => {
                Ok(())
            }
        }
    }

    fn count(&mut self, values: usize, span: &Range<usize>) -> Result<(), Fault> {
        self.values += values;
        if self.values <= MAX_YAML_VALUES {
            return Ok(());
        }
        let message = "values, after its aliases are expanded";
        Err(error(format!("the file has more than {MAX_YAML_VALUES} {message}"), span))
    }

    fn begin(
        &mut self,
        anchor: usize,
        tag: Option<&Tag>,
        start: Range<usize>,
        kind: OpenKind,
    ) -> Result<(), Fault> {
        let before = self.values;
        self.count(1, &start)?;
        if let Some(tag) = tag {
            return Err(error(format!("the tag `{tag}` is not supported"), &start));
        }
        if self.open.len() >= MAX_YAML_DEPTH {
            return Err(error(format!("more than {MAX_YAML_DEPTH} nested levels"), &start));
        }
        self.open.push(Open { anchor, start, before, kind });
        Ok(())
    }

    fn end(&mut self, span: &Range<usize>) -> Result<(), Fault> {
        let Some(Open { anchor, start, before, kind }) = self.open.pop() else { return Ok(()) };
        let content = match kind {
            OpenKind::List(list) => Content::List(list),
            OpenKind::Map(map) => Content::Map(merged(map)?),
        };
        let node = Node { content, span: start.start..span.start.max(start.end) };
        self.anchor(anchor, &node, self.values - before);
        self.push(node)
    }

    fn anchor(&mut self, anchor: usize, node: &Node, values: usize) {
        // The parser numbers anchors from one.
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), values));
        }
    }

    fn push(&mut self, node: Node) -> Result<(), Fault> {
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match &mut open.kind {
            OpenKind::List(list) => list.push(node),
            OpenKind::Map(map) => match map.pending.take() {
                Some((key, key_span)) => map.members.push(Member { key, key_span, value: node }),
                None => {
                    let key = key(&node)?;
                    if !map.keys.insert(key.clone()) {
                        let first = map.members.iter().find(|member| member.key == key);
                        let start = first.map_or(0, |member| member.key_span.start);
                        let line = line_number(&self.text[..start]);
                        let message = format!("the key `{key}` is already set in line {line}");
                        return Err(error(message, &node.span));
                    }
                    map.pending = Some((key, node.span));
                }
            },
        }
        Ok(())
    }
}

/// Returns the key of a map as a string. A scalar of another type, such as the number 404, is
/// converted to its text. Returns an error for a list or map.
fn key(node: &Node) -> Result<String, Fault> {
    match &node.content {
        Content::Scalar(Value::String(key)) => Ok(key.clone()),
        Content::Scalar(other) => Ok(other.to_string()),
        Content::List(_) | Content::Map(_) => Err(error("a key must be a text", &node.span)),
    }
}

fn error(message: impl Into<String>, span: &Range<usize>) -> Fault {
    Fault::new(message, span.clone())
}

/// Resolves the merge key `<<` of a map: adds the members of the maps in its value, unless the map
/// already contains their keys. Returns the members of the map.
fn merged(OpenMap { mut members, mut keys, .. }: OpenMap) -> Result<Vec<Member>, Fault> {
    let Some(place) = members.iter().position(|member| member.key == "<<") else {
        return Ok(members);
    };
    let base = members.remove(place).value;
    let bases = match base.content {
        Content::List(bases) => bases,
        _ => vec![base],
    };
    for base in bases {
        let Content::Map(defaults) = base.content else {
            return Err(error("`<<` must be a map, or a list of maps", &base.span));
        };
        for default in defaults {
            if keys.insert(default.key.clone()) {
                members.push(default);
            }
        }
    }
    Ok(members)
}

/// Converts a YAML scalar to a JSON value by the rules of the YAML 1.2 core schema. For example, an
/// unquoted `true` becomes a boolean, and a quoted one a string.
fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    span: &Range<usize>,
) -> Result<Value, Fault> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => return Ok(text.into()),
        Some(tag) => return Err(error(format!("the tag `{tag}` is not supported"), span)),
        None => {}
    }
    if style != ScalarStyle::Plain {
        return Ok(text.into());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(true.into()),
        "false" | "False" | "FALSE" => return Ok(false.into()),
        _ => {}
    }
    let digits = text.strip_prefix('+').unwrap_or(text);
    if let Ok(integer) = digits.parse::<i64>() {
        return Ok(integer.into());
    }
    if let Ok(integer) = digits.parse::<u64>() {
        return Ok(integer.into());
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        let parsed = text.strip_prefix(prefix).map(|digits| u64::from_str_radix(digits, radix));
        if let Some(Ok(integer)) = parsed {
            return Ok(integer.into());
        }
    }
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
        && digits.bytes().any(|byte| byte.is_ascii_digit());
    match digits.parse::<f64>() {
        Ok(number) if is_number && number.is_finite() => Ok(number.into()),
        _ => Ok(text.into()),
    }
}

// === impl Node ===

impl Node {
    pub(super) const fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(Value::String(text)) => Some(text.as_str()),
            _ => None,
        }
    }

    pub(super) const fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Null))
    }

    /// Returns the value of a key. Returns `None` if this value is not a map or does not contain
    /// the key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Content::Map(members) = &self.content else { return None };
        members.iter().find(|member| member.key == key).map(|member| &member.value)
    }

    /// Converts this value to a JSON value, without its positions.
    pub(super) fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(list) => list.iter().map(Self::to_json).collect(),
            Content::Map(members) => {
                let pairs =
                    members.iter().map(|member| (member.key.clone(), member.value.to_json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// Returns the name of the value's type with an article, such as `a list`. Used in error
    /// messages.
    pub(super) const fn kind(&self) -> &'static str {
        match &self.content {
            Content::Scalar(Value::Null) => "null",
            Content::Scalar(Value::Bool(_)) => "a boolean",
            Content::Scalar(Value::Number(_)) => "a number",
            Content::Scalar(_) => "a text",
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use serde_json::json;

    use super::*;

    fn values(text: &str) -> Vec<Value> {
        parse(text).unwrap().iter().map(Node::to_json).collect()
    }

    /// Returns the message of the error in `text`, and the part of the text to which it refers.
    fn mistake(text: &str) -> (String, String) {
        let Fault { message, span, .. } = parse(text).unwrap_err();
        (message, text.get(span).unwrap_or_default().to_owned())
    }

    #[test]
    fn scalars_have_the_types_of_the_core_schema() {
        let text =
            "[1, -2, +3, 0x1f, 1.5, 1e3, true, ~, null, 'true', \"1\", 1.2.3, abc, .inf, !!str 4]";
        let expected = json!([
            1, -2, 3, 31, 1.5, 1000.0, true, null, null, "true", "1", "1.2.3", "abc", ".inf", "4"
        ]);
        assert_eq!(values(text), [expected]);
    }

    #[test]
    fn documents_are_separate() {
        assert_eq!(values("a: 1\n---\nb: [2]\n"), [json!({ "a": 1 }), json!({ "b": [2] })]);
    }

    #[test]
    fn spans_are_bytes() {
        let text = "ä: é\nb: ü";
        let documents = parse(text).unwrap();
        let node = documents[0].get("b").unwrap();
        assert_eq!(&text[node.span.clone()], "ü");
    }

    #[test]
    fn aliases_and_merge_keys_are_expanded() {
        let text = "base: &b { x: 1, y: 2 }\nuse: { <<: *b, y: 3 }\nlist: [*b]";
        let expected = json!({
            "base": { "x": 1, "y": 2 }, "use": { "y": 3, "x": 1 }, "list": [{ "x": 1, "y": 2 }]
        });
        assert_eq!(values(text), [expected]);
    }

    #[test]
    fn alias_bombs_are_rejected() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let uses = vec![format!("*a{}", level - 1); 10].join(", ");
            writeln!(text, "a{level}: &a{level} [{uses}]").unwrap();
        }
        let (message, _) = mistake(&text);
        assert_eq!(message, "the file has more than 100000 values, after its aliases are expanded");
    }

    #[test]
    fn bad_texts_are_rejected() {
        let expected = [
            ("a: &a [*a]", "the alias refers to a value that contains it"),
            ("a: 1\nb: 2\na: 3", "the key `a` is already set in line 1"),
            ("a:\n\tb: 1", "YAML does not allow tabs as indentation: use spaces"),
            ("a: !secret x", "the tag `!secret` is not supported"),
            ("? [a]\n: 1", "a key must be a text"),
        ];
        for (text, message) in expected {
            assert_eq!(mistake(text).0, message, "{text}");
        }
        assert!(mistake("a: [1").0.starts_with("invalid YAML: "));
        assert!(mistake(&"[".repeat(100_000)).0.starts_with("invalid YAML: "));
        assert!(mistake("a: *none").0.starts_with("invalid YAML: "));
        assert_eq!(mistake(&"[".repeat(70)).0, "more than 64 nested levels");
        assert_eq!(
            mistake(&" ".repeat(2 << 20)).0,
            "the file has 2097152 bytes: at most 1048576 are read"
        );
    }
}
