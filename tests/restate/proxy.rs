//! A proxy in front of a server's ingress.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
};

use super::{listener, server::Server};

/// Changes the body of a request to a path, or rejects the request.
type Edit = dyn Fn(&str, Bytes) -> Result<Bytes, StatusCode> + Send + Sync;

#[derive(Clone)]
struct Proxy {
    ingress: String,
    http: reqwest::Client,
    edit: Arc<Edit>,
}

/// Serves a proxy that applies `edit` to each request, until the test ends. Returns its URL.
pub(crate) fn serve(
    server: &Server,
    edit: impl Fn(&str, Bytes) -> Result<Bytes, StatusCode> + Send + Sync + 'static,
) -> String {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let proxy = Proxy { ingress: server.ingress(), http, edit: Arc::new(edit) };
    let app = Router::new().fallback(forward).with_state(proxy);
    let port = listener::serve(|listener| async { axum::serve(listener, app).await });
    format!("http://127.0.0.1:{port}")
}

async fn forward(
    State(proxy): State<Proxy>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, Bytes) {
    let body = match (proxy.edit)(uri.path(), body) {
        Ok(body) => body,
        Err(rejection) => return (rejection, Bytes::new()),
    };
    headers.remove("host");
    headers.remove("content-length");
    let request = proxy.http.request(method, format!("{}{uri}", proxy.ingress));
    let response = request.headers(headers).body(body).send().await.unwrap();
    let status = response.status();
    (status, response.bytes().await.unwrap())
}
