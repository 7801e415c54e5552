//! Prepares a server's errors and texts for logs: redacts secrets, and formats an error with its
//! sources in one line.

use std::{
    borrow::Cow,
    error::Error,
    io::{self, ErrorKind},
    iter, mem,
    sync::Arc,
};

use rmcp::{
    ServiceError, model::ErrorData, service::ClientInitializeError,
    transport::DynamicTransportError,
};
use serde_json::Value;

use super::sent_tokens::SentTokens;
use crate::{adapter::secrets::Secrets, message::BackendErrorKind};

/// The maximum number of characters that are logged of a text from a server. Longer texts are
/// truncated.
const MAX_LOGGED_CHARS: usize = 512;

/// The name of a remote server, and the secrets that must be redacted in errors and logs about the
/// server.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) name: Arc<str>,
    pub(super) secrets: Secrets,
    /// The access tokens that were recently sent to the server. They are redacted like the
    /// `secrets`.
    pub(super) tokens: SentTokens,
}

// === impl About ===

impl About {
    pub(super) fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), secrets: Secrets::default(), tokens: SentTokens::default() }
    }

    /// Replaces every secret in the text by `***`.
    pub(super) fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.tokens.redact(self.secrets.redact(text))
    }

    /// Returns a version of the text that is safe to log: secrets are redacted, control characters
    /// are replaced by spaces, and long texts are truncated.
    pub(super) fn redact_text(&self, text: &str) -> String {
        let text = self.redact(text);
        let mut characters = text.chars();
        let mut logged: String = characters
            .by_ref()
            .take(MAX_LOGGED_CHARS)
            .map(|character| if character.is_control() { ' ' } else { character })
            .collect();
        if characters.next().is_some() {
            logged.push('…');
        }
        logged
    }

    /// Returns the messages of an error and its sources in one text that is safe to log, separated
    /// by colons.
    pub(super) fn redact_chain(&self, error: &(dyn Error + 'static)) -> String {
        let mut messages = String::new();
        for cause in causes(error) {
            let text = cause.to_string();
            // Skipped, because many errors repeat the text of their source.
            if says_nothing(cause) || messages.contains(&text) {
                continue;
            }
            if !messages.is_empty() {
                messages.push_str(": ");
            }
            messages.push_str(&text);
        }
        self.redact_text(&messages)
    }

    /// Redacts secrets in the message and data of a JSON-RPC error.
    pub(super) fn redact_error(&self, error: &mut ErrorData) {
        if let Cow::Owned(message) = self.redact(&error.message) {
            error.message = message.into();
        }
        if let Some(data) = &mut error.data {
            self.redact_value(data);
        }
    }

    pub(super) fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.redact(text) {
                    *text = redacted;
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.redact_value(value)),
            Value::Object(map) => {
                let members = mem::take(map).into_iter().map(|(name, mut value)| {
                    self.redact_value(&mut value);
                    (self.redact(&name).into_owned(), value)
                });
                *map = members.collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => (),
        }
    }
}

/// Returns the kind of error that a caller receives if its request could not be sent because of
/// `error`.
pub(super) fn unsent(error: &(dyn Error + 'static)) -> BackendErrorKind {
    let kinds = causes(error).filter_map(|cause| cause.downcast_ref().map(io::Error::kind));
    for kind in kinds {
        match kind {
            ErrorKind::BrokenPipe => return BackendErrorKind::ConnectionLost,
            ErrorKind::ConnectionRefused => return BackendErrorKind::NotConnected,
            _ => (),
        }
    }
    BackendErrorKind::Failed
}

/// Returns `true` if the error means that the server has ended the HTTP session.
#[cfg(feature = "http")]
pub(super) fn ends_session(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(super::http_error::is_end_of_session)
}

/// Always returns `false`: without the feature `http`, no connection has an HTTP session.
#[cfg(not(feature = "http"))]
pub(super) fn ends_session(_: &(dyn Error + 'static)) -> bool {
    false
}

/// Returns an iterator over the error and its sources, including sources that rmcp's errors do not
/// expose.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| cause(error))
}

fn cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    if let Some(source) = error.source() {
        return Some(source);
    }
    match error.downcast_ref() {
        Some(ClientInitializeError::TransportError { error, .. }) => return Some(&*error.error),
        // The first handshake has only failed because the server is older. The error of the second
        // handshake is relevant.
        Some(ClientInitializeError::LegacyFallbackFailed { fallback, .. }) => {
            return Some(&**fallback);
        }
        _ => (),
    }
    #[cfg(feature = "http")]
    if let Some(cause) = super::http_error::cause(error) {
        return Some(cause);
    }
    None
}

/// Returns `true` if the error's message contains no details, for example because it only names the
/// type of the error. The message of the error's source contains the details.
fn says_nothing(error: &(dyn Error + 'static)) -> bool {
    #[cfg(feature = "http")]
    if super::http_error::is_wrapper(error) {
        return true;
    }
    error.is::<DynamicTransportError>()
        || matches!(error.downcast_ref(), Some(ServiceError::TransportSend(_)))
        || matches!(
            error.downcast_ref(),
            Some(
                ClientInitializeError::TransportError { .. }
                    | ClientInitializeError::LegacyFallbackFailed { .. }
            )
        )
}
