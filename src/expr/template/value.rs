//! Converts values to and from minijinja.

use std::{
    borrow::Cow,
    fmt, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use minijinja::{
    Error, ErrorKind, Value,
    value::{Enumerator, Object, ObjectRepr, ValueKind},
};
use serde_json::{Map, Number, Value as Json};

use super::super::{
    PathSegment,
    data::{Data, Root},
    path_segment::place,
    reference::follow,
};

/// Maximum size of the text of a template, in bytes.
pub(crate) const MAX_RENDERED_BYTES: usize = 1 << 20;

/// Maximum memory of all values that an evaluation creates, in bytes.
pub(super) const MAX_MADE_BYTES: usize = 16 * MAX_RENDERED_BYTES;

/// Maximum number of elements of a list that a filter takes or returns.
pub(super) const MAX_ELEMENTS: usize = 100_000;

/// Maximum number of steps of an evaluation; each access to a value is one.
pub(super) const MAX_EVALUATION_STEPS: usize = 2_000_000;

/// Maximum length of a string that minijinja stores without allocating.
const SHORT: usize = 22;

/// The failure of an evaluation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum Failure {
    #[error("`{0}` has no value")]
    Missing(String),
    #[error("too much text")]
    TooLarge,
    #[error("{0}")]
    Other(Cow<'static, str>),
}

/// The data and the remaining resources of one evaluation.
#[derive(Debug)]
pub(super) struct Run {
    data: Arc<dyn Data>,
    bytes: AtomicUsize,
    steps: AtomicUsize,
    /// The first failure where minijinja accepts no errors: inside comparisons, it panics on
    /// invalid values.
    failure: OnceLock<Failure>,
}

/// An array or object of the data, whose parts are converted on access.
#[derive(Debug)]
pub(super) struct Part {
    run: Arc<Run>,
    base: Base,
    path: Vec<PathSegment>,
    len: usize,
    array: bool,
    /// Its memory, which is released on drop.
    bytes: usize,
}

/// The value that contains a part.
#[derive(Clone, Debug)]
enum Base {
    Data(Root),
    Made(Arc<Json>),
}

/// A text that is limited in size.
#[derive(Debug, Default)]
pub(super) struct Text {
    text: String,
}

// === impl Failure ===

impl Failure {
    pub(super) fn other(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Other(reason.into())
    }

    /// Returns the failure that is the source of a minijinja error.
    ///
    /// Other minijinja errors quote values, so only their kind is reported.
    pub(super) fn of(error: &Error) -> Self {
        let mut source: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = source {
            if let Some(failure) = error.downcast_ref::<Self>() {
                return failure.clone();
            }
            source = error.source();
        }
        Self::other(match error.kind() {
            ErrorKind::UndefinedError => "a value is missing",
            ErrorKind::TooManyArguments => "too many arguments",
            ErrorKind::MissingArgument => "an argument is missing",
            _ => "this cannot be calculated with these values",
        })
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::new(ErrorKind::InvalidOperation, "failed").with_source(failure)
    }
}

// === impl Run ===

impl Run {
    pub(super) fn new(data: Arc<dyn Data>) -> Arc<Self> {
        Arc::new(Self {
            data,
            bytes: AtomicUsize::new(MAX_MADE_BYTES),
            steps: AtomicUsize::new(MAX_EVALUATION_STEPS),
            failure: OnceLock::new(),
        })
    }

    pub(super) fn data(&self) -> &dyn Data {
        &*self.data
    }

    /// Returns the result of a part of the evaluation, or a failure that was recorded meanwhile.
    pub(super) fn settle<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        match self.failure.get() {
            Some(failure) => Err(failure.clone()),
            None => result,
        }
    }

    /// Returns the value, or undefined and records the failure.
    fn later(&self, value: Result<Value, Failure>) -> Value {
        value.unwrap_or_else(|failure| {
            self.failure.get_or_init(|| failure);
            Value::UNDEFINED
        })
    }

    /// Counts the memory of a value.
    pub(super) fn spend(&self, bytes: usize) -> Result<(), Failure> {
        match self.bytes.load(Ordering::Relaxed).checked_sub(bytes) {
            Some(left) => {
                self.bytes.store(left, Ordering::Relaxed);
                Ok(())
            }
            None => Err(Failure::other(format!(
                "values of more than {MAX_MADE_BYTES} bytes are made on the way"
            ))),
        }
    }

    /// Counts steps.
    pub(super) fn step(&self, steps: usize) -> Result<(), Failure> {
        self.settle(Ok(()))?;
        match self.steps.load(Ordering::Relaxed).checked_sub(steps) {
            Some(left) => {
                self.steps.store(left, Ordering::Relaxed);
                Ok(())
            }
            None => {
                Err(Failure::other(format!("more than {MAX_EVALUATION_STEPS} steps are taken")))
            }
        }
    }

    /// Creates a text and counts its memory.
    pub(super) fn text(&self, text: &str) -> Result<Value, Failure> {
        if text.len() > MAX_RENDERED_BYTES {
            return Err(Failure::TooLarge);
        }
        if text.len() > SHORT {
            self.spend(text.len())?;
        }
        Ok(Value::from(text))
    }

    /// Creates a list and counts its memory.
    pub(super) fn list(&self, elements: impl IntoIterator<Item = Value>) -> Result<Value, Failure> {
        let mut list = Vec::new();
        for element in elements {
            if list.len() == MAX_ELEMENTS {
                return Err(too_many_elements());
            }
            self.step(1)?;
            self.spend(size_of::<Value>())?;
            list.push(checked(element)?);
        }
        Ok(Value::from(list))
    }

    /// Returns the value at a path of the data.
    pub(super) fn look_up(
        self: &Arc<Self>,
        root: Root,
        path: &[PathSegment],
    ) -> Result<Option<Value>, Failure> {
        match self.data.get(root) {
            None => Ok(None),
            Some(Cow::Borrowed(value)) => match follow(value, path) {
                Some(value) => self.expose(&Base::Data(root), path, value).map(Some),
                None => Ok(None),
            },
            // Computed on access, so it is kept instead of being computed again.
            Some(Cow::Owned(value)) => match follow(&value, path).cloned() {
                Some(value) => self.made(value).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Creates a value from JSON that was computed during the evaluation.
    pub(super) fn made(self: &Arc<Self>, value: Json) -> Result<Value, Failure> {
        let base = Arc::new(value);
        self.expose(&Base::Made(Arc::clone(&base)), &[], &base)
    }

    fn expose(
        self: &Arc<Self>,
        base: &Base,
        path: &[PathSegment],
        value: &Json,
    ) -> Result<Value, Failure> {
        self.step(1)?;
        let (len, array) = match value {
            Json::Null => return Ok(Value::from(())),
            Json::Bool(truth) => return Ok(Value::from(*truth)),
            Json::Number(number) => return Ok(from_number(number)),
            Json::String(text) => return self.text(text),
            Json::Array(elements) => (elements.len(), true),
            Json::Object(members) => (members.len(), false),
        };
        let keys: usize = path
            .iter()
            .map(|segment| match segment {
                PathSegment::Key(key) => key.len(),
                PathSegment::Index(_) => 0,
            })
            .sum();
        let bytes = size_of::<Part>() + size_of_val(path) + keys;
        self.spend(bytes)?;
        Ok(Value::from_object(Part {
            run: Arc::clone(self),
            base: base.clone(),
            path: path.to_vec(),
            len,
            array,
            bytes,
        }))
    }
}

/// An object, so that functions can look it up.
impl Object for Run {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

// === impl Part ===

impl Part {
    /// Calls `show` with the value of the part.
    pub(super) fn with<T>(&self, show: impl FnOnce(&Json) -> T) -> Option<T> {
        match &self.base {
            Base::Made(value) => follow(value, &self.path).map(show),
            Base::Data(root) => follow(&*self.run.data.get(*root)?, &self.path).map(show),
        }
    }

    fn child(&self, segment: PathSegment) -> Option<Value> {
        let mut path = Vec::with_capacity(self.path.len() + 1);
        path.extend_from_slice(&self.path);
        self.with(|value| {
            let child = segment.of(value)?;
            path.push(segment);
            Some(self.run.later(self.run.expose(&self.base, &path, child)))
        })?
    }
}

impl Object for Part {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.array { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        if self.array {
            let place = key.as_usize().or_else(|| place(key.as_str()?));
            self.child(PathSegment::Index(place?))
        } else {
            self.get_value_by_str(key.as_str()?)
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.child(PathSegment::Key(key.to_owned()))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        if self.array {
            return Enumerator::Seq(self.len);
        }
        let allowed = if self.len > MAX_ELEMENTS {
            Err(too_many_elements())
        } else {
            self.run.spend(self.len * size_of::<Value>())
        };
        if let Err(failure) = allowed {
            self.run.failure.get_or_init(|| failure);
            return Enumerator::Empty;
        }
        let keys = self.with(|value| {
            let keys = value.as_object().into_iter().flat_map(Map::keys);
            keys.map(|key| self.run.later(self.run.text(key))).collect()
        });
        Enumerator::Values(keys.unwrap_or_default())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.len)
    }

    /// Truncated at the maximum size. The output of templates is not rendered here.
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Text::default();
        let _full = self.with(|value| text.push_json(value));
        f.write_str(&text.text)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.run.bytes.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// Returns the value, or the failure that it stands for.
pub(super) fn checked(value: Value) -> Result<Value, Failure> {
    if value.kind() == ValueKind::Invalid {
        // Only an iterator returns the error.
        let error = Value::from(vec![value]).try_iter().ok();
        let error = error.and_then(|elements| elements.checked().next()?.err());
        return Err(error.as_ref().map_or(Failure::TooLarge, Failure::of));
    }
    Ok(value)
}

fn from_number(number: &Number) -> Value {
    if let Some(integer) = number.as_i64() {
        Value::from(integer)
    } else if let Some(integer) = number.as_u64() {
        Value::from(integer)
    } else {
        Value::from(number.as_f64().unwrap_or(f64::NAN))
    }
}

/// Converts a value to a JSON number, if it can be represented.
fn to_number(value: &Value) -> Result<Number, Failure> {
    let number = if value.is_integer() {
        let integer = i128::try_from(value.clone()).ok();
        integer.and_then(|integer| {
            let signed = i64::try_from(integer).ok().map(Number::from);
            signed.or_else(|| u64::try_from(integer).ok().map(Number::from))
        })
    } else {
        f64::try_from(value.clone()).ok().and_then(Number::from_f64)
    };
    number.ok_or_else(|| Failure::other("it gives a number that JSON has not"))
}

/// Converts a value to JSON and counts its memory.
pub(super) fn to_json(run: &Run, value: &Value) -> Result<Json, Failure> {
    run.step(1)?;
    if let Some(part) = value.downcast_object_ref::<Part>() {
        return part
            .with(|value| {
                run.spend(memory(value))?;
                Ok(value.clone())
            })
            .unwrap_or_else(|| Err(nothing()));
    }
    run.spend(size_of::<Json>())?;
    Ok(match value.kind() {
        ValueKind::None => Json::Null,
        ValueKind::Bool => Json::Bool(value.is_true()),
        ValueKind::Number => Json::Number(to_number(value)?),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            run.spend(text.len())?;
            Json::String(text.to_owned())
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let mut elements = Vec::new();
            for element in iterate(value)? {
                if elements.len() == MAX_ELEMENTS {
                    return Err(too_many_elements());
                }
                elements.push(to_json(run, &checked(element)?)?);
            }
            Json::Array(elements)
        }
        ValueKind::Map => {
            run.spend(MAP_BYTES)?;
            let mut members = Map::new();
            for key in iterate(value)? {
                let key = checked(key)?;
                let member = value.get_item(&key).map_err(|error| Failure::of(&error))?;
                run.spend(size_of::<String>())?;
                members.insert(to_key(&key)?, to_json(run, &checked(member)?)?);
            }
            Json::Object(members)
        }
        _ => return Err(no_json(value)),
    })
}

/// Converts a value to JSON as the result. Parts of the data are not counted.
pub(super) fn to_result(run: &Run, value: &Value) -> Result<Json, Failure> {
    match value.downcast_object_ref::<Part>() {
        Some(part) => part.with(Json::clone).ok_or_else(nothing),
        None => to_json(run, value),
    }
}

/// Approximate memory of an object without its members, in bytes.
const MAP_BYTES: usize = 256;

fn memory(value: &Json) -> usize {
    let inner: usize = match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
        Json::String(text) => text.len(),
        Json::Array(elements) => elements.iter().map(memory).sum(),
        Json::Object(members) => {
            let members = members.iter();
            let members: usize =
                members.map(|(key, value)| size_of::<String>() + key.len() + memory(value)).sum();
            MAP_BYTES + members
        }
    };
    size_of::<Json>() + inner
}

fn to_key(key: &Value) -> Result<String, Failure> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::Number => to_number(key).map(|number| number.to_string()),
        _ => Err(Failure::other(format!("{} cannot be a key", kind(key)))),
    }
}

pub(super) fn iterate(value: &Value) -> Result<impl Iterator<Item = Value> + use<>, Failure> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => {
            value.try_iter().map_err(|error| Failure::of(&error))
        }
        _ => Err(Failure::other(format!("{} is no list", kind(value)))),
    }
}

/// Describes the type of a value.
pub(super) fn kind(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "nothing",
        ValueKind::None => "null",
        ValueKind::Bool => "a boolean",
        ValueKind::Number => "a number",
        ValueKind::String => "a string",
        ValueKind::Seq | ValueKind::Iterable => "an array",
        ValueKind::Map => "an object",
        _ => "no value",
    }
}

/// Describes why two values of these kinds have no order.
pub(super) fn cannot_compare(symbol: &str, left: &str, right: &str) -> String {
    let why = match [left, right].contains(&"null") {
        true => ": null can only be equal to another value, or not",
        false => "",
    };
    format!("`{symbol}` cannot compare {left} with {right}{why}")
}

fn nothing() -> Failure {
    Failure::other("it gives nothing")
}

fn no_json(value: &Value) -> Failure {
    if value.is_undefined() { nothing() } else { Failure::other("it gives no value") }
}

pub(super) fn too_many_elements() -> Failure {
    Failure::other(format!("a list has more than {MAX_ELEMENTS} elements"))
}

// === impl Text ===

impl Text {
    pub(super) fn push(&mut self, text: &str) -> Result<(), Failure> {
        if self.text.len() + text.len() > MAX_RENDERED_BYTES {
            return Err(Failure::TooLarge);
        }
        self.text.push_str(text);
        Ok(())
    }

    /// Appends a string as it is, and other values as JSON.
    pub(super) fn push_value(&mut self, run: &Run, value: &Value) -> Result<(), Failure> {
        match value.as_str() {
            Some(text) => self.push(text),
            None => self.push_quoted(run, value),
        }
    }

    /// Like `push_value`, for a value of the data.
    pub(super) fn push_data(&mut self, value: &Json) -> Result<(), Failure> {
        match value {
            Json::String(text) => self.push(text),
            other => self.push_json(other),
        }
    }

    /// Appends a value as JSON.
    pub(super) fn push_quoted(&mut self, run: &Run, value: &Value) -> Result<(), Failure> {
        run.step(1)?;
        if let Some(part) = value.downcast_object_ref::<Part>() {
            return part.with(|value| self.push_json(value)).unwrap_or_else(|| Err(nothing()));
        }
        match value.kind() {
            ValueKind::None => self.push("null"),
            ValueKind::Bool => self.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.push(&to_number(value)?.to_string()),
            ValueKind::String => self.push_json(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.push("[")?;
                for (index, element) in iterate(value)?.enumerate() {
                    self.push(if index == 0 { "" } else { "," })?;
                    self.push_quoted(run, &checked(element)?)?;
                }
                self.push("]")
            }
            ValueKind::Map => {
                self.push("{")?;
                for (index, key) in iterate(value)?.enumerate() {
                    let key = checked(key)?;
                    self.push(if index == 0 { "" } else { "," })?;
                    self.push_json(&to_key(&key)?)?;
                    self.push(":")?;
                    let member = value.get_item(&key).map_err(|error| Failure::of(&error))?;
                    self.push_quoted(run, &checked(member)?)?;
                }
                self.push("}")
            }
            _ => Err(no_json(value)),
        }
    }

    pub(super) fn push_json<T: serde::Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), Failure> {
        serde_json::to_writer(&mut *self, value).map_err(|_| Failure::TooLarge)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn into_string(self) -> String {
        self.text
    }
}

/// `serde_json` writes whole characters at a time.
impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = str::from_utf8(bytes).map_err(io::Error::other)?;
        self.push(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
