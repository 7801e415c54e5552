use rmcp::model::JsonObject;

use super::*;

fn as_they_are(_: usize, arguments: JsonObject) -> Result<JsonObject, StepError> {
    Ok(arguments)
}

fn waves(plan: &Plan) -> Vec<Vec<String>> {
    let ids = |wave: super::super::preview::Wave| wave.steps.into_iter().map(|step| step.id);
    plan.preview(&json!({}), &as_they_are).into_iter().map(|wave| ids(wave).collect()).collect()
}

#[test]
fn preview_places_a_step_after_its_last_dependency() {
    let steps = json!([
        { "id": "e", "depends_on": ["c", "d"] },
        { "id": "a" },
        { "id": "b" },
        { "id": "c", "condition": "$steps.a.status" },
        { "id": "d", "depends_on": ["a"], "arguments": { "x": "$steps.b.output" } },
        { "id": "f", "depends_on": ["a", "e"] },
    ]);
    let expected = [vec!["a", "b"], vec!["c", "d"], vec!["e"], vec!["f"]];
    assert_eq!(waves(&workflow(&steps)), expected);
    let one_by_one = plan(&steps, 1, RunOutput::Last);
    assert_eq!(waves(&one_by_one).concat(), ["a", "b", "c", "d", "e", "f"]);
    assert_eq!(waves(&one_by_one).len(), 6);
    assert_eq!(waves(&workflow(&json!([]))), [[""; 0]; 0]);
}

#[test]
fn preview_evaluates_what_the_input_determines() {
    let plan = workflow(&json!([
        { "id": "passes" },
        { "id": "maps", "condition": "$input.yes", "arguments": {
            "q": "$input.q", "a": ["$steps.passes.output", "$input.no?"], "id": "$workflow.id",
        } },
        { "id": "waits", "condition": "$steps.maps.output.ok" },
        { "id": "wrong", "condition": "$input.no", "arguments": { "x": "$input.no" } },
        { "id": "loop", "collection": "$input.items", "max_parallel": 2, "max_iterations": 2,
            "arguments": { "x": "$item", "q": "$input.q" } },
        { "id": "late", "collection": "$steps.loop.output", "arguments": {} },
        { "id": "switch", "cases": [{ "when": "$input.yes", "tool": "one", "arguments": {} }],
            "default": { "tool": "two", "arguments": {} } },
    ]));
    let input = json!({ "q": 1, "yes": true, "items": [1, 2, 3] });
    let waves = serde_json::to_value(plan.preview(&input, &as_they_are)).unwrap();
    let expected = json!([
        { "steps": [
            { "id": "passes", "calls": [{ "tool": "passes", "arguments": input }] },
            {
                "id": "wrong",
                "condition": { "written": "$input.no", "error": "`$input.no` has no value" },
                "calls": [{ "tool": "wrong", "error": "`$input.no` has no value" }],
            },
            {
                "id": "loop",
                "for_each": {
                    "collection": "$input.items", "items": [1, 2, 3],
                    "error": "3 elements: expected at most 2 (`max_iterations`)",
                    "max_parallel": 2, "max_iterations": 2,
                },
                "calls": [{ "tool": "loop", "arguments": { "x": "$item", "q": 1 } }],
            },
            { "id": "switch", "calls": [
                { "when": { "written": "$input.yes", "holds": true }, "tool": "one",
                    "arguments": {} },
                { "tool": "two", "arguments": {} },
            ] },
        ] },
        { "steps": [
            {
                "id": "maps",
                "condition": { "written": "$input.yes", "holds": true },
                "calls": [{ "tool": "maps", "arguments": {
                    "q": 1, "a": ["$steps.passes.output"], "id": "$workflow.id",
                } }],
            },
            {
                "id": "late",
                "for_each": { "collection": "$steps.loop.output", "max_parallel": 10,
                    "max_iterations": 1000 },
                "calls": [{ "tool": "late", "arguments": {} }],
            },
        ] },
        { "steps": [{
            "id": "waits",
            "condition": { "written": "$steps.maps.output.ok" },
            "calls": [{ "tool": "waits", "arguments": input }],
        }] },
    ]);
    assert_eq!(waves, expected, "{waves:#}");
}
