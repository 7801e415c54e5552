//! Writes a configuration file.

use std::{
    error::Error,
    fmt::Write as _,
    fs::{self, File},
    io::Write,
    path::Path,
};

use serde_json::{Map, Value};

/// The end of each file: a composite to change.
const COMPOSITE: &str = r#"
# A composite calls several tools at once, and returns all results. Remove the `#`, and name two
# tools as `backend/tool`. Clients then see `search_all`.
#
# [[composite_tools]]
# name = "search_all"
# description = "Searches everything at once"
#
# [[composite_tools.targets]]
# id = "first"
# tool = "BACKEND/TOOL"
# arguments = { query = "$input.query" }
#
# [[composite_tools.targets]]
# id = "second"
# tool = "BACKEND/TOOL"
# arguments = { q = "$input.query" }

# Hides the parts; composites stay listed.
#
# [advertise]
# deny = ["*"]
"#;

/// The backends of a file that is not made from another one.
const BACKENDS: &str = r#"# A server that this program starts, and that speaks MCP over stdio.
#
# [[backends]]
# name = "files"
# command = "npx"
# args = ["-y", "@modelcontextprotocol/server-filesystem", "."]

# A server over streamable HTTP. `${DOCS_TOKEN}` is an environment variable.
#
# [[backends]]
# name = "docs"
# url = "https://docs.example.com/mcp"
# headers = { Authorization = "Bearer ${DOCS_TOKEN}" }
"#;

/// Writes a new configuration file, with the servers of a client's configuration if there is one.
///
/// # Errors
///
/// Returns an error if the file exists or cannot be written, or if the client's configuration
/// cannot be read.
pub(crate) fn init(
    file: &Path,
    from: Option<&Path>,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut variables = Vec::new();
    let backends = match from {
        None => BACKENDS.to_owned(),
        Some(from) => converted(from, &mut variables)?,
    };
    let mut new = File::create_new(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let head =
        "# The servers whose tools this file combines. Check it with `mcp-composite check`.\n\n";
    write!(new, "{head}{backends}{COMPOSITE}")?;
    writeln!(out, "wrote {}", file.display())?;
    if !variables.is_empty() {
        variables.sort_unstable();
        variables.dedup();
        writeln!(out, "set these environment variables: {}", variables.join(", "))?;
    }
    Ok(())
}

/// Converts the servers of a client's configuration. Adds the environment variables that the
/// result refers to.
fn converted(from: &Path, variables: &mut Vec<String>) -> Result<String, Box<dyn Error>> {
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", from.display());
    let text = fs::read_to_string(from).map_err(|error| at(&error))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| at(&error))?;
    let servers = ["mcpServers", "servers"].iter().find_map(|key| json.get(key)?.as_object());
    let servers = servers.ok_or_else(|| {
        at(&"expected an object with `mcpServers` (Claude Desktop, Cursor) or `servers` (VS Code)")
    })?;
    let mut toml = String::new();
    for (name, server) in servers {
        let server = server.as_object().ok_or_else(|| {
            at(&format!("server `{name}`: expected an object with a `command` or a `url`"))
        })?;
        backend(name, server, &mut toml, variables)
            .map_err(|error| at(&format!("server `{name}`: {error}")))?;
    }
    Ok(toml)
}

fn backend(
    name: &str,
    server: &Map<String, Value>,
    toml: &mut String,
    variables: &mut Vec<String>,
) -> Result<(), Box<dyn Error>> {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    writeln!(toml, "[[backends]]\nname = {}", quoted(&name))?;
    match (server.get("command"), server.get("url").or_else(|| server.get("serverUrl"))) {
        (Some(Value::String(command)), None) => {
            writeln!(toml, "command = {}", quoted(&literal(command)))?;
            if let Some(arguments) = server.get("args").and_then(Value::as_array)
                && !arguments.is_empty()
            {
                let arguments = arguments.iter().map(|argument| match argument {
                    Value::String(text) => quoted(&literal(text)),
                    other => quoted(&other.to_string()),
                });
                writeln!(toml, "args = [{}]", arguments.collect::<Vec<_>>().join(", "))?;
            }
        }
        (None, Some(Value::String(url))) => writeln!(toml, "url = {}", quoted(&literal(url)))?,
        _ => return Err("expected either a `command` or a `url`".into()),
    }
    for (key, prefix) in [("env", ""), ("headers", &*format!("{name}_"))] {
        let members = server.get(key).and_then(Value::as_object);
        let members = members.into_iter().flat_map(Map::keys).map(|member| {
            let variable = variable(&format!("{prefix}{member}"));
            let line = format!("{} = \"${{{variable}}}\"", key_of(member));
            variables.push(variable);
            line
        });
        let members: Vec<_> = members.collect();
        if !members.is_empty() {
            writeln!(toml, "{key} = {{ {} }}", members.join(", "))?;
        }
    }
    toml.push('\n');
    Ok(())
}

/// Returns the name of an environment variable: upper case, with `_` for other characters.
fn variable(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect()
}

/// Escapes `${`, which refers to a variable in our files and to something else in those of clients.
fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// Returns a text as a TOML key, quoted only if it must be.
fn key_of(text: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let is_bare = !text.is_empty() && text.bytes().all(is_bare);
    if is_bare { text.to_owned() } else { quoted(text) }
}

/// Returns a text as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
