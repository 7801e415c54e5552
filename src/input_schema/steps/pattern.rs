//! What it costs to search a text for a regular expression.

use regex_automata::{dfa::onepass, nfa::thompson};
use regex_syntax::hir::{Hir, HirKind};

/// How many positions an expression may have whose automaton is certainly small.
const FEW: usize = 6;
/// How large an automaton may be that is looked at to see whether it is simple.
const MAX_BYTES: usize = 128 * 1024;
/// What it costs to search so many bytes, with an automaton that fits its cache.
const SEARCH: usize = 16;
/// What it costs beyond that for each position in the expression, if all of them
/// are followed at the same time.
const POSITION: usize = 40;
/// The bytes that those are of.
const BYTES: usize = 64;

/// A regular expression of a schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    /// How many places in the expression may be followed at the same time.
    positions: usize,
}

// === impl Pattern ===

impl Pattern {
    pub(super) fn new(pattern: &str) -> Self {
        // What cannot be read is not compiled either.
        let positions = jsonschema_regex::to_rust_regex(pattern)
            .ok()
            .and_then(|pattern| regex_syntax::parse(&pattern).ok())
            .map_or(0, |hir| if is_simple(&hir) { 0 } else { positions(&hir) });
        Self { positions }
    }

    /// How many steps it costs to search a text of so many bytes.
    pub(super) const fn cost(self, bytes: usize) -> usize {
        let each = SEARCH.saturating_add(self.positions.saturating_mul(POSITION));
        each.saturating_mul(bytes) / BYTES
    }
}

/// Whether a search is always in one of few states.
fn is_simple(hir: &Hir) -> bool {
    if positions(hir) <= FEW {
        return true;
    }
    let config = thompson::Config::new().nfa_size_limit(Some(MAX_BYTES));
    let Ok(nfa) = thompson::Compiler::new().configure(config).build_from_hir(hir) else {
        return false;
    };
    let config = onepass::Config::new().size_limit(Some(MAX_BYTES));
    nfa.is_always_start_anchored()
        && onepass::Builder::new().configure(config).build_from_nfa(nfa).is_ok()
}

/// How many characters of a text an expression can match one after the other, and how
/// many alternatives it has for them.
fn positions(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
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
