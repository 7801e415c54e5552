//! Computes the cost of searching texts with a regular expression.

use regex_automata::{
    dfa::{StartKind, dense, onepass},
    nfa::thompson::{self, NFA},
};
use regex_syntax::hir::{Class, Hir, HirKind, LookSet};

/// The number of text bytes that can be compared in the time that one step takes.
pub(super) const BYTES_PER_STEP: usize = 64;
/// The maximum size in bytes of a one-pass DFA. Searches with an anchored expression are cheap if
/// its one-pass DFA is not larger.
const MAX_ONE_PASS_BYTES: usize = 128 * 1024;
/// The maximum size in bytes of a dense DFA. Searches with an expression are cheap if its dense DFA
/// is not larger.
const MAX_DFA_BYTES: usize = 8 * 1024;
/// The maximum number of [positions](positions) of an expression for which a dense DFA is built.
const MAX_DFA_POSITIONS: usize = 64;
/// The cost, in steps, of searching [`BYTES_PER_STEP`] bytes if the lazy DFA fits into its cache.
const CHEAP: usize = 16;
/// The cost, in steps, of searching [`BYTES_PER_STEP`] bytes if each byte requires building a DFA
/// state or simulating NFA states.
const COSTLY: usize = 128;
/// The additional cost for each [position](positions) in the expression, since a search can follow
/// all positions at the same time.
const POSITION: usize = 80;
/// The cost of testing for a Unicode word boundary, in positions.
const WORD_BOUNDARY: usize = 3;
/// The number of transitions of a character class that cost as much as one position.
const TRANSITIONS: usize = 32;
/// The number of memory bytes that can be cleared in the time that one step takes. Before searching
/// a short text, the engine clears one bit for each pair of an NFA state and a byte of the text.
const CLEARED_BYTES: usize = 128;

/// The length in bytes of a class such as `\s` when translated to the syntax of the `regex` crate.
const TRANSLATED_CLASS: usize = 160;
/// The number of expression bytes that can be translated in the time that parsing `\p{L}` takes.
const PROPERTY: usize = 150;
/// The number of expression bytes that can be translated in the time that parsing `\p{L}` takes, if
/// the expression ignores case.
const FOLDED_PROPERTY: usize = 8_000;

/// A regular expression in a schema.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pattern {
    /// The cost of searching [`BYTES_PER_STEP`] bytes, in steps.
    cost: usize,
}

// === impl Pattern ===

impl Pattern {
    /// Compiles an expression to compute the cost of searches with it. Subtracts the size of its
    /// NFA in bytes from `left`. Returns `None` if the NFA is larger than `left`.
    pub(super) fn new(pattern: &str, left: &mut usize) -> Option<Self> {
        // An expression that cannot be parsed costs nothing, because the validator does not compile
        // it either.
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

    /// Returns the cost of searching [`BYTES_PER_STEP`] bytes, in steps.
    pub(super) const fn cost(self) -> usize {
        self.cost
    }
}

/// Returns the cost of translating and parsing an expression. The cost is the length in bytes of an
/// expression without character classes that takes the same time.
pub(super) fn size(pattern: &str) -> usize {
    let escapes = |letters: &[u8]| {
        let escapes = pattern.as_bytes().windows(2);
        escapes.filter(|pair| pair[0] == b'\\' && letters.contains(&pair[1])).count()
    };
    let mut property = PROPERTY;
    if ignores_case(pattern) {
        // When ignoring case, the parser looks up each character of a range, and a range can
        // contain a million characters.
        if !pattern.is_ascii() || escapes(b"ux") > 0 {
            return usize::MAX;
        }
        property = FOLDED_PROPERTY;
    }
    let classes = escapes(b"dDsSwW");
    let translated = pattern.len() + classes * TRANSLATED_CLASS;
    // The translation starts from the beginning again after each class.
    translated * (1 + classes) + escapes(b"pP") * property
}

/// Returns `true` if an expression sets the flag `i`, so that it ignores case.
fn ignores_case(pattern: &str) -> bool {
    pattern.split("(?").skip(1).any(|group| {
        let flags = group.bytes().take_while(|byte| byte.is_ascii_alphabetic() || *byte == b'-');
        flags.into_iter().any(|flag| flag == b'i')
    })
}

/// Returns `true` if searches are cheap, because the lazy DFA has so few states that all of them
/// fit into its cache.
fn is_cheap(hir: &Hir, nfa: &NFA) -> bool {
    // A DFA cannot test for word boundaries between non-ASCII characters.
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

/// Returns the number of positions in an expression, such as the bytes of a literal. A search may
/// have to follow all of them at the same time, one for each way in which the text can match so
/// far. A position that is more expensive to follow, such as a large character class, counts as
/// several.
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

/// Returns the maximum number of transitions that a search compares with one byte.
fn transitions(class: &Class) -> usize {
    let ranges = match class {
        Class::Unicode(class) => class.ranges().len(),
        Class::Bytes(class) => class.ranges().len(),
    };
    // A lead byte has at most 64 transitions.
    ranges.min(64)
}
