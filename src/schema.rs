//! Validation of arguments against the input schema of a tool.

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

/// The maximum number of steps of one check: of all validations and the coercion between them. A
/// step takes some ten nanoseconds.
const MAX_VALIDATION_STEPS: usize = 1_500_000;
/// The maximum number of steps if all violations are collected: a validator stores each violation.
const MAX_STEPS_TOLD: usize = 64_000;
/// The maximum number of argument bytes that may be copied to collect all violations: a validator
/// copies the value of each violation within an alternative.
const MAX_COPIED_BYTES: usize = 16 * 1024 * 1024;
/// The maximum number of reported violations.
const MAX_VIOLATIONS: usize = 64;
/// The maximum size of a schema in bytes.
const MAX_SCHEMA_BYTES: usize = 1024 * 1024;
/// The cache size in bytes of the searches of each regular expression of a schema.
const REGEX_CACHE_BYTES: usize = 128 * 1024;

/// The input schema of a tool, compiled at the first check: most listed tools are never called.
#[derive(Debug)]
pub(crate) struct InputSchema {
    schema: Arc<JsonObject>,
    compiled: OnceLock<Result<Compiled, Unchecked>>,
}

/// A compiled schema.
#[derive(Debug)]
struct Compiled {
    validator: Validator,
    steps: Steps,
    /// Whether the schema has `anyOf` or `oneOf`.
    has_alternatives: bool,
}

/// The result of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Valid,
    Invalid {
        /// The steps of the validation.
        steps: usize,
    },
    /// The arguments are not validated because that would take too many steps.
    TooLong,
}

/// The checks that are skipped for an unusable schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unchecked {
    /// Whether coercion is skipped too.
    untouched: bool,
}

/// Returns an error if a schema is invalid or unusable.
pub(crate) fn reject(schema: &JsonObject) -> Result<(), Unusable> {
    compile(schema).map(drop)
}

/// Compiles a schema, without access to network or files, and with regular expressions that run in
/// linear time.
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
    // Checked first, since compiling it can take too long as well.
    let steps = Steps::read(schema)?;
    let regex =
        PatternOptions::regex().size_limit(MAX_REGEX_BYTES).dfa_size_limit(REGEX_CACHE_BYTES);
    let validator = jsonschema::options()
        // Regardless of the features that other crates enable.
        .offline()
        .with_pattern_options(regex)
        // The built-in keyword can take time quadratic in the number of elements.
        .with_keyword("uniqueItems", UniqueItems::keyword)
        // The built-in format would compile expressions that a client has sent.
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

    /// Checks arguments. An unusable schema accepts everything, and is reported the first time.
    ///
    /// # Errors
    ///
    /// Returns a refusal that lists all violations of the schema.
    pub(crate) fn check(
        &self,
        tool: &str,
        arguments: &Value,
        tell: impl FnOnce(Unusable),
    ) -> Result<(), Refusal> {
        // A validator recurses as deep as the arguments.
        if is_deeper(arguments, MAX_JSON_DEPTH) {
            return Err(Refusal::too_deep(MAX_JSON_DEPTH));
        }
        match self.compiled(tell) {
            Ok(compiled) => compiled.check(tool, arguments, &mut { MAX_VALIDATION_STEPS }),
            Err(_) => Ok(()),
        }
    }

    /// Returns `true` if a value is valid. An unusable schema accepts everything.
    pub(crate) fn allows(&self, value: &Value) -> bool {
        !is_deeper(value, MAX_JSON_DEPTH)
            && self.compiled(drop).map_or(true, |compiled| {
                compiled.verdict(value, &mut { MAX_VALIDATION_STEPS }) == Verdict::Valid
            })
    }

    /// Coerces evaluated arguments and checks them. With an unusable schema, they are only coerced,
    /// and not even that if it would take too long.
    ///
    /// # Errors
    ///
    /// Returns a refusal that lists all violations of the schema.
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
        // One step budget for all operations on the arguments.
        let mut left = MAX_VALIDATION_STEPS;
        match compiled.verdict(arguments, &mut left) {
            // Valid arguments are not coerced, except for floats: to JSON Schema `5.0` is an
            // integer, but many tools reject it.
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
    /// Validates arguments if enough steps are left, and subtracts the steps.
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

    /// Returns the violations of invalid arguments, or a single one if collecting them is too
    /// expensive.
    fn violations(&self, arguments: &Value, steps: usize) -> Vec<Violation> {
        let copies = || steps.saturating_mul(content_size::of_value(arguments)) > MAX_COPIED_BYTES;
        if steps > MAX_STEPS_TOLD || self.has_alternatives && copies() {
            return vec![whole("the value is not valid, and too large to tell where".to_owned())];
        }
        let violations: Vec<_> = self
            .validator
            .iter_errors(arguments)
            .flat_map(|error| violations_of(&error, arguments))
            .take(MAX_VIOLATIONS)
            .collect();
        // A refusal needs at least one violation, even if the validator reports none.
        match violations.is_empty() {
            true => vec![whole("the value is not valid".to_owned())],
            false => violations,
        }
    }
}

/// Returns `true` if a schema may have `anyOf` or `oneOf` anywhere.
fn has_alternatives(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(name, member)| {
            ["anyOf", "oneOf"].contains(&&**name) || has_alternatives(member)
        }),
        Value::Array(elements) => elements.iter().any(has_alternatives),
        _ => false,
    }
}

/// Creates the refusal of invalid arguments.
fn invalid(tool: &str, violations: Vec<Violation>) -> Refusal {
    Refusal::InvalidArguments { tool: tool.to_owned().into(), violations }
}

/// Creates a violation of the arguments as a whole.
const fn whole(message: String) -> Violation {
    Violation { path: String::new(), message }
}

fn too_long() -> Violation {
    whole(format!(
        "the value is too large to check against the schema, which would take more than \
         {MAX_VALIDATION_STEPS} steps"
    ))
}

/// Converts an error to violations: one for each argument that it is about.
///
/// Names of arguments appear in paths only, so that a layer above can translate them for its
/// client. Argument values do not appear in answers and logs.
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

/// Describes a violation without the value and without names of arguments.
fn error_message(error: &ValidationError<'_>, what: &str) -> String {
    use ValidationErrorKind as Kind;

    let is_name = what != "the value";
    match error.kind() {
        // The allowed names are names of arguments.
        Kind::Enum { .. } | Kind::Constant { .. } if is_name => {
            format!("{what} is not one of those allowed")
        }
        Kind::Enum { options }
            if !options.as_array().is_some_and(|options| options.iter().all(is_plain)) =>
        {
            format!("{what} is not one of those allowed")
        }
        Kind::Constant { expected_value } if !is_plain(expected_value) => {
            format!("{what} is not the one that is expected")
        }
        Kind::FalseSchema => format!("{what} is not allowed"),
        Kind::Custom { message, .. } => format!("{what} {message}"),
        // The validator's message would contain the schema.
        Kind::Not { .. } => format!("{what} fits a schema that it must not fit"),
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

/// Returns `true` if the schema at this path is `false` for all members of an object.
fn allows_no_members(path: &str) -> bool {
    let keyword =
        |name| path.strip_suffix(name).is_some_and(|above| !above.ends_with("/properties"));
    keyword("/additionalProperties") || keyword("/propertyNames")
}

/// Returns `true` if a value contains a float that could be an integer.
fn has_whole_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => is_whole_float(number),
        Value::Array(elements) => elements.iter().any(has_whole_float),
        Value::Object(members) => members.values().any(has_whole_float),
        _ => false,
    }
}

/// Returns `true` if a value of a schema contains no names of arguments.
const fn is_plain(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

/// Returns the JSON Pointer of a member.
fn member(path: &str, name: &str) -> String {
    format!("{path}/{}", json_pointer::escape(name))
}

#[cfg(test)]
mod tests;
