//! Translates the calls of functions in Go templates, such as `eq` and `printf`.

use std::{mem, ops::Range};

use serde_json::Value;

use super::{Result, Scope, fail};
use crate::config::toolhive::{
    go_template::Expr,
    written::{Level, Written, string},
};

// === impl Scope ===

impl Scope<'_> {
    pub(super) fn call(
        self,
        function: &str,
        arguments: &[Expr],
        span: &Range<usize>,
        call: &Expr,
    ) -> Result<Written> {
        let count = arguments.len();
        let wrong = |expected: &str| fail(format!("`{function}` needs {expected}"), span);
        let filter = |name: &str| match arguments {
            [argument] => Ok(self.written(argument)?.filter(name)),
            _ => wrong("one value"),
        };
        match function {
            "json" => filter("tojson"),
            "fromJson" => filter("fromjson"),
            "quote" => filter("quote"),
            "len" => filter("length"),
            "not" if count == 1 => self.test(call),
            "not" => wrong("one value"),
            "and" | "or" if count == 0 => wrong("at least one value"),
            "and" | "or" => self.logic(function, arguments, |argument| {
                let written = self.written(argument)?;
                Ok(if written.is_path { written.filter("default(none)") } else { written })
            }),
            "eq" | "ne" | "lt" | "le" | "gt" | "ge" => self.compare(function, arguments, span),
            "index" if count == 0 => wrong("a value"),
            "index" => match self.segments(call)? {
                Some(path) => self.path(&path, span),
                None => {
                    let mut text = self.written(&arguments[0])?.at(Level::Value);
                    for index in &arguments[1..] {
                        text += &self.segment(index)?.written();
                    }
                    Ok(Written::value(text))
                }
            },
            "slice" if (1..=3).contains(&count) => {
                let base = self.written(&arguments[0])?.at(Level::Value);
                let bounds = arguments[1..].iter().map(|bound| Ok(self.written(bound)?.text));
                let bounds = bounds.collect::<Result<Vec<_>>>()?;
                let (from, to) = (bounds.first(), bounds.get(1));
                let (from, to) = (from.map_or("", String::as_str), to.map_or("", String::as_str));
                Ok(Written::value(format!("{base}[{from}:{to}]")))
            }
            "printf" => self.printf(arguments, span),
            "print" if count == 1 => Ok(self.written(&arguments[0])?.filter("string")),
            "print" | "println" | "html" | "js" | "urlquery" | "call" | "slice" => {
                fail(format!("the function `{function}` has no equivalent"), span)
            }
            _ => fail(format!("ToolHive has no function `{function}`, either"), span),
        }
    }

    fn compare(self, function: &str, arguments: &[Expr], span: &Range<usize>) -> Result<Written> {
        let operator = match function {
            "eq" => "==",
            "ne" => "!=",
            "lt" => "<",
            "le" => "<=",
            "gt" => ">",
            _ => ">=",
        };
        let written = arguments.iter().map(|argument| self.written(argument));
        let written = written.collect::<Result<Vec<_>>>()?;
        let at = |index: usize| written[index].at(Level::Join);
        // A step that timed out has a status of its own.
        let failed = Expr::Literal("failed".into());
        let status = written.iter().find(|written| written.is_status());
        let status = status.filter(|_| written.len() == 2 && arguments.contains(&failed));
        let text = match (function, status) {
            ("eq", Some(status)) => format!("{} in ['failed', 'timed_out']", status.text),
            ("ne", Some(status)) => format!("{} not in ['failed', 'timed_out']", status.text),
            _ if written.len() == 2 => format!("{} {operator} {}", at(0), at(1)),
            ("eq", _) if written.len() > 2 => {
                let others: Vec<_> = written[1..].iter().map(|other| other.text.clone()).collect();
                format!("{} in [{}]", at(0), others.join(", "))
            }
            _ => return fail(format!("`{function}` needs two values"), span),
        };
        Ok(Written { text, level: Level::Compare, is_bool: true, is_path: false })
    }

    /// Translates a call of `printf` with a constant format to a concatenation, such as
    /// `'a: ' ~ input.a`.
    fn printf(self, arguments: &[Expr], span: &Range<usize>) -> Result<Written> {
        let [Expr::Literal(Value::String(format)), values @ ..] = arguments else {
            return fail("`printf` needs a constant format", span);
        };
        let only = format.strip_prefix('%').and_then(verb);
        if let (Some((Some(filter), "")), [value]) = (only, values) {
            return Ok(self.written(value)?.filter(&filter));
        }
        let (mut texts, mut literal, mut values) = (Vec::new(), String::new(), values.iter());
        let mut rest = format.as_str();
        while let Some((before, after)) = rest.split_once('%') {
            literal += before;
            if let Some(after) = after.strip_prefix('%') {
                literal.push('%');
                rest = after;
                continue;
            }
            let Some((filter, after)) = verb(after) else {
                let message =
                    "only `%s`, `%v`, `%d`, `%t`, `%q`, `%.2f` and `%%` have an equivalent";
                return fail(format!("`printf`: {message}"), span);
            };
            rest = after;
            let Some(value) = values.next() else {
                return fail("`printf` needs a value for each `%`", span);
            };
            if !literal.is_empty() {
                texts.push(string(&mem::take(&mut literal)));
            }
            let value = self.written(value)?;
            texts.push(match filter {
                Some(filter) => value.filter(&filter).text,
                None => value.at(Level::Filter),
            });
        }
        literal += rest;
        if values.next().is_some() {
            return fail("`printf` has more values than its format", span);
        }
        if !literal.is_empty() || texts.is_empty() {
            texts.push(string(&literal));
        }
        if let [text] = texts.as_slice() {
            return Ok(Written::value(text.clone()).filter("string"));
        }
        Ok(Written { level: Level::Join, ..Written::value(texts.join(" ~ ")) })
    }
}

/// Parses a verb of `printf`, such as `s` or `.2f`. Returns the filter that formats the value, and
/// the rest of the format. The filter is `None` if the value needs none.
fn verb(format: &str) -> Option<(Option<String>, &str)> {
    if let [b'.', places @ b'0'..=b'9', b'f', ..] = format.as_bytes() {
        return Some((Some(format!("format({})", places - b'0')), &format[3..]));
    }
    let rest = |verb: char| format.strip_prefix(verb);
    let plain = ['s', 'v', 'd', 't'].into_iter().find_map(rest);
    plain.map(|rest| (None, rest)).or_else(|| Some((Some("quote".to_owned()), rest('q')?)))
}
