//! Divides a budget of bytes fairly among the parts of a result.

/// The minimum and full size of a part, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The size of the part if it is cut as much as possible.
    pub(super) least: usize,
    /// The size of the part if it is not cut.
    pub(super) whole: usize,
    /// Whether the part can only have its minimum size or its full size.
    pub(super) all_or_least: bool,
}

/// A part of a list, such as an array element. If the part is not required, it may be omitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// The number of additional bytes that the part needs if it is kept, for example for its key
    /// and a comma.
    pub(super) beside: usize,
    pub(super) part: Part,
    pub(super) is_required: bool,
}

/// The parts of a list that are kept, and the number of bytes that each of them gets.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The indices of the kept parts, in ascending order.
    pub(super) places: Vec<usize>,
    pub(super) shares: Vec<usize>,
}

/// A part of up to this many bytes is kept whole or omitted if the list has many parts, because a
/// few whole parts are more useful than many fragments.
const WORTH: usize = 1024;
/// Maximum number of parts of a list that always shares its budget evenly.
const FEW: usize = 8;
/// Minimum number of bytes per part for which a list of more than [`FEW`] parts shares its budget
/// evenly.
const EVEN: usize = 256;

/// Chooses the parts of a list that are kept, and shares the budget among these parts.
///
/// Keeps all required parts, and of the other parts the first ones that fit the budget. `count` is
/// the number of parts in the list. `reserved` is the number of bytes that all required parts
/// together need at least.
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
    let (mut places, mut parts) = (Vec::new(), Vec::new());
    for (place, need) in needs.into_iter().enumerate() {
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
            if !places.is_empty() || need.beside + part.least > left {
                if reserved == 0 {
                    break;
                }
                continue;
            }
            left -= need.beside + part.least;
            part.least
        };
        beside += need.beside;
        places.push(place);
        parts.push(Part { least, ..part });
    }
    Chosen { places, shares: shares(budget.saturating_sub(beside), parts) }
}

/// Shares `budget` bytes fairly among the parts, and returns the number of bytes of each part.
///
/// Small parts keep their full size, and all larger parts are cut to the same size. If the budget
/// is less than the sum of all minimum sizes, each part gets its minimum size.
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

/// Returns the largest size to which all parts can be limited so that together they fit the budget.
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
    /// Creates a part that can be cut anywhere.
    pub(super) const fn new(least: usize, whole: usize) -> Self {
        Self { least, whole, all_or_least: false }
    }

    fn at(&self, level: usize) -> usize {
        level.min(self.whole).max(self.least)
    }
}
