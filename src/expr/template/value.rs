//! The values in templates.

use std::{ops::Deref, rc::Rc};

use serde_json::{Map, Number, Value as Json};

use super::{
    budget::{
        Budget, Evaluated, Failure, MAX_ELEMENTS, MAX_RENDERED_BYTES, nothing, too_many_elements,
    },
    numeric::Numeric,
};
use crate::expr::path_segment::place;

/// The approximate memory of an object without its members, in bytes.
const MAP_BYTES: usize = 256;

/// A value in a template. It may borrow from the template and from the data of the run.
#[derive(Clone, Debug)]
pub(super) enum Value<'v> {
    Undefined,
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(Text<'v>),
    /// An array in the data of the run.
    Array(&'v [Json]),
    List(Rc<[Self]>),
    /// An object in the data of the run.
    Object(&'v Map<String, Json>),
    /// An object that the evaluation has created. Its members are sorted by name.
    Map(Rc<[(Text<'v>, Self)]>),
    Group(Rc<Group<'v>>),
}

/// A string value.
#[derive(Clone, Debug)]
pub(super) enum Text<'v> {
    Borrowed(&'v str),
    Shared(Rc<str>),
}

/// A group of elements with the same key, which the filter `groupby` returns. It is a list of the
/// key and the elements, which also has the members `grouper` and `list`.
#[derive(Debug)]
pub(super) struct Group<'v> {
    pub(super) grouper: Value<'v>,
    pub(super) elements: Value<'v>,
}

// === impl Budget ===

impl Budget {
    /// Creates a string value, and counts its memory. Returns an error if the string is too long.
    pub(super) fn text<'v>(&self, text: String) -> Evaluated<Value<'v>> {
        if text.len() > MAX_RENDERED_BYTES {
            return Err(Failure::TooLarge);
        }
        self.spend(text.len())?;
        Ok(Value::Text(Text::Shared(text.into())))
    }

    /// Creates a list value, and counts its memory and one evaluation step per element.
    pub(super) fn list<'v>(
        &self,
        elements: impl IntoIterator<Item = Evaluated<Value<'v>>>,
    ) -> Evaluated<Value<'v>> {
        let mut list = Vec::new();
        for element in elements {
            if list.len() == MAX_ELEMENTS {
                return Err(too_many_elements());
            }
            self.step(1)?;
            self.spend(size_of::<Value<'_>>())?;
            list.push(element?);
        }
        Ok(Value::List(list.into()))
    }

    /// Creates an object value, and counts its memory.
    pub(super) fn map<'v>(&self, members: Vec<(Text<'v>, Value<'v>)>) -> Evaluated<Value<'v>> {
        self.spend(MAP_BYTES + members.len() * size_of::<(Text<'_>, Value<'_>)>())?;
        Ok(Value::of_members(members))
    }
}

// === impl Value ===

impl<'v> Value<'v> {
    /// Converts a JSON value in the data of the run. Borrows strings, arrays and objects.
    pub(super) fn of(budget: &Budget, json: &'v Json) -> Evaluated<Self> {
        budget.step(1)?;
        Ok(match json {
            Json::Null => Self::Null,
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => Self::of_number(number),
            Json::String(text) => {
                if text.len() > MAX_RENDERED_BYTES {
                    return Err(Failure::TooLarge);
                }
                budget.read(text)?;
                Self::Text(Text::Borrowed(text))
            }
            Json::Array(elements) => Self::Array(elements),
            Json::Object(members) => Self::Object(members),
        })
    }

    /// Converts a JSON value that the evaluation has created, without counting its memory.
    pub(super) fn made(json: Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(truth) => Self::Bool(truth),
            Json::Number(number) => Self::of_number(&number),
            Json::String(text) => Self::Text(Text::Shared(text.into())),
            Json::Array(elements) => Self::List(elements.into_iter().map(Self::made).collect()),
            Json::Object(members) => {
                let members = members.into_iter();
                let member =
                    |(name, member): (String, _)| (Text::Shared(name.into()), Self::made(member));
                Self::of_members(members.map(member).collect())
            }
        }
    }

    /// Creates an object value. If several members have the same name, the last one wins.
    pub(super) fn of_members(mut members: Vec<(Text<'v>, Self)>) -> Self {
        members.reverse();
        members.sort_by(|(a, _), (b, _)| (**a).cmp(b));
        members.dedup_by(|(a, _), (b, _)| **a == **b);
        Self::Map(members.into())
    }

    fn of_number(number: &Number) -> Self {
        match number.as_i128() {
            Some(integer) => Self::Integer(integer),
            None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) const fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined)
    }

    pub(super) const fn is_number(&self) -> bool {
        matches!(self, Self::Integer(_) | Self::Float(_))
    }

    pub(super) const fn is_list(&self) -> bool {
        matches!(self, Self::Array(_) | Self::List(_) | Self::Group(_))
    }

    pub(super) const fn is_map(&self) -> bool {
        matches!(self, Self::Object(_) | Self::Map(_))
    }

    /// Returns the type of the value, such as `a number`, for error messages.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Undefined => "nothing",
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::Array(_) | Self::List(_) | Self::Group(_) => "an array",
            Self::Object(_) | Self::Map(_) => "an object",
        }
    }

    /// Returns the number of characters, elements or members. Returns `None` for other values.
    pub(super) fn len(&self) -> Option<usize> {
        Some(match self {
            Self::Text(text) => text.chars().count(),
            Self::Array(elements) => elements.len(),
            Self::List(elements) => elements.len(),
            Self::Group(_) => 2,
            Self::Object(members) => members.len(),
            Self::Map(members) => members.len(),
            _ => return None,
        })
    }

    /// Converts the value to a boolean for a condition. Null, `false`, zero and empty values are
    /// `false`, and all others are `true`.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is undefined.
    pub(super) fn truth(&self) -> Evaluated<bool> {
        Ok(match self {
            Self::Undefined => return Err(Failure::undefined()),
            Self::Null => false,
            Self::Bool(truth) => *truth,
            Self::Integer(integer) => *integer != 0,
            Self::Float(float) => *float != 0.0,
            Self::Text(text) => !text.is_empty(),
            other => other.len() != Some(0),
        })
    }

    /// Returns the member of an object with the name `key`, or the element of an array with this
    /// index. Returns undefined if it does not exist.
    pub(super) fn get(&self, budget: &Budget, key: &str) -> Evaluated<Self> {
        budget.read(key)?;
        Ok(match self {
            Self::Object(members) => match members.get(key) {
                Some(member) => Self::of(budget, member)?,
                None => Self::Undefined,
            },
            Self::Map(members) => {
                let found = members.binary_search_by(|(name, _)| (**name).cmp(key));
                found.map_or(Self::Undefined, |at| members[at].1.clone())
            }
            Self::Group(group) if key == "grouper" => group.grouper.clone(),
            Self::Group(group) if key == "list" => group.elements.clone(),
            other => match place(key) {
                Some(index) => other.element(budget, index)?,
                None => Self::Undefined,
            },
        })
    }

    /// Returns an element of an array. Returns undefined if it does not exist.
    pub(super) fn element(&self, budget: &Budget, index: usize) -> Evaluated<Self> {
        Ok(match self {
            Self::Array(elements) => match elements.get(index) {
                Some(element) => Self::of(budget, element)?,
                None => Self::Undefined,
            },
            Self::List(elements) => elements.get(index).cloned().unwrap_or(Self::Undefined),
            Self::Group(group) => match index {
                0 => group.grouper.clone(),
                1 => group.elements.clone(),
                _ => Self::Undefined,
            },
            _ => Self::Undefined,
        })
    }

    /// Iterates over the elements of an array or the member names of an object. Returns an error
    /// for other values.
    pub(super) fn iterate<'b>(
        &self,
        budget: &'b Budget,
    ) -> Evaluated<impl DoubleEndedIterator<Item = Evaluated<Self>> + use<'b, 'v>> {
        if !self.is_list() && !self.is_map() {
            return Err(Failure::other(format!("{} is not a list", self.kind())));
        }
        let count = self.len().unwrap_or_default();
        if self.is_map() && count > MAX_ELEMENTS {
            return Err(too_many_elements());
        }
        let names = match self {
            Self::Object(members) => members.keys().map(|name| Text::Borrowed(name)).collect(),
            Self::Map(members) => members.iter().map(|(name, _)| name.clone()).collect(),
            _ => Vec::new(),
        };
        let value = self.clone();
        Ok((0..count).map(move |index| match names.get(index) {
            Some(name) => {
                budget.step(1)?;
                budget.read(name)?;
                Ok(Self::Text(name.clone()))
            }
            None => value.element(budget, index),
        }))
    }

    /// Iterates over the names and values of an object's members.
    pub(super) fn members<'b>(
        &self,
        budget: &'b Budget,
    ) -> Evaluated<impl DoubleEndedIterator<Item = Evaluated<(Self, Self)>> + use<'b, 'v>> {
        let value = self.clone();
        Ok(self.iterate(budget)?.map(move |name| {
            let name = name?;
            let member = value.get(budget, name.as_str().unwrap_or_default())?;
            Ok((name, member))
        }))
    }

    /// Returns the members of an object as a list of pairs. Each pair is a list of a name and a
    /// value.
    pub(super) fn pairs(&self, budget: &Budget) -> Evaluated<Self> {
        let members = self.members(budget)?;
        budget.list(members.map(|member| {
            let (name, member) = member?;
            budget.list([Ok(name), Ok(member)])
        }))
    }

    /// Returns `true` if two values are equal. Numbers are compared by value. `true` equals 1, and
    /// `false` equals 0.
    pub(super) fn equals(&self, budget: &Budget, other: &Self) -> Evaluated<bool> {
        budget.nested(|| self.is_equal(budget, other))
    }

    fn is_equal(&self, budget: &Budget, other: &Self) -> Evaluated<bool> {
        budget.step(1)?;
        Ok(match (self, other) {
            (Self::Undefined, Self::Undefined) | (Self::Null, Self::Null) => true,
            (Self::Text(a), Self::Text(b)) => {
                budget.read(a)?;
                **a == **b
            }
            (a, b) if a.is_list() && b.is_list() => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (a, b) in a.iterate(budget)?.zip(b.iterate(budget)?) {
                    if !a?.equals(budget, &b?)? {
                        return Ok(false);
                    }
                }
                true
            }
            (a, b) if a.is_map() && b.is_map() => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for member in a.members(budget)? {
                    let (name, member) = member?;
                    let other = b.get(budget, name.as_str().unwrap_or_default())?;
                    if other.is_undefined() || !member.equals(budget, &other)? {
                        return Ok(false);
                    }
                }
                true
            }
            (a, b) => match (a.numeric(), b.numeric()) {
                (Some(a), Some(b)) => a == b && !a.is_nan(),
                _ => false,
            },
        })
    }

    /// Returns the value of a number or boolean. `true` is 1, and `false` is 0.
    pub(super) fn numeric(&self) -> Option<Numeric> {
        match self {
            Self::Bool(truth) => Some(Numeric::Integer(i128::from(*truth))),
            other => other.number(),
        }
    }

    pub(super) const fn number(&self) -> Option<Numeric> {
        match self {
            Self::Integer(integer) => Some(Numeric::Integer(*integer)),
            Self::Float(float) => Some(Numeric::Float(*float)),
            _ => None,
        }
    }

    /// Converts the value to JSON, and counts the memory of the JSON value.
    pub(super) fn to_json(&self, budget: &Budget) -> Evaluated<Json> {
        budget.nested(|| self.converted(budget))
    }

    fn converted(&self, budget: &Budget) -> Evaluated<Json> {
        budget.step(1)?;
        budget.spend(size_of::<Json>())?;
        Ok(match self {
            Self::Undefined => return Err(nothing()),
            Self::Null => Json::Null,
            Self::Bool(truth) => Json::Bool(*truth),
            Self::Integer(_) | Self::Float(_) => Json::Number(self.to_number()?),
            Self::Text(text) => {
                budget.spend(text.len())?;
                Json::String((**text).to_owned())
            }
            Self::Array(elements) => {
                budget.spend(elements.iter().map(memory).sum())?;
                Json::Array(elements.to_vec())
            }
            Self::Object(members) => {
                budget.spend(memory_of_members(members))?;
                Json::Object((*members).clone())
            }
            Self::Map(members) => {
                budget.spend(MAP_BYTES)?;
                let members = members.iter().map(|(name, member)| {
                    budget.spend(size_of::<String>() + name.len())?;
                    Ok(((**name).to_owned(), member.to_json(budget)?))
                });
                Json::Object(members.collect::<Evaluated<_>>()?)
            }
            Self::List(_) | Self::Group(_) => {
                let elements = self.iterate(budget)?;
                let elements = elements.map(|element| element?.to_json(budget));
                Json::Array(elements.collect::<Evaluated<_>>()?)
            }
        })
    }

    /// Converts the value of a whole template to JSON. Arrays and objects in the data of the run
    /// are copied without counting their memory.
    pub(super) fn to_result(&self, budget: &Budget) -> Evaluated<Json> {
        match self {
            Self::Array(elements) => Ok(Json::Array(elements.to_vec())),
            Self::Object(members) => Ok(Json::Object((*members).clone())),
            other => other.to_json(budget),
        }
    }

    /// Converts a number to a JSON number. Returns an error if JSON cannot represent it, as for
    /// infinity.
    pub(super) fn to_number(&self) -> Evaluated<Number> {
        let number = match self {
            Self::Integer(integer) => Number::from_i128(*integer),
            Self::Float(float) => Number::from_f64(*float),
            _ => None,
        };
        number.ok_or_else(|| Failure::other("the result is a number that JSON cannot represent"))
    }

    /// Converts a string or number to the name of an object member. Returns an error for other
    /// values.
    pub(super) fn to_name(&self, budget: &Budget) -> Evaluated<Text<'v>> {
        match self {
            Self::Text(text) => {
                budget.spend(text.len())?;
                Ok(text.clone())
            }
            Self::Integer(_) | Self::Float(_) => {
                Ok(Text::Shared(self.to_number()?.to_string().into()))
            }
            other => Err(Failure::other(format!("{} cannot be a key", other.kind()))),
        }
    }
}

impl<'v> From<Numeric> for Value<'v> {
    fn from(number: Numeric) -> Self {
        match number {
            Numeric::Integer(integer) => Self::Integer(integer),
            Numeric::Float(float) => Self::Float(float),
        }
    }
}

// === impl Text ===

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

/// Returns the approximate memory of a JSON value, in bytes.
fn memory(value: &Json) -> usize {
    let inner = match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
        Json::String(text) => text.len(),
        Json::Array(elements) => elements.iter().map(memory).sum(),
        Json::Object(members) => memory_of_members(members),
    };
    size_of::<Json>() + inner
}

fn memory_of_members(members: &Map<String, Json>) -> usize {
    let of = |(name, member): (&String, &Json)| size_of::<String>() + name.len() + memory(member);
    MAP_BYTES + members.iter().map(of).sum::<usize>()
}

/// Returns the error message for two values without an order. `symbol` is the operator or filter.
/// `left` and `right` are the types of the values.
pub(super) fn cannot_compare(symbol: &str, left: &str, right: &str) -> String {
    let why = match [left, right].contains(&"null") {
        true => ": compare null with `==` or `!=`",
        false => "",
    };
    format!("`{symbol}` cannot compare {left} with {right}{why}")
}
