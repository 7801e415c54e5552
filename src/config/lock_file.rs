//! Reads and writes lock files, which contain the approved tool definitions of the backends.
//!
//! A lock file is TOML with one table for each tool. The table contains the tool definition as
//! indented JSON, so that reviewers can compare two versions of the file line by line. The table
//! also contains the SHA-256 hash of the canonical JSON of the definition.

use std::{
    fmt::{self, Write as _},
    io,
    path::{Path, PathBuf},
};

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::include;
use crate::{
    fingerprint::Fingerprint,
    lock::{Definition, Lock},
    text_position::line_number,
    warnings::sanitize::{Reason, Sanitized},
};

/// The comment at the beginning of each lock file.
const HEAD: &str = "\
# Approved tool definitions, written by `mcp-composite lock`.
# Review changes before they are committed; lock again instead of editing the file.

";
/// The version of the lock file format.
const VERSION: u32 = 1;
/// The prefix of each hash in a lock file. It names the hash function.
const SHA_256: &str = "sha256:";

/// The error returned if a lock file, which contains approved tool definitions, cannot be read or
/// is invalid.
#[derive(Debug)]
pub struct LockError {
    file: Option<PathBuf>,
    kind: ErrorKind,
}

#[derive(Debug)]
enum ErrorKind {
    Unreadable(io::Error),
    Foreign { line: usize, message: String },
    Version(u32),
    Tool { backend: String, tool: String, problem: Problem },
}

/// The reason why an entry of a lock file is invalid. Each entry contains the definition of one
/// tool.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Problem {
    #[error("the hash does not match the definition")]
    Hash,
    #[error("the definition is not that of a tool of this name")]
    Definition,
    #[error("the tool occurs twice")]
    Twice,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockFile {
    version: u32,
    #[serde(default)]
    tools: Vec<ToolTable>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolTable {
    backend: String,
    name: String,
    hash: String,
    definition: String,
}

// === impl Lock ===

impl Lock {
    /// Reads a lock, a list of approved tool definitions, from the file at `path`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if [`from_toml_str`](Self::from_toml_str)
    /// returns an error for its content.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, LockError> {
        let path = path.as_ref();
        let text = include::read_first(path).map_err(ErrorKind::Unreadable);
        let lock = text.and_then(|text| Self::parse(&text));
        lock.map_err(|kind| LockError { file: Some(path.to_owned()), kind })
    }

    /// Parses the text of a lock file, which contains a list of approved tool definitions.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a lock file, or if a hash does not match its tool
    /// definition.
    pub fn from_toml_str(text: &str) -> Result<Self, LockError> {
        Self::parse(text).map_err(|kind| LockError { file: None, kind })
    }

    fn parse(text: &str) -> Result<Self, ErrorKind> {
        let file: LockFile = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = line_number(before);
            ErrorKind::Foreign { line, message: error.message().to_owned() }
        })?;
        if file.version != VERSION {
            return Err(ErrorKind::Version(file.version));
        }
        let mut lock = Self::new();
        for table in file.tools {
            let before = lock.len();
            let pinned = table.tool().and_then(|tool| {
                lock.pin(&table.backend, &tool).map_err(|_| Problem::Twice)?;
                if lock.len() == before { Err(Problem::Twice) } else { Ok(()) }
            });
            pinned.map_err(|problem| ErrorKind::Tool {
                backend: table.backend,
                tool: table.name,
                problem,
            })?;
        }
        Ok(lock)
    }

    /// Formats this lock as the text of a lock file: TOML, with one table for each tool.
    #[must_use]
    pub fn to_toml_string(&self) -> String {
        let tools = self.iter().map(|(backend, name, definition)| ToolTable {
            backend: backend.to_owned(),
            name: name.to_owned(),
            hash: format!("{SHA_256}{}", definition.fingerprint()),
            definition: format!("{}\n", visible(&format!("{:#}", definition.to_json()))),
        });
        let file = LockFile { version: VERSION, tools: tools.collect() };
        // Serialization cannot fail, because the table contains only strings and one number.
        format!("{HEAD}{}", toml::to_string_pretty(&file).unwrap_or_default())
    }
}

/// Replaces invisible characters in a JSON text by escapes, so that reviewers of the lock file
/// notice them. Some invisible characters change the direction of text, for example. The escapes
/// are valid JSON, because these characters occur only within strings.
fn visible(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        let is_visible = character == '\n' || character.is_ascii_graphic() || character == ' ' || {
            let mut escaped = character.escape_debug();
            escaped.next() == Some(character)
        };
        if is_visible {
            text.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                // Writing to a string does not fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

// === impl ToolTable ===

impl ToolTable {
    /// Parses the tool definition. Returns an error if the hash does not match it, or if it is not
    /// a definition of the tool with this name.
    fn tool(&self) -> Result<Tool, Problem> {
        let value: Value =
            serde_json::from_str(&self.definition).map_err(|_| Problem::Definition)?;
        if self.hash != format!("{SHA_256}{}", Fingerprint::of(&value)) {
            return Err(Problem::Hash);
        }
        let tool: Tool = serde_json::from_value(value.clone()).map_err(|_| Problem::Definition)?;
        let is_whole = tool.name == self.name && Definition::of(&tool).to_json() == value;
        if is_whole { Ok(tool) } else { Err(Problem::Definition) }
    }
}

// === impl LockError ===

impl LockError {
    /// Returns `true` if the lock could not be read because the file does not exist.
    #[must_use]
    pub fn is_missing_file(&self) -> bool {
        matches!(&self.kind, ErrorKind::Unreadable(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "the lock `{}` ", Sanitized(file.display()))?,
            None => f.write_str("the lock ")?,
        }
        match &self.kind {
            ErrorKind::Unreadable(_) if self.is_missing_file() => {
                f.write_str("does not exist: write it with `mcp-composite lock`")
            }
            ErrorKind::Unreadable(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                f.write_str("cannot be read: it is too large")
            }
            ErrorKind::Unreadable(error) => {
                write!(f, "cannot be read: {}", Reason(error))
            }
            ErrorKind::Foreign { line, message } => write!(
                f,
                "is not a file that `mcp-composite lock` has written: line {line}: {}",
                Reason(message)
            ),
            ErrorKind::Version(version) => {
                write!(f, "has version {version}: this program reads version {VERSION}")
            }
            ErrorKind::Tool { backend, tool, problem } => write!(
                f,
                "is invalid at tool `{}` of backend `{}`: {problem}; review the tool and lock it \
                 again",
                Sanitized(tool),
                Sanitized(backend)
            ),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ToolAnnotations;
    use serde_json::json;

    use super::*;

    fn tool(name: &'static str, description: &'static str) -> Tool {
        let schema = json!({
            "type": "object",
            "properties": { "q": { "maximum": 1.797_693_134_862_315_7e308, "default": 0.1 } },
        });
        let schema: rmcp::model::JsonObject = serde_json::from_value(schema).unwrap();
        Tool::new(name, description, std::sync::Arc::new(schema))
            .with_annotations(ToolAnnotations::new().read_only(true))
    }

    fn lock() -> Lock {
        let mut lock = Lock::new();
        lock.pin("web", &tool("search", "It's \"quoted\": '''\n\u{202e}\u{e0041}\u{7f} größe \\"))
            .unwrap();
        lock.pin("web", &tool("a'b", "")).unwrap();
        lock.pin("mail", &tool("search", "Mails")).unwrap();
        lock
    }

    #[test]
    fn lock_is_read_as_it_was_written() {
        let text = lock().to_toml_string();
        assert_eq!(Lock::from_toml_str(&text).unwrap(), lock());
        assert_eq!(Lock::from_toml_str(&Lock::new().to_toml_string()).unwrap(), Lock::new());
    }

    #[test]
    fn lock_is_readable_text() {
        let mut lock = Lock::new();
        let annotations = ToolAnnotations::new().read_only(true);
        let tool = Tool::new("search", "It's große\u{202e}", std::sync::Arc::default());
        lock.pin("web", &tool.with_annotations(annotations)).unwrap();
        let text = lock.to_toml_string();
        let canonical = "{\"annotations\":{\"readOnlyHint\":true},\
            \"description\":\"It's große\u{202e}\",\"inputSchema\":{},\"name\":\"search\"}";
        let hash = Fingerprint::of(&serde_json::from_str(canonical).unwrap());
        let expected = format!(
            r#"version = 1

[[tools]]
backend = "web"
name = "search"
hash = "sha256:{hash}"
definition = '''
{{
  "annotations": {{
    "readOnlyHint": true
  }},
  "description": "It's große\u202e",
  "inputSchema": {{}},
  "name": "search"
}}
'''
"#
        );
        assert_eq!(text.strip_prefix(HEAD), Some(&*expected));
    }

    #[test]
    fn changed_and_foreign_files_are_errors_that_name_the_place() {
        let text = lock().to_toml_string();
        let error = |text: &str| Lock::from_toml_str(text).unwrap_err().to_string();
        let hash = "is invalid at tool `search` of backend `mail`: the hash does not match the \
            definition; review the tool and lock it again";
        let definition = "is invalid at tool `other` of backend `mail`: the definition is not that \
            of a tool of this name; review the tool and lock it again";
        for (from, to, expected) in [
            ("Mails", "Nails", hash),
            ("sha256:", "sha512:", hash),
            ("\"readOnlyHint\": true", "\"readOnlyHint\": false", hash),
            ("\"description\": \"Mails\",", "\"icons\": [],\"description\": \"Mails\",", hash),
            ("name = \"search\"", "name = \"other\"", definition),
            ("version = 1", "version = 2", "has version 2: this program reads version 1"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text);
            assert_eq!(error(&changed), format!("the lock {expected}"), "{from}");
        }
        let table = text.split("[[tools]]").nth(1).unwrap();
        let twice = format!("{text}\n[[tools]]{table}");
        assert!(error(&twice).contains("occurs twice"), "{}", error(&twice));
        for foreign in ["", "{\"tools\": []}", "version = 1\ntool = []", "version = 1\n\n\u{1b}["] {
            let error = error(foreign);
            assert!(error.contains("is not a file that `mcp-composite lock` has written: line"));
            assert!(!error.contains(['\n', '\u{1b}']), "{error}");
        }
        let missing = Lock::load("/no/such/tools.lock").unwrap_err();
        assert!(missing.is_missing_file());
        assert_eq!(
            missing.to_string(),
            "the lock `/no/such/tools.lock` does not exist: write it with `mcp-composite lock`"
        );
    }
}
