//! Divides a budget of bytes fairly among the parts of a result.

/// A part of a result that can be cut, with its minimum and its full size in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The size of the part if it is cut as much as possible.
    pub(super) least: usize,
    /// The size of the part if it is not cut.
    pub(super) whole: usize,
    /// `true` if the part has only the sizes `least` and `whole`, such as an image that a note can
    /// replace. `false` if it can be cut to any size in between.
    pub(super) all_or_least: bool,
}

/// A part of a list, such as an array element, an object member or a content block. It can be
/// omitted unless it is required.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// The number of bytes that the list needs beside the part, such as those for a comma and the
    /// key of a member.
    pub(super) beside: usize,
    pub(super) part: Part,
    pub(super) is_required: bool,
}

/// The result of [`choose`]: the parts of a list that are kept, and the number of bytes for each of
/// them.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The indices of the kept parts, in ascending order.
    pub(super) indices: Vec<usize>,
    pub(super) shares: Vec<usize>,
}

/// In a list with many parts, a part of up to this many bytes is never cut, but kept whole or
/// omitted. A few whole parts are more useful than many fragments.
const WORTH: usize = 1024;
/// A list with at most this many parts always divides its bytes evenly among its parts.
const FEW: usize = 8;
/// A list with more than [`FEW`] parts divides its bytes evenly only if each part gets at least
/// this many bytes.
const EVEN: usize = 256;

/// Chooses the parts of a list that are kept, and divides `budget` bytes among them.
///
/// Keeps all required parts. Keeps the other parts in order until the budget is exhausted. `count`
/// is the number of parts in the list. `reserved` is the number of bytes that the required parts
/// need at least.
pub(super) fn choose(
    budget: usize,
    count: usize,
    reserved: usize,
    needs: impl IntoIterator<Item = Need>,
) -> Chosen {
    let even = budget / count.max(1);
    let worth = if count <= FEW || even >= EVEN { even.min(WORTH) } else { WORTH };
    let mut left = budget.saturating_sub(reserved);
    let mut is_full = false;
    let mut beside = 0;
    let (mut indices, mut parts) = (Vec::new(), Vec::new());
    for (index, need) in needs.into_iter().enumerate() {
        let Need { part, is_required, .. } = need;
        let worth = match worth.saturating_sub(need.beside) {
            worth if part.all_or_least && worth < part.whole => part.least,
            worth => worth.min(part.whole).max(part.least),
        };
        let least = if is_required {
            let more = worth - part.least;
            let has_more = more <= left;
            left -= if has_more { more } else { 0 };
            if has_more { worth } else { part.least }
        } else if is_full {
            continue;
        } else if let Some(rest) = left.checked_sub(need.beside + worth) {
            left = rest;
            worth
        } else {
            is_full = true;
            // Cut the first part instead of omitting it if it is too large.
            if !indices.is_empty() || need.beside + part.least > left {
                if reserved == 0 {
                    break;
                }
                continue;
            }
            left -= need.beside + part.least;
            part.least
        };
        beside += need.beside;
        indices.push(index);
        parts.push(Part { least, ..part });
    }
    Chosen { indices, shares: shares(budget.saturating_sub(beside), parts) }
}

/// Divides `budget` bytes fairly among the parts. Returns the number of bytes for each part.
///
/// A part that is smaller than its share keeps its full size, and all larger parts are cut to the
/// same size. If `budget` is too small for the minimum sizes, each part gets its minimum size.
pub(super) fn shares(budget: usize, mut parts: Vec<Part>) -> Vec<usize> {
    let level = level(budget, &parts);
    let mut gave_up = false;
    for part in parts.iter_mut().filter(|part| part.all_or_least && part.at(level) < part.whole) {
        part.whole = part.least;
        gave_up = true;
    }
    // The other parts share the bytes that the parts at their minimum size do not use.
    let level = if gave_up { self::level(budget, &parts) } else { level };
    parts.iter().map(|part| part.at(level)).collect()
}

/// Returns the largest size in bytes such that all parts fit `budget` when each larger part is cut
/// to this size.
fn level(budget: usize, parts: &[Part]) -> usize {
    let used = |level: usize| parts.iter().map(|part| part.at(level)).sum::<usize>();
    let most = parts.iter().map(|part| part.whole).max().unwrap_or_default();
    if used(most) <= budget {
        return most;
    }
    // Use a binary search, because `used` grows with the level.
    let (mut low, mut high) = (0, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if used(middle) <= budget { low = middle } else { high = middle }
    }
    low
}

// === impl Part ===

impl Part {
    /// Creates a part that can be cut to any size from `least` to `whole`.
    pub(super) const fn new(least: usize, whole: usize) -> Self {
        Self { least, whole, all_or_least: false }
    }

    fn at(&self, level: usize) -> usize {
        level.min(self.whole).max(self.least)
    }
}
