//! The stream of changes that a page receives.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::StatusCode,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures::stream;
use mcp_composite::config::Config;
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::sleep,
};

use super::state::{App, PageState};

/// The minimum time between two events, in which changes are collected.
const PAUSE: Duration = Duration::from_millis(100);
/// The time between two checks whether the usage of budgets has changed, for all pages together.
const BUDGET_PAUSE: Duration = Duration::from_secs(2);

/// A page that is open.
///
/// It has no queue: it remembers the version of the runs that it has received, and a slow page
/// receives only the latest state of each run.
struct Subscriber {
    state: Arc<PageState>,
    version: watch::Receiver<u64>,
    config: watch::Receiver<Option<Arc<Config>>>,
    /// The version of the runs that were sent; `None` before the first event.
    sent: Option<u64>,
    /// The budgets, which all pages share.
    budgets: watch::Receiver<Value>,
    _permit: OwnedSemaphorePermit,
}

/// Streams summaries of the runs that have changed, first of all runs, and the budgets.
pub(super) async fn events(State(state): App) -> Response {
    let Ok(permit) = state.pages.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n").into_response();
    };
    let (version, mut config) = (state.runs.subscribe(), state.observed.config());
    config.mark_unchanged();
    let mut budgets = state.budgets.subscribe();
    if !budgets.borrow().is_null() {
        budgets.mark_changed();
    }
    state.opened.notify_one();
    let subscriber = Subscriber { state, version, config, sent: None, budgets, _permit: permit };
    let events = stream::unfold(subscriber, |mut subscriber| async move {
        let event = subscriber.next().await?;
        Some((Ok::<_, Infallible>(event), subscriber))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Reads the budgets from their stores while pages are open, once for all pages.
pub(super) async fn poll_budgets(state: &PageState) -> Infallible {
    loop {
        if state.budgets.receiver_count() == 0 {
            state.opened.notified().await;
        }
        if let Some(budgets) = state.read_budgets().await {
            state.budgets.send_if_modified(|current| {
                let is_new = *current != budgets;
                *current = budgets;
                is_new
            });
        }
        tokio::select! {
            () = sleep(BUDGET_PAUSE) => (),
            () = state.opened.notified() => (),
        }
    }
}

// === impl Subscriber ===

impl Subscriber {
    /// Returns the next event, or `None` if there are no further ones.
    async fn next(&mut self) -> Option<Event> {
        if self.sent.is_some() {
            tokio::select! {
                changed = self.config.changed() => {
                    changed.ok()?;
                    return Some(Event::default().event("config").data("{}"));
                }
                changed = self.budgets.changed() => {
                    changed.ok()?;
                    let budgets = self.budgets.borrow_and_update().to_string();
                    return Some(Event::default().event("budgets").data(budgets));
                }
                changed = self.version.changed() => changed.ok()?,
            }
            sleep(PAUSE).await;
        }
        self.version.mark_unchanged();
        let PageState { runs, redacted, instance, .. } = &*self.state;
        let (text, version) = runs.since(self.sent.unwrap_or(0), redacted, |runs, version| {
            (json!({ "instance": instance, "runs": runs }).to_string(), version)
        });
        self.sent = Some(version);
        Some(Event::default().event("runs").data(text))
    }
}
