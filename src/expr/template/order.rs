//! Comparison: the operators `<`, `<=`, `>` and `>=`, and the filters `sort`, `min`, `max`,
//! `unique`, `groupby`, `dictsort`.
//!
//! Values of different kinds have no order, and neither has null: comparing them is an error. Any
//! two values can be checked for equality, as `unique` and `groupby` do.
//!
//! This replaces minijinja's comparison, in which access to the data can fail, and a failure
//! halfway through a sort causes a panic. Here the keys are extracted and counted before the
//! comparison.

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

use minijinja::{
    Error, Value,
    value::{Enumerator, Kwargs, Object, ObjectRepr, ValueKind, from_args},
};
use serde_json::{Number, Value as Json};

use super::value::{Failure, Part, Run, cannot_compare, checked, iterate, kind};

/// The sort key of a value. Kinds are ordered as declared.
#[derive(Clone, Debug)]
enum Key {
    /// The value has no such attribute.
    Missing,
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Box<str>),
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
}

/// The kinds of two values without an order.
type Mismatch = (&'static str, &'static str);

/// Elements with their keys.
type Keyed = Vec<(Key, Value)>;

/// The elements of a group and the key that they share.
#[derive(Debug)]
pub(super) struct Group {
    grouper: Value,
    elements: Value,
}

/// The number of comparisons that count as one step.
const COMPARISONS: usize = 4;

/// Compares two values; fails if they are not of the same ordered kind.
pub(super) fn ordering(
    run: &Run,
    symbol: &str,
    left: &Value,
    right: &Value,
) -> Result<Ordering, Failure> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        return Ok(left.cmp(right));
    }
    let mismatch = |(left, right)| Failure::other(cannot_compare(symbol, left, right));
    let kinds = (kind(left), kind(right));
    if kinds.0 != kinds.1 {
        return Err(mismatch(kinds));
    }
    let mut size = 0;
    let left = Key::of(run, &mut size, left, true)?;
    left.order(&Key::of(run, &mut size, right, true)?).map_err(mismatch)
}

/// Sorts elements for the filter `name`.
fn sorted(name: &str, mut keyed: Keyed, reverse: bool) -> Result<Keyed, Failure> {
    let mut mismatch = None;
    keyed.sort_by(|(a, _), (b, _)| {
        let ordering = a.compare(b, &mut mismatch);
        if reverse { ordering.reverse() } else { ordering }
    });
    matched(name, mismatch)?;
    Ok(keyed)
}

fn matched(name: &str, mismatch: Option<Mismatch>) -> Result<(), Failure> {
    match mismatch {
        None => Ok(()),
        Some((left, right)) => Err(Failure::other(cannot_compare(name, left, right))),
    }
}

pub(super) fn sort(run: &Run, value: &Value, others: &[Value]) -> Result<Value, Error> {
    let (named,): (Kwargs,) = from_args(others)?;
    let attribute = named.get::<Option<&str>>("attribute")?;
    let case_sensitive = is_case_sensitive(&named, false)?;
    let reverse = named.get::<Option<bool>>("reverse")?.unwrap_or(false);
    named.assert_all_used()?;
    let keyed = keyed(run, value, |size, element| match attribute {
        Some(attributes) if attributes.contains(',') => {
            let names = attributes.split(',').map(str::trim).filter(|name| !name.is_empty());
            let keys = names.map(|name| {
                let part = attribute_of(element, name)?;
                Key::of(run, size, &part, case_sensitive)
            });
            Ok(Key::List(keys.collect::<Result<_, _>>()?))
        }
        Some(attribute) => {
            Key::of(run, size, &attribute_of(element, attribute.trim())?, case_sensitive)
        }
        None => Key::of(run, size, element, case_sensitive),
    })?;
    let sorted = sorted("sort", keyed, reverse)?;
    Ok(run.list(sorted.into_iter().map(|(_, element)| element))?)
}

/// Returns the first of the least elements, or with `Greater` the last of the greatest.
pub(super) fn extreme(
    run: &Run,
    value: &Value,
    others: &[Value],
    which: Ordering,
) -> Result<Value, Error> {
    let (named,): (Kwargs,) = from_args(others)?;
    let attribute = named.get::<Option<&str>>("attribute")?;
    let case_sensitive = is_case_sensitive(&named, false)?;
    named.assert_all_used()?;
    let keyed = by_attribute(run, value, attribute, case_sensitive, &Value::UNDEFINED)?;
    let mut mismatch = None;
    let elements = keyed.into_iter();
    let (name, found) = match which {
        Ordering::Less => ("min", elements.min_by(|(a, _), (b, _)| a.compare(b, &mut mismatch))),
        _ => ("max", elements.max_by(|(a, _), (b, _)| a.compare(b, &mut mismatch))),
    };
    matched(name, mismatch)?;
    Ok(found.map_or(Value::UNDEFINED, |(_, element)| element))
}

pub(super) fn unique(run: &Run, value: &Value, others: &[Value]) -> Result<Value, Error> {
    let (named,): (Kwargs,) = from_args(others)?;
    let attribute = named.get::<Option<&str>>("attribute")?;
    let case_sensitive = is_case_sensitive(&named, true)?;
    named.assert_all_used()?;
    let keyed = by_attribute(run, value, attribute, case_sensitive, &Value::UNDEFINED)?;
    let mut seen = BTreeSet::new();
    let first = keyed.into_iter().filter_map(|(key, element)| seen.insert(key).then_some(element));
    Ok(run.list(first)?)
}

pub(super) fn group_by(run: &Run, value: &Value, others: &[Value]) -> Result<Value, Error> {
    let (attribute, named): (Option<&str>, Kwargs) = from_args(others)?;
    let attribute = match attribute {
        Some(attribute) => attribute,
        None => named.get::<&str>("attribute")?,
    };
    let default = named.get::<Option<Value>>("default")?.unwrap_or_default();
    let case_sensitive = is_case_sensitive(&named, true)?;
    named.assert_all_used()?;
    let mut keyed = by_attribute(run, value, Some(attribute), case_sensitive, &default)?;
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    let groups = keyed.chunk_by(|(a, _), (b, _)| a == b).map(|group| {
        let grouper = match attribute_of(&group[0].1, attribute)? {
            missing if missing.is_undefined() => default.clone(),
            grouper => grouper,
        };
        run.spend(size_of::<Group>())?;
        let elements = run.list(group.iter().map(|(_, element)| element.clone()))?;
        Ok(Value::from_object(Group { grouper, elements }))
    });
    Ok(run.list(groups.collect::<Result<Vec<_>, Failure>>()?)?)
}

pub(super) fn sort_members(run: &Run, value: &Value, others: &[Value]) -> Result<Value, Error> {
    let (named,): (Kwargs,) = from_args(others)?;
    let by_value = named.get::<Option<&str>>("by")? == Some("value");
    let case_sensitive = is_case_sensitive(&named, false)?;
    let reverse = named.get::<Option<bool>>("reverse")?.unwrap_or(false);
    named.assert_all_used()?;
    let mut pairs = Vec::new();
    for key in iterate(value)? {
        let key = checked(key)?;
        let member = checked(value.get_item(&key)?)?;
        pairs.push(run.list([key, member])?);
    }
    let place = usize::from(by_value);
    let keyed = keyed(run, &Value::from(pairs), |size, pair| {
        Key::of(
            run,
            size,
            &checked(pair.get_item_by_index(place).unwrap_or_default())?,
            case_sensitive,
        )
    })?;
    let sorted = sorted("dictsort", keyed, reverse)?;
    Ok(run.list(sorted.into_iter().map(|(_, pair)| pair))?)
}

/// Whether comparison is case-sensitive. Orders are case-insensitive by default, but texts are
/// equal only if they are identical.
fn is_case_sensitive(named: &Kwargs, default: bool) -> Result<bool, Error> {
    Ok(named.get::<Option<bool>>("case_sensitive")?.unwrap_or(default))
}

fn by_attribute(
    run: &Run,
    value: &Value,
    attribute: Option<&str>,
    case_sensitive: bool,
    default: &Value,
) -> Result<Keyed, Failure> {
    keyed(run, value, |size, element| match attribute {
        None => Key::of(run, size, element, case_sensitive),
        Some(attribute) => match attribute_of(element, attribute)? {
            missing if missing.is_undefined() => Key::of(run, size, default, case_sensitive),
            part => Key::of(run, size, &part, case_sensitive),
        },
    })
}

/// Extracts the keys of the elements and counts the comparisons of a sort in advance, so that no
/// comparison can exceed the limit.
fn keyed(
    run: &Run,
    value: &Value,
    key: impl Fn(&mut usize, &Value) -> Result<Key, Failure>,
) -> Result<Keyed, Failure> {
    let mut keyed = Vec::new();
    let mut size = 0;
    for element in iterate(value)? {
        let element = checked(element)?;
        run.spend(size_of::<Value>())?;
        keyed.push((key(&mut size, &element)?, element));
    }
    let rounds = keyed.len().checked_ilog2().unwrap_or(0) as usize;
    run.step(size.saturating_mul(rounds) / COMPARISONS)?;
    Ok(keyed)
}

/// Returns an attribute of an element, or undefined.
fn attribute_of(element: &Value, attribute: &str) -> Result<Value, Failure> {
    let mut part = element.clone();
    for name in attribute.split('.') {
        let found = match name.parse::<usize>() {
            Ok(index) => part.get_item_by_index(index),
            Err(_) => part.get_attr(name),
        };
        // A value without attributes lacks this one too.
        part = checked(found.unwrap_or_default())?;
        if part.is_undefined() {
            break;
        }
    }
    Ok(part)
}

// === impl Key ===

impl Key {
    /// Returns the key of a value and adds its size to `size`.
    fn of(
        run: &Run,
        size: &mut usize,
        value: &Value,
        case_sensitive: bool,
    ) -> Result<Self, Failure> {
        if let Some(part) = value.downcast_object_ref::<Part>() {
            let key = part.with(|json| Self::of_json(run, size, json));
            return key.unwrap_or(Ok(Self::Missing));
        }
        count(run, size, value.as_str().unwrap_or_default())?;
        Ok(match value.kind() {
            ValueKind::None => Self::Null,
            ValueKind::Bool => Self::Bool(value.is_true()),
            ValueKind::Number => match i128::try_from(value.clone()) {
                Ok(integer) if value.is_integer() => Self::Integer(integer),
                _ => Self::Float(f64::try_from(value.clone()).unwrap_or(f64::MAX)),
            },
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                let folded = if case_sensitive { text.to_owned() } else { text.to_lowercase() };
                Self::Text(folded.into())
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let elements = iterate(value)?;
                let keys = elements.map(|element| Self::of(run, size, &checked(element)?, true));
                Self::List(keys.collect::<Result<_, _>>()?)
            }
            ValueKind::Map => {
                let members = iterate(value)?.map(|key| {
                    let key = checked(key)?;
                    let member = value.get_item(&key).map_err(|error| Failure::of(&error))?;
                    let name = Self::of(run, size, &key, true)?;
                    Ok((name, Self::of(run, size, &checked(member)?, true)?))
                });
                let mut members = members.collect::<Result<Vec<_>, Failure>>()?;
                members.sort();
                Self::Map(members)
            }
            _ => Self::Missing,
        })
    }

    fn of_json(run: &Run, size: &mut usize, json: &Json) -> Result<Self, Failure> {
        count(run, size, json.as_str().unwrap_or_default())?;
        Ok(match json {
            Json::Null => Self::Null,
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => Self::of_number(number),
            Json::String(text) => Self::Text(text.as_str().into()),
            Json::Array(elements) => {
                let keys = elements.iter().map(|element| Self::of_json(run, size, element));
                Self::List(keys.collect::<Result<_, _>>()?)
            }
            Json::Object(members) => {
                let members = members.iter().map(|(name, member)| {
                    count(run, size, name)?;
                    let name = Self::Text(name.as_str().into());
                    Ok((name, Self::of_json(run, size, member)?))
                });
                let mut members = members.collect::<Result<Vec<_>, Failure>>()?;
                members.sort();
                Self::Map(members)
            }
        })
    }

    fn of_number(number: &Number) -> Self {
        match number.as_i128() {
            Some(integer) => Self::Integer(integer),
            None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    /// Compares two keys; fails if they are not of the same ordered kind.
    fn order(&self, other: &Self) -> Result<Ordering, Mismatch> {
        match (self, other) {
            (Self::List(a), Self::List(b)) => lexicographic(a, b, Self::order_in),
            (Self::Map(a), Self::Map(b)) => lexicographic(a, b, |(name, a), (other, b)| {
                Ok(name.order_in(other)?.then(a.order_in(b)?))
            }),
            (Self::Missing | Self::Null, _) | (_, Self::Missing | Self::Null) => {
                Err((self.kind(), other.kind()))
            }
            _ if self.rank() == other.rank() => Ok(self.cmp(other)),
            _ => Err((self.kind(), other.kind())),
        }
    }

    /// Like `order`, inside an array or object, where equal parts need no order.
    fn order_in(&self, other: &Self) -> Result<Ordering, Mismatch> {
        if self == other { Ok(Ordering::Equal) } else { self.order(other) }
    }

    /// A total order of all keys, for sorting. Continues past keys without an order and records the
    /// first mismatch.
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
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Map(_) => "an object",
        }
    }

    const fn rank(&self) -> u8 {
        match self {
            Self::Missing => 0,
            Self::Null => 1,
            Self::Bool(_) => 2,
            Self::Integer(_) | Self::Float(_) => 3,
            Self::Text(_) => 4,
            Self::List(_) => 5,
            Self::Map(_) => 6,
        }
    }
}

/// Compares two lists by the first elements that differ.
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

/// Counts a part of a key.
fn count(run: &Run, size: &mut usize, text: &str) -> Result<(), Failure> {
    *size += 1;
    run.step(1)?;
    run.spend(size_of::<Key>() + text.len())
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => compare_floats(*a, *b),
            (Self::Integer(a), Self::Float(b)) => compare(*a, *b),
            (Self::Float(a), Self::Integer(b)) => compare(*b, *a).reverse(),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) => a.cmp(b),
            (Self::Map(a), Self::Map(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

/// Compares by value, without rounding. NaN comes last.
fn compare(integer: i128, float: f64) -> Ordering {
    /// The first float that is greater than all integers.
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

// === impl Group ===

/// A pair whose parts also have names.
impl Object for Group {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match (key.as_usize(), key.as_str()) {
            (Some(0), _) | (_, Some("grouper")) => Some(self.grouper.clone()),
            (Some(1), _) | (_, Some("list")) => Some(self.elements.clone()),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(2)
    }
}
