//! Output without the secrets of the backends and the tokens of callers.

use std::{
    borrow::Cow,
    io::{self, Write},
    sync::{Arc, PoisonError, RwLock},
};

use mcp_composite::{adapter::Secrets, config::Config};
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

/// Standard error, without the secrets of this file and of earlier ones.
///
/// The crate logs none of them, but the libraries below might, such as a URL that
/// cannot be reached.
#[derive(Clone, Default)]
pub(crate) struct Redacted(Arc<RwLock<Secrets>>);

/// The same for a log in JSON.
#[derive(Clone)]
pub(crate) struct RedactedJson(pub(crate) Redacted);

/// One event. The subscriber writes each in one call.
pub(crate) struct Line(Secrets);

/// One event in JSON.
pub(crate) struct JsonLine(Secrets);

impl Redacted {
    pub(crate) fn of(config: &Config) -> Self {
        let redacted = Self::default();
        redacted.learn(config);
        redacted
    }

    #[cfg(test)]
    pub(crate) fn with(secrets: &Secrets) -> Self {
        Self(Arc::new(RwLock::new(secrets.clone())))
    }

    /// Adds the secrets of another file. Earlier secrets are still redacted: a removed backend may
    /// still log.
    pub(crate) fn learn(&self, config: &Config) {
        let mut secrets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for backend in config.backends() {
            *secrets = secrets.and(backend.secrets());
        }
        *secrets = secrets.and(config.secret_variables());
        if let Some(auth) = config.auth() {
            *secrets = secrets.and(&auth.secrets());
        }
    }

    /// Returns a text without secrets and without control characters.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = self.secrets().redact(text).into_owned();
        text.retain(|character| character == '\n' || !character.is_control());
        text
    }

    /// Returns `true` if a text contains a secret.
    pub(crate) fn has_secret(&self, text: &str) -> bool {
        matches!(self.secrets().redact(text), Cow::Owned(_))
    }

    /// Returns a value without secrets, also in keys and numbers.
    pub(crate) fn json(&self, value: Value) -> Value {
        redact(value, &self.secrets())
    }

    fn secrets(&self) -> Secrets {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns a value without secrets. Strings are redacted before they are encoded, since JSON may
/// escape a part of a secret.
fn redact(value: Value, secrets: &Secrets) -> Value {
    match value {
        Value::String(text) => Value::String(secrets.redact(&text).into_owned()),
        Value::Number(number) => match secrets.redact(&number.to_string()) {
            Cow::Borrowed(_) => Value::Number(number),
            Cow::Owned(text) => Value::String(text),
        },
        Value::Array(values) => values.into_iter().map(|value| redact(value, secrets)).collect(),
        Value::Object(members) => {
            let redacted = members
                .into_iter()
                .map(|(key, value)| (secrets.redact(&key).into_owned(), redact(value, secrets)));
            Value::Object(redacted.collect())
        }
        value @ (Value::Null | Value::Bool(_)) => value,
    }
}

impl MakeWriter<'_> for Redacted {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(self.secrets())
    }
}

impl MakeWriter<'_> for RedactedJson {
    type Writer = JsonLine;

    fn make_writer(&self) -> JsonLine {
        JsonLine(self.0.secrets())
    }
}

// === impl Line ===

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        io::stderr().write_all(self.0.redact(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

// === impl JsonLine ===

impl Write for JsonLine {
    /// Redacts each string of the object before it is encoded: JSON may escape a secret that is
    /// escaped already, because it is in the `Debug` output of a value.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Ok(event) = serde_json::from_slice::<Value>(bytes) else {
            return Line(self.0.clone()).write(bytes);
        };
        let redacted = redact(event.clone(), &self.0);
        if redacted == event {
            io::stderr().write_all(bytes)?;
        } else {
            io::stderr().write_all(format!("{redacted}\n").as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
