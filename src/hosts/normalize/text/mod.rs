//! Finds blocks of tool calls in the text of a model. Each block is enclosed in two markers.

pub(super) mod hermes;
pub(super) mod lfm;
mod literal;

use serde::de::IgnoredAny;

use super::{error::OutputError, limits::ParseLimits};

const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";
/// Maximum number of spaces before a marker at the beginning of a line. With more spaces, the line
/// is a code block in Markdown.
const INDENT: usize = 3;
/// Maximum number of times that the search for calls returns to an earlier position in the text to
/// parse it in a different way.
///
/// The limit bounds the run time, because the search may scan the rest of the text after each
/// return.
const RETRIES: usize = 128;

/// The markers that enclose a block of tool calls in the text of a model.
struct Markers {
    start: &'static str,
    end: &'static str,
    /// The quotation marks that enclose strings in a block. An end marker within a string does not
    /// end the block.
    quotes: &'static [u8],
    /// `true` if a block must contain JSON. `false` if it may also contain calls in Python syntax.
    is_json: bool,
}

/// A block of tool calls that was found in the text of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block<'t> {
    Closed(&'t str),
    /// The end marker of the block is missing, so the block is incomplete.
    Open,
}

/// The opening fence of a Markdown code block, such as three backticks.
#[derive(Clone, Copy)]
struct Fence {
    of: char,
    length: usize,
}

// === impl Markers ===

impl Markers {
    /// Returns the blocks of tool calls in the text of a model. Ignores blocks in Markdown code
    /// blocks, and in thoughts of the model such as `<think>…</think>`.
    fn blocks<'t>(
        &self,
        text: &'t str,
        limits: &ParseLimits,
    ) -> Result<Vec<Block<'t>>, OutputError> {
        if text.len() > limits.max_bytes {
            return Err(OutputError::TooLarge { limit: limits.max_bytes });
        }
        let mut blocks = Vec::new();
        let mut fence: Option<Fence> = None;
        // The text after the first `</think>` in the open fence, which would end a thought if the
        // fence is never closed.
        let mut after_fenced = None;
        let mut retries = RETRIES;
        let mut rest = text;
        // `rest` always starts at a position where a marker is allowed: at the beginning of a line,
        // or directly after a block or a thought.
        while !rest.is_empty() {
            let unindented = rest.trim_start_matches(' ');
            let is_code = rest.len() - unindented.len() > INDENT;
            if fence.is_none() && !is_code {
                if let Some(thought) = unindented.strip_prefix(THINK) {
                    match thought.split_once(THOUGHT) {
                        Some((_, after)) => rest = after,
                        // The output ended within the thought, so it contains no further calls.
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
            // The end of the line is searched only when the whole line is skipped, because a line
            // may contain many blocks.
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
            // The fence was never closed, so it was part of a thought.
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

    /// Returns the byte offset of the end marker in `body`, which begins after the start marker.
    /// Returns `None` if the block has no end marker.
    ///
    /// An end marker within a string does not end the block. However, if the block must be JSON and
    /// is not valid JSON, it is unclear where strings begin and end. Then the block ends at the
    /// first end marker.
    ///
    /// If the first end marker belongs to a string, the block ends too early, and the rest of the
    /// string is searched for calls. It cannot contain a JSON call, because the quotes of the call
    /// would be escaped. Calls in Python syntax need no quotes, so only blocks that must be JSON
    /// end at the first end marker.
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
        let mut position = 0;
        while position < bytes.len() {
            let byte = bytes[position];
            match quote {
                Some(_) if byte == b'\\' => position += 1,
                Some(open) if byte == open => quote = None,
                Some(_) => (),
                None if self.quotes.contains(&byte) => quote = Some(byte),
                None if bytes[position..].starts_with(self.end.as_bytes()) => {
                    return Some(position);
                }
                None => (),
            }
            position += 1;
        }
        None
    }
}

/// Returns the text after the first `</think>` in the first line of `text` that has no matching
/// `<think>` in this line. It ends a thought of the model that may have begun in the prompt.
/// Returns `None` if the line contains no such `</think>`.
fn after_thought(text: &str) -> Option<&str> {
    let mut is_opened_here = false;
    for (position, _) in text.match_indices(['<', '\n']) {
        let rest = &text[position..];
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
    /// If this line opens a fenced code block, returns its fence. Otherwise returns `None`.
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
