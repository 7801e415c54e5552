//! The arguments of the filters, tests and functions in templates.

use std::{borrow::Cow, mem};

use super::{
    budget::{Budget, Evaluated, Failure},
    value::{Text, Value},
};

/// The evaluated arguments of a filter, test or function. Reading an argument removes it, so that
/// arguments that are left at the end are unknown.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments<'v> {
    unnamed: Vec<Value<'v>>,
    /// The number of positional arguments that have been read.
    taken: usize,
    named: Vec<(&'v str, Value<'v>)>,
}

/// The application of a filter: its input value and its arguments.
pub(super) struct Call<'b, 'v> {
    pub(super) budget: &'b Budget,
    pub(super) value: Value<'v>,
    pub(super) arguments: Arguments<'v>,
}

// === impl Arguments ===

impl<'v> Arguments<'v> {
    /// Adds an argument. Positional arguments, whose `name` is `None`, must come first.
    pub(super) fn push(&mut self, name: Option<&'v str>, value: Value<'v>) {
        match name {
            Some(name) => self.named.push((name, value)),
            None => self.unnamed.push(value),
        }
    }

    /// Returns the next positional argument without removing it.
    pub(super) fn first(&self) -> Option<&Value<'v>> {
        self.unnamed.get(self.taken)
    }

    /// Counts the evaluation steps for reading all arguments.
    pub(super) fn count(&self, budget: &Budget) -> Evaluated<()> {
        let named = self.named.iter().map(|(_, value)| value);
        for value in self.unnamed.iter().chain(named) {
            budget.step(1)?;
            budget.read(value.as_str().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Removes and returns the named argument `name`.
    pub(super) fn named(&mut self, name: &str) -> Option<Value<'v>> {
        let place = self.named.iter().position(|(other, _)| *other == name)?;
        Some(self.named.swap_remove(place).1)
    }

    /// Removes and returns the next positional argument or, if none is left, the named argument
    /// `name`.
    pub(super) fn take(&mut self, name: &str) -> Option<Value<'v>> {
        let Some(value) = self.unnamed.get_mut(self.taken) else { return self.named(name) };
        self.taken += 1;
        Some(mem::replace(value, Value::Undefined))
    }

    /// Like [`take`](Self::take), but returns an error if there is no such argument.
    pub(super) fn required(&mut self, name: &str) -> Evaluated<Value<'v>> {
        self.take(name).ok_or_else(Self::missing)
    }

    /// Removes and returns all remaining positional arguments.
    pub(super) fn rest(&mut self) -> Vec<Value<'v>> {
        let rest = self.unnamed.split_off(self.taken.min(self.unnamed.len()));
        self.taken = self.unnamed.len();
        rest
    }

    /// Like [`take`](Self::take), but requires a string. Returns `None` for null.
    pub(super) fn text(&mut self, name: &str) -> Evaluated<Option<Text<'v>>> {
        text(self.take(name))
    }

    /// Like [`named`](Self::named), but requires a string. Returns `None` for null.
    pub(super) fn named_text(&mut self, name: &str) -> Evaluated<Option<Text<'v>>> {
        text(self.named(name))
    }

    /// Like [`take`](Self::take), but requires an integer. Returns `None` for null.
    pub(super) fn integer(&mut self, name: &str) -> Evaluated<Option<i64>> {
        match self.take(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Integer(integer)) => {
                i64::try_from(integer).map(Some).map_err(|_| Failure::Incalculable)
            }
            Some(other) => Err(wrong("an integer", &other)),
        }
    }

    /// Like [`take`](Self::take), but requires a boolean. Returns `None` for null.
    pub(super) fn flag(&mut self, name: &str) -> Evaluated<Option<bool>> {
        flag(self.take(name))
    }

    /// Like [`named`](Self::named), but requires a boolean. Returns `None` for null.
    pub(super) fn named_flag(&mut self, name: &str) -> Evaluated<Option<bool>> {
        flag(self.named(name))
    }

    /// Returns an error if arguments are left, because the filter, test or function does not know
    /// them.
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
