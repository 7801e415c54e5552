//! Sets of strings, each described by literal parts and wildcards. They are used to decide whether
//! patterns match some or all of the strings in a set.

use std::collections::HashSet;

use regex_automata::{
    nfa::thompson::{Compiler, Config, State, WhichCaptures},
    util::{look::Look, primitives::StateID, syntax},
};

/// The maximum size of a compiled automaton, in bytes.
const MAX_AUTOMATON_BYTES: usize = 10 * 1024 * 1024;

/// A set of strings, described by a sequence of literal parts and wildcards. For example, the set
/// contains all URIs that a resource template can produce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextSet(Vec<Part>);

/// An element of the sequence that describes a [`TextSet`]: a literal text or a wildcard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A literal text.
    Text(String),
    /// A wildcard that stands for any string without `/`.
    Segment,
    /// Any string.
    Anything,
}

/// The number of steps that are left for comparing sets of strings with patterns. Limits the time
/// that a comparison takes.
#[derive(Debug)]
pub(crate) struct Budget(usize);

/// An error that occurs if a comparison takes more steps than its [`Budget`] allows.
#[derive(Debug)]
pub(super) struct Exhausted;

/// A nondeterministic finite automaton that reads the bytes of a string.
#[derive(Debug)]
pub(super) struct Automaton {
    start: usize,
    states: Vec<Moves>,
}

/// The transitions of an automaton from one state to its next states. Numbers of type `usize` are
/// indices of states.
#[derive(Debug)]
enum Moves {
    /// Reads one byte, and moves to the state of the range that contains the byte. A range consists
    /// of its first byte, its last byte and the next state.
    Bytes(Vec<(u8, u8, usize)>),
    /// Moves to one of these states without reading a byte. The automaton follows all of them.
    Free(Vec<usize>),
    /// Moves to this state without reading a byte, but only at the beginning of the string.
    AtStart(usize),
    /// Moves to this state without reading a byte, but only at the end of the string.
    AtEnd(usize),
    /// Moves to this state without reading a byte, but only if an assertion such as a word boundary
    /// holds. The automaton does not evaluate the assertion. Each comparison assumes either that it
    /// holds or that it does not.
    Perhaps(usize),
    /// Accepts the string that was read.
    Match,
}

// === impl TextSet ===

impl TextSet {
    pub(crate) fn push(&mut self, part: Part) {
        match (self.0.last_mut(), part) {
            (_, Part::Text(text)) if text.is_empty() => (),
            (Some(Part::Text(last)), Part::Text(text)) => last.push_str(&text),
            (_, part) => self.0.push(part),
        }
    }

    /// Returns `true` if the set may contain the string. This includes the case that the budget is
    /// exhausted before the result is certain.
    pub(crate) fn may_have(&self, text: &str, budget: &mut Budget) -> bool {
        self.contains(text, budget).unwrap_or(true)
    }

    /// Returns an automaton that accepts exactly the strings of the set. Returns `None` if the
    /// automaton would be too large.
    pub(super) fn automaton(&self, budget: &mut Budget) -> Result<Option<Automaton>, Exhausted> {
        let mut expression = String::from("^");
        for part in &self.0 {
            match part {
                Part::Text(text) => expression.push_str(&regex::escape(text)),
                Part::Segment => expression.push_str("[^/]*"),
                Part::Anything => expression.push_str(".*"),
            }
        }
        expression.push('$');
        budget.spend(expression.len())?;
        Ok(Automaton::new(&[expression]))
    }

    /// Returns `true` if the set contains the string.
    pub(super) fn contains(&self, text: &str, budget: &mut Budget) -> Result<bool, Exhausted> {
        // The positions in the string at which the parts that were already processed may end.
        let mut ends = vec![0];
        for part in &self.0 {
            budget.spend(ends.len())?;
            let first = ends.first().copied();
            ends = match (part, first) {
                (_, None) => return Ok(false),
                (Part::Text(part), _) => {
                    ends.retain(|&end| text[end..].starts_with(part.as_str()));
                    ends.iter().map(|end| end + part.len()).collect()
                }
                (Part::Anything, Some(first)) => ends_from(text, first).collect(),
                (Part::Segment, _) => {
                    let mut reached = Vec::new();
                    for end in ends {
                        let slash = text[end..].find('/').map_or(text.len(), |at| end + at);
                        let from = reached.last().map_or(end, |last: &usize| end.max(last + 1));
                        reached.extend(ends_from(text, from).take_while(|end| *end <= slash));
                    }
                    reached
                }
            };
            budget.spend(ends.len())?;
        }
        Ok(ends.last() == Some(&text.len()))
    }
}

/// Iterates over the character boundaries of `text` from the position `from` to the end of the
/// text. Both positions are included.
fn ends_from(text: &str, from: usize) -> impl Iterator<Item = usize> {
    (from..=text.len()).filter(|&at| text.is_char_boundary(at))
}

// === impl Budget ===

impl Budget {
    pub(crate) const fn new(steps: usize) -> Self {
        Self(steps)
    }

    fn spend(&mut self, steps: usize) -> Result<(), Exhausted> {
        self.0 = self.0.checked_sub(steps).ok_or(Exhausted)?;
        Ok(())
    }
}

// === impl Automaton ===

impl Automaton {
    /// Returns an automaton that accepts exactly the strings that match at least one of the
    /// anchored regular `expressions`. Returns `None` if the automaton would be too large.
    pub(super) fn new(expressions: &[String]) -> Option<Self> {
        let config = Config::new()
            .nfa_size_limit(Some(MAX_AUTOMATON_BYTES))
            .which_captures(WhichCaptures::None);
        let syntax = syntax::Config::new().dot_matches_new_line(true);
        let nfa = Compiler::new().configure(config).syntax(syntax).build_many(expressions).ok()?;
        let states = nfa.states().iter().map(Moves::of).collect();
        Some(Self { start: nfa.start_anchored().as_usize(), states })
    }

    /// Returns `true` if there may be a string that both automata accept. Assertions such as word
    /// boundaries are assumed to hold, so that no such string is missed.
    pub(super) fn meets(&self, other: &Self, budget: &mut Budget) -> Result<bool, Exhausted> {
        let start = (self.start, other.start);
        let mut seen = HashSet::from([start]);
        let mut open = vec![start];
        while let Some((own, others)) = open.pop() {
            budget.spend(1)?;
            let mut next = Vec::new();
            match (&self.states[own], &other.states[others]) {
                (Moves::Match, Moves::Match) => return Ok(true),
                (Moves::Bytes(own), Moves::Bytes(others)) => {
                    for (from, to, own) in own {
                        let met = others.iter().filter(|other| other.0 <= *to && *from <= other.1);
                        next.extend(met.map(|other| (*own, other.2)));
                    }
                }
                (own_moves, other_moves) => {
                    next.extend(own_moves.free().iter().map(|own| (*own, others)));
                    next.extend(other_moves.free().iter().map(|others| (own, *others)));
                }
            }
            budget.spend(next.len())?;
            open.extend(next.into_iter().filter(|pair| seen.insert(*pair)));
        }
        Ok(false)
    }

    /// Returns `true` if this automaton is certain to accept every string that `other` accepts.
    /// Assertions in this automaton, such as word boundaries, are assumed not to hold.
    pub(super) fn covers(&self, other: &Self, budget: &mut Budget) -> Result<bool, Exhausted> {
        let start = (other.start, self.closure(vec![self.start], true));
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some((others, own)) = open.pop() {
            if own.is_empty() {
                return Ok(false);
            }
            budget.spend(1 + own.len())?;
            let mut next = Vec::new();
            match &other.states[others] {
                Moves::Match if !self.accepts(&own) => return Ok(false),
                Moves::Match => (),
                Moves::Bytes(ranges) => {
                    for &(from, to, others) in ranges {
                        for own in self.steps(&own, from, to) {
                            budget.spend(1 + own.len())?;
                            next.push((others, own));
                        }
                    }
                }
                moves => next.extend(moves.free().iter().map(|others| (*others, own.clone()))),
            }
            open.extend(next.into_iter().filter(|pair| seen.insert(pair.clone())));
        }
        Ok(true)
    }

    /// Returns the sets of states that can be reached from `states` by reading one byte between
    /// `from` and `to`. Bytes that lead to the same states share one set.
    fn steps(&self, states: &[usize], from: u8, to: u8) -> Vec<Vec<usize>> {
        let ranges = || {
            states.iter().flat_map(|&state| match &self.states[state] {
                Moves::Bytes(ranges) => ranges.as_slice(),
                _ => &[],
            })
        };
        let mut firsts = vec![from];
        for &(start, end, _) in ranges() {
            firsts.extend([Some(start), end.checked_add(1)].into_iter().flatten());
        }
        firsts.retain(|first| (from..=to).contains(first));
        firsts.sort_unstable();
        firsts.dedup();
        let after = |byte: u8| {
            let reached = ranges().filter(|(start, end, _)| (*start..=*end).contains(&byte));
            self.closure(reached.map(|(_, _, next)| *next).collect(), false)
        };
        firsts.into_iter().map(after).collect()
    }

    /// Returns the states in `open` and all states that can be reached from them without reading a
    /// byte, in sorted order.
    fn closure(&self, mut open: Vec<usize>, is_start: bool) -> Vec<usize> {
        let mut reached = HashSet::new();
        while let Some(state) = open.pop() {
            if reached.insert(state) {
                match &self.states[state] {
                    Moves::Free(next) => open.extend(next),
                    Moves::AtStart(next) if is_start => open.push(*next),
                    _ => (),
                }
            }
        }
        let mut reached: Vec<_> = reached.into_iter().collect();
        reached.sort_unstable();
        reached
    }

    /// Returns `true` if the automaton accepts the string when it ends in one of these states.
    fn accepts(&self, states: &[usize]) -> bool {
        let mut open = states.to_vec();
        let mut seen = HashSet::new();
        while let Some(state) = open.pop() {
            match &self.states[state] {
                Moves::Match => return true,
                Moves::AtEnd(next) if seen.insert(state) => open.push(*next),
                Moves::Free(next) if seen.insert(state) => open.extend(next),
                _ => (),
            }
        }
        false
    }
}

// === impl Moves ===

impl Moves {
    fn of(state: &State) -> Self {
        let at = |id: &StateID| id.as_usize();
        match state {
            State::ByteRange { trans } => {
                Self::Bytes(vec![(trans.start, trans.end, at(&trans.next))])
            }
            State::Sparse(sparse) => {
                let ranges = sparse.transitions.iter();
                Self::Bytes(ranges.map(|range| (range.start, range.end, at(&range.next))).collect())
            }
            State::Dense(dense) => Self::Bytes(
                (0..=u8::MAX)
                    .zip(dense.transitions.iter())
                    .filter(|(_, next)| **next != StateID::ZERO)
                    .map(|(byte, next)| (byte, byte, at(next)))
                    .collect(),
            ),
            State::Look { look: Look::Start, next } => Self::AtStart(at(next)),
            State::Look { look: Look::End, next } => Self::AtEnd(at(next)),
            State::Look { next, .. } => Self::Perhaps(at(next)),
            State::Union { alternates } => Self::Free(alternates.iter().map(at).collect()),
            State::BinaryUnion { alt1, alt2 } => Self::Free(vec![at(alt1), at(alt2)]),
            State::Capture { next, .. } => Self::Free(vec![at(next)]),
            State::Fail => Self::Free(Vec::new()),
            State::Match { .. } => Self::Match,
        }
    }

    /// Returns the states to which the automaton may move from this state without reading a byte.
    fn free(&self) -> &[usize] {
        match self {
            Self::Free(next) => next,
            Self::AtStart(next) | Self::AtEnd(next) | Self::Perhaps(next) => {
                std::slice::from_ref(next)
            }
            Self::Bytes(_) | Self::Match => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::{Patterns, Selection};

    const ENOUGH: usize = 100_000;

    fn set(parts: &[&str]) -> TextSet {
        let mut set = TextSet::default();
        for part in parts {
            set.push(match *part {
                "*" => Part::Segment,
                "**" => Part::Anything,
                text => Part::Text(text.to_owned()),
            });
        }
        set
    }

    #[test]
    fn patterns_meet_and_cover_sets_of_texts() {
        for (pattern, parts, meets, covers) in [
            ("a/b", &["a/b"][..], true, false),
            ("a/b", &["a/", "*"], true, false),
            ("a/b", &["*", "/b"], true, false),
            ("a/b", &["a", "*"], false, false),
            ("a/b", &["a", "**"], true, false),
            ("a/b", &["*", "a", "*", "/", "*", "b", "**"], true, false),
            ("a/b", &["a/bc", "**"], false, false),
            ("a/*", &["a/", "*"], true, true),
            ("a/*", &["a/", "**"], true, true),
            ("a/*", &["*", "/x"], true, false),
            ("a/*", &["*"], false, false),
            ("*", &["**"], true, true),
            ("*/?", &["*", "/é"], true, true),
            ("*/?", &["*", "/éé"], false, false),
            ("*.key", &["a/", "**"], true, false),
            ("*.key", &["**", ".key"], true, true),
            ("{a,b}/*", &["*", "/x"], true, false),
            ("re:[^/]*/x", &["*", "/x"], true, true),
            ("re:[^/]*/x", &["**", "/x"], true, false),
            ("re:a|.*", &["**"], true, true),
            ("re:(?i)A/B", &["a/", "*"], true, false),
            // For both methods, assertions are assumed in the way that is safe.
            (r"re:a\b.*", &["a", "**"], true, false),
            (r"re:(?m)^a$", &["a"], true, false),
        ] {
            let patterns = Patterns::new([pattern]).unwrap();
            let set = set(parts);
            let budget = || Budget::new(ENOUGH);
            assert_eq!(patterns.may_match(&set, &mut budget()), meets, "{pattern} {parts:?}");
            assert_eq!(patterns.match_all(&set, &mut budget()), covers, "{pattern} {parts:?}");
        }
    }

    #[test]
    fn exhausted_budget_selects_nothing() {
        let rule = Selection::default().allow(["a*"]).unwrap().deny(["b*"]).unwrap();
        let texts = set(&["a", "*"]);
        assert!(rule.selects_each(&texts, &mut Budget::new(ENOUGH)));
        assert!(!rule.selects_each(&texts, &mut Budget::new(10)));
        assert!(rule.may_deny(&texts, &mut Budget::new(10)));
        assert!(!rule.may_deny(&texts, &mut Budget::new(ENOUGH)));
    }
}
