//! Converts the Mermaid text of a composite to a graph, which the page draws.
//!
//! Reads only the text that [`Flowchart`](mcp_composite::mermaid::Flowchart) writes: one node,
//! arrow or class per line, with generated ids.

use serde::Serialize;

/// A graph of one or more composites.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Graph {
    groups: Vec<Group>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

/// A composite in the graph.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Group {
    id: String,
    title: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Node {
    id: String,
    group: String,
    /// `input`, `step`, `nested`, `loop`, `switch` or `question`. An answer is an `input`, too, and
    /// so is a step that ends the run.
    shape: &'static str,
    lines: Vec<String>,
    /// Whether a run can complete although this node is skipped or fails.
    is_conditional: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Edge {
    from: String,
    to: String,
    label: Option<String>,
    is_dotted: bool,
}

/// The brackets around the label of a node, the longest first.
const SHAPES: [(&str, &str, &str); 6] = [
    ("([", "])", "input"),
    ("[[", "]]", "nested"),
    ("{{", "}}", "loop"),
    ("[/", "/]", "question"),
    ("[", "]", "step"),
    ("{", "}", "switch"),
];

// === impl Graph ===

impl Graph {
    /// Reads Mermaid text. Ignores other lines than those of nodes, arrows and classes.
    pub(super) fn parse(mermaid: &str) -> Self {
        let mut graph = Self::default();
        for line in mermaid.lines().map(str::trim) {
            if let Some(group) = line.strip_prefix("subgraph ") {
                if let Some((id, _, mut lines)) = node(group) {
                    graph.groups.push(Group { id, title: lines.swap_remove(0) });
                }
            } else if let Some(class) = line.strip_prefix("class ") {
                graph.mark(class);
            } else if let Some(edge) = edge(line) {
                graph.edges.push(edge);
            } else if let (Some(group), Some((id, shape, lines))) =
                (graph.groups.last(), node(line))
            {
                let group = group.id.clone();
                graph.nodes.push(Node { id, group, shape, lines, is_conditional: false });
            }
        }
        graph
    }

    /// Applies a class, such as `c0n1,c0n2 conditional`.
    fn mark(&mut self, class: &str) {
        let Some((ids, "conditional")) = class.split_once(' ') else { return };
        for id in ids.split(',') {
            let marked = self.nodes.iter_mut().filter(|node| node.id == id);
            marked.for_each(|node| node.is_conditional = true);
        }
    }
}

/// Reads a node, such as `c0n1["find<br/>search"]`.
fn node(line: &str) -> Option<(String, &'static str, Vec<String>)> {
    let at = line.find(|c: char| !c.is_ascii_alphanumeric())?;
    let (id, rest) = line.split_at(at);
    let (label, shape) = SHAPES.iter().find_map(|(left, right, shape)| {
        let label = rest.strip_prefix(left)?.strip_suffix(right)?;
        Some((label.strip_prefix('"')?.strip_suffix('"')?, *shape))
    })?;
    Some((id.to_owned(), shape, label.split("<br/>").map(decoded).collect()))
}

/// Reads an arrow, such as `c0n0 -->|"label"| c0n1`.
fn edge(line: &str) -> Option<Edge> {
    let (from, rest) = line.split_once(' ')?;
    let (rest, is_dotted) = match rest.strip_prefix("-->") {
        Some(rest) => (rest, false),
        None => (rest.strip_prefix("-.->")?, true),
    };
    let (label, to) = match rest.strip_prefix("|\"") {
        Some(rest) => {
            let (label, to) = rest.split_once("\"| ")?;
            (Some(decoded(label)), to)
        }
        None => (None, rest.strip_prefix(' ')?),
    };
    Some(Edge { from: from.to_owned(), to: to.to_owned(), label, is_dotted })
}

/// Returns a label with its entity codes decoded.
fn decoded(label: &str) -> String {
    let mut text = String::with_capacity(label.len());
    let mut rest = label;
    while let Some((before, after)) = rest.split_once('#') {
        text.push_str(before);
        let code = after.split_once(';').and_then(|(code, after)| {
            Some((code.parse::<u32>().ok().and_then(char::from_u32)?, after))
        });
        match code {
            Some((character, after)) => {
                text.push(character);
                rest = after;
            }
            None => {
                text.push('#');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    // These separate characters that Mermaid would interpret together.
    text.retain(|c| c != '\u{2060}');
    text
}

#[cfg(test)]
mod tests {
    use mcp_composite::config::Config;

    use super::*;

    fn graph(file: &str, composite: &str) -> Graph {
        let config = Config::from_toml_str(file).unwrap();
        Graph::parse(&config.composite_layer().flowchart(composite).unwrap().to_string())
    }

    #[test]
    fn every_shape_is_read_from_the_text_of_the_crate() {
        let graph = graph(
            r#"
            [[composite_tools]]
            name = "all"
            description = "Has every shape"
            strategy = "workflow"
            steps = [
                { id = "find", tool = "search", arguments = { q = "$input['a b']" } },
                { id = "each", type = "for_each", collection = "$steps.find.output", tool = "read" },
                { id = "pick", type = "switch", depends_on = ["find"], cases = [
                    { when = "input.x == \"<y>\"", tool = "mail" },
                ], default = "skip" },
                { id = "ask", type = "elicitation", message = "Sure?", schema = {} },
                { id = "part", tool = "inner", on_error = "continue" },
            ]
            [[composite_tools]]
            name = "inner"
            description = "Is called"
            tools = ["search"]
            "#,
            "all",
        );
        let shapes: Vec<_> = graph.nodes.iter().map(|node| (&*node.lines[0], node.shape)).collect();
        assert_eq!(
            shapes,
            [
                ("input", "input"),
                ("find", "step"),
                ("each", "loop"),
                ("pick", "switch"),
                ("mail", "step"),
                ("ask", "question"),
                ("part", "nested"),
                ("answer", "input"),
                ("input", "input"),
                ("search", "step"),
                ("answer", "input"),
            ]
        );
        let titles: Vec<_> = graph.groups.iter().map(|group| &*group.title).collect();
        assert_eq!(titles, ["all, workflow", "inner, parallel"]);
        let conditional = graph.nodes.iter().filter(|node| node.is_conditional);
        assert_eq!(conditional.map(|node| &*node.lines[0]).collect::<Vec<_>>(), ["pick", "part"]);
        let label = graph.edges.iter().find_map(|edge| edge.label.as_deref());
        assert_eq!(label, Some("if input.x == \"<y>\""));
        let ids = |id: &String| {
            graph.nodes.iter().any(|node| node.id == *id)
                || graph.groups.iter().any(|group| group.id == *id)
        };
        assert!(graph.edges.iter().all(|edge| ids(&edge.from) && ids(&edge.to)), "{graph:?}");
    }

    #[test]
    fn entity_codes_are_decoded_and_other_signs_stay() {
        for (label, text) in
            [("a#35;b", "a#b"), ("#60;b#62;", "<b>"), ("#1114112;#x;#", "#1114112;#x;#")]
        {
            assert_eq!(decoded(label), text);
        }
    }

    #[test]
    fn other_text_is_ignored() {
        for text in ["", "subgraph", "subgraph x", "a[\"", "class ", "c0n0 -->", "a[\"b\"]"] {
            assert_eq!(Graph::parse(text), Graph::default(), "{text}");
        }
    }
}
