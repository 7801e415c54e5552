use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    fetch::{ListError, Listed},
    item::Item,
    merged::{Merged, Route, are_the_same},
    names::ExposedNames,
    warning::Problem,
};
use crate::{changes::pace::Pace, message::ItemKind, warnings::sanitize::Reason};

/// How many lists of several pages are kept for those who ask page by page.
const MAX_EARLIER: usize = 4;
/// How long after news of a backend others are told of the next; after those it
/// is twice as long, and so on.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long it is at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a backend must have had no news to begin with the first pause again.
const QUIET: Duration = Duration::from_secs(300);

/// What is known of all backends about one kind of item.
pub(super) struct ListCache<I> {
    state: Mutex<State<I>>,
    /// When it was last looked for something unknown; held by who does it.
    pub(super) looked: tokio::sync::Mutex<Option<Instant>>,
}

struct State<I> {
    slots: Vec<Slot<I>>,
    /// What the slots know, put together.
    current: Arc<Merged<I>>,
    /// Lists of several pages that were begun.
    earlier: VecDeque<Arc<Merged<I>>>,
}

/// What is known of one backend.
struct Slot<I> {
    known: Option<Arc<Listed<I>>>,
    /// The epoch at which it was asked for what is known of it.
    heard: Option<u64>,
    /// When it said that it has no such method.
    lacks: Option<When>,
    outage: Option<Outage>,
    /// Whether lists do not wait for it, since it has not answered after one did.
    late: bool,
    /// The latest epoch of a list that did not wait for it.
    used: u64,
    /// Whether it is being asked in the background.
    asked: bool,
    /// Whether somebody was given a list without what it will answer.
    owed: bool,
    /// How often changes of its list are announced: one backend that lists something else
    /// each time must not keep all clients busy.
    news: Pace,
}

/// In what two lists of a backend differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    Nothing,
    /// In their order, or in how long they may be kept.
    Form,
    /// In what is listed.
    Content,
}

/// When a backend was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct When {
    pub(super) epoch: u64,
    /// Whether it had said of itself what it has.
    pub(super) described: bool,
}

/// Why the last list of a backend is not known.
#[derive(Debug)]
pub(super) enum Outage {
    /// It was not waited for any longer than this.
    Late(Duration),
    /// Whoever asked for the list did not wait for it.
    GivenUp,
    Failed(String),
}

/// What to do about a backend when a list is made.
pub(super) enum CacheDecision<I> {
    /// It has nothing.
    Skip,
    Ask,
    /// It is slow: what is known of it must do.
    Use {
        known: Option<Arc<Listed<I>>>,
        asked: bool,
    },
}

/// What an answer of a backend comes to.
pub(super) struct Learnt<I> {
    /// What to put into a list.
    pub(super) source: Option<Arc<Listed<I>>>,
    /// Whether that is what the backend has now.
    pub(super) fresh: bool,
    /// After how long others must be told of it, if at all.
    pub(super) news: Option<Duration>,
    /// What went wrong, if that is new.
    pub(super) problem: Option<Problem>,
}

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

    /// What to do about a backend that says it has such items or not, or
    /// nothing of itself.
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

    /// Gives up waiting for a backend: what is known of it, and the problem, if it
    /// is new.
    ///
    /// It is not late if it has answered somebody who asked after a change.
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

    /// Whether a backend is asked in the background from now on; not if it was, or
    /// if nobody is without its answer.
    pub(super) fn ask_in_background(&self, place: usize) -> bool {
        let mut state = self.state();
        let slot = &mut state.slots[place];
        slot.late && !std::mem::replace(&mut slot.asked, true)
    }

    pub(super) fn asked_in_background(&self, place: usize) {
        self.state().slots[place].asked = false;
    }

    /// Whether a backend must be asked once more in the background: there was a
    /// change since it was asked at this time, and lists that did not wait for it
    /// lack what it is. If not, it is not asked any more.
    pub(super) fn ask_once_more(&self, place: usize, when: When) -> bool {
        let mut state = self.state();
        let slot = &mut state.slots[place];
        slot.asked = slot.late && when.epoch < slot.used;
        slot.asked
    }

    /// Takes note of what a backend answered.
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
            // Compared without the lock, since it may be a lot; somebody may have
            // learnt something else meanwhile.
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
        // What has not changed stays the same value, so that nothing has to be put
        // together again.
        if difference != Difference::Nothing {
            slot.known = listed;
        }
        let is_news = slot.owed && difference == Difference::Content;
        let news = if is_news { slot.news.next(Instant::now()) } else { None };
        // Else it will be asked once more.
        if when.epoch >= slot.used {
            slot.late = false;
            slot.owed = false;
            if slot.outage.take().is_some() {
                tracing::info!("backend `{}` lists its {}s again", names.of(place), I::KIND);
            }
        }
        Learnt { fresh: true, ..slot.learnt(news) }
    }

    /// Puts together what is known; what has become a problem by it.
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
            // Without the lock, since it may be a lot; somebody may have learnt
            // something else meanwhile.
            updated = Some(Arc::new(Merged::new(names, sources)));
        }
    }

    /// The list that is made of these, to be read page by page.
    pub(super) fn view(
        &self,
        names: &ExposedNames,
        sources: Vec<Option<Arc<Listed<I>>>>,
    ) -> Arc<Merged<I>> {
        let current = self.current();
        // They differ if callers are told different things.
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

    /// The list of several pages that was begun under this fingerprint.
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

    /// Whether a backend is known to have none.
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
        // Nothing panics while it is held, and if it did, the state would be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Slot ===

impl<I> Slot<I> {
    /// Takes note of an outage, and returns it as a problem if it has just begun.
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
            // Why it fails says more than that it is slow.
            (Some(Outage::Late(_) | Outage::GivenUp), Outage::Failed(_)) => true,
            _ => false,
        };
        self.outage = Some(outage);
        self.problem(names, place, kind).filter(|_| is_news)
    }

    /// Whether what is known was asked for later.
    fn knows_better(&self, when: When) -> bool {
        self.heard > Some(when.epoch)
    }

    /// What is known, which is what the backend has unless it does not answer.
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

/// What clients see of items: of several with one key the first.
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
