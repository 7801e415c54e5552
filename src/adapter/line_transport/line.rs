//! A buffer for one line of input. It enforces the limits on the size of a message.

use rmcp::model::{NumberOrString, RequestId};
use tokio_util::bytes::BytesMut;

use crate::adapter::value_count::{MAX_VALUES, ValueCount};

/// The maximum size of a message in bytes. rmcp's own transports have the same default.
pub(super) const MAX_LINE_BYTES: usize = 16 << 20;
/// The number of bytes that are kept from each end of an oversized message, to search them for the
/// `id` of the message.
const ENDS_KEPT: usize = 512;
/// The maximum capacity in bytes of a buffer that is reused for the next line. A larger buffer is
/// freed.
const MEMORY_KEPT: usize = 64 << 10;

/// A buffer for one line of input. The line may arrive in several pieces.
#[derive(Debug)]
pub(super) struct Line {
    /// The maximum size in bytes of a request or notification from the peer. Responses may be
    /// larger, up to [`MAX_LINE_BYTES`].
    max_request: usize,
    /// The bytes of the line. If the line exceeds a limit, this buffer contains only the first
    /// bytes.
    pub(super) bytes: BytesMut,
    /// The last bytes of a line that exceeds a limit.
    tail: Vec<u8>,
    /// The limit that the line exceeds, or `None` if it is within all limits.
    pub(super) excess: Option<Excess>,
    values: ValueCount,
}

/// A limit that an incoming message has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Excess {
    #[error("of more than {} MiB", .0 >> 20)]
    Bytes(usize),
    #[error("with more than {MAX_VALUES} JSON values")]
    Values,
}

/// The kind of an oversized message. A request is answered with an error, a response is replaced by
/// an error, and any other message is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Request(RequestId),
    Response(RequestId),
    /// A notification, or a message whose `id` was not found near its beginning or its end.
    Other,
}

// === impl Line ===

impl Line {
    pub(super) fn new(max_request: usize) -> Self {
        Self {
            max_request,
            bytes: BytesMut::new(),
            tail: Vec::new(),
            excess: None,
            values: ValueCount::default(),
        }
    }

    pub(super) fn extend(&mut self, piece: &[u8]) {
        if self.excess.is_none() {
            self.values.add(piece);
            self.excess = self.exceeded(piece.len());
        }
        if self.excess.is_none() {
            return self.bytes.extend_from_slice(piece);
        }
        if self.tail.is_empty() {
            let start = self.bytes.len().saturating_sub(ENDS_KEPT);
            self.tail.extend_from_slice(&self.bytes[start..]);
            // Frees the memory of the rest of the line.
            self.bytes = BytesMut::from(&self.bytes[..self.bytes.len().min(ENDS_KEPT)]);
        }
        let room = ENDS_KEPT.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&piece[..room.min(piece.len())]);
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(ENDS_KEPT)..]);
        self.tail.drain(..self.tail.len().saturating_sub(ENDS_KEPT));
    }

    /// Returns the limit that the line would exceed if `more` bytes were added to it. Returns
    /// `None` if it would exceed no limit.
    fn exceeded(&self, more: usize) -> Option<Excess> {
        let length = self.bytes.len() + more;
        let max_request = self.max_request;
        if length >= MAX_LINE_BYTES {
            Some(Excess::Bytes(MAX_LINE_BYTES))
        } else if self.values.is_too_large() {
            Some(Excess::Values)
        } else if self.bytes.len() < max_request && length >= max_request && !self.is_response() {
            Some(Excess::Bytes(max_request))
        } else {
            None
        }
    }

    fn is_response(&self) -> bool {
        let head = String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(ENDS_KEPT)]);
        Head::of(&head).is_response
    }

    /// Determines the kind of an oversized message from its first and last bytes.
    ///
    /// All known MCP libraries write the `id` near the beginning or the end of a message. A peer
    /// that writes a wrong `id` only affects requests between itself and this process.
    pub(super) fn subject(&self) -> Subject {
        let head = String::from_utf8_lossy(&self.bytes);
        let tail = String::from_utf8_lossy(&self.tail);
        let Head { outside, is_response } = Head::of(&head);
        match id_of_head(outside).or_else(|| id_of_tail(&tail)) {
            Some(id) if is_response => Subject::Response(id),
            Some(id) => Subject::Request(id),
            None => Subject::Other,
        }
    }

    /// Empties the buffer, so that it can be used for the next line.
    pub(super) fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        if bytes.capacity() > MEMORY_KEPT {
            bytes = BytesMut::new();
        }
        *self = Self { bytes, ..Self::new(self.max_request) };
    }
}

/// The beginning of a message that is too large to be parsed.
struct Head<'a> {
    /// The text of the message before the first of the keys `params`, `result` and `error`.
    outside: &'a str,
    is_response: bool,
}

// === impl Head ===

impl<'a> Head<'a> {
    fn of(head: &'a str) -> Self {
        let keys = [r#""result""#, r#""error""#, r#""params""#];
        let content = keys.into_iter().filter_map(|key| head.find(key)).min();
        let (outside, content) = head.split_at(content.unwrap_or(head.len()));
        // If `params` comes first, the `method` of a request may be in the unscanned rest.
        let is_response = !outside.contains(r#""method""#) && !content.starts_with(keys[2]);
        Self { outside, is_response }
    }
}

fn id_of_head(head: &str) -> Option<RequestId> {
    let (_, after) = head.split_once(r#""id""#)?;
    Some(id(after)?.0)
}

fn id_of_tail(tail: &str) -> Option<RequestId> {
    let (_, after) = tail.rsplit_once(r#""id""#)?;
    let (id, rest) = id(after)?;
    // After the `id`, only the JSON-RPC version may follow. Otherwise, the `id` belongs to the
    // content.
    let rest = rest.replace([' ', '\r'], "");
    matches!(&*rest, "}" | r#","jsonrpc":"2.0"}"#).then_some(id)
}

/// Parses a JSON-RPC id from the text that follows an `"id"` key. Returns the id and the rest of
/// the text. Returns `None` if the text does not start with a number or a string without escapes.
fn id(text: &str) -> Option<(RequestId, &str)> {
    let text = text.trim_start_matches([' ', ':']);
    if let Some(text) = text.strip_prefix('"') {
        let (id, rest) = text.split_once('"')?;
        // Strings with escaped characters are not supported, because no known peer escapes the
        // characters of an id.
        return (!id.contains('\\')).then(|| (NumberOrString::String(id.into()), rest));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((NumberOrString::Number(digits.parse().ok()?), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        let mut line = Line::new(MAX_LINE_BYTES);
        for piece in text.as_bytes().chunks(8_192) {
            line.extend(piece);
        }
        line
    }

    fn long() -> String {
        "x".repeat(MAX_LINE_BYTES)
    }

    #[test]
    fn line_within_limits_is_kept() {
        let text = "x".repeat(MAX_LINE_BYTES - 1);
        let kept = line(&text);
        assert_eq!((kept.excess, &*kept.bytes), (None, text.as_bytes()));
        let values = format!("[{}0]", "0,".repeat(MAX_VALUES - 1));
        assert_eq!(line(&values).excess, None);
    }

    #[test]
    fn line_beyond_a_limit_takes_bounded_memory() {
        let mut long_line = line(&long());
        assert_eq!(long_line.excess, Some(Excess::Bytes(MAX_LINE_BYTES)));
        assert!(long_line.bytes.capacity() + long_line.tail.capacity() < 32 * ENDS_KEPT);
        long_line.clear();
        assert_eq!((long_line.excess, long_line.bytes.len()), (None, 0));
        let values = format!("[{}0]", "0,".repeat(MAX_VALUES));
        assert_eq!(line(&values).excess, Some(Excess::Values));
    }

    #[test]
    fn request_has_its_own_byte_limit() {
        let parameters = "x".repeat(4 << 20);
        for (text, is_refused) in [
            (format!(r#"{{"id":1,"method":"roots/list","params":"{parameters}"}}"#), true),
            (format!(r#"{{"method":"notifications/message","params":"{parameters}"}}"#), true),
            (format!(r#"{{"params":"{parameters}","method":"roots/list","id":1}}"#), true),
            (format!(r#"{{"id":1,"result":"{parameters}"}}"#), false),
            (format!(r#"{{"result":"{parameters}","id":1}}"#), false),
        ] {
            let mut line = Line::new(1 << 20);
            text.as_bytes().chunks(8_192).for_each(|piece| line.extend(piece));
            assert_eq!(line.excess, is_refused.then_some(Excess::Bytes(1 << 20)), "{text:.40}");
        }
    }

    #[test]
    fn response_beyond_a_limit_is_recognized() {
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{}"}}"#, long()),
            format!(r#"{{"result":"{}","jsonrpc":"2.0","id": 7}}"#, long()),
            format!(r#"{{"result":"{}","id":7,"jsonrpc":"2.0"}}"#, long()),
            format!(r#"{{"id":7,"result":{{"method":"GET","body":"{}"}}}}"#, long()),
        ] {
            assert_eq!(line(&text).subject(), Subject::Response(NumberOrString::Number(7)));
        }
    }

    #[test]
    fn request_beyond_a_limit_is_recognized() {
        for text in [
            format!(r#"{{"id":"a-1","method":"tools/call","params":"{}"}}"#, long()),
            format!(r#"{{"method":"tools/call","params":"{}","id": "a-1"}}"#, long()),
            format!(r#"{{"params":"{}","method":"tools/call","id":"a-1"}}"#, long()),
        ] {
            let id = NumberOrString::String("a-1".into());
            assert_eq!(line(&text).subject(), Subject::Request(id));
        }
    }

    #[test]
    fn other_line_beyond_a_limit_has_no_subject() {
        for text in [
            long(),
            format!(r#"{{"method":"notifications/message","params":"{}"}}"#, long()),
            format!(r#"{{"result":"{}\"id\":7}}"#, long()),
            format!(r#"{{"id":"\u0031","result":"{}"}}"#, long()),
        ] {
            assert_eq!(line(&text).subject(), Subject::Other);
        }
    }
}
