//! Formats an error together with its sources.

use std::error::Error;

/// Returns the message of an error, followed by the messages of its sources, separated by colons. A
/// message that is part of an earlier message is omitted.
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
