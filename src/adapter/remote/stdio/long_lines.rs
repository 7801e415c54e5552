use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rmcp::transport::async_rw::DEFAULT_MAX_LINE_LENGTH;
use serde_json::json;
use tokio::io::{AsyncRead, ReadBuf};

/// How much of both ends of a long line is kept to find out what it answers.
const ENDS_KEPT: usize = 512;

/// Reads lines, and adds an error after each that is too long for rmcp.
///
/// rmcp leaves such a line out, and whoever waits for the answer in it would wait
/// for ever. Its `id` stands near one of its ends, whichever server wrote it.
pub(super) struct LongLines<R> {
    reader: R,
    backend: Arc<str>,
    /// How long the line is so far.
    length: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
    /// What is added, as far as it was not read yet.
    added: Vec<u8>,
    /// What comes after it.
    rest: Vec<u8>,
}

// === impl LongLines ===

impl<R> LongLines<R> {
    pub(super) const fn new(reader: R, backend: Arc<str>) -> Self {
        Self {
            reader,
            backend,
            length: 0,
            head: Vec::new(),
            tail: Vec::new(),
            added: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// Takes note of bytes that were read, up to the end of a line that is too
    /// long; says where that is.
    fn follow(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut start = 0;
        while let Some(length) = bytes[start..].iter().position(|&byte| byte == b'\n') {
            let end = start + length;
            self.extend(&bytes[start..end]);
            start = end + 1;
            // rmcp counts the end of the line.
            if self.length < DEFAULT_MAX_LINE_LENGTH {
                self.begin();
                continue;
            }
            if let Some(id) = answered(&self.head, &self.tail) {
                self.added = error(id, &self.backend);
            }
            self.begin();
            return Some(start);
        }
        self.extend(&bytes[start..]);
        None
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.length = self.length.saturating_add(bytes.len());
        let room = ENDS_KEPT.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(ENDS_KEPT)..]);
        self.tail.drain(..self.tail.len().saturating_sub(ENDS_KEPT));
    }

    fn begin(&mut self) {
        self.length = 0;
        self.head.clear();
        self.tail.clear();
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for LongLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.added.is_empty() {
            take(&mut self.added, buffer);
            return Poll::Ready(Ok(()));
        }
        let start = buffer.filled().len();
        if self.rest.is_empty() {
            ready!(Pin::new(&mut self.reader).poll_read(cx, buffer))?;
        } else {
            take(&mut self.rest, buffer);
        }
        if let Some(end) = self.follow(&buffer.filled()[start..]) {
            // What comes after the line comes after what is added to it.
            let rest = &buffer.filled()[start + end..];
            self.rest.splice(..0, rest.iter().copied());
            buffer.set_filled(start + end);
        }
        Poll::Ready(Ok(()))
    }
}

/// Moves as much into the buffer as there is room for.
fn take(bytes: &mut Vec<u8>, buffer: &mut ReadBuf<'_>) {
    let taken = bytes.len().min(buffer.remaining());
    buffer.put_slice(&bytes[..taken]);
    bytes.drain(..taken);
}

fn error(id: u64, backend: &str) -> Vec<u8> {
    let message = format!(
        "backend `{backend}` sent an answer of more than {} MiB",
        DEFAULT_MAX_LINE_LENGTH / (1024 * 1024)
    );
    let code = rmcp::model::ErrorCode::INTERNAL_ERROR.0;
    let error = json!({
        "jsonrpc": "2.0",
        "id": id,
        "error": { "code": code, "message": message },
    });
    format!("{error}\n").into_bytes()
}

/// The id of the request that a line answers, from both of its ends.
///
/// Ours are numbers. A server that lies about it harms only calls to itself.
fn answered(head: &[u8], tail: &[u8]) -> Option<u64> {
    let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
    let outside = [r#""result""#, r#""error""#]
        .into_iter()
        .filter_map(|key| head.find(key))
        .min()
        .map_or(&*head, |content| &head[..content]);
    // A request of the server's own has an id of its own.
    if outside.contains(r#""method""#) {
        return None;
    }
    let (_, after) = outside.split_once(r#""id""#).or_else(|| {
        let (before, after) = tail.rsplit_once(r#""id""#)?;
        // Nothing but the version may follow, else it is in the content.
        let follows = after.trim_start_matches([' ', ':']).trim_start_matches(char::is_numeric);
        let follows = follows.replace([' ', '\r'], "");
        matches!(&*follows, "}" | r#","jsonrpc":"2.0"}"#).then_some((before, after))
    })?;
    let digits = after.trim_start_matches([' ', ':']);
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// What comes out if this goes in.
    async fn read(text: &[u8]) -> String {
        let mut lines = LongLines::new(text, "far".into());
        let mut out = Vec::new();
        lines.read_to_end(&mut out).await.unwrap();
        String::from_utf8(out).unwrap()
    }

    fn long() -> String {
        "x".repeat(DEFAULT_MAX_LINE_LENGTH)
    }

    #[tokio::test]
    async fn short_lines_stay_as_they_are() {
        let text = "{\"id\":1}\n\nno JSON\n{\"id\":2}";
        assert_eq!(read(text.as_bytes()).await, text);
    }

    #[tokio::test]
    async fn an_error_follows_a_line_that_is_too_long() {
        for line in [
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{}"}}"#, long()),
            format!(r#"{{"result":"{}","jsonrpc":"2.0","id": 7}}"#, long()),
            format!(r#"{{"result":"{}","id":7,"jsonrpc":"2.0"}}"#, long()),
            format!(r#"{{"id":7,"result":{{"method":"GET","body":"{}"}}}}"#, long()),
        ] {
            let out = read(format!("one\n{line}\ntwo\n").as_bytes()).await;
            let lines: Vec<_> = out.lines().collect();
            assert_eq!((lines[0], lines[1].len(), lines[3]), ("one", line.len(), "two"));
            let error: serde_json::Value = serde_json::from_str(lines[2]).unwrap();
            assert_eq!(error["id"], 7);
            let message = error["error"]["message"].as_str().unwrap();
            assert_eq!(message, "backend `far` sent an answer of more than 16 MiB");
        }
    }

    #[tokio::test]
    async fn a_long_line_that_answers_nothing_is_followed_by_nothing() {
        for line in [
            long(),
            format!(r#"{{"id":7,"method":"{}"}}"#, long()),
            format!(r#"{{"result":"{}\"id\":7}}"#, long()),
        ] {
            let text = format!("{line}\ntwo");
            assert_eq!(read(text.as_bytes()).await, text);
        }
    }
}
