//! Shows a recording.

use std::{
    error::Error,
    io::{self, Write},
    num::NonZeroUsize,
};

use crate::{
    arguments::View,
    runs::Recording,
    session::{runtime, stop_on_signals},
    ui::{Page, PageState},
};

/// Shows a recording on a page until the process is asked to end.
///
/// # Errors
///
/// Returns an error if the file is not a recording, or if the page cannot be served.
pub(crate) fn view(view: &View, mut out: impl Write) -> Result<(), Box<dyn Error>> {
    let page = Page::bind(view.ui, view.insecure)?;
    let recording = Recording::read(&view.file)?;
    let file = view.file.display().to_string();
    if let Some(warning) = &recording.warning {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "warning: {file}: {warning}");
    }
    let runtime = runtime(NonZeroUsize::MIN)?;
    let result = runtime.block_on(async {
        let stop = stop_on_signals()?;
        writeln!(out, "showing {file} at {}", page.url())?;
        out.flush()?;
        let served = page.serve(PageState::recording(file, recording));
        match stop.run_until_cancelled(served).await {
            Some(Ok(never)) => match never {},
            Some(Err(error)) => Err(error),
            None => Ok(()),
        }
    });
    runtime.shutdown_background();
    Ok(result?)
}
