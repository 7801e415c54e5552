//! Reads recordings.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use super::{
    log::RunLog,
    record::CompositeRecord,
    recording::{Line, MAX_HEADER_BYTES, check_header},
};

/// The maximum size of a line. The program writes shorter ones.
const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;

/// A recording that was read from a file.
pub(crate) struct Recording {
    /// The last runs of the recording.
    pub(crate) runs: RunLog,
    /// The composites that were served last.
    pub(crate) composites: Vec<CompositeRecord>,
    /// Warnings about parts of the recording that are missing.
    pub(crate) warning: Option<String>,
}

// === impl Recording ===

impl Recording {
    /// Reads a recording. Lines that are incomplete or invalid are left out, with a warning.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or does not begin with the header of a
    /// recording.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let read = File::open(path).map_err(|error| error.to_string());
        read.and_then(|file| Self::parse(BufReader::new(file)))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(mut file: impl BufRead) -> Result<Self, String> {
        let mut text = Vec::new();
        let failed = |error: io::Error| error.to_string();
        file.by_ref().take(MAX_HEADER_BYTES).read_until(b'\n', &mut text).map_err(failed)?;
        check_header(&text)?;
        let (runs, mut composites) = (RunLog::new(true, None), Vec::new());
        let (mut number, mut dropped, mut invalid) = (1_u64, 0_u64, Vec::new());
        loop {
            text.clear();
            number += 1;
            let max = MAX_LINE_BYTES;
            let read = file.by_ref().take(max).read_until(b'\n', &mut text).map_err(failed)?;
            if read == 0 {
                break;
            }
            match serde_json::from_slice(&text) {
                Ok(Line::Run(run)) => runs.add(*run, 2 * text.len()),
                Ok(Line::Composites { composites: latest }) => composites = latest,
                Ok(Line::Dropped { lines }) => dropped += lines,
                Ok(Line::Header { .. } | Line::Unknown) => (),
                Err(_) if text.trim_ascii().is_empty() => (),
                Err(_) => invalid.push(number),
            }
        }
        Ok(Self { runs, composites, warning: warning(&invalid, dropped) })
    }
}

fn warning(invalid: &[u64], dropped: u64) -> Option<String> {
    let mut warnings = Vec::new();
    match invalid {
        [] => (),
        [line] => warnings.push(format!("line {line} is incomplete or invalid and is left out")),
        [first, ..] => warnings.push(format!(
            "{} lines are incomplete or invalid and are left out, the first is line {first}",
            invalid.len()
        )),
    }
    if dropped > 0 {
        warnings.push(format!("{dropped} lines were dropped when the file was recorded"));
    }
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"kind":"header","format":"mcp-composite recording","version":1,"program":"0.1.0","started_at_ms":1}"#;
    const RUN: &str =
        r#"{"kind":"run","id":"a","composite":"offer","status":"running","started_at_ms":1}"#;

    fn parse(text: &str) -> Result<Recording, String> {
        Recording::parse(text.as_bytes())
    }

    fn ids(recording: &Recording) -> Vec<String> {
        let redacted = crate::redacted::Redacted::default();
        let json = recording.runs.since(0, &redacted, |runs, _| serde_json::to_value(runs));
        let runs = json.unwrap();
        let id = |run: &serde_json::Value| format!("{} {}", run["id"], run["status"]);
        runs.as_array().unwrap().iter().map(id).collect()
    }

    #[test]
    fn later_record_of_a_run_replaces_the_earlier() {
        let ended = RUN.replace("running", "completed");
        let recording = parse(&format!("{HEADER}\n{RUN}\n{HEADER}\n\n{ended}\n")).unwrap();
        assert_eq!(ids(&recording), [r#""a" "completed""#]);
        assert_eq!(recording.warning, None);
    }

    #[test]
    fn line_that_is_cut_is_left_out_with_a_warning() {
        let (half, _) = RUN.split_at(40);
        let recording = parse(&format!("{HEADER}\n{RUN}\n{half}")).unwrap();
        assert_eq!(ids(&recording), [r#""a" "running""#]);
        let warning = "line 3 is incomplete or invalid and is left out";
        assert_eq!(recording.warning.as_deref(), Some(warning));
    }

    #[test]
    fn unknown_kinds_are_ignored_and_drops_are_reported() {
        let text =
            format!("{HEADER}\n{{\"kind\":\"new\"}}\n{{\"kind\":\"dropped\",\"lines\":3}}\n");
        let warning = parse(&text).unwrap().warning.unwrap();
        assert_eq!(warning, "3 lines were dropped when the file was recorded");
    }

    #[test]
    fn other_files_are_rejected() {
        for (text, error) in [
            (String::new(), "not a recording"),
            (RUN.to_owned(), "not a recording"),
            ("[[backends]]\nname = 'a'".to_owned(), "not a recording"),
            ("x".repeat(10_000), "not a recording"),
            (HEADER.replace("\"version\":1", "\"version\":2"), "has version 2"),
        ] {
            let message = parse(&text).err().unwrap();
            assert!(message.contains(error), "{message}");
        }
    }
}
