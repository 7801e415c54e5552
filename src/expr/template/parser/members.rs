//! Parses access to parts of values: constant keys such as `input.a`, computed keys such as
//! `[input.key]`, and slices such as `[1:3]`.

use super::{Parsed, Parser};
use crate::expr::{
    PathSegment,
    template::{
        filters::FILTERS,
        names::Path,
        numeric::Numeric,
        syntax::Expr,
        tokens::{Kind, Mistake, Token, fault},
    },
};

impl<'t> Parser<'_, 't, '_> {
    /// Parses the path that begins with `name`, and resolves this name to a value of the run or a
    /// loop variable.
    pub(super) fn path(&mut self, name: &str, first: &Token<'t>) -> Parsed {
        let mut segments = Vec::new();
        let mut end = first.end;
        loop {
            let mark = self.place;
            let segment = if self.take(".") {
                self.key()?
            } else if self.take("[") {
                let literal = match self.next().map(|token| &token.kind) {
                    Some(Kind::Text(key)) => Some(PathSegment::Key(key.clone())),
                    Some(Kind::Number(number)) => number.parse().ok().map(PathSegment::Index),
                    _ => None,
                };
                match literal {
                    Some(segment) if self.take("]") => segment,
                    _ => {
                        self.place = mark;
                        break;
                    }
                }
            } else {
                break;
            };
            if self.is("(") {
                return Err(self.method(&segment, end));
            }
            segments.push(segment);
            end = self.code.tokens[self.place - 1].end;
            if name == "steps" && segments.len() == 1 {
                self.check_dashes(&segments[0], first.start)?;
            }
        }
        let text = &self.text[first.start..end];
        if name == "steps" && segments.is_empty() && self.is("[") {
            return Err(fault(
                first.start,
                "expected a literal step: `steps.a`, `steps['a-b']` or `steps[0]`",
            ));
        }
        let (start, used) = self.scope.start(name, &segments, text, first.start)?;
        segments.drain(..used);
        let text = text.to_owned();
        let (optional, checked, certain) = (false, false, true);
        self.paths.push(Path { start, segments, optional, checked, certain, text });
        Ok(Expr::Path(self.paths.len() - 1))
    }

    /// Returns an error if a step name with a `-` seems to follow `steps.`, because
    /// `steps.get-logs` would be a subtraction.
    fn check_dashes(&self, step: &PathSegment, start: usize) -> Result<(), Mistake> {
        let PathSegment::Key(key) = step else { return Ok(()) };
        let mut word = key.clone();
        let mut end = self.code.tokens[self.place - 1].end;
        for token in &self.code.tokens[self.place..] {
            let joins = token.start == end
                && match token.kind {
                    Kind::Symbol(symbol) => symbol == "-",
                    Kind::Name(_) | Kind::Number(_) => true,
                    Kind::Text(_) => false,
                };
            if !joins {
                break;
            }
            word.push_str(&self.text[token.start..token.end]);
            end = token.end;
        }
        if word == *key || word.ends_with('-') {
            return Ok(());
        }
        let near = self.scope.nearest_step(&word).unwrap_or(&word);
        Err(fault(start, format!("`steps.{word}` is a subtraction: write `steps['{near}']`")))
    }

    /// Parses the keys and slices after an expression, such as `[0]` or `.name`. Method calls are
    /// an error.
    pub(super) fn postfix(&mut self, mut expression: Expr) -> Parsed {
        loop {
            let height = self.height;
            let end = self.place.checked_sub(1).map_or(0, |last| self.code.tokens[last].end);
            if self.take(".") {
                let segment = self.key()?;
                if self.is("(") {
                    return Err(self.method(&segment, end));
                }
                let key = match segment {
                    PathSegment::Key(key) => Expr::Text(key.into()),
                    PathSegment::Index(index) => {
                        Expr::Number(Numeric::Integer(i128::try_from(index).unwrap_or_default()))
                    }
                };
                expression = part(expression, key);
            } else if self.is("[") {
                self.next();
                expression = self.bracket(expression)?;
            } else if self.is("(") {
                return Err(fault(self.at(), "values cannot be called"));
            } else {
                return Ok(expression);
            }
            self.raise(height)?;
        }
    }

    /// Parses a computed key or a slice of `of` after the opening bracket.
    fn bracket(&mut self, of: Expr) -> Parsed {
        let mut bounds = [None, None, None];
        let mut bound = 0;
        let mut height = self.height;
        loop {
            if self.take("]") {
                break;
            }
            if self.take(":") {
                bound += 1;
                if bound > 2 {
                    self.place -= 1;
                    return Err(self.unexpected("`]`"));
                }
            } else if bounds[bound].is_none() {
                bounds[bound] = Some(Box::new(self.expression()?));
                height = height.max(self.height);
            } else {
                return Err(self.unexpected("`]`"));
            }
        }
        self.height = height;
        match bounds {
            [Some(key), None, None] if bound == 0 => Ok(part(of, *key)),
            _ if bound == 0 => Err(fault(self.at_previous(), "expected a key")),
            bounds => Ok(Expr::Slice { of: Box::new(of), bounds }),
        }
    }

    fn key(&mut self) -> Result<PathSegment, Mistake> {
        match self.next().map(|token| &token.kind) {
            Some(Kind::Name(key)) => Ok(PathSegment::Key((*key).to_owned())),
            // As in a reference with `$`, a number is either an object key or an array index.
            Some(Kind::Number(number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(PathSegment::Key((*number).to_owned()))
            }
            other => {
                if other.is_some() {
                    self.place -= 1;
                }
                Err(self.unexpected("a key"))
            }
        }
    }

    /// Returns the error for a method call, such as `text.upper()`. Its message suggests a filter,
    /// because templates have no methods.
    fn method(&self, segment: &PathSegment, at: usize) -> Mistake {
        let PathSegment::Key(name) = segment else { return fault(at, "values cannot be called") };
        let known: Vec<_> = FILTERS.iter().map(|filter| filter.name).collect();
        let near = crate::suggest::nearest(name, &known);
        let filter = if known.contains(&&**name) { Some(&**name) } else { near };
        let filter = filter.map(|filter| format!(": write `… | {filter}`")).unwrap_or_default();
        fault(at, format!("`.{name}()` is a method, and values have none{filter}"))
    }
}

fn part(of: Expr, key: Expr) -> Expr {
    Expr::Part { of: Box::new(of), key: Box::new(key), optional: false }
}
