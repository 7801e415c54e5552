//! Calls in the text of a model, between two markers.

pub(super) mod hermes;
pub(super) mod lfm;
mod literal;

use serde::de::IgnoredAny;

use super::{error::OutputError, limits::Limits};

const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";
/// By how much a line of Markdown may be indented that is no code.
const INDENT: usize = 3;
/// How often something in a text is looked at in another way.
///
/// Each time the text may be searched to its end.
const RETRIES: usize = 128;

/// What calls stand between.
struct Markers {
    start: &'static str,
    end: &'static str,
    /// What texts between them stand in.
    quotes: &'static [u8],
    /// Whether only JSON may stand between them.
    is_json: bool,
}

/// What stands between two markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block<'t> {
    Closed(&'t str),
    /// There is no end to it.
    Open,
}

/// How a part of a text is fenced off as code.
#[derive(Clone, Copy)]
struct Fence {
    of: char,
    length: usize,
}

// === impl Markers ===

impl Markers {
    /// The blocks of a text that are no quotation.
    fn blocks<'t>(&self, text: &'t str, limits: &Limits) -> Result<Vec<Block<'t>>, OutputError> {
        if text.len() > limits.max_bytes {
            return Err(OutputError::TooLarge { limit: limits.max_bytes });
        }
        let mut blocks = Vec::new();
        let mut fence: Option<Fence> = None;
        // What follows a thought that ends within the fence.
        let mut after_fenced = None;
        let mut retries = RETRIES;
        let mut rest = text;
        // Always at the beginning of a line, or after what counts as one.
        while !rest.is_empty() {
            let unindented = rest.trim_start_matches(' ');
            let is_code = rest.len() - unindented.len() > INDENT;
            if fence.is_none() && !is_code {
                if let Some(thought) = unindented.strip_prefix(THINK) {
                    match thought.split_once(THOUGHT) {
                        Some((_, after)) => rest = after,
                        // It was stopped before it said anything.
                        None => break,
                    }
                    continue;
                }
                if let Some(body) = unindented.strip_prefix(self.start) {
                    let Some(end) = self.end_of(body, &mut retries) else {
                        blocks.push(Block::Open);
                        break;
                    };
                    blocks.push(Block::Closed(&body[..end]));
                    rest = &body[end + self.end.len()..];
                    continue;
                }
            }
            if fence.is_none()
                && let Some(after) = after_thought(rest)
            {
                blocks.clear();
                rest = after;
                continue;
            }
            // Not before it is known that the whole line is passed: there may be many
            // blocks on one.
            let (line, next_lines) = rest.split_once('\n').unwrap_or((rest, ""));
            let line = line.trim_start_matches(' ');
            match fence {
                Some(open) if !is_code && open.is_closed_by(line) => {
                    (fence, after_fenced) = (None, None);
                }
                Some(_) => after_fenced = after_fenced.or_else(|| after_thought(rest)),
                None if !is_code => fence = Fence::opened_by(line),
                None => (),
            }
            rest = next_lines;
            // A fence that nothing closes was a part of the thought.
            if rest.is_empty()
                && let Some(after) = after_fenced.take()
            {
                blocks.clear();
                fence = None;
                if retries > 0 {
                    retries -= 1;
                    rest = after;
                }
            }
        }
        Ok(blocks)
    }

    /// Where a block ends. An end within a text of it is none, unless it is no JSON
    /// where it has to be: its quotes may tell nothing then.
    ///
    /// No call hides in a text so: it would have quotes itself, and they are escaped.
    /// That is not so where calls need no quotes, as in the syntax of Python.
    fn end_of(&self, body: &str, retries: &mut usize) -> Option<usize> {
        let end = self.end_outside_texts(body);
        let is_good = |end| serde_json::from_str::<IgnoredAny>(&body[..end]).is_ok();
        if !self.is_json || *retries == 0 || end.is_some_and(is_good) {
            return end;
        }
        *retries -= 1;
        body.find(self.end)
    }

    fn end_outside_texts(&self, body: &str) -> Option<usize> {
        let bytes = body.as_bytes();
        let mut quote = None;
        let mut place = 0;
        while place < bytes.len() {
            let byte = bytes[place];
            match quote {
                Some(_) if byte == b'\\' => place += 1,
                Some(open) if byte == open => quote = None,
                Some(_) => (),
                None if self.quotes.contains(&byte) => quote = Some(byte),
                None if bytes[place..].starts_with(self.end.as_bytes()) => return Some(place),
                None => (),
            }
            place += 1;
        }
        None
    }
}

/// What follows a thought that ends in the first line of a text and begins before it, at
/// the latest in the prompt.
fn after_thought(text: &str) -> Option<&str> {
    let mut is_opened_here = false;
    for (place, _) in text.match_indices(['<', '\n']) {
        let rest = &text[place..];
        match rest.strip_prefix(THOUGHT) {
            Some(after) if !is_opened_here => return Some(after),
            Some(_) => is_opened_here = false,
            None if rest.starts_with('\n') => break,
            None => is_opened_here |= rest.starts_with(THINK),
        }
    }
    None
}

// === impl Fence ===

impl Fence {
    /// The fence that a line is, if it is one.
    fn opened_by(line: &str) -> Option<Self> {
        let of = line.chars().next().filter(|first| matches!(first, '`' | '~'))?;
        let info = line.trim_start_matches(of);
        let length = line.len() - info.len();
        let is_fence = length >= 3 && !(of == '`' && info.contains('`'));
        is_fence.then_some(Self { of, length })
    }

    fn is_closed_by(self, line: &str) -> bool {
        let after = line.trim_start_matches(self.of);
        line.len() - after.len() >= self.length && after.trim().is_empty()
    }
}

#[cfg(test)]
mod tests;
