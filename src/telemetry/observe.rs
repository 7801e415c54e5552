//! Who watches runs.
//!
//! An [`Observer`] is told when a run of a composite begins and ends, and each branch
//! in it, and what comes between: attempts, and waiting for a person. It is given to a
//! [`CompositeLayer`](crate::composite::CompositeLayer::observer), to a
//! [`StackLayer`](crate::stack::StackLayer::observer), or to the `config::Config` of a
//! file; several add up.
//!
//! Whoever is told of a start is told of exactly one end, also if the call is dropped
//! or something panics. A run that stops to ask is [suspended](What::RunSuspended), and
//! its branches end after it was [resumed](What::RunResumed), which may be in another
//! process: under the same id, if somebody watches there too. If its call is dropped
//! before that, or the run that it is nested in ends, this is its end.
//!
//! Of a run whose [state](crate::state) a client was given, there is no end if that does
//! not come back or is refused: nobody knows whether it still will. So it is with a nested
//! run, if the one around it ends after it went on and before the nested one does.
//!
//! Nothing is told of arguments unless an observer [wants](Observer::wants_arguments)
//! them, and nothing at all of what tools answer. What an observer is told it is told
//! while the run waits for it, so it should be quick.
//!
//! The same is logged, without arguments, under the target `mcp_composite::run`: runs
//! at the level `debug` and branches at the level `trace`, in the [span](crate::trace) of
//! the run. Without an observer, and where neither that nor the spans are wanted, nothing
//! of it costs anything.
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
//!     composite::{CompositeLayer, CompositeTool, Success},
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
//! let look = CompositeTool::fan_out("look", "Looks everywhere", ["near", "far"]);
//! let layer = CompositeLayer::new([look.success(Success::Any)]).unwrap();
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

/// Is told of runs.
///
/// One that panics harms no run: it is told of what comes next, and its first panic is
/// logged.
pub trait Observer: Send + Sync {
    /// Takes note of something that a run did.
    fn on_event(&self, event: &Event<'_>);

    /// Whether it is told what runs and tools are called with; by default it is not.
    ///
    /// They are told as they are, whatever is made of them further down.
    fn wants_arguments(&self) -> bool {
        false
    }
}

/// Something that a run did.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event<'e> {
    /// Which run.
    pub run: RunId,
    /// Which branch of which run it is nested in, if it is.
    pub parent: Option<Parent<'e>>,
    /// The name of the composite.
    pub composite: &'e str,
    /// What it did.
    pub what: What<'e>,
}

/// What tells a run from others.
///
/// It is a random number, which a run has as long as it goes on, also in another
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub(crate) u64);

/// The branch that a nested run is called by.
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
    /// Which element of its loop, if it is one.
    pub element: Option<usize>,
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum What<'e> {
    /// It began.
    #[non_exhaustive]
    RunStarted {
        /// What it was called with, for who wants to know.
        arguments: Option<&'e JsonObject>,
    },
    /// It stopped until a person has answered.
    RunSuspended,
    /// It goes on after that.
    RunResumed,
    /// It ended with an answer.
    #[non_exhaustive]
    RunFinished {
        /// Whether the answer is an error (`isError`).
        is_error: bool,
        /// The setting that ended it, such as `max_calls`, if one did.
        limit: Option<&'static str>,
        /// How long it ran, without the time that it waited for a person.
        took: Duration,
    },
    /// It ended without an answer: the call was cancelled or dropped.
    #[non_exhaustive]
    RunDropped {
        /// How long it ran, without the time that it waited for a person.
        took: Duration,
    },
    /// A branch began.
    #[non_exhaustive]
    BranchStarted {
        /// Which.
        branch: Branch<'e>,
    },
    /// A branch calls its tool.
    #[non_exhaustive]
    Attempt {
        /// Which.
        branch: Branch<'e>,
        /// The tool, by the name that the composite knows.
        tool: &'e str,
        /// How often it was called by then, this time included.
        attempt: u32,
        /// The kind of error, as in reports, that the last attempt ended with.
        after: Option<&'static str>,
        /// What the tool is called with, for who wants to know.
        arguments: Option<&'e JsonObject>,
    },
    /// A branch waits for a person.
    #[non_exhaustive]
    BranchWaiting {
        /// Which.
        branch: Branch<'e>,
    },
    /// A branch ended that had begun.
    #[non_exhaustive]
    BranchFinished {
        /// Which.
        branch: Branch<'e>,
        /// How: `completed`, `failed`, `timed_out` or `cancelled`; rarely `skipped`, of a
        /// loop that came to no element, since a limit was reached just then.
        status: &'static str,
        /// The kind of error, as in reports, if it is one.
        error: Option<&'static str>,
        /// How often its tool was called.
        attempts: u32,
        /// When it began, after the run.
        started: Duration,
        /// How long it took.
        took: Duration,
    },
    /// A branch will not begin.
    #[non_exhaustive]
    BranchSkipped {
        /// Which.
        branch: Branch<'e>,
        /// Why: `condition`, the name of a setting that ended the run, such as
        /// `max_calls`, or `ended`, if the run ended otherwise.
        reason: &'static str,
    },
}

/// All that watch the runs of a layer.
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

    /// Adds those.
    pub(crate) fn add(&mut self, others: &Self) {
        if let Some(others) = &others.0 {
            Arc::make_mut(self.0.get_or_insert_default()).extend(others.iter().cloned());
        }
    }

    /// Whether anybody wants to know.
    pub(crate) fn are_there(&self) -> bool {
        self.0.is_some()
            || tracing::span_enabled!(target: "mcp_composite::run", Level::INFO)
            || tracing::enabled!(target: "mcp_composite::run", Level::DEBUG)
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        for watcher in self.0.iter().flat_map(|watchers| &**watchers) {
            watcher.tell(event);
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
    fn tell(&self, event: &Event<'_>) {
        let observer = &*self.observer;
        let told = catch_unwind(AssertUnwindSafe(|| {
            if observer.wants_arguments() {
                observer.on_event(event);
            } else {
                observer.on_event(&event.without_arguments());
            }
        }));
        // What with may hold anything; the panic hook has printed it.
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
