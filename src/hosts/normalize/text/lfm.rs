//! Finds tool calls in the text format of LFM models. Between two special tokens, these models
//! write a list of calls, either in Python syntax or as JSON objects.

use rmcp::model::JsonObject;
use serde_json::Value;

use super::{
    Block, Markers, hermes,
    literal::{Reader, excerpt},
};
use crate::normalize::{
    call::{MalformedKind, Problem},
    candidate::Candidate,
    error::OutputError,
    limits::ParseLimits,
};

pub(in crate::hosts::normalize) const START: &str = "<|tool_call_start|>";

const MARKERS: Markers =
    Markers { start: START, end: "<|tool_call_end|>", quotes: b"\"'", is_json: false };

pub(in crate::hosts::normalize) fn find(
    text: &str,
    limits: &ParseLimits,
) -> Result<Vec<Candidate<'static>>, OutputError> {
    let mut found = Vec::new();
    for block in MARKERS.blocks(text, limits)? {
        match block {
            Block::Closed(body) if is_json(body) => in_json(body, &mut found, limits),
            Block::Closed(body) => in_python(body.trim(), &mut found, limits),
            Block::Open => found.push(Candidate::malformed(
                None,
                Problem::incomplete(format!("there is no `{}` after it", MARKERS.end)),
            )),
        }
        if found.len() >= limits.found_in_text() {
            found.truncate(limits.found_in_text());
            break;
        }
    }
    Ok(found)
}

fn is_json(body: &str) -> bool {
    let body = body.trim_start();
    body.strip_prefix('[').map_or(body, str::trim_start).starts_with('{')
}

fn in_json(body: &str, found: &mut Vec<Candidate<'static>>, limits: &ParseLimits) {
    match serde_json::from_str(body) {
        Ok(Value::Array(calls)) => {
            let calls = calls.iter().take(limits.found_in_text());
            found.extend(calls.map(|call| hermes::of_value(call, limits)));
        }
        Ok(call) => found.push(hermes::of_value(&call, limits)),
        Err(error) => {
            let calls = first_of_json(body, limits);
            found.extend(calls.iter().map(|call| hermes::of_value(call, limits)));
            found.push(Candidate::malformed(None, hermes::unreadable(&error)));
        }
    }
}

/// Returns the calls before the first syntax error in a JSON list of calls.
fn first_of_json(body: &str, limits: &ParseLimits) -> Vec<Value> {
    let mut calls = Vec::new();
    let Some(mut rest) = body.trim_start().strip_prefix('[') else { return calls };
    while calls.len() < limits.max_calls {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter();
        let Some(Ok(call)) = values.next() else { break };
        calls.push(call);
        let after = rest[values.byte_offset()..].trim_start();
        let Some(next) = after.strip_prefix(',') else { break };
        rest = next;
    }
    calls
}

fn in_python(body: &str, found: &mut Vec<Candidate<'static>>, limits: &ParseLimits) {
    let (items, problem) = items(body, limits.found_in_text());
    found.extend(items.into_iter().map(|item| call(item, limits)));
    found.extend(problem.map(|problem| Candidate::malformed(None, problem)));
}

/// Splits a list of calls in Python syntax, such as `[f(a=1), g()]`, into the texts of the calls.
/// The brackets around the list may be missing.
///
/// Returns at most `most` calls. If a bracket in the list is unbalanced, also returns the error,
/// and only the calls before this bracket. If there is text after the list, returns only the error.
fn items(body: &str, most: usize) -> (Vec<&str>, Option<Problem>) {
    let inner = body.strip_prefix('[');
    let list = inner.unwrap_or(body);
    let mut open = Vec::new();
    let mut items = Vec::new();
    let (mut quote, mut begin, mut position) = (None, 0, 0);
    let bytes = list.as_bytes();
    let mut end = None;
    while position < bytes.len() {
        let byte = bytes[position];
        match (quote, byte) {
            (Some(_), b'\\') => position += 1,
            (Some(quoted), _) if byte == quoted => quote = None,
            (Some(_), _) => (),
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'(') => open.push(b')'),
            (None, b'[') => open.push(b']'),
            (None, b'{') => open.push(b'}'),
            (None, b']') if open.is_empty() && inner.is_some() => {
                end = Some(position);
                break;
            }
            (None, b')' | b']' | b'}') if open.pop() != Some(byte) => {
                return (items, Some(unbalanced(byte)));
            }
            (None, b',') if open.is_empty() => {
                // Further items are still scanned, to check the brackets of the whole list.
                if items.len() < most {
                    items.push(list[begin..position].trim());
                }
                begin = position + 1;
            }
            (None, _) => (),
        }
        position += 1;
    }
    match (open.last(), inner, end) {
        (Some(&missing), ..) => return (items, Some(missing_bracket(missing))),
        (None, Some(_), None) => return (items, Some(missing_bracket(b']'))),
        _ => (),
    }
    let end = end.unwrap_or(list.len());
    if let Some(after) = list.get(end + 1..).filter(|after| !after.trim().is_empty()) {
        let message = format!("expected nothing after the list, found {}", excerpt(after.trim()));
        return (Vec::new(), Some(Problem::syntax(message)));
    }
    // A trailing comma is allowed.
    let last = list[begin..end].trim();
    if !last.is_empty() && items.len() < most {
        items.push(last);
    }
    (items, None)
}

/// Parses the text of a call in Python syntax, such as `f(a=1)`.
fn call(item: &str, limits: &ParseLimits) -> Candidate<'static> {
    let name_end = item.find(|character| !is_of_name(character)).unwrap_or(item.len());
    let (name, rest) = item.split_at(name_end);
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let Some(rest) = rest.trim_start().strip_prefix('(').filter(|_| begins_well) else {
        let message = format!("expected `name(argument=value)`, found {}", excerpt(item));
        return Candidate::malformed(None, Problem::syntax(message));
    };
    match arguments(rest, limits) {
        Ok(arguments) => Candidate::named(name.to_owned(), arguments),
        Err(problem) => Candidate::malformed(Some(name.to_owned()), problem),
    }
}

/// Parses named arguments and the closing parenthesis after them, such as `a=1, b="x")`.
fn arguments(text: &str, limits: &ParseLimits) -> Result<JsonObject, Problem> {
    if text.len() > limits.max_bytes {
        return Err(limits.too_large());
    }
    if limits.max_depth == 0 {
        return Err(limits.too_deep());
    }
    let mut reader = Reader::new(text, *limits);
    let mut arguments = JsonObject::new();
    loop {
        if reader.takes(')') {
            break;
        }
        let name = reader.name()?;
        let value = match reader.takes('=') {
            true => reader.value(&name)?,
            false => return Err(reader.expected(&format!("`=` after `{name}`"))),
        };
        if arguments.contains_key(&name) {
            let message = format!("the argument `{name}` is there twice");
            return Err(Problem::new(MalformedKind::Arguments, message));
        }
        arguments.insert(name, value);
        if !reader.takes(',') {
            if reader.takes(')') {
                break;
            }
            return Err(reader.expected("`,` or `)` after a value"));
        }
    }
    if !reader.is_at_end() {
        return Err(reader.expected("nothing after a call"));
    }
    Ok(arguments)
}

const fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.' | '/' | ':')
}

fn unbalanced(bracket: u8) -> Problem {
    Problem::syntax(format!("a `{}` closes nothing", char::from(bracket)))
}

fn missing_bracket(bracket: u8) -> Problem {
    Problem::syntax(format!("there is a `{}` missing", char::from(bracket)))
}
