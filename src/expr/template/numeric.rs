//! Numbers in templates.

use std::cmp::Ordering;

/// A number in a template. Numbers are ordered by value, without rounding. NaN is equal to itself,
/// and greater than all other numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numeric {
    Integer(i128),
    Float(f64),
}

// === impl Numeric ===

impl Numeric {
    #[expect(clippy::cast_precision_loss, reason = "as in other languages")]
    pub(super) const fn to_float(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }

    pub(super) const fn is_nan(self) -> bool {
        matches!(self, Self::Float(float) if float.is_nan())
    }
}

impl Ord for Numeric {
    fn cmp(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(&b),
            (Self::Float(a), Self::Float(b)) => compare_floats(a, b),
            (Self::Integer(a), Self::Float(b)) => compare(a, b),
            (Self::Float(a), Self::Integer(b)) => compare(b, a).reverse(),
        }
    }
}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

fn compare(integer: i128, float: f64) -> Ordering {
    /// 2^127, the smallest float that is greater than all values of `i128`.
    const END: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    if float.is_nan() || float >= END {
        return Ordering::Less;
    }
    if float < -END {
        return Ordering::Greater;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
    let whole = float.trunc() as i128;
    integer.cmp(&whole).then_with(|| compare_floats(0.0, float.fract()))
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
