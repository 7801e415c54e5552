//! Reads configurations of ToolHive's virtual MCP server (vMCP).
//!
//! The YAML text is converted to TOML, which is then read like any other configuration file.

mod auth;
mod composite;
mod go_template;
mod import;
mod objects;
mod server;
mod translate;
mod write;
mod written;
mod yaml;

use std::{env, ops::Range, path::Path};

use self::{
    import::Import,
    objects::Objects,
    server::Server,
    write::{Document, Table},
};
use super::{
    Config, ConfigError,
    fault::Fault,
    include::{self, Texts},
    source::Source,
};

/// The value of all environment variables while the converted TOML is checked.
const PLACEHOLDER: &str = "https://example.com/mcp";

/// The result of converting a ToolHive configuration to TOML.
struct Converted {
    toml: String,
    /// Byte ranges of the YAML text that may contain secrets.
    masks: Vec<Range<usize>>,
    /// One error for each protection that was not imported, such as an authorization policy.
    unprotected: Vec<Fault>,
}

// === impl Config ===

impl Config {
    /// Reads a configuration of ToolHive's vMCP, or Kubernetes objects with composite tools, from
    /// the text of a YAML file. Each `${VAR}` is replaced by the value of an environment variable
    /// of this process.
    ///
    /// Converts the text to TOML, as [`toolhive_to_toml`](Self::toolhive_to_toml) does, and reads
    /// the result. [Migrating from ToolHive](crate::guide::from_toolhive) lists the differences
    /// between the two formats.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`toolhive_to_toml`](Self::toolhive_to_toml). Also returns an
    /// error if the text has rules for authentication, authorization or filtering that were not
    /// imported. If an environment variable is missing or its value is invalid, the error refers to
    /// a line of the converted text.
    pub fn from_toolhive_str(text: &str) -> Result<Self, ConfigError> {
        Self::from_toolhive_str_with_env(text, |name| env::var(name).ok())
    }

    /// Reads a configuration of ToolHive like [`from_toolhive_str`](Self::from_toolhive_str). Calls
    /// `env` to look up each `${VAR}`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`from_toolhive_str`](Self::from_toolhive_str).
    pub fn from_toolhive_str_with_env(
        text: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let Converted { toml, masks, unprotected } = convert(text, None)?;
        if !unprotected.is_empty() {
            return Err(mistaken(text, None, masks, unprotected));
        }
        Self::from_toml_str_with_env(&toml, env)
    }

    /// Converts the ToolHive file at `path`, which is YAML, to TOML. Comments in the TOML describe
    /// the settings that were changed or left out.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read. Returns all mistakes in the file, but at most
    /// 100: unknown keys, values of a wrong type, templates that are invalid or have no equivalent,
    /// and definitions that [`from_toml_str`](Self::from_toml_str) would reject. If the file is not
    /// valid YAML, or exceeds a [limit](crate::guide::limits), only the first such error is
    /// returned.
    pub fn toolhive_to_toml(path: impl AsRef<Path>) -> Result<String, ConfigError> {
        let path = path.as_ref();
        match include::read_first(path) {
            Ok(text) => convert(&text, Some(path)).map(|converted| converted.toml),
            Err(error) => Err(ConfigError::unreadable(path.to_owned(), error)),
        }
    }
}

fn convert(text: &str, path: Option<&Path>) -> Result<Converted, ConfigError> {
    let mut import = Import { text, ..Import::default() };
    let document = match yaml::parse(text) {
        Ok(documents) => {
            let objects = Objects::sort(&mut import, &documents);
            let tables = tables(&mut import, &objects);
            let document = write::write(&tables);
            // The reader of TOML would report the consequences of other mistakes.
            if import.mistakes.is_empty() {
                check(&mut import, &document);
            }
            document
        }
        Err(error) => {
            import.mask_line(&error.span);
            import.mistakes.push(error);
            Document::default()
        }
    };
    if !import.mistakes.is_empty() {
        return Err(mistaken(text, path, import.masks, import.mistakes));
    }
    let comments = import.comments();
    let separator = if comments.is_empty() { "" } else { "\n" };
    let toml = format!("{comments}{separator}{}", document.toml);
    let differences = import.differences.into_iter();
    let unprotected = differences
        .filter(|difference| difference.protects)
        .map(|difference| Fault::new(difference.message, difference.span))
        .collect();
    Ok(Converted { toml, masks: import.masks, unprotected })
}

/// Converts the objects of a YAML file to TOML tables.
fn tables(import: &mut Import<'_>, objects: &Objects<'_>) -> Vec<Table> {
    let mut server = Server::default();
    let definitions = match objects.server {
        Some(spec) => server.read(import, spec, objects),
        None => objects.definitions.iter().map(|(_, spec)| *spec).collect(),
    };
    server.add_workloads(import, objects);
    let composites: Vec<_> =
        definitions.into_iter().map(|node| composite::composite(import, node)).collect();
    if !server.has_workloads() {
        server.name_workloads(composites.iter().flat_map(|composite| &composite.calls));
    }
    server.compare(import, &composites);
    let mut tables = server.tables(import);
    tables.extend(composites.into_iter().flat_map(|composite| composite.tables));
    tables
}

/// Checks the converted TOML. Each mistake is reported at the YAML text that was converted to the
/// invalid line.
fn check(import: &mut Import<'_>, document: &Document) {
    let checked = Config::from_toml_str_with_env(&document.toml, |_| Some(PLACEHOLDER.to_owned()));
    let Err(error) = checked else { return };
    for mistake in error.mistakes() {
        let origin = document.origins.get(mistake.line() - 1).cloned().unwrap_or_default();
        import.mistake(mistake.message(), &origin);
    }
}

fn mistaken(
    text: &str,
    path: Option<&Path>,
    masks: Vec<Range<usize>>,
    mistakes: Vec<Fault>,
) -> ConfigError {
    let texts = Texts { text: text.to_owned(), ..Texts::gather("", path) };
    let source = Source::of_files(text, texts.files.clone()).masked(masks);
    ConfigError::mistaken(&texts, &source, &[0], mistakes, true)
}
