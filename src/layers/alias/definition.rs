use std::fmt;

use rmcp::model::ToolAnnotations;
use serde_json::Value;

/// How clients see one tool; what is not set stays as the server has it.
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

/// How clients see one argument of a tool.
///
/// Its `Debug` output does not tell the default, which may be secret.
#[derive(Clone, Default)]
#[must_use]
pub struct ArgumentAlias {
    pub(super) hide: bool,
    pub(super) rename: Option<String>,
    pub(super) default: Option<Value>,
    pub(super) description: Option<String>,
}

/// How clients see one prompt; what is not set stays as the server has it.
#[derive(Clone, Debug)]
#[must_use]
pub struct PromptAlias {
    pub(super) original: String,
    pub(super) name: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
}

/// How clients see one resource, or one template of the URIs of resources; what is
/// not set stays as the server has it.
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
    /// An alias of the tool that the server calls `original`.
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

    /// The name by which clients see and call it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Its title; the one in its annotations stays.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Its description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Annotations in the place of the server's, each that is set.
    ///
    /// They are a claim of yours about the tool: nobody checks it, and layers
    /// above, such as composites, believe it.
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = Some(annotations);
        self
    }

    /// Adds how clients see the argument that the server calls `original`.
    pub fn argument(mut self, original: impl Into<String>, argument: ArgumentAlias) -> Self {
        self.arguments.push((original.into(), argument));
        self
    }
}

// === impl ArgumentAlias ===

impl ArgumentAlias {
    /// An argument that clients see as it is.
    pub fn new() -> Self {
        <Self as Default>::default()
    }

    /// Hides it from clients: they cannot set it. With a default, the server
    /// always gets that.
    pub fn hide(mut self) -> Self {
        self.hide = true;
        self
    }

    /// The name by which clients set it.
    pub fn rename(mut self, name: impl Into<String>) -> Self {
        self.rename = Some(name.into());
        self
    }

    /// What the server gets if the client does not set it; so it is not required.
    pub fn default(mut self, default: Value) -> Self {
        self.default = Some(default);
        self
    }

    /// What the tool's schema says of it.
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
    /// An alias of the prompt that the server calls `original`.
    pub fn new(original: impl Into<String>) -> Self {
        Self { original: original.into(), name: None, title: None, description: None }
    }

    /// The name by which clients see and get it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Its title.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Its description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

// === impl ResourceAlias ===

impl ResourceAlias {
    /// An alias of the resource that the server has at `original`, or of the
    /// template that is spelled so.
    pub fn new(original: impl Into<String>) -> Self {
        Self { original: original.into(), uri: None, name: None, title: None, description: None }
    }

    /// The URI at which clients see and read it.
    ///
    /// That of a template is a template which differs from the server's in what
    /// stands before its first `{` only. What clients read at one of its URIs is
    /// read at that of the server.
    pub fn uri(mut self, uri: impl Into<String>) -> Self {
        self.uri = Some(uri.into());
        self
    }

    /// Its name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Its title.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Its description.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}
