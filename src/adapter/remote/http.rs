//! Servers over [streamable HTTP].
//!
//! rmcp does the HTTP: sessions of older servers, which are made again when the
//! server has forgotten them, redirects within the same origin, and a bound of
//! 16 MiB for each message. `https` needs the feature `tls`.
//!
//! A connection over HTTP does not break when the server goes away: each request
//! that cannot reach it fails, and the first that does again makes the
//! [`Changes`](crate::changes::Changes) outdated.
//!
//! [streamable HTTP]: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports#streamable-http

use std::collections::HashMap;

use http::{HeaderName, HeaderValue};
use rmcp::transport::{
    StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
};

use super::{RemoteBuilder, RemoteService};

/// How many requests a server may be answering at once. Past it they wait, so
/// this is more than a composite has targets.
const CONCURRENT_REQUESTS: usize = 256;

impl RemoteBuilder {
    /// Connects over streamable HTTP to the server at this URL.
    ///
    /// The headers are sent with every request, and nowhere shown.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use http::{HeaderValue, header::AUTHORIZATION};
    /// use mcp_composite::adapter::RemoteService;
    ///
    /// # let token = "secret";
    /// # fn runtime() -> Result<(), Box<dyn std::error::Error>> {
    /// # let token = "secret";
    /// let authorization = HeaderValue::try_from(format!("Bearer {token}"))?;
    /// let docs = RemoteService::builder("docs")
    ///     .http("https://docs.example.com/mcp", [(AUTHORIZATION, authorization)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with its time and I/O enabled.
    #[must_use]
    pub fn http(
        self,
        url: &str,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> RemoteService {
        let headers: HashMap<_, _> = headers
            .into_iter()
            .map(|(name, mut value)| {
                // `Debug` of whatever holds it says `Sensitive`.
                value.set_sensitive(true);
                (name, value)
            })
            .collect();
        let config = StreamableHttpClientTransportConfig::with_uri(url)
            .custom_headers(headers)
            .max_concurrent_requests(CONCURRENT_REQUESTS);
        self.transport(move || {
            // The client of each connection starts with its transport.
            let transport = StreamableHttpClientTransport::from_config(config.clone());
            async move { Ok::<_, std::convert::Infallible>(transport) }
        })
    }
}
