//! The report of a check, as text and as JSON.

use std::fmt::{self, Write};

use mcp_composite::{
    composite::CompositeTool,
    config::{Config, ViewConfig},
};
use rmcp::model::Tool;
use serde::Serialize;
use serde_json::Value;

/// The backends and tools of a file, and the problems with them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) backends: Vec<BackendReport>,
    /// The listed tools other than composites.
    pub(crate) tools: Vec<Tool>,
    /// The listed composites.
    pub(crate) composites: Vec<Tool>,
    /// The names of the tools that `[advertise]` hides.
    pub(crate) not_advertised: Vec<String>,
    pub(crate) views: Vec<ViewReport>,
    /// Remarks that need no change of the file.
    pub(crate) remarks: Vec<String>,
    /// Problems; the check succeeds if there are none.
    pub(crate) problems: Vec<String>,
}

/// The tools of a view, like those of the file in [`Report`].
#[derive(Debug, Serialize)]
pub(crate) struct ViewReport {
    pub(crate) path: String,
    pub(crate) tools: Vec<Tool>,
    pub(crate) composites: Vec<Tool>,
    pub(crate) not_advertised: Vec<String>,
}

/// The same members as far as a file without its backends determines them.
#[derive(Debug, Serialize)]
pub(crate) struct OfflineReport {
    /// None is connected.
    backends: Vec<BackendReport>,
    /// Empty: only backends know their tools.
    tools: Vec<Tool>,
    composites: Vec<Named>,
    /// Empty, like `tools`.
    not_advertised: Vec<String>,
    views: Vec<OfflineView>,
    remarks: Vec<String>,
    /// Empty: a file with errors has no report.
    problems: Vec<String>,
}

/// A view, like the file in [`OfflineReport`].
#[derive(Debug, Serialize)]
struct OfflineView {
    path: String,
    tools: Vec<Tool>,
    composites: Vec<Named>,
    not_advertised: Vec<String>,
}

/// A composite whose schema depends on tools of backends.
#[derive(Debug, Serialize)]
struct Named {
    name: String,
}

/// A backend and its connection.
#[derive(Debug, Serialize)]
pub(crate) struct BackendReport {
    pub(crate) name: String,
    /// The name and the version of the server, and the protocol version; `None` if the backend is
    /// not connected.
    pub(crate) server: Option<String>,
}

// === impl Report ===

impl Report {
    /// Returns the same report with backends that are not connected.
    pub(crate) fn offline(mut self) -> Self {
        self.backends.iter_mut().for_each(|backend| backend.server = None);
        self
    }
}

/// Writes the report without the problems, which go to standard error.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("backends\n")?;
        for BackendReport { name, server } in &self.backends {
            writeln!(f, "  {name}: {}", server.as_deref().unwrap_or("not connected"))?;
        }
        write_tools(f, "", &self.tools, &self.composites, &self.not_advertised)?;
        for ViewReport { path, tools, composites, not_advertised } in &self.views {
            write_tools(f, &format!("view {path}: "), tools, composites, not_advertised)?;
        }
        if !self.remarks.is_empty() {
            writeln!(f, "\nremarks\n  {}", self.remarks.join("\n  "))?;
        }
        Ok(())
    }
}

// === impl OfflineReport ===

impl OfflineReport {
    pub(crate) fn new(config: &Config) -> Self {
        let backends = config.backends().iter().map(|backend| backend.name().to_owned());
        Self {
            backends: backends.map(|name| BackendReport { name, server: None }).collect(),
            tools: Vec::new(),
            composites: Named::all(config.composite_tools()),
            not_advertised: Vec::new(),
            views: config.views().iter().map(OfflineView::new).collect(),
            remarks: remarks(config),
            problems: Vec::new(),
        }
    }
}

impl fmt::Display for OfflineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("backends, not connected\n")?;
        self.backends.iter().try_for_each(|backend| writeln!(f, "  {}", backend.name))?;
        f.write_str("\ncomposites\n")?;
        self.composites.iter().try_for_each(|composite| writeln!(f, "  {}", composite.name))?;
        for OfflineView { path, composites, .. } in &self.views {
            writeln!(f, "\nview {path}: composites")?;
            composites.iter().try_for_each(|composite| writeln!(f, "  {}", composite.name))?;
        }
        if !self.remarks.is_empty() {
            writeln!(f, "\nremarks\n  {}", self.remarks.join("\n  "))?;
        }
        Ok(())
    }
}

// === impl OfflineView ===

impl OfflineView {
    fn new(view: &ViewConfig) -> Self {
        Self {
            path: view.path().to_owned(),
            tools: Vec::new(),
            composites: Named::all(view.composite_tools()),
            not_advertised: Vec::new(),
        }
    }
}

// === impl Named ===

impl Named {
    fn all(composites: &[CompositeTool]) -> Vec<Self> {
        composites.iter().map(|tool| Self { name: tool.name().to_owned() }).collect()
    }
}

/// Writes the tools of a file or a view. `of` precedes the headings.
fn write_tools(
    f: &mut fmt::Formatter<'_>,
    of: &str,
    tools: &[Tool],
    composites: &[Tool],
    not_advertised: &[String],
) -> fmt::Result {
    for (title, tools) in [("tools", tools), ("composites", composites)] {
        writeln!(f, "\n{of}{title}")?;
        tools.iter().try_for_each(|tool| f.write_str(&described(tool)))?;
    }
    if not_advertised.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{of}not advertised\n  {}", not_advertised.join("\n  "))
}

/// Returns the remarks on a file, and those on its views that are not on the file as well.
pub(crate) fn remarks(config: &Config) -> Vec<String> {
    let mut remarks = config.stack_layer().remarks();
    let of_file = remarks.clone();
    for view in config.views() {
        let of_view = config.view(view.path()).map(|view| view.stack_layer().remarks());
        remarks.extend(of_view_only(view.path(), &of_file, of_view.unwrap_or_default()));
    }
    remarks
}

/// Returns those messages about a view that are not about the file as well.
pub(crate) fn of_view_only(
    path: &str,
    of_file: &[String],
    of_view: Vec<String>,
) -> impl Iterator<Item = String> {
    let of_view = of_view.into_iter().filter(|message| !of_file.contains(message));
    of_view.map(move |message| format!("view `{path}`: {message}"))
}

/// Returns a value as indented JSON that ends in a line break.
pub(crate) fn json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Returns a tool in two lines: its name with its arguments, of which optional ones end in `?`, and
/// the first line of its description.
pub(crate) fn described(tool: &Tool) -> String {
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
    let arguments = tool.input_schema.get("properties").and_then(Value::as_object);
    let arguments = arguments.into_iter().flat_map(|arguments| arguments.keys());
    let arguments: Vec<_> = arguments
        .map(|name| if is_required(name) { name.clone() } else { format!("{name}?") })
        .collect();
    let mut text = format!("  {}({})", tool.name, arguments.join(", "));
    let hints = tool.annotations.as_ref();
    if hints.and_then(|hints| hints.read_only_hint) == Some(true) {
        text.push_str("  read-only");
    } else if hints.and_then(|hints| hints.destructive_hint) == Some(true) {
        text.push_str("  destructive");
    }
    if let Some(line) = tool.description.as_deref().and_then(|text| text.lines().next()) {
        let _ = write!(text, "\n    {line}");
    }
    // Text from servers must not control the terminal.
    let mut text: String =
        text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    text.push('\n');
    text
}
