//! Flowcharts of composites, and of the outcome of their runs.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use mcp_composite::{
    composite::{
        Case, CompositeLayer, CompositeTool, ComputedValue, Elicitation, Fallback, FanOut, Finally,
        FlowLabel, FlowPolicy, ForEach, JsonType, OnError, Otherwise, Output, OutputProperty, Plan,
        Race, Repeat, Retry, Step, Stop, Strategy, Success, Switch, Target, ToolCall, Workflow,
    },
    mermaid::{Recorder, Run},
    pattern::Selection,
    store::SignedStore,
    testing::{self, Answer, Server},
};
use proptest::prelude::*;
use regex::RegexSet;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::scripted::is_sure;

fn drawn(composites: Vec<CompositeTool>, name: &str) -> String {
    CompositeLayer::new(composites).unwrap().flowchart(name).unwrap().to_string()
}

/// A workflow with everything that a chart can show.
fn everything() -> Vec<CompositeTool> {
    let steps = [
        Step::new("first", "count").on_error(OnError::Retry(Retry::times(2))),
        Step::new("pages", ForEach::new("$steps.first.output.pages", "read").max_parallel(3))
            .on_error(OnError::Continue),
        Step::new(
            "choice",
            Switch::new(
                [Case::new("input.n > 1", "notify"), Case::new("input.n == 1", "count")],
                Otherwise::Call("tell".into()),
            ),
        )
        .depends_on(["first"]),
        Step::new(
            "sure",
            Elicitation::new("Keep {{ steps.first.output.n }}?", json!({}))
                .on_decline(mcp_composite::composite::OnRefusal::Continue),
        )
        .condition("input.ask")
        .depends_on(["first", "pages"]),
        Step::new("last", "notify").depends_on(["first", "sure", "choice"]),
    ];
    let notify = CompositeTool::fan_out(
        "notify",
        "Tells everybody",
        [Target::new("mail"), Target::new("chat").id("team").optional(true)],
    );
    let count =
        OutputProperty::new(JsonType::Integer, "$steps.first.output.n").description("How many");
    vec![
        notify,
        CompositeTool::new(
            "everything",
            "Does everything",
            Workflow::new(steps).output(Output::new().property("count", count)),
        ),
    ]
}

#[test]
fn workflow_is_drawn_with_all_step_details() {
    insta::assert_snapshot!(drawn(everything(), "everything"), @r#"
    flowchart TB
        subgraph c0["everything, workflow"]
            c0n0(["input"])
            c0n1["first<br/>count<br/>retried 2 times at most"]
            c0n2{{"pages<br/>read<br/>for each of #36;steps#46;first#46;output#46;pages, 3 at a time<br/>may fail"}}
            c0n3{"choice"}
            c0n3k1["count"]
            c0n3k2["tell"]
            c0n4[/"sure<br/>asks#58; Keep #123;#123; steps#46;first#46;output#46;n #125;#125;#63;<br/>if declined#58; continue<br/>if input#46;ask"/]
            c0n5[["last<br/>notify"]]
            c0n6(["answer<br/>count"])
            c0n0 --> c0n1
            c0n1 --> c0n2
            c0n1 --> c0n3
            c0n2 --> c0n4
            c0n3 --> c0n5
            c0n4 --> c0n5
            c0n5 --> c0n6
        end
        subgraph c1["notify, parallel"]
            c1n0(["input"])
            c1n1["mail"]
            c1n2["team<br/>chat<br/>optional"]
            c1n3(["answer<br/>all that are not optional must succeed"])
            c1n0 --> c1n1
            c1n0 --> c1n2
            c1n1 --> c1n3
            c1n2 --> c1n3
        end
        c0n3 -.->|"if input#46;n #62; 1"| c1
        c0n3 -.->|"if input#46;n #61;#61; 1"| c0n3k1
        c0n3 -.->|"else"| c0n3k2
        c0n5 -.-> c1
        classDef conditional stroke-dasharray:4
        class c0n2,c0n4,c1n2 conditional
    "#);
}

#[test]
fn computed_value_is_drawn_with_its_expression() {
    let value = ComputedValue::new(json!({ "n": "$steps.first.output.n" }));
    let steps = [Step::new("first", "count"), Step::new("shape", value)];
    let values = CompositeTool::pipeline("values", "Computes values", steps);
    let chart = drawn(vec![values], "values");
    assert!(chart.contains(r#"c0n2["shape<br/>computes #123;#34;n#34;"#), "{chart}");
    assert!(chart.contains("c0n1 --> c0n2\n        c0n2 --> c0n3\n"), "{chart}");
}

#[test]
fn repeated_call_is_drawn_with_its_condition() {
    let poll = Repeat::new("status", "last.done").max_iterations(5);
    let steps = [Step::new("first", "count"), Step::new("poll", poll)];
    let polls = CompositeTool::pipeline("polls", "Polls", steps);
    let chart = drawn(vec![polls], "polls");
    let line = r#"c0n2{{"poll<br/>status<br/>until last#46;done, 5 times at most"}}"#;
    assert!(chart.contains(line), "{chart}");
}

#[test]
fn finally_step_is_drawn_after_all_others() {
    let steps = [
        Step::new("first", "count"),
        Step::new("next", "count"),
        Step::new("undo", "tell").finally(Finally::new()),
        Step::new("unlock", "tell").finally(Finally::new().on_cancel(true)),
    ];
    let undoes = CompositeTool::workflow("undoes", "Undoes", steps);
    let chart = drawn(vec![undoes], "undoes");
    for line in [
        r#"c0n3["undo<br/>tell<br/>finally"]"#,
        r#"c0n4["unlock<br/>tell<br/>finally, also after a cancellation"]"#,
        "c0n1 --> c0n3",
        "c0n2 --> c0n3",
        "c0n2 --> c0n4",
    ] {
        assert!(chart.contains(line), "{chart}");
    }
}

#[test]
fn stop_is_drawn_with_an_arrow_to_the_answer() {
    let steps = [
        Step::new("first", "count"),
        Step::new("none", Stop::error("None")).condition("steps.first.output.n == 0"),
        Step::new("few", Stop::message("Few")).condition("steps.first.output.n < 3"),
        Step::new("last", "count").depends_on(["none"]),
    ];
    let stops = CompositeTool::workflow("stops", "Ends early", steps);
    let chart = drawn(vec![stops], "stops");
    for line in [
        r#"c0n2(["none<br/>fails the run#58; None<br/>if "#,
        r#"c0n3(["few<br/>ends the run#58; Few<br/>if "#,
        r#"c0n2 -->|"ends the run"| c0n5"#,
        r#"c0n3 -->|"ends the run"| c0n5"#,
        "c0n2 --> c0n4\n",
        "c0n4 --> c0n5\n",
        "class c0n2,c0n3 conditional",
    ] {
        assert!(chart.contains(line), "{line}\n{chart}");
    }
}

#[test]
fn each_strategy_is_drawn_as_it_runs() {
    fn look(strategy: impl Into<Strategy>) -> CompositeTool {
        CompositeTool::new("look", "Looks", strategy)
    }

    let of = |composite| drawn(vec![composite], "look");
    insta::assert_snapshot!(of(look(FanOut::new(["near", "far"]).success(Success::Quorum(1)).max_parallel(2))), @r#"
    flowchart TB
        subgraph c0["look, parallel, 2 at a time"]
            c0n0(["input"])
            c0n1["near"]
            c0n2["far"]
            c0n3(["answer<br/>1 must succeed"])
            c0n0 --> c0n1
            c0n0 --> c0n2
            c0n1 --> c0n3
            c0n2 --> c0n3
        end
    "#);
    let any = of(look(FanOut::new(["near", "far"]).success(Success::Any)));
    assert!(any.contains(r#"c0n3(["answer<br/>one must succeed"])"#), "{any}");
    insta::assert_snapshot!(of(look(FanOut::new(["near", "far"]).sequential())), @r#"
    flowchart TB
        subgraph c0["look, sequential"]
            c0n0(["input"])
            c0n1["near"]
            c0n2["far"]
            c0n3(["answer<br/>all must succeed"])
            c0n0 --> c0n1
            c0n1 --> c0n2
            c0n2 --> c0n3
        end
    "#);
    insta::assert_snapshot!(of(look(Race::new(["near", "far"]))), @r#"
    flowchart TB
        subgraph c0["look, race"]
            c0n0(["input"])
            c0n1["near"]
            c0n2["far"]
            c0n3(["answer<br/>of the first that succeeds"])
            c0n0 --> c0n1
            c0n0 --> c0n2
            c0n1 --> c0n3
            c0n2 --> c0n3
        end
    "#);
    insta::assert_snapshot!(of(look(Fallback::new(["near", "far"]))), @r#"
    flowchart TB
        subgraph c0["look, fallback"]
            c0n0(["input"])
            c0n1["near"]
            c0n2["far"]
            c0n3(["answer<br/>of the first that succeeds"])
            c0n0 --> c0n1
            c0n1 --> c0n3
            c0n1 -->|"if it fails"| c0n2
            c0n2 --> c0n3
        end
    "#);
}

#[test]
fn path_of_forbidden_data_is_drawn() {
    let tools = |name| Selection::default().allow([name]).unwrap();
    let policy = FlowPolicy::new()
        .label(tools("mail"), [FlowLabel::Private, FlowLabel::Untrusted])
        .label(tools("post"), [FlowLabel::Egress]);
    let text = |text: &str| json!({ "text": text });
    let publish = CompositeTool::pipeline(
        "publish",
        "Publishes",
        [
            Step::new("check", "count"),
            Step::new("post", ToolCall::new("post").arguments(text("$input.text"))),
        ],
    );
    let outer = CompositeTool::workflow(
        "outer",
        "Reads and publishes",
        [
            Step::new("read", "mail"),
            Step::new("next", "count").condition("steps.read.text == 'x'"),
            Step::new("last", ToolCall::new("publish").arguments(text("$steps.read.text")))
                .depends_on(["next"]),
        ],
    );
    let layer = CompositeLayer::new([publish, outer]).unwrap();
    let plain = layer.flowchart("outer").unwrap();
    let chart = plain.clone().violations(&layer.check_flow(&policy));
    insta::assert_snapshot!(chart.to_string(), @r#"
    flowchart TB
        subgraph c0["outer, workflow"]
            c0n0(["input"])
            c0n1["read<br/>mail"]
            c0n2["next<br/>count<br/>if steps#46;read#46;text #61;#61; #39;x#39;<br/>untrusted data decides whether a step runs"]
            c0n3[["last<br/>publish"]]
            c0n4(["answer<br/>of the last step that completes"])
            c0n0 --> c0n1
            c0n1 --> c0n2
            c0n2 --> c0n3
            c0n3 --> c0n4
        end
        subgraph c1["publish, pipeline"]
            c1n0(["input"])
            c1n1["check<br/>count"]
            c1n2["post<br/>private data reaches an #96;egress#96; tool"]
            c1n3(["answer<br/>of the last step that completes"])
            c1n0 --> c1n1
            c1n1 --> c1n2
            c1n2 --> c1n3
        end
        c0n3 -.-> c1
        c0n1 ==>|"untrusted data"| c0n2
        c0n1 ==>|"private data"| c0n3
        c0n3 ==>|"private data"| c1n2
        linkStyle 8 stroke:#d32f2f,color:#d32f2f
        linkStyle 9 stroke:#d32f2f,color:#d32f2f
        linkStyle 10 stroke:#d32f2f,color:#d32f2f
        classDef conditional stroke-dasharray:4
        class c0n2 conditional
        classDef forbidden stroke:#d32f2f,stroke-width:3px
        class c0n1,c0n2,c0n3,c1n2 forbidden
    "#);
    assert_eq!(plain.clone().violations(&layer.check_flow(&FlowPolicy::new())), plain);
    // The violation is in the composite that passes the data on.
    let inner = layer.flowchart("publish").unwrap();
    let marked = inner.clone().violations(&layer.check_flow(&policy)).to_string();
    assert_eq!(marked, inner.to_string());
}

#[test]
fn composite_called_twice_is_drawn_once() {
    let inner = CompositeTool::fan_out("inner", "Looks", ["near"]);
    let targets = [Target::new("inner"), Target::new("inner").id("again")];
    let outer = CompositeTool::fan_out("outer", "Looks", targets);
    let chart = drawn(vec![inner.clone(), outer.clone()], "outer");
    assert_eq!(chart.matches("subgraph").count(), 2);
    let arrows: Vec<_> = chart.lines().filter(|line| line.ends_with("-.-> c1")).collect();
    assert_eq!(arrows, ["    c0n1 -.-> c1", "    c0n2 -.-> c1"]);
    assert_eq!(drawn(vec![inner, outer], "inner").matches("subgraph").count(), 1);
}

#[test]
fn unknown_composite_is_reported_with_a_suggestion() {
    let layer = CompositeLayer::new(everything()).unwrap();
    let error_for = |name| layer.flowchart(name).unwrap_err().to_string();
    assert_eq!(error_for("evrything"), "unknown composite `evrything`: did you mean `everything`?");
    assert_eq!(error_for("x"), "unknown composite `x`");
}

#[test]
fn plan_is_drawn_like_a_composite_of_a_layer() {
    let [notify, _] = everything().try_into().unwrap();
    let plan = Plan::new(notify.clone()).unwrap();
    assert_eq!(plan.flowchart().to_string(), drawn(vec![notify], "notify"));
}

/// Calls the last of these, and returns its chart and the recorded run.
async fn ran(composites: Vec<CompositeTool>, server: Server) -> (String, Run) {
    let name = composites.last().unwrap().name().to_owned();
    let recorder = Arc::new(Recorder::new());
    let layer = CompositeLayer::new(composites).unwrap().observer(recorder.clone());
    let call = testing::call(&layer.layer(server), &name, json!({}));
    let _ = tokio::time::timeout(Duration::from_secs(9), call).await;
    let [run] = recorder.runs().try_into().unwrap();
    (layer.flowchart(&name).unwrap().run(&run).to_string(), run)
}

/// Returns the text of a node, and its classes.
fn node<'c>(chart: &'c str, name: &str) -> (&'c str, Vec<&'c str>) {
    let labelled =
        |line: &&str| line.contains(&format!("\"{name}<br/>")) && !line.contains("subgraph");
    let line = chart.lines().find(labelled).unwrap_or_else(|| panic!("{name} in {chart}")).trim();
    let id = &line[..line.find(['[', '(', '{']).unwrap()];
    let classes = chart.lines().filter_map(|line| line.strip_prefix("    class ")?.split_once(' '));
    let of_node = classes.filter(|(nodes, _)| nodes.split(',').any(|node| node == id));
    let label = line.split('"').nth(1).unwrap();
    (label.rsplit("<br/>").next().unwrap(), of_node.map(|(_, class)| class).collect())
}

#[tokio::test(start_paused = true)]
async fn run_chart_shows_the_outcome_of_each_branch() {
    let server = Server::new()
        .tool("good", Answer::text("yes").after(Duration::from_millis(1500)))
        .fails("bad", "no")
        .tool("flaky", Answer::failure("no").times(1).then(Answer::text("yes")))
        .hangs("slow");
    let retry = Retry::times(1).delay(Duration::ZERO).max_delay(Duration::ZERO);
    let steps = [
        Step::new("good", "good"),
        Step::new("bad", "bad").on_error(OnError::Continue),
        Step::new("flaky", "flaky").on_error(OnError::Retry(retry)),
        Step::new("slow", "slow").timeout(Duration::from_secs(2)).on_error(OnError::Continue),
        Step::new("off", "good").condition("false"),
    ];
    let (chart, run) = ran(vec![CompositeTool::pipeline("look", "Looks", steps)], server).await;
    assert_eq!((run.composite(), run.is_over()), ("look", true));
    for (name, words, classes) in [
        ("good", "completed in 1#46;5s", vec!["completed"]),
        ("bad", "failed #40;tool#41;", vec!["conditional", "failed"]),
        ("flaky", "completed, 2 attempts", vec!["completed"]),
        ("slow", "timed out #40;timeout#41; in 2s", vec!["conditional", "timed_out"]),
        ("off", "skipped #40;condition#41;", vec!["conditional", "skipped"]),
        ("answer", "completed in 3#46;5s", vec!["completed"]),
    ] {
        let label =
            if name == "good" { chart.replace("\"good\"", "\"good<br/>\"") } else { chart.clone() };
        assert_eq!(node(&label, name), (words, classes), "{name} in {chart}");
    }
}

#[tokio::test(start_paused = true)]
async fn loop_elements_and_nested_branches_are_counted() {
    let server =
        Server::new().tool("flaky", Answer::failure("no").times(1).then(Answer::text("yes")));
    let inner = CompositeTool::fan_out("inner", "Looks", ["flaky"]);
    let each = Step::new("each", ForEach::new(json!([1, 2, 3]), "inner").max_parallel(1));
    let each = each.on_error(OnError::Continue);
    let (chart, _) =
        ran(vec![inner, CompositeTool::pipeline("outer", "Looks", [each])], server).await;
    let (elements, classes) = node(&chart, "each");
    assert_eq!(elements, "elements#58; 1 failed, 2 completed #40;tool#41;");
    assert_eq!(classes, ["conditional", "completed"]);
    assert_eq!(node(&chart, "flaky"), ("1 failed, 2 completed #40;tool#41;", vec!["failed"]));
}

#[tokio::test(start_paused = true)]
async fn running_and_dropped_runs_are_drawn_in_their_state() {
    let recorder = Arc::new(Recorder::new());
    let look = CompositeTool::fan_out("look", "Looks", [Target::new("slow").id("a")]);
    let layer = CompositeLayer::new([look]).unwrap().observer(recorder.clone());
    let service = layer.layer(Server::new().hangs("slow"));
    let stands = || {
        let [run] = recorder.runs().try_into().unwrap();
        let chart = layer.flowchart("look").unwrap().run(&run).to_string();
        let (words, classes) = node(&chart, "a");
        (words.to_owned(), classes.concat(), run.is_over())
    };
    let call = testing::call(&service, "look", json!({}));
    tokio::pin!(call);
    tokio::time::timeout(Duration::from_secs(1), &mut call).await.unwrap_err();
    assert_eq!(stands(), ("runs".to_owned(), "running".to_owned(), false));
    let dropped = testing::call(&service, "look", json!({}));
    let _ = tokio::time::timeout(Duration::from_secs(3), dropped).await;
    let [dropped, _] = recorder.runs().try_into().unwrap();
    let chart = layer.flowchart("look").unwrap().run(&dropped).to_string();
    assert_eq!(node(&chart, "a"), ("cancelled in 3s", vec!["cancelled"]));
    assert!(dropped.is_over());
}

#[tokio::test(start_paused = true)]
async fn resumed_run_is_recorded_as_the_same_run() {
    let recorder = Arc::new(Recorder::new());
    let sure = Step::new("sure", Elicitation::new("Sure?", json!({})));
    let steps = [sure, Step::new("then", "a")];
    let layer = CompositeLayer::new([CompositeTool::pipeline("look", "Looks", steps)]).unwrap();
    let layer = layer
        .observer(recorder.clone())
        .state(SignedStore::new("a key of at least thirty-two bytes").unwrap());
    let stands = || {
        let [run] = recorder.runs().try_into().unwrap();
        let chart = layer.flowchart("look").unwrap().run(&run).to_string();
        ["sure", "answer"].map(|name| node(&chart, name).1.concat())
    };
    let call = async |state: Option<String>| {
        let service = layer.layer(Server::new().says("a", "yes"));
        service.oneshot(is_sure("look", state)).await.unwrap().into_tool_answer()
    };
    let mcp_composite::message::ToolAnswer::InputRequired(question) = call(None).await else {
        panic!()
    };
    assert_eq!(stands(), ["waiting", "waiting"]);
    // Sending the state again continues the same run in the chart, not another.
    for _ in 0..2 {
        call(question.request_state.clone()).await;
        assert_eq!(stands(), ["completed", "completed"]);
    }
}

#[tokio::test(start_paused = true)]
async fn recorder_keeps_only_the_last_runs() {
    let recorder = Arc::new(Recorder::new().max_runs(2));
    let inner = CompositeTool::fan_out("inner", "Looks", ["a"]);
    let look = CompositeTool::fan_out("look", "Looks", ["inner"]);
    let layer = CompositeLayer::new([inner, look]).unwrap().observer(recorder.clone());
    let service = layer.layer(Server::new().says("a", "yes"));
    for _ in 0..3 {
        testing::call(&service, "look", json!({})).await;
    }
    let runs = recorder.runs();
    assert_eq!(runs.iter().map(Run::composite).collect::<Vec<_>>(), ["look", "look"]);
    assert_ne!(runs[0].id(), runs[1].id());
}

#[tokio::test(start_paused = true)]
async fn nested_run_of_an_evicted_run_does_not_evict_another() {
    let recorder = Arc::new(Recorder::new().max_runs(1));
    let inner = CompositeTool::fan_out("inner", "Looks", ["near"]);
    let steps = [Step::new("slow", "slow"), Step::new("inner", "inner")];
    let outer = CompositeTool::pipeline("outer", "Looks", steps);
    let late = Answer::text("yes").after(Duration::from_secs(1));
    let server = Server::new().says("near", "yes").tool("slow", late);
    let service =
        CompositeLayer::new([inner, outer]).unwrap().observer(recorder.clone()).layer(server);
    let other = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        testing::call(&service, "inner", json!({})).await;
        let [run] = &recorder.runs()[..] else { panic!("one is kept") };
        run.id()
    };
    let (_, other) = tokio::join!(testing::call(&service, "outer", json!({})), other);
    let [run] = &recorder.runs()[..] else { panic!("one is kept") };
    assert_eq!((run.id(), run.composite()), (other, "inner"));
}

/// The composites of every example are drawn.
#[cfg(feature = "config")]
#[test]
fn all_examples_are_drawn() {
    let mut count = 0;
    for (name, text) in crate::support::config_files("examples") {
        let config =
            mcp_composite::config::Config::from_toml_str_with_env(&text, |_| Some("x".to_owned()));
        let config = config.unwrap_or_else(|error| panic!("{name}: {error}"));
        for composite in config.composite_tools() {
            let chart = config.composite_layer().flowchart(composite.name()).unwrap();
            check(&chart.to_string());
            count += 1;
        }
    }
    assert!(count > 5, "{count}");
}

/// Checks that each line of a chart is one of a few kinds, with nothing else in it.
#[track_caller]
fn check(chart: &str) {
    let lines: Vec<_> = chart.split('\n').collect();
    let (last, lines) = lines.split_last().unwrap();
    assert_eq!((*last, lines[0]), ("", "flowchart TB"));
    for line in lines {
        assert!(LINES.is_match(line), "{line:?} in {chart}");
    }
}

/// The kinds of lines.
static LINES: LazyLock<RegexSet> = LazyLock::new(|| {
    let id = r"c\d+n\d+(k\d+)?";
    let label = r#""(#\d+;|[\p{Alphabetic}\p{N} ,_\u{2060}-]|<br/>)+""#;
    let kinds = [
        "flowchart TB".to_owned(),
        format!(r"    subgraph c\d+\[{label}\]"),
        format!(
            r"        {id}(\[{label}\]|\(\[{label}\]\)|\[\[{label}\]\]|\{{\{{{label}\}}\}}|\{{{label}\}}|\[/{label}/\])"
        ),
        format!(r"        {id} -->(\|{label}\|)? {id}"),
        "    end".to_owned(),
        format!(r"    {id} -\.->(\|{label}\|)? ({id}|c\d+)"),
        r"    classDef [a-z_]+ [a-z0-9#:,-]+".to_owned(),
        format!(r"    class {id}(,{id})* [a-z_]+"),
    ];
    RegexSet::new(kinds.map(|kind| format!("^(?:{kind})$"))).unwrap()
});

/// Targets, steps, cases and questions with these texts wherever possible.
fn hostile(texts: &[String; 4]) -> Vec<CompositeTool> {
    let [tool, message, literal, other] = texts;
    let condition = format!("input.a == {}", Value::from(literal.as_str()));
    let steps = [
        Step::new("a", tool.as_str()),
        Step::new(
            "b",
            Switch::new([Case::new(condition.clone(), other.as_str())], Otherwise::Skip),
        ),
        Step::new("c", Elicitation::new(message.as_str(), json!({}))),
        Step::new("d", ForEach::new(json!([literal]), other.as_str())).condition(condition),
    ];
    vec![
        CompositeTool::fan_out("fan", "Looks", [tool.as_str(), other.as_str()]),
        CompositeTool::workflow("flow", "Looks", steps),
    ]
}

proptest! {
    #[test]
    fn hostile_text_cannot_break_the_flowchart(texts in any::<[String; 4]>()) {
        // A blank name, or a text that is not a template, is an error of its own.
        for composite in hostile(&texts) {
            if let Ok(plan) = Plan::new(composite) {
                check(&plan.flowchart().to_string());
            }
        }
    }
}
