//! References and templates in arguments and in other values of definitions.
//!
//! A value is written as plain JSON or TOML. A string in it that begins with `$`
//! is a reference and is replaced by the value it refers to, whatever its type;
//! a string that contains `{{` or `{%` is a template:
//!
//! | written | gives |
//! |---|---|
//! | `"$input"` | all arguments of the composite |
//! | `"$input.a.b[0]"` | a part of them |
//! | `"$input['odd key']"` | the same, for keys that are not plain words |
//! | `"$prev"`, `"$prev.x"` | the output of the step before, in pipelines |
//! | `"$steps.search"`, `"$steps[0]"` | the output of a step |
//! | `"$steps.search.output.x"` | a part of it; besides `output`, a step has `content`, `text`, `status` and `error` |
//! | `"$item"`, `"$index"` | in a loop, the element and its index, from zero |
//! | `"$workflow.id"`, `"$workflow.name"` | the id of the run, the name of the composite |
//! | `"$input.tone?"` | optional: its key or element is left out when missing |
//! | `"$null"` | JSON null, which TOML lacks |
//! | `"$$5.00"` | the literal `$5.00` |
//! | `"Dear {{ input.name }}"` | a text with values in it |
//! | `"{{ input.a + 1 }}"` | the value of one expression, with its type |
//!
//! Both may appear anywhere inside objects and arrays; keys are never evaluated. Everything is
//! parsed when a definition is built. Inserted values are never evaluated again: data cannot become
//! a reference or a template.
//!
//! With `strict = false` on a composite, a string that begins with `$` and is not followed by a
//! known name, such as `$5.00 off`, is a literal, and every reference is optional. Templates stay
//! strict: an unknown name is a definition error, and a missing value an evaluation error.
//!
//! # Templates
//!
//! `{{ }}` contains an expression as in Jinja: the names above without `$` (`params` means
//! `input`), operators, filters after `|`, tests after `is`. Expressions can be combined with
//! `{% if %}`, `{% elif %}`, `{% else %}`, `{% for %}` and `{% raw %}`. `{#` is text, not a
//! comment.
//!
//! - A template that consists of a single expression, without even a space around it, keeps the
//!   type of its value. In a text, strings are inserted as they are and other values as JSON.
//! - A step whose name has a `-` is written as `steps['get-logs']`. The field is always required:
//!   `steps.a.output.x`, `steps.a.status`.
//! - A missing value is an error, unless `| default(…)` or `is defined` follows it; then any part
//!   of its path may be missing.
//! - `+` adds numbers and joins strings or arrays, `~` converts values to text and joins them;
//!   other arithmetic is for numbers only.
//! - The filters are `abs`, `batch`, `bool`, `capitalize`, `chain`, `count`,
//!   `default` (`d`), `dictsort`, `first`, `float`, `fromjson`, `groupby`, `indent`,
//!   `int`, `items`, `join`, `keys`, `last`, `length`, `lines`, `list`, `lower`,
//!   `map`, `max`, `min`, `quote`, `reject`, `rejectattr`, `replace`, `reverse`,
//!   `round`, `select`, `selectattr`, `sort`, `split`, `string`, `sum`, `title`,
//!   `tojson`, `trim`, `unique`, `upper`, `urlencode`, `values` and `zip`. `quote`
//!   makes a JSON string of a text. The only function is `range`.
//! - A template gives at most 1 MiB of text and lists of at most 100 000 elements. Intermediate
//!   values are limited to 16 MiB and two million steps. Values that are not read do not count.
//!
//! # Examples
//!
//! References keep the value and its type:
//!
//! ```
//! use mcp_composite::expr::Expression;
//! use serde_json::json;
//!
//! let expression = Expression::parse(&json!({ "q": "$input.query", "limit": 5, "lang": "$input.lang?" }))?;
//! let input = json!({ "query": "$input.secret" });
//!
//! assert_eq!(expression.evaluate(&input)?, Some(json!({ "q": "$input.secret", "limit": 5 })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Templates compute new values:
//!
//! ```
//! use mcp_composite::expr::Expression;
//! use serde_json::json;
//!
//! let expression = Expression::parse(&json!({
//!     "title": "{{ input.names | length }} people: {{ input.names | join(', ') }}",
//!     "percent": "{{ input.ratio * 100 }}",
//!     "lang": "{{ input.lang | default('en') }}",
//! }))?;
//! let input = json!({ "names": ["Ann", "Bob"], "ratio": 0.5 });
//!
//! let expected = json!({ "title": "2 people: Ann, Bob", "percent": 50.0, "lang": "en" });
//! assert_eq!(expression.evaluate(&input)?, Some(expected));
//!
//! let mistake = Expression::parse(&json!("{{ inptu.names }}")).unwrap_err();
//! assert_eq!(
//!     mistake.to_string(),
//!     "at line 1, character 4 of the template: unknown name `inptu`: did you mean `input`?",
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod condition;
mod data;
mod error;
mod expression;
pub(crate) mod json;
mod names;
pub(crate) mod number;
mod partial_value;
mod path_segment;
mod reference;
mod template;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    condition::{Collection, Condition, kind},
    data::{Data, Field, Root},
    expression::Use,
    names::{Previous, RESERVED, ScopeNames},
    partial_value::PartialValue,
    reference::{Reference, follow},
};
pub use self::{
    error::{EvaluationError, ExpressionError, ExpressionErrors},
    expression::Expression,
    path_segment::PathSegment,
};
