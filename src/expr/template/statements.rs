//! Parses the statements of templates, such as `{% if %}` and `{% for %}`.

use super::{
    names::Scope,
    parser::{Parser, expression},
    syntax::{ForLoop, Node},
    tokens::{Code, Kind, Mistake, Piece, Token, fault},
};

/// The maximum nesting depth of `if` and `for` statements.
const MAX_STATEMENTS: usize = 20;

const STATEMENTS: &str = "expected `if`, `elif`, `else`, `endif`, `for`, `endfor` or `raw`";

/// Parses the pieces of a template to the nodes of its syntax tree.
pub(super) fn template<'t>(
    text: &'t str,
    pieces: Vec<Piece<'t>>,
    scope: &mut Scope<'_>,
) -> Result<Vec<Node>, Mistake> {
    let mut blocks = Blocks { text, pieces: pieces.into_iter(), depth: 0 };
    match blocks.nodes(scope)? {
        (nodes, None) => Ok(nodes),
        (_, Some(end)) => {
            Err(fault(end.start, format!("unexpected `{}`: no statement is open", end.word)))
        }
    }
}

// === impl Blocks ===

struct Blocks<'t> {
    text: &'t str,
    pieces: std::vec::IntoIter<Piece<'t>>,
    depth: usize,
}

/// A statement that ends the body of another one, such as `{% else %}`.
struct End<'t> {
    word: &'t str,
    start: usize,
    code: Code<'t>,
}

type Nodes = Vec<Node>;

impl<'t> Blocks<'t> {
    /// Parses nodes up to the end of the current body. Returns the nodes and the statement that
    /// ended the body, or `None` at the end of the template.
    fn nodes(&mut self, scope: &mut Scope<'_>) -> Result<(Nodes, Option<End<'t>>), Mistake> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            match piece {
                Piece::Text(text) => nodes.push(Node::Text(text.into())),
                Piece::Output(code) => {
                    nodes.push(Node::Output(expression(self.text, &code, scope)?));
                }
                Piece::Statement(code) => {
                    let Some(Token { kind, start, .. }) = code.tokens.first() else {
                        return Err(fault(code.start, format!("empty statement: {STATEMENTS}")));
                    };
                    let start = *start;
                    match *kind {
                        Kind::Name("if") => nodes.push(self.branches(code, scope)?),
                        Kind::Name("for") => nodes.push(self.repetition(&code, scope)?),
                        Kind::Name(word @ ("elif" | "else" | "endif" | "endfor")) => {
                            return Ok((nodes, Some(End { word, start, code })));
                        }
                        ref other => {
                            let reason = format!("unknown statement {other}: {STATEMENTS}");
                            return Err(fault(start, reason));
                        }
                    }
                }
            }
        }
        Ok((nodes, None))
    }

    fn inner(
        &mut self,
        opening: &Code<'t>,
        ends: &[&str],
        scope: &mut Scope<'_>,
    ) -> Result<(Nodes, End<'t>), Mistake> {
        self.depth += 1;
        if self.depth > MAX_STATEMENTS {
            return Err(fault(opening.start, "statements are nested too deeply"));
        }
        let (nodes, end) = self.nodes(scope)?;
        self.depth -= 1;
        let last = ends[0];
        match end {
            None => Err(fault(opening.start, format!("missing `{last}`"))),
            Some(end) if ends.contains(&end.word) => {
                if end.word != "elif" && end.code.tokens.len() > 1 {
                    let reason = format!("expected nothing after `{}`", end.word);
                    return Err(fault(end.code.tokens[1].start, reason));
                }
                Ok((nodes, end))
            }
            Some(end) => Err(fault(end.start, format!("expected `{last}` and not `{}`", end.word))),
        }
    }

    fn branches(&mut self, code: Code<'t>, scope: &mut Scope<'_>) -> Result<Node, Mistake> {
        let mut branches = Vec::new();
        let mut opening = code;
        loop {
            let mut parser = Parser::new(self.text, &opening, scope);
            parser.next();
            let test = parser.whole()?;
            let (nodes, end) = self.inner(&opening, &["endif", "elif", "else"], scope)?;
            branches.push((test, nodes));
            match end.word {
                "elif" => opening = end.code,
                "else" => {
                    let (otherwise, _) = self.inner(&end.code, &["endif"], scope)?;
                    return Ok(Node::If { branches, otherwise });
                }
                _ => return Ok(Node::If { branches, otherwise: Vec::new() }),
            }
        }
    }

    fn repetition(&mut self, code: &Code<'t>, scope: &mut Scope<'_>) -> Result<Node, Mistake> {
        let mut parser = Parser::new(self.text, code, scope);
        parser.next();
        let mut names = Vec::new();
        loop {
            let at = parser.at();
            let Some(Token { kind: Kind::Name(name), .. }) = parser.next() else {
                return Err(fault(at, "expected the name of a loop variable"));
            };
            parser.scope.check_target(name).map_err(|reason| fault(at, reason))?;
            names.push((*name).to_owned());
            if !parser.take(",") {
                break;
            }
        }
        if !parser.take_word("in") {
            return Err(parser.unexpected("`in`"));
        }
        // An `if` after the elements is the condition of the loop, and not a conditional
        // expression.
        let (values, next) = parser.written(|parser| parser.binary(0))?;
        let targets = names.len();
        if parser.is_word("recursive") {
            return Err(fault(parser.at(), "loops cannot be recursive"));
        }
        let local = scope.enter(names);
        let mut rest = Parser::new(self.text, code, scope);
        rest.place = next;
        let condition = if rest.take_word("if") {
            Some(rest.whole()?)
        } else {
            rest.end()?;
            None
        };
        scope.begin_loop();
        let (body, end) = self.inner(code, &["endfor", "else"], scope)?;
        scope.leave(local);
        let otherwise = match end.word {
            "else" => self.inner(&end.code, &["endfor"], scope)?.0,
            _ => Vec::new(),
        };
        Ok(Node::For(ForLoop { targets, local, values, condition, body, otherwise }))
    }
}
