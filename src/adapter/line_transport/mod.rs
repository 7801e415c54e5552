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

/// [MCP's stdio transport] with limits on the size of messages. Each message is a line of JSON.
///
/// Use `LineTransport` instead of `rmcp::transport::stdio` if the peer is not trusted. A message
/// may contain at most 16 MiB and 262 144 JSON values, where each array, object and object key also
/// counts as a value. A request or notification from a server may contain at most 3 MiB. If a
/// message exceeds a limit:
/// - A request is answered with a JSON-RPC error with the code `-32600`, which states the limit.
/// - A response is replaced by a JSON-RPC error with the code `-32603` for the same request.
/// - Any other message is dropped and logged.
///
/// An `InputRequired` result (protocol version 2026-07-28) may contain at most 32 questions. The
/// transport replaces a result with more questions by an error.
///
/// After an oversized message, the transport continues with the next message. In contrast,
/// `rmcp::transport::stdio` drops an oversized message without an answer, so that the peer may wait
/// for the answer forever.
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
    /// A future that sends the error response to an invalid message. `None` if no error response is
    /// being sent. It is stored here, because rmcp may drop the future of `receive` before the
    /// response is sent.
    reply: Option<BoxFuture<'static, io::Result<()>>>,
    /// The name of the peer in errors and logs. Defaults to `the peer`.
    peer: Cow<'static, str>,
}

// === impl LineTransport ===

impl<Role, R, W> LineTransport<Role, R, W>
where
    Role: Decode,
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// Creates a transport that receives messages from `reader` and sends messages to `writer`, for
    /// example over the pipes of a process.
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

    /// Sets the peer's name in errors and logs. Defaults to `the peer`.
    #[cfg(feature = "stdio")]
    pub(crate) fn peer(mut self, peer: String) -> Self {
        self.peer = peer.into();
        self
    }

    /// Reads the rest of the current line into the buffer. Returns `false` if the stream ends
    /// before the line does.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no input is lost: the next call continues the line.
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

    /// Decodes the message in the current line. Returns `None` if there is no message to pass to
    /// rmcp, because the line is empty, invalid or an oversized request.
    fn message(&mut self) -> Option<RxJsonRpcMessage<Role>> {
        if let Some(excess) = self.line.excess {
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
            // `None` if the line is a notification that is not part of MCP.
            Ok(message) => message,
            // Invalid JSON is not answered, as in other SDKs: the answer might cause the peer to
            // send another invalid line.
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
                    tracing::error!(%error, "failed to read a message of {}", self.peer);
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

/// Checks whether a message of an HTTP event stream contains too many JSON values.
///
/// Returns `None` if the message can be used. Otherwise, returns an error response that replaces
/// the message if it is a response, and `Some(None)` if the message must be dropped.
#[cfg(feature = "http")]
pub(super) fn replace_large(text: &str, peer: &str) -> Option<Option<String>> {
    let mut values = ValueCount::default();
    values.add(text.as_bytes());
    if !values.is_too_large() {
        return None;
    }
    let mut line = Line::new(MAX_LINE_BYTES);
    line.extend(text.as_bytes());
    let excess = line.excess?;
    let Subject::Response(id) = line.subject() else {
        tracing::warn!("{peer} sent a message {excess}; it is dropped");
        return Some(None);
    };
    let error = JsonRpcError::new(Some(id), refused_answer(peer, excess));
    Some(serde_json::to_string(&error).ok())
}

/// Returns the JSON-RPC error that replaces an oversized response of `peer`. `excess` is the limit
/// that the response exceeds.
fn refused_answer(peer: &str, excess: Excess) -> ErrorData {
    ErrorData::internal_error(format!("{peer} sent an answer {excess}"), None)
}

#[cfg(test)]
mod tests;
