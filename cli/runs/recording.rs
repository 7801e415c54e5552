//! Writes runs to a file, one JSON object per line.
//!
//! The first line is a header with the version of the format. Each further line has a `kind`: a
//! `run`, which is written when it ends or is suspended, the `composites` of the file that is
//! served, or the number of `dropped` lines. Later lines about a run replace earlier ones.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    entry::now_ms,
    record::{CompositeRecord, RunRecord},
};
use crate::redacted::Redacted;

/// The value of `format` in a header.
pub(super) const FORMAT: &str = "mcp-composite recording";
/// The version of the format. A program reads recordings of its own version only.
pub(super) const VERSION: u32 = 1;

/// The maximum size of a header, including its line break.
pub(super) const MAX_HEADER_BYTES: u64 = 4096;

/// The maximum number of lines that wait to be written. Further lines are dropped.
const MAX_WAITING: usize = 256;
/// The maximum time that the end of the program waits for the file.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// A line of a recording.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Line {
    Header {
        format: String,
        version: u32,
        /// The version of the program.
        program: String,
        started_at_ms: u64,
    },
    Composites {
        composites: Vec<CompositeRecord>,
    },
    Run(Box<RunRecord>),
    /// Lines that were dropped because the file was too slow or could not be written.
    Dropped {
        lines: u64,
    },
    /// A line of a kind that a later version of the program writes.
    #[serde(other)]
    Unknown,
}

/// Writes a recording from a thread of its own, so that no call waits for the file.
pub(crate) struct Recorder {
    lines: SyncSender<Option<Line>>,
    dropped: Arc<AtomicU64>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct Writer {
    file: File,
    /// Whether the file ends within a line.
    is_torn: bool,
    has_failed: bool,
    dropped: Arc<AtomicU64>,
    redacted: Redacted,
}

// === impl Recorder ===

impl Recorder {
    /// Opens a file, which is created if it does not exist and extended if it is a recording.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or is something else than a recording.
    pub(crate) fn open(path: &Path, redacted: Redacted) -> Result<Self, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot record to {}: {error}", path.display());
        let is_torn = is_torn(path).map_err(|error| failed(&error))?;
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|error| failed(&error))?;
        let dropped = Arc::<AtomicU64>::default();
        let mut writer =
            Writer { file, is_torn, has_failed: false, dropped: dropped.clone(), redacted };
        let header = Line::Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            started_at_ms: now_ms(),
        };
        writer.try_to_write(&header).map_err(|error| failed(&error))?;
        let (lines, received) = mpsc::sync_channel(MAX_WAITING);
        let spawned = thread::Builder::new().name("recording".to_owned());
        let writer = spawned.spawn(move || writer.run(&received));
        let writer = Mutex::new(Some(writer.map_err(|error| failed(&error))?));
        Ok(Self { lines, dropped, writer })
    }

    /// Records a run. Never waits.
    pub(crate) fn record(&self, run: &RunRecord) {
        self.send(Line::Run(Box::new(run.clone())));
    }

    /// Records the composites of a file, so that the page can draw them.
    pub(crate) fn composites(&self, composites: Vec<CompositeRecord>) {
        self.send(Line::Composites { composites });
    }

    fn send(&self, line: Line) {
        if self.lines.try_send(Some(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records runs that have not ended, and waits up to five seconds until the file is written.
    pub(super) fn close(&self, open: Vec<RunRecord>) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(writer) = writer else { return };
        let pause = Duration::from_millis(10);
        let mut patience = LAST_PATIENCE;
        let mut lines = open.into_iter().map(|run| Some(Line::Run(Box::new(run))));
        let mut next = lines.next().unwrap_or(None);
        while !writer.is_finished() && !patience.is_zero() {
            let is_last = next.is_none();
            match self.lines.try_send(next) {
                Ok(()) if is_last => break,
                Ok(()) => next = lines.next().unwrap_or(None),
                Err(TrySendError::Full(line) | TrySendError::Disconnected(line)) => {
                    next = line;
                    thread::sleep(pause);
                    patience = patience.saturating_sub(pause);
                }
            }
        }
        while !writer.is_finished() && !patience.is_zero() {
            thread::sleep(pause);
            patience = patience.saturating_sub(pause);
        }
        if !writer.is_finished() {
            tracing::error!("the recording is incomplete: its file could not be written in time");
        }
    }
}

// === impl Writer ===

impl Writer {
    /// Writes lines until `None` arrives.
    fn run(mut self, lines: &Receiver<Option<Line>>) {
        while let Ok(Some(line)) = lines.recv() {
            self.write_dropped();
            let line = match line {
                Line::Run(run) => Line::Run(Box::new(run.redacted(&self.redacted))),
                line => line,
            };
            self.write(&line, 1);
        }
        self.write_dropped();
    }

    fn write_dropped(&mut self) {
        let lines = self.dropped.swap(0, Ordering::Relaxed);
        if lines > 0 {
            self.write(&Line::Dropped { lines }, lines);
        }
    }

    /// Writes a line, or counts lines as dropped if the file cannot be written.
    fn write(&mut self, line: &Line, lost: u64) {
        let written = self.try_to_write(line);
        if let Err(error) = &written {
            self.dropped.fetch_add(lost, Ordering::Relaxed);
            if !self.has_failed {
                tracing::error!(%error, "the recording cannot be written; runs are dropped");
            }
        }
        self.has_failed = written.is_err();
    }

    fn try_to_write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = if self.is_torn { b"\n".to_vec() } else { Vec::new() };
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
        // In one call, so that the lines of two programs are not mixed.
        let written = self.file.write_all(&text);
        self.is_torn = written.is_err();
        written
    }
}

/// Returns whether an existing recording ends within a line.
fn is_torn(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut file = BufReader::new(file);
    let mut header = Vec::new();
    file.by_ref().take(MAX_HEADER_BYTES).read_until(b'\n', &mut header)?;
    if header.is_empty() {
        return Ok(false);
    }
    check_header(&header)
        .map_err(|error| io::Error::other(format!("{error}; it was not changed")))?;
    let mut last = [b'\n'];
    let mut file = file.into_inner();
    io::Seek::seek(&mut file, io::SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Checks the first line of a recording.
///
/// # Errors
///
/// Returns an error if it is no header, or one of another version.
pub(super) fn check_header(line: &[u8]) -> Result<(), String> {
    match serde_json::from_slice(line) {
        Ok(Line::Header { format, version, .. }) if format == FORMAT => {
            if version == VERSION {
                return Ok(());
            }
            Err(format!(
                "the recording has version {version}, and this program reads version {VERSION}"
            ))
        }
        _ => Err("it is not a recording of `serve --record`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_beyond_the_queue_are_dropped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.ndjson");
        // Nothing writes the lines yet.
        let (lines, received) = mpsc::sync_channel(MAX_WAITING);
        let dropped = Arc::<AtomicU64>::default();
        let recorder = Recorder { lines, dropped: dropped.clone(), writer: Mutex::default() };
        for _ in 0..MAX_WAITING + 3 {
            recorder.composites(Vec::new());
        }
        drop(recorder);
        let file = File::create(&path).unwrap();
        let redacted = Redacted::default();
        Writer { file, is_torn: false, has_failed: false, dropped, redacted }.run(&received);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().next(), Some(r#"{"kind":"dropped","lines":3}"#));
        assert_eq!(text.lines().count(), MAX_WAITING + 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let (dropped, redacted) = (Arc::<AtomicU64>::default(), Redacted::default());
        let mut writer =
            Writer { file, is_torn: false, has_failed: false, dropped: dropped.clone(), redacted };
        writer.write(&Line::Composites { composites: Vec::new() }, 1);
        writer.write_dropped();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert!(writer.is_torn && writer.has_failed);
    }
}
