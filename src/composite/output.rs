//! Output blocks, which build the result of a pipeline or workflow.

use serde_json::Value;

pub use crate::schema::json_type::JsonType;

/// The output block of a pipeline or workflow, which builds an object from the input of the
/// composite and the outputs of its steps. The object becomes the result of the run, instead of the
/// result of the last step.
///
/// The result of the composite contains the object of the output block as structured content and,
/// in JSON, as a text. The composite advertises an output schema that describes the object.
///
/// # Examples
///
/// ```
/// use mcp_composite::composite::{
///     CompositeLayer, CompositeTool, Output, OutputProperty, JsonType, Pipeline, Step,
/// };
/// use serde_json::json;
///
/// let hits = OutputProperty::new(JsonType::Integer, "$prev.total").default(json!(0));
/// let run = OutputProperty::new(JsonType::String, "$workflow.id");
/// let output = Output::new()
///     .property("hits", hits)
///     .property("about", OutputProperty::object([("run", run)]))
///     .required(["hits"]);
/// let pipeline = Pipeline::new([Step::new("search", "web_search")]).output(output);
/// let count = CompositeTool::new("count", "Count hits", pipeline);
///
/// assert!(CompositeLayer::new([count]).is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    pub(crate) properties: Vec<(String, OutputProperty)>,
    pub(crate) required: Vec<String>,
    pub(crate) content: Vec<String>,
}

/// A property of the object that an [`Output`] block builds.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputProperty {
    pub(crate) source: PropertySource,
    pub(crate) description: Option<String>,
    pub(crate) default: Option<Value>,
}

/// The source of an output property's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PropertySource {
    /// A JSON value, and the type to which the value is converted. Strings in the value can be
    /// references and templates, which are evaluated during a run.
    Value(JsonType, Value),
    /// Nested properties, with their names. The value is an object with these properties.
    Properties(Vec<(String, OutputProperty)>),
}

// === impl Output ===

impl Output {
    /// Creates an output block without properties. At least one property must be added.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a property with this name to the object that the output block builds.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, property: OutputProperty) -> Self {
        self.properties.push((name.into(), property));
        self
    }

    /// Sets the names of the required properties. The run of the composite fails if the value of a
    /// required property is missing or null.
    #[must_use]
    pub fn required<I: Into<String>>(mut self, names: impl IntoIterator<Item = I>) -> Self {
        self.required = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the ids of steps whose content blocks, such as images and links, are added to the
    /// content of the composite's result, in this order. Defaults to none. The blocks of steps that
    /// are skipped or fail are omitted.
    ///
    /// Clients can see the content blocks of the listed steps, but not the structured content of
    /// these steps.
    #[must_use]
    pub fn content<I: Into<String>>(mut self, steps: impl IntoIterator<Item = I>) -> Self {
        self.content = steps.into_iter().map(Into::into).collect();
        self
    }
}

// === impl OutputProperty ===

impl OutputProperty {
    /// Creates a property from a JSON value. Strings in the value can be [references and
    /// templates](crate::expr) that use the input and the outputs of steps.
    ///
    /// If the value is a string after its references and templates have been evaluated, it is
    /// converted to the type `kind`. For example, the string `"42"` becomes an integer.
    pub fn new(kind: JsonType, value: impl Into<Value>) -> Self {
        PropertySource::Value(kind, value.into()).into()
    }

    /// Creates a property whose value is an object of nested properties.
    pub fn object<N: Into<String>>(properties: impl IntoIterator<Item = (N, Self)>) -> Self {
        let properties = properties.into_iter().map(|(name, property)| (name.into(), property));
        PropertySource::Properties(properties.collect()).into()
    }

    /// Sets the description of the property, which is part of the output schema that clients
    /// receive.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the default of the property. The default is used if the evaluated value of the property
    /// is missing, null or not of the declared type.
    ///
    /// Without a default, the following applies:
    /// - If the value does not have the declared type, the run of the composite fails.
    /// - If the value is a reference to something that does not exist, the run fails as well. If
    ///   the reference is optional, such as `$steps.search.output?`, the property is omitted.
    /// - If the value is null, the property is omitted.
    #[must_use]
    pub fn default(mut self, default: Value) -> Self {
        self.default = Some(default);
        self
    }
}

impl From<PropertySource> for OutputProperty {
    fn from(source: PropertySource) -> Self {
        Self { source, description: None, default: None }
    }
}

// === impl PropertySource ===

impl PropertySource {
    pub(crate) const fn kind(&self) -> JsonType {
        match self {
            Self::Value(kind, _) => *kind,
            Self::Properties(_) => JsonType::Object,
        }
    }
}
