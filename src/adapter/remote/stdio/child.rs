//! The child process in which a server runs, and a transport over its pipes.

use std::{
    io,
    pin::pin,
    process::ExitStatus,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::{self, Either};
use process_wrap::tokio::ChildWrapper;
use rmcp::{
    RoleClient,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{ChildStdin, ChildStdout},
    sync::Mutex,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::Remote;
use crate::{
    adapter::{LineTransport, remote::exit_reason::ExitReason},
    json_size::json_bytes,
};

/// The time that a child process has to exit after its input was closed. It has the same time again
/// after `SIGTERM`.
const GRACE: Duration = Duration::from_secs(3);
/// The time to wait for the rest of a child's output after its exit, or for its exit status and
/// last error messages after it has closed its output.
const LEGACY: Duration = Duration::from_millis(500);
/// The timeout for writing a message to the standard input of a child process. A child that does
/// not read its input exceeds it once the buffer of the pipe is full.
const SEND_TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum number of bytes that may wait to be written to a child that does not read its input.
const MAX_UNREAD: usize = 64 * 1024 * 1024;
/// The number of the signal `SIGTERM`, which is the same on all POSIX systems.
#[cfg(unix)]
const SIGTERM: i32 = 15;
/// The maximum number of bytes that are buffered for a line of standard error. The rest of a longer
/// line is discarded. A secret at the cut would not be redacted, but only far fewer bytes are
/// logged.
const LINE_KEPT: usize = 64 * 1024;

/// A transport over the standard input and output of a child process.
pub(super) struct ChildTransport {
    pipes: LineTransport<RoleClient, ChildStdout, ChildStdin>,
    pub(super) process: Arc<Process>,
    /// The total size in bytes of the messages that wait to be written to the child.
    unread: Arc<AtomicUsize>,
    /// Cancelled when the child has stopped reading its input. This ends the connection.
    stalled: CancellationToken,
}

/// A child process in which a server runs. Dropping this value kills the process.
pub(super) struct Process {
    child: Mutex<Child>,
    /// The task that logs the standard error of the child line by line.
    errors: Mutex<JoinSet<()>>,
    last_line: ExitReason,
    last_words: ExitReason,
    /// `true` if the child closed its standard output before this program closed the connection.
    /// The reported reason then includes the exit status of the child.
    has_left: AtomicBool,
    /// The time at which this program stops reading the output of a child that has exited. Other
    /// processes may keep the output open. The time is set only once, although rmcp restarts the
    /// future of `receive` repeatedly.
    given_up_at: OnceLock<Instant>,
}

/// A child process and its process group. Dropping this value kills the whole group.
struct Child {
    process: Box<dyn ChildWrapper>,
    has_ended: bool,
}

// === impl ChildTransport ===

impl ChildTransport {
    pub(super) fn new(
        mut child: Box<dyn ChildWrapper>,
        remote: &Arc<Remote>,
        last_words: ExitReason,
    ) -> io::Result<Self> {
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin().take(), child.stdout().take(), child.stderr().take())
        else {
            return Err(io::Error::other("the child has no pipes"));
        };
        let last_line = ExitReason::default();
        let mut errors = JoinSet::new();
        errors.spawn(read_errors(stderr, remote.clone(), last_line.clone()));
        let peer = format!("backend `{}`", remote.about.name);
        let process = Process {
            child: Mutex::new(Child { process: child, has_ended: false }),
            errors: Mutex::new(errors),
            last_line,
            last_words,
            has_left: AtomicBool::new(false),
            given_up_at: OnceLock::new(),
        };
        Ok(Self {
            pipes: LineTransport::new(stdout, stdin).peer(peer),
            process: Arc::new(process),
            unread: Arc::default(),
            stalled: CancellationToken::new(),
        })
    }
}

// === impl Process ===

impl Process {
    /// Waits a short time for the exit status of a child that has closed its output, and for the
    /// last line of its standard error. Stores both as the reason why the connection has ended.
    pub(super) async fn read_exit_message(&self) {
        let exited = async { self.child.lock().await.exit().await };
        let mut words = match timeout(LEGACY, exited).await {
            Ok(Ok(status)) => exit_message(status),
            _ => "it closed its output".to_owned(),
        };
        let _ = timeout(LEGACY, self.errors.lock().await.join_next()).await;
        if let Some(line) = self.last_line.take() {
            words = format!("{words}; the last line of its standard error is `{line}`");
        }
        self.last_words.set(words);
    }

    /// Waits until the deadline for reading the output of an exited child, which is [`LEGACY`]
    /// after the exit.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the next call still waits for the same deadline.
    async fn given_up(&self) {
        let given_up_at = match self.given_up_at.get() {
            Some(given_up_at) => *given_up_at,
            None => {
                let _ = self.child.lock().await.exit().await;
                *self.given_up_at.get_or_init(|| Instant::now() + LEGACY)
            }
        };
        sleep_until(given_up_at).await;
    }

    /// Waits until a child whose input was closed has exited. If the child does not exit in time,
    /// sends `SIGTERM`, and kills the child if it still does not exit. All other processes in its
    /// process group are killed in any case.
    async fn end(&self) -> io::Result<()> {
        if self.has_left.load(Ordering::Relaxed) {
            self.read_exit_message().await;
        }
        let mut child = self.child.lock().await;
        let has_exited = timeout(GRACE, child.exit()).await.is_ok();
        #[cfg(unix)]
        let has_exited = has_exited
            || child.process.signal(SIGTERM).is_ok() && timeout(GRACE, child.exit()).await.is_ok();
        // Processes that the child has started may still be running, so the whole process group is
        // killed.
        let killed = child.process.start_kill();
        if !has_exited {
            killed?;
        }
        child.process.wait().await?;
        child.has_ended = true;
        Ok(())
    }
}

impl Transport<RoleClient> for ChildTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let bytes = Bytes::of(&item, &self.unread);
        if bytes.are_too_many() {
            self.stalled.cancel();
        }
        let sent = sent_in_time(self.pipes.send(item), self.stalled.clone());
        async move {
            let _bytes = bytes;
            sent.await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let received = pin!(self.stalled.run_until_cancelled(self.pipes.receive()));
        // The deadline is polled first, because a process that the child has started may keep the
        // pipes open and write without end.
        let received = match future::select(pin!(self.process.given_up()), received).await {
            Either::Left(((), _)) => Some(None),
            Either::Right((received, _)) => received,
        };
        match received {
            Some(None) => self.process.has_left.store(true, Ordering::Relaxed),
            Some(received) => return received,
            None => self.process.last_words.or("it does not read its input"),
        }
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        // Without the timeout, closing would wait forever if the child does not read a message.
        if let Ok(closed) = timeout(GRACE, self.pipes.close()).await {
            closed?;
        }
        self.process.end().await
    }
}

// === impl Child ===

impl Child {
    /// Waits until the child itself has exited. Does not wait for other processes in the child's
    /// process group.
    ///
    /// If this process is PID 1 or a subreaper, it becomes the parent of processes that the child
    /// leaves behind. Waiting for the whole process group would then also wait for these processes.
    async fn exit(&mut self) -> io::Result<ExitStatus> {
        self.process.inner_mut().wait().await
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A child that has ended is not killed, because its process ID may have been reused.
        if !self.has_ended
            && let Err(error) = self.process.start_kill()
        {
            tracing::debug!(%error, "failed to kill a child process");
        }
    }
}

/// A guard that counts a message toward the number of bytes that wait to be written. Dropping the
/// guard subtracts the bytes of the message again.
struct Bytes {
    count: usize,
    /// The total size in bytes of the messages that were already waiting when this message was
    /// added.
    others: usize,
    all: Arc<AtomicUsize>,
}

impl Bytes {
    fn of(message: &impl Serialize, all: &Arc<AtomicUsize>) -> Self {
        let count = json_bytes(message);
        let others = all.fetch_add(count, Ordering::Relaxed);
        Self { count, others, all: all.clone() }
    }

    /// Returns `true` if this message and the messages that were already waiting together exceed
    /// the maximum. If no other message is waiting, returns `false` for a message of any size.
    const fn are_too_many(&self) -> bool {
        self.others > 0 && self.others + self.count > MAX_UNREAD
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.all.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// Waits until a message was sent. If the message is not sent within [`SEND_TIMEOUT`], cancels
/// `stalled` to end the connection, and continues to wait.
async fn sent_in_time<F: Future>(sent: F, stalled: CancellationToken) -> F::Output {
    let mut sent = pin!(sent);
    if let Ok(sent) = timeout(SEND_TIMEOUT, &mut sent).await {
        return sent;
    }
    stalled.cancel();
    sent.await
}

/// Logs the standard error of a child line by line, and stores the last line in `last_line`.
async fn read_errors(stderr: impl AsyncRead + Unpin, remote: Arc<Remote>, last_line: ExitReason) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        // Read in chunks, because a line may have any length.
        let (taken, is_whole) = match stderr.fill_buf().await {
            Ok([]) | Err(_) => break,
            Ok(buffer) => {
                let end = buffer.iter().position(|&byte| byte == b'\n');
                let taken = end.map_or(buffer.len(), |end| end + 1);
                let room = LINE_KEPT.saturating_sub(line.len());
                line.extend_from_slice(&buffer[..end.unwrap_or(taken).min(room)]);
                (taken, end.is_some())
            }
        };
        stderr.consume(taken);
        if is_whole {
            log(&line, &remote, &last_line);
            line.clear();
        }
    }
    log(&line, &remote, &last_line);
}

fn log(line: &[u8], remote: &Remote, last_line: &ExitReason) {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end();
    if !line.is_empty() {
        let line = remote.about.redact_text(line);
        // Logged at `DEBUG`, because older servers often complain about the discovery request.
        tracing::debug!(
            backend = &*remote.about.name,
            line,
            "a line from the standard error of a backend"
        );
        last_line.set(line);
    }
}

/// Describes how a process has ended, for example with its exit status, in an error message.
fn exit_message(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("it was killed by signal {signal}");
    }
    match status.code() {
        Some(code) => format!("it exited with status {code}"),
        None => "it exited".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, repeat};

    use super::*;
    use crate::{adapter::remote::redaction::About, changes::Changes};

    #[test]
    fn endless_line_of_standard_error_takes_bounded_memory() {
        let about = About::new("far");
        let remote = Remote::new(about, GRACE, Arc::default(), true, Changes::default());
        let (remote, last) = (Arc::new(remote), ExitReason::default());
        let endless = repeat(b'x').take(16 << 20);
        let read = allocation_counter::measure(|| {
            futures::executor::block_on(read_errors(endless, remote.clone(), last.clone()));
        });
        assert!(last.take().is_some());
        assert!(read.bytes_max < 8 * LINE_KEPT as u64, "{} bytes", read.bytes_max);
    }

    #[test]
    fn unread_limit_is_exceeded_only_by_several_messages() {
        let all = Arc::default();
        let one = Bytes::of(&"x".repeat(MAX_UNREAD), &all);
        assert!(!one.are_too_many());
        let two = Bytes::of(&"y", &all);
        assert!(two.are_too_many());
        drop((one, two));
        assert!(!Bytes::of(&"y", &all).are_too_many());
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn child_that_does_not_read_is_stalled_after_the_timeout() {
        let stalled = CancellationToken::new();
        sent_in_time(std::future::ready(()), stalled.clone()).await;
        let late = tokio::time::sleep(SEND_TIMEOUT - Duration::from_secs(1));
        sent_in_time(late, stalled.clone()).await;
        assert!(!stalled.is_cancelled());

        let never = sent_in_time(std::future::pending::<()>(), stalled.clone());
        assert!(timeout(SEND_TIMEOUT * 2, never).await.is_err());
        assert!(stalled.is_cancelled());
    }
}
