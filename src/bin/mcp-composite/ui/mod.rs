//! The web page that shows tools, composites, backends and runs.

mod budgets;
mod catalog;
mod graph;
mod state;
mod stream;

use std::{
    convert::Infallible,
    error::Error,
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header::CONTENT_TYPE},
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::state::PageState;
use self::state::{App, Source};
use crate::{
    guard::Guard,
    listener::{Limits, Listener},
    runs::{Cancelled, RunRecord},
    session::Session,
};

/// The limits of the listener. Each page has one connection that receives events.
const LIMITS: Limits = Limits {
    connections: 256,
    idle: Duration::from_secs(75),
    body: Duration::from_secs(10),
    keep_alive: true,
};

/// The files of the page.
const FILES: [(&str, &str, &str); 7] = [
    ("/", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/elements.js", SCRIPT, include_str!("page/elements.js")),
    ("/diagram.js", SCRIPT, include_str!("page/diagram.js")),
    ("/timeline.js", SCRIPT, include_str!("page/timeline.js")),
    ("/views.js", SCRIPT, include_str!("page/views.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A listener for the page.
pub(crate) struct Page {
    listener: TcpListener,
    address: SocketAddr,
    guard: Guard,
}

/// Serves a page, if there is one, until `served` completes.
///
/// # Errors
///
/// Returns the error of `served`, or an error if the page cannot be served.
pub(crate) async fn serve_with_page(
    page: Option<Page>,
    session: &Session,
    file: String,
    served: impl Future<Output = Result<(), Box<dyn Error>>>,
) -> Result<(), Box<dyn Error>> {
    let (Some(page), Some(runs)) = (page, session.observed.runs()) else { return served.await };
    tracing::info!("serving a page at {}", page.url());
    let source = Source::Live(session.gateway.clone());
    let redacted = session.redacted.clone();
    let state = PageState::new(file, session.observed.clone(), runs.clone(), redacted, source);
    tokio::select! {
        served = served => served,
        failed = page.serve(state) => match failed? {},
    }
}

// === impl Page ===

impl Page {
    /// Binds an address of the loopback interface, or of any interface if `insecure`.
    ///
    /// # Errors
    ///
    /// Returns an error if other machines can reach the address, or if it cannot be bound.
    pub(crate) fn bind(address: SocketAddr, insecure: bool) -> Result<Self, String> {
        if !address.ip().is_loopback() && !insecure {
            return Err(format!(
                "`--ui {address}` can be reached by other machines, and the page does not \
                 authenticate its readers: use an address such as 127.0.0.1:6278, or add \
                 `--insecure`"
            ));
        }
        let failed = |error: io::Error| {
            format!("cannot listen at {address}: {error}; `--ui 127.0.0.1:0` takes a free port")
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let guard = Guard::new(insecure && !address.ip().is_loopback());
        Ok(Self { listener, address, guard })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves the page until the process ends.
    ///
    /// # Errors
    ///
    /// Returns an error if the runtime cannot use the socket.
    pub(crate) async fn serve(self, state: PageState) -> io::Result<Infallible> {
        let listener = Listener::from_std(self.listener, LIMITS)?;
        let can_cancel = self.address.ip().is_loopback() && matches!(state.source, Source::Live(_));
        let (guard, state) = (self.guard, Arc::new(PageState { can_cancel, ..state }));
        let mut app = Router::new()
            .route("/api/about", get(about))
            .route("/api/catalog", get(catalog))
            .route("/api/backends", get(backends))
            .route("/api/budgets", get(budgets))
            .route("/api/runs", get(runs))
            .route("/api/runs/{id}", get(run))
            .route("/api/events", get(stream::events));
        for (path, kind, text) in FILES {
            app = app.route(path, get(async move || ([(CONTENT_TYPE, kind)], text)));
        }
        if state.can_cancel {
            app = app.route("/api/runs/{id}/cancel", post(cancel));
        }
        let guarded = middleware::from_fn(move |request, next| guard.check(request, next));
        let app = app.layer(guarded).with_state(state.clone());
        tokio::select! {
            never = listener.serve_forever(app) => Ok(never),
            never = stream::poll_budgets(&state) => Ok(never),
        }
    }
}

/// A run and the runs nested in it. A structure keeps the order of the members, which people read.
#[derive(Serialize)]
struct RunWithNested {
    run: RunRecord,
    nested: Vec<RunRecord>,
}

/// Returns the properties of the page that do not change.
async fn about(State(state): App) -> Response {
    let (is_live, warning) = match &state.source {
        Source::Live(_) => (true, None),
        Source::Recording { warning, .. } => (false, warning.as_ref()),
    };
    json_response(&json!({
        "instance": state.instance,
        "version": env!("CARGO_PKG_VERSION"),
        "file": state.file,
        "is_live": is_live,
        "can_cancel": state.can_cancel,
        "shows_data": state.runs.shows_data(),
        "warning": warning,
    }))
}

/// Returns the tools and composites.
async fn catalog(State(state): App) -> Response {
    let _listing = state.listing.lock().await;
    let config = state.observed.config().borrow().clone();
    let catalog = match (&state.source, config) {
        (Source::Live(gateway), Some(config)) => {
            catalog::live(gateway, &config, &state.redacted).await
        }
        (Source::Live(_), None) => Value::Null,
        (Source::Recording { composites, .. }, _) => catalog::recorded(composites),
    };
    json_response(&catalog)
}

/// Returns the states of the backends.
async fn backends(State(state): App) -> Response {
    let config = state.observed.config().borrow().clone();
    let backends = match (&state.source, config) {
        (Source::Live(gateway), Some(config)) => catalog::backends(gateway, &config),
        _ => Value::Null,
    };
    json_response(&state.redacted.json(backends))
}

/// Returns the budgets, or `null` for a recording.
async fn budgets(State(state): App) -> Response {
    match state.read_budgets().await {
        Some(budgets) => json_response(&budgets),
        None => (StatusCode::GATEWAY_TIMEOUT, "a budget store did not answer\n").into_response(),
    }
}

/// Returns summaries of all runs that are kept, the oldest first.
async fn runs(State(state): App) -> Response {
    state.runs.since(0, &state.redacted, |runs, _| json_response(&runs))
}

/// Cancels a run that is running, or the task of a run that waits.
async fn cancel(State(state): App, Path(id): Path<String>) -> Response {
    match (state.runs.cancel(&id), &state.source) {
        (None, _) => unknown_run(),
        (Some(Cancelled::Running), _) => StatusCode::NO_CONTENT.into_response(),
        (Some(Cancelled::Waiting { task }), Source::Live(gateway)) => {
            match gateway.cancel_task(&task).await {
                Ok(()) => {
                    state.runs.drop_waiting(&id);
                    StatusCode::NO_CONTENT.into_response()
                }
                Err(error) => {
                    (StatusCode::CONFLICT, format!("{}\n", error.message)).into_response()
                }
            }
        }
        (Some(_), _) => (StatusCode::CONFLICT, "the run is not running\n").into_response(),
    }
}

fn unknown_run() -> Response {
    (StatusCode::NOT_FOUND, "the run is unknown or no longer kept\n").into_response()
}

/// Returns a run and the runs nested in it.
async fn run(State(state): App, Path(id): Path<String>) -> Response {
    match state.runs.run(&id, &state.redacted) {
        Some((run, nested)) => json_response(&RunWithNested { run, nested }),
        None => unknown_run(),
    }
}

fn json_response(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
