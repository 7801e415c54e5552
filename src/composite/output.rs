use serde_json::Value;

pub use crate::engine::output::OutputType;

/// What a pipeline or workflow gives: an object whose members are put together
/// from what its steps gave.
///
/// It becomes the structured content of the result, as JSON its text, and what
/// the tool's output schema describes.
///
/// # Examples
///
/// ```
/// use mcp_composite::composite::{CompositeLayer, CompositeTool, Output, OutputProperty, OutputType, Step};
/// use serde_json::json;
///
/// let count = CompositeTool::pipeline("count", "Count hits", [Step::new("search", "web_search")])
///     .output(
///         Output::new()
///             .property("hits", OutputProperty::new(OutputType::Integer, "$prev.total").default(json!(0)))
///             .property(
///                 "about",
///                 OutputProperty::object([("run", OutputProperty::new(OutputType::String, "$workflow.id"))]),
///             )
///             .required(["hits"]),
///     );
///
/// assert!(CompositeLayer::new([count]).is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    pub(crate) properties: Vec<(String, OutputProperty)>,
    pub(crate) required: Vec<String>,
}

/// One member of an [`Output`].
#[derive(Clone, Debug, PartialEq)]
pub struct OutputProperty {
    pub(crate) kind: Option<OutputType>,
    pub(crate) description: Option<String>,
    pub(crate) value: Option<Value>,
    pub(crate) properties: Option<Vec<(String, Self)>>,
    pub(crate) default: Option<Value>,
}

// === impl Output ===

impl Output {
    /// An output without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, property: OutputProperty) -> Self {
        self.properties.push((name.into(), property));
        self
    }

    /// Sets which members must be there and not null, else the run fails.
    #[must_use]
    pub fn required<I: Into<String>>(mut self, names: impl IntoIterator<Item = I>) -> Self {
        self.required = names.into_iter().map(Into::into).collect();
        self
    }
}

// === impl OutputProperty ===

impl OutputProperty {
    /// A member with this value: any JSON in which strings can be
    /// [references and templates](crate::expr), to the steps and to the input.
    ///
    /// A string is turned into the type if it is one as text, such as `"42"`.
    pub fn new(kind: OutputType, value: impl Into<Value>) -> Self {
        Self {
            kind: Some(kind),
            description: None,
            value: Some(value.into()),
            properties: None,
            default: None,
        }
    }

    /// A member that is an object of members.
    pub fn object<N: Into<String>>(properties: impl IntoIterator<Item = (N, Self)>) -> Self {
        let properties = properties.into_iter().map(|(name, property)| (name.into(), property));
        Self {
            kind: Some(OutputType::Object),
            description: None,
            value: None,
            properties: Some(properties.collect()),
            default: None,
        }
    }

    /// Sets what clients are told of it.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the value for when there is no other of the type; without one, the run
    /// fails then.
    #[must_use]
    pub fn default(mut self, default: Value) -> Self {
        self.default = Some(default);
        self
    }
}
