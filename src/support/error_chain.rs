//! Formats an error together with its sources.

use std::error::Error;

/// Returns the messages of an error and all of its sources, separated by colons.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        // Omits a message that the previous message already contains, because many errors repeat
        // the message of their source.
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = error.source();
    }
    text
}
