//! Builders of aliases.

use std::fmt;

use rmcp::model::ToolAnnotations;
use serde_json::Value;

/// An alias of a tool. Properties that are not set keep the server's values.
///
/// # Examples
///
/// ```
/// use mcp_composite::alias::{ArgumentAlias, ToolAlias};
/// use serde_json::json;
///
/// let search = ToolAlias::new("search_code")
///     .name("search")
///     .description("Searches the code of our organisation.")
///     .argument("q", ArgumentAlias::new().rename("query"))
///     .argument("organisation", ArgumentAlias::new().hide().default(json!("acme")));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ToolAlias {
    pub(super) original: String,
    pub(super) name: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) annotations: Option<ToolAnnotations>,
    pub(super) arguments: Vec<(String, ArgumentAlias)>,
}

/// An alias of an argument of a tool.
///
/// Its `Debug` output omits the default, which may be secret.
#[derive(Clone, Default)]
#[must_use]
pub struct ArgumentAlias {
    pub(super) hide: bool,
    pub(super) rename: Option<String>,
    pub(super) default: Option<Value>,
    pub(super) description: Option<String>,
}

/// An alias of a prompt. Properties that are not set keep the server's values.
#[derive(Clone, Debug)]
#[must_use]
pub struct PromptAlias {
    pub(super) original: String,
    pub(super) name: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
}

/// An alias of a resource or a URI template. Properties that are not set keep the server's values.
#[derive(Clone, Debug)]
#[must_use]
pub struct ResourceAlias {
    pub(super) original: String,
    pub(super) uri: Option<String>,
    pub(super) name: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
}

// === impl ToolAlias ===

impl ToolAlias {
    /// Creates an alias of the tool that the server calls `original`.
    pub fn new(original: impl Into<String>) -> Self {
        Self {
            original: original.into(),
            name: None,
            title: None,
            description: None,
            annotations: None,
            arguments: Vec::new(),
        }
    }

    /// Sets the name by which clients list and call the tool.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the title. The title in the annotations is unchanged.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Overrides the annotations of the server with those that are set.
    ///
    /// They are not verified, and layers above, such as composites, rely on them.
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = Some(annotations);
        self
    }

    /// Adds an alias of the argument that the server calls `original`.
    pub fn argument(mut self, original: impl Into<String>, argument: ArgumentAlias) -> Self {
        self.arguments.push((original.into(), argument));
        self
    }
}

// === impl ArgumentAlias ===

impl ArgumentAlias {
    /// Creates an alias that changes nothing.
    pub fn new() -> Self {
        <Self as Default>::default()
    }

    /// Hides the argument: clients cannot set it. If it has a default, the server always receives
    /// the default.
    pub fn hide(mut self) -> Self {
        self.hide = true;
        self
    }

    /// Sets the name by which clients set the argument.
    pub fn rename(mut self, name: impl Into<String>) -> Self {
        self.rename = Some(name.into());
        self
    }

    /// Sets the value that the server receives if the client does not set the argument, which is
    /// then not required.
    pub fn default(mut self, default: Value) -> Self {
        self.default = Some(default);
        self
    }

    /// Sets the description in the tool's input schema.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

impl fmt::Debug for ArgumentAlias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hide, rename, default, description } = self;
        f.debug_struct("ArgumentAlias")
            .field("hide", hide)
            .field("rename", rename)
            .field("default", &default.as_ref().map(|_| format_args!("…")))
            .field("description", description)
            .finish()
    }
}

// === impl PromptAlias ===

impl PromptAlias {
    /// Creates an alias of the prompt that the server calls `original`.
    pub fn new(original: impl Into<String>) -> Self {
        Self { original: original.into(), name: None, title: None, description: None }
    }

    /// Sets the name by which clients list and get the prompt.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the title.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

// === impl ResourceAlias ===

impl ResourceAlias {
    /// Creates an alias of the resource that the server has at `original`, or of the URI template
    /// `original`.
    pub fn new(original: impl Into<String>) -> Self {
        Self { original: original.into(), uri: None, name: None, title: None, description: None }
    }

    /// Sets the URI at which clients list and read the resource.
    ///
    /// The URI of a template is a template that differs from the server's only before its first
    /// `{`. A read of a URI that matches it is forwarded to the URI of the server.
    pub fn uri(mut self, uri: impl Into<String>) -> Self {
        self.uri = Some(uri.into());
        self
    }

    /// Sets the name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the title.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}
