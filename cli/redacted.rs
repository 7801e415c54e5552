//! Output without the secrets of the backends.

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

/// One event. The subscriber writes each in one call.
pub(crate) struct Line(Secrets);

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
    }

    /// Returns a text without secrets and without control characters.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = self.secrets().redact(text).into_owned();
        text.retain(|character| character == '\n' || !character.is_control());
        text
    }

    /// Returns a value without secrets, also in keys and numbers.
    pub(crate) fn json(&self, value: Value) -> Value {
        redact(value, &self.secrets())
    }

    fn secrets(&self) -> Secrets {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

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
