//! The option `--view`.

use std::{error::Error, path::Path};

use clap::Args;
use mcp_composite::config::{Config, ViewConfig};

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
        config.view(path).ok_or_else(|| {
            let paths = config.views().iter().map(ViewConfig::path);
            let paths: Vec<_> = paths.map(|path| format!("`{path}`")).collect();
            let expected = match paths.as_slice() {
                [] => "the file has no `[[views]]`".to_owned(),
                paths => format!("expected one of {}", paths.join(", ")),
            };
            format!("unknown view `{}`: {expected}", path.escape_debug())
        })
    }
}
