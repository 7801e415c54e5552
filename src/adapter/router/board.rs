use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    asking::{ListError, Listed},
    item::{Item, ItemKind},
    merged::{Merged, Route},
    names::Names,
    problem::Problem,
};

/// How many lists of several pages are kept for those who ask page by page.
const MAX_EARLIER: usize = 4;

/// What is known of all backends about one kind of item.
pub(super) struct Board<I> {
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
    /// When it said that it has no such method.
    lacks: Option<When>,
    outage: Option<Outage>,
    /// Whether it is being asked in the background.
    asked: bool,
    /// Whether somebody was given a list without what it will answer.
    owed: bool,
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
enum Outage {
    /// It was not waited for any longer.
    Late(Duration),
    Failed(String),
}

/// What to do about a backend when a list is made.
pub(super) enum Turn<I> {
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
    /// Whether others must be told of it.
    pub(super) news: bool,
    /// What went wrong, if that is new.
    pub(super) problem: Option<Problem>,
}

// === impl Board ===

impl<I: Item> Board<I> {
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
    pub(super) fn turn(&self, place: usize, offered: Option<bool>, when: When) -> Turn<I> {
        let mut state = self.state();
        let slot = &mut state.slots[place];
        if offered == Some(false) {
            *slot = Slot { asked: slot.asked, ..Slot::default() };
            return Turn::Skip;
        }
        if slot.lacks == Some(when) {
            return Turn::Skip;
        }
        match slot.outage {
            Some(Outage::Late(_)) => Turn::Use { known: slot.known.clone(), asked: slot.asked },
            _ => Turn::Ask,
        }
    }

    /// Gives up waiting for a backend; the problem, if it is new.
    pub(super) fn late(
        &self,
        names: &Names,
        place: usize,
        waited: Duration,
    ) -> (Option<Arc<Listed<I>>>, Option<Problem>) {
        let mut state = self.state();
        let slot = &mut state.slots[place];
        let known = slot.known.clone();
        (known, slot.fail(names, place, I::KIND, Outage::Late(waited)))
    }

    /// Whether a backend is asked in the background from now on; not if it was.
    pub(super) fn ask_in_background(&self, place: usize) -> bool {
        !std::mem::replace(&mut self.state().slots[place].asked, true)
    }

    pub(super) fn asked_in_background(&self, place: usize) {
        self.state().slots[place].asked = false;
    }

    /// Takes note of what a backend answered.
    pub(super) fn learn(
        &self,
        names: &Names,
        place: usize,
        when: When,
        answer: Result<Listed<I>, ListError>,
    ) -> Learnt<I> {
        let before = self.state().slots[place].known.clone();
        let lacks = matches!(answer, Err(ListError::NoSuchMethod)).then_some(when);
        let listed = match answer {
            Ok(listed) => Some(listed),
            Err(ListError::NoSuchMethod) => None,
            Err(error) => {
                let mut state = self.state();
                let slot = &mut state.slots[place];
                let outage = Outage::Failed(error.to_string());
                let problem = slot.fail(names, place, I::KIND, outage);
                return Learnt { source: slot.known.clone(), fresh: false, news: false, problem };
            }
        };
        // Compared without the lock, since it may be a lot. What has not changed
        // stays the same value, so that nothing has to be put together again.
        let same = match (&before, &listed) {
            (Some(before), Some(listed)) => before.is_like(listed),
            (Some(before), None) => before.items.is_empty(),
            (None, Some(listed)) => listed.items.is_empty(),
            (None, None) => true,
        };
        let source = match (before, listed) {
            (Some(before), Some(_)) if same => Some(before),
            (_, listed) => listed.map(Arc::new),
        };
        let mut state = self.state();
        let slot = &mut state.slots[place];
        if slot.outage.take().is_some() {
            tracing::info!("backend `{}` lists its {}s again", names.of(place), I::KIND);
        }
        slot.known.clone_from(&source);
        slot.lacks = lacks;
        let owed = std::mem::take(&mut slot.owed);
        Learnt { source, fresh: true, news: owed && !same, problem: None }
    }

    /// Puts together what is known; what has become a problem by it.
    pub(super) fn update(&self, names: &Names) -> Option<Arc<Merged<I>>> {
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
        names: &Names,
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

    pub(super) fn problems(&self, names: &Names, problems: &mut Vec<Problem>) {
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
        names: &Names,
        place: usize,
        kind: ItemKind,
        outage: Outage,
    ) -> Option<Problem> {
        self.owed = true;
        let begins = self.outage.replace(outage).is_none();
        self.problem(names, place, kind).filter(|_| begins)
    }

    fn problem(&self, names: &Names, place: usize, kind: ItemKind) -> Option<Problem> {
        let reason = match self.outage.as_ref()? {
            Outage::Late(waited) => format!("it did not answer within {waited:?}"),
            Outage::Failed(reason) => super::shown::Reason(reason).to_string(),
        };
        Some(Problem::NotListed { backend: names.of(place).clone(), kind, reason })
    }
}

impl<I> Default for Slot<I> {
    fn default() -> Self {
        Self { known: None, lacks: None, outage: None, asked: false, owed: false }
    }
}

// === impl Listed ===

impl<I: PartialEq> Listed<I> {
    fn is_like(&self, other: &Self) -> bool {
        self.ttl_ms == other.ttl_ms
            && self.cache_scope == other.cache_scope
            && self.items == other.items
    }
}
