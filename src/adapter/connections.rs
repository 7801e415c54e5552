//! Limits the number of sessions and open requests of HTTP clients, and the size of their messages.

use std::{
    collections::HashMap,
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    serve::{ServeService, account},
    value_count::{MAX_VALUES, ValueCount},
};
use crate::mutex::lock;

/// The default limit on the number of sessions, and on the number of open requests, of all clients
/// together.
const MAX_CONNECTIONS: usize = 4096;
/// The default limit on the number of sessions, and on the number of open requests, of one caller.
const MAX_CONNECTIONS_PER_CALLER: usize = 256;

tokio::task_local! {
    /// The data of the HTTP request that is being handled. rmcp calls `ConnectionLimit::admit`
    /// through a factory function without arguments, so `admit` reads the data from this variable.
    static ADMISSION: Arc<Admission>;
}

/// A Tower layer that limits the sessions and open requests of rmcp's `StreamableHttpService`, in
/// total and per caller. It also limits the number of JSON values in a message.
///
/// An HTTP request is open until its whole response has been sent, for example until an event
/// stream ends. A request is rejected with the status 429 if too many requests are open, or if it
/// would start one session too many. Clones of a `ConnectionLimit` share their counts.
///
/// A message may contain at most 262 144 JSON values, where each array, object and object key also
/// counts as a value. A message with more values is rejected with the status 413 before it is
/// parsed, so that it cannot use too much memory. A message that ends early or is not valid HTTP is
/// rejected with the status 400.
///
/// To set up a `ConnectionLimit`, use two clones of it. Wrap the `StreamableHttpService` in the
/// first clone, which is a Tower layer. In the factory function of that service, call the
/// [`admit`](Self::admit) method of the second clone.
///
/// # Examples
///
/// ```
/// # use mcp_composite::adapter::{ConnectionLimit, ServeService};
/// # use rmcp::{ServerHandler, model::ServerConfig, transport::streamable_http_server::{
/// #     StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
/// # }};
/// # use tower::{Layer, layer::util::Identity};
/// # struct Handler;
/// # impl ServerHandler for Handler {}
/// # let server = ServeService::wrap(Handler, Identity::new());
/// let limit = ConnectionLimit::new().caller(|parts| {
///     parts.headers.get("x-user")?.to_str().ok().map(str::to_owned)
/// });
/// let admission = limit.clone();
/// let service = StreamableHttpService::new(
///     move || admission.admit(&server),
///     LocalSessionManager::default().into(),
///     StreamableHttpServerConfig::default(),
/// );
/// let service = limit.layer(service);
/// ```
#[derive(Clone)]
pub struct ConnectionLimit {
    max: usize,
    max_per_caller: usize,
    caller_of: Option<Arc<CallerOf>>,
    sessions: Arc<Mutex<Open>>,
    requests: Arc<Mutex<Open>>,
}

/// A service that enforces a [`ConnectionLimit`] on the requests to an inner service.
#[derive(Clone, Debug)]
pub struct LimitConnections<S> {
    limit: ConnectionLimit,
    inner: S,
}

pin_project! {
    /// An HTTP request body that counts the JSON values in the request while the service reads the
    /// body. If there are too many values, reading the body fails.
    pub struct CountedBody<B> {
        #[pin]
        inner: B,
        values: ValueCount,
        admission: Arc<Admission>,
    }
}

pin_project! {
    /// A response body of [`LimitConnections`]: either the body of the inner service, or the reason
    /// why the request was rejected, as plain text.
    pub struct LimitedBody<B> {
        #[pin]
        inner: Option<B>,
        refusal: Option<Bytes>,
        // Counts the request as open until the body is dropped.
        permit: Option<Permit>,
    }
}

/// A function that returns the name of a request's caller. Requests and sessions with the same
/// caller name share the limits per caller. If the function returns `None`, only the total limits
/// apply.
type CallerOf = dyn Fn(&Parts) -> Option<Arc<str>> + Send + Sync;

/// The data of one HTTP request that the `ConnectionLimit` layer and the service behind it share.
struct Admission {
    caller: Option<Arc<str>>,
    /// The reason to reject the request. Set if a check fails while the inner service handles the
    /// request, for example because there are too many sessions.
    refused: OnceLock<Refusal>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_caller: HashMap<Arc<str>, usize>,
}

/// A permit for one open session or request. Dropping it lowers the number of open sessions or
/// requests by one.
struct Permit {
    counts: Arc<Mutex<Open>>,
    caller: Option<Arc<str>>,
}

#[derive(Clone, Debug, thiserror::Error)]
enum Refusal {
    #[error("too many open {what}: {of} can have at most {most}; close some, or retry later")]
    TooMany { what: &'static str, of: &'static str, most: usize },
    #[error("the message has more than {MAX_VALUES} JSON values; send it in several parts")]
    TooLarge,
    #[error("the request body could not be read: {0}")]
    Unreadable(Arc<str>),
}

// === impl ConnectionLimit ===

impl ConnectionLimit {
    /// Creates a limit of 4096 sessions and 4096 open requests in total. If a
    /// [`caller`](Self::caller) function is set, each caller is also limited to 256 sessions and
    /// 256 open requests.
    #[must_use]
    pub fn new() -> Self {
        Self {
            max: MAX_CONNECTIONS,
            max_per_caller: MAX_CONNECTIONS_PER_CALLER,
            caller_of: None,
            sessions: Arc::default(),
            requests: Arc::default(),
        }
    }

    /// Sets the maximum total number of sessions, and also the maximum total number of open
    /// requests. Defaults to 4096.
    #[must_use]
    pub const fn max(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// Sets the maximum number of sessions per caller, and also the maximum number of open requests
    /// per caller. Defaults to 256. Has no effect unless a [`caller`](Self::caller) function is
    /// set.
    #[must_use]
    pub const fn max_per_caller(mut self, max: usize) -> Self {
        self.max_per_caller = max;
        self
    }

    /// Sets the function that returns the name of the caller of an HTTP request. If the function is
    /// set, [`max_per_caller`](Self::max_per_caller) limits the sessions and open requests of each
    /// caller.
    ///
    /// All requests for which the `caller` function returns `None` count as requests of one unnamed
    /// caller.
    #[must_use]
    pub fn caller<F>(self, caller: F) -> Self
    where
        F: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    {
        self.caller_of(move |parts| Some(account(caller(parts))))
    }

    /// Like [`caller`](Self::caller), but the limits per caller do not apply to requests for which
    /// the function returns `None`.
    pub(crate) fn caller_of<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Parts) -> Option<Arc<str>> + Send + Sync + 'static,
    {
        self.caller_of = Some(Arc::new(caller));
        self
    }

    /// Returns a clone of `server` that counts toward the maximum number of sessions until its
    /// connection has ended. Call `admit` in the factory function of the `StreamableHttpService`.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too many sessions. If the factory function of the
    /// `StreamableHttpService` returns this error, the HTTP request is rejected with the status
    /// 429.
    pub fn admit<S>(&self, server: &ServeService<S>) -> io::Result<ServeService<S>> {
        let admission = ADMISSION.try_with(Arc::clone).ok();
        let caller = admission.as_ref().and_then(|admission| admission.caller.clone());
        match self.open("sessions", &self.sessions, caller) {
            Ok(permit) => Ok(server.clone().hold(permit)),
            Err(refusal) => {
                if let Some(admission) = admission {
                    // If the request was already rejected for another reason, that reason is
                    // reported.
                    let _ = admission.refused.set(refusal.clone());
                }
                Err(io::Error::other(refusal))
            }
        }
    }

    fn open(
        &self,
        what: &'static str,
        counts: &Arc<Mutex<Open>>,
        caller: Option<Arc<str>>,
    ) -> Result<Permit, Refusal> {
        let mut open = lock(counts);
        if open.all >= self.max {
            return Err(Refusal::TooMany { what, of: "this server", most: self.max });
        }
        if let Some(caller) = &caller {
            let of_caller = open.by_caller.get(caller).copied().unwrap_or_default();
            if of_caller >= self.max_per_caller {
                return Err(Refusal::TooMany { what, of: "a caller", most: self.max_per_caller });
            }
            open.by_caller.insert(Arc::clone(caller), of_caller + 1);
        }
        open.all += 1;
        Ok(Permit { counts: Arc::clone(counts), caller })
    }
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ConnectionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionLimit")
            .field("max", &self.max)
            .field("max_per_caller", &self.max_per_caller)
            .field("sessions", &lock(&self.sessions).all)
            .field("requests", &lock(&self.requests).all)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for ConnectionLimit {
    type Service = LimitConnections<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitConnections { limit: self.clone(), inner }
    }
}

// === impl LimitConnections ===

impl<S, B, R> Service<Request<B>> for LimitConnections<S>
where
    S: Service<Request<CountedBody<B>>, Response = Response<R>>,
    S: Service<Request<CountedBody<B>>, Future: Send + 'static, Error: Send + 'static>,
    R: Send + 'static,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let caller = self.limit.caller_of.as_ref().and_then(|caller_of| caller_of(&parts));
        let permit = self.limit.open("requests", &self.limit.requests, caller.clone());
        let permit = match permit {
            Ok(permit) => permit,
            Err(refusal) => return Box::pin(std::future::ready(Ok(refusal.into_response()))),
        };
        let admission = Arc::new(Admission { caller, refused: OnceLock::new() });
        let body = CountedBody {
            inner: body,
            values: ValueCount::default(),
            admission: admission.clone(),
        };
        let request = Request::from_parts(parts, body);
        let response = ADMISSION.sync_scope(admission.clone(), || self.inner.call(request));
        Box::pin(async move {
            let response = ADMISSION.scope(admission.clone(), response).await?;
            // The service responds with this status if the factory function fails or the body
            // cannot be read. Other responses are passed on unchanged even if `admit` has failed,
            // because rmcp also creates servers only to look up tools and ignores such failures.
            let has_failed = response.status() == StatusCode::INTERNAL_SERVER_ERROR;
            if let Some(refusal) = admission.refused.get().filter(|_| has_failed) {
                return Ok(refusal.clone().into_response());
            }
            Ok(response.map(|body| LimitedBody {
                inner: Some(body),
                refusal: None,
                permit: Some(permit),
            }))
        })
    }
}

// === impl CountedBody ===

impl<B> http_body::Body for CountedBody<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let frame = match ready!(this.inner.poll_frame(cx)).transpose() {
            Ok(frame) => frame,
            Err(error) => {
                let error = error.into();
                // If the request was already rejected for another reason, that reason is reported.
                let _ = this.admission.refused.set(Refusal::Unreadable(error.to_string().into()));
                return Poll::Ready(Some(Err(error)));
            }
        };
        if let Some(data) = frame.as_ref().and_then(Frame::data_ref) {
            this.values.add(data);
        }
        if this.values.is_too_large() {
            // If the request was already rejected for another reason, that reason is reported.
            let _ = this.admission.refused.set(Refusal::TooLarge);
            return Poll::Ready(Some(Err(Refusal::TooLarge.into())));
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> fmt::Debug for CountedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedBody").field("values", &self.values).finish_non_exhaustive()
    }
}

// === impl LimitedBody ===

impl<B: http_body::Body<Data = Bytes>> http_body::Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        match this.inner.as_pin_mut() {
            Some(inner) => inner.poll_frame(cx),
            None => Poll::Ready(this.refusal.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Some(inner) => inner.is_end_stream(),
            None => self.refusal.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(self.refusal.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}

impl<B> fmt::Debug for LimitedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedBody").field("refusal", &self.refusal).finish_non_exhaustive()
    }
}

// === impl Permit ===

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = lock(&self.counts);
        open.all -= 1;
        if let Some(caller) = &self.caller
            && let Some(of_caller) = open.by_caller.get_mut(caller)
        {
            *of_caller -= 1;
            if *of_caller == 0 {
                open.by_caller.remove(caller);
            }
        }
    }
}

// === impl Refusal ===

impl Refusal {
    fn into_response<B>(self) -> Response<LimitedBody<B>> {
        let text = Bytes::from(self.to_string());
        let status = match self {
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unreadable(_) => StatusCode::BAD_REQUEST,
        };
        let mut response =
            Response::new(LimitedBody { inner: None, refusal: Some(text), permit: None });
        *response.status_mut() = status;
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, plain);
        response
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// A body that never ends.
    struct Stream;

    impl http_body::Body for Stream {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            Poll::Pending
        }
    }

    fn call<S, R>(service: &mut S, caller: &str) -> Response<LimitedBody<R>>
    where
        S: Service<Request<()>, Response = Response<LimitedBody<R>>, Error: fmt::Debug>,
    {
        let request = Request::builder().header("x-user", caller).body(()).unwrap();
        service.call(request).now_or_never().unwrap().unwrap()
    }

    #[test]
    fn open_requests_are_limited_per_caller_and_in_total() {
        let streams = tower::service_fn(|_: Request<CountedBody<()>>| async {
            Ok::<_, io::Error>(Response::new(Stream))
        });
        let limit = ConnectionLimit::new()
            .max(3)
            .max_per_caller(2)
            .caller(|parts| Some(parts.headers.get("x-user")?.to_str().unwrap().to_owned()));
        let mut service = limit.layer(streams);
        let alice = [call(&mut service, "alice"), call(&mut service, "alice")];
        let refused = call(&mut service, "alice");
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            refused.body().refusal.as_deref(),
            Some(
                &b"too many open requests: a caller can have at most 2; close some, or retry \
                   later"[..]
            )
        );
        let bob = call(&mut service, "bob");
        assert_eq!(bob.status(), StatusCode::OK);
        assert_eq!(call(&mut service, "carol").status(), StatusCode::TOO_MANY_REQUESTS);
        drop(alice);
        assert_eq!(call(&mut service, "alice").status(), StatusCode::OK);
        drop(bob);
        let open = lock(&limit.requests);
        assert_eq!((open.all, open.by_caller.len()), (0, 0));
    }
}
