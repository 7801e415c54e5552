//! Computes the cost of searching strings with a regular expression, in validation steps.

use regex_automata::{
    dfa::{StartKind, dense, onepass},
    nfa::thompson::{self, NFA},
};
use regex_syntax::hir::{Class, Hir, HirKind, LookSet};

/// The number of bytes of a string that can be compared within one validation step, which takes
/// about ten nanoseconds.
pub(super) const BYTES_PER_STEP: usize = 64;
/// An anchored regular expression is considered cheap if its one-pass DFA has at most this size in
/// bytes.
const MAX_ONE_PASS_BYTES: usize = 128 * 1024;
/// A regular expression is considered cheap if its dense DFA has at most this size in bytes.
const MAX_DFA_BYTES: usize = 8 * 1024;
/// Maximum number of [positions](positions) in a regular expression for which a dense DFA is built,
/// to find out whether the expression is cheap.
const MAX_DFA_POSITIONS: usize = 64;
/// The cost of a cheap regular expression, in validation steps for every [`BYTES_PER_STEP`] bytes
/// of a string. An expression is cheap if its lazy DFA fits into the cache of the regex engine.
const CHEAP: usize = 16;
/// The minimum cost of a regular expression that is not cheap, in validation steps for every
/// [`BYTES_PER_STEP`] bytes of a string. For each byte, the regex engine builds a DFA state or
/// simulates an NFA.
const COSTLY: usize = 128;
/// The additional cost of each [position](positions) in an expression that is not cheap, in
/// validation steps for every [`BYTES_PER_STEP`] bytes of a string. A search may have to follow all
/// positions at the same time.
const POSITION: usize = 80;
/// A Unicode word boundary, such as `\b`, counts as this many [positions](positions).
const WORD_BOUNDARY: usize = 3;
/// This many transitions of a character class count as one [position](positions).
const TRANSITIONS: usize = 32;
/// The number of bytes of memory that can be cleared within one validation step. Before the regex
/// engine searches a short string, it clears a bitmap with one bit for each pair of an NFA state
/// and a byte of the string.
const CLEARED_BYTES: usize = 128;

/// The length in bytes of a character class such as `\s` after its translation to the syntax of the
/// `regex` crate.
const TRANSLATED_CLASS: usize = 160;
/// Parsing a Unicode property such as `\p{L}` takes as long as parsing this many bytes of an
/// ordinary expression.
const PROPERTY: usize = 150;
/// In an expression that ignores case, parsing a Unicode property such as `\p{L}` takes as long as
/// parsing this many bytes of an ordinary expression.
const FOLDED_PROPERTY: usize = 8_000;

/// The cost of searching strings with one regular expression of a schema.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pattern {
    /// The number of validation steps for every [`BYTES_PER_STEP`] bytes of a string.
    cost: usize,
}

// === impl Pattern ===

impl Pattern {
    /// Computes the cost of searches with a regular expression. Compiles the expression to an NFA,
    /// and subtracts the size of the NFA in bytes from `left`. Returns `None` if the NFA is larger
    /// than `left`.
    pub(super) fn new(pattern: &str, left: &mut usize) -> Option<Self> {
        // If an expression cannot be parsed, its cost is zero, because the validator does not
        // compile it.
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

    /// Returns the number of validation steps for every [`BYTES_PER_STEP`] bytes of a string.
    pub(super) const fn cost(self) -> usize {
        self.cost
    }
}

/// Returns the time for translating and parsing a regular expression. The unit is the time for one
/// byte of an expression without character classes.
pub(super) fn size(pattern: &str) -> usize {
    let escapes = |letters: &[u8]| {
        let escapes = pattern.as_bytes().windows(2);
        escapes.filter(|pair| pair[0] == b'\\' && letters.contains(&pair[1])).count()
    };
    let mut property = PROPERTY;
    if ignores_case(pattern) {
        // If an expression ignores case, the parser looks up each character of a range, which can
        // contain a million characters.
        if !pattern.is_ascii() || escapes(b"ux") > 0 {
            return usize::MAX;
        }
        property = FOLDED_PROPERTY;
    }
    let classes = escapes(b"dDsSwW");
    let translated = pattern.len() + classes * TRANSLATED_CLASS;
    // The translation of an expression starts again from the beginning after each character class.
    translated * (1 + classes) + escapes(b"pP") * property
}

/// Returns `true` if a group of the regular expression sets the flag `i`, which ignores case, as in
/// `(?i)`.
fn ignores_case(pattern: &str) -> bool {
    pattern.split("(?").skip(1).any(|group| {
        let flags = group.bytes().take_while(|byte| byte.is_ascii_alphabetic() || *byte == b'-');
        flags.into_iter().any(|flag| flag == b'i')
    })
}

/// Returns `true` if searches with a regular expression are cheap, because all states of its lazy
/// DFA fit into the cache of the regex engine.
fn is_cheap(hir: &Hir, nfa: &NFA) -> bool {
    // Excludes Unicode word boundaries, because a DFA cannot test for word boundaries between
    // non-ASCII characters.
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

/// Returns the number of positions in a regular expression. A position is a place that a search can
/// reach in the expression, such as a byte of a literal. A search may have to follow all positions
/// at the same time. Slow positions, such as large character classes, are counted several times.
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

/// Returns the maximum number of transitions of a character class that a search compares with one
/// byte of a string.
fn transitions(class: &Class) -> usize {
    let ranges = match class {
        Class::Unicode(class) => class.ranges().len(),
        Class::Bytes(class) => class.ranges().len(),
    };
    // A UTF-8 lead byte has at most 64 transitions.
    ranges.min(64)
}
