//! Connects to servers that run as child processes, [over their pipes].
//!
//! A [`ChildProcess`] is the command that starts an MCP server. The command is run once for each
//! connection. On Unix, the child runs in a separate process group. Therefore, if a wrapper such as
//! `npx` is ended, the server that it has started is ended, too. Pressing `Ctrl-C` in the terminal
//! interrupts this process but not the child. The child process is set up as follows:
//! - *Environment.* The child receives the variables that are [set for it](ChildProcess::env). It
//!   inherits only the variables that clients based on the official SDKs pass on: `HOME`,
//!   `LOGNAME`, `PATH`, `SHELL`, `TERM` and `USER`. On Windows, it inherits the variables that a
//!   process cannot run without. Other variables, such as the tokens of other servers, are not
//!   inherited.
//! - *Shutdown.* To end a child, its input is closed. If the child is still running after three
//!   seconds, it receives `SIGTERM` (on Unix). After three more seconds, it is killed. If this
//!   process itself is killed, the operating system closes the child's input.
//! - *Standard error.* The child's standard error is logged line by line at the level `DEBUG`. If
//!   the child exits by itself, the last line is part of the reported reason.
//! - *Input.* A child is ended and restarted if it reads no input for two minutes, or if more than
//!   64 MiB of input wait for it.
//! - *Output.* A message from the child may contain at most 16 MiB and 262 144 JSON values. If a
//!   response is larger, its call fails, and the response is discarded. See
//!   [`LineTransport`](crate::adapter::LineTransport).
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

/// The names of the environment variables that a child process inherits.
///
/// The official TypeScript and Python SDKs use the same list: see their
/// `DEFAULT_INHERITED_ENV_VARS`.
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

/// The command that starts an MCP server as a child process.
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
    /// Creates a command that runs `program`, which is a path or a name in `PATH`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
        }
    }

    /// Adds arguments to the command that starts the server.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable of the child process.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory of the child process. Defaults to the working directory of this
    /// process.
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
        Ok(ChildTransport::new(child, &attempt.client.remote, attempt.signals.last_words.clone())?)
    }
}

impl fmt::Debug for ChildProcess {
    /// Formats the command without the arguments and the values of environment variables, which may
    /// be secret.
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
    /// Creates a service that starts the MCP server as a child process and connects to it over
    /// pipes.
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
    /// Panics if called outside a Tokio runtime, or in one whose time or I/O driver is not enabled.
    #[must_use]
    pub fn child_process(mut self, process: ChildProcess) -> RemoteService {
        let values = process.environment.iter().map(|(_, value)| value.to_string_lossy());
        self.about.secrets = self.about.secrets.and(&Secrets::new(values.map(Into::into)));
        let process = Arc::new(process);
        let open = move |attempt: Attempt| {
            let process = process.clone();
            async move {
                let transport = process.start(&attempt)?;
                let process = transport.process.clone();
                let begun = attempt.begin(transport).await;
                if begun.is_err() {
                    process.read_exit_message().await;
                }
                begun
            }
            .boxed()
        };
        self.supervised(Box::new(open))
    }
}
