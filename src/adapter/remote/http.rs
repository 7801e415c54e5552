//! Servers over [streamable HTTP].
//!
//! rmcp does the HTTP: sessions of older servers, redirects within the same
//! origin, and a bound of 16 MiB for each message. `https` needs the feature `tls`.
//!
//! A connection over HTTP does not break when the server goes away: each request
//! fails for which no connection can be made, and the first that is answered again
//! makes the [`Changes`](crate::changes::Changes) outdated. A session that the
//! server does not know any more is a lost connection.
//!
//! That a request was cancelled is told to a server one at a time, and no more after five
//! seconds: one that is slow to take it may not hear of it.
//!
//! [streamable HTTP]: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports#streamable-http

mod reconnect_pause;
mod send_timeout;

use std::{collections::HashMap, error::Error};

use http::{HeaderName, HeaderValue};
use rmcp::transport::{
    StreamableHttpClientTransport,
    streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError},
};

use self::{reconnect_pause::ReconnectPause, send_timeout::SendTimeout};
use super::{RemoteBuilder, RemoteService};
use crate::{
    adapter::{Secrets, secrets::credentials},
    url::Url,
};

/// How many requests a server may be answering at once. Past it they wait, so
/// this is more than a composite has targets.
const CONCURRENT_REQUESTS: usize = 256;

impl RemoteBuilder {
    /// Connects over streamable HTTP to the server at this URL.
    ///
    /// The headers are sent with every request, and nowhere shown. Their values, and what
    /// is secret in the URL, are [secrets](Self::secrets) like those that are set: the user,
    /// the query, and what may be a token in the path.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{HeaderValue, header::AUTHORIZATION};
    /// use mcp_composite::adapter::RemoteService;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let token = "hunter2";
    /// let authorization = HeaderValue::try_from(format!("Bearer {token}"))?;
    /// let docs = RemoteService::builder("docs")
    ///     .http("http://127.0.0.1:1/mcp", [(AUTHORIZATION, authorization)]);
    ///
    /// assert_eq!(docs.name(), "docs");
    /// assert!(!format!("{docs:?}").contains("hunter2"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with its time and I/O enabled.
    #[must_use]
    pub fn http(
        mut self,
        url: &str,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> RemoteService {
        let mut secrets = Url::parse(url).map(|url| url.secrets()).unwrap_or_default();
        let headers: HashMap<_, _> = headers
            .into_iter()
            .map(|(name, mut value)| {
                // Not all of it need be ASCII.
                if let Ok(text) = str::from_utf8(value.as_bytes()) {
                    secrets.extend(credentials(text).map(str::to_owned));
                    secrets.push(text.to_owned());
                }
                // `Debug` of whatever holds it says `Sensitive`.
                value.set_sensitive(true);
                (name, value)
            })
            .collect();
        self.about.secrets = self.about.secrets.and(&Secrets::new(secrets));
        let config = StreamableHttpClientTransportConfig::with_uri(url)
            .custom_headers(headers)
            .max_concurrent_requests(CONCURRENT_REQUESTS)
            .reinit_on_expired_session(false);
        self.transport(move || {
            // The client of each connection starts with its transport.
            let transport = ReconnectPause::new()
                .map(|client| StreamableHttpClientTransport::with_client(client, config.clone()));
            async move { transport.map(SendTimeout::new) }
        })
    }
}

/// What led to an error of rmcp's transport, which does not say so itself.
pub(super) fn cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error.downcast_ref()? {
        StreamableHttpError::<reqwest::Error>::Client(error) => Some(error),
        _ => None,
    }
}

/// Whether an error says that the server does not know our session any more, as
/// an older one does that was started again.
///
/// rmcp could make a new session in silence, but then nobody would know that the
/// server's tools may be others, and nobody would subscribe again.
pub(super) fn is_end_of_session(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(StreamableHttpError::<reqwest::Error>::SessionExpired))
}
