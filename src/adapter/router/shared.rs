use std::{
    collections::HashSet,
    marker::PhantomData,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
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
    list_cache::{CacheDecision, ListCache, Outage, When},
    merged::{Cursor, Merged, Route},
    names::{Conflicts, ExposedNames},
    resource_owners::ResourceOwners,
    warning::Problem,
};
use crate::{
    changes::Changes,
    message::{Context, ItemKind, Reply},
};

/// How long a backend that was too slow is waited for in the background, until
/// it is asked again.
const LATEST: Duration = Duration::from_secs(60);
/// How long it is not looked again for something that nobody has.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a list must have waited for a backend, so that it is late when
/// whoever wanted the list gives up.
const WAITED_ENOUGH: Duration = Duration::from_secs(1);
/// How many different problems are logged.
const MAX_TOLD: usize = 1_000;

/// What all clones of a router share.
pub(super) struct Shared {
    pub(super) names: ExposedNames,
    pub(super) backends: Vec<Backend>,
    pub(super) patience: Duration,
    pub(super) changes: Changes,
    pub(super) boards: ListCaches,
    pub(super) handed_out: ResourceOwners,
    /// What was logged, which is not as long as what a backend can call something.
    told: Mutex<HashSet<String>>,
    /// Those who ask slow backends and tell of them; they end with the router.
    background: Mutex<JoinSet<()>>,
}

/// What backends list, by kind.
pub(super) struct ListCaches {
    pub(super) tools: ListCache<Tool>,
    pub(super) prompts: ListCache<Prompt>,
    pub(super) resources: ListCache<Resource>,
    pub(super) templates: ListCache<ResourceTemplate>,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To the backend at this place.
    To(usize),
    /// Nowhere, since two backends claim it.
    Contested,
    /// To be found out by listing what there is.
    Look,
    /// Nowhere.
    Nowhere,
}

/// A backend that is being asked for what it has.
struct Fetch<I> {
    place: usize,
    when: When,
    context: Context,
    answer: BoxFuture<'static, Result<Listed<I>, ListError>>,
}

/// The backends that a list waits for. If whoever wanted it gives up, they are
/// waited for in the background: else a list that somebody never has the time to
/// wait for would never come.
struct Awaited<'s, I: Item> {
    shared: &'s Arc<Shared>,
    /// Without a runtime there is neither a clock nor a background.
    background: Option<(Handle, Instant)>,
    asking: FuturesUnordered<Fetch<I>>,
}

/// Notes the end of a task in the background, also of one that was aborted with
/// the runtime it ran in.
struct BackgroundRefresh<I: Item> {
    shared: Weak<Shared>,
    place: usize,
    ended: bool,
    kind: PhantomData<I>,
}

/// A list, and whether each backend has told its part of it just now.
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
            boards: ListCaches {
                tools: ListCache::new(count),
                prompts: ListCache::new(count),
                resources: ListCache::new(count),
                templates: ListCache::new(count),
            },
            handed_out: ResourceOwners::new(count),
            told: Mutex::default(),
            background: Mutex::default(),
        }
    }

    /// The place of the backend that alone has a capability that cannot be shared; of a
    /// single backend that is not known yet, it is assumed.
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

    /// Answers a request for a list.
    pub(super) async fn list_page<I: Item>(
        self: &Arc<Self>,
        cursor: Option<String>,
        context: &Context,
    ) -> Reply {
        let board = I::board(&self.boards);
        let page = match cursor {
            None => {
                let View { merged, complete } = self.list::<I>(context).await;
                Some(merged.first_page(complete))
            }
            Some(cursor) => match Cursor::parse(&cursor) {
                None => None,
                Some(cursor) => match board.begun(cursor.fingerprint) {
                    Some(merged) => merged.page(cursor, true),
                    // Begun elsewhere, or long ago: the list may still be the same.
                    None => {
                        let View { merged, complete } = self.list::<I>(context).await;
                        merged.page(cursor, complete)
                    }
                },
            },
        };
        match page {
            Some(page) => I::reply(page),
            None => ErrorData::invalid_params("invalid cursor", None).into(),
        }
    }

    /// Asks all backends at once for what they have.
    async fn list<I: Item>(self: &Arc<Self>, context: &Context) -> View<I> {
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
                (CacheDecision::Use { known, asked }, Some(runtime)) => {
                    if !asked {
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

    /// What a backend says of itself about such items, and when that is.
    fn now<I: Item>(&self, place: usize) -> (Option<bool>, When) {
        let description = self.backends[place].describe();
        let offered = description.map(|described| I::is_offered(&described.capabilities));
        let epoch = I::epoch(&self.changes).now();
        (offered, When { epoch, described: offered.is_some() })
    }

    fn ask<I: Item>(&self, place: usize, when: When, context: &Context) -> Fetch<I> {
        // A list asks the client for nothing and has no progress. It may go on
        // when the request is over.
        let mut context = context.branch(self.names.of(place).clone(), None);
        context.cancellation = None;
        self.ask_as(place, when, context)
    }

    fn ask_as<I: Item>(&self, place: usize, when: When, context: Context) -> Fetch<I> {
        let service = self.backends[place].service.clone();
        let answer = fetch::list_all(service, context.clone()).boxed();
        Fetch { place, when, context, answer }
    }

    /// Takes note of an answer: what to list of the backend, and whether that is
    /// what it has now.
    fn learn<I: Item>(
        self: &Arc<Self>,
        place: usize,
        when: When,
        answer: Result<Listed<I>, ListError>,
    ) -> (Option<Arc<Listed<I>>>, bool) {
        let learnt = I::board(&self.boards).learn(&self.names, place, when, answer);
        // Each outage is told, also if there was one like it before.
        learnt.problem.iter().for_each(|problem| tracing::warn!("{problem}"));
        if let Some(after) = learnt.news {
            self.update::<I>();
            self.tell::<I>(after);
        }
        (learnt.source, learnt.fresh)
    }

    /// Tells others that there is something else to list.
    fn tell<I: Item>(&self, after: Duration) {
        let epoch = I::epoch(&self.changes).clone();
        match Handle::try_current() {
            Ok(runtime) if !after.is_zero() => {
                let tell = async move {
                    tokio::time::sleep(after).await;
                    epoch.bump();
                };
                self.spawn(tell, &runtime);
            }
            _ => epoch.bump(),
        }
    }

    /// Puts together what is known, and tells what is wrong with it.
    fn update<I: Item>(&self) {
        let Some(merged) = I::board(&self.boards).update(&self.names) else { return };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for problem in merged.problems() {
            if told.len() == MAX_TOLD {
                break;
            }
            let problem = problem.to_string();
            if !told.contains(&problem) {
                tracing::warn!("{problem}");
                told.insert(problem);
            }
        }
    }

    /// Stops to wait for a backend: what is known of it.
    fn give_up<I: Item>(
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

    /// Waits for a backend without anybody who waits.
    fn ask_in_background<I: Item>(self: &Arc<Self>, mut asking: Fetch<I>, runtime: &Handle) {
        let place = asking.place;
        if !I::board(&self.boards).ask_in_background(place) {
            return;
        }
        // Only a weak reference, so that the router owns the task and not the
        // task the router.
        let shared = Arc::downgrade(self);
        let asked = BackgroundRefresh::<I> { shared, place, ended: false, kind: PhantomData };
        let wait = async move {
            loop {
                let answer = tokio::time::timeout(LATEST, &mut asking).await;
                let Some(shared) = asked.shared.upgrade() else { break };
                if let Ok((place, when, answer)) = answer {
                    let _ = shared.learn::<I>(place, when, answer);
                    shared.update::<I>();
                }
                if !I::board(&shared.boards).ask_once_more(place, asking.when) {
                    asked.end();
                    break;
                }
                let (_, when) = shared.now::<I>(place);
                asking = shared.ask_as(place, when, asking.context);
            }
        };
        self.spawn(wait, runtime);
    }

    /// Does something that ends with the router.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static, runtime: &Handle) {
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        while background.try_join_next().is_some() {}
        background.spawn_on(work.in_current_span(), runtime);
    }

    /// Lists what there is, since something is asked for that is not known.
    ///
    /// Who comes while somebody does it waits for that.
    pub(super) async fn list_again<I: Item>(self: &Arc<Self>, context: &Context) {
        let mut looked = I::board(&self.boards).looked.lock().await;
        if looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN_AFTER) {
            self.list::<I>(context).await;
            *looked = Some(Instant::now());
        }
    }

    /// Lists which resources there are.
    pub(super) async fn look_for_resources(self: &Arc<Self>, context: &Context) {
        future::join(
            self.list_again::<Resource>(context),
            self.list_again::<ResourceTemplate>(context),
        )
        .await;
    }

    /// Where a request about an item goes.
    pub(super) fn way(&self, kind: ItemKind, name: &str) -> Target {
        match kind {
            ItemKind::Tool => self.way_to_name::<Tool>(name),
            ItemKind::Prompt => self.way_to_name::<Prompt>(name),
            ItemKind::Resource => self.way_to_resource(name),
            // A template is that of the backend that lists it, though its URIs may be another's.
            ItemKind::ResourceTemplate => match self.boards.templates.route(name) {
                Some(route) => route.into(),
                None => self.way_to_resource(name),
            },
        }
    }

    /// Where a request about something with a name goes.
    fn way_to_name<I: Item>(&self, name: &str) -> Target {
        match I::board(&self.boards).route(name) {
            Some(route) => route.into(),
            None => match (self.names.conflicts, self.backends.len()) {
                // The backend decides, so that calls work before anything was listed.
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

    /// Where a request about a resource goes.
    fn way_to_resource(&self, uri: &str) -> Target {
        let boards = &self.boards;
        let templates = boards.templates.current();
        let listed = match boards.resources.route(uri).or_else(|| templates.route(uri)) {
            Some(Route::To(place)) => Some(place),
            Some(Route::Contested) => return Target::Contested,
            None => None,
        };
        // A later backend takes no resource by listing it too, or by another template.
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

impl<I: Item> Drop for Awaited<'_, I> {
    fn drop(&mut self) {
        let Some((runtime, since)) = &self.background else { return };
        // Who gives up at once says nothing about the backends.
        if since.elapsed() < WAITED_ENOUGH.min(self.shared.patience) {
            return;
        }
        for late in mem::take(&mut self.asking) {
            let _ = self.shared.give_up(late, Outage::GivenUp, runtime);
        }
    }
}

// === impl BackgroundRefresh ===

impl<I: Item> BackgroundRefresh<I> {
    /// The end was noted already; somebody else may be asking since.
    fn end(mut self) {
        self.ended = true;
    }
}

impl<I: Item> Drop for BackgroundRefresh<I> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade().filter(|_| !self.ended) {
            I::board(&shared.boards).asked_in_background(self.place);
        }
    }
}
