//! The overhead of this crate: calls that pass through, fan-outs and lists, compared with the bare
//! service and with fan-outs written by hand.
//!
//! ```sh
//! cargo bench -p benches --bench fan_out                   # everything, some seven minutes
//! cargo bench -p benches --bench fan_out -- pass_through   # one group
//! cargo bench -p benches --bench fan_out -- ^fan_out/8/    # one width
//! cargo bench -p benches --bench fan_out -- waits          # targets that wait; `computes`: or compute
//! cargo bench -p benches --bench fan_out -- allocations    # no times, only allocations
//! ```
//!
//! The table at the end compares cases of this run. Compare nothing else: the
//! same code takes half as long again on a machine that is busy or warm. Where
//! the ratio of the medians and that of the fastest samples disagree, run the
//! group again. Allocations do not vary.

mod answer;
mod by_hand;
mod counting;
mod joined;
mod leaf;
mod measure;
mod profile;
mod waiting;

use std::{convert::Infallible, env};

use mcp_composite::{
    composite::{Composite, CompositeTool, TRACE},
    message::{Reply, Request},
};
use serde_json::{Value, json};
use tower::{Service, service_fn};

use self::{
    by_hand::by_hand,
    leaf::{FAN_OUT, Leaf, SHORT_TEXT, answer_of, call, composite, layered, small_arguments},
    measure::{Group, Threads},
};

const WIDTHS: [usize; 6] = [1, 2, 4, 8, 16, 64];
const KIB_64: usize = 64 << 10;

fn main() {
    let mut groups = pass_through();
    groups.extend(WIDTHS.map(|width| fan_out(width, Threads::Current)));
    groups.extend(WIDTHS.map(|width| fan_out(width, Threads::Two)));
    groups.extend(arguments());
    groups.push(results());
    groups.extend([list(100, 10), list(1_000, 100)]);
    measure::run(&groups);
    // Cargo itself says `--bench`.
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    waiting::run(|name| filter.as_ref().is_none_or(|filter| name.contains(&**filter)));
}

/// Calls of tools that are not composites.
fn pass_through() -> Vec<Group> {
    let leaf = Leaf::new(2, SHORT_TEXT);
    let group = |name, tool| {
        let request = call(tool, small_arguments());
        Group::new(name)
            .case("leaf", &leaf, &request)
            .case("composites_0", &composites(&leaf, 0), &request)
            .against("leaf")
            .case("composites_10", &composites(&leaf, 10), &request)
            .against("leaf")
            .case("composites_1000", &composites(&leaf, 1_000), &request)
            .against("leaf")
    };
    vec![
        group("pass_through", "tool_0"),
        // As long as a composite's name, and like it but for the last character.
        group("pass_through_shared_prefix", "search_everything_everywhere_000x"),
    ]
}

fn fan_out(width: usize, threads: Threads) -> Group {
    let leaf = Leaf::new(width, SHORT_TEXT);
    let targets = leaf.names();
    let request = call(FAN_OUT, small_arguments());

    let composite = composite(&leaf, true);
    let composite_without_report = self::composite(&leaf, false);
    let by_hand = by_hand(&leaf, true);
    let by_hand_without_report = self::by_hand(&leaf, false);
    assert_same(&composite, &by_hand, &request);
    assert_same(&composite_without_report, &by_hand_without_report, &request);

    let join_all = {
        let (leaf, targets) = (leaf.clone(), targets.clone());
        service_fn(move |request| joined::join_all_content(leaf.clone(), targets.clone(), request))
    };
    let join_set =
        service_fn(move |request| joined::join_set_content(leaf.clone(), targets.clone(), request));

    let name = match threads {
        Threads::Current => format!("fan_out/{width}"),
        Threads::Two => format!("fan_out_two_threads/{width}"),
    };
    Group::new(name)
        .on(threads)
        .case("join_all", &join_all, &request)
        .case("join_set", &join_set, &request)
        .case("by_hand", &by_hand, &request)
        .case("ours", &composite, &request)
        .against("by_hand")
        .case("by_hand_without_report", &by_hand_without_report, &request)
        .case("ours_without_report", &composite_without_report, &request)
        .against("by_hand_without_report")
}

/// Fan-outs of 8 with 64 KiB of arguments.
fn arguments() -> [Group; 2] {
    let leaf = Leaf::new(8, SHORT_TEXT);
    let group = |name, arguments: Value| {
        let request = call(FAN_OUT, arguments);
        Group::new(name)
            .case("by_hand", &by_hand(&leaf, true), &request)
            .case("ours", &composite(&leaf, true), &request)
            .against("by_hand")
    };
    let value = "x".repeat(KIB_64 / 512);
    let members = (1..512).map(|index| (format!("key_{index:03}"), value.clone().into()));
    let object = std::iter::once(("q".to_owned(), value.clone().into())).chain(members);
    [
        group("arguments/string", json!({ "q": "x".repeat(KIB_64), "limit": 10 })),
        group("arguments/object", Value::Object(object.collect())),
    ]
}

/// Fan-outs of 8 with 64 KiB of text from each target.
fn results() -> Group {
    let leaf = Leaf::new(8, &"x".repeat(KIB_64));
    let request = call(FAN_OUT, small_arguments());
    Group::new("results/text")
        .case("by_hand", &by_hand(&leaf, true), &request)
        .case("ours", &composite(&leaf, true), &request)
        .against("by_hand")
        .case("by_hand_without_report", &by_hand(&leaf, false), &request)
        .case("ours_without_report", &composite(&leaf, false), &request)
        .against("by_hand_without_report")
}

fn list(tools: usize, count: usize) -> Group {
    let leaf = Leaf::new(tools, SHORT_TEXT);
    let request = Request::list_tools();
    Group::new(format!("list/{tools}+{count}"))
        .case("leaf", &leaf, &request)
        .case("ours", &composites(&leaf, count), &request)
        .against("leaf")
}

// === Fixtures ===

/// Returns a layer with the given number of composites, each of which calls two tools of `leaf`.
fn composites(leaf: &Leaf, count: usize) -> Composite<Leaf> {
    layered(
        leaf,
        (0..count).map(|index| {
            let name = format!("search_everything_everywhere_{index:04}");
            CompositeTool::fan_out(name, "Calls two tools", ["tool_0", "tool_1"])
        }),
    )
}

/// Asserts that two services return the same answer, except for times.
fn assert_same<A, B>(one: &A, other: &B, request: &Request)
where
    A: Service<Request, Response = Reply, Error = Infallible> + Clone,
    B: Service<Request, Response = Reply, Error = Infallible> + Clone,
{
    let [one, other] = [answer_of(one, request), answer_of(other, request)].map(|reply| {
        let result = reply.tool_result().expect("the call succeeds");
        let mut result = serde_json::to_value(result).expect("results are JSON");
        for step in result["_meta"][TRACE].as_array_mut().into_iter().flatten() {
            step["started_ms"] = Value::Null;
            step["duration_ms"] = Value::Null;
        }
        result
    });
    assert_eq!(one, other);
}
