use rmcp::model::Tool;
use serde_json::{Value, json};

use super::*;

fn tool(name: &'static str, schema: Value) -> Tool {
    let Value::Object(schema) = schema else { panic!("no object") };
    Tool::new(name, "A tool", schema)
}

fn tools(schemas: [(&'static str, Value); 2]) -> Tools {
    schemas.into_iter().map(|(name, schema)| tool(name, schema)).collect()
}

/// Returns `true` if two catalogs share the compiled schema of a tool.
fn same(one: &Schemas, other: &Schemas, tool: &str) -> bool {
    Arc::ptr_eq(&one.0[tool], &other.0[tool])
}

#[test]
fn compiled_schema_is_reused_while_it_is_equal() {
    let compiled = Compiled::default();
    let before = compiled.of(&tools([("a", json!({ "title": "1" })), ("b", json!({}))]));
    let after = compiled.of(&tools([("a", json!({ "title": "2" })), ("b", json!({}))]));
    assert!(same(&before, &after, "b"));
    assert!(!same(&before, &after, "a"), "it has changed");
    drop(before);
    let last = compiled.of(&tools([("a", json!({ "title": "2" })), ("b", json!({}))]));
    assert!(same(&after, &last, "a") && same(&after, &last, "b"));
}

#[test]
fn callers_with_different_tools_do_not_evict_each_other() {
    let compiled = Compiled::default();
    let of =
        |title: &str| compiled.of(&tools([("a", json!({ "title": title })), ("b", json!({}))]));
    let (one, other) = (of("one"), of("other"));
    assert!(same(&one, &other, "b"));
    assert!(same(&one, &of("one"), "a") && same(&other, &of("other"), "a"));
}

#[test]
fn compiled_schema_is_dropped_with_its_last_catalog() {
    let compiled = Compiled::default();
    let before = compiled.of(&tools([("a", json!({})), ("b", json!({}))]));
    let schema = Arc::downgrade(&before.0["a"]);
    let after = compiled.of(&tools([("c", json!({})), ("b", json!({}))]));
    drop(before);
    assert!(schema.upgrade().is_none());
    drop(after);
    drop(compiled.of(&Tools::default()));
    assert!(compiled.0.lock().unwrap().is_empty());
}
