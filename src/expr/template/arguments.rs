//! The arguments of the filters, tests and functions in templates.

use std::{borrow::Cow, mem};

use super::value::{Budget, Evaluated, Failure, Text, Value};

/// The evaluated arguments of a filter, a test or a function: positional arguments, and then named
/// ones. Reading an argument removes it. Arguments that remain at the end are an error, because
/// they are unknown.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments<'v> {
    unnamed: Vec<Value<'v>>,
    /// The number of positional arguments that have been read.
    taken: usize,
    named: Vec<(&'v str, Value<'v>)>,
}

/// The input of a filter: the value to which the filter is applied, and its arguments.
pub(super) struct Call<'b, 'v> {
    pub(super) budget: &'b Budget,
    pub(super) value: Value<'v>,
    pub(super) arguments: Arguments<'v>,
}

// === impl Arguments ===

impl<'v> Arguments<'v> {
    /// Adds an argument. `name` is `None` for a positional argument. The caller must add positional
    /// arguments first.
    pub(super) fn push(&mut self, name: Option<&'v str>, value: Value<'v>) {
        match name {
            Some(name) => self.named.push((name, value)),
            None => self.unnamed.push(value),
        }
    }

    /// Returns the next positional argument without removing it. Returns `None` if no positional
    /// argument is left.
    pub(super) fn first(&self) -> Option<&Value<'v>> {
        self.unnamed.get(self.taken)
    }

    /// Deducts the evaluation steps for copying and reading all arguments from the budget.
    pub(super) fn count(&self, budget: &Budget) -> Evaluated<()> {
        let named = self.named.iter().map(|(_, value)| value);
        for value in self.unnamed.iter().chain(named) {
            budget.step(1)?;
            budget.read(value.as_str().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Removes and returns the named argument `name`. Returns `None` if it does not exist.
    pub(super) fn named(&mut self, name: &str) -> Option<Value<'v>> {
        let place = self.named.iter().position(|(other, _)| *other == name)?;
        Some(self.named.swap_remove(place).1)
    }

    /// Removes and returns the next positional argument or, if none is left, the named argument
    /// `name`. Returns `None` if neither exists.
    pub(super) fn take(&mut self, name: &str) -> Option<Value<'v>> {
        let Some(value) = self.unnamed.get_mut(self.taken) else { return self.named(name) };
        self.taken += 1;
        Some(mem::replace(value, Value::Undefined))
    }

    /// Like [`take`](Self::take), but returns an error if the argument is missing.
    pub(super) fn required(&mut self, name: &str) -> Evaluated<Value<'v>> {
        self.take(name).ok_or_else(Self::missing)
    }

    /// Removes and returns all positional arguments that have not been read.
    pub(super) fn rest(&mut self) -> Vec<Value<'v>> {
        let rest = self.unnamed.split_off(self.taken.min(self.unnamed.len()));
        self.taken = self.unnamed.len();
        rest
    }

    /// Like [`take`](Self::take), but also returns `None` if the argument is null, and an error if
    /// it is not a string.
    pub(super) fn text(&mut self, name: &str) -> Evaluated<Option<Text<'v>>> {
        text(self.take(name))
    }

    /// Like [`named`](Self::named), but also returns `None` if the argument is null, and an error
    /// if it is not a string.
    pub(super) fn named_text(&mut self, name: &str) -> Evaluated<Option<Text<'v>>> {
        text(self.named(name))
    }

    /// Like [`take`](Self::take), but also returns `None` if the argument is null, and an error if
    /// it is not an integer.
    pub(super) fn integer(&mut self, name: &str) -> Evaluated<Option<i64>> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Integer(integer)) => {
                i64::try_from(integer).map(Some).map_err(|_| Failure::Incalculable)
            }
            Some(other) => Err(wrong("an integer", &other)),
        }
    }

    /// Like [`take`](Self::take), but also returns `None` if the argument is null, and an error if
    /// it is not a boolean.
    pub(super) fn flag(&mut self, name: &str) -> Evaluated<Option<bool>> {
        flag(self.take(name))
    }

    /// Like [`named`](Self::named), but also returns `None` if the argument is null, and an error
    /// if it is not a boolean.
    pub(super) fn named_flag(&mut self, name: &str) -> Evaluated<Option<bool>> {
        flag(self.named(name))
    }

    /// Returns an error if arguments are left that were not read. They are unknown to the filter,
    /// test or function.
    pub(super) fn end(self) -> Evaluated<()> {
        match (self.first(), self.named.first()) {
            (None, None) => Ok(()),
            (Some(_), _) => Err(Failure::other("too many arguments")),
            (None, Some((name, _))) => Err(Failure::other(format!("unknown argument `{name}`"))),
        }
    }

    pub(super) const fn missing() -> Failure {
        Failure::Other(Cow::Borrowed("an argument is missing"))
    }
}

fn text<'v>(value: Option<Value<'v>>) -> Evaluated<Option<Text<'v>>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(other) => Err(wrong("a string", &other)),
    }
}

fn flag(value: Option<Value<'_>>) -> Evaluated<Option<bool>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(flag)),
        Some(other) => Err(wrong("a boolean", &other)),
    }
}

fn wrong(expected: &str, found: &Value<'_>) -> Failure {
    Failure::other(format!("an argument must be {expected} and not {}", found.kind()))
}
