//! Configuration files whose composites can be drawn.

use std::{env, path::Path, sync::Arc};

use super::{Config, ConfigError, ViewConfig};
use crate::{composite::UnknownComposite, mermaid::Flowchart};

/// A configuration file whose composites can be drawn, although they may violate the rules for the
/// flow of data.
///
/// [`Config::load`] rejects a file in which private data reaches an `egress` tool, for example. A
/// `DrawableConfig` accepts such a file, so that the flowcharts of its composites can show the
/// path of the data. It cannot be served.
#[derive(Clone, Debug)]
pub struct DrawableConfig {
    config: Config,
    violations: Option<Arc<ConfigError>>,
}

// === impl DrawableConfig ===

impl DrawableConfig {
    /// Reads the configuration file at `path` like [`Config::load`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if it contains mistakes other than
    /// violations of the rules for the flow of data.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let texts = Config::texts(path.as_ref())?;
        match Config::from_texts(&texts, &|name| env::var(name).ok()) {
            Ok(config) => Ok(Self { config, violations: None }),
            Err(rejected) => match rejected.config {
                Some(config) => Ok(Self { config, violations: Some(Arc::new(rejected.error)) }),
                None => Err(rejected.error),
            },
        }
    }

    /// Returns the views of the file, like [`Config::views`].
    #[must_use]
    pub fn views(&self) -> &[ViewConfig] {
        self.config.views()
    }

    /// Returns the effective configuration of the view at `path`, like [`Config::view`].
    #[must_use]
    pub fn view(&self, path: &str) -> Option<Self> {
        let config = self.config.view(path)?;
        Some(Self { config, violations: self.violations.clone() })
    }

    /// Returns the flowchart of a composite. The steps between which forbidden data flows are
    /// [marked](Flowchart::violations).
    ///
    /// # Errors
    ///
    /// Returns an error if no composite has the name `composite`.
    pub fn flowchart(&self, composite: &str) -> Result<Flowchart, UnknownComposite> {
        let chart = self.config.composite_layer().flowchart(composite)?;
        Ok(chart.violations(&self.config.flow_violations()))
    }

    /// Returns the violations of the rules for the flow of data in the whole file, as the error
    /// that [`Config::load`] returns. Returns `None` if [`Config::load`] accepts the file.
    #[must_use]
    pub fn violations(&self) -> Option<&ConfigError> {
        self.violations.as_deref()
    }
}
