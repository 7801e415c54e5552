//! What is shown, without the secrets of the backends.

use std::io::{self, Write};

use mcp_composite::{adapter::Secrets, config::Config};
use tracing_subscriber::fmt::MakeWriter;

/// Standard error, without the secrets of a file.
///
/// The crate logs none of them, but the libraries below might, such as a URL that
/// cannot be reached.
#[derive(Clone)]
pub(crate) struct Redacted(Secrets);

/// One event. The subscriber writes each as a whole.
pub(crate) struct Line(Secrets);

impl Redacted {
    pub(crate) fn of(config: &Config) -> Self {
        let none = Secrets::default();
        Self(config.backends().iter().fold(none, |all, backend| all.and(backend.secrets())))
    }

    /// A text without secrets, and without what a server could do to a terminal.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = self.0.redact(text).into_owned();
        text.retain(|character| character == '\n' || !character.is_control());
        text
    }
}

impl MakeWriter<'_> for Redacted {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(self.0.clone())
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
