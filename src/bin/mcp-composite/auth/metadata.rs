//! The metadata of a protected resource, as defined in [RFC 9728].
//!
//! [RFC 9728]: https://www.rfc-editor.org/rfc/rfc9728

use axum::{
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use mcp_composite::config::{JwtConfig, View};
use serde_json::json;

/// The path of the metadata, which precedes the path of the resource in the URL of the metadata.
pub(super) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The path of the endpoint of the file itself, with which `resource` usually ends.
const MAIN: &str = "/mcp";

/// The metadata of this server, which names its authorization server.
#[derive(Clone)]
pub(super) struct Metadata {
    /// The metadata as JSON.
    document: String,
    /// The parameters of the header `WWW-Authenticate` that every rejection has.
    challenge: String,
}

// === impl Metadata ===

impl Metadata {
    /// Creates the metadata of a resource whose tokens need the scopes of `jwt` and `more`.
    pub(super) fn new(resource: &str, jwt: &JwtConfig, more: &[String]) -> Self {
        let mut scopes = jwt.scopes().to_vec();
        scopes.extend(more.iter().filter(|scope| !jwt.scopes().contains(scope)).cloned());
        let mut document = json!({
            "resource": resource,
            "authorization_servers": [jwt.issuer()],
            "bearer_methods_supported": ["header"],
        });
        let mut challenge = vec![format!("resource_metadata=\"{}\"", url(resource))];
        if !scopes.is_empty() {
            challenge.push(format!("scope=\"{}\"", scopes.join(" ")));
            document["scopes_supported"] = scopes.into();
        }
        let challenge = challenge.join(", ");
        Self { document: document.to_string(), challenge }
    }

    /// Creates the metadata of a view. `resource` is the URL of the file itself.
    pub(super) fn of_view(resource: &str, jwt: &JwtConfig, view: &View) -> Option<Self> {
        Some(Self::new(&url_of_view(resource, view)?, jwt, &view.scopes()))
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

/// Returns the public URL of a view: that of the file itself with the path of the view instead of
/// `/mcp`.
pub(super) fn url_of_view(resource: &str, view: &View) -> Option<String> {
    Some(format!("{}{}", base(resource), view.path()?))
}

/// Returns the path of the view whose metadata has the path `well_known`.
pub(super) fn path_of_view<'p>(resource: &str, well_known: &'p str) -> Option<&'p str> {
    let (_, path) = split(base(resource));
    well_known.strip_prefix(WELL_KNOWN)?.strip_prefix(path)
}

/// Returns the URL to which the path of a view is added.
fn base(resource: &str) -> &str {
    let resource = resource.trim_end_matches('/');
    resource.strip_suffix(MAIN).unwrap_or(resource)
}

/// Splits a URL before its path.
fn split(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |at| at + 3);
    url.split_at(url[host..].find('/').map_or(url.len(), |at| host + at))
}

/// Returns the URL of the metadata of a resource: the well-known path comes between the host and
/// the path of the resource.
fn url(resource: &str) -> String {
    let (origin, path) = split(resource);
    format!("{origin}{WELL_KNOWN}{}", path.trim_end_matches('/'))
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

    #[test]
    fn metadata_path_of_a_view_replaces_that_of_the_main_endpoint() {
        for (resource, metadata, view) in [
            ("https://a.example/mcp", "/team-a", Some("/team-a")),
            ("https://a.example/mcp", "/mcp", Some("/mcp")),
            ("https://a.example/tools/mcp/", "/tools/team-a", Some("/team-a")),
            ("https://a.example/tools/mcp", "/team-a", None),
            ("https://a.example", "/team-a", Some("/team-a")),
        ] {
            let path = format!("{WELL_KNOWN}{metadata}");
            assert_eq!(path_of_view(resource, &path), view, "{resource} {metadata}");
        }
    }
}
