//! Observation of runs.
//!
//! An [`Observer`] receives an event when a run of a composite or one of its branches starts or
//! ends, for each attempt, and when a branch waits for a person. Add it to a
//! [`CompositeLayer`](crate::composite::CompositeLayer::observer), a
//! [`StackLayer`](crate::stack::StackLayer::observer), or the `config::Config` of a file. All
//! added observers receive the events.
//!
//! Each start is followed by exactly one end, even if the call is dropped or panics. A run that
//! stops to request input is [suspended](What::RunSuspended), and its branches end after it was
//! [resumed](What::RunResumed). Another process may resume it; observers there see the same id.
//! If its call is dropped before that, or the run that it is nested in ends, the run ends with
//! it.
//!
//! If the [state](crate::store) of a run was sent to a client, there is no end event if the
//! state is never returned or is rejected, since the run could still be resumed. The same
//! applies to a nested run, if the enclosing run ends after it was resumed and before the nested
//! one is.
//!
//! Events contain no arguments unless an observer [wants](Observer::wants_arguments) them, and
//! never contain results of tools. Observers are called synchronously by the run, so they
//! should return quickly.
//!
//! The same events are logged, without arguments, under the target `mcp_composite::run`: runs
//! at the level `debug` and branches at the level `trace`, in the [span](crate::trace) of the
//! run. Without observers, and if neither these logs nor the spans are enabled, there is no
//! overhead.
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::sync::{Arc, Mutex};
//!
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool, FanOut, Success},
//!     observe::{Event, Observer, What},
//!     testing::{self, Server},
//! };
//! use serde_json::json;
//! use tower::Layer;
//!
//! /// Notes how branches end.
//! #[derive(Default)]
//! struct Notes(Mutex<Vec<String>>);
//!
//! impl Observer for Notes {
//!     fn on_event(&self, event: &Event<'_>) {
//!         if let What::BranchFinished { branch, status, .. } = event.what {
//!             self.0.lock().unwrap().push(format!("{} {branch} {status}", event.composite));
//!         }
//!     }
//! }
//!
//! let notes = Arc::new(Notes::default());
//! let targets = FanOut::new(["near", "far"]).success(Success::Any);
//! let look = CompositeTool::new("look", "Looks everywhere", targets);
//! let layer = CompositeLayer::new([look]).unwrap();
//! let server = Server::new().says("near", "found").fails("far", "no ship");
//! let service = layer.observer(notes.clone()).layer(server);
//!
//! testing::call(&service, "look", json!({})).await;
//!
//! assert_eq!(*notes.0.lock().unwrap(), ["look near completed", "look far failed"]);
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rmcp::model::JsonObject;
use tracing::Level;

/// Receives the events of runs.
///
/// A panic of an observer does not affect the run. The observer still receives later events, and
/// its first panic is logged.
pub trait Observer: Send + Sync {
    /// Handles an event of a run.
    fn on_event(&self, event: &Event<'_>);

    /// Returns `true` if events should contain the arguments of runs and tools. Defaults to
    /// `false`.
    ///
    /// Arguments are passed as received, before lower layers change them.
    fn wants_arguments(&self) -> bool {
        false
    }
}

/// An event of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event<'e> {
    /// The run.
    pub run: RunId,
    /// The run and branch that it is nested in, if any.
    pub parent: Option<Parent<'e>>,
    /// The name of the composite.
    pub composite: &'e str,
    /// The kind of the event.
    pub what: What<'e>,
}

/// The identifier of a run.
///
/// It is a random number, which stays the same when another process resumes the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub(crate) u64);

/// The branch that calls a nested run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parent<'e> {
    /// The run.
    pub run: RunId,
    /// The branch of that run.
    pub branch: Branch<'e>,
}

/// A branch of a run: a target, a step, or an element of a step's loop.
///
/// It is displayed as `step` or `step[3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branch<'e> {
    /// The id of the target or step.
    pub id: &'e str,
    /// The index of the element, if the branch is an element of a loop.
    pub element: Option<usize>,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum What<'e> {
    /// The run started.
    #[non_exhaustive]
    RunStarted {
        /// Its arguments, if the observer wants them.
        arguments: Option<&'e JsonObject>,
    },
    /// The run is suspended until a person answers.
    RunSuspended,
    /// The run was resumed.
    RunResumed,
    /// The run ended with a result.
    #[non_exhaustive]
    RunFinished {
        /// Whether the result is an error (`isError`).
        is_error: bool,
        /// The setting that ended it, such as `max_calls`, if one did.
        limit: Option<&'static str>,
        /// The duration of the run, without the time that it waited for a person.
        took: Duration,
    },
    /// The run ended without a result: the call was canceled or dropped.
    #[non_exhaustive]
    RunDropped {
        /// The duration of the run, without the time that it waited for a person.
        took: Duration,
    },
    /// A branch started.
    #[non_exhaustive]
    BranchStarted {
        /// The branch.
        branch: Branch<'e>,
    },
    /// A branch calls its tool.
    #[non_exhaustive]
    Attempt {
        /// The branch.
        branch: Branch<'e>,
        /// The tool, by the name that the composite uses.
        tool: &'e str,
        /// The number of this attempt, starting at 1.
        attempt: u32,
        /// The kind of error of the previous attempt, as in reports.
        after: Option<&'static str>,
        /// The arguments of the tool, if the observer wants them.
        arguments: Option<&'e JsonObject>,
    },
    /// A branch waits for a person.
    #[non_exhaustive]
    BranchWaiting {
        /// The branch.
        branch: Branch<'e>,
    },
    /// A started branch ended.
    #[non_exhaustive]
    BranchFinished {
        /// The branch.
        branch: Branch<'e>,
        /// The status: `completed`, `failed`, `timed_out` or `cancelled`; rarely `skipped`, for a
        /// loop that started no element because a limit was reached.
        status: &'static str,
        /// The kind of error, as in reports, if it failed.
        error: Option<&'static str>,
        /// The number of calls of its tool.
        attempts: u32,
        /// When it started, relative to the start of the run.
        started: Duration,
        /// The duration of the branch.
        took: Duration,
    },
    /// A branch will not start.
    #[non_exhaustive]
    BranchSkipped {
        /// The branch.
        branch: Branch<'e>,
        /// The reason: `condition`, the name of a setting that ended the run, such as
        /// `max_calls`, or `ended`, if the run ended otherwise.
        reason: &'static str,
    },
}

/// The observers of the runs of a layer.
#[derive(Clone, Default)]
pub(crate) struct Observers(Option<Arc<Vec<Watcher>>>);

#[derive(Clone)]
struct Watcher {
    observer: Arc<dyn Observer>,
    has_panicked: Arc<AtomicBool>,
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn on_event(&self, event: &Event<'_>) {
        (**self).on_event(event);
    }

    fn wants_arguments(&self) -> bool {
        (**self).wants_arguments()
    }
}

// === impl Observers ===

impl Observers {
    pub(crate) fn push(&mut self, observer: impl Observer + 'static) {
        let watcher = Watcher { observer: Arc::new(observer), has_panicked: Arc::default() };
        Arc::make_mut(self.0.get_or_insert_default()).push(watcher);
    }

    /// Adds the observers of `others`.
    pub(crate) fn add(&mut self, others: &Self) {
        if let Some(others) = &others.0 {
            Arc::make_mut(self.0.get_or_insert_default()).extend(others.iter().cloned());
        }
    }

    /// Returns `true` if there are observers, or logs or spans of runs are enabled.
    pub(crate) fn are_there(&self) -> bool {
        self.0.is_some()
            || tracing::span_enabled!(target: "mcp_composite::run", Level::INFO)
            || tracing::enabled!(target: "mcp_composite::run", Level::DEBUG)
    }

    pub(crate) fn notify(&self, event: &Event<'_>) {
        for watcher in self.0.iter().flat_map(|watchers| &**watchers) {
            watcher.notify(event);
        }
        event.log();
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.as_ref().map_or(0, |watchers| watchers.len());
        f.debug_tuple("Observers").field(&count).finish()
    }
}

// === impl Watcher ===

impl Watcher {
    fn notify(&self, event: &Event<'_>) {
        let observer = &*self.observer;
        let told = catch_unwind(AssertUnwindSafe(|| {
            if observer.wants_arguments() {
                observer.on_event(event);
            } else {
                observer.on_event(&event.without_arguments());
            }
        }));
        // The panic payload may contain anything; the panic hook has already printed it.
        if told.is_err() && !self.has_panicked.swap(true, Ordering::Relaxed) {
            tracing::error!("an observer of runs panics");
        }
    }
}

// === impl Event ===

impl Event<'_> {
    const fn without_arguments(&self) -> Self {
        let what = match self.what {
            What::RunStarted { .. } => What::RunStarted { arguments: None },
            What::Attempt { branch, tool, attempt, after, .. } => {
                What::Attempt { branch, tool, attempt, after, arguments: None }
            }
            what => what,
        };
        Self { what, ..*self }
    }

    fn log(&self) {
        let Event { run, parent, composite, what } = *self;
        let parent = parent.map(tracing::field::display);
        macro_rules! run {
            ($text:literal $(, $($field:tt)+)?) => {
                tracing::debug!(target: "mcp_composite::run", %run, parent, composite, $($($field)+,)? $text)
            };
        }
        macro_rules! branch {
            ($branch:ident, $text:literal $(, $($field:tt)+)?) => {
                tracing::trace!(target: "mcp_composite::run", %run, composite, branch = %$branch, $($($field)+,)? $text)
            };
        }
        match what {
            What::RunStarted { .. } => run!("a run begins"),
            What::RunSuspended => run!("a run waits for a person"),
            What::RunResumed => run!("a run goes on"),
            What::RunFinished { is_error, limit, took } => {
                run!("a run has ended", is_error, limit, ?took)
            }
            What::RunDropped { took } => run!("a run was given up", ?took),
            What::BranchStarted { branch } => branch!(branch, "a branch begins"),
            What::Attempt { branch, tool, attempt, after, .. } => {
                branch!(branch, "a tool is called", tool, attempt, after)
            }
            What::BranchWaiting { branch } => branch!(branch, "a branch waits for a person"),
            What::BranchFinished { branch, status, error, attempts, started, took } => {
                branch!(branch, "a branch has ended", status, error, attempts, ?started, ?took)
            }
            What::BranchSkipped { branch, reason } => {
                branch!(branch, "a branch is skipped", reason)
            }
        }
    }
}

// === impl RunId, Parent, Branch ===

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for Parent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, branch } = self;
        write!(f, "{run}/{branch}")
    }
}

impl fmt::Display for Branch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.element {
            Some(element) => write!(f, "{}[{element}]", self.id),
            None => f.write_str(self.id),
        }
    }
}
