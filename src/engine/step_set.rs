//! A set of steps, as a bit set.

use std::fmt;

/// A set of steps. Bit `n` is set if the set contains the step with the index `n`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StepSet(u128);

// === impl StepSet ===

impl StepSet {
    /// Returns the set of the steps with the indexes `0..count`.
    pub(crate) const fn first(count: usize) -> Self {
        match count {
            0 => Self(0),
            1..128 => Self((1 << count) - 1),
            _ => Self(u128::MAX),
        }
    }

    pub(crate) const fn insert(&mut self, step: usize) {
        self.0 |= 1 << step;
    }

    pub(crate) const fn remove(&mut self, step: usize) {
        self.0 &= !(1 << step);
    }

    pub(crate) const fn contains(self, step: usize) -> bool {
        self.0 & (1 << step) != 0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns `true` if `other` contains all steps of this set.
    pub(crate) const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

impl Iterator for StepSet {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let next = self.0.trailing_zeros() as usize;
        (next < 128).then(|| {
            self.remove(next);
            next
        })
    }
}

impl DoubleEndedIterator for StepSet {
    fn next_back(&mut self) -> Option<usize> {
        let last = 127_usize.checked_sub(self.0.leading_zeros() as usize)?;
        self.remove(last);
        Some(last)
    }
}

impl FromIterator<usize> for StepSet {
    fn from_iter<I: IntoIterator<Item = usize>>(steps: I) -> Self {
        let mut set = Self::default();
        steps.into_iter().for_each(|step| set.insert(step));
        set
    }
}

impl fmt::Debug for StepSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(*self).finish()
    }
}
