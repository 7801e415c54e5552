//! The cost of a search with a regular expression.

use regex_automata::{
    dfa::{StartKind, dense, onepass},
    nfa::thompson::{self, NFA},
};
use regex_syntax::hir::{Class, Hir, HirKind, LookSet};

/// The number of bytes of text that are compared in one step.
pub(super) const BYTES_PER_STEP: usize = 64;
/// The maximum size of a one-pass automaton built to check if a search is cheap.
const MAX_ONE_PASS_BYTES: usize = 128 * 1024;
/// The maximum size of any other automaton built for that.
const MAX_DFA_BYTES: usize = 8 * 1024;
/// The maximum number of positions of an expression for which it is built.
const MAX_DFA_POSITIONS: usize = 64;
/// Steps of a search of [`BYTES_PER_STEP`] bytes with an automaton that fits its cache.
const CHEAP: usize = 16;
/// Steps of such a search if states are built, or NFA states are simulated, on each byte.
const COSTLY: usize = 128;
/// Additional steps for each position in the expression, because a search can follow all
/// of them at the same time.
const POSITION: usize = 80;
/// Positions that cost as much as a test for a Unicode word boundary.
const WORD_BOUNDARY: usize = 3;
/// Transitions of a character class that are searched in the time of a position.
const TRANSITIONS: usize = 32;
/// Bytes that are cleared in a step. The search of a short text clears a bit for each NFA
/// state and byte.
const CLEARED_BYTES: usize = 128;

/// Bytes that a class such as `\s` becomes in the syntax of the `regex` crate.
const TRANSLATED_CLASS: usize = 160;
/// Bytes of an expression that are translated in the time of parsing `\p{L}`.
const PROPERTY: usize = 150;
/// The same if upper and lower case are the same.
const FOLDED_PROPERTY: usize = 8_000;

/// A regular expression of a schema.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pattern {
    /// Steps of a search of [`BYTES_PER_STEP`] bytes.
    cost: usize,
}

// === impl Pattern ===

impl Pattern {
    /// Compiles an expression to count its states. Returns `None` if its NFA takes more bytes than
    /// are left.
    pub(super) fn new(pattern: &str, left: &mut usize) -> Option<Self> {
        // The validator compiles no expression that cannot be parsed.
        let hir = jsonschema_regex::to_rust_regex(pattern)
            .ok()
            .and_then(|pattern| regex_syntax::parse(&pattern).ok());
        let Some(hir) = hir else { return Some(Self::default()) };
        let config = thompson::Config::new().nfa_size_limit(Some(*left));
        let nfa = thompson::Compiler::new().configure(config).build_from_hir(&hir).ok()?;
        *left = left.checked_sub(nfa.memory_usage())?;
        if is_cheap(&hir, &nfa) {
            return Some(Self { cost: CHEAP });
        }
        let cleared = nfa.states().len() * BYTES_PER_STEP / 8 / CLEARED_BYTES;
        let positions = positions(&hir).saturating_mul(POSITION);
        Some(Self { cost: positions.saturating_add(COSTLY + cleared) })
    }

    /// The steps of a search of [`BYTES_PER_STEP`] bytes.
    pub(super) const fn cost(self) -> usize {
        self.cost
    }
}

/// Returns the length of a plain expression that takes the same time to translate and parse.
pub(super) fn size(pattern: &str) -> usize {
    let escapes = |letters: &[u8]| {
        let escapes = pattern.as_bytes().windows(2);
        escapes.filter(|pair| pair[0] == b'\\' && letters.contains(&pair[1])).count()
    };
    let mut property = PROPERTY;
    if ignores_case(pattern) {
        // Each character of a range is looked up, and a range can have a million.
        if !pattern.is_ascii() || escapes(b"ux") > 0 {
            return usize::MAX;
        }
        property = FOLDED_PROPERTY;
    }
    let classes = escapes(b"dDsSwW");
    let translated = pattern.len() + classes * TRANSLATED_CLASS;
    // The translation starts again after each of them.
    translated * (1 + classes) + escapes(b"pP") * property
}

/// Returns `true` if an expression sets the flag `i`.
fn ignores_case(pattern: &str) -> bool {
    pattern.split("(?").skip(1).any(|group| {
        let flags = group.bytes().take_while(|byte| byte.is_ascii_alphabetic() || *byte == b'-');
        flags.into_iter().any(|flag| flag == b'i')
    })
}

/// Returns `true` if the lazy automaton of a search has so few states that its cache holds all.
fn is_cheap(hir: &Hir, nfa: &NFA) -> bool {
    // The automaton cannot test for word boundaries between non-ASCII characters.
    if nfa.look_set_any().contains_word_unicode() {
        return false;
    }
    if nfa.is_always_start_anchored() {
        let config = onepass::Config::new().size_limit(Some(MAX_ONE_PASS_BYTES));
        if onepass::Builder::new().configure(config).build_from_nfa(nfa.clone()).is_ok() {
            return true;
        }
    }
    let config = dense::Config::new()
        .start_kind(StartKind::Unanchored)
        .dfa_size_limit(Some(MAX_DFA_BYTES))
        .determinize_size_limit(Some(MAX_DFA_BYTES));
    positions(hir) <= MAX_DFA_POSITIONS
        && dense::Builder::new().configure(config).build_from_nfa(nfa).is_ok()
}

/// Returns the number of positions in an expression that a search can be at simultaneously.
fn positions(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty => 1,
        HirKind::Look(look) if LookSet::singleton(*look).contains_word_unicode() => WORD_BOUNDARY,
        HirKind::Look(_) => 1,
        HirKind::Class(class) => 1 + transitions(class) / TRANSITIONS,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            positions(&repetition.sub).saturating_mul(times as usize)
        }
        HirKind::Capture(capture) => positions(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(positions).fold(0, usize::saturating_add)
        }
    }
}

/// Returns the maximum number of transitions that a search compares with a byte.
fn transitions(class: &Class) -> usize {
    let ranges = match class {
        Class::Unicode(class) => class.ranges().len(),
        Class::Bytes(class) => class.ranges().len(),
    };
    // The transitions of one lead byte.
    ranges.min(64)
}
