//! The option `--view`.

use std::{error::Error, path::Path};

use clap::Args;
use mcp_composite::config::{Config, DrawableConfig, ViewConfig};

/// The view that a command uses.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ViewOption {
    /// Uses the view at this path, such as `/team-a`, instead of the file itself.
    #[arg(long, value_name = "PATH")]
    pub(crate) view: Option<String>,
}

// === impl ViewOption ===

impl ViewOption {
    /// Reads a file and selects the view.
    ///
    /// # Errors
    ///
    /// Returns the errors of the file, or an error if it has no such view.
    pub(crate) fn load(&self, file: &Path) -> Result<Config, Box<dyn Error>> {
        Ok(self.select(Config::load(file)?)?)
    }

    /// Returns the configuration of the view, or the whole configuration without the option.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has no such view.
    pub(crate) fn select(&self, config: Config) -> Result<Config, String> {
        let Some(path) = &self.view else { return Ok(config) };
        config.view(path).ok_or_else(|| unknown(path, config.views()))
    }

    /// Returns the view to draw, or the whole configuration without the option.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has no such view.
    pub(crate) fn select_drawable(&self, config: DrawableConfig) -> Result<DrawableConfig, String> {
        let Some(path) = &self.view else { return Ok(config) };
        config.view(path).ok_or_else(|| unknown(path, config.views()))
    }
}

/// Returns the error for a view that does not exist.
fn unknown(path: &str, views: &[ViewConfig]) -> String {
    let paths: Vec<_> = views.iter().map(|view| format!("`{}`", view.path())).collect();
    let expected = match paths.as_slice() {
        [] => "the file has no `[[views]]`".to_owned(),
        paths => format!("expected one of {}", paths.join(", ")),
    };
    format!("unknown view `{}`: {expected}", path.escape_debug())
}
