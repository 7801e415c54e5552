//! Observes the runs of composites.
//!
//! An [`Observer`] receives an event when a run of a composite, or a branch of the run, starts or
//! ends. A branch is a [target](crate::composite::Target) of a fan-out, race or fallback, a
//! [step](crate::composite::Step), or a loop element, which is one iteration of a loop step. An
//! observer also receives an event for each attempt to call a tool, and when a branch waits for a
//! person. Observers are added to a [`CompositeLayer`](crate::composite::CompositeLayer::observer),
//! to a [`StackLayer`](crate::stack::StackLayer::observer), or to the `config::Config` of a
//! configuration file. If several observers are added, each of them receives all events.
//!
//! Each start event of a run or branch is followed by exactly one end event, even if the call is
//! dropped or panics. A run that asks a person for input is [suspended](What::RunSuspended), and
//! its branches end only after the run was [resumed](What::RunResumed). If another process resumes
//! the run, the observers in that process receive the remaining events, with the same run ID. A
//! suspended run also ends if its call is dropped, or if its outer run ends.
//!
//! A run may have no end event if its [state](crate::store) was sent to the client, because the
//! client can resume it at any time. If the client never returns the state, or if the state is
//! rejected, no end event follows. The same is true for a suspended nested run if its outer run is
//! resumed and ends first.
//!
//! By default, events contain neither arguments nor results. An observer can request
//! [arguments](Observer::wants_arguments) and [results](Observer::wants_results) of runs and tools.
//! Observers should return quickly, because runs call them synchronously.
//!
//! The crate also logs all events, without arguments and results, with the target
//! `mcp_composite::run`. Events of runs have the level `debug`, and events of branches the level
//! `trace`. The logs belong to the [span](crate::trace) of the run. If there are no observers, and
//! the logs and spans are disabled, observing has no overhead.
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

use rmcp::model::{CallToolResult, JsonObject};
use tokio_util::sync::CancellationToken;
use tracing::Level;

/// A receiver of events about the runs of composites, for example to log or measure them.
///
/// If an `Observer` panics, the run continues, and the observer still receives further events. Only
/// the first panic of each observer is logged.
pub trait Observer: Send + Sync {
    /// Processes an event about a run or one of its branches. Must return quickly, because the run
    /// calls this method synchronously.
    fn on_event(&self, event: &Event<'_>);

    /// Returns `true` if the events for this observer must contain the arguments of runs and tools.
    /// Defaults to `false`.
    ///
    /// The arguments of a run are those that the
    /// [`CompositeLayer`](crate::composite::CompositeLayer) has received. The arguments of a tool
    /// are those that this layer has sent, before inner layers change them.
    fn wants_arguments(&self) -> bool {
        false
    }

    /// Returns `true` if the events for this observer must contain the results of runs and tools.
    /// Defaults to `false`.
    ///
    /// The result of a tool is the result that the
    /// [`CompositeLayer`](crate::composite::CompositeLayer) has received. The result of a run is
    /// the result that this layer has returned, before outer layers change it.
    fn wants_results(&self) -> bool {
        false
    }
}

/// An event about a run of a composite, or about a branch of the run, such as a step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event<'e> {
    /// The identifier of the run that the event is about.
    pub run: RunId,
    /// The handle with which the observer can cancel the run, now or later.
    pub handle: &'e RunHandle,
    /// The outer run that called the composite, and its branch, such as a step, that made the call.
    /// `None` if the run is not nested, because a client called the composite.
    pub parent: Option<Parent<'e>>,
    /// The name of the composite whose run the event is about.
    pub composite: &'e str,
    /// The name of the view in which the composite was called, such as `/team-a`. A view is an
    /// additional endpoint for the same backends. `None` if the composite was not called in a view;
    /// see [`TraceLayer::view`](crate::trace::TraceLayer::view).
    pub view: Option<&'e str>,
    /// The name of the task that the run belongs to. It is derived from the ID of the task, and
    /// clients cannot access the task with it. `None` if the call cannot become a
    /// [task](crate::tasks), or if the run is nested.
    pub task: Option<&'e str>,
    /// The kind of the event, with its details.
    pub what: What<'e>,
}

/// The identifier of a run of a composite: a random number. It stays the same if another process
/// resumes the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub(crate) u64);

/// A handle that cancels a run. An observer gets it from an [`Event`] of the run, and can keep a
/// clone.
///
/// [`cancel`](Self::cancel) ends the run as if its call was dropped: its tool calls are cancelled,
/// [finally steps for cancelled calls](crate::composite::Finally::on_cancel) run, and the observers
/// receive [`What::RunDropped`]. The caller of the composite receives an error result. If the run
/// is nested in another run, only the branch that called it fails.
///
/// A run that is suspended cannot be cancelled. A handle does not keep its run alive. Two handles
/// are equal if they belong to the same run.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")]
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use std::{sync::{Arc, Mutex}, time::Duration};
///
/// use mcp_composite::{
///     composite::{CompositeLayer, CompositeTool},
///     observe::{Event, Observer, RunHandle},
///     testing::{self, Answer, Server},
/// };
/// use serde_json::json;
/// use tower::Layer;
///
/// /// Keeps the handle of the last run.
/// #[derive(Default)]
/// struct Last(Mutex<Option<RunHandle>>);
///
/// impl Observer for Last {
///     fn on_event(&self, event: &Event<'_>) {
///         *self.0.lock().unwrap() = Some(event.handle.clone());
///     }
/// }
///
/// let last = Arc::new(Last::default());
/// let wait = CompositeTool::fan_out("wait", "Waits", ["slow"]);
/// let layer = CompositeLayer::new([wait]).unwrap().observer(last.clone());
/// let service = layer.layer(Server::new().tool("slow", Answer::never()));
///
/// let cancelled = async {
///     tokio::time::sleep(Duration::from_secs(1)).await;
///     last.0.lock().unwrap().as_ref().unwrap().cancel();
/// };
/// let (result, ()) = tokio::join!(testing::call(&service, "wait", json!({})), cancelled);
/// assert_eq!(result.is_error, Some(true));
/// assert_eq!(result.content[0].as_text().unwrap().text, "the run was cancelled by an operator");
/// # }
/// # #[cfg(not(feature = "testing"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct RunHandle {
    run: RunId,
    cancellation: CancellationToken,
}

/// The branch, such as a step, that called a composite from within another run. The run of the
/// called composite is nested in this outer run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parent<'e> {
    /// The identifier of the outer run, in which the branch called the composite.
    pub run: RunId,
    /// The branch of the outer run that called the composite.
    pub branch: Branch<'e>,
}

/// A branch of a run: a target of a fan-out, race or fallback, a step, or one iteration of a loop
/// step. The `Display` output is the ID of the target or step, such as `search`. For the iteration
/// of a loop step, it also contains the index, such as `search[3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Branch<'e> {
    /// The id of the target or step.
    pub id: &'e str,
    /// The index of the loop element. `None` if the branch is a target or step.
    pub element: Option<usize>,
}

/// The kind of an [`Event`], with its details.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum What<'e> {
    /// A run of a composite started.
    #[non_exhaustive]
    RunStarted {
        /// The arguments of the run. `None` if the observer does not
        /// [want](Observer::wants_arguments) arguments.
        arguments: Option<&'e JsonObject>,
    },
    /// The run was suspended, because it has asked a person for input. It resumes when the person
    /// has answered.
    RunSuspended,
    /// A suspended run was resumed with the answers of a person, possibly in another process.
    RunResumed,
    /// The run ended with a result, which may be an error result.
    #[non_exhaustive]
    RunFinished {
        /// Whether the result is an error result (`isError`).
        is_error: bool,
        /// The name of the limit that ended the run early, such as `max_calls`. `None` if the run
        /// did not reach a limit.
        limit: Option<&'static str>,
        /// The duration of the run, excluding the time for which it waited for a person to answer.
        took: Duration,
        /// The result of the run. `None` if the observer does not [want](Observer::wants_results)
        /// results.
        result: Option<&'e CallToolResult>,
    },
    /// The run ended without a result, because the call of the composite was canceled or dropped.
    #[non_exhaustive]
    RunDropped {
        /// The duration of the run, excluding the time for which it waited for a person to answer.
        took: Duration,
    },
    /// A branch of the run started.
    #[non_exhaustive]
    BranchStarted {
        /// The branch that the event is about.
        branch: Branch<'e>,
    },
    /// A branch makes an attempt to call its tool, either for the first time or as a retry.
    #[non_exhaustive]
    Attempt {
        /// The branch that the event is about.
        branch: Branch<'e>,
        /// The name of the tool that the branch calls, as the composite's definition contains it.
        tool: &'e str,
        /// The number of this attempt to call the tool, starting at 1.
        attempt: u32,
        /// The kind of the error with which the previous attempt of the branch failed, with the
        /// same values as in reports, for example `service`. `None` for the first attempt.
        after: Option<&'static str>,
        /// The arguments of the tool call. `None` if the observer does not
        /// [want](Observer::wants_arguments) arguments.
        arguments: Option<&'e JsonObject>,
    },
    /// A branch waits until a person answers its question.
    #[non_exhaustive]
    BranchWaiting {
        /// The branch that the event is about.
        branch: Branch<'e>,
    },
    /// A branch that had started has ended.
    #[non_exhaustive]
    BranchFinished {
        /// The branch that the event is about.
        branch: Branch<'e>,
        /// The status of the branch: `completed`, `failed`, `timed_out` or `cancelled`. A loop has
        /// the status `skipped` if it could not start any element because a limit was reached.
        status: &'static str,
        /// The kind of the error with which the branch failed, with the same values as in reports.
        /// `None` if the branch did not fail.
        error: Option<&'static str>,
        /// The number of tool calls that the branch has made, including retries.
        attempts: u32,
        /// Whether the result of the branch came from the cache, so that the last attempt did not
        /// call the tool. See [`cache`](crate::cache).
        cached: bool,
        /// The time at which the branch started, as a duration since the start of the run.
        started: Duration,
        /// The duration of the branch.
        took: Duration,
        /// The result of the tool that the branch called. `None` if the observer does not
        /// [want](Observer::wants_results) results, if the tool returned no result, or if the
        /// branch is a loop or a question.
        result: Option<&'e CallToolResult>,
    },
    /// A branch is skipped: it has not started, and will not start in this run.
    #[non_exhaustive]
    BranchSkipped {
        /// The branch that the event is about.
        branch: Branch<'e>,
        /// The reason why the branch is skipped. `condition` means that the condition of the branch
        /// is false. If a limit ended the run, the reason is the name of the limit, such as
        /// `max_calls`. If the run ended early for any other reason, it is `ended`.
        reason: &'static str,
    },
}

/// The observers that receive the events of all runs of a layer. `None` if there are no observers.
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

    fn wants_results(&self) -> bool {
        (**self).wants_results()
    }
}

// === impl Observers ===

impl Observers {
    pub(crate) fn push(&mut self, observer: impl Observer + 'static) {
        let watcher = Watcher { observer: Arc::new(observer), has_panicked: Arc::default() };
        Arc::make_mut(self.0.get_or_insert_default()).push(watcher);
    }

    /// Adds all observers of `others` to this set.
    pub(crate) fn add(&mut self, others: &Self) {
        if let Some(others) = &others.0 {
            Arc::make_mut(self.0.get_or_insert_default()).extend(others.iter().cloned());
        }
    }

    /// Returns `true` if runs must create events, because there are observers, or because logs or
    /// spans of runs are enabled.
    pub(crate) fn are_there(&self) -> bool {
        self.0.is_some()
            || tracing::span_enabled!(target: "mcp_composite::run", Level::INFO)
            || tracing::enabled!(target: "mcp_composite::run", Level::DEBUG)
    }

    /// Returns `true` if there are observers.
    pub(crate) const fn is_some(&self) -> bool {
        self.0.is_some()
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
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut event = *event;
            if !observer.wants_arguments() {
                event = event.without_arguments();
            }
            if !observer.wants_results() {
                event = event.without_results();
            }
            observer.on_event(&event);
        }));
        // The panic payload is not logged, because it may contain anything, and the panic hook has
        // already printed it.
        if result.is_err() && !self.has_panicked.swap(true, Ordering::Relaxed) {
            tracing::error!("an observer panicked");
        }
    }
}

// === impl Event ===

impl Event<'_> {
    const fn without_arguments(&self) -> Self {
        let mut what = self.what;
        if let What::RunStarted { arguments } | What::Attempt { arguments, .. } = &mut what {
            *arguments = None;
        }
        Self { what, ..*self }
    }

    const fn without_results(&self) -> Self {
        let mut what = self.what;
        if let What::RunFinished { result, .. } | What::BranchFinished { result, .. } = &mut what {
            *result = None;
        }
        Self { what, ..*self }
    }

    fn log(&self) {
        let Event { run, handle: _, parent, composite, view, task: _, what } = *self;
        let parent = parent.map(tracing::field::display);
        macro_rules! run {
            ($text:literal $(, $($field:tt)+)?) => {
                tracing::debug!(target: "mcp_composite::run", %run, parent, composite, view, $($($field)+,)? $text)
            };
        }
        macro_rules! branch {
            ($branch:ident, $text:literal $(, $($field:tt)+)?) => {
                tracing::trace!(target: "mcp_composite::run", %run, composite, branch = %$branch, $($($field)+,)? $text)
            };
        }
        match what {
            What::RunStarted { .. } => run!("run started"),
            What::RunSuspended => run!("run suspended, waiting for user input"),
            What::RunResumed => run!("run resumed"),
            What::RunFinished { is_error, limit, took, .. } => {
                run!("run finished", is_error, limit, ?took)
            }
            What::RunDropped { took } => run!("run dropped", ?took),
            What::BranchStarted { branch } => branch!(branch, "branch started"),
            What::Attempt { branch, tool, attempt, after, .. } => {
                branch!(branch, "calling a tool", tool, attempt, after)
            }
            What::BranchWaiting { branch } => branch!(branch, "branch waiting for user input"),
            What::BranchFinished { branch, status, error, attempts, started, took, .. } => {
                branch!(branch, "branch finished", status, error, attempts, ?started, ?took)
            }
            What::BranchSkipped { branch, reason } => {
                branch!(branch, "branch skipped", reason)
            }
        }
    }
}

// === impl RunHandle ===

impl RunHandle {
    pub(crate) fn new(run: RunId) -> Self {
        Self { run, cancellation: CancellationToken::new() }
    }

    /// Cancels the run. Does nothing if the run has ended or is suspended.
    pub fn cancel(&self) {
        self.cancellation.cancel();
    }

    /// Returns `true` if [`cancel`](Self::cancel) was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Waits until [`cancel`](Self::cancel) is called.
    pub(crate) async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }
}

impl PartialEq for RunHandle {
    fn eq(&self, other: &Self) -> bool {
        self.run == other.run
    }
}

impl Eq for RunHandle {}

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
