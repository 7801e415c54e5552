//! The state of a router. Requests and merges the lists of all backends, and finds the backend for
//! each request.

use std::{
    collections::HashSet,
    marker::PhantomData,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, Weak},
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use futures::{
    future::{self, BoxFuture, FutureExt},
    stream::{FuturesUnordered, StreamExt},
};
use rmcp::model::{ErrorData, Prompt, Resource, ResourceTemplate, ServerCapabilities, Tool};
use tokio::{runtime::Handle, task::JoinSet, time::Instant};
use tracing::Instrument;

use super::{
    backend::Backend,
    fetch::{self, ListError, Listed},
    item::Item,
    list_cache::{CacheDecision, CachedItem, ListCaches, Outage, When},
    merged::{Cursor, Merged, Route},
    names::{Conflicts, ExposedNames},
    resource_owners::ResourceOwners,
    warning::Problem,
};
use crate::{
    changes::Changes,
    message::{Context, ItemKind, Reply},
    mutex::lock,
};

/// The maximum time for which a background task waits for the list of a slow backend. After this
/// time, the task drops its list request.
const LATEST: Duration = Duration::from_secs(60);
/// The minimum time between two listings of all backends that are caused by requests for unknown
/// names.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// If a client cancels its list request after at least this time, the backends that have not
/// answered yet are marked as late. Later list requests do not wait for these backends.
const WAITED_ENOUGH: Duration = Duration::from_secs(1);
/// The maximum number of different problems with items that a router logs during its lifetime.
const MAX_LOGGED_PROBLEMS: usize = 1_000;

/// The state that all clones of a router share.
pub(super) struct Shared {
    pub(super) names: ExposedNames,
    pub(super) backends: Vec<Backend>,
    pub(super) patience: Duration,
    pub(super) changes: Changes,
    pub(super) boards: ListCaches,
    pub(super) handed_out: ResourceOwners,
    /// The messages of the problems that were already logged, so that no problem is logged twice.
    /// Long names in the messages are truncated.
    logged: Mutex<HashSet<String>>,
    /// The background tasks of the router. They wait for slow backends and send delayed
    /// notifications. When the router is dropped, they are aborted.
    background: Mutex<JoinSet<()>>,
}

/// The result of looking for the backend to which a request for an item is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The request is sent to the backend with this index.
    To(usize),
    /// The request is rejected, because several backends offer an item with this name, and the
    /// router leaves out all of these items.
    Contested,
    /// The backend is not known yet. The router must list the items of all backends to find it.
    Look,
    /// The request is rejected, because no backend can have this item.
    Nowhere,
}

/// A pending list request to one backend, for all pages of one kind of item.
struct Fetch<I> {
    place: usize,
    when: When,
    context: Context,
    answer: BoxFuture<'static, Result<Listed<I>, ListError>>,
}

/// The requests of one listing whose responses have not arrived yet. If the client cancels its list
/// request, background tasks continue them. Otherwise, a client with a short timeout would never
/// receive the items of a slow backend.
struct Awaited<'s, I: CachedItem> {
    shared: &'s Arc<Shared>,
    /// The Tokio runtime for background tasks, and the start time of the client's list request.
    /// `None` if the list request runs outside a Tokio runtime, where no background tasks are
    /// possible.
    background: Option<(Handle, Instant)>,
    asking: FuturesUnordered<Fetch<I>>,
}

/// A guard that a background task holds while it waits for the list of a slow backend. Dropping the
/// guard records the end of the task, even if the task was aborted.
struct BackgroundRefresh<I: CachedItem> {
    shared: Weak<Shared>,
    place: usize,
    ended: bool,
    kind: PhantomData<I>,
}

/// A merged list for a client. It is complete if it contains the current items of all backends, and
/// not the last known items of a slow or failing backend.
struct View<I> {
    merged: Arc<Merged<I>>,
    complete: bool,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(
        names: ExposedNames,
        backends: Vec<Backend>,
        patience: Duration,
        changes: Changes,
    ) -> Self {
        let count = backends.len();
        Self {
            names,
            backends,
            patience,
            changes,
            boards: ListCaches::new(count),
            handed_out: ResourceOwners::new(count),
            logged: Mutex::default(),
            background: Mutex::default(),
        }
    }

    /// Returns the index of the backend that declares a capability. Returns `None` if no backend or
    /// several backends declare it. If the router has a single backend whose description is
    /// unknown, that backend is assumed to have the capability.
    pub(super) fn owner(&self, has: impl Fn(&ServerCapabilities) -> bool) -> Option<usize> {
        let is_single = self.backends.len() == 1;
        let mut owners = self.backends.iter().enumerate().filter(|(_, backend)| {
            backend.describe().map_or(is_single, |described| has(&described.capabilities))
        });
        match (owners.next(), owners.next()) {
            (Some((place, _)), None) => Some(place),
            _ => None,
        }
    }

    /// Answers a client's list request with the page at the cursor, or with the first page.
    pub(super) async fn list_page<I: CachedItem>(
        self: &Arc<Self>,
        cursor: Option<String>,
        context: &Context,
    ) -> Reply {
        let page = async {
            let cursor = match cursor {
                Some(cursor) => Some(Cursor::parse(&cursor)?),
                None => None,
            };
            let begun = cursor.and_then(|it| I::board(&self.boards).begun(it.fingerprint));
            let View { merged, complete } = match begun {
                Some(merged) => View { merged, complete: true },
                // If there is a cursor, its list was created in another process or is no longer
                // stored. The current list may have the same names, and thus the same cursors.
                None => self.list::<I>(context).await,
            };
            merged.page(cursor, complete)
        };
        match page.await {
            Some(page) => I::reply(page),
            None => ErrorData::invalid_params("invalid cursor", None).into(),
        }
    }

    /// Lists the items of all backends concurrently.
    async fn list<I: CachedItem>(self: &Arc<Self>, context: &Context) -> View<I> {
        let board = I::board(&self.boards);
        let runtime = Handle::try_current().ok();
        let mut sources: Vec<Option<Arc<Listed<I>>>> = vec![None; self.backends.len()];
        let mut complete = true;
        let mut awaited = Awaited {
            shared: self,
            background: runtime.clone().map(|runtime| (runtime, Instant::now())),
            asking: FuturesUnordered::new(),
        };
        for (place, source) in sources.iter_mut().enumerate() {
            let (offered, when) = self.now::<I>(place);
            match (board.turn(place, offered, when), &runtime) {
                (CacheDecision::Skip, _) => (),
                (CacheDecision::Use { known, refreshing }, Some(runtime)) => {
                    if !refreshing {
                        self.ask_in_background(self.ask::<I>(place, when, context), runtime);
                    }
                    *source = known;
                    complete = false;
                }
                (CacheDecision::Ask | CacheDecision::Use { .. }, _) => {
                    awaited.asking.push(self.ask::<I>(place, when, context));
                }
            }
        }
        let answers = async {
            while let Some((place, when, answer)) = awaited.asking.next().await {
                let (source, fresh) = self.learn::<I>(place, when, answer);
                sources[place] = source;
                complete &= fresh;
            }
        };
        match &runtime {
            Some(_) => drop(tokio::time::timeout(self.patience, answers).await),
            None => answers.await,
        }
        for late in mem::take(&mut awaited.asking) {
            let Some(runtime) = &runtime else { continue };
            let place = late.place;
            sources[place] = self.give_up(late, Outage::Late(self.patience), runtime);
            complete = false;
        }
        self.update::<I>();
        View { merged: board.view(&self.names, sources), complete }
    }

    /// Returns whether the backend's description declares items of this kind, and the current epoch
    /// (change counter) of this kind of list. The first value is `None` if the description is
    /// unknown.
    fn now<I: Item>(&self, place: usize) -> (Option<bool>, When) {
        let description = self.backends[place].describe();
        let offered = description.map(|described| I::is_offered(&described.capabilities));
        let epoch = I::epoch(&self.changes).now();
        (offered, When { epoch, described: offered.is_some() })
    }

    fn ask<I: Item>(&self, place: usize, when: When, context: &Context) -> Fetch<I> {
        // List requests ask the client no questions and report no progress. They are not cancelled
        // with the client's request, because they may continue in the background.
        let mut context = context.branch(self.names.of(place).clone(), None);
        context.cancellation = None;
        self.ask_as(place, when, context)
    }

    fn ask_as<I: Item>(&self, place: usize, when: When, context: Context) -> Fetch<I> {
        let service = self.backends[place].service.clone();
        let answer = fetch::list_all(service, context.clone()).boxed();
        Fetch { place, when, context, answer }
    }

    /// Stores the result of a list request to a backend in the cache. Returns the items to list for
    /// the backend, and whether they are current.
    fn learn<I: CachedItem>(
        self: &Arc<Self>,
        place: usize,
        when: When,
        answer: Result<Listed<I>, ListError>,
    ) -> (Option<Arc<Listed<I>>>, bool) {
        let learnt = I::board(&self.boards).learn(&self.names, place, when, answer);
        // Every outage is logged, even if an earlier outage had the same reason.
        learnt.problem.iter().for_each(|problem| tracing::warn!("{problem}"));
        if let Some(after) = learnt.news {
            self.update::<I>();
            self.bump_after::<I>(after);
        }
        (learnt.source, learnt.fresh)
    }

    /// After the given delay, notifies clients that the list has changed.
    fn bump_after<I: Item>(&self, after: Duration) {
        let epoch = I::epoch(&self.changes).clone();
        match Handle::try_current() {
            Ok(runtime) if !after.is_zero() => {
                let bump = async move {
                    tokio::time::sleep(after).await;
                    epoch.bump();
                };
                self.spawn(bump, &runtime);
            }
            _ => epoch.bump(),
        }
    }

    /// Merges the last known items of all backends, and logs new problems with these items.
    fn update<I: CachedItem>(&self) {
        let Some(merged) = I::board(&self.boards).update(&self.names) else { return };
        let mut logged = lock(&self.logged);
        for problem in &merged.problems {
            if logged.len() == MAX_LOGGED_PROBLEMS {
                break;
            }
            let problem = problem.to_string();
            if !logged.contains(&problem) {
                tracing::warn!("{problem}");
                logged.insert(problem);
            }
        }
    }

    /// Marks a slow backend as late, and lets a background task wait for its list. Returns the
    /// backend's last known items.
    fn give_up<I: CachedItem>(
        self: &Arc<Self>,
        late: Fetch<I>,
        outage: Outage,
        runtime: &Handle,
    ) -> Option<Arc<Listed<I>>> {
        let board = I::board(&self.boards);
        let (known, problem) = board.late(&self.names, late.place, late.when, outage);
        problem.iter().for_each(|problem| tracing::warn!("{problem}"));
        self.ask_in_background(late, runtime);
        known
    }

    /// Spawns a background task that waits for a slow backend's list. Does nothing if such a task
    /// already exists.
    fn ask_in_background<I: CachedItem>(self: &Arc<Self>, mut asking: Fetch<I>, runtime: &Handle) {
        let place = asking.place;
        if !I::board(&self.boards).ask_in_background(place) {
            return;
        }
        // The reference is weak because the router owns the task.
        let shared = Arc::downgrade(self);
        let refresh = BackgroundRefresh::<I> { shared, place, ended: false, kind: PhantomData };
        let wait = async move {
            loop {
                let answer = tokio::time::timeout(LATEST, &mut asking).await;
                let Some(shared) = refresh.shared.upgrade() else { break };
                if let Ok((place, when, answer)) = answer {
                    let _ = shared.learn::<I>(place, when, answer);
                    shared.update::<I>();
                }
                if !I::board(&shared.boards).ask_once_more(place, asking.when) {
                    refresh.end();
                    break;
                }
                let (_, when) = shared.now::<I>(place);
                asking = shared.ask_as(place, when, asking.context);
            }
        };
        self.spawn(wait, runtime);
    }

    /// Spawns a background task. All background tasks are aborted when the router is dropped.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static, runtime: &Handle) {
        let mut background = lock(&self.background);
        while background.try_join_next().is_some() {}
        background.spawn_on(work.in_current_span(), runtime);
    }

    /// Lists the items of all backends, because a request names an unknown item. Does nothing if
    /// such a listing ended less than a second ago.
    ///
    /// If several requests call this function concurrently, the backends are listed only once.
    pub(super) async fn list_again<I: CachedItem>(self: &Arc<Self>, context: &Context) {
        let mut looked = I::board(&self.boards).looked.lock().await;
        if looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN_AFTER) {
            self.list::<I>(context).await;
            *looked = Some(Instant::now());
        }
    }

    /// Lists the resources and resource templates of all backends, at most once a second.
    pub(super) async fn look_for_resources(self: &Arc<Self>, context: &Context) {
        future::join(
            self.list_again::<Resource>(context),
            self.list_again::<ResourceTemplate>(context),
        )
        .await;
    }

    /// Determines the backend to which a request for a tool, prompt, resource or resource template
    /// is sent. `name` is the name or URI that the client uses.
    pub(super) fn way(&self, kind: ItemKind, name: &str) -> Target {
        match kind {
            ItemKind::Tool => self.way_to_name::<Tool>(name),
            ItemKind::Prompt => self.way_to_name::<Prompt>(name),
            ItemKind::Resource => self.way_to_resource(name),
            // A template belongs to the backend that lists it, even if another backend owns the
            // URIs that it matches.
            ItemKind::ResourceTemplate => match self.boards.templates.route(name) {
                Some(route) => route.into(),
                None => self.way_to_resource(name),
            },
        }
    }

    /// Determines the backend for a request for a tool or prompt. `name` is the name that clients
    /// see.
    fn way_to_name<I: CachedItem>(&self, name: &str) -> Target {
        match I::board(&self.boards).route(name) {
            Some(route) => route.into(),
            None => match (self.names.conflicts, self.backends.len()) {
                // The backend decides whether the name is known, so that calls work before the
                // first listing.
                (Conflicts::Prefix, _) => self
                    .names
                    .by_prefix(name)
                    .find(|&place| self.may_have::<I>(place))
                    .map_or(Target::Nowhere, Target::To),
                (_, 1) => Target::To(0),
                _ => Target::Look,
            },
        }
    }

    /// Determines the backend for a request for the resource with the URI `uri`.
    fn way_to_resource(&self, uri: &str) -> Target {
        let boards = &self.boards;
        let templates = boards.templates.current();
        let listed = match boards.resources.route(uri).or_else(|| templates.route(uri)) {
            Some(Route::To(place)) => Some(place),
            Some(Route::Contested) => return Target::Contested,
            None => None,
        };
        // The first of these backends owns the resource. Otherwise, a later backend could take over
        // the resource by listing it, too, or by listing another template.
        let owner = listed.into_iter().chain(templates.by_template(uri)).min();
        if let Some(place) = owner.or_else(|| self.handed_out.owner(uri)) {
            return Target::To(place);
        }
        let mut owners = (0..self.backends.len()).filter(|&place| self.may_have_resources(place));
        match (owners.next(), owners.next()) {
            (None, _) => Target::Nowhere,
            (Some(place), None) => Target::To(place),
            (Some(_), Some(_)) => Target::Look,
        }
    }

    fn may_have<I: Item>(&self, place: usize) -> bool {
        match self.backends[place].describe() {
            Some(described) => I::is_offered(&described.capabilities),
            None => true,
        }
    }

    fn may_have_resources(&self, place: usize) -> bool {
        match self.backends[place].describe() {
            Some(described) => described.capabilities.resources.is_some(),
            None => {
                !(self.boards.resources.is_empty(place) && self.boards.templates.is_empty(place))
            }
        }
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.boards.tools.problems(&self.names, &mut problems);
        self.boards.prompts.problems(&self.names, &mut problems);
        self.boards.resources.problems(&self.names, &mut problems);
        self.boards.templates.problems(&self.names, &mut problems);
        problems
    }
}

// === impl Target ===

impl From<Route> for Target {
    fn from(route: Route) -> Self {
        match route {
            Route::To(place) => Self::To(place),
            Route::Contested => Self::Contested,
        }
    }
}

// === impl Fetch ===

impl<I> Future for Fetch<I> {
    type Output = (usize, When, Result<Listed<I>, ListError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let (place, when) = (self.place, self.when);
        self.answer.poll_unpin(cx).map(|answer| (place, when, answer))
    }
}

// === impl Awaited ===

impl<I: CachedItem> Drop for Awaited<'_, I> {
    fn drop(&mut self) {
        let Some((runtime, since)) = &self.background else { return };
        // If a client gives up so early, the backends are not necessarily slow.
        if since.elapsed() < WAITED_ENOUGH.min(self.shared.patience) {
            return;
        }
        for late in mem::take(&mut self.asking) {
            let _ = self.shared.give_up(late, Outage::GivenUp, runtime);
        }
    }
}

// === impl BackgroundRefresh ===

impl<I: CachedItem> BackgroundRefresh<I> {
    /// Disarms the guard, because the end of the task was already recorded. A newer task may be
    /// running since then.
    fn end(mut self) {
        self.ended = true;
    }
}

impl<I: CachedItem> Drop for BackgroundRefresh<I> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade().filter(|_| !self.ended) {
            I::board(&shared.boards).end_refresh(self.place);
        }
    }
}
