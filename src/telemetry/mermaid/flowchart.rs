//! Renders composites as Mermaid flowcharts, which can also show the outcome of a run.

use std::fmt::{self, Display};

use super::{
    forbidden::{ForbiddenFlow, StepNode},
    recorder::Run,
    tally::{STATUSES, Status},
    text::Label,
};

/// A flowchart of a composite and of all composites that it calls, directly or indirectly.
///
/// The `Display` output of a `Flowchart` is [Mermaid][mermaid] text. The [module
/// docs](crate::mermaid) describe the contents of the chart and contain an example.
///
/// [mermaid]: https://mermaid.js.org/syntax/flowchart.html
#[derive(Clone, Debug, PartialEq)]
pub struct Flowchart {
    /// The graph of the composite, followed by the graphs of the composites that it calls.
    graphs: Vec<Graph>,
    run: Option<Run>,
    /// The flows of data that are marked as forbidden.
    forbidden: Vec<ForbiddenFlow>,
}

/// The part of a flowchart that shows one composite, drawn as a Mermaid subgraph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Graph {
    pub(crate) composite: String,
    /// The kind of the composite, such as `pipeline` or `workflow, 3 at a time`. Part of the title
    /// of the graph.
    pub(crate) manner: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
}

/// A node of a graph. It represents the input, a step or the answer of a composite.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub(crate) shape: Shape,
    /// The lines of text in the node's label. For a step, the first line is the ID of the step.
    pub(crate) lines: Vec<String>,
    /// `true` if a run can complete although this step was skipped or has failed. The node of such
    /// a step has a dashed border.
    pub(crate) is_conditional: bool,
    /// The calls that are drawn as arrows: calls of composites, and the calls in the cases of a
    /// switch. Other calls are only listed in the label of the node.
    pub(crate) calls: Vec<Call>,
}

/// The kind of a node. It determines the shape of the node in the flowchart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Input,
    Answer,
    /// A step that calls a tool.
    Step,
    /// A step that calls a composite.
    Nested,
    Loop,
    Switch,
    Question,
    /// A step that ends the run.
    Stop,
}

/// A call of a node to a tool or to another composite, drawn as an arrow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    /// The label of the arrow, which names a case of a switch step, such as `if input.mail` or
    /// `else`. `None` if the step is not a switch.
    pub(crate) when: Option<String>,
    pub(crate) callee: Callee,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Callee {
    /// Another composite that the flowchart shows. Contains the index of its graph in
    /// [`Flowchart`].
    Graph(usize),
    Tool(String),
}

/// An arrow from the node `from` to the node `to` of the same graph. `to` may start after `from`
/// has finished.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) label: Option<&'static str>,
}

/// An arrow between the nodes of a graph.
const SOLID: &str = "-->";
/// An arrow from a node to the tool or composite that it calls.
const DOTTED: &str = "-.->";
/// An arrow of a forbidden flow of data.
const THICK: &str = "==>";

/// The identifier of a node in the Mermaid text. It is generated, so that it never contains user
/// input.
#[derive(Clone, Copy, PartialEq)]
struct Id {
    graph: usize,
    node: usize,
}

/// The identifier of a node for one case of a switch in the Mermaid text. Contains the identifier
/// of the switch and the index of the case.
#[derive(Clone, Copy)]
struct CaseId(Id, usize);

/// The identifier of a graph in the Mermaid text. Contains the index of the graph.
#[derive(Clone, Copy)]
struct GraphId(usize);

/// The nodes and arrows of a flowchart that show forbidden flows of data.
#[derive(Default)]
struct Marks {
    nodes: Vec<Id>,
    /// The arrows between the nodes, with their labels.
    arrows: Vec<(Id, Id, &'static str)>,
    /// The violated rules, each with the node in which the data is used.
    reasons: Vec<(Id, &'static str)>,
}

/// The color of forbidden flows. It is legible on light and dark pages.
const FORBIDDEN_COLOR: &str = "#d32f2f";

/// A style class in the Mermaid text, with the nodes to which it applies.
struct Class<'c> {
    name: &'static str,
    style: &'c str,
    nodes: &'c [Id],
}

// === impl Flowchart ===

impl Flowchart {
    pub(crate) const fn new(graphs: Vec<Graph>) -> Self {
        Self { graphs, run: None, forbidden: Vec::new() }
    }

    /// Marks forbidden flows of data. Flows in composites that the flowchart does not show are
    /// ignored.
    pub(crate) fn forbid(mut self, flows: impl IntoIterator<Item = ForbiddenFlow>) -> Self {
        self.forbidden.extend(flows);
        self
    }

    /// Displays a run that a [`Recorder`](super::Recorder) has recorded: each step of the flowchart
    /// shows its outcome or progress. Composites and steps of the run that are not part of the
    /// flowchart are ignored.
    #[must_use]
    pub fn run(mut self, run: &Run) -> Self {
        self.run = Some(run.clone());
        self
    }

    /// Returns the nodes of all graphs, each with its identifier and its graph.
    fn nodes(&self) -> impl Iterator<Item = (Id, &Graph, &Node)> {
        self.graphs.iter().enumerate().flat_map(|(at, graph)| {
            let nodes = graph.nodes.iter().enumerate();
            nodes.map(move |(node, drawn)| (Id { graph: at, node }, graph, drawn))
        })
    }

    /// Returns the outcome of a node in the displayed run: lines of text that are appended to the
    /// label, and a status that determines the style. Returns no lines and no status if nothing was
    /// recorded for the node.
    fn outcome(&self, graph: &Graph, node: &Node) -> (Vec<String>, Option<Status>) {
        let record = self.run.as_ref().and_then(|run| run.of(&graph.composite));
        let (Some(record), Some(id)) = (record, node.lines.first()) else {
            return (Vec::new(), None);
        };
        match node.shape {
            Shape::Input => (Vec::new(), None),
            Shape::Answer => (record.runs.summary().into_iter().collect(), record.runs.worst()),
            _ => {
                let Some(branch) = record.branches.get(id) else { return (Vec::new(), None) };
                let elements =
                    branch.elements.summary().map(|summary| format!("elements: {summary}"));
                let lines = branch.own.summary().into_iter().chain(elements).collect();
                (lines, branch.own.worst().or_else(|| branch.elements.worst()))
            }
        }
    }

    /// Returns the node of a step. Returns `None` if the flowchart does not show the step.
    fn find(&self, step: &StepNode) -> Option<Id> {
        let is_step = |node: &Node| {
            !matches!(node.shape, Shape::Input | Shape::Answer)
                && node.lines.first().is_some_and(|id| **id == *step.step)
        };
        self.nodes()
            .find(|(_, graph, node)| *graph.composite == *step.composite && is_step(node))
            .map(|(id, ..)| id)
    }

    fn marks(&self) -> Marks {
        let mut marks = Marks::default();
        let is_drawn = |flow: &&ForbiddenFlow| {
            self.graphs.iter().any(|graph| graph.composite == flow.composite)
        };
        for flow in self.forbidden.iter().filter(is_drawn) {
            let path: Vec<_> = flow.steps.iter().filter_map(|step| self.find(step)).collect();
            path.iter().for_each(|node| add(&mut marks.nodes, *node));
            for step in path.windows(2) {
                add(&mut marks.arrows, (step[0], step[1], flow.data));
            }
            if let Some(last) = path.last() {
                add(&mut marks.reasons, (*last, flow.reason));
            }
        }
        marks
    }

    fn fmt_graph(
        &self,
        at: usize,
        graph: &Graph,
        marks: &Marks,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        let title = format!("{}, {}", graph.composite, graph.manner);
        writeln!(f, "    subgraph {}[{}]", GraphId(at), Label(&[title]))?;
        for (place, node) in graph.nodes.iter().enumerate() {
            let id = Id { graph: at, node: place };
            let (left, right) = node.shape.brackets();
            let (outcome, _) = self.outcome(graph, node);
            let mut lines = [&*node.lines, &outcome].concat();
            let reasons = marks.reasons.iter().filter(|(marked, _)| *marked == id);
            lines.extend(reasons.map(|(_, reason)| (*reason).to_owned()));
            writeln!(f, "        {id}{left}{}{right}", Label(&lines))?;
            for (case, call) in node.calls.iter().enumerate() {
                if let Callee::Tool(tool) = &call.callee {
                    writeln!(f, "        {}[{}]", CaseId(id, case), Label(&[tool]))?;
                }
            }
        }
        let id = |node| Id { graph: at, node };
        for Edge { from, to, label } in &graph.edges {
            write_arrow(f, 2, id(*from), SOLID, label.as_deref(), id(*to))?;
        }
        writeln!(f, "    end")
    }

    /// Writes the arrows of forbidden flows, and their style. `before` is the number of arrows that
    /// were written before.
    fn fmt_marks(marks: &Marks, before: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (from, to, data) in &marks.arrows {
            write_arrow(f, 1, from, THICK, Some(data), to)?;
        }
        for at in 0..marks.arrows.len() {
            let style = format_args!("stroke:{FORBIDDEN_COLOR},color:{FORBIDDEN_COLOR}");
            writeln!(f, "    linkStyle {} {style}", before + at)?;
        }
        Ok(())
    }

    fn fmt_classes(&self, marks: &Marks, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conditional: Vec<_> =
            self.nodes().filter(|(_, _, node)| node.is_conditional).map(|(id, _, _)| id).collect();
        let style = "stroke-dasharray:4";
        Class { name: "conditional", style, nodes: &conditional }.fmt(f)?;
        let outcomes: Vec<_> =
            self.nodes().map(|(id, graph, node)| (id, self.outcome(graph, node).1)).collect();
        for status in STATUSES {
            let nodes: Vec<_> = outcomes
                .iter()
                .filter(|(_, outcome)| *outcome == Some(status))
                .map(|(id, _)| *id)
                .collect();
            Class { name: status.name(), style: status.style(), nodes: &nodes }.fmt(f)?;
        }
        let style = format!("stroke:{FORBIDDEN_COLOR},stroke-width:3px");
        Class { name: "forbidden", style: &style, nodes: &marks.nodes }.fmt(f)
    }
}

impl Display for Flowchart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks = self.marks();
        writeln!(f, "flowchart TB")?;
        for (at, graph) in self.graphs.iter().enumerate() {
            self.fmt_graph(at, graph, &marks, f)?;
        }
        for (id, _, node) in self.nodes() {
            for (case, Call { when, callee }) in node.calls.iter().enumerate() {
                let when = when.as_deref();
                match callee {
                    Callee::Graph(graph) => {
                        write_arrow(f, 1, id, DOTTED, when, GraphId(*graph))?;
                    }
                    Callee::Tool(_) => {
                        write_arrow(f, 1, id, DOTTED, when, CaseId(id, case))?;
                    }
                }
            }
        }
        let edges: usize = self.graphs.iter().map(|graph| graph.edges.len()).sum();
        let calls: usize = self.nodes().map(|(.., node)| node.calls.len()).sum();
        Self::fmt_marks(&marks, edges + calls, f)?;
        self.fmt_classes(&marks, f)
    }
}

/// Adds a value unless the list contains it.
fn add<T: PartialEq>(list: &mut Vec<T>, value: T) {
    if !list.contains(&value) {
        list.push(value);
    }
}

fn write_arrow(
    f: &mut fmt::Formatter<'_>,
    depth: usize,
    from: impl Display,
    arrow: &str,
    label: Option<&str>,
    to: impl Display,
) -> fmt::Result {
    write!(f, "{:1$}{from} {arrow}", "", 4 * depth)?;
    match label {
        Some(label) => writeln!(f, "|{}| {to}", Label(&[label])),
        None => writeln!(f, " {to}"),
    }
}

// === impl Node ===

impl Node {
    pub(crate) const fn new(shape: Shape, lines: Vec<String>) -> Self {
        Self { shape, lines, is_conditional: false, calls: Vec::new() }
    }
}

// === impl Shape ===

impl Shape {
    /// Returns the opening and closing brackets around the label of a node in the Mermaid text.
    /// They determine the shape of the node.
    const fn brackets(self) -> (&'static str, &'static str) {
        match self {
            Self::Input | Self::Answer | Self::Stop => ("([", "])"),
            Self::Step => ("[", "]"),
            Self::Nested => ("[[", "]]"),
            Self::Loop => ("{{", "}}"),
            Self::Switch => ("{", "}"),
            Self::Question => ("[/", "/]"),
        }
    }
}

// === impl Id, CaseId, GraphId ===

impl Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}n{}", GraphId(self.graph), self.node)
    }
}

impl Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}k{}", self.0, self.1)
    }
}

impl Display for GraphId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

// === impl Class ===

impl Display for Class<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, style, nodes } = self;
        let Some((first, others)) = nodes.split_first() else { return Ok(()) };
        writeln!(f, "    classDef {name} {style}")?;
        write!(f, "    class {first}")?;
        for other in others {
            write!(f, ",{other}")?;
        }
        writeln!(f, " {name}")
    }
}
