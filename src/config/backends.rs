//! The `[[backends]]` section, which defines the backend servers.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
};

use serde::Deserialize;

use super::{
    aliases::{self, AliasTable},
    backend::{BackendConfig, HttpConfig, StdioConfig, Transport},
    backend_auth::{self, BackendAuth, BackendAuthTable},
    duration::Duration,
    filter::{self, FilterTable},
    header, hints,
    read::Reader,
    router::RouterConfig,
    secret::Secret,
    source::sanitized,
    text_reader::TextReader,
    validate::{self, ValidateTable},
    variables::Text,
    word::is_word,
};
use crate::{
    adapter::{Secrets, router::Conflicts, secrets::credentials},
    composite::Segment,
    limit::LimitLayer,
    names::MAX_PREFIX,
    stack::BackendLayer,
    url::Url,
};

pub(super) const SECTION: &str = "backends";

/// An MCP server whose tools, prompts and resources clients can use. It is a child process, or is
/// reached over HTTP.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["name"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct BackendTable {
    /// The name of the backend, which must be unique in the file. It also determines the default of
    /// `prefix`.
    #[cfg_attr(test, schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$")))]
    name: Option<String>,
    /// How this program communicates with the backend. Defaults to `stdio` if `command` is set, and
    /// to `http` if `url` is set.
    transport: Option<TransportName>,
    /// Timeout of each request to the backend. Defaults to 60 seconds.
    timeout: Option<Duration>,
    /// Timeout for connecting to the backend. Defaults to 30 seconds.
    connect_timeout: Option<Duration>,
    /// Whether the backend may request input during a tool call, for example from a user. Defaults
    /// to `true`.
    elicitation: Option<bool>,
    /// Prefix of the backend's tool and prompt names, as clients see them. Defaults to the name of
    /// the backend followed by the separator of `[router]`.
    prefix: Option<String>,
    /// The program to start as a child process. Each `${VAR}` is replaced by the value of an
    /// environment variable.
    command: Option<String>,
    /// The command-line arguments of the program. Each `${VAR}` is replaced by the value of an
    /// environment variable.
    args: Option<Secret<Vec<String>>>,
    /// Environment variables to set for the program, in addition to the variables that it inherits.
    env: Option<Secret<BTreeMap<String, String>>>,
    /// The working directory of the program.
    cwd: Option<String>,
    /// The URL of a streamable HTTP server. Each `${VAR}` is replaced by the value of an
    /// environment variable.
    url: Option<Secret<String>>,
    /// Headers to send with every request to the server at `url`.
    headers: Option<Secret<BTreeMap<String, String>>>,
    /// How this program obtains access tokens for the server at `url` from an authorization server.
    auth: Option<BackendAuthTable>,
    /// Name patterns of the backend's tools that clients may see and call. Defaults to all tools.
    expose_tools: Option<Vec<String>>,
    /// Name patterns of the backend's tools that clients may neither see nor call.
    hide_tools: Option<Vec<String>>,
    /// Name patterns of the backend's prompts that clients may see and get. Defaults to all
    /// prompts.
    expose_prompts: Option<Vec<String>>,
    /// Name patterns of the backend's prompts that clients may neither see nor get.
    hide_prompts: Option<Vec<String>>,
    /// URI patterns of the backend's resources that clients may see and read. Defaults to all
    /// resources.
    expose_resources: Option<Vec<String>>,
    /// URI patterns of the backend's resources that clients may neither see nor read.
    hide_resources: Option<Vec<String>>,
    /// Patterns of the backend's resource URI templates that clients may see. Defaults to all
    /// templates.
    expose_resource_templates: Option<Vec<String>>,
    /// Patterns of the backend's resource URI templates that clients may not see.
    hide_resource_templates: Option<Vec<String>>,
    /// If `true`, hides all tools without the annotation `readOnlyHint: true`.
    read_only_only: Option<bool>,
    /// If `true`, hides all tools without the annotation `destructiveHint: false`.
    hide_destructive: Option<bool>,
    /// Renames the backend's tools, prompts and resources, and changes how clients see them.
    aliases: Vec<AliasTable>,
    /// Limits the size of requests to the backend, and checks tool arguments.
    validate: ValidateTable,
}

/// How this program communicates with a backend.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum TransportName {
    /// The backend is a child process that communicates over its standard input and output.
    Stdio,
    /// The backend is a streamable HTTP server.
    Http,
}

/// Converts the `[[backends]]` tables to [`BackendConfig`]s, and reports errors in the tables to
/// `reader`.
pub(super) fn build(
    tables: Vec<BackendTable>,
    router: &RouterConfig,
    reader: &mut Reader<'_, '_>,
) -> Vec<BackendConfig> {
    let mut names = HashMap::new();
    let mut prefixes = HashMap::new();
    let mut backends = Vec::with_capacity(tables.len());
    for (index, table) in tables.into_iter().enumerate() {
        let path = vec![SECTION.into(), index.into()];
        let mut texts = TextReader { path, secrets: Vec::new(), reader };
        let own_prefix = table.prefix.is_some();
        let Some(backend) = texts.backend(table, router) else { continue };
        if names.insert(backend.name.clone(), index).is_some() {
            texts.report(&["name"], format!("duplicate backend name `{}`", backend.name));
        } else if router.conflicts() == Conflicts::Prefix
            && let Some((other, other_own)) =
                prefixes.insert(backend.prefix.clone(), (index, own_prefix))
        {
            // The names of the two backends differ, so at least one of them sets a prefix. The
            // error is reported at a backend that does.
            let place = if own_prefix || !other_own { index } else { other };
            let path = [SECTION.into(), place.into(), "prefix".into()];
            reader.report(&path, format!("two backends have the prefix `{}`", backend.prefix));
        }
        backends.push(backend);
    }
    backends
}

// === impl TextReader ===

impl TextReader<'_, '_, '_> {
    /// Converts the table of one backend to a [`BackendConfig`], and reports errors in the table.
    fn backend(&mut self, mut table: BackendTable, router: &RouterConfig) -> Option<BackendConfig> {
        let name = self.name(table.name.as_deref());
        let prefix = self.prefix(table.prefix.as_deref(), name.as_deref(), router);
        let timeout = self.reader.not_zero(&self.path, "timeout", table.timeout);
        let connect_timeout =
            self.reader.not_zero(&self.path, "connect_timeout", table.connect_timeout);
        let elicitation = table.elicitation.unwrap_or(true);
        let layer = self.layer(&mut table, name.as_deref(), router);
        let transport = self.transport(table);
        Some(BackendConfig {
            name: name?,
            transport: transport?,
            timeout: timeout.map(|Duration(timeout)| timeout),
            connect_timeout: connect_timeout.map(|Duration(timeout)| timeout),
            elicitation,
            prefix,
            layer,
            secrets: Secrets::new(self.secrets.drain(..)),
            locked: None,
        })
    }

    /// Builds the layers that wrap only this backend: aliases, filter and validation.
    fn layer(
        &mut self,
        table: &mut BackendTable,
        name: Option<&str>,
        router: &RouterConfig,
    ) -> BackendLayer {
        let owner = format!("backend `{}`", name.unwrap_or_default());
        let filter = FilterTable {
            expose_tools: table.expose_tools.take(),
            hide_tools: table.hide_tools.take(),
            expose_prompts: table.expose_prompts.take(),
            hide_prompts: table.hide_prompts.take(),
            expose_resources: table.expose_resources.take(),
            hide_resources: table.hide_resources.take(),
            expose_resource_templates: table.expose_resource_templates.take(),
            hide_resource_templates: table.hide_resource_templates.take(),
            read_only_only: table.read_only_only,
            hide_destructive: table.hide_destructive,
        };
        let filter = filter::build(filter, &self.path, self.reader).of(owner.clone());
        let aliases = self.at(&[aliases::SECTION]);
        let tables = mem::take(&mut table.aliases);
        let alias = aliases::build(tables, router.separator(), &aliases, self.reader).of(owner);
        let (path, limit) = (self.at(&["validate"]), LimitLayer::new());
        let (_, validate) = validate::build(&table.validate, limit, &path, self.reader);
        BackendLayer::new().alias(alias).filter(filter).validate(validate)
    }

    fn name(&mut self, name: Option<&str>) -> Option<String> {
        match name {
            Some(name) if is_name(name) => return Some(name.to_owned()),
            Some(name) => {
                let message = format!(
                    "illegal backend name {:?}: expected 1 to {MAX_PREFIX} of `A-Z`, `a-z`, `0-9`, `_` and `-`",
                    sanitized(name)
                );
                self.report(&["name"], message);
            }
            None => self.report(&["name"], "missing key `name`"),
        }
        None
    }

    /// Returns the prefix of the backend's tool and prompt names. `own` is the value of the key
    /// `prefix`. If it is `None`, the prefix consists of the backend's name and the separator, such
    /// as `github_`. Reports an error if `own` is not valid. Returns an empty string if the router
    /// does not prefix names.
    fn prefix(&mut self, own: Option<&str>, name: Option<&str>, router: &RouterConfig) -> String {
        if router.conflicts() != Conflicts::Prefix {
            if own.is_some() {
                let conflicts = router.conflicts().as_str();
                let message = format!("`prefix` cannot be used with `conflicts = \"{conflicts}\"`");
                self.report(&["prefix"], message);
            }
            return String::new();
        }
        let separator = router.separator();
        match own {
            Some(prefix) if is_prefix(prefix, separator) => prefix.to_owned(),
            Some(prefix) => {
                let message = format!(
                    "illegal prefix {:?}: expected at most {MAX_PREFIX} of `A-Z`, `a-z`, `0-9`, `_`, `-`, `.` and the separator `{separator}`",
                    sanitized(prefix)
                );
                self.report(&["prefix"], message);
                String::new()
            }
            None => format!("{}{separator}", name.unwrap_or_default()),
        }
    }

    fn transport(&mut self, table: BackendTable) -> Option<Transport> {
        let name = match (table.transport, &table.command, &table.url) {
            (Some(name), _, _) => name,
            (None, Some(_), None) => TransportName::Stdio,
            (None, None, Some(_)) => TransportName::Http,
            (None, Some(_), Some(_)) => {
                let message = "`command` and `url` exclude each other: expected one of them";
                self.report(&["url"], message);
                return None;
            }
            (None, None, None) => {
                let mistaken = ["transport", "command", "url"]
                    .into_iter()
                    .any(|key| self.reader.has_fault_in(&self.at(&[key])));
                if !mistaken {
                    self.report(&["command"], "missing key `command` or `url`");
                }
                return None;
            }
        };
        let of_stdio = [
            ("command", table.command.is_some()),
            ("args", table.args.is_some()),
            ("env", table.env.is_some()),
            ("cwd", table.cwd.is_some()),
        ];
        let of_http = [
            ("url", table.url.is_some()),
            ("headers", table.headers.is_some()),
            (backend_auth::KEY, table.auth.is_some()),
        ];
        match name {
            TransportName::Stdio => {
                self.refuse(&of_http, "http");
                self.stdio(table).map(Transport::Stdio)
            }
            TransportName::Http => {
                self.refuse(&of_stdio, "stdio");
                self.http(table).map(Transport::Http)
            }
        }
    }

    /// Reports an error for each key in the table that can only be used with `transport`, such as
    /// `headers` with `http`. The backend uses another transport. Each element of `keys` is a key,
    /// and `true` if the table contains it.
    fn refuse(&mut self, keys: &[(&str, bool)], transport: &str) {
        for (key, given) in keys {
            if *given {
                self.report(&[*key], format!("`{key}` belongs to transport `{transport}`"));
            }
        }
    }

    fn stdio(&mut self, table: BackendTable) -> Option<StdioConfig> {
        let command = match table.command {
            Some(command) if is_command_line(&command) => {
                self.report(&["command"], hints::command_line(&command));
                None
            }
            Some(command) => self.filled("command", command),
            None => {
                self.report(&["command"], "missing key `command`");
                None
            }
        };
        let args = table.args.unwrap_or_default().into_exposed().into_iter().enumerate();
        let args = args
            .filter_map(|(place, arg)| self.plain(&[Segment::from("args"), place.into()], arg))
            .map(|arg| arg.value)
            .collect::<Vec<_>>();
        let env = self.env(table.env.unwrap_or_default().into_exposed());
        let cwd = table.cwd.and_then(|cwd| self.filled("cwd", cwd));
        Some(StdioConfig { command: command?, args: Secret::new(args), env: Secret::new(env), cwd })
    }

    fn http(&mut self, table: BackendTable) -> Option<HttpConfig> {
        let url = match table.url {
            Some(url) => self.url(url.into_exposed()),
            None => {
                self.report(&["url"], "missing key `url`");
                None
            }
        };
        let has_user = url
            .as_ref()
            .and_then(|url| Url::parse(&url.value))
            .is_some_and(|parts| parts.user.is_some());
        let headers = self.headers(table.headers.unwrap_or_default().into_exposed(), has_user);
        let has_header = headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        let auth = table.auth.and_then(|auth| self.auth(auth, has_user, has_header));
        Some(HttpConfig { url: url?, headers: Secret::new(headers), auth })
    }

    fn auth(
        &mut self,
        table: BackendAuthTable,
        has_user: bool,
        has_header: bool,
    ) -> Option<BackendAuth> {
        let other = if has_user { Some("the user in `url`") } else { None };
        if let Some(other) = other.or(has_header.then_some("the header `Authorization`")) {
            let message = format!("`auth` and {other} say the same: expected one of them");
            self.report(&[backend_auth::KEY], message);
        }
        self.path.push(backend_auth::KEY.into());
        let auth = self.backend_auth(table);
        self.path.pop();
        auth
    }

    fn url(&mut self, url: String) -> Option<Text> {
        let url = self.filled("url", url)?;
        if let Some(parts) = Url::parse(&url.value) {
            self.secrets.extend(parts.secrets());
            if let Some(message) = parts.metadata_address() {
                self.report(&["url"], message);
                return None;
            }
            Some(url)
        } else {
            let hint =
                hints::of_url(&url.value).unwrap_or("expected `http://` or `https://` and a host");
            self.report(&["url"], format!("not the URL of a server: {hint}"));
            None
        }
    }

    fn env(&mut self, entries: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        let mut illegal = false;
        for (name, value) in entries {
            if name.is_empty() || name.contains(['=', '\0']) {
                illegal = true;
            } else if let Some(Text { value, .. }) = self.plain(&["env", &name], value) {
                self.secrets.push(value.clone());
                env.insert(name, value);
            }
        }
        // Reports this error last, because an error at the whole table suppresses later errors
        // within the table. The message omits the name, because it may contain a secret, as in
        // `TOKEN=…`.
        if illegal {
            let message =
                "illegal name of a variable: expected one without `=`, as in `NAME = \"value\"`";
            self.report(&["env"], message);
        }
        env
    }

    fn headers(
        &mut self,
        entries: BTreeMap<String, String>,
        has_user: bool,
    ) -> BTreeMap<String, String> {
        let mut headers = BTreeMap::new();
        let mut names = HashSet::new();
        let mut illegal = false;
        for (name, value) in entries {
            if !header::is_name(&name) {
                illegal = true;
                continue;
            }
            let refused = if header::is_set_by_transport(&name) {
                Some(format!("`{name}` is set by the transport"))
            } else if has_user && name.eq_ignore_ascii_case("authorization") {
                Some(format!(
                    "`{name}` and the user in `url` both authenticate: expected one of them"
                ))
            } else if !names.insert(name.to_ascii_lowercase()) {
                Some(format!("duplicate header{}: letter case makes no difference", named(&name)))
            } else {
                None
            };
            if let Some(message) = refused {
                self.report(&["headers", &name], message);
                continue;
            }
            let Some(text) = self.expand(&["headers", &name], value) else { continue };
            if !header::is_value(&text.value) {
                let named = named(&name);
                let message = format!("illegal value of header{named}: expected one line of text");
                self.report(&["headers", &name], message);
            }
            self.secrets.extend(credentials(&text.value).map(str::to_owned));
            self.secrets.push(text.value.clone());
            headers.insert(name, text.value);
        }
        // Reports this error last and without the header names, for the same reasons as illegal
        // variable names.
        if illegal {
            let message = "illegal name of a header: expected letters, digits and `-`, as in `Name = \"value\"`";
            self.report(&["headers"], message);
        }
        headers
    }

    /// Replaces each `${VAR}` in `written`, the value of `key`. If the result is blank or contains
    /// a NUL character, or if a variable cannot be replaced, reports an error and returns `None`.
    fn filled(&mut self, key: &'static str, written: String) -> Option<Text> {
        let text = self.plain(&[key], written)?;
        if text.value.trim().is_empty() {
            self.report(&[key], format!("`{key}` is blank"));
            return None;
        }
        Some(text)
    }

    /// Replaces each `${VAR}` in `written`, the string at `keys` in the backend's table. If the
    /// result contains a NUL character, or if a variable cannot be replaced, reports an error and
    /// returns `None`.
    fn plain<K: Clone + Into<Segment>>(&mut self, keys: &[K], written: String) -> Option<Text> {
        let text = self.expand(keys, written)?;
        if text.value.contains('\0') {
            self.report(keys, "expected no NUL character");
            return None;
        }
        Some(text)
    }
}

/// Formats the name of a header for an error message, with a space before it. Returns an empty
/// string if the name is not a plain word, because the user may have put a secret in its place.
fn named(header: &str) -> String {
    if is_word(header) { format!(" `{header}`") } else { String::new() }
}

/// Returns `true` if `command` seems to contain arguments, as in `npx server`. A path may contain
/// spaces. Therefore, the words after a path count as arguments only if one of them begins with
/// `-`.
fn is_command_line(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let is_path = words.next().is_none_or(|program| program.contains(['/', '\\']));
    let mut arguments = words.peekable();
    arguments.peek().is_some() && (!is_path || arguments.any(|word| word.starts_with('-')))
}

fn is_name(name: &str) -> bool {
    (1..=MAX_PREFIX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn is_prefix(prefix: &str, separator: &str) -> bool {
    prefix.len() <= MAX_PREFIX
        && prefix.bytes().all(|b| {
            b.is_ascii_alphanumeric() || b"_-.".contains(&b) || separator.as_bytes().contains(&b)
        })
}
