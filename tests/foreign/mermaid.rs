//! The charts of composites, rendered by Mermaid.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use mcp_composite::{
    composite::{
        Case, CompositeLayer, CompositeTool, FlowLabel, FlowPolicy, ForEach, OnError, Otherwise,
        Plan, Step, Switch, ToolCall,
    },
    config::Config,
    mermaid::Flowchart,
    pattern::Selection,
};
use serde::Deserialize;
use serde_json::json;

use crate::support::{installed, sources};

/// The visible content of a chart.
#[derive(Debug, Deserialize)]
struct Drawn {
    nodes: Vec<String>,
    arrows: Vec<String>,
    titles: Vec<String>,
    /// Active elements, such as scripts; must be empty.
    active: Vec<String>,
}

fn draw(charts: &[Flowchart]) -> Vec<Drawn> {
    installed();
    let charts: Vec<_> = charts.iter().map(ToString::to_string).collect();
    let mut mermaid = Command::new("node")
        .arg(sources().join("mermaid.mjs"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = serde_json::to_string(&charts).unwrap();
    mermaid.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = mermaid.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", charts.join("\n"));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns a text without white space and the characters that separate others, which a picture
/// shows differently.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<String>().replace('\u{2060}', "")
}

#[test]
fn composites_of_all_examples_are_drawn() {
    let mut charts = Vec::new();
    let mut expected = Vec::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for entry in fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        let is_manifest = path.file_name().is_some_and(|name| name == "Cargo.toml");
        if !is_manifest && path.extension().is_some_and(|extension| extension == "toml") {
            let text = fs::read_to_string(&path).unwrap();
            let variable = |_: &str| Some("variable".to_owned());
            let config = Config::from_toml_str_with_env(&text, variable).unwrap();
            for composite in config.composite_tools() {
                charts.push(config.composite_layer().flowchart(composite.name()).unwrap());
                expected.push(composite.name().to_owned());
            }
        }
    }
    assert!(charts.len() > 5, "{expected:?}");
    for ((drawn, name), chart) in draw(&charts).iter().zip(expected).zip(charts) {
        assert!(drawn.titles.iter().any(|title| title.starts_with(&name)), "{drawn:?}");
        // Each node is in the chart once, and no other node is drawn.
        let text = chart.to_string();
        let labels =
            text.lines().filter(|line| line.starts_with("        c") && line.contains('"'));
        let nodes = labels.filter(|line| !line.contains("-->")).count();
        assert_eq!(drawn.nodes.len(), nodes, "{chart}");
        assert_eq!(drawn.active, [""; 0]);
    }
}

#[test]
fn forbidden_flows_are_drawn_as_labeled_arrows() {
    let tools = |name| Selection::default().allow([name]).unwrap();
    let policy = FlowPolicy::new()
        .label(tools("mail"), [FlowLabel::Private, FlowLabel::Untrusted])
        .label(tools("post"), [FlowLabel::Egress]);
    let call = |tool: &str, text: &str| ToolCall::new(tool).arguments(json!({ "text": text }));
    let publish = [Step::new("post", call("post", "$input.text"))];
    let outer = [
        Step::new("read", "mail"),
        Step::new("last", call("publish", "$prev.text")).condition("steps.read.text == 'x'"),
    ];
    let layer = CompositeLayer::new([
        CompositeTool::pipeline("publish", "Publishes", publish),
        CompositeTool::pipeline("outer", "Reads and publishes", outer),
    ])
    .unwrap();
    let plain = layer.flowchart("outer").unwrap();
    let marked = plain.clone().violations(&layer.check_flow(&policy));
    let [plain, marked] = draw(&[plain, marked]).try_into().unwrap();
    assert_eq!(plain.arrows.iter().filter(|arrow| arrow.contains("data")).count(), 0);
    let count = |label: &str| marked.arrows.iter().filter(|arrow| *arrow == label).count();
    // From `read` to `last`, and from there to `post`; also to the condition of `last`.
    assert_eq!((count("private data"), count("untrusted data")), (2, 1), "{marked:?}");
    assert_eq!(marked.nodes.len(), plain.nodes.len());
    let shows = |text: &str| marked.nodes.iter().any(|node| node.contains(text));
    assert!(shows("private data reaches an `egress` tool"), "{marked:?}");
}

#[test]
fn operator_text_is_displayed_literally() {
    let hostile = [
        "end",
        "a\"]; end; c0n0[\"b",
        "</div></foreignObject></svg><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<b>bold</b> &lt;i&gt; &amp;",
        "#quot; #35; #x; ;",
        "`code` *em* __strong__ ~~gone~~",
        "1. one",
        "- one",
        "# one",
        "> one",
        "[a](javascript:alert(1))",
        "www.example.com a@example.com",
        "%% comment %%{init: {\"theme\": \"dark\"}}%%",
        "click c0n0 href \"javascript:alert(1)\"",
        "style c0n0 fill:#f00; classDef x:#abc;",
        "$$\\frac{a}{b}$$ $$$",
        "fa:fa-ban fab:fa-x",
        "ﬂ°36¶ß ﬂ°°60¶ß",
        "\\n \\\" \\",
        "{{ x }} {% y %} | & --> -.- ===",
        "---\ntitle: x\n---",
        "naïve 価格 😀 עברית",
        "@{ shape: cat }",
        ":::completed",
        "subgraph x",
        "a<br/>b<br>c",
        "_a_ a_b_c __",
        "\u{200b}",
    ];
    let charts: Vec<_> = hostile
        .iter()
        .map(|text| {
            let steps = [
                Step::new("call", *text).on_error(OnError::Continue),
                Step::new("choice", Switch::new([Case::new("input.a", *text)], Otherwise::Skip)),
                Step::new("each", ForEach::new(json!(["x"]), *text)),
            ];
            Plan::new(CompositeTool::workflow("flow", "Looks", steps)).unwrap().flowchart()
        })
        .collect();
    for (drawn, text) in draw(&charts).iter().zip(hostile) {
        let nodes: BTreeSet<_> = drawn.nodes.iter().map(|node| plain(node)).collect();
        let text = plain(text);
        for node in [text.clone(), format!("call{text}mayfail")] {
            assert!(nodes.contains(&node), "{node} in {nodes:?}");
        }
        assert_eq!(drawn.nodes.len(), 6, "{drawn:?}");
        assert!(drawn.arrows.iter().any(|arrow| arrow == "if input.a"), "{drawn:?}");
        assert_eq!(drawn.titles, ["flow, workflow"]);
        assert_eq!(drawn.active, [""; 0], "{text}");
    }
}
