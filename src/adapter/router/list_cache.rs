//! The caches of the lists of all backends: one for each kind of item.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
use crate::{changes::pace::Pace, message::ItemKind, warnings::sanitize::Reason};

/// The maximum number of lists with several pages that are kept for later pages.
const MAX_EARLIER: usize = 4;
/// The pause after a reported change of a backend's list before the next one is reported. It
/// doubles with each further change.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The upper bound of the pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The time without changes after which the first pause applies again.
const QUIET: Duration = Duration::from_secs(300);

/// The lists of backends, by kind.
pub(super) struct ListCaches {
    pub(super) tools: ListCache<Tool>,
    pub(super) prompts: ListCache<Prompt>,
    pub(super) resources: ListCache<Resource>,
    pub(super) templates: ListCache<ResourceTemplate>,
}

/// An item whose lists are cached.
pub(super) trait CachedItem: Item {
    /// Returns the cache of the lists of this kind.
    fn board(boards: &ListCaches) -> &ListCache<Self>;
}

/// The known items of all backends, of one kind.
pub(super) struct ListCache<I> {
    state: Mutex<State<I>>,
    /// The time of the last listing for an unknown name; locked during such a listing.
    pub(super) looked: tokio::sync::Mutex<Option<Instant>>,
}

struct State<I> {
    slots: Vec<Slot<I>>,
    /// The merged list of all slots.
    current: Arc<Merged<I>>,
    /// Lists with several pages that clients may still be reading.
    earlier: VecDeque<Arc<Merged<I>>>,
}

/// The known state of one backend.
struct Slot<I> {
    known: Option<Arc<Listed<I>>>,
    /// The epoch at which `known` was requested.
    heard: Option<u64>,
    /// When the backend last replied that it does not know the method.
    lacks: Option<When>,
    outage: Option<Outage>,
    /// Whether lists no longer wait for the backend, because one list gave up waiting.
    late: bool,
    /// The latest epoch of a list that did not wait for it.
    used: u64,
    /// Whether it is being listed in the background.
    asked: bool,
    /// Whether a list was returned without the current items of the backend.
    owed: bool,
    /// The pace of its change notifications: one backend that changes its list continuously must
    /// not keep all clients busy.
    news: Pace,
}

/// The difference between two lists of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    Nothing,
    /// In the order or the cache settings.
    Form,
    /// In the items.
    Content,
}

/// The moment of a request to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct When {
    pub(super) epoch: u64,
    /// Whether its description was known.
    pub(super) described: bool,
}

/// The reason why the current list of a backend is not known.
#[derive(Debug)]
pub(super) enum Outage {
    /// It did not answer within this time.
    Late(Duration),
    /// The client of the list gave up waiting.
    GivenUp,
    Failed(String),
}

/// How a list uses a backend.
pub(super) enum CacheDecision<I> {
    /// It has no items of this kind.
    Skip,
    Ask,
    /// It is slow: use its last known items.
    Use {
        known: Option<Arc<Listed<I>>>,
        asked: bool,
    },
}

/// The outcome of a backend's answer.
pub(super) struct Learnt<I> {
    /// The items to list.
    pub(super) source: Option<Arc<Listed<I>>>,
    /// Whether these are the current items of the backend.
    pub(super) fresh: bool,
    /// The delay of the change notification; `None` if none is due.
    pub(super) news: Option<Duration>,
    /// The problem, if it is new.
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

    /// Decides how a list uses a backend. `offered` is whether its description declares such items,
    /// if it is known.
    pub(super) fn turn(&self, place: usize, offered: Option<bool>, when: When) -> CacheDecision<I> {
        let mut state = self.state();
        let slot = &mut state.slots[place];
        if offered == Some(false) {
            let (asked, heard, news) =
                (slot.asked, slot.heard, std::mem::replace(&mut slot.news, pace()));
            *slot = Slot { asked, heard, news, ..Slot::default() };
            return CacheDecision::Skip;
        }
        if slot.lacks == Some(when) {
            return CacheDecision::Skip;
        }
        if !slot.late {
            return CacheDecision::Ask;
        }
        slot.used = slot.used.max(when.epoch);
        CacheDecision::Use { known: slot.known.clone(), asked: slot.asked }
    }

    /// Gives up waiting for a backend. Returns its known items, and the problem if it is new.
    ///
    /// The backend does not count as late if it has answered a later request.
    pub(super) fn late(
        &self,
        names: &ExposedNames,
        place: usize,
        when: When,
        outage: Outage,
    ) -> (Option<Arc<Listed<I>>>, Option<Problem>) {
        let mut state = self.state();
        let slot = &mut state.slots[place];
        if slot.knows_better(when) {
            return (slot.known.clone(), None);
        }
        slot.late = true;
        slot.used = slot.used.max(when.epoch);
        let known = slot.known.clone();
        (known, slot.fail(names, place, I::KIND, outage))
    }

    /// Marks a late backend as listed in the background. Returns `false` if it already is, or is
    /// not late.
    pub(super) fn ask_in_background(&self, place: usize) -> bool {
        let mut state = self.state();
        let slot = &mut state.slots[place];
        slot.late && !std::mem::replace(&mut slot.asked, true)
    }

    pub(super) fn asked_in_background(&self, place: usize) {
        self.state().slots[place].asked = false;
    }

    /// Returns `true` if a backend must be listed again in the background: lists that did not wait
    /// for it have seen a later change. Otherwise marks it as no longer listed in the background.
    pub(super) fn ask_once_more(&self, place: usize, when: When) -> bool {
        let mut state = self.state();
        let slot = &mut state.slots[place];
        slot.asked = slot.late && when.epoch < slot.used;
        slot.asked
    }

    /// Records the answer of a backend.
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
                let mut state = self.state();
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
            let before = self.state().slots[place].known.clone();
            // Compared without the lock, since lists may be long; another answer may have been
            // recorded meanwhile.
            let difference = Difference::between(before.as_deref(), listed.as_deref());
            let state = self.state();
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
        // An unchanged list keeps its allocation, so that lists need not be merged again.
        if difference != Difference::Nothing {
            slot.known = listed;
        }
        let is_news = slot.owed && difference == Difference::Content;
        let news = if is_news { slot.news.next(Instant::now()) } else { None };
        // Otherwise it will be listed once more.
        if when.epoch >= slot.used {
            slot.late = false;
            slot.owed = false;
            if slot.outage.take().is_some() {
                tracing::info!("backend `{}` lists its {}s again", names.of(place), I::KIND);
            }
        }
        Learnt { fresh: true, ..slot.learnt(news) }
    }

    /// Merges the known lists. Returns the merged list if it has changed.
    pub(super) fn update(&self, names: &ExposedNames) -> Option<Arc<Merged<I>>> {
        let mut updated = None;
        loop {
            let sources = {
                let mut state = self.state();
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
            // Merged without the lock, since lists may be long; another answer may have been
            // recorded meanwhile.
            updated = Some(Arc::new(Merged::new(names, sources)));
        }
    }

    /// Returns the merged list of these sources, and keeps it if it has several pages.
    pub(super) fn view(
        &self,
        names: &ExposedNames,
        sources: Vec<Option<Arc<Listed<I>>>>,
    ) -> Arc<Merged<I>> {
        let current = self.current();
        // They differ if callers get different answers.
        let view =
            if current.is_of(&sources) { current } else { Arc::new(Merged::new(names, sources)) };
        if view.has_pages() {
            let earlier = &mut self.state().earlier;
            earlier.retain(|other| other.fingerprint() != view.fingerprint());
            earlier.truncate(MAX_EARLIER - 1);
            earlier.push_front(view.clone());
        }
        view
    }

    /// Returns the kept list with this fingerprint.
    pub(super) fn begun(&self, fingerprint: u64) -> Option<Arc<Merged<I>>> {
        let state = self.state();
        state.earlier.iter().find(|merged| merged.fingerprint() == fingerprint).cloned()
    }

    pub(super) fn route(&self, key: &str) -> Option<Route> {
        self.state().current.route(key)
    }

    pub(super) fn current(&self) -> Arc<Merged<I>> {
        self.state().current.clone()
    }

    /// Returns `true` if a backend is known to have no items.
    pub(super) fn is_empty(&self, place: usize) -> bool {
        let state = self.state();
        let slot = &state.slots[place];
        slot.lacks.is_some() || slot.known.as_ref().is_some_and(|known| known.items.is_empty())
    }

    pub(super) fn problems(&self, names: &ExposedNames, problems: &mut Vec<Problem>) {
        let state = self.state();
        for (place, slot) in state.slots.iter().enumerate() {
            problems.extend(slot.problem(names, place, I::KIND));
        }
        problems.extend_from_slice(state.current.problems());
    }

    fn state(&self) -> MutexGuard<'_, State<I>> {
        // The lock is never held across a panic, and the state would be consistent if it were.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Slot ===

impl<I> Slot<I> {
    /// Records an outage. Returns the problem if it is new.
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
            // The reason of a failure is more specific than slowness.
            (Some(Outage::Late(_) | Outage::GivenUp), Outage::Failed(_)) => true,
            _ => false,
        };
        self.outage = Some(outage);
        self.problem(names, place, kind).filter(|_| is_news)
    }

    /// Returns `true` if `known` was requested later.
    fn knows_better(&self, when: When) -> bool {
        self.heard > Some(when.epoch)
    }

    /// Returns the known items, which are current unless there is an outage.
    fn learnt(&self, news: Option<Duration>) -> Learnt<I> {
        Learnt { source: self.known.clone(), fresh: self.outage.is_none(), news, problem: None }
    }

    fn problem(&self, names: &ExposedNames, place: usize, kind: ItemKind) -> Option<Problem> {
        let reason = match self.outage.as_ref()? {
            Outage::Late(waited) => format!("it did not answer within {waited:?}"),
            Outage::GivenUp => "it did not answer before the client gave up".to_owned(),
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
            asked: false,
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
        let is_same = match (before, now) {
            (Some(before), Some(now)) => before.is_like(now),
            (before, now) => before.is_none() && now.is_none(),
        };
        if is_same {
            Self::Nothing
        } else if old == new || by_key(old) == by_key(new) {
            Self::Form
        } else {
            Self::Content
        }
    }
}

/// Returns the items as clients see them: the first one of each key.
fn by_key<I: Item>(items: &[I]) -> HashMap<&str, &I> {
    items.iter().rev().map(|item| (item.key(), item)).collect()
}

// === impl Listed ===

impl<I: PartialEq> Listed<I> {
    fn is_like(&self, other: &Self) -> bool {
        self.ttl_ms == other.ttl_ms
            && self.cache_scope == other.cache_scope
            && self.items == other.items
    }
}
