//! Parses templates of Go's `text/template`.
//!
//! The parser accepts only constructs that have an equivalent in expressions of this crate. Other
//! constructs, such as `define`, are errors.

use std::ops::Range;

use serde_json::{Number, Value};

use crate::config::fault::Fault;

/// Maximum nesting depth of parentheses and blocks in a Go template.
const MAX_GO_DEPTH: usize = 32;

/// A part of a parsed Go template: a text, or an action such as `{{ .name }}`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Text(String),
    Print(Expr),
    If { branches: Vec<(Expr, Vec<Self>)>, otherwise: Vec<Self> },
    Range(Block),
    With(Block),
}

/// A `range` or `with` block. In its body, `.` refers to another value than outside the block.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    /// The names of the variables that the block declares, such as `i` and `e` for `range $i, $e :=
    /// …`. Empty if it declares none.
    pub(super) variables: Vec<String>,
    pub(super) value: Expr,
    pub(super) body: Vec<Part>,
    pub(super) otherwise: Vec<Part>,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    /// A value followed by field names, such as `.a.b`. `fields` may be empty.
    Chain {
        base: Base,
        fields: Vec<String>,
        span: Range<usize>,
    },
    /// A constant: a string, a number, a boolean or `nil`.
    Literal(Value),
    Call {
        function: String,
        arguments: Vec<Self>,
        span: Range<usize>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Base {
    /// The current value `.`. In a `range`, for example, it is the current element.
    Dot,
    /// A variable, such as `$i`. The name is empty for `$`, which is the data of the template.
    Variable(String),
    /// The value of an expression in parentheses.
    Value(Box<Expr>),
}

/// The result of parsing or translating a Go template. The span of an error is the byte range of
/// the invalid construct in the template.
pub(super) type Result<T> = std::result::Result<T, Fault>;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Field(String),
    Word(String),
    Literal(Value),
    Symbol(char),
    Variable(String),
}

struct Spanned {
    token: Token,
    span: Range<usize>,
    /// `true` if white space precedes the token. Without a space, as in `.a.b`, two fields belong
    /// to one operand. With a space, as in `.a .b`, they are two operands.
    spaced: bool,
}

/// A piece of an unparsed Go template: a text, or the tokens of an action such as `{{ .name }}`.
enum Piece {
    Text(String),
    Action { tokens: Vec<Spanned>, span: Range<usize> },
}

/// The parts of a block or branch, and the action that ends it.
struct Body {
    parts: Vec<Part>,
    end: End,
    /// The byte range of the action that ends the body. Empty at the end of the template.
    span: Range<usize>,
}

/// The action that ends a block or a branch.
enum End {
    /// The template ends without a further action.
    Template,
    /// The action `end`.
    Block,
    /// The action `else`, or `else if` with its condition. `None` is a plain `else`.
    Else(Option<Expr>),
}

/// Parses a Go template into texts and actions.
///
/// # Errors
///
/// Returns the first error: an invalid action, an unbalanced block, or a construct that is not
/// supported.
pub(super) fn parse(text: &str) -> Result<Vec<Part>> {
    let mut pieces = pieces(text)?.into_iter();
    let Body { parts, end, span } = body(&mut pieces, 0)?;
    match end {
        End::Template => Ok(parts),
        End::Block => Err(Fault::new("`end` without an `if`", span)),
        End::Else(_) => Err(Fault::new("`else` without an `if`", span)),
    }
}

// === Pieces and tokens ===

fn pieces(text: &str) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let (mut at, mut trims_start) = (0, false);
    while let Some(open) = text[at..].find("{{").map(|open| at + open) {
        let trims_end = is_trim(text[open + 2..].chars());
        push_text(&mut pieces, &text[at..open], trims_start, trims_end);
        let start = open + if trims_end { 3 } else { 2 };
        let inner = text[start..].trim_start();
        let (tokens, close) = if inner.starts_with("/*") {
            (Vec::new(), comment(text, text.len() - inner.len(), open)?)
        } else {
            tokens(text, start, open)?
        };
        trims_start = is_trim(text[..close].chars().rev());
        at = close + 2;
        if !inner.starts_with("/*") {
            pieces.push(Piece::Action { tokens, span: open..at });
        }
    }
    push_text(&mut pieces, &text[at..], trims_start, false);
    Ok(pieces)
}

/// Returns `true` if the characters begin with `-` and white space. In an action such as
/// `{{- .name -}}`, this removes the white space before or after the action. For the end of an
/// action, `characters` runs backwards from the closing braces.
fn is_trim(mut characters: impl Iterator<Item = char>) -> bool {
    characters.next() == Some('-') && characters.next().is_some_and(char::is_whitespace)
}

fn push_text(pieces: &mut Vec<Piece>, mut text: &str, trims_start: bool, trims_end: bool) {
    if trims_start {
        text = text.trim_start();
    }
    if trims_end {
        text = text.trim_end();
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
}

/// Returns the offset of the `}}` after a comment. `start` is the offset of the comment, and `open`
/// that of the braces before it.
fn comment(text: &str, start: usize, open: usize) -> Result<usize> {
    let end = text[start..].find("*/").map(|end| start + end + 2);
    let end = end.ok_or_else(|| Fault::new("the comment is not closed", open..open + 2))?;
    let rest = text[end..].trim_start().trim_start_matches("- ").trim_start_matches('-');
    let close = text.len() - rest.len();
    if rest.starts_with("}}") {
        Ok(close)
    } else {
        Err(Fault::new("`}}` must follow a comment", open..end))
    }
}

/// Splits an action into tokens. Returns the tokens, and the offset of the `}}` that closes the
/// action. `start` is the offset after the opening braces, and `open` is their own offset.
fn tokens(text: &str, start: usize, open: usize) -> Result<(Vec<Spanned>, usize)> {
    let (mut tokens, mut at, mut spaced) = (Vec::new(), start, true);
    loop {
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else {
            return Err(Fault::new("the braces are not closed", open..open + 2));
        };
        if rest.starts_with("}}") {
            return Ok((tokens, at));
        }
        if spaced && rest.starts_with("-}}") {
            return Ok((tokens, at + 1));
        }
        if first.is_whitespace() {
            (at, spaced) = (at + first.len_utf8(), true);
            continue;
        }
        let (token, length) =
            token(rest).map_err(|message| Fault::new(message, at..at + first.len_utf8()))?;
        tokens.push(Spanned { token, span: at..at + length, spaced });
        (at, spaced) = (at + length, false);
    }
}

/// Reads the first token of `rest`, which must not be empty. Returns the token and its length in
/// bytes.
fn token(rest: &str) -> std::result::Result<(Token, usize), String> {
    let word = |text: &str| -> usize {
        text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
    };
    let first = rest.chars().next().unwrap_or_default();
    match first {
        '.' => match word(&rest[1..]) {
            0 => Ok((Token::Symbol('.'), 1)),
            length if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                number(rest, length + 1)
            }
            length => Ok((Token::Field(rest[1..=length].to_owned()), length + 1)),
        },
        '"' => string(rest),
        '`' => match rest[1..].find('`') {
            Some(end) => Ok((Token::Literal(rest[1..=end].into()), end + 2)),
            None => Err("the text is not closed".to_owned()),
        },
        '$' => {
            let length = word(&rest[1..]) + 1;
            Ok((Token::Variable(rest[1..length].to_owned()), length))
        }
        '(' | ')' | '|' | ',' | '=' | ':' => Ok((Token::Symbol(first), 1)),
        _ if first.is_ascii_digit()
            || (matches!(first, '-' | '+')
                && rest[1..].starts_with(|c: char| c.is_ascii_digit())) =>
        {
            let is_number = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
            let length = rest[1..].find(|c| !is_number(c)).map_or(rest.len(), |end| end + 1);
            number(rest, length)
        }
        _ if first.is_alphabetic() || first == '_' => {
            let length = word(rest);
            let token = match &rest[..length] {
                "true" => Token::Literal(true.into()),
                "false" => Token::Literal(false.into()),
                "nil" => Token::Literal(Value::Null),
                other => Token::Word(other.to_owned()),
            };
            Ok((token, length))
        }
        _ => Err(format!("unexpected `{first}`{}", hint(first))),
    }
}

/// Returns a hint for the error message about the unexpected character `first`. The hint is empty
/// if the character is not typical of another template language.
const fn hint(first: char) -> &'static str {
    match first {
        '-' => {
            ": a name with `-` cannot be a field in Go; ToolHive rejects it, too. Write \
             `index .steps \"my-step\"`"
        }
        '\'' | '&' | '!' | '<' | '>' => {
            ": Go templates have functions instead of operators, such as `eq .a \"b\"` and `and`; \
             ToolHive rejects it, too"
        }
        _ => "",
    }
}

fn number(rest: &str, length: usize) -> std::result::Result<(Token, usize), String> {
    let written = &rest[..length];
    let parsed = written.parse::<i64>().map(Number::from).ok();
    let parsed = parsed.or_else(|| Number::from_f64(written.parse().ok()?));
    match parsed {
        Some(number) => Ok((Token::Literal(Value::Number(number)), length)),
        None => Err(format!("invalid number `{written}`")),
    }
}

fn string(rest: &str) -> std::result::Result<(Token, usize), String> {
    let mut escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    let end = end.map(|(end, _)| end).ok_or("the text is not closed")?;
    // The escapes of Go that JSON lacks are rare: `\x41`, `\a`, `\v`.
    let text = serde_json::from_str::<String>(&rest[..=end])
        .map_err(|_| format!("invalid escape or line break in {}", &rest[..=end]))?;
    Ok((Token::Literal(text.into()), end + 1))
}

// === Parser ===

fn body(pieces: &mut std::vec::IntoIter<Piece>, depth: usize) -> Result<Body> {
    let mut parts = Vec::new();
    while let Some(piece) = pieces.next() {
        let (tokens, span) = match piece {
            Piece::Text(text) => {
                parts.push(Part::Text(text));
                continue;
            }
            Piece::Action { tokens, span } => (tokens, span),
        };
        if depth > MAX_GO_DEPTH {
            return Err(Fault::new(format!("more than {MAX_GO_DEPTH} nested blocks"), span));
        }
        let word = match tokens.first().map(|first| &first.token) {
            Some(Token::Word(word)) => word.as_str(),
            Some(_) => "",
            None => return Err(Fault::new("the braces are empty", span)),
        };
        match word {
            "if" => {
                let condition = pipeline(&tokens[1..], &span)?;
                parts.push(branches(condition, pieces, depth, &span)?);
            }
            "else" if tokens.len() == 1 => return Ok(Body { parts, end: End::Else(None), span }),
            "else" if tokens[1].token == Token::Word("if".to_owned()) => {
                let condition = pipeline(&tokens[2..], &span)?;
                return Ok(Body { parts, end: End::Else(Some(condition)), span });
            }
            "end" => return Ok(Body { parts, end: End::Block, span }),
            "range" => parts.push(Part::Range(block(&tokens[1..], pieces, depth, span)?)),
            "with" => parts.push(Part::With(block(&tokens[1..], pieces, depth, span)?)),
            "else" => return Err(Fault::new("expected `else` or `else if`", span)),
            "define" | "template" | "block" | "break" | "continue" => {
                return Err(Fault::new(format!("`{word}` has no equivalent"), span));
            }
            _ => parts.push(Part::Print(pipeline(&tokens, &span)?)),
        }
    }
    Ok(Body { parts, end: End::Template, span: 0..0 })
}

/// Parses the branches of an `if` up to its `end`. `condition` is the condition of the first
/// branch, which was parsed before.
fn branches(
    condition: Expr,
    pieces: &mut std::vec::IntoIter<Piece>,
    depth: usize,
    span: &Range<usize>,
) -> Result<Part> {
    let mut branches = Vec::new();
    let mut next = condition;
    loop {
        let Body { parts, end, span: end_span } = body(pieces, depth + 1)?;
        branches.push((next, parts));
        match end {
            End::Template => return Err(Fault::new("the `if` has no `end`", span.clone())),
            End::Block => return Ok(Part::If { branches, otherwise: Vec::new() }),
            End::Else(Some(condition)) => next = condition,
            End::Else(None) => {
                let otherwise = otherwise(pieces, depth, end_span)?;
                return Ok(Part::If { branches, otherwise });
            }
        }
    }
}

/// Parses the parts after an `else`, up to the `end` of its block.
fn otherwise(
    pieces: &mut std::vec::IntoIter<Piece>,
    depth: usize,
    span: Range<usize>,
) -> Result<Vec<Part>> {
    let Body { parts, end, span: last } = body(pieces, depth + 1)?;
    match end {
        End::Block => Ok(parts),
        End::Template => Err(Fault::new("the `else` has no `end`", span)),
        End::Else(_) => Err(Fault::new("a second `else`", last)),
    }
}

/// Parses a `range` or `with` block up to its `end`. `tokens` follow the keyword.
fn block(
    tokens: &[Spanned],
    pieces: &mut std::vec::IntoIter<Piece>,
    depth: usize,
    span: Range<usize>,
) -> Result<Block> {
    let (variables, rest) = declarations(tokens);
    let value = pipeline(rest, &span)?;
    let Body { parts, end, span: end_span } = body(pieces, depth + 1)?;
    let otherwise = match end {
        End::Block => Vec::new(),
        End::Template => return Err(Fault::new("the block has no `end`", span)),
        End::Else(Some(_)) => return Err(Fault::new("expected `else` without `if`", end_span)),
        End::Else(None) => otherwise(pieces, depth, end_span)?,
    };
    Ok(Block { variables, value, body: parts, otherwise, span })
}

/// Splits the tokens of `$i, $e := …` into the names of the variables and the tokens after `:=`.
/// Returns no names and all tokens if they do not declare variables.
fn declarations(tokens: &[Spanned]) -> (Vec<String>, &[Spanned]) {
    let mut variables = Vec::new();
    let mut rest = tokens;
    while let [Spanned { token: Token::Variable(name), .. }, after @ ..] = rest {
        variables.push(name.clone());
        rest = after;
        if take(&mut rest, ":=") {
            return (variables, rest);
        }
        if !take(&mut rest, ",") {
            break;
        }
    }
    (Vec::new(), tokens)
}

/// Removes the symbols from the beginning of `rest`. Returns `false` if something else is there.
fn take(rest: &mut &[Spanned], symbols: &str) -> bool {
    let mut after = *rest;
    for symbol in symbols.chars() {
        match after {
            [first, others @ ..] if first.token == Token::Symbol(symbol) => after = others,
            _ => return false,
        }
    }
    *rest = after;
    true
}

/// Parses an expression with pipes. For example, `a b | c d` means `c d (a b)`.
fn pipeline(tokens: &[Spanned], span: &Range<usize>) -> Result<Expr> {
    let mut rest = tokens;
    let expr = pipe(&mut rest, span, 0)?;
    match rest.first() {
        None => Ok(expr),
        Some(extra) => Err(Fault::new("unexpected token", extra.span.clone())),
    }
}

fn pipe(rest: &mut &[Spanned], span: &Range<usize>, depth: usize) -> Result<Expr> {
    if depth > MAX_GO_DEPTH {
        return Err(Fault::new(
            format!("more than {MAX_GO_DEPTH} nested parentheses"),
            span.clone(),
        ));
    }
    let mut value = None;
    loop {
        let command = command(rest, span, depth, value)?;
        if !take(rest, "|") {
            return Ok(command);
        }
        value = Some(command);
    }
}

/// Parses one command of a pipeline: a function with its arguments, or an operand. `last` is the
/// preceding command, whose value becomes the last argument of the function. `None` if no command
/// precedes.
fn command(
    rest: &mut &[Spanned],
    span: &Range<usize>,
    depth: usize,
    last: Option<Expr>,
) -> Result<Expr> {
    if let [Spanned { token: Token::Word(function), span: at, .. }, after @ ..] = *rest {
        *rest = after;
        let mut arguments = Vec::new();
        while let Some(argument) = operand(rest, span, depth)? {
            arguments.push(argument);
        }
        arguments.extend(last);
        return Ok(Expr::Call { function: function.clone(), arguments, span: at.clone() });
    }
    let first = operand(rest, span, depth)?;
    match (first, last) {
        (None | Some(Expr::Literal(Value::Null)), None) => {
            Err(Fault::new("expected a value", span.clone()))
        }
        (_, Some(_)) => Err(Fault::new("expected a function after `|`", span.clone())),
        (Some(_), None)
            if matches!(rest.first(), Some(Spanned { token: Token::Symbol(':' | '='), .. })) =>
        {
            Err(Fault::new(
                "variables have no equivalent, except in `range` and `with`",
                span.clone(),
            ))
        }
        (Some(value), None) => match operand(rest, span, depth)? {
            None => Ok(value),
            Some(_) => Err(Fault::new("a value cannot have arguments", span.clone())),
        },
    }
}

/// Parses an operand, and removes its tokens from `rest`. Returns `None` if `rest` is empty or
/// begins with `|` or `)`.
fn operand(rest: &mut &[Spanned], span: &Range<usize>, depth: usize) -> Result<Option<Expr>> {
    let Some((first, after)) = rest.split_first() else { return Ok(None) };
    let starts_with_field = matches!(first.token, Token::Field(_));
    if matches!(first.token, Token::Symbol('|' | ')')) {
        return Ok(None);
    }
    if !starts_with_field {
        *rest = after;
    }
    let base = match &first.token {
        Token::Symbol('.') | Token::Field(_) => Base::Dot,
        Token::Variable(name) => Base::Variable(name.clone()),
        Token::Literal(value) => return Ok(Some(Expr::Literal(value.clone()))),
        Token::Word(function) => {
            let (function, span) = (function.clone(), first.span.clone());
            return Ok(Some(Expr::Call { function, arguments: Vec::new(), span }));
        }
        Token::Symbol('(') => {
            let inner = pipe(rest, span, depth + 1)?;
            if !take(rest, ")") {
                return Err(Fault::new("the parenthesis is not closed", first.span.clone()));
            }
            Base::Value(Box::new(inner))
        }
        Token::Symbol(other) => {
            return Err(Fault::new(format!("unexpected `{other}`"), first.span.clone()));
        }
    };
    let (mut fields, mut end) = (Vec::new(), first.span.end);
    while let Some(Spanned { token: Token::Field(field), span, spaced }) = rest.first() {
        if *spaced && !(fields.is_empty() && starts_with_field) {
            break;
        }
        fields.push(field.clone());
        end = span.end;
        *rest = &rest[1..];
    }
    match base {
        Base::Value(inner) if fields.is_empty() => Ok(Some(*inner)),
        base => Ok(Some(Expr::Chain { base, fields, span: first.span.start..end })),
    }
}
