//! Errors in configuration files.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use super::{
    fault::{Fault, MAX_MISTAKES},
    include::Texts,
    source::{Source, SourceLocation},
};
use crate::composite::{DisplayPath, Segment};

/// The error returned if a configuration file cannot be read or contains mistakes.
///
/// The `Display` output contains the first 100 [mistakes](Mistake), each with its file, line and
/// column, and an excerpt of the line:
///
/// ```text
/// 1 mistake in composites.toml
///
/// error: unknown key `tols`: did you mean `tools`? expected one of …
///  --> composites.toml:4:1
///   |
/// 4 | tols = [***]
///   | ^^^^
/// ```
///
/// The `Debug` output of a `ConfigError` is the same text as the `Display` output, because Rust
/// prints an error with `Debug` if `main` returns it.
pub struct ConfigError {
    file: Option<PathBuf>,
    kind: ErrorKind,
}

/// A mistake in a configuration file, with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    path: String,
    message: String,
    place: SourceLocation,
}

enum ErrorKind {
    Unreadable(io::Error),
    Mistaken {
        mistakes: Vec<Mistake>,
        /// The number of mistakes after the first 100. `mistakes` does not contain them.
        omitted: usize,
        /// `true` if the whole file was checked. If `false`, the file may contain mistakes that
        /// were not found.
        complete: bool,
    },
}

// === impl ConfigError ===

impl ConfigError {
    pub(super) const fn unreadable(file: PathBuf, error: io::Error) -> Self {
        Self { file: Some(file), kind: ErrorKind::Unreadable(error) }
    }

    /// Creates an error from the mistakes in `faults`, sorted by their positions. Determines the
    /// file and line of each mistake. `complete` is `true` if the whole file was checked.
    pub(super) fn mistaken(
        texts: &Texts,
        source: &Source<'_>,
        before: &[usize],
        mut faults: Vec<Fault>,
        complete: bool,
    ) -> Self {
        faults.sort_by_key(|fault| fault.span.start);
        let omitted = faults.len().saturating_sub(MAX_MISTAKES);
        let mistakes = faults
            .into_iter()
            .take(MAX_MISTAKES)
            .map(|Fault { path, message, span }| {
                let path = own_path(path, before[source.file_of(&span)]);
                Mistake { path, message, place: source.place(&span) }
            })
            .collect();
        let file = texts.files[0].path.clone();
        Self { file, kind: ErrorKind::Mistaken { mistakes, omitted, complete } }
    }

    /// Returns the first 100 mistakes, sorted by their position in the file. Returns an empty slice
    /// if the file cannot be read.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        match &self.kind {
            ErrorKind::Mistaken { mistakes, .. } => mistakes,
            ErrorKind::Unreadable(_) => &[],
        }
    }

    /// Returns the path of the configuration file. Returns `None` if the configuration was read
    /// from a string.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let main = self.file().unwrap_or(Path::new("<string>"));
        let file = main.display();
        let (mistakes, omitted, complete) = match &self.kind {
            ErrorKind::Unreadable(_) => return write!(f, "cannot read `{file}`"),
            ErrorKind::Mistaken { mistakes, omitted, complete } => (mistakes, *omitted, *complete),
        };
        let found = mistakes.len() + omitted;
        let least = if complete { "" } else { "at least " };
        let plural = if found == 1 { "" } else { "s" };
        write!(f, "{least}{found} mistake{plural} in {file}")?;
        if mistakes.iter().any(|mistake| mistake.file() != self.file()) {
            f.write_str(" and what it includes")?;
        }
        for mistake in mistakes {
            let SourceLocation { file: own, line, column, excerpt, before, marked } =
                &mistake.place;
            let file = own.as_deref().unwrap_or(main).display();
            let gutter = line.to_string().len();
            write!(f, "\n\nerror: {}", mistake.message)?;
            write!(f, "\n{:gutter$}--> {file}:{line}:{column}", "")?;
            write!(f, "\n{:gutter$} |", "")?;
            write!(f, "\n{line} | {excerpt}")?;
            write!(f, "\n{:gutter$} | {:before$}{:^<marked$}", "", "", "")?;
        }
        match (omitted, complete) {
            (0, true) => Ok(()),
            (0, false) => f.write_str("\n\nthe rest of the file may hold more mistakes"),
            _ => write!(f, "\n\nonly the first {MAX_MISTAKES} mistakes are shown"),
        }
    }
}

/// Prints the same text as `Display`, followed by the [source](std::error::Error::source) of the
/// error if there is one. If `main` returns an error, Rust prints it with `Debug`, and does not
/// print its source.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::Unreadable(error) => write!(f, "{self}: {error}"),
            ErrorKind::Mistaken { .. } => write!(f, "{self}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Unreadable(error) => Some(error),
            ErrorKind::Mistaken { .. } => None,
        }
    }
}

/// Formats the path of a value in one of several files. In `path`, the index of a composite counts
/// the composites of all files. Subtracts `before`, the number of composites in earlier files, to
/// get the index within the file.
fn own_path(mut path: Vec<Segment>, before: usize) -> String {
    if let [Segment::Key(_), Segment::Index(index), ..] = path.as_mut_slice() {
        *index = index.saturating_sub(before);
    }
    DisplayPath(&path).to_string()
}

// === impl Mistake ===

impl Mistake {
    /// Returns the path of the invalid value in the file, such as
    /// `composite_tools[1].targets[0].timeout`. The path is empty if the file is not valid TOML.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path of the file that contains the mistake. Returns `None` if the configuration
    /// was read from a string.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.place.file.as_deref()
    }

    /// Returns the line number of the mistake, starting at one.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.place.line
    }

    /// Returns the column of the mistake in characters, starting at one.
    #[must_use]
    pub const fn column(&self) -> usize {
        self.place.column
    }

    /// Returns the error message, which describes the mistake and the expected value.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line(), self.column(), self.message)
    }
}
