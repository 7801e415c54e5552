//! Parses the texts of tool results to JSON values, which become the outputs of steps.

use std::{collections::HashMap, io::Read};

use csv::{ReaderBuilder, StringRecord};
use rmcp::model::CallToolResult;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::{
    call_site::Parse,
    outcome::{ErrorKind, Outcome, Status, StepError},
    scope::Scope,
    step_output::{output_text, output_texts},
};
use crate::expr;

/// The maximum memory of a JSON object without its members, in bytes. Includes the table for up to
/// 11 members, which is allocated with the first one.
const OBJECT_BYTES: usize = 640;
/// The maximum memory that each member adds to a JSON object, in bytes, not counting the contents
/// of the key and the value.
const MEMBER_BYTES: usize = 128;
/// The maximum memory that each element adds to a JSON array, in bytes.
const ELEMENT_BYTES: usize = 64;

// === impl Outcome ===

impl Outcome {
    /// Parses the text of a successful tool result. The parsed value becomes the output of the
    /// step. Does nothing if the result has structured content or blocks other than text.
    ///
    /// The step fails if the text cannot be parsed, or if the parsed value would exceed a memory
    /// limit.
    pub(super) fn parse(&mut self, format: Parse, scope: &Scope) {
        let Some(result) = self.result.as_ref().filter(|_| self.is_success()) else { return };
        let blocks = &result.content;
        if result.structured_content.is_some()
            || blocks.is_empty()
            || blocks.iter().any(|block| block.as_text().is_none())
        {
            return;
        }
        let parsed = match format {
            Parse::Json => json(result, scope),
            Parse::Csv => csv(&output_text(result).unwrap_or_default(), scope),
        };
        match parsed {
            Ok(parsed) => self.set_output(parsed),
            Err(error) => {
                self.status = Status::Failed;
                self.error = Some(Box::new(error));
            }
        }
    }
}

/// Parses the text blocks of a result as JSON. If their concatenation is one JSON text, returns its
/// value. Otherwise, parses each block separately and returns an array of the values. Ignores byte
/// order marks (RFC 8259, section 8.1).
fn json(result: &CallToolResult, scope: &Scope) -> Result<Value, StepError> {
    let text = output_text(result).unwrap_or_default();
    let count = output_texts(result).count();
    let elements = if count > 1 { count * ELEMENT_BYTES } else { 0 };
    scope.count_parsed(expr::json::bytes_of(&text) + elements)?;
    match serde_json::from_str(without_mark(&text)) {
        Ok(value) => return Ok(value),
        Err(error) if count < 2 => {
            return Err(failed(format!("the text of the result is not JSON{REQUIRED}: {error}")));
        }
        Err(_) => (),
    }
    let values = output_texts(result).enumerate().map(|(index, text)| {
        serde_json::from_str::<Value>(without_mark(text)).map_err(|error| {
            let number = index + 1;
            failed(format!("text {number} of {count} in the result is not JSON{REQUIRED}: {error}"))
        })
    });
    values.collect()
}

/// Returns the text without a byte order mark at its beginning.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A record that is read after the last one, unless a quote of the last record is not closed.
const END: &str = "\0";

/// Parses comma-separated values (RFC 4180). The first line contains the names of the columns. Each
/// further line becomes a JSON object with strings as values. A byte order mark and blank lines are
/// ignored.
///
/// Almost every text could be the names of columns. Therefore, a text is not CSV if it begins with
/// `<`, if it is JSON, or if it is a single line without a comma, such as an error message.
fn csv(text: &str, scope: &Scope) -> Result<Value, StepError> {
    let invalid =
        |why: String| failed(format!("the text of the result is not CSV{REQUIRED}: {why}"));
    let text = without_mark(text);
    if text.trim_start().starts_with('<') {
        return Err(invalid("it begins with `<`, as HTML and XML do".to_owned()));
    }
    if text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
    {
        return Err(invalid("it is JSON; use `parse = \"json\"`".to_owned()));
    }
    let end = format!("\n{END}");
    let length = (text.len() + end.len()) as u64;
    let ended = text.as_bytes().chain(end.as_bytes());
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(ended);
    let names = reader.headers().map_err(|error| invalid(error.to_string()))?.clone();
    if names == [END][..] {
        return Ok(Value::Array(Vec::new()));
    }
    let mut known = HashMap::new();
    for (index, name) in names.iter().enumerate() {
        if let Some(other) = known.insert(name, index) {
            let (other, index) = (other + 1, index + 1);
            return Err(invalid(format!("columns {other} and {index} have the same name")));
        }
    }
    let bytes_of_names: usize = names.iter().map(|name| name.len() + MEMBER_BYTES).sum();
    let mut record = StringRecord::new();
    let mut rows = Vec::new();
    let mut line = 1;
    while reader.read_record(&mut record).map_err(|error| invalid(error.to_string()))? {
        let is_last = reader.position().byte() == length;
        if is_last && record == [END][..] {
            if rows.is_empty() && names.len() == 1 {
                return Err(invalid("it is a single line without a comma".to_owned()));
            }
            return Ok(Value::Array(rows));
        }
        line = record.position().map_or(0, csv::Position::line);
        if is_last {
            break;
        }
        if record.len() != names.len() {
            return Err(invalid(format!(
                "line {line} has {} fields, and the first line has {}",
                record.len(),
                names.len(),
            )));
        }
        scope.count_parsed(OBJECT_BYTES + bytes_of_names + record.as_slice().len())?;
        let members = names.iter().zip(&record);
        let row: Map<_, _> = members.map(|(name, field)| (name.to_owned(), field.into())).collect();
        rows.push(Value::Object(row));
    }
    Err(invalid(format!("a quote in the row that begins in line {line} is not closed")))
}

const REQUIRED: &str = ", as its `parse` requires";

fn failed(message: String) -> StepError {
    StepError::new(ErrorKind::Tool, message)
}
