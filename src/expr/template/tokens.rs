//! Splits templates into text and code, and code into tokens.

use std::{fmt, str::CharIndices};

use crate::expr::ExpressionError;

/// The maximum nesting depth of brackets, and the maximum height of the syntax tree, of an
/// expression.
pub(super) const MAX_NESTING: usize = 50;

#[derive(Debug, PartialEq)]
pub(super) enum Piece<'t> {
    /// Literal text.
    Text(&'t str),
    /// An expression in `{{ … }}`.
    Output(Code<'t>),
    /// A statement in `{% … %}`.
    Statement(Code<'t>),
}

/// The tokens of an expression or statement.
#[derive(Debug, PartialEq)]
pub(super) struct Code<'t> {
    pub(super) tokens: Vec<Token<'t>>,
    /// The byte position of the code in the template, without its braces.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A token. `start` and `end` are byte positions in the template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind<'t>,
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind<'t> {
    Name(&'t str),
    Text(String),
    Number(&'t str),
    Symbol(&'static str),
}

/// A syntax error in a template, or an invalid reference.
#[derive(Debug)]
pub(super) enum Mistake {
    /// `at` is the byte position of the error.
    Syntax {
        reason: String,
        at: usize,
    },
    Reference(ExpressionError),
}

/// All operators and punctuation. Longer symbols come before their prefixes, so that they match
/// first.
const SYMBOLS: [&str; 25] = [
    "**", "//", "==", "!=", "<=", ">=", "<", ">", "=", "+", "-", "*", "/", "%", "~", "(", ")", "[",
    "]", "{", "}", ",", ":", ".", "|",
];

/// Creates a syntax error at the byte position `at`.
pub(super) fn fault(at: usize, reason: impl Into<String>) -> Mistake {
    Mistake::Syntax { reason: reason.into(), at }
}

/// Splits a template into text and code.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece<'_>>, Mistake> {
    let mut pieces = Vec::new();
    let mut rest = 0;
    let mut trim = false;
    loop {
        let found = text[rest..].match_indices('{').map(|(at, _)| rest + at).find_map(|at| {
            let close = match text.as_bytes().get(at + 1)? {
                b'{' => "}}",
                b'%' => "%}",
                _ => return None,
            };
            Some((at, close))
        });
        let end = found.map_or(text.len(), |(at, _)| at);
        let trim_end = text[end..].starts_with("{{-") || text[end..].starts_with("{%-");
        push_text(&mut pieces, &text[rest..end], trim, trim_end);
        let Some((open, close)) = found else { return Ok(pieces) };

        let start = open + if trim_end { 3 } else { 2 };
        let mut lexer = Lexer { text, at: start, close: Some(close), open };
        let tokens = lexer.tokens()?;
        trim = text.as_bytes()[lexer.at] == b'-';
        let code = Code { tokens, start, end: lexer.at };
        rest = lexer.at + if trim { 3 } else { 2 };
        if close == "%}" && code.is_word("raw") {
            let (end, resume, trims) = end_of_raw(text, rest)
                .ok_or_else(|| fault(open, "`{% raw %}` has no `{% endraw %}`"))?;
            push_text(&mut pieces, &text[rest..end], trim, trims.0);
            (rest, trim) = (resume, trims.1);
        } else if close == "%}" {
            pieces.push(Piece::Statement(code));
        } else {
            pieces.push(Piece::Output(code));
        }
    }
}

/// Splits an expression without braces into tokens.
pub(super) fn expression(text: &str) -> Result<Code<'_>, Mistake> {
    let mut lexer = Lexer { text, at: 0, close: None, open: 0 };
    Ok(Code { tokens: lexer.tokens()?, start: 0, end: text.len() })
}

fn push_text<'t>(pieces: &mut Vec<Piece<'t>>, text: &'t str, start: bool, end: bool) {
    let text = if start { text.trim_start() } else { text };
    let text = if end { text.trim_end() } else { text };
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
}

/// Finds the next `{% endraw %}` from `from` on. Returns its start and its end. The flags are
/// `true` if it trims the white space before and after it.
fn end_of_raw(text: &str, from: usize) -> Option<(usize, usize, (bool, bool))> {
    text[from..].match_indices("{%").find_map(|(at, _)| {
        let inner = &text[from + at + 2..];
        let trim_before = inner.starts_with('-');
        let inner = inner.strip_prefix('-').unwrap_or(inner).trim_start();
        let inner = inner.strip_prefix("endraw")?.trim_start();
        let trim_after = inner.starts_with('-');
        let inner = inner.strip_prefix('-').unwrap_or(inner).strip_prefix("%}")?;
        Some((from + at, text.len() - inner.len(), (trim_before, trim_after)))
    })
}

// === impl Code ===

impl Code<'_> {
    fn is_word(&self, word: &str) -> bool {
        matches!(&*self.tokens, [Token { kind: Kind::Name(name), .. }] if *name == word)
    }
}

// === impl Kind ===

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(text) | Self::Number(text) | Self::Symbol(text) => write!(f, "`{text}`"),
            Self::Text(_) => f.write_str("a string"),
        }
    }
}

// === impl Lexer ===

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    /// The braces that end the code, such as `}}`. `None` if the code ends with the text.
    close: Option<&'static str>,
    /// The byte position of the opening braces, for error messages.
    open: usize,
}

impl<'t> Lexer<'t> {
    /// Reads tokens up to the closing braces. A `-` before the braces trims white space. Consumes
    /// neither of them.
    fn tokens(&mut self) -> Result<Vec<Token<'t>>, Mistake> {
        let mut tokens: Vec<Token<'t>> = Vec::new();
        // The brackets that are still open, with their positions.
        let mut open: Vec<(&str, usize)> = Vec::new();
        loop {
            self.at += self.rest().len() - self.rest().trim_start().len();
            let start = self.at;
            let rest = self.rest();
            if open.is_empty() && self.closes(rest) {
                return Ok(tokens);
            }
            let Some(first) = rest.chars().next() else {
                return match (open.pop(), self.close) {
                    (Some((bracket, at)), _) => Err(not_closed(bracket, at)),
                    (None, Some(close)) => Err(fault(self.open, format!("missing `{close}`"))),
                    (None, None) => Ok(tokens),
                };
            };
            let kind = match first {
                'a'..='z' | 'A'..='Z' | '_' => Kind::Name(self.take_while(is_name)),
                '0'..='9' => {
                    let index =
                        matches!(tokens.last(), Some(Token { kind: Kind::Symbol("."), .. }));
                    Kind::Number(self.number(index)?)
                }
                '"' | '\'' => Kind::Text(self.string(first)?),
                '$' => return Err(fault(start, "in templates names have no `$`")),
                _ => match SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
                    Some(symbol) => {
                        self.at += symbol.len();
                        Kind::Symbol(symbol)
                    }
                    None if first.is_alphanumeric() => {
                        let reason =
                            "names are of the letters a to z; others are written as `['key']`";
                        return Err(fault(start, reason));
                    }
                    None => return Err(fault(start, format!("unexpected `{first}`"))),
                },
            };
            match kind {
                Kind::Symbol(bracket @ ("(" | "[" | "{")) => {
                    open.push((bracket, start));
                    if open.len() > MAX_NESTING {
                        return Err(fault(start, "this is nested too deeply"));
                    }
                }
                Kind::Symbol(bracket @ (")" | "]" | "}")) => match open.pop() {
                    Some(("(", _)) if bracket == ")" => (),
                    Some(("[", _)) if bracket == "]" => (),
                    Some(("{", _)) if bracket == "}" => (),
                    Some((opened, at)) => return Err(not_closed(opened, at)),
                    None => return Err(fault(start, format!("unexpected `{bracket}`"))),
                },
                _ => (),
            }
            tokens.push(Token { kind, start, end: self.at });
        }
    }

    fn closes(&self, rest: &str) -> bool {
        self.close.is_some_and(|close| {
            rest.starts_with(close)
                || rest.strip_prefix('-').is_some_and(|rest| rest.starts_with(close))
        })
    }

    fn number(&mut self, index: bool) -> Result<&'t str, Mistake> {
        let start = self.at;
        self.take_while(|c| c.is_ascii_digit());
        if !index {
            let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
            if self.rest().strip_prefix('.').is_some_and(digit) {
                self.at += 1;
                self.take_while(|c| c.is_ascii_digit());
            }
            if let Some(exponent) = self.rest().strip_prefix(['e', 'E']) {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if digit(digits) {
                    self.at += 1 + exponent.len() - digits.len();
                    self.take_while(|c| c.is_ascii_digit());
                }
            }
        }
        let number = &self.text[start..self.at];
        let fits = if number.bytes().all(|byte| byte.is_ascii_digit()) {
            number.parse::<u64>().is_ok()
        } else {
            number.parse::<f64>().is_ok_and(f64::is_finite)
        };
        if !fits {
            return Err(fault(start, "this number is too large"));
        }
        if self.rest().starts_with(is_name) {
            return Err(fault(start, "this is not a valid number"));
        }
        Ok(number)
    }

    fn string(&mut self, quote: char) -> Result<String, Mistake> {
        let start = self.at;
        let mut chars = self.text[start + 1..].char_indices();
        let mut string = String::new();
        while let Some((at, c)) = chars.next() {
            if c == quote {
                self.at = start + 1 + at + 1;
                return Ok(string);
            }
            if c != '\\' {
                string.push(c);
                continue;
            }
            let escape = start + 1 + at;
            string.push(match chars.next().map(|(_, c)| c) {
                Some(c @ ('\\' | '/' | '"' | '\'')) => c,
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('u') => {
                    let first = code_unit(&mut chars);
                    let second = match first {
                        // The first half of a surrogate pair; the second half follows as another
                        // escape sequence.
                        Some(0xd800..=0xdbff) if chars.as_str().starts_with("\\u") => {
                            chars.nth(1);
                            code_unit(&mut chars)
                        }
                        _ => None,
                    };
                    let units = first.into_iter().chain(second);
                    let mut decoded = char::decode_utf16(units);
                    match (decoded.next(), decoded.next()) {
                        (Some(Ok(c)), None) => c,
                        _ => return Err(bad_escape(escape)),
                    }
                }
                Some(_) => return Err(bad_escape(escape)),
                None => break,
            });
        }
        Err(fault(start, "unclosed string"))
    }

    fn take_while(&mut self, is: impl Fn(char) -> bool) -> &'t str {
        let rest = &self.text[self.at..];
        let taken = &rest[..rest.find(|c| !is(c)).unwrap_or(rest.len())];
        self.at += taken.len();
        taken
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }
}

/// Reads the four hexadecimal digits of an escape sequence. Returns `None` for other characters.
fn code_unit(chars: &mut CharIndices<'_>) -> Option<u16> {
    let digits: String = chars.take(4).map(|(_, c)| c).collect();
    let is_hex = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if is_hex { u16::from_str_radix(&digits, 16).ok() } else { None }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn not_closed(bracket: &str, at: usize) -> Mistake {
    fault(at, format!("unclosed `{bracket}`"))
}

fn bad_escape(at: usize) -> Mistake {
    fault(at, "unknown escape: write `\\\\` for a backslash")
}
