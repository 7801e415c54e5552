//! Stores the latest lists of each backend of a router. Each kind of item, such as tools, has a
//! separate cache.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use tokio::time::Instant;

use super::{
    fetch::{ListError, Listed},
    item::Item,
    merged::{Merged, Route, are_the_same},
    names::ExposedNames,
    warning::Problem,
};
use crate::{changes::pace::Pace, message::ItemKind, mutex::lock, warnings::sanitize::Reason};

/// The maximum number of lists with several pages that are stored for each kind of item. Clients
/// can request the remaining pages of a stored list.
const MAX_EARLIER: usize = 4;
/// The pause after the first reported change of a backend's list. No further change of the list is
/// reported during the pause. The pause doubles with each reported change.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The maximum pause after a reported change of a backend's list.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The time without changes of a backend's list after which the pause is reset to [`FIRST_PAUSE`].
const QUIET: Duration = Duration::from_secs(300);

/// The caches of a router. There is one cache for each kind of item: tools, prompts, resources and
/// resource templates.
pub(super) struct ListCaches {
    pub(super) tools: ListCache<Tool>,
    pub(super) prompts: ListCache<Prompt>,
    pub(super) resources: ListCache<Resource>,
    pub(super) templates: ListCache<ResourceTemplate>,
}

/// A type of list item (tool, prompt, resource or resource template), for which [`ListCaches`]
/// contains a cache.
pub(super) trait CachedItem: Item {
    /// Returns the cache for this kind of item.
    fn board(boards: &ListCaches) -> &ListCache<Self>;
}

/// A cache for items of one kind, such as tools. It contains the last known items of each backend.
pub(super) struct ListCache<I> {
    state: Mutex<State<I>>,
    /// The time of the last listing of all backends that a request for an unknown name has caused.
    /// The lock is held during the listing, so that concurrent requests wait for it instead of
    /// starting another one.
    pub(super) looked: tokio::sync::Mutex<Option<Instant>>,
}

struct State<I> {
    slots: Vec<Slot<I>>,
    /// The list that clients receive, merged from the last known items of all backends.
    current: Arc<Merged<I>>,
    /// The most recent merged lists that have several pages. They are stored so that clients can
    /// request the remaining pages.
    earlier: VecDeque<Arc<Merged<I>>>,
}

/// The cache entry of one backend. It contains the backend's last known items, and the state of
/// list requests to the backend.
struct Slot<I> {
    known: Option<Arc<Listed<I>>>,
    /// The value of the epoch (change counter) when the list in `known` was requested. `None` if
    /// the backend has not returned a list yet.
    heard: Option<u64>,
    /// The epoch of the last list request that the backend rejected with "method not found". `None`
    /// if the backend has not rejected a request since its last list.
    lacks: Option<When>,
    outage: Option<Outage>,
    /// `true` if a list request has given up waiting for the backend. Later list requests then do
    /// not wait for the backend, but use `known` immediately.
    late: bool,
    /// The epoch (change counter) of the latest list request that used `known` instead of waiting
    /// for the late backend.
    used: u64,
    /// `true` if a background task is waiting for a list of this backend.
    refreshing: bool,
    /// `true` if a client has received a list that may lack current items of this backend. Clients
    /// are notified when the backend returns other items.
    owed: bool,
    /// The pauses between change notifications to clients. They grow while the backend changes its
    /// list continuously.
    news: Pace,
}

/// The difference between an earlier and a later list of the same backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    Nothing,
    /// The items are the same, but their order or the cache settings of the lists differ.
    Form,
    /// The items differ.
    Content,
}

/// The time at which a list was requested from a backend. It is measured by the epoch (change
/// counter) of this kind of list, and not by a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct When {
    pub(super) epoch: u64,
    /// `true` if the backend's server description was known when the list was requested. If it was
    /// unknown and the backend rejected the request, the list is requested again later.
    pub(super) described: bool,
}

/// The reason why the last known items of a backend may be outdated.
#[derive(Debug)]
pub(super) enum Outage {
    /// The backend did not answer a list request in time. The value is the time for which the
    /// request has waited.
    Late(Duration),
    /// The client cancelled its list request before the backend answered.
    GivenUp,
    Failed(String),
}

/// The way in which a list request obtains the items of one backend.
pub(super) enum CacheDecision<I> {
    /// The list contains no items of the backend, because the backend has no items of this kind.
    Skip,
    Ask,
    /// The list contains the last known items of the backend, because the backend is late. The list
    /// request does not wait for it.
    Use {
        known: Option<Arc<Listed<I>>>,
        refreshing: bool,
    },
}

/// The result of storing a backend's response to a list request in the cache.
pub(super) struct Learnt<I> {
    /// The items of the backend that the client receives. `None` if no list of the backend is
    /// known.
    pub(super) source: Option<Arc<Listed<I>>>,
    /// `true` if `source` contains the backend's current items. `false` if the items may be
    /// outdated.
    pub(super) fresh: bool,
    /// The delay after which clients must be notified that the list has changed. `None` if they
    /// need not be notified.
    pub(super) news: Option<Duration>,
    /// The problem with the backend that must be logged. `None` if there is no problem, or if it
    /// was already logged.
    pub(super) problem: Option<Problem>,
}

// === impl ListCaches ===

impl ListCaches {
    pub(super) fn new(backends: usize) -> Self {
        Self {
            tools: ListCache::new(backends),
            prompts: ListCache::new(backends),
            resources: ListCache::new(backends),
            templates: ListCache::new(backends),
        }
    }
}

// === impl CachedItem ===

macro_rules! cached_items {
    ($($Item:ident in $list:ident,)+) => {$(
        impl CachedItem for $Item {
            fn board(boards: &ListCaches) -> &ListCache<Self> {
                &boards.$list
            }
        }
    )+};
}

cached_items!(
    Tool in tools,
    Prompt in prompts,
    Resource in resources,
    ResourceTemplate in templates,
);

// === impl ListCache ===

impl<I: Item> ListCache<I> {
    pub(super) fn new(backends: usize) -> Self {
        let state = State {
            slots: std::iter::repeat_with(Slot::default).take(backends).collect(),
            current: Arc::new(Merged::empty(backends)),
            earlier: VecDeque::new(),
        };
        Self { state: Mutex::new(state), looked: tokio::sync::Mutex::default() }
    }

    /// Decides whether a list request asks a backend for its items, uses its last known items, or
    /// skips the backend. `offered` is `true` if the backend's description declares items of this
    /// kind, and `None` if the description is unknown.
    pub(super) fn turn(&self, place: usize, offered: Option<bool>, when: When) -> CacheDecision<I> {
        let mut state = lock(&self.state);
        let slot = &mut state.slots[place];
        if offered == Some(false) {
            let (refreshing, heard, news) =
                (slot.refreshing, slot.heard, std::mem::replace(&mut slot.news, pace()));
            *slot = Slot { refreshing, heard, news, ..Slot::default() };
            return CacheDecision::Skip;
        }
        if slot.lacks == Some(when) {
            return CacheDecision::Skip;
        }
        if !slot.late {
            return CacheDecision::Ask;
        }
        slot.used = slot.used.max(when.epoch);
        CacheDecision::Use { known: slot.known.clone(), refreshing: slot.refreshing }
    }

    /// Marks a backend as late, because a list request has given up waiting for it. Returns the
    /// backend's last known items, and the problem if it was not logged yet.
    ///
    /// Does not mark the backend as late if it has already answered a newer list request.
    pub(super) fn late(
        &self,
        names: &ExposedNames,
        place: usize,
        when: When,
        outage: Outage,
    ) -> (Option<Arc<Listed<I>>>, Option<Problem>) {
        let mut state = lock(&self.state);
        let slot = &mut state.slots[place];
        if slot.knows_better(when) {
            return (slot.known.clone(), None);
        }
        slot.late = true;
        slot.used = slot.used.max(when.epoch);
        let known = slot.known.clone();
        (known, slot.fail(names, place, I::KIND, outage))
    }

    /// Records that a background task will wait for the list of this backend. Returns `false` if no
    /// such task is needed, because the backend is not late or a task is already waiting for it.
    pub(super) fn ask_in_background(&self, place: usize) -> bool {
        let mut state = lock(&self.state);
        let slot = &mut state.slots[place];
        slot.late && !std::mem::replace(&mut slot.refreshing, true)
    }

    pub(super) fn end_refresh(&self, place: usize) {
        lock(&self.state).slots[place].refreshing = false;
    }

    /// Returns `true` if the background task must request the backend's list again: the backend is
    /// still late, and clients have received its last known items after a change that was reported
    /// later than `when`. Otherwise, returns `false` and records that the task has ended.
    pub(super) fn ask_once_more(&self, place: usize, when: When) -> bool {
        let mut state = lock(&self.state);
        let slot = &mut state.slots[place];
        slot.refreshing = slot.late && when.epoch < slot.used;
        slot.refreshing
    }

    /// Stores a backend's response to a list request that was sent at `when`. A response is ignored
    /// if a later one is already stored.
    pub(super) fn learn(
        &self,
        names: &ExposedNames,
        place: usize,
        when: When,
        answer: Result<Listed<I>, ListError>,
    ) -> Learnt<I> {
        let lacks = matches!(answer, Err(ListError::NoSuchMethod)).then_some(when);
        let listed = match answer {
            Ok(listed) => Some(Arc::new(listed)),
            Err(ListError::NoSuchMethod) => None,
            Err(error) => {
                let mut state = lock(&self.state);
                let slot = &mut state.slots[place];
                if slot.knows_better(when) {
                    return slot.learnt(None);
                }
                let outage = Outage::Failed(error.to_string());
                let problem = slot.fail(names, place, I::KIND, outage);
                return Learnt { problem, ..slot.learnt(None) };
            }
        };
        let (mut state, difference) = loop {
            let before = lock(&self.state).slots[place].known.clone();
            // Compared without holding the lock, because lists may be long. If another response was
            // recorded in the meantime, the comparison is repeated.
            let difference = Difference::between(before.as_deref(), listed.as_deref());
            let state = lock(&self.state);
            if are_the_same(&[before], std::slice::from_ref(&state.slots[place].known)) {
                break (state, difference);
            }
        };
        let slot = &mut state.slots[place];
        if slot.knows_better(when) {
            return slot.learnt(None);
        }
        slot.heard = Some(when.epoch);
        slot.lacks = lacks;
        // If the list has not changed, the previous allocation is kept, so that lists need not be
        // merged again.
        if difference != Difference::Nothing {
            slot.known = listed;
        }
        let is_news = slot.owed && difference == Difference::Content;
        let news = if is_news { slot.news.next(Instant::now()) } else { None };
        // If this response is older than the last use of `known`, the backend stays late, and its
        // list is requested again.
        if when.epoch >= slot.used {
            slot.late = false;
            slot.owed = false;
            if slot.outage.take().is_some() {
                tracing::info!("backend `{}` lists its {}s again", names.of(place), I::KIND);
            }
        }
        Learnt { fresh: true, ..slot.learnt(news) }
    }

    /// Merges the last known items of all backends into the current list. Returns the new list if
    /// it differs from the previous one.
    pub(super) fn update(&self, names: &ExposedNames) -> Option<Arc<Merged<I>>> {
        let mut updated = None;
        loop {
            let sources = {
                let mut state = lock(&self.state);
                let known: Vec<_> = state.slots.iter().map(|slot| slot.known.clone()).collect();
                if let Some(merged) =
                    updated.take_if(|merged: &mut Arc<Merged<I>>| merged.is_of(&known))
                {
                    state.current = Arc::clone(&merged);
                    return Some(merged);
                }
                if state.current.is_of(&known) {
                    return None;
                }
                known
            };
            // Merged without holding the lock, because lists may be long. If another response was
            // recorded in the meantime, the merge is repeated.
            updated = Some(Arc::new(Merged::new(names, sources)));
        }
    }

    /// Merges the given lists, one per backend, into a single list. If the merged list has several
    /// pages, stores it so that clients can request the remaining pages.
    pub(super) fn view(
        &self,
        names: &ExposedNames,
        sources: Vec<Option<Arc<Listed<I>>>>,
    ) -> Arc<Merged<I>> {
        let current = self.current();
        // The sources differ from the current ones if backends return different lists to different
        // callers.
        let view =
            if current.is_of(&sources) { current } else { Arc::new(Merged::new(names, sources)) };
        if view.has_pages() {
            let earlier = &mut lock(&self.state).earlier;
            earlier.retain(|other| other.fingerprint != view.fingerprint);
            earlier.truncate(MAX_EARLIER - 1);
            earlier.push_front(view.clone());
        }
        view
    }

    /// Returns the stored merged list that has this fingerprint. The cursors of a list contain the
    /// fingerprint of the list.
    pub(super) fn begun(&self, fingerprint: u64) -> Option<Arc<Merged<I>>> {
        let state = lock(&self.state);
        state.earlier.iter().find(|merged| merged.fingerprint == fingerprint).cloned()
    }

    pub(super) fn route(&self, key: &str) -> Option<Route> {
        lock(&self.state).current.route(key)
    }

    pub(super) fn current(&self) -> Arc<Merged<I>> {
        lock(&self.state).current.clone()
    }

    /// Returns `true` if the backend has no items of this kind, as far as the cache knows.
    pub(super) fn is_empty(&self, place: usize) -> bool {
        let state = lock(&self.state);
        let slot = &state.slots[place];
        slot.lacks.is_some() || slot.known.as_ref().is_some_and(|known| known.items.is_empty())
    }

    pub(super) fn problems(&self, names: &ExposedNames, problems: &mut Vec<Problem>) {
        let state = lock(&self.state);
        for (place, slot) in state.slots.iter().enumerate() {
            problems.extend(slot.problem(names, place, I::KIND));
        }
        problems.extend_from_slice(&state.current.problems);
    }
}

// === impl Slot ===

impl<I> Slot<I> {
    /// Records the reason why the last known items of the backend may be outdated. Returns the
    /// problem if it must be logged.
    fn fail(
        &mut self,
        names: &ExposedNames,
        place: usize,
        kind: ItemKind,
        outage: Outage,
    ) -> Option<Problem> {
        self.owed = true;
        let is_news = match (&self.outage, &outage) {
            (None, _) => true,
            // A failure is more specific than a slow response.
            (Some(Outage::Late(_) | Outage::GivenUp), Outage::Failed(_)) => true,
            _ => false,
        };
        self.outage = Some(outage);
        self.problem(names, place, kind).filter(|_| is_news)
    }

    /// Returns `true` if the backend has already answered a later list request than `when`.
    fn knows_better(&self, when: When) -> bool {
        self.heard > Some(when.epoch)
    }

    /// Returns the last known items of the backend. `fresh` is `true` unless the items may be
    /// outdated.
    fn learnt(&self, news: Option<Duration>) -> Learnt<I> {
        Learnt { source: self.known.clone(), fresh: self.outage.is_none(), news, problem: None }
    }

    fn problem(&self, names: &ExposedNames, place: usize, kind: ItemKind) -> Option<Problem> {
        let reason = match self.outage.as_ref()? {
            Outage::Late(waited) => format!("it did not answer within {waited:?}"),
            Outage::GivenUp => {
                "it did not answer before the client cancelled the request".to_owned()
            }
            Outage::Failed(reason) => Reason(reason).to_string(),
        };
        Some(Problem::NotListed { backend: names.of(place).clone(), kind, reason })
    }
}

const fn pace() -> Pace {
    Pace::new(FIRST_PAUSE, LONGEST_PAUSE, QUIET)
}

impl<I> Default for Slot<I> {
    fn default() -> Self {
        Self {
            known: None,
            heard: None,
            lacks: None,
            outage: None,
            late: false,
            used: 0,
            refreshing: false,
            owed: false,
            news: pace(),
        }
    }
}

// === impl Difference ===

impl Difference {
    fn between<I: Item>(before: Option<&Listed<I>>, now: Option<&Listed<I>>) -> Self {
        let old = before.map_or(&[][..], |listed| &listed.items);
        let new = now.map_or(&[][..], |listed| &listed.items);
        if before == now {
            Self::Nothing
        } else if old == new || by_key(old) == by_key(new) {
            Self::Form
        } else {
            Self::Content
        }
    }
}

/// Indexes items by their names or URIs. If a backend lists the same name twice, the first item is
/// used, because clients see this item in their lists.
fn by_key<I: Item>(items: &[I]) -> HashMap<&str, &I> {
    items.iter().rev().map(|item| (item.key(), item)).collect()
}
