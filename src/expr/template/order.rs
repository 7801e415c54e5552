//! Defines the order of values for the operators `<`, `<=`, `>` and `>=`, and for the filters
//! `sort`, `min`, `max`, `unique`, `groupby` and `dictsort`.
//!
//! Null and values of different types have no order, so ordering them is an error. Equality is
//! defined for all values, and `unique` and `groupby` need only equality.
//!
//! A filter computes the sort keys of all elements first. It counts the evaluation steps of all
//! comparisons in advance, so that the comparisons cannot exceed the limits of the evaluation.

use std::{cmp::Ordering, collections::BTreeSet, mem::discriminant, rc::Rc};

use super::{
    arguments::{Arguments, Call},
    budget::{Budget, Evaluated, Failure},
    numeric::Numeric,
    value::{Group, Value, cannot_compare},
};

/// The key by which an element of a list is sorted. Keys of different types are sorted in the order
/// of the variants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The key of an element without the attribute by which the list is sorted.
    Missing,
    Null,
    Bool(bool),
    Number(Numeric),
    Text(Box<str>),
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
}

/// The types of two values that have no order, such as a number and a string.
type Mismatch = (&'static str, &'static str);

type Keyed<'v> = Vec<(Key, Value<'v>)>;

/// The number of comparisons of key parts per evaluation step.
const COMPARISONS: usize = 4;

/// Compares two values for the operator `symbol`, such as `<`. Returns an error if a value is null
/// or the types differ.
pub(super) fn ordering(
    budget: &Budget,
    symbol: &str,
    left: &Value<'_>,
    right: &Value<'_>,
) -> Evaluated<Ordering> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        budget.read(left)?;
        return Ok(left.cmp(right));
    }
    if let (Some(left), Some(right)) = (left.number(), right.number()) {
        return Ok(left.cmp(&right));
    }
    let mismatch = |(left, right)| Failure::other(cannot_compare(symbol, left, right));
    let kinds = (left.kind(), right.kind());
    if kinds.0 != kinds.1 {
        return Err(mismatch(kinds));
    }
    let mut size = 0;
    let left = Key::of(budget, &mut size, left, true)?;
    left.order(&Key::of(budget, &mut size, right, true)?).map_err(mismatch)
}

/// Sorts elements by their keys, in descending order if `reverse` is `true`. Returns an error if
/// two keys have no order. `name` is the filter in the error message.
fn sorted<'v>(name: &str, mut keyed: Keyed<'v>, reverse: bool) -> Evaluated<Keyed<'v>> {
    let mut mismatch = None;
    keyed.sort_by(|(a, _), (b, _)| {
        let ordering = a.compare(b, &mut mismatch);
        if reverse { ordering.reverse() } else { ordering }
    });
    matched(name, mismatch)?;
    Ok(keyed)
}

fn matched(name: &str, mismatch: Option<Mismatch>) -> Evaluated<()> {
    match mismatch {
        None => Ok(()),
        Some((left, right)) => Err(Failure::other(cannot_compare(name, left, right))),
    }
}

pub(super) fn sort<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let attribute = arguments.named_text("attribute")?;
    let case_sensitive = case(&mut arguments, false)?;
    let reverse = arguments.named_flag("reverse")?.unwrap_or(false);
    arguments.end()?;
    let names = attribute.as_deref().map(|names| names.split(',').map(str::trim));
    let names = names.map(|names| names.filter(|name| !name.is_empty()).collect::<Vec<_>>());
    let keyed = keyed(budget, &value, |size, element| {
        let mut key_of = |name: &str| {
            let part = attribute_of(budget, element, name)?;
            Key::of(budget, size, &part, case_sensitive)
        };
        match names.as_deref() {
            None => Key::of(budget, size, element, case_sensitive),
            Some([]) => key_of(""),
            Some([name]) => key_of(name),
            Some(names) => {
                Ok(Key::List(names.iter().map(|name| key_of(name)).collect::<Result<_, _>>()?))
            }
        }
    })?;
    let sorted = sorted("sort", keyed, reverse)?;
    budget.list(sorted.into_iter().map(|(_, element)| Ok(element)))
}

pub(super) fn min<'v>(call: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    extreme("min", call)
}

pub(super) fn max<'v>(call: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    extreme("max", call)
}

/// The filters `min` and `max`. If several elements are equal, `min` returns the first, and `max`
/// the last.
fn extreme<'v>(
    name: &str,
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let attribute = arguments.named_text("attribute")?;
    let case_sensitive = case(&mut arguments, false)?;
    arguments.end()?;
    let keyed =
        by_attribute(budget, &value, attribute.as_deref(), case_sensitive, &Value::Undefined)?;
    let mut mismatch = None;
    let elements = keyed.into_iter();
    let found = match name {
        "min" => elements.min_by(|(a, _), (b, _)| a.compare(b, &mut mismatch)),
        _ => elements.max_by(|(a, _), (b, _)| a.compare(b, &mut mismatch)),
    };
    matched(name, mismatch)?;
    Ok(found.map_or(Value::Undefined, |(_, element)| element))
}

pub(super) fn unique<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let attribute = arguments.named_text("attribute")?;
    let case_sensitive = case(&mut arguments, true)?;
    arguments.end()?;
    let keyed =
        by_attribute(budget, &value, attribute.as_deref(), case_sensitive, &Value::Undefined)?;
    let mut seen = BTreeSet::new();
    let first = keyed.into_iter().filter_map(|(key, element)| seen.insert(key).then_some(element));
    budget.list(first.map(Ok))
}

pub(super) fn group_by<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let attribute = arguments.text("attribute")?.ok_or_else(Arguments::missing)?;
    let default = arguments.named("default").unwrap_or(Value::Undefined);
    let case_sensitive = case(&mut arguments, true)?;
    arguments.end()?;
    let mut keyed = by_attribute(budget, &value, Some(&attribute), case_sensitive, &default)?;
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    let groups = keyed.chunk_by(|(a, _), (b, _)| a == b).map(|group| {
        let grouper = match attribute_of(budget, &group[0].1, &attribute)? {
            Value::Undefined => default.clone(),
            grouper => grouper,
        };
        budget.spend(size_of::<Group<'_>>())?;
        let elements = budget.list(group.iter().map(|(_, element)| Ok(element.clone())))?;
        Ok(Value::Group(Rc::new(Group { grouper, elements })))
    });
    budget.list(groups)
}

pub(super) fn sort_members<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let by_value = arguments.named_text("by")?.as_deref() == Some("value");
    let case_sensitive = case(&mut arguments, false)?;
    let reverse = arguments.named_flag("reverse")?.unwrap_or(false);
    arguments.end()?;
    let keyed = keyed(budget, &value.pairs(budget)?, |size, pair| {
        let key = pair.element(budget, usize::from(by_value))?;
        Key::of(budget, size, &key, case_sensitive)
    })?;
    let sorted = sorted("dictsort", keyed, reverse)?;
    budget.list(sorted.into_iter().map(|(_, pair)| Ok(pair)))
}

/// Reads the argument `case_sensitive`, which defaults to `default`.
fn case(arguments: &mut Arguments<'_>, default: bool) -> Evaluated<bool> {
    Ok(arguments.named_flag("case_sensitive")?.unwrap_or(default))
}

fn by_attribute<'v>(
    budget: &Budget,
    value: &Value<'v>,
    attribute: Option<&str>,
    case_sensitive: bool,
    default: &Value<'v>,
) -> Evaluated<Keyed<'v>> {
    keyed(budget, value, |size, element| match attribute {
        None => Key::of(budget, size, element, case_sensitive),
        Some(attribute) => match attribute_of(budget, element, attribute)? {
            Value::Undefined => Key::of(budget, size, default, case_sensitive),
            part => Key::of(budget, size, &part, case_sensitive),
        },
    })
}

/// Computes the sort keys of all elements, and counts the evaluation steps for sorting them.
fn keyed<'v>(
    budget: &Budget,
    value: &Value<'v>,
    key: impl Fn(&mut usize, &Value<'v>) -> Evaluated<Key>,
) -> Evaluated<Keyed<'v>> {
    let mut keyed = Vec::new();
    let mut size = 0;
    for element in value.iterate(budget)? {
        let element = element?;
        budget.spend(size_of::<Value<'_>>())?;
        keyed.push((key(&mut size, &element)?, element));
    }
    let rounds = keyed.len().checked_ilog2().unwrap_or(0) as usize;
    budget.step(size.saturating_mul(rounds) / COMPARISONS)?;
    Ok(keyed)
}

/// Returns an attribute of `element`. `attribute` is a name or a path such as `a.b`. Returns
/// undefined if the attribute does not exist.
pub(super) fn attribute_of<'v>(
    budget: &Budget,
    element: &Value<'v>,
    attribute: &str,
) -> Evaluated<Value<'v>> {
    let mut part = element.clone();
    for name in attribute.split('.') {
        budget.step(1)?;
        part = part.get(budget, name)?;
        if part.is_undefined() {
            break;
        }
    }
    Ok(part)
}

// === impl Key ===

impl Key {
    /// Computes the sort key of a value. Adds the number of its parts to `size`.
    fn of(
        budget: &Budget,
        size: &mut usize,
        value: &Value<'_>,
        case_sensitive: bool,
    ) -> Evaluated<Self> {
        budget.nested(|| Self::of_nested(budget, size, value, case_sensitive))
    }

    fn of_nested(
        budget: &Budget,
        size: &mut usize,
        value: &Value<'_>,
        case_sensitive: bool,
    ) -> Evaluated<Self> {
        count(budget, size, value.as_str().unwrap_or_default())?;
        Ok(match value {
            Value::Undefined => Self::Missing,
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Integer(integer) => Self::Number(Numeric::Integer(*integer)),
            Value::Float(float) => Self::Number(Numeric::Float(*float)),
            Value::Text(text) => {
                let folded = if case_sensitive { (**text).to_owned() } else { text.to_lowercase() };
                Self::Text(folded.into())
            }
            map if map.is_map() => {
                let members = map.members(budget)?.map(|member| {
                    let (name, member) = member?;
                    let name = Self::of(budget, size, &name, true)?;
                    Ok((name, Self::of(budget, size, &member, true)?))
                });
                let mut members = members.collect::<Evaluated<Vec<_>>>()?;
                members.sort();
                Self::Map(members)
            }
            list => {
                let elements = list.iterate(budget)?;
                let keys = elements.map(|element| Self::of(budget, size, &element?, true));
                Self::List(keys.collect::<Evaluated<_>>()?)
            }
        })
    }

    /// Compares two keys. Returns their types as an error if one is null or missing, or if the
    /// types differ.
    fn order(&self, other: &Self) -> Result<Ordering, Mismatch> {
        match (self, other) {
            (Self::List(a), Self::List(b)) => lexicographic(a, b, Self::order_in),
            (Self::Map(a), Self::Map(b)) => {
                lexicographic(a, b, |(name, a), (other, b)| match name.order_in(other)? {
                    Ordering::Equal => a.order_in(b),
                    ordering => Ok(ordering),
                })
            }
            (Self::Missing | Self::Null, _) | (_, Self::Missing | Self::Null) => {
                Err((self.kind(), other.kind()))
            }
            _ if discriminant(self) == discriminant(other) => Ok(self.cmp(other)),
            _ => Err((self.kind(), other.kind())),
        }
    }

    /// Compares two parts of keys, such as array elements. Unlike in [`order`](Self::order), null
    /// equals null, and missing equals missing.
    fn order_in(&self, other: &Self) -> Result<Ordering, Mismatch> {
        match (self, other) {
            (Self::Null, Self::Null) | (Self::Missing, Self::Missing) => Ok(Ordering::Equal),
            _ => self.order(other),
        }
    }

    /// Compares two keys for sorting, which needs a total order. If [`order`](Self::order) returns
    /// an error, stores the first one in `mismatch`, and returns the order of the `Ord`
    /// implementation.
    fn compare(&self, other: &Self, mismatch: &mut Option<Mismatch>) -> Ordering {
        self.order(other).unwrap_or_else(|kinds| {
            mismatch.get_or_insert(kinds);
            self.cmp(other)
        })
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "nothing",
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Map(_) => "an object",
        }
    }
}

/// Compares two lists element by element. If one is a prefix of the other, the shorter one comes
/// first.
fn lexicographic<T>(
    a: &[T],
    b: &[T],
    order: impl Fn(&T, &T) -> Result<Ordering, Mismatch>,
) -> Result<Ordering, Mismatch> {
    for (a, b) in a.iter().zip(b) {
        match order(a, b)? {
            Ordering::Equal => (),
            ordering => return Ok(ordering),
        }
    }
    Ok(a.len().cmp(&b.len()))
}

/// Counts one evaluation step, the memory of one part of a key, and the part itself in `size`.
fn count(budget: &Budget, size: &mut usize, text: &str) -> Evaluated<()> {
    *size += 1;
    budget.step(1)?;
    budget.spend(size_of::<Key>() + text.len())
}
