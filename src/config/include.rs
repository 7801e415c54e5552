//! Reads and merges the files that a configuration file includes.
//!
//! The texts of all files are concatenated. Each included file is parsed, and merged into the tree
//! of the main file. The spans in this tree are offsets in the concatenated text.

use std::{
    borrow::Cow,
    fs,
    io::{self, Read as _},
    ops::Range,
    path::{Path, PathBuf},
    time::SystemTime,
};

use toml::{
    Spanned,
    de::{DeTable, DeValue, Error},
};

use super::{
    fault::Fault,
    hints,
    node::Node,
    secret_spans::{masked_path, masks, values},
    source::File,
    word::is_word,
};
use crate::composite::Segment;

/// The key of a configuration file that contains the list of files to include.
pub(super) const KEY: &str = "include";
/// The only section that an included file may contain.
const SECTION: &str = "composite_tools";
/// Maximum number of files that a configuration file includes.
const MAX_FILES: usize = 1_000;
/// Maximum total size in bytes of a configuration file and the files that it includes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The files from which a configuration was read. To detect changed files, compare the current
/// [`stamp`](Self::stamp) with an earlier stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    file: Option<PathBuf>,
    include: Vec<String>,
    /// The path of the lock file, which contains the approved tool definitions. `None` if the
    /// configuration uses no lock file.
    lock: Option<PathBuf>,
}

/// The modification times and sizes of the files in [`Sources`]. Compare two stamps to find out
/// whether a file was changed, added or removed between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp(Vec<(PathBuf, Option<(SystemTime, u64)>)>);

/// The texts of a configuration file and of the files that it includes.
pub(super) struct Texts {
    /// The concatenated texts of all files, separated by line breaks.
    pub(super) text: String,
    /// All files that were read, beginning with the main file, which includes the others. The list
    /// is never empty.
    pub(super) files: Vec<File>,
    pub(super) sources: Sources,
    /// Errors in the list `include`, for example that a file cannot be read. Each consists of the
    /// index of the list element and an error message.
    pub(super) mistakes: Vec<(usize, String)>,
}

/// The result of parsing and merging a configuration file and the files that it includes.
pub(super) struct Parsed<'t> {
    pub(super) root: Node<'t>,
    /// The TOML syntax errors of each file. The number is the offset of the file in the
    /// concatenated text.
    pub(super) errors: Vec<(usize, Vec<Error>)>,
    /// The spans that error messages must mask, because they may contain secrets.
    pub(super) masks: Vec<Range<usize>>,
    /// Mistakes that were found while the files were parsed and merged, for example a section that
    /// an included file must not contain.
    pub(super) faults: Vec<Fault>,
    /// For each file, the number of composites in the files that precede it. Used to compute the
    /// index of a composite within its file.
    pub(super) before: Vec<usize>,
}

// === impl Sources ===

impl Sources {
    /// Returns the current modification times and sizes of the files. The stamp is empty if the
    /// configuration was read from a string.
    ///
    /// The stamp also contains the paths of files that are missing or inaccessible. It changes when
    /// such a file becomes available.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let Some(file) = &self.file else { return Stamp::default() };
        let mut files = vec![file.clone()];
        for pattern in &self.include {
            files.extend(find(file, pattern).unwrap_or_default());
        }
        files.extend(self.lock.clone());
        let stamp = |file: PathBuf| {
            let metadata = fs::metadata(&file).ok();
            let changed =
                metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len())));
            (file, changed)
        };
        Stamp(files.into_iter().map(stamp).collect())
    }

    /// Returns the directory of the configuration file. Paths in the file are relative to this
    /// directory. The path is empty if the configuration was read from a string.
    pub(super) fn directory(&self) -> &Path {
        self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""))
    }

    pub(super) fn set_lock(&mut self, lock: PathBuf) {
        self.lock = Some(lock);
    }
}

// === impl Texts ===

impl Texts {
    /// Reads all files that the main configuration file includes. `text` is the content of the main
    /// file, and `path` its path. `path` is `None` if the content was not read from a file.
    pub(super) fn gather(text: &str, path: Option<&Path>) -> Self {
        let file = path.map(Path::to_owned);
        let mut texts = Self {
            text: text.to_owned(),
            files: vec![File { path: file.clone(), start: 0 }],
            sources: Sources { file, include: Vec::new(), lock: None },
            mistakes: Vec::new(),
        };
        for (place, pattern) in included(text) {
            texts.include(place, pattern);
        }
        texts
    }

    fn include(&mut self, place: usize, pattern: String) {
        let Some(file) = self.sources.file.clone() else {
            let message = "only a file can include others: load it by its path".to_owned();
            self.mistakes.push((place, message));
            return;
        };
        let found = find(&file, &pattern);
        self.sources.include.push(pattern);
        match found {
            Ok(paths) => {
                for path in paths {
                    self.read(place, path);
                }
            }
            Err(message) => self.mistakes.push((place, message)),
        }
    }

    fn read(&mut self, place: usize, path: PathBuf) {
        let mut paths = self.files.iter().filter_map(|file| file.path.as_deref());
        if paths.any(|there| is_same(there, &path)) {
            return;
        }
        if self.files.len() > MAX_FILES {
            let message = format!("too many files: expected at most {MAX_FILES}");
            self.mistakes.push((place, message));
            return;
        }
        match read_text(&path, MAX_FILE_BYTES.saturating_sub(self.text.len() as u64)) {
            Ok(text) => {
                self.text.push('\n');
                let start = self.text.len();
                self.text.push_str(&text);
                self.files.push(File { path: Some(path), start });
            }
            Err(error) => {
                let reason = match error.kind() {
                    io::ErrorKind::NotFound => "file not found".to_owned(),
                    io::ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
                    io::ErrorKind::FileTooLarge => error.to_string(),
                    kind => kind.to_string(),
                };
                self.mistakes.push((place, format!("cannot read `{}`: {reason}", path.display())));
            }
        }
    }

    /// Parses the texts of all files, and merges the results into one tree.
    pub(super) fn parse(&self) -> Parsed<'_> {
        let mut parsed = Parsed {
            masks: Vec::new(),
            root: Spanned::new(0..0, DeValue::Boolean(false)),
            errors: Vec::new(),
            faults: Vec::new(),
            before: vec![0],
        };
        let table = parsed.parse(self.text_of(0), 0);
        let span = table.span();
        let mut main = table.into_inner();
        for place in 1..self.files.len() {
            let (text, start) = (self.text_of(place), self.files[place].start);
            let table = parsed.parse(text, start);
            parsed.before.push(composites(&main));
            parsed.add(&mut main, moved_table(table.into_inner(), start));
        }
        parsed.root = Spanned::new(span, DeValue::Table(main));
        parsed
    }

    fn text_of(&self, place: usize) -> &str {
        let end = self.files.get(place + 1).map_or(self.text.len(), |next| next.start - 1);
        &self.text[self.files[place].start..end]
    }
}

/// Reads the text of the main configuration file.
///
/// # Errors
///
/// Returns an error if the file cannot be read, is not UTF-8 text, or exceeds the maximum total
/// size.
pub(super) fn read_first(path: &Path) -> io::Result<String> {
    read_text(path, MAX_FILE_BYTES)
}

/// Reads a text file. Returns an error if the file is larger than `room`, the remaining part of the
/// size limit for all files.
fn read_text(path: &Path, room: u64) -> io::Result<String> {
    let mut text = Vec::new();
    // Limits the number of bytes read, because the size of a device is unknown, and reading it may
    // never end.
    let mut file = fs::File::open(path)?.take(room + 1);
    file.read_to_end(&mut text)?;
    if file.limit() > 0 {
        let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
        return String::from_utf8(text).map_err(no_text);
    }
    let why = format!("all files together have more than {} MiB", MAX_FILE_BYTES >> 20);
    Err(io::Error::new(io::ErrorKind::FileTooLarge, why))
}

/// Returns the strings in the `include` list of the main file, numbered from zero. Skips elements
/// that are not strings, because the reader also removes them after reporting them.
fn included(text: &str) -> Vec<(usize, String)> {
    let (table, _) = DeTable::parse_recoverable(text);
    let elements = table.get_ref().get(KEY).and_then(|node| node.get_ref().as_array());
    let texts = elements.into_iter().flatten().filter_map(|element| element.get_ref().as_str());
    texts.map(str::to_owned).enumerate().collect()
}

/// Returns the paths of the files that match `pattern`, sorted by name. `pattern` is an element of
/// `include`, and is relative to the directory of `file`. Returns an error message if the pattern
/// is not valid.
fn find(file: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let directory = file.parent().unwrap_or(Path::new(""));
    if pattern.trim().is_empty() {
        return Err("it is blank: expected the path of a file".to_owned());
    }
    if !pattern.contains(['*', '?', '[']) {
        return Ok(vec![directory.join(pattern)]);
    }
    // Escapes special characters in the directory of the file, because only the path that is
    // written in the file is a pattern.
    let escaped = PathBuf::from(glob::Pattern::escape(&directory.to_string_lossy()));
    let pattern = escaped.join(pattern);
    let found = glob::glob(&pattern.to_string_lossy())
        .map_err(|error| format!("invalid file pattern: {}", error.msg))?;
    let files = found.filter_map(Result::ok).filter(|path| path.is_file());
    Ok(files.take(MAX_FILES + 1).collect())
}

fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

// === impl Parsed ===

impl<'t> Parsed<'t> {
    /// Parses the text of one file, and records its syntax errors and the spans to mask. `start` is
    /// the offset of this text in the concatenated text.
    fn parse(&mut self, text: &'t str, start: usize) -> Spanned<DeTable<'t>> {
        // Detects JSON before parsing, because the parser's error message for JSON would not be
        // helpful. A TOML file never begins with `{`.
        if let Some(at) = hints::start_of_json(text) {
            let span = start + at..start + at + 1;
            self.masks.push(span.end..start + text.len());
            self.faults.push(Fault::new(hints::json(text), span));
            return Spanned::new(0..text.len(), DeTable::new());
        }
        let (table, errors) = DeTable::parse_recoverable(text);
        let masks = masks(text, table.get_ref(), !errors.is_empty());
        self.masks.extend(masks.into_iter().map(|mask| mask.start + start..mask.end + start));
        self.errors.push((start, errors));
        table
    }

    /// Appends the composites of the included file `included` to those of the main file `main`.
    /// Reports all other sections of the included file.
    fn add(&mut self, main: &mut DeTable<'t>, included: DeTable<'t>) {
        for (key, node) in included {
            if key.get_ref() != SECTION {
                self.refuse(&key, &node);
                continue;
            }
            let span = node.span();
            let DeValue::Array(more) = node.into_inner() else {
                let message = format!("expected an array of tables: write `[[{SECTION}]]`");
                self.faults.push(Fault { path: vec![SECTION.into()], message, span });
                continue;
            };
            match main.get_mut(SECTION).map(Spanned::get_mut) {
                Some(DeValue::Array(there)) => more.into_iter().for_each(|node| there.push(node)),
                // In the first file, the value has a wrong type. This is reported when the section
                // is read.
                Some(_) => (),
                None => {
                    main.insert(key, Spanned::new(span, DeValue::Array(more)));
                }
            }
        }
    }

    /// Reports a section that is not allowed in an included file. Masks the values in the section,
    /// because they may be secret.
    fn refuse(&mut self, key: &Spanned<Cow<'_, str>>, node: &Node<'_>) {
        let message =
            format!("only `[[{SECTION}]]` can be included: expected it in the first file");
        let path = [Segment::from(&**key.get_ref())];
        let path = masked_path(&path, true);
        if !is_word(key.get_ref()) {
            self.masks.push(key.span());
        }
        values(node, &mut self.masks);
        self.faults.push(Fault { path, message, span: key.span() });
    }
}

/// Returns the number of composites that a parsed file contains.
fn composites(table: &DeTable<'_>) -> usize {
    table.get(SECTION).and_then(|node| node.get_ref().as_array()).map_or(0, |array| array.len())
}

// === Moving ===

/// Adds `start` to all spans in a parsed table. The spans are then offsets in the concatenated
/// text, in which the file begins at `start`.
fn moved_table(table: DeTable<'_>, start: usize) -> DeTable<'_> {
    let entries = table.into_iter();
    entries.map(|(key, node)| (moved(key, start), moved_node(node, start))).collect()
}

fn moved_node(node: Node<'_>, start: usize) -> Node<'_> {
    let span = node.span();
    let value = match node.into_inner() {
        DeValue::Array(array) => {
            DeValue::Array(array.into_iter().map(|node| moved_node(node, start)).collect())
        }
        DeValue::Table(table) => DeValue::Table(moved_table(table, start)),
        other => other,
    };
    moved(Spanned::new(span, value), start)
}

fn moved<T>(spanned: Spanned<T>, start: usize) -> Spanned<T> {
    let span = spanned.span();
    Spanned::new(span.start + start..span.end + start, spanned.into_inner())
}
