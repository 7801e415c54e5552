//! Connects to servers over [streamable HTTP].
//!
//! Connections over streamable HTTP use the HTTP transport of rmcp, which also supports the
//! sessions of older servers. Redirects are followed only within the same origin. Connections to
//! link-local and metadata addresses, where cloud providers serve credentials, are refused. A
//! message may have at most 16 MiB. URLs with `https` need the feature `tls`.
//!
//! A connection over HTTP does not end when the server becomes unreachable: requests fail until the
//! server is reachable again. The server's next response then marks all of its lists as changed in
//! [`Changes`], which notifies clients. If the server no longer knows the session, the connection
//! is treated as lost.
//!
//! If a caller cancels a request over HTTP, the server receives a cancellation message. Such
//! messages are sent one after another, and each that was not sent within five seconds is dropped.
//! A slow server may therefore not receive all cancellations.
//!
//! [streamable HTTP]: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports#streamable-http

pub(super) mod address_policy;
mod client;
mod send_timeout;

use std::{collections::HashMap, sync::Arc};

use http::{HeaderName, HeaderValue};
use rmcp::transport::{
    StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
};
use tower::BoxError;

use self::{client::HttpClient, send_timeout::SendTimeout};
use super::{
    callers::Callers,
    oauth::{Bearer, CallerPool, Grant, OAuth, TokenEndpoint, TokenSource},
    service::{RemoteBuilder, RemoteService},
};
use crate::{
    adapter::{Secrets, secrets::credentials},
    changes::Changes,
    url::Url,
};

/// The maximum number of concurrent requests to one server. Further requests wait.
const CONCURRENT_REQUESTS: usize = 256;

impl RemoteBuilder {
    /// Creates a service that connects over streamable HTTP to the server at `url`.
    ///
    /// The given headers are sent with every HTTP request. Their values never appear in logs and
    /// errors, and neither do the parts of the URL that may be secret: the user and password, the
    /// query, and path segments that may be tokens.
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
    /// Panics if called outside a Tokio runtime, or in one whose time or I/O driver is not enabled.
    #[must_use]
    pub fn http(
        mut self,
        url: &str,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> RemoteService {
        let config = self.http_config(url, headers);
        self.connect(config, None)
    }

    /// Creates a service that connects over streamable HTTP like [`http`](Self::http), and sends an
    /// OAuth access token with every request. See [`oauth`](super::oauth) for how tokens are
    /// requested and used.
    ///
    /// The access token is sent in the `Authorization` header, so `headers` must not contain this
    /// header. The secrets of the OAuth client are redacted in logs and errors.
    ///
    /// # Panics
    ///
    /// Panics if called outside a Tokio runtime, or in one whose time or I/O driver is not enabled.
    #[must_use]
    pub fn http_with_oauth(
        mut self,
        url: &str,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
        oauth: OAuth,
    ) -> RemoteService {
        let config = self.http_config(url, headers);
        let (client, exchange) = match oauth {
            OAuth::ClientCredentials(client) => (client, None),
            OAuth::TokenExchange(exchange) => (exchange.client.clone(), Some(exchange)),
        };
        self.about.secrets = self.about.secrets.and(&client.secrets());
        let endpoint = TokenEndpoint::new(client);
        self.callers = exchange.map(|exchange| -> Arc<dyn Callers> {
            // Callers see the lists of the program's connection, so list changes on callers'
            // connections are not reported.
            let (of_caller, config) = (self.clone().changes(Changes::default()), config.clone());
            let connect = move |bearer, tokens| {
                let mut builder = of_caller.clone();
                builder.about.tokens = tokens;
                builder.connect(config.clone(), Some(bearer))
            };
            let (about, endpoint) = (self.about.clone(), endpoint.clone());
            Arc::new(CallerPool::new(about, &exchange, endpoint, Box::new(connect)))
        });
        let source =
            TokenSource::new(endpoint, Grant::ClientCredentials, self.about.tokens.clone());
        self.connect(config, Some(Bearer::new(source)))
    }

    /// Creates a service that sends an access token from `bearer`, if any, with each of its
    /// requests.
    fn connect(
        self,
        config: StreamableHttpClientTransportConfig,
        bearer: Option<Bearer>,
    ) -> RemoteService {
        self.transport(move || {
            let (config, bearer) = (config.clone(), bearer.clone());
            async move {
                // The token is requested now, so that an error is reported as the reason why
                // connecting failed.
                if let Some(bearer) = &bearer {
                    bearer.source().token().await?;
                }
                let client = HttpClient::new(&config.uri, bearer)?;
                let transport = StreamableHttpClientTransport::with_client(client, config);
                Ok::<_, BoxError>(SendTimeout::new(transport))
            }
        })
    }

    /// Returns the connection settings for the server at `url`. Also registers the secrets in the
    /// URL and in the headers, so that errors and logs redact them.
    fn http_config(
        &mut self,
        url: &str,
        headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> StreamableHttpClientTransportConfig {
        let mut secrets = Url::parse(url).map(|url| url.secrets()).unwrap_or_default();
        let headers: HashMap<_, _> = headers
            .into_iter()
            .map(|(name, mut value)| {
                // Values that are not valid UTF-8 cannot be redacted in texts.
                if let Ok(text) = str::from_utf8(value.as_bytes()) {
                    secrets.extend(credentials(text).map(str::to_owned));
                    secrets.push(text.to_owned());
                }
                // Types that contain the value then show it as `Sensitive` in their `Debug` output.
                value.set_sensitive(true);
                (name, value)
            })
            .collect();
        self.about.secrets = self.about.secrets.and(&Secrets::new(secrets));
        StreamableHttpClientTransportConfig::with_uri(url)
            .custom_headers(headers)
            .max_concurrent_requests(CONCURRENT_REQUESTS)
            .reinit_on_expired_session(false)
    }
}
