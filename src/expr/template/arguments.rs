//! The arguments of filters, tests and functions in templates.

use std::{borrow::Cow, mem};

use super::value::{Budget, Evaluated, Failure, Text, Value};

/// The evaluated arguments of a filter, a test or a function. Arguments can be positional or named.
/// Each argument is removed when it is read, so that unknown arguments are left at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments<'v> {
    unnamed: Vec<Value<'v>>,
    /// The number of unnamed arguments that were already removed.
    taken: usize,
    named: Vec<(&'v str, Value<'v>)>,
}

/// A filter call, with its input value and its arguments.
pub(super) struct Call<'b, 'v> {
    pub(super) budget: &'b Budget,
    pub(super) value: Value<'v>,
    pub(super) arguments: Arguments<'v>,
}

// === impl Arguments ===

impl<'v> Arguments<'v> {
    /// Adds an argument. Unnamed arguments must be added before named ones.
    pub(super) fn push(&mut self, name: Option<&'v str>, value: Value<'v>) {
        match name {
            Some(name) => self.named.push((name, value)),
            None => self.unnamed.push(value),
        }
    }

    /// Returns the next unnamed argument, without removing it.
    pub(super) fn first(&self) -> Option<&Value<'v>> {
        self.unnamed.get(self.taken)
    }

    /// Deducts the steps for copying and reading the arguments from the budget.
    pub(super) fn count(&self, budget: &Budget) -> Evaluated<()> {
        let named = self.named.iter().map(|(_, value)| value);
        for value in self.unnamed.iter().chain(named) {
            budget.step(1)?;
            budget.read(value.as_str().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Removes the argument with this name and returns it. Returns `None` if no such argument
    /// exists.
    pub(super) fn named(&mut self, name: &str) -> Option<Value<'v>> {
        let place = self.named.iter().position(|(other, _)| *other == name)?;
        Some(self.named.swap_remove(place).1)
    }

    /// Removes the next unnamed argument and returns it. If no unnamed argument is left, removes
    /// and returns the argument with this name.
    pub(super) fn take(&mut self, name: &str) -> Option<Value<'v>> {
        let Some(value) = self.unnamed.get_mut(self.taken) else { return self.named(name) };
        self.taken += 1;
        Some(mem::replace(value, Value::Undefined))
    }

    /// Removes and returns an argument like [`take`](Self::take). Fails if the argument is missing.
    pub(super) fn required(&mut self, name: &str) -> Evaluated<Value<'v>> {
        self.take(name).ok_or_else(Self::missing)
    }

    /// Removes and returns all remaining unnamed arguments.
    pub(super) fn rest(&mut self) -> Vec<Value<'v>> {
        let rest = self.unnamed.split_off(self.taken.min(self.unnamed.len()));
        self.taken = self.unnamed.len();
        rest
    }

    /// Removes and returns an argument like [`take`](Self::take). Fails unless the argument is a
    /// string, null or missing.
    pub(super) fn text(&mut self, name: &str) -> Evaluated<Option<Text<'v>>> {
        text(self.take(name))
    }

    /// Removes and returns the argument with this name. Fails unless the argument is a string, null
    /// or missing.
    pub(super) fn named_text(&mut self, name: &str) -> Evaluated<Option<Text<'v>>> {
        text(self.named(name))
    }

    /// Removes and returns an argument like [`take`](Self::take). Fails unless the argument is an
    /// integer, null or missing.
    pub(super) fn integer(&mut self, name: &str) -> Evaluated<Option<i64>> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Integer(integer)) => {
                i64::try_from(integer).map(Some).map_err(|_| Failure::Incalculable)
            }
            Some(other) => Err(wrong("an integer", &other)),
        }
    }

    /// Removes and returns an argument like [`take`](Self::take). Fails unless the argument is a
    /// boolean, null or missing.
    pub(super) fn flag(&mut self, name: &str) -> Evaluated<Option<bool>> {
        flag(self.take(name))
    }

    /// Removes and returns the argument with this name. Fails unless the argument is a boolean,
    /// null or missing.
    pub(super) fn named_flag(&mut self, name: &str) -> Evaluated<Option<bool>> {
        flag(self.named(name))
    }

    /// Fails if arguments are left, because the filter or test does not accept them.
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
