//! Expressions: JSON values whose strings may contain references and templates. The definitions of
//! composites contain expressions, for example as the arguments of a step.
//!
//! An expression is written as plain JSON or TOML. A string that begins with `$` is a *reference*,
//! and evaluating the expression replaces the string by the referenced value, which can have any
//! type. A string that contains `{{` or `{%` is a *template*, and is replaced by the value that the
//! template computes:
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
//! | `"$last"`, `"$index"` | in a repeated call, the output of the previous iteration, and the number of previous iterations |
//! | `"$workflow.id"`, `"$workflow.name"`, `"$workflow.started_at"` | the ID of the run, the name of the composite, and the start time of the run |
//! | `"$vars.team"` | a [variable](Variables), or a part of its value |
//! | `"$input.tone?"` | the value if it exists; otherwise the key or element with this reference is omitted |
//! | `"$null"` | JSON null, which TOML lacks |
//! | `"$$5.00"` | the literal `$5.00` |
//! | `"Dear {{ input.name }}"` | a string with inserted values |
//! | `"{{ input.a + 1 }}"` | the value of one expression, with its type |
//!
//! References and templates may appear anywhere inside the objects and arrays of an expression, but
//! not in keys. All of them are parsed when the definition is built, and the values that replace
//! them are not parsed again. Data from clients or tools therefore cannot introduce a reference or
//! a template.
//!
//! If a composite sets `strict = false`, strings with an unknown name after the `$`, such as `$5.00
//! off`, are literals, and all references are optional. The setting does not affect templates: in a
//! template, an unknown name is an error in the definition, and a missing value is an evaluation
//! error.
//!
//! # Templates
//!
//! In a template, `{{ }}` contains an expression as in Jinja, which consists of names, operators,
//! filters after `|`, and tests after `is`. The names are those that references use, without `$`,
//! such as `input.query`; `params` is another name for `input`. The statements `{% if %}`,
//! `{% elif %}`, `{% else %}`, `{% for %}` and `{% raw %}` control the text between them. Comments
//! are not supported: `{#` is literal text.
//!
//! Templates follow these rules:
//! - If a template consists of a single `{{ }}`, with no text or spaces around it, the value of its
//!   expression keeps its type. Otherwise, the template produces a string. Strings are inserted
//!   into it unchanged, and other values as JSON.
//! - Steps whose names contain a `-` are written as `steps['get-logs']`. Unlike references,
//!   templates must name a field of the step, as in `steps.a.output.x` or `steps.a.status`.
//! - A missing value is an error, unless `| default(…)` or `is defined` follows the path of the
//!   value. In this case, any part of the path may be missing.
//! - `+` adds numbers, and concatenates strings or arrays. `~` converts values to strings and
//!   concatenates them. All other arithmetic operators require numbers.
//! - The filters are `abs`, `batch`, `bool`, `capitalize`, `chain`, `count`, `date`, `default`
//!   (`d`), `dictsort`, `first`, `flatten`, `float`, `format`, `fromjson`, `groupby`, `indent`,
//!   `int`, `items`, `join`, `keys`, `last`, `length`, `lines`, `list`, `lower`, `map`, `max`,
//!   `merge`, `min`, `quote`, `reject`, `rejectattr`, `replace`, `reverse`, `round`, `search`,
//!   `select`, `selectattr`, `sort`, `split`, `string`, `sum`, `title`, `tojson`, `trim`, `unique`,
//!   `upper`, `urlencode`, `values` and `zip`. `quote` converts a string to a JSON string. The only
//!   function is `range`.
//! - A template can produce at most 1 MiB of text, and lists of at most 100 000 elements. One
//!   evaluation can use at most 16 MiB of memory for intermediate values, and at most two million
//!   steps, such as accesses to values. Data that a template does not read does not count toward
//!   these limits.
//!
//! # Examples
//!
//! A reference such as `$input.limit` is replaced by the referenced value, which keeps its JSON
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
//! Templates compute new values from the input:
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
mod variable_reference;
mod variables;
mod wrapped_array;

pub(crate) use self::{
    condition::{Collection, Condition, kind},
    data::{Data, Field, Root},
    names::{KEYWORDS, Previous, ScopeNames, is_reserved},
    partial_value::PartialValue,
    reference::{Use, follow},
    wrapped_array::{UNWRAPPED_ARRAY, WRAPPED_ARRAY, is_wrapped_array},
};
pub use self::{
    error::{EvaluationError, ExpressionError, ExpressionErrors},
    expression::Expression,
    path_segment::PathSegment,
    variables::Variables,
};
