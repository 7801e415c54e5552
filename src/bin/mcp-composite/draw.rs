//! Draws a composite.

use std::{error::Error, io::Write, path::Path};

use mcp_composite::config::DrawableConfig;

use crate::view_option::ViewOption;

/// Prints the flowchart of a composite. If the file violates the rules for the flow of data, the
/// flowchart shows the path of the data.
///
/// # Errors
///
/// Returns the mistakes of the file, also after the flowchart was printed. Returns an error if the
/// file has no such view or composite.
pub(crate) fn draw(
    file: &Path,
    composite: &str,
    view: &ViewOption,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let config = view.select_drawable(DrawableConfig::load(file)?)?;
    write!(out, "{}", config.flowchart(composite)?)?;
    config.violations().map_or(Ok(()), |violations| Err(violations.to_string().into()))
}
