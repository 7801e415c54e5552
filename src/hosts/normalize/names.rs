//! Tool names that are valid for all providers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use rmcp::model::Tool;
use sha2::{Digest, Sha256};

use crate::random::hex;

/// Maximum length of a tool name that is valid for all providers.
const MAX_PROVIDER_NAME: usize = 64;
/// Number of bytes of the hash that is appended to a tool name to make it unique. Each byte becomes
/// two hexadecimal digits.
const HASH: usize = 4;

/// Maps the tool names that models use to the original names of the tools.
///
/// MCP allows names that providers reject, such as `github/search`. `ToolNames` assigns each tool a
/// name for models that all providers accept: 1 to 64 ASCII letters, digits, `_` and `-`, starting
/// with a letter or `_`. Valid names are unchanged. In other names, invalid characters are replaced
/// by `_`. If the result is too long or not unique, a hash of the tool's name is appended. The
/// assigned names do not depend on the order of the tools.
///
/// ```
/// use mcp_composite::normalize::ToolNames;
///
/// let names = ToolNames::new(["github/search", "jira.search", "jira_search"]);
/// assert_eq!(names.exposed("github/search"), Some("github_search"));
/// assert_eq!(names.exposed("jira_search"), Some("jira_search"));
/// assert_eq!(names.exposed("jira.search"), Some("jira_search_d879d4ba"));
/// assert_eq!(names.original("github_search"), Some("github/search"));
/// assert_eq!(names.original("github/search"), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolNames(Arc<NameMaps>);

#[derive(Debug, Default)]
struct NameMaps {
    exposed: HashMap<String, String>,
    originals: HashMap<String, String>,
}

// === impl ToolNames ===

impl ToolNames {
    /// Assigns a name for models to each of the given original tool names.
    pub fn new<N: Into<String>>(tools: impl IntoIterator<Item = N>) -> Self {
        let tools: BTreeSet<String> = tools.into_iter().map(Into::into).collect();
        let mut claims: BTreeMap<String, usize> = BTreeMap::new();
        for tool in tools.iter().filter(|tool| !is_allowed(tool)) {
            *claims.entry(plain(tool)).or_default() += 1;
        }
        let is_free = |name: &str| name.len() <= MAX_PROVIDER_NAME && !tools.contains(name);
        let mut names = NameMaps::default();
        for tool in &tools {
            let plain = plain(tool);
            let exposed = if is_allowed(tool) || (is_free(&plain) && claims[&plain] == 1) {
                plain
            } else {
                // A name is taken if another tool has it or may be assigned it.
                let taken = |name: &String| {
                    tools.contains(name)
                        || claims.contains_key(name)
                        || names.originals.contains_key(name)
                };
                let mut hashes = (0..).map(|attempt| hashed(&plain, tool, attempt));
                let free = hashes.find(|name| !taken(name));
                free.unwrap_or(plain)
            };
            names.originals.insert(exposed.clone(), tool.clone());
            names.exposed.insert(tool.clone(), exposed);
        }
        Self(Arc::new(names))
    }

    /// Assigns a name for models to each of the given tools.
    #[must_use]
    pub fn of(tools: &[Tool]) -> Self {
        Self::new(tools.iter().map(|tool| &*tool.name))
    }

    /// Returns the name that models use for the tool with the original name `tool`. Returns `None`
    /// if no name was assigned to this tool.
    #[must_use]
    pub fn exposed(&self, tool: &str) -> Option<&str> {
        self.0.exposed.get(tool).map(String::as_str)
    }

    /// Returns the original name of the tool that models know as `exposed`. Returns `None` if no
    /// tool has this name.
    #[must_use]
    pub fn original(&self, exposed: &str) -> Option<&str> {
        self.0.originals.get(exposed).map(String::as_str)
    }
}

fn is_allowed(name: &str) -> bool {
    name.len() <= MAX_PROVIDER_NAME && !name.is_empty() && plain(name) == name
}

/// Replaces the characters that providers reject in a name by `_`, and prepends `_` if the first
/// character is invalid. Does not shorten the name.
fn plain(name: &str) -> String {
    let begins_well = name.starts_with(|first: char| !first.is_ascii_digit() && first != '-');
    let spelled = name.chars().map(|character| match character {
        '-' => '-',
        character if character.is_ascii_alphanumeric() => character,
        _ => '_',
    });
    let before = if begins_well { "" } else { "_" };
    before.chars().chain(spelled).collect()
}

/// Appends a hash of the original tool name and of `attempt` to `plain`. Shortens `plain` if the
/// result would be too long.
fn hashed(plain: &str, tool: &str, attempt: usize) -> String {
    let hash = Sha256::digest([tool.as_bytes(), &vec![0; attempt]].concat());
    let suffix = format!("_{}", hex(&hash[..HASH]));
    // The name is ASCII, so that it can be cut at any position.
    format!("{}{suffix}", &plain[..plain.len().min(MAX_PROVIDER_NAME - suffix.len())])
}
