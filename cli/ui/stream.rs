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
    time::{Interval, MissedTickBehavior},
};

use super::{App, PageState};

/// The minimum time between two events, in which changes are collected.
const PAUSE: Duration = Duration::from_millis(100);
/// The time between two checks whether the usage of budgets has changed.
const BUDGET_PAUSE: Duration = Duration::from_secs(2);

/// A page that is open.
///
/// It has no queue: it remembers the version of the runs that it has received, and a slow page
/// receives only the latest state of each run.
struct Subscriber {
    shown: Arc<PageState>,
    version: watch::Receiver<u64>,
    config: watch::Receiver<Option<Arc<Config>>>,
    /// The version of the runs that were sent; `None` before the first event.
    sent: Option<u64>,
    /// Ticks when the budgets are due to be checked.
    budgets_due: Interval,
    /// The budgets that were sent last; `Value::Null` before.
    budgets: Value,
    _permit: OwnedSemaphorePermit,
}

/// Streams summaries of the runs that have changed, first of all runs, and the budgets.
pub(super) async fn events(State(shown): App) -> Response {
    let Ok(permit) = shown.pages.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n").into_response();
    };
    let (version, mut config) = (shown.runs.subscribe(), shown.observed.config());
    config.mark_unchanged();
    let mut budgets_due = tokio::time::interval(BUDGET_PAUSE);
    budgets_due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (sent, budgets) = (None, Value::Null);
    let subscriber =
        Subscriber { shown, version, config, sent, budgets_due, budgets, _permit: permit };
    let events = stream::unfold(subscriber, |mut subscriber| async move {
        let event = subscriber.next().await?;
        Some((Ok::<_, Infallible>(event), subscriber))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

// === impl Subscriber ===

impl Subscriber {
    /// Returns the next event, or `None` if there are no further ones.
    async fn next(&mut self) -> Option<Event> {
        if self.sent.is_some() {
            loop {
                tokio::select! {
                    changed = self.config.changed() => {
                        changed.ok()?;
                        return Some(Event::default().event("config").data("{}"));
                    }
                    changed = self.version.changed() => break changed.ok()?,
                    _ = self.budgets_due.tick() => (),
                }
                if let Some(budgets) = self.shown.budgets().await
                    && budgets != self.budgets
                {
                    let event = Event::default().event("budgets").data(budgets.to_string());
                    self.budgets = budgets;
                    return Some(event);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.version.mark_unchanged();
        let PageState { runs, redacted, instance, .. } = &*self.shown;
        let (text, version) = runs.since(self.sent.unwrap_or(0), redacted, |runs, version| {
            (json!({ "instance": instance, "runs": runs }).to_string(), version)
        });
        self.sent = Some(version);
        Some(Event::default().event("runs").data(text))
    }
}
