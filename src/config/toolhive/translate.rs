//! Translates Go templates into expressions.

mod functions;

use std::{cell::Cell, collections::HashSet, ops::Range};

use serde_json::Value;

use super::{
    go_template::{self, Base, Block, Expr, Part, Result},
    written::{Level, Segment, Written, key, literal},
};
use crate::config::fault::Fault;

/// The values that a template can refer to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scope<'s> {
    /// The name of the current element in a `forEach` step. `None` outside such a step.
    pub(super) item_var: Option<&'s str>,
    /// The names of optional parameters without a default.
    pub(super) optional: Option<&'s HashSet<String>>,
    /// The innermost `range` or `with` block around the expression. `None` outside all blocks.
    pub(super) frame: Option<&'s Frame<'s>>,
    /// Set to `true` if the template reads the whole output of a step, or its `text`.
    pub(super) reads_text: Option<&'s Cell<bool>>,
}

/// The values of `.` and of variables in a `range` or `with` block, as expressions of this crate.
#[derive(Debug)]
pub(super) struct Frame<'s> {
    outer: Option<&'s Self>,
    /// The number of `range` blocks around the expression.
    loops: usize,
    dot: String,
    /// The name and the expression of each variable. The third element is `Some` for an index
    /// variable, such as `$i`. It is the value of `loops` in the block that defines the index.
    variables: Vec<(String, String, Option<usize>)>,
}

/// Translates a template whose value can have any type, such as an argument.
pub(super) fn value(text: &str, scope: Scope<'_>) -> Result<String> {
    let parts = go_template::parse(text)?;
    if let [Part::Print(expr)] = parts.as_slice() {
        let written = match expr {
            // The value itself, instead of its text in JSON.
            Expr::Call { function, arguments, .. }
                if function == "json" && arguments.len() == 1 =>
            {
                scope.written(&arguments[0])?
            }
            _ => scope.written(expr)?,
        };
        if written.is_path {
            let mark = if scope.is_optional(&written.text) { "?" } else { "" };
            return Ok(format!("${}{mark}", written.text));
        }
        return Ok(format!("{{{{ {} }}}}", written.text));
    }
    scope.text(&parts)
}

/// Translates a template whose value is a text, such as the message of a question.
pub(super) fn text(text: &str, scope: Scope<'_>) -> Result<String> {
    scope.text(&go_template::parse(text)?)
}

/// Translates a condition, which must evaluate to the text `true` or `false`.
pub(super) fn condition(text: &str, scope: Scope<'_>) -> Result<String> {
    let parts = go_template::parse(text)?;
    if let [Part::Print(expr)] = parts.as_slice() {
        return Ok(scope.written(expr)?.text);
    }
    match scope.truth_of(&parts)? {
        Some(truth) => Ok(truth.text),
        None => {
            let message = "the condition must give `true` or `false`, without text around it";
            fail(message, &(0..text.len()))
        }
    }
}

fn fail<T>(message: impl Into<String>, span: &Range<usize>) -> Result<T> {
    Err(Fault::new(message, span.clone()))
}

// === impl Scope ===

impl Scope<'_> {
    fn is_optional(self, path: &str) -> bool {
        // A step has an error only if it has failed.
        let is_error = path.starts_with("steps") && path.ends_with(".error.message");
        let name = path.strip_prefix("input.");
        let is_left_out = |name| self.optional.is_some_and(|optional| optional.contains(name));
        is_error || name.is_some_and(is_left_out)
    }

    /// Translates a condition such as `{{if …}}true{{else}}false{{end}}` to one expression. Returns
    /// `None` if a branch contains other text than `true` or `false`.
    fn truth_of(self, parts: &[Part]) -> Result<Option<Written>> {
        let meaningful: Vec<_> = parts
            .iter()
            .filter(|part| !matches!(part, Part::Text(text) if text.trim().is_empty()))
            .collect();
        match meaningful.as_slice() {
            [Part::Text(text)] => Ok(match text.trim() {
                "true" | "True" | "TRUE" => Some(Written::boolean("true")),
                "false" | "False" | "FALSE" => Some(Written::boolean("false")),
                _ => None,
            }),
            [Part::Print(expr)] => self.written(expr).map(Some),
            [Part::If { branches, otherwise }] => {
                let Some(mut value) = self.truth_of(otherwise)? else { return Ok(None) };
                for (test, body) in branches.iter().rev() {
                    let Some(then) = self.truth_of(body)? else { return Ok(None) };
                    value = Written::choice(&self.test(test)?, &then, &value);
                }
                Ok(Some(value))
            }
            _ => Ok(None),
        }
    }

    /// Translates a template whose value is a text.
    fn text(self, parts: &[Part]) -> Result<String> {
        let mut text = String::new();
        self.push(parts, &mut text)?;
        let is_template = parts.iter().any(|part| !matches!(part, Part::Text(_)));
        // A leading `$` begins a reference, and `$$` means `$`.
        if text.starts_with("$$") || (text.starts_with('$') && !is_template) {
            text.insert(0, '$');
        }
        Ok(text)
    }

    fn push(self, parts: &[Part], text: &mut String) -> Result<()> {
        for part in parts {
            match part {
                Part::Text(literal) if literal.contains("{{") || literal.contains("{%") => {
                    text.extend(["{% raw %}", literal, "{% endraw %}"]);
                }
                Part::Text(literal) => *text += literal,
                Part::Print(expr) => {
                    let mut written = self.written(expr)?;
                    if written.is_path && self.is_optional(&written.text) {
                        written = written.filter("default('')");
                    }
                    text.extend(["{{ ", &written.text, " }}"]);
                }
                Part::If { branches, otherwise } => {
                    for (index, (test, body)) in branches.iter().enumerate() {
                        let word = if index == 0 { "if" } else { "elif" };
                        text.extend(["{% ", word, " ", &self.test(test)?.text, " %}"]);
                        self.push(body, text)?;
                    }
                    self.push_end(otherwise, "{% endif %}", text)?;
                }
                Part::Range(block) => self.range(block, text)?,
                Part::With(block) => self.with(block, text)?,
            }
        }
        Ok(())
    }

    /// Translates a `range` block to a `for` loop, and appends the loop to `text`.
    fn range(self, block: &Block, text: &mut String) -> Result<()> {
        let list = self.written(&block.value)?;
        // In Go, nothing is a list without elements.
        let list = if list.is_path { list.filter("default([])") } else { list };
        let loops = self.frame.map_or(0, |frame| frame.loops) + 1;
        let dot = match loops {
            1 => "element".to_owned(),
            _ => format!("element{loops}"),
        };
        let variables = match block.variables.as_slice() {
            [] => Vec::new(),
            [element] => vec![(element.clone(), dot.clone(), None)],
            [index, element] => vec![
                (index.clone(), "loop.index0".to_owned(), Some(loops)),
                (element.clone(), dot.clone(), None),
            ],
            _ => return fail("`range` has at most two variables", &block.span),
        };
        text.extend(["{% for ", &dot, " in ", &list.text, " %}"]);
        let frame = Frame { outer: self.frame, loops, dot, variables };
        Scope { frame: Some(&frame), ..self }.push(&block.body, text)?;
        self.push_end(&block.otherwise, "{% endfor %}", text)
    }

    /// Translates a `with` block to an `if` block, and appends it to `text`. In the block, `.` is
    /// the tested value.
    fn with(self, block: &Block, text: &mut String) -> Result<()> {
        let dot = self.written(&block.value)?.at(Level::Value);
        let variables = match block.variables.as_slice() {
            [] => Vec::new(),
            [variable] => vec![(variable.clone(), dot.clone(), None)],
            _ => return fail("`with` has at most one variable", &block.span),
        };
        text.extend(["{% if ", &self.test(&block.value)?.text, " %}"]);
        let loops = self.frame.map_or(0, |frame| frame.loops);
        let frame = Frame { outer: self.frame, loops, dot, variables };
        Scope { frame: Some(&frame), ..self }.push(&block.body, text)?;
        self.push_end(&block.otherwise, "{% endif %}", text)
    }

    /// Appends the `else` of a block, unless it is empty, and the statement `end`.
    fn push_end(self, otherwise: &[Part], end: &str, text: &mut String) -> Result<()> {
        if !otherwise.is_empty() {
            *text += "{% else %}";
            self.push(otherwise, text)?;
        }
        *text += end;
        Ok(())
    }

    /// Returns the expression for `.` or a variable that a block defines. Returns `None` for the
    /// data of the template, and for an expression in parentheses.
    fn local(self, base: &Base, span: &Range<usize>) -> Result<Option<String>> {
        let mut frames = std::iter::successors(self.frame, |frame| frame.outer);
        let name = match base {
            Base::Dot => return Ok(self.frame.map(|frame| frame.dot.clone())),
            Base::Value(_) => return Ok(None),
            Base::Variable(name) if name.is_empty() => return Ok(None),
            Base::Variable(name) => name,
        };
        let found =
            frames.find_map(|frame| frame.variables.iter().rev().find(|(own, ..)| own == name));
        let loops = self.frame.map_or(0, |frame| frame.loops);
        match found {
            None => fail(format!("the variable `${name}` is not defined"), span),
            Some((.., Some(own))) if *own != loops => {
                fail(format!("the index `${name}` of an outer `range` has no equivalent"), span)
            }
            Some((_, code, _)) => Ok(Some(code.clone())),
        }
    }

    /// Translates the condition of an `if` or `with` block. As in Go, a missing value is false.
    fn test(self, expr: &Expr) -> Result<Written> {
        match expr {
            Expr::Call { function, arguments, .. } if function == "and" || function == "or" => {
                self.logic(function, arguments, |argument| self.test(argument))
            }
            Expr::Call { function, arguments, .. } if function == "not" && arguments.len() == 1 => {
                Ok(self.test(&arguments[0])?.not())
            }
            _ => {
                let written = match self.error_of_step(expr) {
                    // An object, or null without an error.
                    Some(path) => self.path(&path, &(0..0))?,
                    None => self.written(expr)?,
                };
                Ok(if written.is_path { written.filter("default(false)") } else { written })
            }
        }
    }

    fn logic(
        self,
        function: &str,
        arguments: &[Expr],
        each: impl Fn(&Expr) -> Result<Written>,
    ) -> Result<Written> {
        let (level, inner) = match function {
            "and" => (Level::And, Level::Not),
            _ => (Level::Or, Level::And),
        };
        let written = arguments.iter().map(each).collect::<Result<Vec<_>>>()?;
        let is_bool = written.iter().all(|written| written.is_bool);
        let texts: Vec<_> = written.iter().map(|written| written.at(inner)).collect();
        let text = texts.join(&format!(" {function} "));
        Ok(Written { text, level, is_bool, is_path: false })
    }

    /// Translates a Go expression to an expression of this crate.
    fn written(self, expr: &Expr) -> Result<Written> {
        if let Some(path) = self.error_of_step(expr) {
            // The text of the error; ours is an object.
            let path = [path, vec![Segment::Key("message".to_owned())]].concat();
            return self.path(&path, &(0..0));
        }
        match expr {
            Expr::Literal(value) => {
                Ok(Written { is_bool: value.is_boolean(), ..Written::value(literal(value)) })
            }
            Expr::Chain { base, fields, span } => {
                if let Some(path) = self.segments(expr)? {
                    return self.path(&path, span);
                }
                let local = self.local(base, span)?;
                let is_path = local.is_some();
                let base = match (local, base) {
                    (None, Base::Value(value)) => self.written(value)?.at(Level::Value),
                    (local, _) => local.unwrap_or_default(),
                };
                let fields: String = fields.iter().map(|field| key(field)).collect();
                Ok(Written { is_path, ..Written::value(base + &fields) })
            }
            Expr::Call { function, arguments, span } => self.call(function, arguments, span, expr),
        }
    }

    /// Returns the path of a value in the data of the template, such as `params` and `x` for
    /// `.params.x`. Returns `None` if the expression is not such a path.
    fn segments(self, expr: &Expr) -> Result<Option<Vec<Segment>>> {
        match expr {
            Expr::Chain { base, fields, span } => {
                let base = match base {
                    _ if self.local(base, span)?.is_some() => None,
                    Base::Dot | Base::Variable(_) => Some(Vec::new()),
                    Base::Value(value) => self.segments(value)?,
                };
                Ok(base.map(|mut path| {
                    path.extend(fields.iter().cloned().map(Segment::Key));
                    path
                }))
            }
            Expr::Call { function, arguments, .. }
                if function == "index" && !arguments.is_empty() =>
            {
                let Some(mut path) = self.segments(&arguments[0])? else { return Ok(None) };
                for index in &arguments[1..] {
                    path.push(self.segment(index)?);
                }
                Ok(Some(path))
            }
            _ => Ok(None),
        }
    }

    fn segment(self, index: &Expr) -> Result<Segment> {
        Ok(match index {
            Expr::Literal(Value::String(key)) => Segment::Key(key.clone()),
            Expr::Literal(Value::Number(number)) if number.is_u64() => {
                Segment::Index(number.as_u64().unwrap_or_default())
            }
            other => Segment::Computed(self.written(other)?.text),
        })
    }

    /// Translates a path in the data of the template. For example, `.params.x` becomes `input.x`.
    fn path(self, path: &[Segment], span: &Range<usize>) -> Result<Written> {
        let [Segment::Key(root), rest @ ..] = path else {
            return fail(
                "the whole data has no equivalent: name a value, such as `.params.x`",
                span,
            );
        };
        let (root, rest) = match (root.as_str(), rest) {
            ("params", rest) => ("input".to_owned(), rest),
            ("steps", [Segment::Key(id), Segment::Key(field), rest @ ..]) => {
                if !["output", "content", "status", "error"].contains(&field.as_str()) {
                    let known = "a step has `output`, `content`, `status` and `error`";
                    return fail(format!("a step has no `{field}`: {known}"), span);
                }
                if field == "output" {
                    self.note_text(rest);
                }
                (format!("steps{}{}", key(id), key(field)), rest)
            }
            ("steps", _) => {
                return fail("expected a part of a step, such as `.steps.a.output`", span);
            }
            ("forEach", [Segment::Key(name), rest @ ..]) => match self.item_var {
                None => {
                    return fail("`.forEach` has a value only in the step of a `forEach`", span);
                }
                Some(_) if name == "index" => ("index".to_owned(), rest),
                Some(item) if item == name => (item.to_owned(), rest),
                Some(item) => {
                    let message = format!("`.forEach` has `{item}` and `index`, not `{name}`");
                    return fail(message, span);
                }
            },
            ("workflow", [Segment::Key(field)]) if field == "id" => {
                ("workflow.id".to_owned(), &[][..])
            }
            ("workflow", [Segment::Key(field)]) if field == "start_time" => {
                ("workflow.started_at".to_owned(), &[][..])
            }
            ("workflow", _) => {
                let message = "`.workflow` has an equivalent only for `id` and `start_time`";
                return fail(message, span);
            }
            ("timestamp", _) => {
                let hint = "write `.workflow.start_time`";
                return fail(format!("ToolHive has no `.timestamp`, either: {hint}"), span);
            }
            ("vars", _) => return fail("`.vars` is always empty in ToolHive", span),
            (other, _) => {
                let known = "expected `params`, `steps`, `workflow` or `forEach`";
                return fail(format!("no value is called `{other}`: {known}"), span);
            }
        };
        let is_path = rest.iter().all(Segment::is_literal);
        let text = root + &rest.iter().map(Segment::written).collect::<String>();
        Ok(Written { is_path, ..Written::value(text) })
    }

    /// Sets `reads_text` if the template reads the whole output of a step, or its `text`. `path` is
    /// a path in the output.
    fn note_text(self, path: &[Segment]) {
        let is_text = match path {
            [] => true,
            [Segment::Key(key), ..] => key == "text" || key.starts_with("text_"),
            [Segment::Index(_) | Segment::Computed(_), ..] => false,
        };
        if let Some(reads_text) = self.reads_text.filter(|_| is_text) {
            reads_text.set(true);
        }
    }

    /// Returns the path of a step's error, such as `.steps.a.error`. Returns `None` if the
    /// expression is anything else.
    fn error_of_step(self, expr: &Expr) -> Option<Vec<Segment>> {
        let path = self.segments(expr).ok()??;
        let is_error = matches!(path.as_slice(), [Segment::Key(root), _, Segment::Key(field)]
            if root == "steps" && field == "error");
        is_error.then_some(path)
    }
}

#[cfg(test)]
mod tests;
