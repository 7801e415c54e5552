//! Writes runs to a file, one JSON object per line.
//!
//! The first line is a header with the version of the format. Each further line has a `kind`: a
//! `run`, which is written when it ends or is suspended, the `composites` of the file that is
//! served, or the number of `dropped` lines. Later lines about a run replace earlier ones.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
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
/// The maximum approximate size in memory of the runs that wait to be written.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// The maximum time that the end of the program waits for the file.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

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
    lines: SyncSender<Option<Waiting>>,
    /// The approximate size of the runs that wait to be written.
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// A line that waits to be written, and its approximate size in memory.
struct Waiting {
    line: Line,
    bytes: usize,
}

struct Writer {
    path: PathBuf,
    file: File,
    /// The size of the file.
    bytes: u64,
    max_bytes: u64,
    /// The header and the last composites, with which the next file begins.
    beginning: [Vec<u8>; 2],
    /// Whether the file ends within a line.
    ends_mid_line: bool,
    has_failed: bool,
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
    redacted: Redacted,
}

// === impl Recorder ===

impl Recorder {
    /// Opens a file, which is created if it does not exist and extended if it is a recording.
    /// Before it exceeds `max_bytes`, it is renamed and another one begins.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written, or is something else than a recording.
    pub(crate) fn open(path: &Path, max_bytes: u64, redacted: Redacted) -> Result<Self, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot record to {}: {error}", path.display());
        let ends_mid_line = ends_mid_line(path).map_err(|error| failed(&error))?;
        let file = append_to(path).map_err(|error| failed(&error))?;
        let bytes = file.metadata().map_err(|error| failed(&error))?.len();
        let (waiting, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
        let (is_waiting, is_dropped) = (waiting.clone(), dropped.clone());
        let mut writer = Writer {
            path: path.to_owned(),
            file,
            bytes,
            max_bytes,
            beginning: [Vec::new(), Vec::new()],
            ends_mid_line,
            has_failed: false,
            waiting: is_waiting,
            dropped: is_dropped,
            redacted,
        };
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
        Ok(Self { lines, waiting, dropped, writer })
    }

    /// Records a run of this approximate size. Never waits.
    pub(crate) fn record(&self, run: &RunRecord, bytes: usize) {
        let waiting = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        if waiting + bytes > MAX_WAITING_BYTES {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.send(Waiting { line: Line::Run(Box::new(run.clone())), bytes });
    }

    /// Records the composites of a file, so that the page can draw them.
    pub(crate) fn composites(&self, composites: Vec<CompositeRecord>) {
        self.send(Waiting { line: Line::Composites { composites }, bytes: 0 });
    }

    fn send(&self, line: Waiting) {
        let bytes = line.bytes;
        if self.lines.try_send(Some(line)).is_err() {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records runs that have not ended, and waits up to five seconds until the file is written.
    pub(super) fn close(&self, open: Vec<RunRecord>) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(writer) = writer else { return };
        let pause = Duration::from_millis(10);
        let mut patience = SHUTDOWN_TIMEOUT;
        let line = |run| Waiting { line: Line::Run(Box::new(run)), bytes: 0 };
        let mut lines = open.into_iter().map(|run| Some(line(run)));
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
            tracing::error!("the recording is incomplete: timed out writing its file");
        }
    }
}

// === impl Writer ===

impl Writer {
    /// Writes lines until `None` arrives.
    fn run(mut self, lines: &Receiver<Option<Waiting>>) {
        while let Ok(Some(Waiting { line, bytes })) = lines.recv() {
            self.write_dropped();
            let line = match line {
                Line::Run(run) => Line::Run(Box::new(run.redacted(&self.redacted))),
                line => line,
            };
            self.write(&line, 1);
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
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
                tracing::error!(%error, "failed to write to the recording; runs are dropped");
            }
        }
        self.has_failed = written.is_err();
    }

    fn try_to_write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        if self.bytes > 0 && self.bytes + text.len() as u64 > self.max_bytes {
            self.rotate()?;
        }
        match line {
            Line::Header { .. } => self.beginning[0].clone_from(&text),
            Line::Composites { .. } => self.beginning[1].clone_from(&text),
            _ => (),
        }
        self.append(&text)
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let text = if self.ends_mid_line {
            Cow::Owned([&b"\n"[..], text].concat())
        } else {
            Cow::Borrowed(text)
        };
        // In one call, so that the lines of two programs are not mixed.
        let written = self.file.write_all(&text);
        self.ends_mid_line = written.is_err();
        self.bytes += text.len() as u64;
        written
    }

    /// Renames the file, and begins another one.
    fn rotate(&mut self) -> io::Result<()> {
        let mut before = self.path.clone().into_os_string();
        before.push(".1");
        fs::rename(&self.path, &before)?;
        tracing::info!("the recording is full and was renamed to {}", before.display());
        self.file = append_to(&self.path)?;
        (self.bytes, self.ends_mid_line) = (0, false);
        let beginning = self.beginning.concat();
        self.append(&beginning)
    }
}

/// Opens a file to append to it, which is created so that only its owner can open it.
fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Returns whether an existing recording ends within a line.
fn ends_mid_line(path: &Path) -> io::Result<bool> {
    // Before it is opened: a pipe would wait for its other end.
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut file = BufReader::new(File::open(path)?);
    let mut header = Vec::new();
    file.by_ref().take(MAX_HEADER_BYTES).read_until(b'\n', &mut header)?;
    if header.is_empty() {
        check_permissions(&metadata)?;
        return Ok(false);
    }
    check_header(&header)
        .map_err(|error| io::Error::other(format!("{error}; it was not changed")))?;
    check_permissions(&metadata)?;
    let mut last = [b'\n'];
    let mut file = file.into_inner();
    io::Seek::seek(&mut file, io::SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Checks that other users cannot read a file.
fn check_permissions(metadata: &fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077 != 0 {
        return Err(io::Error::other("other users may open it: run `chmod 600` on it"));
    }
    let _ = metadata;
    Ok(())
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
    use super::*;

    const RUN: &str = r#"{"id":"a","composite":"offer","status":"running","started_at_ms":1}"#;

    fn writer(file: File, waiting: Arc<AtomicUsize>, dropped: Arc<AtomicU64>) -> Writer {
        let redacted = Redacted::default();
        Writer {
            path: PathBuf::new(),
            file,
            bytes: 0,
            max_bytes: u64::MAX,
            beginning: [Vec::new(), Vec::new()],
            ends_mid_line: false,
            has_failed: false,
            waiting,
            dropped,
            redacted,
        }
    }

    #[cfg(unix)]
    #[test]
    fn recording_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.ndjson");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let open = || Recorder::open(&path, u64::MAX, Redacted::default());
        let error = open().map(drop).unwrap_err();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(open().is_ok());
    }

    #[test]
    fn full_recording_is_renamed_and_another_one_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.ndjson");
        let max_bytes = 1000;
        let recorder = Recorder::open(&path, max_bytes, Redacted::default()).unwrap();
        let composite = CompositeRecord {
            name: "offer".to_owned(),
            view: None,
            mermaid: "flowchart TB".to_owned(),
        };
        recorder.composites(vec![composite]);
        let mut run: RunRecord = serde_json::from_str(RUN).unwrap();
        for number in 0..40 {
            run.id = format!("run {number}");
            recorder.record(&run, 1);
        }
        recorder.close(Vec::new());
        let mut last = Vec::new();
        for path in [folder.path().join("runs.ndjson.1"), path] {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.len() as u64 <= max_bytes, "{text}");
            let kinds: Vec<_> = text
                .lines()
                .map(|line| serde_json::from_str::<Line>(line).unwrap())
                .inspect(|line| {
                    if let Line::Run(run) = line {
                        last.push(run.id.clone());
                    }
                })
                .collect();
            assert!(matches!(kinds[..2], [Line::Header { .. }, Line::Composites { .. }]));
        }
        // The last ones are kept, in order.
        assert!(last.len() >= 4, "{last:?}");
        let expected: Vec<_> =
            (40 - last.len()..40).map(|number| format!("run {number}")).collect();
        assert_eq!(last, expected);
    }

    #[test]
    fn lines_beyond_the_queue_are_dropped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.ndjson");
        // Nothing writes the lines yet.
        let (lines, received) = mpsc::sync_channel(MAX_WAITING);
        let (waiting, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicU64>::default());
        let recorder = Recorder {
            lines,
            waiting: waiting.clone(),
            dropped: dropped.clone(),
            writer: Mutex::default(),
        };
        let run: RunRecord = serde_json::from_str(RUN).unwrap();
        recorder.record(&run, MAX_WAITING_BYTES);
        // The runs that wait are as large as they may be.
        recorder.record(&run, 1);
        for _ in 0..MAX_WAITING + 2 {
            recorder.composites(Vec::new());
        }
        drop(recorder);
        let file = File::create(&path).unwrap();
        writer(file, waiting.clone(), dropped).run(&received);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().next(), Some(r#"{"kind":"dropped","lines":4}"#));
        assert_eq!(text.lines().count(), MAX_WAITING + 1);
        assert_eq!(waiting.load(Ordering::Relaxed), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let dropped = Arc::<AtomicU64>::default();
        let mut writer = writer(file, Arc::default(), dropped.clone());
        writer.write(&Line::Composites { composites: Vec::new() }, 1);
        writer.write_dropped();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert!(writer.ends_mid_line && writer.has_failed);
    }
}
