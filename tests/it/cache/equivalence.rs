//! A cached stack gives the same answers as one without a cache, for tools whose results depend
//! only on their arguments.

use mcp_composite::testing::RecordedCall;
use proptest::{collection::vec, prelude::*};

use super::*;

/// An action of the test.
#[derive(Clone, Debug)]
enum Action {
    /// Concurrent calls of tools, each with an argument.
    Call(Vec<(usize, i32, bool)>),
    Wait(u64),
    /// Replaces the definition and the function of a tool.
    Change(usize, i32),
}

const TOOLS: [&str; 3] = ["add", "fail", "echo"];

/// Returns the answer of a tool in its version `version`. It depends on the arguments only.
fn answer(tool: usize, version: i32) -> Answer {
    Answer::from_fn(move |call: RecordedCall| async move {
        let arguments = call.arguments();
        let number = arguments["n"].as_i64().unwrap();
        match tool {
            0 => Answer::structured(json!({ "sum": number + i64::from(version) })),
            1 if number % 2 == 0 => Answer::failure(format!("{number} is even")),
            1 => Answer::text("odd"),
            _ => Answer::structured(json!({ "version": version, "n": number })),
        }
    })
}

fn definition(tool: usize, version: i32) -> Tool {
    let mut definition = reads(TOOLS[tool]);
    definition.description = Some(format!("Version {version}").into());
    definition
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => vec((0..TOOLS.len(), 0..4, any::<bool>()), 1..6).prop_map(Action::Call),
        1 => (0..90_u64).prop_map(Action::Wait),
        1 => (0..TOOLS.len(), 0..3).prop_map(|(tool, version)| Action::Change(tool, version)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cached_stack_gives_the_answers_of_an_uncached_one(actions in vec(action(), 1..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let epoch = Epoch::default();
            let server = (0..TOOLS.len()).fold(Server::new(), |server, tool| {
                server.tool_as(definition(tool, 0), answer(tool, 0))
            });
            let plain = StackLayer::new().layer(server.clone());
            let cached = StackLayer::new().cache(cache().epoch(epoch.clone())).layer(server.clone());
            for action in actions {
                match action {
                    Action::Wait(seconds) => advance(Duration::from_secs(seconds)).await,
                    Action::Change(tool, version) => {
                        server.add(definition(tool, version), answer(tool, version));
                        epoch.bump();
                    }
                    Action::Call(calls) => {
                        let call = |&(tool, number, is_fresh): &(usize, i32, bool)| {
                            let call = request(TOOLS[tool], json!({ "n": number }));
                            if is_fresh { fresh(call) } else { call }
                        };
                        for answer in [&plain, &cached].map(|stack| {
                            futures::future::join_all(
                                calls.iter().map(|it| stack.clone().oneshot(call(it))),
                            )
                        }) {
                            let answers = answer.await;
                            for (it, answer) in calls.iter().zip(answers) {
                                let expected = plain.clone().oneshot(call(it)).await.unwrap();
                                let answer = answer.unwrap();
                                assert_eq!(answer.tool_result(), expected.tool_result(), "{it:?}");
                            }
                        }
                    }
                }
            }
        });
    }
}
