//! Flow policies: rules that assign labels to tools.

use std::collections::HashSet;

use rmcp::model::ToolAnnotations;
use serde::Deserialize;

use crate::{
    composite::effect::Effect,
    named::named,
    pattern::{Patterns, Selection},
};

/// The labels of the tools that composites call.
///
/// Two labels describe the results of a tool: [`Private`](FlowLabel::Private) and
/// [`Untrusted`](FlowLabel::Untrusted). Two labels describe the effect of a call:
/// [`Egress`](FlowLabel::Egress) and [`Destructive`](FlowLabel::Destructive).
/// [`CompositeLayer::check_flow`] reports composites that pass private data to egress tools, or
/// untrusted data to destructive tools. The results of a tool without labels have the labels of its
/// arguments.
///
/// [`CompositeLayer::check_flow`]: crate::composite::CompositeLayer::check_flow
///
/// # Examples
///
/// ```
/// use mcp_composite::{
///     composite::{CompositeLayer, CompositeTool, FlowLabel, FlowPolicy, Step, ToolCall},
///     pattern::Selection,
/// };
/// use serde_json::json;
///
/// let policy = FlowPolicy::new()
///     .label(Selection::default().allow(["mail_*"])?, [FlowLabel::Private])
///     .label(Selection::default().allow(["web_*"])?, [FlowLabel::Egress]);
///
/// let post = ToolCall::new("web_post").arguments(json!({ "body": "$prev.text" }));
/// let steps = [Step::new("read", "mail_read"), Step::new("post", post)];
/// let layer = CompositeLayer::new([CompositeTool::pipeline("publish", "Publishes mail", steps)])?;
///
/// let violations = layer.check_flow(&policy);
/// assert_eq!(violations.len(), 1);
/// assert_eq!(
///     violations[0].trace(),
///     ["`mail_read` (step `read`)", "argument `body` of `web_post` (step `post`)"],
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FlowPolicy {
    rules: Vec<FlowRule>,
}

/// A rule that adds labels to the tools that it selects.
#[derive(Clone, Debug)]
struct FlowRule {
    tools: Selection,
    /// The rule applies only to tools whose names begin with one of these prefixes. `None` if it
    /// applies to all names.
    prefixes: Option<Vec<String>>,
    labels: Vec<FlowLabel>,
    /// Whether the annotations of the tools, such as `destructiveHint`, add further labels.
    trusts_annotations: bool,
}

/// A label of a tool, which describes its results or its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FlowLabel {
    /// The results contain private data. They must not reach an `egress` tool.
    Private,
    /// The results contain text that others can write, such as a web page or a public issue. They
    /// must not reach a `destructive` tool, and must not decide what a composite does.
    Untrusted,
    /// The tool makes its arguments visible to others.
    Egress,
    /// The tool changes or deletes something.
    Destructive,
}

/// Returns the labels that the annotations of a tool claim. As in the protocol, a tool is
/// destructive and interacts with the open world unless an annotation denies it.
fn claimed(annotations: Option<&ToolAnnotations>) -> Vec<FlowLabel> {
    let mut labels = Vec::new();
    if Effect::new(annotations) != Effect::Harmless {
        labels.push(FlowLabel::Destructive);
    }
    if annotations.and_then(|annotations| annotations.open_world_hint) != Some(false) {
        labels.extend([FlowLabel::Untrusted, FlowLabel::Egress]);
    }
    labels
}

// === impl FlowPolicy ===

impl FlowPolicy {
    /// Creates a policy without labels, which forbids nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds labels to the tools that `tools` selects by name. A tool has the labels of all rules
    /// that select it.
    ///
    /// The names are those by which composites call the tools. A selection never matches a
    /// composite: the labels of its results follow from its steps.
    #[must_use]
    pub fn label(mut self, tools: Selection, labels: impl IntoIterator<Item = FlowLabel>) -> Self {
        let labels = labels.into_iter().collect();
        self.rules.push(FlowRule { tools, prefixes: None, labels, trusts_annotations: false });
        self
    }

    /// Adds the labels that the tools claim with their annotations, for the tools that `tools`
    /// selects by name. By default, annotations are ignored.
    ///
    /// A tool is [`Destructive`](FlowLabel::Destructive) unless it is annotated as read-only or as
    /// not destructive. It is [`Untrusted`](FlowLabel::Untrusted) and
    /// [`Egress`](FlowLabel::Egress) unless its annotation `openWorldHint` is `false`. Annotations
    /// never remove a label.
    ///
    /// Annotations are known when the tools are listed. So they have an effect only in
    /// [`CompositeLayer::flow`](crate::composite::CompositeLayer::flow).
    #[must_use]
    pub fn trust_annotations(mut self, tools: Selection) -> Self {
        let labels = Vec::new();
        self.rules.push(FlowRule { tools, prefixes: None, labels, trusts_annotations: true });
        self
    }

    /// Adds labels to the tools that `tools` selects by name. If `prefixes` is set, only tools
    /// whose names begin with one of the prefixes receive the labels. If `trusts_annotations` is
    /// `true`, the annotations of the tools add further labels.
    #[cfg(feature = "config")]
    pub(crate) fn add(
        &mut self,
        tools: Selection,
        prefixes: Option<Vec<String>>,
        labels: Vec<FlowLabel>,
        trusts_annotations: bool,
    ) {
        self.rules.push(FlowRule { tools, prefixes, labels, trusts_annotations });
    }

    /// Returns `true` if any rule derives labels from annotations.
    pub(crate) fn trusts_annotations(&self) -> bool {
        self.rules.iter().any(|rule| rule.trusts_annotations)
    }

    /// Returns `true` if the policy has no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the patterns that match none of `tools`, the names of all tools. Such a pattern may
    /// be misspelled, and then labels nothing.
    #[must_use]
    pub fn unmatched<'t>(&self, tools: impl IntoIterator<Item = &'t str>) -> Vec<String> {
        let tools: Vec<_> = tools.into_iter().collect();
        let unmatched = self.rules.iter().flat_map(|rule| rule.unmatched(&tools));
        unmatched.map(str::to_owned).collect()
    }

    /// Returns the labels that the rules assign to a tool, without labels from its annotations.
    pub(in crate::composite) fn labels(&self, tool: &str) -> Vec<FlowLabel> {
        let rules = self.rules.iter().filter(|rule| rule.selects(tool));
        rules.flat_map(|rule| rule.labels.iter().copied()).collect()
    }

    /// Returns the labels of a tool, including those from its annotations. `annotations` is `None`
    /// if the tool has none, or if it is not listed.
    pub(crate) fn labels_of_listed(
        &self,
        tool: &str,
        annotations: Option<&ToolAnnotations>,
    ) -> Vec<FlowLabel> {
        let mut labels = self.labels(tool);
        if self.rules.iter().any(|rule| rule.trusts_annotations && rule.selects(tool)) {
            labels.extend(claimed(annotations));
        }
        labels
    }
}

// === impl FlowRule ===

impl FlowRule {
    fn selects(&self, tool: &str) -> bool {
        self.has_prefix_of(tool) && self.tools.selects(tool)
    }

    fn has_prefix_of(&self, tool: &str) -> bool {
        let begins = |prefixes: &Vec<String>| prefixes.iter().any(|it| tool.starts_with(&**it));
        self.prefixes.as_ref().is_none_or(begins)
    }

    /// Returns the patterns of this rule that match none of `tools`.
    fn unmatched(&self, tools: &[&str]) -> impl Iterator<Item = &str> {
        let patterns = self.tools.allowed();
        let tools = tools.iter().filter(|tool| self.has_prefix_of(tool));
        let matched: HashSet<_> = tools
            .flat_map(|tool| patterns.into_iter().flat_map(move |it| it.which(tool)))
            .collect();
        let patterns = patterns.into_iter().flat_map(Patterns::iter).enumerate();
        patterns.filter(move |(place, _)| !matched.contains(place)).map(|(_, pattern)| pattern)
    }
}

named! {
    FlowLabel {
        Private => "private",
        Untrusted => "untrusted",
        Egress => "egress",
        Destructive => "destructive",
    }
}
