//! Expressions: each one parses or returns an error, inserted data is never parsed, and output is
//! bounded and deterministic.

use mcp_composite::expr::Expression;
use serde_json::{Value, json};

/// The maximum size of a template's output.
const MAX_TEXT: usize = 1 << 20;

/// The text in all strings of the input; it would change if it were evaluated.
const WRITTEN: &str = "{{ 7919 * 104729 }}";
const EVALUATED: &str = "829348951";

/// The bytes are an expression, followed after its last line by its input as JSON.
pub(super) fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let (written, input) = text.rsplit_once('\n').unwrap_or((text, "{}"));
    let input = serde_json::from_str(input).unwrap_or_else(|_| json!({ "text": input }));
    let written = match serde_json::from_str(written) {
        Ok(value @ (Value::Array(_) | Value::Object(_))) => value,
        _ => Value::from(written),
    };
    match Expression::parse(&written) {
        Err(errors) => {
            let printed = errors.to_string();
            assert!(!printed.is_empty());
            let again = Expression::parse(&written).expect_err("the same mistakes");
            assert_eq!(again.to_string(), printed);
        }
        Ok(expression) => {
            it_is_printed_as_it_is_written(&expression, &written);
            it_always_gives_the_same(&expression, &written, &input);
            data_is_not_evaluated(&expression, &written, &input);
            a_reference_is_a_template_of_its_path(&written, &input);
        }
    }
}

fn it_is_printed_as_it_is_written(expression: &Expression, written: &Value) {
    if let Value::String(text) = written
        && (text.contains("{{") || text.contains("{%"))
    {
        assert_eq!(expression.to_string(), *text);
    }
}

fn it_always_gives_the_same(expression: &Expression, written: &Value, input: &Value) {
    let given = expression.evaluate(input);
    assert_eq!(expression.evaluate(input), given, "not the same twice");
    assert_eq!(Expression::parse(written).as_ref(), Ok(expression));
    match &given {
        // All of the input, or the output of a template.
        Ok(Some(Value::String(text))) => {
            assert!(text.len() <= MAX_TEXT.max(size(input) + size(written)), "{}", text.len());
        }
        Ok(_) => (),
        Err(error) => assert!(error.to_string().len() < 4 * 1024 + size(written), "{error}"),
    }
}

/// Checks that a template in each text of the input is not evaluated.
fn data_is_not_evaluated(expression: &Expression, written: &Value, input: &Value) {
    let mut hostile = input.clone();
    infect(&mut hostile);
    let texts = format!("{written}{input}");
    if ["7919", "104729", EVALUATED].iter().any(|number| texts.contains(number)) {
        return;
    }
    if let Ok(Some(given)) = expression.evaluate(&hostile) {
        assert!(!given.to_string().contains(EVALUATED), "{written} of {hostile} gives {given}");
    }
}

fn infect(value: &mut Value) {
    match value {
        Value::String(text) => text.push_str(WRITTEN),
        Value::Array(elements) => elements.iter_mut().for_each(infect),
        Value::Object(members) => members.values_mut().for_each(infect),
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

/// Checks that `$input.a[0]` and `{{ input.a[0] }}` are the same value, or both missing.
fn a_reference_is_a_template_of_its_path(written: &Value, input: &Value) {
    let Some(path) = written.as_str().and_then(|text| text.strip_prefix('$')) else { return };
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".[]".contains(c);
    if !path.starts_with("input") || !path.chars().all(is_word) {
        return;
    }
    let reference = Expression::parse(written).expect("it was parsed before");
    let Ok(template) = Expression::parse(&json!(format!("{{{{ {path} }}}}"))) else { return };
    let spaced = Expression::parse(&json!(format!("{{{{{path}}}}}"))).expect("the same expression");
    let given = reference.evaluate(input).ok();
    assert_eq!(template.evaluate(input).ok(), given, "{written} of {input}");
    assert_eq!(spaced.evaluate(input).ok(), given, "{written} of {input}");
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}
