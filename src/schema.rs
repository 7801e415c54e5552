//! Validates the arguments of tool calls against the input schemas of the tools.

pub(crate) mod coerce;
pub(crate) mod fit;
#[cfg(test)]
pub(crate) mod generators;
pub(crate) mod json_type;
pub(crate) mod keywords;
pub(crate) mod refs;
mod steps;
mod unique;
mod unusable;
pub(crate) mod walk;

use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, ValidationError, Validator, error::ValidationErrorKind};
use rmcp::model::JsonObject;
use serde_json::Value;

pub(crate) use self::unusable::Unusable;
use self::{
    coerce::coerce,
    steps::{MAX_REGEX_BYTES, Steps},
    unique::UniqueItems,
    unusable::shortened,
};
use crate::{
    expr::number::is_whole_float,
    json_pointer,
    json_size::BoundedCounter,
    message::{MAX_JSON_DEPTH, Refusal, Violation, content_size, is_deeper},
};

/// Maximum number of steps for validating the arguments of one tool call, coercing them, and
/// validating them again. A step takes about ten nanoseconds.
const MAX_VALIDATION_STEPS: usize = 1_500_000;
/// Maximum number of steps of a validation for which all violations are collected. Collecting them
/// takes a second validation, and memory for each violation. The limit is therefore lower than
/// [`MAX_VALIDATION_STEPS`].
const MAX_COLLECTING_STEPS: usize = 64_000;
/// Maximum number of bytes that the validator may copy while it collects the violations of one
/// call. It copies a value for each violation within an `anyOf` or `oneOf`.
const MAX_COPIED_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of violations that are reported for one tool call.
const MAX_VIOLATIONS: usize = 64;
/// Maximum size of a schema in bytes.
const MAX_SCHEMA_BYTES: usize = 1024 * 1024;
/// Maximum size in bytes of the search cache of one regular expression in a schema.
const REGEX_CACHE_BYTES: usize = 128 * 1024;

/// The input schema of a tool. It is compiled only when it is first used, because most tools are
/// never called.
#[derive(Debug)]
pub(crate) struct InputSchema {
    schema: Arc<JsonObject>,
    compiled: OnceLock<Result<Compiled, Unchecked>>,
}

/// A compiled schema. `steps` predicts how many steps the validation of a value takes.
#[derive(Debug)]
struct Compiled {
    validator: Validator,
    steps: Steps,
    /// Whether the schema contains `anyOf` or `oneOf`. If so, the validator copies values when it
    /// collects violations.
    has_alternatives: bool,
}

/// The result of validating the arguments of a tool call against the input schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Valid,
    Invalid {
        /// The number of steps of the validation. One step takes about ten nanoseconds.
        steps: usize,
    },
    /// The arguments were not validated, because the validation would take too many steps.
    TooLong,
}

/// The error for a schema that cannot be used for validation. Arguments are then accepted without
/// validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unchecked {
    /// Whether coercion with this schema would take too long, too. If `true`, arguments are not
    /// coerced either.
    untouched: bool,
}

/// Returns an error if a schema cannot be used for validation, for example because it is invalid,
/// or because the validation would take too long.
pub(crate) fn reject(schema: &JsonObject) -> Result<(), Unusable> {
    compile(schema).map(drop)
}

/// Compiles a schema to a validator. The validator cannot access files or the network, and matches
/// regular expressions in linear time.
fn compile(schema: &JsonObject) -> Result<Compiled, Unusable> {
    if !BoundedCounter::new(MAX_SCHEMA_BYTES).holds(schema) {
        let reason = format!("it is larger than {MAX_SCHEMA_BYTES} bytes");
        return Err(Unusable { path: String::new(), reason, too_long: true });
    }
    let schema = &Value::Object(schema.clone());
    if is_deeper(schema, MAX_JSON_DEPTH) {
        let reason = "it is nested too deep".to_owned();
        return Err(Unusable { path: String::new(), reason, too_long: true });
    }
    // Limits the number of steps first, because compiling the schema could take too long as well.
    let steps = Steps::read(schema)?;
    let regex =
        PatternOptions::regex().size_limit(MAX_REGEX_BYTES).dfa_size_limit(REGEX_CACHE_BYTES);
    let validator = jsonschema::options()
        // Disables fetching of schemas, even if another crate enables this feature of `jsonschema`.
        .offline()
        .with_pattern_options(regex)
        // Replaces the built-in keyword, which can take quadratic time in the number of elements.
        .with_keyword("uniqueItems", UniqueItems::keyword)
        // Disables the built-in format, which would compile regular expressions that a client has
        // sent.
        .with_format("regex", |_| true)
        .build(schema)
        .map_err(|error| Unusable {
            path: error.instance_path().as_str().to_owned(),
            reason: shortened(&error),
            too_long: false,
        })?;
    Ok(Compiled { validator, steps, has_alternatives: has_alternatives(schema) })
}

// === impl InputSchema ===

impl InputSchema {
    pub(crate) const fn new(schema: Arc<JsonObject>) -> Self {
        Self { schema, compiled: OnceLock::new() }
    }

    pub(crate) const fn schema(&self) -> &Arc<JsonObject> {
        &self.schema
    }

    /// Validates the arguments of a call of the tool `tool`. If the schema cannot be used for
    /// validation, accepts all arguments. In this case, the first call of this method passes the
    /// reason to the callback.
    ///
    /// # Errors
    ///
    /// Returns an error if the value violates the schema, which lists the violations, or if a limit
    /// was exceeded.
    pub(crate) fn check(
        &self,
        tool: &str,
        arguments: &Value,
        tell: impl FnOnce(Unusable),
    ) -> Result<(), Refusal> {
        // Rejects deeply nested arguments, because the recursion of the validator is as deep as the
        // arguments.
        if is_deeper(arguments, MAX_JSON_DEPTH) {
            return Err(Refusal::too_deep(MAX_JSON_DEPTH));
        }
        match self.compiled(tell) {
            Ok(compiled) => compiled.check(tool, arguments, &mut { MAX_VALIDATION_STEPS }),
            Err(_) => Ok(()),
        }
    }

    /// Returns `true` if a value matches the schema, or if the schema cannot be used for
    /// validation.
    pub(crate) fn allows(&self, value: &Value) -> bool {
        !is_deeper(value, MAX_JSON_DEPTH)
            && self.compiled(drop).map_or(true, |compiled| {
                compiled.verdict(value, &mut { MAX_VALIDATION_STEPS }) == Verdict::Valid
            })
    }

    /// Coerces the arguments of a call of the tool `tool` to the types in the schema, and then
    /// validates them. If the schema cannot be used for validation, the arguments are only coerced.
    /// If coercion would take too long as well, the arguments are accepted unchanged.
    ///
    /// # Errors
    ///
    /// Returns a refusal that lists the violations of the schema, or states which limit was
    /// exceeded.
    pub(crate) fn fit(
        &self,
        tool: &str,
        arguments: &mut Value,
        tell: impl FnOnce(Unusable),
    ) -> Result<(), Refusal> {
        if is_deeper(arguments, MAX_JSON_DEPTH) {
            return Err(Refusal::too_deep(MAX_JSON_DEPTH));
        }
        let compiled = match self.compiled(tell) {
            Ok(compiled) => compiled,
            Err(Unchecked { untouched: true }) => return Ok(()),
            Err(Unchecked { untouched: false }) => {
                coerce(&self.schema, arguments, &mut { MAX_VALIDATION_STEPS });
                return Ok(());
            }
        };
        // Both validations and the coercion together may take at most this number of steps.
        let mut left = MAX_VALIDATION_STEPS;
        match compiled.verdict(arguments, &mut left) {
            // In valid arguments, only floats such as `5.0` are coerced. They are integers in JSON
            // Schema, but many tools reject them.
            Verdict::Valid => {
                if has_whole_float(arguments) {
                    coerce(&self.schema, arguments, &mut left);
                }
                Ok(())
            }
            Verdict::TooLong => Err(invalid(tool, vec![too_long()])),
            Verdict::Invalid { steps } => {
                if !coerce(&self.schema, arguments, &mut left) {
                    return Err(invalid(tool, compiled.violations(arguments, steps)));
                }
                if is_deeper(arguments, MAX_JSON_DEPTH) {
                    return Err(Refusal::too_deep(MAX_JSON_DEPTH));
                }
                compiled.check(tool, arguments, &mut left)
            }
        }
    }

    fn compiled(&self, tell: impl FnOnce(Unusable)) -> Result<&Compiled, Unchecked> {
        let compile = || {
            compile(&self.schema).map_err(|unusable| {
                let untouched = unusable.too_long;
                tell(unusable);
                Unchecked { untouched }
            })
        };
        self.compiled.get_or_init(compile).as_ref().map_err(|unchecked| *unchecked)
    }
}

// === impl Compiled ===

impl Compiled {
    /// Validates the arguments, and subtracts the number of steps from `left`. Returns
    /// [`Verdict::TooLong`] without a validation if it would take more than `left` steps.
    fn verdict(&self, arguments: &Value, left: &mut usize) -> Verdict {
        let Some(steps) = self.steps.count(arguments, *left) else { return Verdict::TooLong };
        *left -= steps;
        match self.validator.is_valid(arguments) {
            true => Verdict::Valid,
            false => Verdict::Invalid { steps },
        }
    }

    fn check(&self, tool: &str, arguments: &Value, left: &mut usize) -> Result<(), Refusal> {
        match self.verdict(arguments, left) {
            Verdict::Valid => Ok(()),
            Verdict::Invalid { steps } => Err(invalid(tool, self.violations(arguments, steps))),
            Verdict::TooLong => Err(invalid(tool, vec![too_long()])),
        }
    }

    /// Returns all violations in invalid arguments. `steps` is the number of steps that their
    /// validation took. If collecting all violations would be too expensive, returns a single
    /// violation without a path.
    fn violations(&self, arguments: &Value, steps: usize) -> Vec<Violation> {
        let copies = || steps.saturating_mul(content_size::of_value(arguments)) > MAX_COPIED_BYTES;
        if steps > MAX_COLLECTING_STEPS || self.has_alternatives && copies() {
            return vec![whole("the value is not valid, and too large to report where".to_owned())];
        }
        let violations: Vec<_> = self
            .validator
            .iter_errors(arguments)
            .flat_map(|error| violations_of(&error, arguments))
            .take(MAX_VIOLATIONS)
            .collect();
        // A refusal must contain a violation, even if the validator reports none.
        match violations.is_empty() {
            true => vec![whole("the value is not valid".to_owned())],
            false => violations,
        }
    }
}

/// Returns `true` if a schema contains `anyOf` or `oneOf` at any depth.
fn has_alternatives(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, member)| {
            ["anyOf", "oneOf"].contains(&&**name) || has_alternatives(member)
        }),
        Value::Array(elements) => elements.iter().any(has_alternatives),
        _ => false,
    }
}

fn invalid(tool: &str, violations: Vec<Violation>) -> Refusal {
    Refusal::InvalidArguments { tool: tool.to_owned().into(), violations }
}

/// Creates a violation of the arguments as a whole, with an empty path.
const fn whole(message: String) -> Violation {
    Violation { path: String::new(), message }
}

fn too_long() -> Violation {
    whole(format!(
        "the value is too large to check against the schema, which would take more than \
         {MAX_VALIDATION_STEPS} steps"
    ))
}

/// Converts an error of the validator to violations. If the error concerns several arguments,
/// returns one violation for each.
///
/// Violations contain argument names only in their paths, so that an outer layer can translate a
/// renamed argument for its client. They never contain argument values, so that these values do not
/// appear in responses and logs.
fn violations_of(error: &ValidationError<'_>, arguments: &Value) -> Vec<Violation> {
    use ValidationErrorKind as Kind;

    let at = |path: String, message: &str| Violation { path, message: message.to_owned() };
    let path = error.instance_path().as_str();
    let unknown = |name: &String| at(member(path, name), "is not known to the tool");
    match error.kind() {
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            vec![at(member(path, name), "is required")]
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unexpected.iter().take(MAX_VIOLATIONS).map(unknown).collect()
        }
        Kind::FalseSchema if allows_no_members(error.schema_path().as_str()) => {
            let members = arguments.pointer(path).and_then(Value::as_object);
            members
                .into_iter()
                .flat_map(JsonObject::keys)
                .take(MAX_VIOLATIONS)
                .map(unknown)
                .collect()
        }
        Kind::PropertyNames { error } => {
            let name = error.instance().as_str().unwrap_or_default();
            vec![at(member(path, name), &error_message(error, "its name"))]
        }
        _ => vec![at(path.to_owned(), &error_message(error, "the value"))],
    }
}

/// Returns the message of a violation, which contains neither the invalid value nor argument names.
/// `what` is the subject of the message, such as `the value`.
fn error_message(error: &ValidationError<'_>, what: &str) -> String {
    use ValidationErrorKind as Kind;

    let is_name = what != "the value";
    match error.kind() {
        // Omits the list of allowed names, because they are argument names.
        Kind::Enum { .. } | Kind::Constant { .. } if is_name => {
            format!("{what} is not one of those allowed")
        }
        Kind::Enum { options }
            if !options.as_array().is_some_and(|options| options.iter().all(is_plain)) =>
        {
            format!("{what} is not one of those allowed")
        }
        Kind::Constant { expected_value } if !is_plain(expected_value) => {
            format!("{what} is not the expected value")
        }
        Kind::FalseSchema => format!("{what} is not allowed"),
        Kind::Custom { message, .. } => format!("{what} {message}"),
        // Omits the validator's message, which would contain the schema.
        Kind::Not { .. } => format!("{what} matches a schema that `not` forbids"),
        Kind::BacktrackLimitExceeded { .. }
        | Kind::RegexEngineFailure { .. }
        | Kind::FromUtf8 { .. }
        | Kind::Referencing(_)
        | Kind::Required { .. }
        | Kind::AdditionalProperties { .. }
        | Kind::UnevaluatedProperties { .. }
        | Kind::PropertyNames { .. } => format!("{what} is not valid"),
        _ => shortened(&error.masked_with(what)),
    }
}

/// Returns `true` if `path` leads to the value of `additionalProperties` or `propertyNames` in a
/// schema. If this value is `false`, it forbids members of an object.
fn allows_no_members(path: &str) -> bool {
    let keyword =
        |name| path.strip_suffix(name).is_some_and(|above| !above.ends_with("/properties"));
    keyword("/additionalProperties") || keyword("/propertyNames")
}

/// Returns `true` if a value is or contains a float without a fraction, such as `5.0`.
fn has_whole_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => is_whole_float(number),
        Value::Array(elements) => elements.iter().any(has_whole_float),
        Value::Object(members) => members.values().any(has_whole_float),
        _ => false,
    }
}

/// Returns `true` if a value in a schema is neither an array nor an object. An error message can
/// quote such a value without disclosing argument names.
const fn is_plain(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

/// Returns the JSON Pointer of the member `name` in the object at `path`.
fn member(path: &str, name: &str) -> String {
    format!("{path}/{}", json_pointer::escape(name))
}

#[cfg(test)]
mod tests;
