use super::{super::plan::StepSet, *};

#[test]
fn cyclic_dependencies_are_reported_with_their_steps() {
    let cases = [
        (json!([{ "id": "a", "depends_on": ["a"] }]), vec![0, 0]),
        (
            json!([{ "id": "a", "depends_on": ["b"] }, { "id": "b", "depends_on": ["a"] }]),
            vec![0, 1, 0],
        ),
        (
            // The cycle consists of references. The plan also contains steps outside the cycle.
            json!([
                { "id": "a" },
                { "id": "b", "condition": "$steps.d.output" },
                { "id": "c", "arguments": { "x": [{ "y": "$steps.b.text" }] } },
                { "id": "d", "collection": "$steps.c.output", "arguments": {} },
                { "id": "e", "depends_on": ["d"] },
            ]),
            vec![1, 3, 2, 1],
        ),
    ];
    for (steps, expected) in cases {
        let cycle = try_plan(&steps, 10, RunOutput::Last).expect_err("a circle");
        assert_eq!(cycle.0, expected, "{steps}");
    }
}

#[test]
fn references_anywhere_in_a_step_become_dependencies() {
    let plan = workflow(&json!([
        { "id": "a" },
        { "id": "by_name", "depends_on": ["a"] },
        { "id": "condition", "condition": "$steps.a.status" },
        { "id": "argument", "arguments": { "x": [{ "y": "$steps.a.output.z?" }] } },
        { "id": "collection", "collection": "$steps.a.output", "arguments": {} },
        { "id": "element", "collection": [], "arguments": { "x": "$steps.a.error" } },
        { "id": "case", "cases": [{ "when": "$steps.a.text", "arguments": {} }] },
        { "id": "called", "cases": [{ "when": "$input", "arguments": { "x": "$steps.a" } }] },
        { "id": "default", "cases": [], "default": { "arguments": { "x": "$steps[0]" } } },
    ]));
    for (at, step) in plan.steps().iter().enumerate().skip(1) {
        assert_eq!(plan.needs(at), [0].into_iter().collect::<StepSet>(), "{}", step.id);
    }
}

#[test]
fn step_set_behaves_like_a_set() {
    let set: StepSet = [3, 99, 0, 3].into_iter().collect();
    assert_eq!(set.collect::<Vec<_>>(), [0, 3, 99]);
    assert_eq!((set.len(), set.contains(99), set.contains(98)), (3, true, false));
    assert_eq!(set.without(StepSet::first(4)).collect::<Vec<_>>(), [99]);
    assert!(set.is_subset(StepSet::first(100)));
    assert!(!set.is_subset(StepSet::first(99)));
    assert_eq!(
        StepSet::first(2).union([1, 5].into_iter().collect()).collect::<Vec<_>>(),
        [0, 1, 5]
    );
    assert_eq!(StepSet::first(128).len(), 128);
    assert!(StepSet::first(0).is_empty());
}
