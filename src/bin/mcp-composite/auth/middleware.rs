//! Rejects requests without a valid token, and removes the token from the others.

use axum::{
    Router,
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode, Uri,
        header::{AUTHORIZATION, WWW_AUTHENTICATE},
    },
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use mcp_composite::{
    adapter::{AuthenticatedCaller, CallerToken},
    config::{Gateway, View},
};

use super::{
    authentication::{Authentication, Authenticator},
    bearer,
    metadata::{self, Metadata, WELL_KNOWN},
    verification::{Rejection, Verified},
};

/// The header with the id of a session.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Adds authentication to all routes of a router, and the route of the metadata, which needs none.
/// Each request for a view must have the view in its extensions.
pub(crate) fn protect(router: Router, authentication: Authentication, gateway: &Gateway) -> Router {
    let (of, gateway) = (authentication.clone(), gateway.clone());
    let metadata = get(async move |uri: Uri| {
        let authenticator = of.current();
        let path = authenticator.config.resource();
        let path = path.and_then(|resource| metadata::path_of_view(resource, uri.path()));
        let view = path.and_then(|path| gateway.view(path));
        Metadata::response(authenticator.metadata(view.as_ref()).as_deref())
    });
    router
        .layer(from_fn_with_state(authentication, authenticate))
        .route(WELL_KNOWN, metadata.clone())
        .route(&format!("{WELL_KNOWN}/{{*resource}}"), metadata)
}

async fn authenticate(
    State(authentication): State<Authentication>,
    mut request: Request,
    next: Next,
) -> Response {
    let authenticator = authentication.current();
    let view = request.extensions().get::<View>().cloned();
    let verified = match bearer::token(request.headers()) {
        Ok(token) => authenticator.caller(token, view.as_ref()).await,
        Err(rejection) => Err(rejection),
    };
    let Verified { caller, expires } = match verified {
        Ok(verified) => verified,
        Err(rejection) => {
            authentication.0.rejections.log(&rejection);
            return authenticator.reject(&rejection, view.as_ref());
        }
    };
    // No layer, log or backend needs the token, unless it is exchanged for one of a backend.
    if authenticator.config.needs_caller_tokens()
        && let Ok(token) = bearer::token(request.headers())
    {
        let token = CallerToken::new(token);
        let token = match expires {
            Some(expires) => token.expires_at(expires),
            None => token,
        };
        request.extensions_mut().insert(token);
    }
    request.headers_mut().remove(AUTHORIZATION);
    let ids = &authentication.0.session_ids;
    if !rename_session(request.headers_mut(), |id| ids.unbind(id, &caller).map(str::to_owned)) {
        // The status after which clients open a new session.
        return (StatusCode::NOT_FOUND, "unknown session\n").into_response();
    }
    request.extensions_mut().insert(AuthenticatedCaller::new(&*caller));
    let mut response = next.run(request).await;
    if !rename_session(response.headers_mut(), |id| Some(ids.bind(id, &caller))) {
        tracing::error!("failed to send the id of a session");
        response.headers_mut().remove(SESSION);
    }
    response
}

/// Replaces the id of the session, if there is one. Returns `false` if the id has no replacement.
fn rename_session(headers: &mut HeaderMap, rename: impl Fn(&str) -> Option<String>) -> bool {
    let mut ids = headers.get_all(&SESSION).iter();
    let Some(id) = ids.next() else { return true };
    if ids.next().is_some() {
        return false;
    }
    let renamed = id.to_str().ok().and_then(rename);
    match renamed.and_then(|id| HeaderValue::from_str(&id).ok()) {
        Some(id) => {
            headers.insert(SESSION, id);
            true
        }
        None => false,
    }
}

// === impl Authenticator ===

impl Authenticator {
    /// Returns the response to a request without a valid token, as defined in [RFC 6750, section
    /// 3].
    ///
    /// [RFC 6750, section 3]: https://www.rfc-editor.org/rfc/rfc6750#section-3
    fn reject(&self, rejection: &Rejection, view: Option<&View>) -> Response {
        let (status, error, text) = match rejection {
            Rejection::NoToken => (StatusCode::UNAUTHORIZED, None, "a bearer token is required"),
            Rejection::Malformed => (
                StatusCode::BAD_REQUEST,
                Some("invalid_request"),
                "expected one header `Authorization: Bearer TOKEN`",
            ),
            Rejection::InvalidToken(_) => {
                (StatusCode::UNAUTHORIZED, Some("invalid_token"), "the bearer token is not valid")
            }
            Rejection::InsufficientScope(_) => (
                StatusCode::FORBIDDEN,
                Some("insufficient_scope"),
                "the bearer token lacks a required scope",
            ),
        };
        let error = error.map(|error| format!("error=\"{error}\""));
        let metadata = self.metadata(view).map(|it| it.challenge().to_owned());
        let parameters: Vec<_> = error.into_iter().chain(metadata).collect();
        let challenge = format!("Bearer {}", parameters.join(", "));
        let mut response = (status, format!("{text}\n")).into_response();
        // The parameters are visible ASCII.
        if let Ok(challenge) = HeaderValue::from_str(challenge.trim_end()) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
