//! Reads all logs of the crate, at every level, and keeps none of them.

use std::{
    fmt::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry,
    util::SubscriberInitExt,
};

use crate::invariants::Invariants;

/// Searches the logs for arguments.
#[derive(Clone)]
pub(crate) struct Log {
    invariants: Arc<Invariants>,
    /// The number of connections of backends.
    connected: Arc<AtomicU64>,
}

/// An event, as one line.
struct Line(String);

// === impl Log ===

impl Log {
    /// Listens from now on, until the process ends.
    pub(crate) fn listen(invariants: Arc<Invariants>) -> Self {
        let log = Self { invariants, connected: Arc::default() };
        registry().with(log.clone()).init();
        log
    }

    /// Returns the number of connections of backends so far.
    pub(crate) fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    fn read(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Line)) {
        let mut line = Line(format!("{} {}", metadata.target(), metadata.name()));
        record(&mut line);
        if line.0.contains("connected a backend") {
            self.connected.fetch_add(1, Ordering::Relaxed);
        }
        self.invariants.check_line(&line.0);
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("mcp_composite")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.read(attributes.metadata(), |line| attributes.record(line));
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        self.invariants.check_line(&line.0);
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.read(event.metadata(), |line| event.record(line));
    }
}

// === impl Line ===

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a `String` cannot fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}
