//! The commands of the program with files that label tools.

use std::{fs, process::Output};

use crate::programs;

/// Two steps, the second of which gets the result of the first.
const COMPOSITE: &str = r#"
[[backends]]
name = "catalogue"
command = "${SHOP}"
args = ["catalogue"]

[[composite_tools]]
name = "offer"
description = "The price of what is described"
strategy = "pipeline"
steps = [
    { id = "describe", tool = "catalogue/describe", arguments = { article = "$input.article" } },
    { id = "price", tool = "catalogue/price", arguments = { article = "$prev.text" } },
]
"#;

/// Runs a command with a file of these labels. Returns its exit code and its errors.
async fn run(labels: &str, command: &[&str]) -> (Option<i32>, String) {
    let output = output(labels, command).await;
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

async fn output(labels: &str, command: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tools.toml");
    fs::write(&file, format!("{labels}{COMPOSITE}")).unwrap();
    let file = file.to_str().unwrap();
    programs::run(&[&command[..1], &[file], &command[1..]].concat()).await
}

/// Labels with which the composite sends private data.
const FORBIDDING: &str = r#"
[[flow]]
tools = ["catalogue_describe"]
labels = ["private"]

[[flow]]
tools = ["catalogue_price"]
labels = ["egress"]
"#;

#[tokio::test]
async fn file_with_a_forbidden_flow_is_refused_by_each_command() {
    for command in [&["check"][..], &["check", "--offline"], &["serve"], &["draw", "offer"]] {
        let (code, errors) = run(FORBIDDING, command).await;
        assert_eq!(code, Some(1), "{command:?}: {errors}");
        let message = "private data reaches an `egress` tool: `catalogue_describe` (step \
                       `describe`) → argument `article` of `catalogue_price` (step `price`)";
        assert!(errors.contains(message), "{command:?}: {errors}");
        assert!(errors.contains("tools.toml:21:"), "{command:?}: {errors}");
    }
}

#[tokio::test]
async fn draw_marks_a_forbidden_flow() {
    let draw = async |labels, command: &[&str]| {
        let output = output(labels, command).await;
        let [chart, errors] =
            [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.code(), chart, errors)
    };
    let (code, chart, errors) = draw(FORBIDDING, &["draw", "offer"]).await;
    assert_eq!(code, Some(1), "{errors}");
    assert!(chart.contains("c0n1 ==>|\"private data\"| c0n2\n"), "{chart}");
    assert!(chart.contains("class c0n1,c0n2 forbidden\n"), "{chart}");

    let (code, chart, errors) = draw("", &["draw", "offer"]).await;
    assert_eq!((code, &*errors), (Some(0), ""));
    assert!(chart.starts_with("flowchart TB\n") && !chart.contains("==>"), "{chart}");

    let view = "\n[[views]]\npath = \"/a\"\nfilter.hide_tools = [\"none\"]\n";
    let labels = format!("{FORBIDDING}{view}");
    let (code, chart, _) = draw(&labels, &["draw", "offer", "--view", "/a"]).await;
    assert_eq!(code, Some(1));
    assert!(chart.contains("class c0n1,c0n2 forbidden\n"), "{chart}");
    let (code, chart, errors) = draw(&labels, &["draw", "offer", "--view", "/b"]).await;
    assert_eq!((code, &*chart), (Some(1), ""));
    assert!(errors.contains("unknown view `/b`: expected one of `/a`"), "{errors}");

    // A file with other mistakes cannot be drawn.
    let (code, chart, errors) = draw("unknown = 1\n", &["draw", "offer"]).await;
    assert_eq!((code, &*chart), (Some(1), ""), "{errors}");
}

#[tokio::test]
async fn check_reports_labels_of_missing_tools() {
    let labels = r#"
[[flow]]
tools = ["catalog_*", "catalogue_describe"]
labels = ["private"]
"#;
    let (code, errors) = run(labels, &["check"]).await;
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("`[[flow]]`: the pattern `catalog_*` matches no tool"), "{errors}");
    assert!(!errors.contains("catalogue_describe"), "{errors}");
}

#[tokio::test]
async fn check_reports_flows_that_annotations_forbid() {
    let labels = |annotations| {
        format!(
            r#"
[[flow]]
backends = ["catalogue"]
labels = ["private"]
annotations = {annotations}
"#
        )
    };
    let (code, errors) = run(&labels(true), &["check"]).await;
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("not listed: composite `offer` at `steps[1]"), "{errors}");
    let (code, errors) = run(&labels(false), &["check"]).await;
    assert_eq!(code, Some(0), "{errors}");
}
