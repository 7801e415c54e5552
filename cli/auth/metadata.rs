//! The metadata of a protected resource, as defined in [RFC 9728].
//!
//! [RFC 9728]: https://www.rfc-editor.org/rfc/rfc9728

use axum::{
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use mcp_composite::config::JwtConfig;
use serde_json::json;

/// The path of the metadata, which precedes the path of the resource in the URL of the metadata.
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The metadata of this server, which names its authorization server.
pub(super) struct Metadata {
    /// The metadata as JSON.
    document: String,
    /// The parameters of the header `WWW-Authenticate` that every rejection has.
    challenge: String,
}

// === impl Metadata ===

impl Metadata {
    pub(super) fn new(resource: &str, jwt: &JwtConfig) -> Self {
        let scopes = jwt.scopes();
        let mut document = json!({
            "resource": resource,
            "authorization_servers": [jwt.issuer()],
            "bearer_methods_supported": ["header"],
        });
        let mut challenge = vec![format!("resource_metadata=\"{}\"", url(resource))];
        if !scopes.is_empty() {
            document["scopes_supported"] = scopes.into();
            challenge.push(format!("scope=\"{}\"", scopes.join(" ")));
        }
        let challenge = challenge.join(", ");
        Self { document: document.to_string(), challenge }
    }

    pub(super) fn challenge(&self) -> &str {
        &self.challenge
    }

    /// Returns the metadata as a response, or the status 404 if the server has none.
    pub(super) fn response(metadata: Option<&Self>) -> Response {
        let Some(metadata) = metadata else { return StatusCode::NOT_FOUND.into_response() };
        let json = HeaderValue::from_static("application/json");
        ([(CONTENT_TYPE, json)], metadata.document.clone()).into_response()
    }
}

/// Returns the URL of the metadata of a resource: the well-known path comes between the host and
/// the path of the resource.
fn url(resource: &str) -> String {
    let (scheme, rest) = resource.split_once("://").unwrap_or(("https", resource));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{scheme}://{host}{WELL_KNOWN}{}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_url_has_the_well_known_path_before_that_of_the_resource() {
        for (resource, expected) in [
            ("https://a.example/mcp", "https://a.example/.well-known/oauth-protected-resource/mcp"),
            (
                "https://a.example:8443",
                "https://a.example:8443/.well-known/oauth-protected-resource",
            ),
            ("https://a.example/", "https://a.example/.well-known/oauth-protected-resource"),
        ] {
            assert_eq!(url(resource), expected);
        }
    }
}
