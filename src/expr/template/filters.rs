//! Filters, which templates apply to values with `|`. They work as in Jinja, but their memory and
//! time are limited.

mod dates;
mod numbers;
mod search;
mod structures;
mod texts;

use super::{
    arguments::{Arguments, Call},
    budget::{Budget, Evaluated, Failure, MAX_ELEMENTS, too_many_elements},
    operators::add,
    order,
    predicates::Test,
    text_builder::TextBuilder,
    value::{Text, Value},
};
use crate::expr::json;

/// A filter, such as `upper` in `value | upper`.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) name: &'static str,
    takes: Takes,
    /// The type of the result, such as `a string`. `None` if the type depends on the input.
    pub(super) gives: Option<&'static str>,
    apply: Apply,
}

type Apply = for<'v> fn(Call<'_, 'v>) -> Evaluated<Value<'v>>;

/// The type of values to which a filter can be applied. Other values are an error.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Takes {
    Anything,
    AnythingOrUndefined,
    Text,
    List,
    TextOrList,
    Map,
    Number,
    Scalar,
}

const fn filter(
    name: &'static str,
    takes: Takes,
    gives: Option<&'static str>,
    apply: Apply,
) -> Filter {
    Filter { name, takes, gives, apply }
}

const BOOLEAN: Option<&str> = Some("a boolean");
const NUMBER: Option<&str> = Some("a number");
const STRING: Option<&str> = Some("a string");
const ARRAY: Option<&str> = Some("an array");

pub(super) static FILTERS: [Filter; 51] = [
    filter("abs", Takes::Number, NUMBER, numbers::abs),
    filter("batch", Takes::List, ARRAY, batch),
    filter("bool", Takes::Anything, BOOLEAN, |Call { value, arguments, .. }| {
        arguments.end()?;
        value.truth().map(Value::Bool)
    }),
    filter("capitalize", Takes::Text, STRING, texts::capitalize),
    filter("chain", Takes::List, None, chain),
    filter("count", Takes::Anything, NUMBER, length),
    filter("d", Takes::AnythingOrUndefined, None, default),
    filter("date", Takes::Scalar, STRING, dates::date),
    filter("default", Takes::AnythingOrUndefined, None, default),
    filter("dictsort", Takes::Map, ARRAY, order::sort_members),
    filter("first", Takes::TextOrList, None, |Call { budget, value, arguments }| {
        arguments.end()?;
        match value.as_str() {
            Some(text) => texts::character(budget, text.chars().next()),
            None => value.element(budget, 0),
        }
    }),
    filter("flatten", Takes::List, ARRAY, structures::flatten),
    filter("float", Takes::Scalar, NUMBER, numbers::float),
    filter("format", Takes::Number, STRING, numbers::format),
    filter("fromjson", Takes::Text, None, from_json),
    filter("groupby", Takes::List, ARRAY, order::group_by),
    filter("indent", Takes::Text, STRING, texts::indent),
    filter("int", Takes::Scalar, NUMBER, numbers::int),
    filter("items", Takes::Map, ARRAY, |Call { budget, value, arguments }| {
        arguments.end()?;
        value.pairs(budget)
    }),
    filter("join", Takes::List, STRING, join),
    filter("last", Takes::TextOrList, None, |Call { budget, value, arguments }| {
        arguments.end()?;
        if let Some(text) = value.as_str() {
            return texts::character(budget, text.chars().next_back());
        }
        let last = value.len().and_then(|len| len.checked_sub(1));
        last.map_or(Ok(Value::Undefined), |last| value.element(budget, last))
    }),
    filter("length", Takes::Anything, NUMBER, length),
    filter("lines", Takes::Text, ARRAY, texts::lines),
    filter("list", Takes::List, ARRAY, elements),
    filter("lower", Takes::Text, STRING, |call| texts::change(call, str::to_lowercase)),
    filter("map", Takes::List, ARRAY, map),
    filter("max", Takes::List, None, order::max),
    filter("merge", Takes::Map, Some("an object"), structures::merge),
    filter("min", Takes::List, None, order::min),
    filter("quote", Takes::Text, STRING, texts::quote),
    filter("reject", Takes::List, ARRAY, |Call { budget, value, arguments }| {
        select(budget, &value, arguments, None, false)
    }),
    filter("rejectattr", Takes::List, ARRAY, |Call { budget, value, mut arguments }| {
        let attribute = Some(arguments.required("attribute")?);
        select(budget, &value, arguments, attribute, false)
    }),
    filter("replace", Takes::Text, STRING, texts::replace),
    filter("reverse", Takes::TextOrList, None, |Call { budget, value, arguments }| {
        arguments.end()?;
        match value.as_str() {
            Some(text) => budget.text(text.chars().rev().collect()),
            None => budget.list(value.iterate(budget)?.rev()),
        }
    }),
    filter("round", Takes::Number, NUMBER, numbers::round),
    filter("search", Takes::Text, None, search::search),
    filter("select", Takes::List, ARRAY, |Call { budget, value, arguments }| {
        select(budget, &value, arguments, None, true)
    }),
    filter("selectattr", Takes::List, ARRAY, |Call { budget, value, mut arguments }| {
        let attribute = Some(arguments.required("attribute")?);
        select(budget, &value, arguments, attribute, true)
    }),
    filter("sort", Takes::List, ARRAY, order::sort),
    filter("split", Takes::Text, ARRAY, texts::split),
    filter("string", Takes::Anything, STRING, |Call { budget, value, arguments }| {
        arguments.end()?;
        let mut out = TextBuilder::default();
        out.push_value(budget, &value)?;
        budget.text(out.into_string())
    }),
    filter("sum", Takes::List, NUMBER, sum),
    filter("title", Takes::Text, STRING, texts::title),
    filter("tojson", Takes::Anything, STRING, to_json),
    filter("trim", Takes::Text, STRING, texts::trim),
    filter("unique", Takes::List, ARRAY, order::unique),
    filter("upper", Takes::Text, STRING, |call| texts::change(call, str::to_uppercase)),
    filter("urlencode", Takes::Scalar, STRING, texts::url_encode),
    filter("zip", Takes::List, ARRAY, zip),
    filter("keys", Takes::Map, ARRAY, elements),
    filter("values", Takes::Map, ARRAY, |Call { budget, value, arguments }| {
        arguments.end()?;
        let members = value.members(budget)?;
        budget.list(members.map(|member| member.map(|(_, member)| member)))
    }),
];

// === impl Filter ===

impl Filter {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        FILTERS.iter().find(|filter| filter.name == name)
    }

    /// Applies the filter to `value`. Returns an error if the filter does not accept the value or
    /// an argument, or if the evaluation exceeds its limits.
    pub(super) fn apply<'v>(
        &self,
        budget: &Budget,
        value: Value<'v>,
        arguments: Arguments<'v>,
    ) -> Evaluated<Value<'v>> {
        self.check(&value)?;
        self.count_elements(budget, &value)?;
        if let Some(first) = arguments.first() {
            self.count_elements(budget, first)?;
        }
        budget.read(value.as_str().unwrap_or_default())?;
        arguments.count(budget)?;
        // Each filter counts as a nesting level, because filters such as `map` can apply another
        // filter to each element.
        let applied = budget.nested(|| (self.apply)(Call { budget, value, arguments }));
        applied.map_err(|failure| match failure {
            Failure::Incalculable => {
                Failure::other(format!("`{}` cannot be applied to these values", self.name))
            }
            failure => failure,
        })
    }

    /// Counts one evaluation step for each element of a list or object. Filters that do not read
    /// the elements, such as `length`, are free.
    fn count_elements(&self, budget: &Budget, value: &Value<'_>) -> Evaluated<()> {
        let is_free = matches!(self.name, "length" | "count" | "first" | "last")
            || self.takes == Takes::AnythingOrUndefined;
        if is_free || !(value.is_list() || value.is_map()) {
            return Ok(());
        }
        let len = value.len().unwrap_or_default();
        if len > MAX_ELEMENTS && self.name != "tojson" {
            return Err(too_many_elements());
        }
        budget.step(len.min(MAX_ELEMENTS))
    }

    fn check(&self, value: &Value<'_>) -> Evaluated<()> {
        let (is_text, is_list) = (value.as_str().is_some(), value.is_list());
        let (fits, needs) = match self.takes {
            Takes::AnythingOrUndefined => (true, "anything"),
            Takes::Anything => (!value.is_undefined(), "a value"),
            Takes::Text => (is_text, "a string"),
            // An object is treated as the list of its member names.
            Takes::List => (is_list || value.is_map(), "an array"),
            Takes::TextOrList => (is_text || is_list, "an array or a string"),
            Takes::Map => (value.is_map(), "an object"),
            Takes::Number => (value.is_number(), "a number"),
            Takes::Scalar => (is_text || value.numeric().is_some(), "a string or a number"),
        };
        if fits {
            return Ok(());
        }
        let (name, found) = (self.name, value.kind());
        Err(Failure::other(format!("`{name}` needs {needs} and not {found}")))
    }
}

fn length<'v>(Call { value, arguments, .. }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    arguments.end()?;
    let length = value.len().and_then(|length| i128::try_from(length).ok());
    length.map(Value::Integer).ok_or(Failure::Incalculable)
}

fn default<'v>(Call { value, mut arguments, .. }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let other = arguments.take("default_value").unwrap_or(Value::Text(Text::Borrowed("")));
    let also_false = arguments.take("boolean").map_or(Ok(false), |flag| flag.truth())?;
    arguments.end()?;
    let is_used = value.is_undefined() || (also_false && !value.truth()?);
    Ok(if is_used { other } else { value })
}

/// The filters `list` and `keys`. Returns the elements of an array or the member names of an
/// object.
fn elements<'v>(Call { budget, value, arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    arguments.end()?;
    budget.list(value.iterate(budget)?)
}

fn batch<'v>(Call { budget, value, mut arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let size = match arguments.required("size")? {
        Value::Integer(size) => usize::try_from(size).ok(),
        _ => None,
    };
    let size = size.filter(|size| (1..=MAX_ELEMENTS).contains(size));
    let size =
        size.ok_or_else(|| Failure::other(format!("`batch` needs a size up to {MAX_ELEMENTS}")))?;
    let fill = arguments.take("fill_with");
    arguments.end()?;
    let elements: Vec<_> = value.iterate(budget)?.collect::<Evaluated<_>>()?;
    budget.list(elements.chunks(size).map(|batch| {
        let missing = size - batch.len();
        let fill = fill.iter().cycle().take(if fill.is_some() { missing } else { 0 });
        budget.list(batch.iter().chain(fill).cloned().map(Ok))
    }))
}

fn chain<'v>(Call { budget, value, mut arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let mut values = arguments.rest();
    arguments.end()?;
    values.insert(0, value);
    if values.iter().all(Value::is_map) {
        let mut members = Vec::new();
        for map in &values {
            members.extend(structures::named_members(budget, map)?);
        }
        return budget.map(members);
    }
    let lists = values.iter().map(|list| list.iterate(budget)).collect::<Evaluated<Vec<_>>>()?;
    budget.list(lists.into_iter().flatten())
}

fn zip<'v>(Call { budget, value, mut arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let others = arguments.rest();
    arguments.end()?;
    let mut lists = vec![value.iterate(budget)?];
    for other in &others {
        lists.push(other.iterate(budget)?);
    }
    budget.list(std::iter::from_fn(|| {
        let row: Option<Vec<_>> = lists.iter_mut().map(Iterator::next).collect();
        row.map(|row| budget.list(row))
    }))
}

fn map<'v>(Call { budget, value, mut arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    if let Some(attribute) = arguments.named("attribute") {
        let default = arguments.named("default").unwrap_or(Value::Undefined);
        arguments.end()?;
        let attribute = attribute.to_name(budget)?;
        return budget.list(value.iterate(budget)?.map(|element| {
            let part = order::attribute_of(budget, &element?, &attribute)?;
            Ok(if part.is_undefined() { default.clone() } else { part })
        }));
    }
    let filter = arguments.text("filter")?.ok_or_else(Arguments::missing)?;
    let filter = Filter::find(&filter).ok_or_else(|| Failure::other("unknown filter"))?;
    let elements = value.iterate(budget)?;
    budget.list(elements.map(|element| filter.apply(budget, element?, arguments.clone())))
}

/// Returns the elements of a list that pass a test or, if `is_wanted` is `false`, those that fail
/// it. If `attribute` is set, the test is applied to this attribute of each element.
fn select<'v>(
    budget: &Budget,
    value: &Value<'v>,
    mut arguments: Arguments<'v>,
    attribute: Option<Value<'v>>,
    is_wanted: bool,
) -> Evaluated<Value<'v>> {
    let attribute = attribute.map(|attribute| attribute.to_name(budget)).transpose()?;
    let test = match arguments.text("test")? {
        Some(name) => {
            let unknown = || Failure::other("unknown test");
            Some(Test::find(&name).ok_or_else(unknown)?)
        }
        None => None,
    };
    let passes = |element: &Value<'v>| {
        let tested = match &attribute {
            Some(attribute) => order::attribute_of(budget, element, attribute)?,
            None => element.clone(),
        };
        match test {
            Some(test) => test.check(budget, &tested, arguments.clone()),
            None => Ok(!tested.is_undefined() && tested.truth()?),
        }
    };
    let selected = value.iterate(budget)?.filter_map(|element| {
        let passed = element.and_then(|element| Ok((passes(&element)? == is_wanted, element)));
        passed.map(|(is_passed, element)| is_passed.then_some(element)).transpose()
    });
    budget.list(selected)
}

fn join<'v>(Call { budget, value, mut arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let separator = arguments.text("d")?;
    let attribute = arguments.text("attribute")?;
    arguments.end()?;
    let mut text = TextBuilder::default();
    for (index, element) in value.iterate(budget)?.enumerate() {
        let mut element = element?;
        if let Some(attribute) = &attribute {
            element = order::attribute_of(budget, &element, attribute)?;
        }
        if index > 0 {
            text.push(separator.as_deref().unwrap_or_default())?;
        }
        text.push_value(budget, &element)?;
    }
    budget.text(text.into_string())
}

fn sum<'v>(Call { budget, value, mut arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let attribute = arguments.text("attribute")?;
    let start = arguments.take("start").unwrap_or(Value::Integer(0));
    arguments.end()?;
    let numbers_only = || Failure::other("the start of `sum` must be a number");
    let mut sum = start.number().ok_or_else(numbers_only)?;
    for element in value.iterate(budget)? {
        let mut element = element?;
        if let Some(attribute) = &attribute {
            element = order::attribute_of(budget, &element, attribute)?;
        }
        if element.is_undefined() {
            continue;
        }
        let number = element.numeric().ok_or(Failure::Incalculable)?;
        sum = add(sum, number).map_err(|_| Failure::Incalculable)?;
    }
    Ok(sum.into())
}

fn to_json<'v>(Call { budget, value, mut arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let indent = match arguments.take("indent") {
        None | Some(Value::Null | Value::Bool(false)) => None,
        Some(Value::Bool(true)) => Some(2),
        Some(Value::Integer(indent @ 0..=16)) => usize::try_from(indent).ok(),
        Some(_) => return Err(Failure::other("`tojson` indents by a number up to 16")),
    };
    arguments.end()?;
    let mut text = TextBuilder::default();
    match indent {
        None => text.push_quoted(budget, &value)?,
        Some(indent) => {
            let spaces = " ".repeat(indent);
            let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
            serde::Serialize::serialize(&value.to_json(budget)?, &mut serializer)
                .map_err(|_| Failure::TooLarge)?;
        }
    }
    budget.text(text.into_string())
}

fn from_json<'v>(Call { budget, value, arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    arguments.end()?;
    let text = value.as_str().unwrap_or_default();
    budget.spend(json::bytes_of(text))?;
    let value = serde_json::from_str(text)
        .map_err(|_| Failure::other("`fromjson` is applied to a text that is not JSON"))?;
    Ok(Value::made(value))
}
