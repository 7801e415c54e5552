//! Tests of stops, which are steps that end a run early.

use proptest::prelude::*;

use super::{
    properties::{block_on, input, random_plan},
    *,
};
use crate::engine::question::Response;

/// The deadline of a run, in seconds.
const DEADLINE: u64 = 20;

#[tokio::test(start_paused = true)]
async fn answer_that_makes_a_stop_end_the_run_is_known_before_it_resumes() {
    let content =
        |sure: bool| Response::Answer(json!({ "action": "accept", "content": { "sure": sure } }));
    let plan = workflow(&json!([
        { "id": "sure", "message": "Sure?" },
        { "id": "where", "message": "Where?" },
        { "id": "unsure", "value": "{{ not steps.sure.output.content.sure }}" },
        { "id": "a", "arguments": {}, "depends_on": ["sure"] },
        { "id": "stop", "stop": "Not sure", "condition": "$steps.unsure" },
    ]));
    let state = RunState::new(json!({}), 5);
    let world = World::new();
    let state = asks::go_on(&plan, state, &scope(DEADLINE), world.caller()).await;
    assert_eq!(state.asked.len(), 2);

    assert!(state.is_ended_by(&plan, "sure", &content(false)));
    assert!(!state.is_ended_by(&plan, "sure", &content(true)));
    assert!(!state.is_ended_by(&plan, "where", &content(false)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn stop_ends_a_random_run_at_once(
        (mut steps, _, concurrency) in random_plan(),
        needed in any::<u16>(),
        holds in any::<bool>(),
    ) {
        let written = steps.as_array_mut().unwrap();
        let stop = written.len();
        let needs = (0..stop).filter(|step| needed & (1 << step) != 0);
        let needs: Vec<_> = needs.map(|step| format!("s{step}")).collect();
        let condition = if holds { "$input.yes" } else { "$input.no" };
        let end = json!({ "yes": "$input.yes" });
        written.push(json!({
            "id": "stop", "stop": end, "depends_on": needs, "condition": condition,
        }));
        let plan = plan(&steps, concurrency, RunOutput::Last);
        let state = block_on(async {
            let world = World::new();
            let state = RunState::new(input(), plan.steps().len());
            run(&plan, state, &scope(DEADLINE), world.caller()).await
        });

        prop_assert!(state.outcomes.iter().all(Option::is_some));
        let ended = outcome(&state, stop);
        match state.ended_by {
            Some(step) => {
                prop_assert_eq!((step, ended.status, holds), (stop, Status::Completed, true));
                prop_assert!(state.failed.is_none() && !state.timed_out);
                let result = ended.result.as_ref().unwrap();
                prop_assert_eq!(&result.structured_content, &Some(json!({ "yes": true })));
                let place = state.finished.iter().position(|&step| step == stop).unwrap();
                for &later in &state.finished[place + 1..] {
                    let status = outcome(&state, later).status;
                    prop_assert!(matches!(status, Status::Cancelled | Status::Skipped), "{status:?}");
                }
            }
            // The stop was skipped because another step has failed the run, the deadline has
            // passed, or its condition is false.
            None => {
                prop_assert_eq!(ended.status, Status::Skipped);
                prop_assert!(!holds || state.failed.is_some() || state.timed_out);
            }
        }
    }
}
