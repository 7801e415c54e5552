//! MCP's stdio transport with limits on each message.

mod decode;
mod line;

use std::{borrow::Cow, fmt, io};

use futures::{FutureExt, future::BoxFuture};
#[cfg(feature = "http")]
use rmcp::model::JsonRpcError;
use rmcp::{
    model::{ErrorData, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage},
    transport::{
        Transport,
        async_rw::{AsyncRwTransport, JsonRpcMessageCodec, JsonRpcMessageCodecError},
    },
};
use serde_json::error::Category;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, Empty, empty};
use tokio_util::codec::Decoder;

#[cfg(feature = "http")]
use self::line::MAX_LINE_BYTES;
use self::{
    decode::Decode,
    line::{Excess, Line, Subject},
};
#[cfg(feature = "http")]
use super::value_count::ValueCount;

/// Sends and receives messages as lines of JSON: [MCP's stdio transport].
///
/// It replaces `rmcp::transport::stdio` for untrusted peers. A message may have 16 MiB and 262 144
/// JSON values; keys, arrays and objects count as values, too. Values are counted before a message
/// is parsed, so that a message takes neither hundreds of MiB of memory nor a worker thread of the
/// runtime for long. A request or notification of a server may have 3 MiB. Beyond a limit,
///
/// - a request is answered with the error `-32600`, which states the reason;
/// - a response becomes the error `-32603` for the request that it answers;
/// - any other message is dropped and logged.
///
/// A result of 2026-07-28 that asks more than 32 questions becomes an error, too.
///
/// The next message is read as usual. rmcp's transport drops messages beyond its limit, so the
/// requests or responses in them are never answered.
///
/// # Examples
///
/// ```
/// use mcp_composite::adapter::LineTransport;
/// use rmcp::{RoleServer, ServerHandler, ServiceExt};
///
/// struct Shop;
///
/// impl ServerHandler for Shop {}
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A server over pipes has `tokio::io::stdin()` and `tokio::io::stdout()` instead.
/// let (near, far) = tokio::io::duplex(4096);
/// let (reader, writer) = tokio::io::split(near);
/// let transport = LineTransport::<RoleServer, _, _>::new(reader, writer);
/// let (server, client) = tokio::join!(Shop.serve(transport), ().serve(far));
/// let (_server, client) = (server?, client?);
/// assert!(client.peer_info().is_some());
/// # Ok(())
/// # }
/// ```
///
/// [MCP's stdio transport]: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports#stdio
pub struct LineTransport<Role: ServiceRole, R, W: AsyncWrite> {
    reader: BufReader<R>,
    line: Line,
    decoder: JsonRpcMessageCodec<RxJsonRpcMessage<Role>>,
    writer: AsyncRwTransport<Role, Empty, W>,
    /// The answer to a message that could not be used. rmcp drops the future of `receive` at any
    /// time, so the answer is kept here until it has been sent.
    reply: Option<BoxFuture<'static, io::Result<()>>>,
    /// The name of the peer in errors.
    peer: Cow<'static, str>,
}

// === impl LineTransport ===

impl<Role, R, W> LineTransport<Role, R, W>
where
    Role: Decode,
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Creates a transport from a reader and a writer.
    pub fn new(reader: R, writer: W) -> Self {
        Self {
            reader: BufReader::new(reader),
            line: Line::new(Role::max_request()),
            decoder: JsonRpcMessageCodec::default(),
            writer: AsyncRwTransport::new(empty(), writer),
            reply: None,
            peer: "the peer".into(),
        }
    }

    /// Sets the name of the peer in errors.
    #[cfg(feature = "stdio")]
    pub(crate) fn peer(mut self, peer: String) -> Self {
        self.peer = peer.into();
        self
    }

    /// Reads up to the end of the line, and returns `false` at the end of the stream.
    ///
    /// # Cancel safety
    ///
    /// A later call continues the line.
    async fn read_line(&mut self) -> io::Result<bool> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(false);
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            self.line.extend(&available[..end.unwrap_or(available.len())]);
            let consumed = end.map_or(available.len(), |end| end + 1);
            self.reader.consume(consumed);
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// Returns the message of a line, if it contains one.
    fn message(&mut self) -> Option<RxJsonRpcMessage<Role>> {
        if let Some(excess) = self.line.excess() {
            let peer = &self.peer;
            return match self.line.subject() {
                Subject::Request(id) => {
                    let text = format!("{peer} sent a request {excess}");
                    self.reply(ErrorData::invalid_request(text, None), Some(id));
                    None
                }
                Subject::Response(id) => {
                    Some(JsonRpcMessage::error(refused_answer(peer, excess), Some(id)))
                }
                Subject::Other => {
                    tracing::warn!("{peer} sent a message {excess}; it is dropped");
                    None
                }
            };
        }
        if self.line.bytes.trim_ascii().is_empty() {
            return None;
        }
        if let Some(message) = Role::decode(&self.line.bytes, &self.peer) {
            return Some(message);
        }
        self.line.bytes.extend_from_slice(b"\n");
        match self.decoder.decode(&mut self.line.bytes) {
            // `None` is a notification of another protocol.
            Ok(message) => message,
            // Not answered, like in other SDKs: an answer to invalid JSON might cause the next
            // invalid line.
            Err(JsonRpcMessageCodecError::Serde(error))
                if matches!(error.classify(), Category::Syntax | Category::Eof) =>
            {
                tracing::debug!(%error, "{} sent a line that is not JSON", self.peer);
                None
            }
            Err(error) => {
                tracing::debug!(%error, "{} sent a line that is not a message", self.peer);
                self.reply(ErrorData::invalid_request("Invalid request", None), None);
                None
            }
        }
    }

    fn reply(&mut self, error: ErrorData, id: Option<RequestId>) {
        let sent = self.writer.send(JsonRpcMessage::error(error, id));
        self.reply = Some(sent.boxed());
    }
}

impl<Role, R, W> Transport<Role> for LineTransport<Role, R, W>
where
    Role: Decode,
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<Role>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.writer.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<Role>> {
        loop {
            if let Some(reply) = &mut self.reply {
                let sent = reply.await;
                self.reply = None;
                sent.ok()?;
            }
            match self.read_line().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    tracing::error!(%error, "a message of {} cannot be read", self.peer);
                    return None;
                }
            }
            let message = self.message();
            self.line.clear();
            if message.is_some() {
                return message;
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        self.writer.close()
    }
}

impl<Role: ServiceRole, R, W: AsyncWrite> fmt::Debug for LineTransport<Role, R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineTransport").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Returns the error that replaces a response with too many values, and `Some(None)` for another
/// message with too many. Used for text that does not arrive as lines.
#[cfg(feature = "http")]
pub(super) fn replace_large(text: &str, peer: &str) -> Option<Option<String>> {
    let mut values = ValueCount::default();
    values.add(text.as_bytes());
    if !values.is_too_large() {
        return None;
    }
    let mut line = Line::new(MAX_LINE_BYTES);
    line.extend(text.as_bytes());
    let excess = line.excess()?;
    let Subject::Response(id) = line.subject() else {
        tracing::warn!("{peer} sent a message {excess}; it is dropped");
        return Some(None);
    };
    let error = JsonRpcError::new(Some(id), refused_answer(peer, excess));
    Some(serde_json::to_string(&error).ok())
}

/// Returns the error for the request whose response exceeds a limit.
fn refused_answer(peer: &str, excess: Excess) -> ErrorData {
    ErrorData::internal_error(format!("{peer} sent an answer {excess}"), None)
}

#[cfg(test)]
mod tests;
