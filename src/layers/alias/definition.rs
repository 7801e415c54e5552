//! Builders that define aliases.

use std::fmt;

use rmcp::model::ToolAnnotations;
use serde_json::Value;

/// An alias for a tool: changes the name, texts, annotations or arguments that clients see. A
/// property that is not set in the alias is left unchanged.
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

/// An alias for an argument of a tool: hides or renames the argument, or sets its default value or
/// description.
///
/// The `Debug` output of an `ArgumentAlias` does not contain the default value, which may be
/// secret.
#[derive(Clone, Default)]
#[must_use]
pub struct ArgumentAlias {
    pub(super) hide: bool,
    pub(super) rename: Option<String>,
    pub(super) default: Option<Value>,
    pub(super) description: Option<String>,
}

/// An alias for a prompt: changes the name or texts that clients see. A property that is not set in
/// the alias is left unchanged.
#[derive(Clone, Debug)]
#[must_use]
pub struct PromptAlias {
    pub(super) original: String,
    pub(super) name: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
}

/// An alias for a resource or URI template: changes the URI, name or texts that clients see. A
/// property that is not set in the alias is left unchanged.
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
    /// Creates an alias for the tool that has the name `original` on the server.
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

    /// Sets the `title` of the tool. Does not change the additional title in the tool's
    /// annotations.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description of the tool.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Sets the annotations of the tool. Annotations that are `None` in `annotations` are not
    /// changed.
    ///
    /// Set only annotations that are true for the tool, because the alias layer does not verify
    /// them. Other layers rely on annotations: for example, a composite tool derives its own
    /// annotations from those of the tools that it calls.
    pub fn annotations(mut self, annotations: ToolAnnotations) -> Self {
        self.annotations = Some(annotations);
        self
    }

    /// Adds an alias for the argument that has the name `original` on the server.
    pub fn argument(mut self, original: impl Into<String>, argument: ArgumentAlias) -> Self {
        self.arguments.push((original.into(), argument));
        self
    }
}

// === impl ArgumentAlias ===

impl ArgumentAlias {
    /// Creates an alias that leaves the argument unchanged, until a setter is called.
    pub fn new() -> Self {
        <Self as Default>::default()
    }

    /// Hides the argument, so that clients can neither see nor set it. If the argument has a
    /// [default](Self::default), the server always receives the default.
    pub fn hide(mut self) -> Self {
        self.hide = true;
        self
    }

    /// Sets the name of the argument that clients see and use.
    pub fn rename(mut self, name: impl Into<String>) -> Self {
        self.rename = Some(name.into());
        self
    }

    /// Sets the value that the server receives if the client does not set the argument. This makes
    /// the argument optional for clients.
    pub fn default(mut self, default: Value) -> Self {
        self.default = Some(default);
        self
    }

    /// Sets the description of the argument in the tool's input schema.
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
    /// Creates an alias for the prompt that has the name `original` on the server.
    pub fn new(original: impl Into<String>) -> Self {
        Self { original: original.into(), name: None, title: None, description: None }
    }

    /// Sets the name by which clients list and get the prompt.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the title of the prompt.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description of the prompt.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

// === impl ResourceAlias ===

impl ResourceAlias {
    /// Creates an alias for the resource or URI template that has the URI `original` on the server.
    pub fn new(original: impl Into<String>) -> Self {
        Self { original: original.into(), uri: None, name: None, title: None, description: None }
    }

    /// Sets the URI under which clients list and read the resource.
    ///
    /// If `original` is a URI template such as `db://{table}`, `uri` must be a template that
    /// differs only in the part before the first `{`, such as `shop://{table}`. When a client reads
    /// a URI that matches `uri`, the layer replaces this prefix with the prefix of `original`
    /// before it forwards the request.
    pub fn uri(mut self, uri: impl Into<String>) -> Self {
        self.uri = Some(uri.into());
        self
    }

    /// Sets the display name of the resource or template. Clients request a resource by its URI,
    /// not by its display name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the title of the resource or template.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description of the resource or template.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}
