//! References to values, in the arguments of a target.
//!
//! Arguments are written as plain JSON or TOML. A string that begins with `$`
//! is a reference and is replaced by the value it refers to, whatever its type:
//!
//! | written | gives |
//! |---|---|
//! | `"$input"` | all arguments of the composite |
//! | `"$input.a.b[0]"` | a part of them |
//! | `"$input['odd key']"` | the same, for keys that are no plain words |
//! | `"$input.tone?"` | optional: its key or element is left out when missing |
//! | `"$null"` | JSON null, which TOML lacks |
//! | `"$$5.00"` | the literal `$5.00` |
//!
//! References stand anywhere inside objects and arrays; keys are never
//! evaluated. Everything is parsed when a definition is built, and a value that
//! is put in is never looked at again: data cannot become a reference.
//!
//! # Examples
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

mod expression;
mod reference;
mod sketch;
#[cfg(test)]
mod tests;

pub(crate) use self::sketch::Sketch;
pub use self::{
    expression::{Expression, ExpressionErrors, Found, Missing},
    reference::{PathSegment, Reference, ReferenceError},
};
