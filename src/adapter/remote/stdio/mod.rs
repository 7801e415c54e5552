//! Servers that are child processes, connected [over their pipes].
//!
//! A [`ChildProcess`] is started for each connection. On Unix it runs in its own process group, so
//! that a wrapper such as `npx` ends together with the server that it has started, and so that the
//! child does not receive the terminal's `Ctrl-C` before this process does.
//!
//! - *Environment.* The child inherits the variables that the clients of the official SDKs pass to
//!   a server (`HOME`, `LOGNAME`, `PATH`, `SHELL`, `TERM` and `USER`; on Windows, those it cannot
//!   run without), and gets those that are set for it. Other variables, such as the tokens of other
//!   servers, are not inherited.
//! - *Shutdown.* The child's input is closed; after three seconds it gets `SIGTERM` (on Unix), and
//!   three seconds later it is killed. If this process is killed, the input is closed as well.
//! - *Standard error* is logged line by line at the level `DEBUG`. The last line is reported if the
//!   child exits by itself.
//! - *Input.* A child that does not read for two minutes, or leaves 64 MiB unread, is ended and
//!   restarted.
//! - *Output.* A message may have 16 MiB and 262 144 JSON values. If an answer is larger, its call
//!   fails, and nothing of it is kept; see [`LineTransport`](crate::adapter::LineTransport).
//!
//! [over their pipes]: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports#stdio

mod child;

use std::{ffi::OsString, fmt, path::PathBuf, process::Stdio, sync::Arc};

use futures::FutureExt;
use process_wrap::tokio::{CommandWrap, KillOnDrop};
use tower::BoxError;

use self::child::ChildTransport;
use super::{
    service::{RemoteBuilder, RemoteService},
    state::Remote,
    supervise::Attempt,
};
use crate::adapter::Secrets;

/// The environment variables that a child process inherits.
///
/// The same as in the official SDKs; see `DEFAULT_INHERITED_ENV_VARS` of the TypeScript and the
/// Python one.
#[cfg(not(windows))]
const INHERITED: &[&str] = &["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
#[cfg(windows)]
const INHERITED: &[&str] = &[
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
];

/// The command that starts a server as a child process.
#[derive(Clone)]
#[must_use]
pub struct ChildProcess {
    program: OsString,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
}

// === impl ChildProcess ===

impl ChildProcess {
    /// Creates a command for a program, by its path or by its name in `PATH`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
        }
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory. Defaults to that of this process.
    pub fn current_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    fn command(&self) -> CommandWrap {
        let inherited = INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .envs(inherited)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let mut command = CommandWrap::from(command);
        command.wrap(KillOnDrop);
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessGroup::leader());
        command
    }

    fn start(&self, attempt: &Attempt) -> Result<ChildTransport, BoxError> {
        let child = self.command().spawn().map_err(|error| {
            format!("the command `{}` could not be started: {error}", self.program.display())
        })?;
        Ok(ChildTransport::new(child, attempt.client.remote(), attempt.last_words.clone())?)
    }
}

impl fmt::Debug for ChildProcess {
    /// Omits arguments and values of the environment, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variables: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("ChildProcess")
            .field("program", &self.program)
            .field("arguments", &self.arguments.len())
            .field("environment", &variables)
            .field("directory", &self.directory)
            .finish()
    }
}

impl RemoteBuilder {
    /// Connects to a server that is started as a child process.
    ///
    /// # Examples
    ///
    /// ```
    /// use mcp_composite::adapter::{RemoteService, remote::stdio::ChildProcess};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let files = RemoteService::builder("files")
    ///     .child_process(ChildProcess::new("no-such-server").args(["--read-only", "."]));
    ///
    /// // It is tried again and again; meanwhile nobody waits for it.
    /// assert!(files.connected().await.is_err());
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with its time and I/O enabled.
    #[must_use]
    pub fn child_process(mut self, process: ChildProcess) -> RemoteService {
        let values = process.environment.iter().map(|(_, value)| value.to_string_lossy());
        self.about.secrets = self.about.secrets.and(&Secrets::new(values.map(Into::into)));
        let process = Arc::new(process);
        let open = move |attempt: Attempt| {
            let process = process.clone();
            async move {
                let transport = process.start(&attempt)?;
                let process = transport.process().clone();
                let begun = attempt.begin(transport).await;
                if begun.is_err() {
                    process.read_exit_message().await;
                }
                begun
            }
            .boxed()
        };
        RemoteService::supervised(self.into_remote(), Box::new(open))
    }
}
