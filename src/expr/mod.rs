//! Expressions: JSON values in the definition of a composite, such as the arguments of a step, with
//! references and templates in their strings.
//!
//! An expression is written as plain JSON or TOML. A string that begins with `$` is a *reference*.
//! It is replaced by the value that it refers to, which can have any type. A string that contains
//! `{{` or `{%` is a *template*, which computes a value:
//!
//! | written | value |
//! |---|---|
//! | `"$input"` | all arguments of the composite |
//! | `"$input.a.b[0]"` | a part of the arguments |
//! | `"$input['odd key']"` | a part of the arguments whose key is not a plain word |
//! | `"$prev"`, `"$prev.x"` | in a pipeline, the output of the step before, or a part of it |
//! | `"$steps.search"`, `"$steps[0]"` | the output of a step |
//! | `"$steps.search.output.x"` | a part of the output; other fields of a step are `content`, `text`, `status` and `error` |
//! | `"$item"`, `"$index"` | in a loop, the current element and its index, from zero |
//! | `"$workflow.id"`, `"$workflow.name"` | the id of the run, and the name of the composite |
//! | `"$input.tone?"` | the value, if there is one; otherwise the key or element with this reference is omitted |
//! | `"$null"` | JSON null, which TOML lacks |
//! | `"$$5.00"` | the literal `$5.00` |
//! | `"Dear {{ input.name }}"` | a text with inserted values |
//! | `"{{ input.a + 1 }}"` | the value of one expression, with its type |
//!
//! References and templates may appear anywhere inside objects and arrays, but not in keys. They
//! are all parsed when the definition is built. Values that replace them are not evaluated again,
//! so data cannot become a reference or a template.
//!
//! If a composite sets `strict = false`, a string with an unknown name after the `$`, such as
//! `$5.00 off`, is a literal, and all references are optional. Templates stay strict: an unknown
//! name is an error in the definition, and a missing value is an error of the evaluation.
//!
//! # Templates
//!
//! `{{ }}` contains an expression as in Jinja. It consists of the names above without `$` (`params`
//! means `input`), operators, filters after `|`, and tests after `is`. The statements `{% if %}`,
//! `{% elif %}`, `{% else %}`, `{% for %}` and `{% raw %}` control the text between them. `{#` does
//! not begin a comment.
//!
//! - If a template consists of a single `{{ }}`, without even a space around it, its value keeps
//!   its type. In a longer text, strings are inserted as they are, and other values as JSON.
//! - A step whose name contains a `-` is written as `steps['get-logs']`. Unlike in a reference, the
//!   field of the step is always required: `steps.a.output.x`, `steps.a.status`.
//! - A missing value is an error, unless `| default(…)` or `is defined` follows the name. Then any
//!   part of its path may be missing.
//! - `+` adds numbers, and joins strings or arrays. `~` converts values to text and joins them. The
//!   other arithmetic operators require numbers.
//! - The filters are `abs`, `batch`, `bool`, `capitalize`, `chain`, `count`, `default` (`d`),
//!   `dictsort`, `first`, `float`, `fromjson`, `groupby`, `indent`, `int`, `items`, `join`, `keys`,
//!   `last`, `length`, `lines`, `list`, `lower`, `map`, `max`, `min`, `quote`, `reject`,
//!   `rejectattr`, `replace`, `reverse`, `round`, `select`, `selectattr`, `sort`, `split`,
//!   `string`, `sum`, `title`, `tojson`, `trim`, `unique`, `upper`, `urlencode`, `values` and
//!   `zip`. `quote` converts a text to a JSON string. The only function is `range`.
//! - A template can produce at most 1 MiB of text, and lists of at most 100 000 elements. One
//!   evaluation can use at most 16 MiB for intermediate values, and at most two million steps. Data
//!   that a template does not read does not count.
//!
//! # Examples
//!
//! A reference such as `$input.limit` is replaced by the referenced value. The value keeps its JSON
//! type:
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
