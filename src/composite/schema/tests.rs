use proptest::prelude::*;

use super::*;
use crate::schema::{
    self,
    generators::{some_value, whole_schema},
};

/// Returns a schema as the protocol requires it, with `"type": "object"` at the root.
fn of_tool(value: Value) -> JsonObject {
    with_object_type(match value {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    })
}

fn accepts(schema: &JsonObject, value: &Value) -> Option<bool> {
    let schema = Value::Object(schema.clone());
    jsonschema::validator_for(&schema).ok().map(|validator| validator.is_valid(value))
}

fn source<'a>(id: &'a str, schema: &'a JsonObject) -> Source<'a> {
    Source { id, certain: true, arguments: &Arguments::Input, schema: Some(schema) }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn derived_schema_accepts_what_all_targets_accept(
        one in whole_schema(),
        other in whole_schema(),
        is_same in any::<bool>(),
        value in some_value(),
    ) {
        let one = of_tool(one);
        let other = if is_same { one.clone() } else { of_tool(other) };
        prop_assume!(value.is_object());
        let (Some(by_one), Some(by_other)) = (accepts(&one, &value), accepts(&other, &value)) else {
            return Ok(());
        };
        let derived = derive_input(&[source("one", &one), source("other", &other)], Vec::new());
        if schema::reject(&one).is_ok() && schema::reject(&other).is_ok() {
            prop_assert_eq!(schema::reject(&derived), Ok(()));
        }
        if by_one && by_other {
            prop_assert_eq!(accepts(&derived, &value), Some(true), "{:?}", derived);
        }
    }

    #[test]
    fn adopted_schema_accepts_the_same_values(whole in whole_schema(), value in some_value()) {
        prop_assume!(value.is_object());
        let whole = of_tool(whole);
        prop_assert_eq!(accepts(&adopt_whole(&whole), &value), accepts(&whole, &value));
    }
}
