//! Parses the expressions in templates.

mod members;

use super::{
    super::KEYWORDS,
    filters::{FILTERS, Filter},
    names::{Path, Scope, unknown},
    numeric::Numeric,
    pattern::Pattern,
    predicates::{TESTS, Test},
    syntax::{Argument, Expr, Written, is_order},
    tokens::{Code, Kind, MAX_NESTING, Mistake, Token, fault},
    value::cannot_compare,
};

/// Parses a single expression.
pub(super) fn expression(
    text: &str,
    code: &Code<'_>,
    scope: &mut Scope<'_>,
) -> Result<Written, Mistake> {
    Parser::new(text, code, scope).whole()
}

// === impl Parser ===

pub(super) struct Parser<'p, 't, 'n> {
    text: &'t str,
    code: &'p Code<'t>,
    pub(super) place: usize,
    pub(super) scope: &'p mut Scope<'n>,
    paths: Vec<Path>,
    size: usize,
    /// The current nesting depth of brackets and prefix operators. Limited because the parser is
    /// recursive.
    depth: usize,
    /// The height of the syntax tree of the last parsed expression. Each operator of a chain, such
    /// as `a + b + c`, adds one level.
    height: usize,
}

pub(super) type Parsed = Result<Expr, Mistake>;

impl<'p, 't, 'n> Parser<'p, 't, 'n> {
    pub(super) const fn new(text: &'t str, code: &'p Code<'t>, scope: &'p mut Scope<'n>) -> Self {
        Self { text, code, place: 0, scope, paths: Vec::new(), size: 0, depth: 0, height: 0 }
    }

    /// Parses the whole code as one expression.
    pub(super) fn whole(mut self) -> Result<Written, Mistake> {
        let (written, _) = self.written(Self::expression)?;
        self.end()?;
        Ok(written)
    }

    /// Parses one expression with `parse`. Returns it with its source text, and the index of the
    /// next token.
    pub(super) fn written(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Parsed,
    ) -> Result<(Written, usize), Mistake> {
        let start = self.at();
        let expression = parse(self)?;
        let end = self.place.checked_sub(1).map_or(start, |last| self.code.tokens[last].end);
        let paths = std::mem::take(&mut self.paths);
        let text = self.text[start..end].into();
        Ok((Written { expression, paths, size: self.size, text }, self.place))
    }

    fn expression(&mut self) -> Parsed {
        self.deeper(|parser| {
            let first = parser.paths.len();
            let mut expression = parser.binary(0)?;
            while parser.take_word("if") {
                parser.uncertain(first);
                let mut height = parser.height;
                let test = Box::new(parser.binary(0)?);
                height = height.max(parser.height);
                let second = parser.paths.len();
                let otherwise = if parser.take_word("else") {
                    Some(Box::new(parser.expression()?))
                } else {
                    None
                };
                parser.uncertain(second);
                expression = Expr::If { test, then: Box::new(expression), otherwise };
                parser.raise(height)?;
            }
            Ok(expression)
        })
    }

    /// Parses an expression of binary operators with at least the precedence `level`. Brackets may
    /// contain all operators.
    pub(super) fn binary(&mut self, level: usize) -> Parsed {
        const LEVELS: [&[&str]; 5] = [&["+", "-"], &["~"], &["*", "/", "//", "%"], &["**"], &[]];
        match level {
            0 | 1 => {
                let word = ["or", "and"][level];
                let mut left = self.binary(level + 1)?;
                while self.take_word(word) {
                    let height = self.height;
                    let first = self.paths.len();
                    let right = self.binary(level + 1)?;
                    self.uncertain(first);
                    left = Expr::Logic(word, Box::new(left), Box::new(right));
                    self.raise(height)?;
                }
                Ok(left)
            }
            2 if self.take_word("not") => self.deeper(|parser| {
                let operand = Box::new(parser.binary(2)?);
                parser.raise(0)?;
                Ok(Expr::Not(operand))
            }),
            2 => self.compare(),
            _ => {
                let Some(symbols @ [_, ..]) = LEVELS.get(level - 3) else {
                    return self.operand();
                };
                let mut left = self.binary(level + 1)?;
                while let Some(symbol) = self.take_any(symbols) {
                    let height = self.height;
                    let right = self.binary(level + 1)?;
                    left = Expr::Arithmetic(symbol, Box::new(left), Box::new(right));
                    self.raise(height)?;
                }
                Ok(left)
            }
        }
    }

    fn compare(&mut self) -> Parsed {
        let first = self.binary(3)?;
        let mut others: Vec<(_, Expr)> = Vec::new();
        loop {
            let at = self.at();
            let symbol = if let Some(symbol) = self.take_any(&["==", "!=", "<=", ">=", "<", ">"]) {
                symbol
            } else if self.take_word("in") {
                "in"
            } else if self.is_word("not") {
                self.next();
                if !self.take_word("in") {
                    return Err(self.unexpected("`in`"));
                }
                "not in"
            } else {
                break;
            };
            let height = self.height;
            let mark = self.paths.len();
            let right = self.binary(3)?;
            let left = others.last().map_or(&first, |(_, left)| left);
            self.check_order(left, symbol, &right, at)?;
            others.push((symbol, right));
            // After the first false comparison in a chain, the operands that follow are not
            // evaluated.
            if others.len() > 1 {
                self.uncertain(mark);
            }
            self.raise(height)?;
        }
        if others.is_empty() { Ok(first) } else { Ok(Expr::Compare(Box::new(first), others)) }
    }

    /// Returns an error if the comparison would fail in every run, because the types of the
    /// operands have no order.
    fn check_order(
        &self,
        left: &Expr,
        symbol: &str,
        right: &Expr,
        at: usize,
    ) -> Result<(), Mistake> {
        if !is_order(symbol) {
            return Ok(());
        }
        let (left, right) = (left.kind(&self.paths), right.kind(&self.paths));
        match (left, right) {
            (Some(left), Some(right)) if left != right || left == "null" => {
                Err(fault(at, cannot_compare(symbol, left, right)))
            }
            (Some("null"), None) => Err(fault(at, cannot_compare(symbol, "null", "a value"))),
            (None, Some("null")) => Err(fault(at, cannot_compare(symbol, "a value", "null"))),
            _ => Ok(()),
        }
    }

    /// Parses a value with the keys, filters and tests after it.
    fn operand(&mut self) -> Parsed {
        let mut operand = self.signed()?;
        loop {
            let height = self.height;
            if self.take("|") {
                let at = self.at();
                let name = self.name("the name of a filter")?;
                let filter = find_filter(name, at)?;
                let arguments = self.optional_arguments()?;
                self.check_named(name, &arguments, at)?;
                if matches!(name, "default" | "d") {
                    self.optional(&mut operand, false);
                }
                operand = Expr::Filter(Box::new(operand), filter, arguments);
            } else if self.take_word("is") {
                let negated = self.take_word("not");
                let at = self.at();
                let name = self.name("the name of a test")?;
                let test = find_test(name, at)?;
                let arguments = if self.is("(") {
                    self.arguments()?
                } else if self.begins_value() {
                    let value = self.deeper(Self::signed)?;
                    vec![Argument { name: None, value }]
                } else {
                    Vec::new()
                };
                if let (Some(symbol), [Argument { name: None, value }]) =
                    (test.symbol(), &*arguments)
                {
                    self.check_order(&operand, symbol, value, at)?;
                }
                if matches!(name, "defined" | "undefined") {
                    self.optional(&mut operand, true);
                }
                operand = Expr::Test(Box::new(operand), test, arguments);
                if negated {
                    operand = Expr::Not(Box::new(operand));
                }
            } else {
                return Ok(operand);
            }
            self.raise(height)?;
        }
    }

    /// Marks the paths from the index `first` on as read only under a condition.
    fn uncertain(&mut self, first: usize) {
        for path in &mut self.paths[first..] {
            path.certain = false;
        }
    }

    /// Marks a path or key in `operand` as optional, because `| default(…)` or, if `checked` is
    /// `true`, `is defined` follows it.
    fn optional(&mut self, operand: &mut Expr, checked: bool) {
        match operand {
            Expr::Path(path) => {
                self.paths[*path].optional = true;
                self.paths[*path].checked |= checked;
            }
            Expr::Part { of, optional, .. } => {
                *optional = true;
                self.optional(of, false);
            }
            _ => (),
        }
    }

    /// Checks the arguments of a filter that must be literals: a regular expression, or the name of
    /// a filter or test, as in `map('lower')`.
    fn check_named(&self, filter: &str, arguments: &[Argument], at: usize) -> Result<(), Mistake> {
        if filter == "search" {
            return check_pattern(arguments, at);
        }
        let place = match filter {
            "map" | "select" | "reject" => 0,
            "selectattr" | "rejectattr" => 1,
            _ => return Ok(()),
        };
        let Some(Argument { name: None, value }) = arguments.get(place) else { return Ok(()) };
        let Expr::Text(name) = value else {
            return Err(fault(at, format!("`{filter}` needs a literal name")));
        };
        if filter == "map" {
            find_filter(name, at)?;
            self.check_named(name, &arguments[1..], at)
        } else {
            find_test(name, at).map(drop)
        }
    }

    fn signed(&mut self) -> Parsed {
        if self.take("-") {
            return self.deeper(|parser| {
                let operand = Box::new(parser.signed()?);
                parser.raise(0)?;
                Ok(Expr::Negative(operand))
            });
        }
        let primary = self.primary()?;
        self.postfix(primary)
    }

    fn primary(&mut self) -> Parsed {
        self.size += 1;
        self.height = 1;
        let at = self.at();
        let Some(token) = self.next() else {
            return Err(self.unexpected("an expression"));
        };
        match &token.kind {
            Kind::Text(text) => Ok(Expr::Text(text.as_str().into())),
            Kind::Number(number) => Ok(Expr::Number(match number.parse() {
                Ok(integer) => Numeric::Integer(integer),
                Err(_) => Numeric::Float(number.parse().unwrap_or(f64::NAN)),
            })),
            Kind::Name("true" | "True") => Ok(Expr::Bool(true)),
            Kind::Name("false" | "False") => Ok(Expr::Bool(false)),
            Kind::Name("none" | "None" | "null") => Ok(Expr::Null),
            Kind::Name(name) if KEYWORDS.contains(name) => {
                self.place -= 1;
                Err(self.unexpected("an expression"))
            }
            Kind::Name(name) if self.is("(") => {
                if *name != FUNCTION {
                    if FILTERS.iter().any(|filter| filter.name == *name) {
                        let reason = format!("`{name}` is a filter: write `… | {name}`");
                        return Err(fault(at, reason));
                    }
                    return Err(fault(at, unknown("function", name, &[FUNCTION])));
                }
                Ok(Expr::Range(self.arguments()?))
            }
            Kind::Name(name) => self.path(name, token),
            Kind::Symbol("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Kind::Symbol("[") => {
                let elements = self.list("]", Self::expression)?;
                Ok(Expr::List(elements))
            }
            Kind::Symbol("{") => {
                let members = self.list("}", |parser| {
                    let key = parser.expression()?;
                    parser.expect(":")?;
                    Ok((key, parser.expression()?))
                })?;
                Ok(Expr::Map(members))
            }
            Kind::Symbol(_) => {
                self.place -= 1;
                Err(self.unexpected("an expression"))
            }
        }
    }

    fn optional_arguments(&mut self) -> Result<Vec<Argument>, Mistake> {
        if self.is("(") { self.arguments() } else { Ok(Vec::new()) }
    }

    fn arguments(&mut self) -> Result<Vec<Argument>, Mistake> {
        self.next();
        let mut named = false;
        self.list(")", |parser| {
            let at = parser.at();
            let name = match parser.code.tokens.get(parser.place..) {
                Some(
                    [
                        Token { kind: Kind::Name(name), .. },
                        Token { kind: Kind::Symbol("="), .. },
                        ..,
                    ],
                ) => Some(*name),
                _ => None,
            };
            if name.is_some() {
                parser.place += 2;
            } else if named {
                return Err(fault(at, "positional arguments must precede named ones"));
            }
            named |= name.is_some();
            Ok(Argument { name: name.map(Into::into), value: parser.expression()? })
        })
    }

    /// Parses elements that are separated by commas, up to the closing bracket `close`.
    fn list<T>(
        &mut self,
        close: &'static str,
        mut element: impl FnMut(&mut Self) -> Result<T, Mistake>,
    ) -> Result<Vec<T>, Mistake> {
        let mut elements = Vec::new();
        let mut height = 0;
        while !self.take(close) {
            elements.push(element(self)?);
            height = height.max(self.height);
            if !self.take(",") {
                self.expect(close)?;
                break;
            }
        }
        self.height = 0;
        self.raise(height)?;
        Ok(elements)
    }

    /// Returns `true` if the next token can be an argument without parentheses, such as the `3` in
    /// `is divisibleby 3`.
    fn begins_value(&self) -> bool {
        self.peek().is_some_and(|kind| match kind {
            Kind::Text(_) | Kind::Number(_) => true,
            Kind::Name(name) => {
                !KEYWORDS.contains(name) || matches!(*name, "true" | "false" | "none" | "null")
            }
            Kind::Symbol(symbol) => matches!(*symbol, "[" | "{"),
        })
    }

    /// Calls `parse` one nesting level deeper. Returns an error if the nesting is too deep.
    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, Mistake>,
    ) -> Result<T, Mistake> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.too_deep());
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Adds a node above the last parsed operand to the syntax tree. `height` is the height of the
    /// other operand. Returns an error if the tree becomes too high.
    fn raise(&mut self, height: usize) -> Result<(), Mistake> {
        self.size += 1;
        self.height = self.height.max(height) + 1;
        if self.height > MAX_NESTING { Err(self.too_deep()) } else { Ok(()) }
    }

    fn too_deep(&self) -> Mistake {
        fault(self.at(), format!("this is nested too deeply: at most {MAX_NESTING} levels"))
    }

    fn name(&mut self, expected: &'static str) -> Result<&'t str, Mistake> {
        match self.peek() {
            Some(Kind::Name(name)) => {
                let name = *name;
                self.place += 1;
                Ok(name)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    pub(super) fn end(&self) -> Result<(), Mistake> {
        if self.peek().is_none() { Ok(()) } else { Err(self.unexpected("an operator or the end")) }
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), Mistake> {
        if self.take(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    pub(super) fn unexpected(&self, expected: &str) -> Mistake {
        let found = self.peek().map_or_else(|| "the end".to_owned(), ToString::to_string);
        fault(self.at(), format!("expected {expected} and not {found}"))
    }

    pub(super) fn take(&mut self, symbol: &str) -> bool {
        let is = self.is(symbol);
        self.place += usize::from(is);
        is
    }

    fn take_any(&mut self, symbols: &[&'static str]) -> Option<&'static str> {
        symbols.iter().copied().find(|symbol| self.take(symbol))
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is = self.is_word(word);
        self.place += usize::from(is);
        is
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(Kind::Symbol(found)) if *found == symbol)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Kind::Name(found)) if *found == word)
    }

    fn peek(&self) -> Option<&'p Kind<'t>> {
        self.code.tokens.get(self.place).map(|token| &token.kind)
    }

    pub(super) fn next(&mut self) -> Option<&'p Token<'t>> {
        let token = self.code.tokens.get(self.place)?;
        self.place += 1;
        Some(token)
    }

    /// Returns the byte position of the next token, or of the end of the code.
    pub(super) fn at(&self) -> usize {
        self.code.tokens.get(self.place).map_or(self.code.end, |token| token.start)
    }

    fn at_previous(&self) -> usize {
        self.place.checked_sub(1).map_or(self.code.start, |last| self.code.tokens[last].start)
    }
}

/// The only function of templates.
const FUNCTION: &str = "range";

/// Returns an error if the regular expression is invalid or not a literal string. Regular
/// expressions from the data of a run are not allowed, because they could make a search too slow.
fn check_pattern(arguments: &[Argument], at: usize) -> Result<(), Mistake> {
    let is_pattern =
        |argument: &&Argument| matches!(argument.name.as_deref(), None | Some("pattern"));
    match arguments.iter().find(is_pattern).map(|argument| &argument.value) {
        Some(Expr::Text(pattern)) => {
            Pattern::new(pattern).map(drop).map_err(|reason| fault(at, reason))
        }
        _ => Err(fault(at, "`search` needs a regular expression as a literal string")),
    }
}

fn find_filter(name: &str, at: usize) -> Result<&'static Filter, Mistake> {
    let known = || FILTERS.iter().map(|filter| filter.name).collect::<Vec<_>>();
    Filter::find(name).ok_or_else(|| fault(at, unknown("filter", name, &known())))
}

fn find_test(name: &str, at: usize) -> Result<&'static Test, Mistake> {
    let known = || TESTS.iter().map(|test| test.name).collect::<Vec<_>>();
    Test::find(name).ok_or_else(|| fault(at, unknown("test", name, &known())))
}
