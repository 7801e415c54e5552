//! What is told about a server: without its secrets, in one line, and with the
//! reason.

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

use crate::{adapter::secrets::Secrets, message::BackendErrorKind};

/// How many characters of a text that comes from a server are logged.
const TOLD: usize = 512;

/// Who a server is, and what must not be told of it.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) name: Arc<str>,
    pub(super) secrets: Secrets,
}

// === impl About ===

impl About {
    /// A text from or about the server as it may be logged: without secrets,
    /// control characters and end.
    pub(super) fn redact_text(&self, text: &str) -> String {
        let text = self.secrets.redact(text);
        let mut characters = text.chars();
        let mut told: String = characters
            .by_ref()
            .take(TOLD)
            .map(|character| if character.is_control() { ' ' } else { character })
            .collect();
        if characters.next().is_some() {
            told.push('…');
        }
        told
    }

    /// An error with all that led to it.
    pub(super) fn redact_chain(&self, error: &(dyn Error + 'static)) -> String {
        let mut told = String::new();
        for cause in causes(error) {
            let text = cause.to_string();
            // Many errors repeat what led to them.
            if says_nothing(cause) || told.contains(&text) {
                continue;
            }
            if !told.is_empty() {
                told.push_str(": ");
            }
            told.push_str(&text);
        }
        self.redact_text(&told)
    }

    /// Takes the secrets out of what a server answers instead of a result.
    pub(super) fn redact_error(&self, error: &mut ErrorData) {
        if let Cow::Owned(message) = self.secrets.redact(&error.message) {
            error.message = message.into();
        }
        if let Some(data) = &mut error.data {
            self.redact_value(data);
        }
    }

    pub(super) fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.secrets.redact(text) {
                    *text = redacted;
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.redact_value(value)),
            Value::Object(map) => {
                let members = mem::take(map).into_iter().map(|(name, mut value)| {
                    self.redact_value(&mut value);
                    let redacted = match self.secrets.redact(&name) {
                        Cow::Owned(redacted) => Some(redacted),
                        Cow::Borrowed(_) => None,
                    };
                    (redacted.unwrap_or(name), value)
                });
                *map = members.collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => (),
        }
    }
}

/// What became of a server to which a request could not be sent.
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

/// Whether a request could not be sent because the server has ended the session.
#[cfg(feature = "http")]
pub(super) fn ends_session(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(super::http::is_end_of_session)
}

/// Only sessions over HTTP end in this way.
#[cfg(not(feature = "http"))]
pub(super) fn ends_session(_: &(dyn Error + 'static)) -> bool {
    false
}

/// An error and what led to it, also where rmcp's errors do not say so.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| cause(error))
}

fn cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    if let Some(source) = error.source() {
        return Some(source);
    }
    match error.downcast_ref() {
        Some(ClientInitializeError::TransportError { error, .. }) => return Some(&*error.error),
        // What failed first only says that the server is an older one.
        Some(ClientInitializeError::LegacyFallbackFailed { fallback, .. }) => {
            return Some(&**fallback);
        }
        _ => (),
    }
    #[cfg(feature = "http")]
    if let Some(cause) = super::http::cause(error) {
        return Some(cause);
    }
    None
}

/// Whether the text of an error is only the names of types and steps.
fn says_nothing(error: &(dyn Error + 'static)) -> bool {
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
