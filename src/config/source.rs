//! The text of a configuration, in which positions are mapped to files and lines. Some spans are
//! masked, because they may contain secrets.

use std::{borrow::Cow, ops::Range, path::PathBuf};

/// Error messages quote at most this many characters of a line before the marked part.
const BEFORE: usize = 60;
/// Error messages quote at most this many characters of a line.
const MAX_EXCERPT: usize = 100;

/// The text that replaces a masked span in an error message.
const MASK: &str = "***";

/// The concatenated text of all configuration files. Maps offsets in the text to files and lines,
/// and masks the spans that may contain secrets.
pub(super) struct Source<'t> {
    text: &'t str,
    /// The files whose texts were concatenated, in the order of the text. The list is never empty.
    files: Vec<File>,
    starts: Vec<usize>,
    /// The spans that error messages display as `***`, because they may contain secrets. They are
    /// sorted, and do not overlap.
    masks: Vec<Range<usize>>,
}

/// A configuration file whose text is a part of the concatenated text.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: Option<PathBuf>,
    /// The offset of the file's text in the concatenated text.
    pub(super) start: usize,
}

/// The position of a mistake in a configuration file, and an excerpt of the line for the error
/// message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceLocation {
    /// The path of the file. `None` if the configuration was read from a string.
    pub(super) file: Option<PathBuf>,
    /// The line number in the file, starting at one.
    pub(super) line: usize,
    /// The column of the first marked character, in characters, starting at one.
    pub(super) column: usize,
    /// The part of the line that the error message displays, with secrets masked.
    pub(super) excerpt: String,
    /// The number of characters of the excerpt before the mistake.
    pub(super) before: usize,
    /// The number of characters of the excerpt that the error message marks as the mistake. At
    /// least one.
    pub(super) marked: usize,
}

// === impl Source ===

impl<'t> Source<'t> {
    #[cfg(test)]
    pub(super) fn new(text: &'t str) -> Self {
        Self::of_files(text, vec![File { path: None, start: 0 }])
    }

    pub(super) fn of_files(text: &'t str, files: Vec<File>) -> Self {
        let starts = text.match_indices('\n').map(|(end, _)| end + 1);
        let starts = std::iter::once(0).chain(starts).collect();
        Self { text, files, starts, masks: Vec::new() }
    }

    /// Returns the index of the file in which a span of the concatenated text begins.
    pub(super) fn file_of(&self, span: &Range<usize>) -> usize {
        self.files.partition_point(|file| file.start <= span.start).saturating_sub(1)
    }

    /// Adds spans that error messages display as `***`.
    pub(super) fn masked(mut self, masks: Vec<Range<usize>>) -> Self {
        self.masks.extend(masks);
        self.masks = apart(self.masks);
        self
    }

    /// Returns the location of a span, with an excerpt of its line. If the span has several lines,
    /// only its part in the first line is marked as the mistake.
    pub(super) fn place(&self, span: &Range<usize>) -> SourceLocation {
        let file = &self.files[self.file_of(span)];
        let line_at = |byte| self.starts.partition_point(|start| *start <= byte).saturating_sub(1);
        let (top, line) = (line_at(file.start), line_at(span.start));
        let begin = self.starts[line];
        let end = self.starts.get(line + 1).map_or(self.text.len(), |next| next - 1);
        let text = self.text[begin..end].trim_end_matches('\r');
        // Skips a byte order mark, because editors do not display it.
        let mark =
            if line == top && text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };

        let from = floor(text, span.start.saturating_sub(begin)).max(mark);
        let to = floor(text, span.end.saturating_sub(begin)).max(from);
        let (before, marked, after) = (&text[mark..from], &text[from..to], &text[to..]);
        let column = before.chars().count();

        let cut = last(before, BEFORE);
        let mut excerpt = String::new();
        if cut.len() < before.len() {
            excerpt.push('…');
        }
        self.push_masked(&mut excerpt, cut, begin + from - cut.len());
        let width_before = excerpt.chars().count();
        let marked_cut = first(marked, MAX_EXCERPT.saturating_sub(width_before));
        self.push_masked(&mut excerpt, marked_cut, begin + from);
        let width = excerpt.chars().count();
        let after_cut = first(after, MAX_EXCERPT.saturating_sub(width));
        if marked_cut.len() == marked.len() {
            self.push_masked(&mut excerpt, after_cut, begin + to);
        }
        if marked_cut.len() + after_cut.len() < marked.len() + after.len() {
            excerpt.push('…');
        }
        SourceLocation {
            file: file.path.clone(),
            line: line - top + 1,
            column: column + 1,
            excerpt,
            before: width_before,
            marked: (width - width_before).max(1),
        }
    }

    /// Appends `part` to `excerpt`, with masked spans replaced by `***`. `part` is a piece of a
    /// line, and `start` is its offset in the concatenated text.
    fn push_masked(&self, excerpt: &mut String, part: &str, start: usize) {
        let first = self.masks.partition_point(|mask| mask.end <= start);
        let mut rest = part;
        for mask in &self.masks[first..] {
            let at = start + part.len() - rest.len();
            let (from, to) = (mask.start.saturating_sub(at), mask.end.saturating_sub(at));
            if from >= rest.len() {
                break;
            }
            push_printable(excerpt, &rest[..floor(rest, from)]);
            // Omits the `***` if the previous part ended within the same mask, and therefore
            // already displays it.
            if mask.start >= start || !excerpt.ends_with(MASK) {
                excerpt.push_str(MASK);
            }
            rest = &rest[floor(rest, to)..];
        }
        push_printable(excerpt, rest);
    }

    /// Returns the text of a span in a form that error messages can quote: truncated, and without
    /// unprintable characters. Returns `***` if any part of the span is masked.
    pub(super) fn sanitized(&self, span: &Range<usize>) -> Cow<'t, str> {
        let first = self.masks.partition_point(|mask| mask.end <= span.start);
        if self.masks.get(first).is_some_and(|mask| mask.start < span.end) {
            return Cow::Borrowed(MASK);
        }
        sanitized(self.slice(span))
    }

    /// Returns the text of a span without masking secrets.
    pub(super) fn slice(&self, span: &Range<usize>) -> &'t str {
        self.text.get(span.clone()).unwrap_or_default()
    }
}

/// Sorts spans, removes empty ones, and merges those that overlap or touch.
pub(super) fn apart(mut masks: Vec<Range<usize>>) -> Vec<Range<usize>> {
    // Removes the empty spans of nodes that do not occur in the text, but that the parser added.
    masks.retain(|mask| !mask.is_empty());
    masks.sort_by_key(|mask| mask.start);
    let mut apart: Vec<Range<usize>> = Vec::new();
    for mask in masks {
        match apart.last_mut() {
            Some(last) if mask.start <= last.end => last.end = last.end.max(mask.end),
            _ => apart.push(mask),
        }
    }
    apart
}

/// Makes a string of a configuration file safe to quote in an error message: truncates it to 60
/// characters, and replaces unprintable characters.
pub(super) fn sanitized(text: &str) -> Cow<'_, str> {
    let cut = first(text, BEFORE);
    if cut.len() == text.len() && !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut excerpt: String =
        cut.chars().map(|c| if is_unprintable(c) { '\u{fffd}' } else { c }).collect();
    if cut.len() < text.len() {
        excerpt.push('…');
    }
    Cow::Owned(excerpt)
}

/// Appends `text` to an excerpt. Replaces tabs by spaces, and unprintable characters by U+FFFD.
fn push_printable(excerpt: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\t' => excerpt.push_str("    "),
            character if is_unprintable(character) => excerpt.push('\u{fffd}'),
            character => excerpt.push(character),
        }
    }
}

/// Returns `true` if printing the character could control the terminal, or change the direction in
/// which text is displayed.
pub(super) fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Returns the last character boundary in `text` at or before the byte offset `index`.
fn floor(text: &str, index: usize) -> usize {
    let index = index.min(text.len());
    (0..=index).rev().find(|index| text.is_char_boundary(*index)).unwrap_or_default()
}

fn first(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end])
}

fn last(text: &str, characters: usize) -> &str {
    match characters.checked_sub(1) {
        None => "",
        Some(back) => text.char_indices().rev().nth(back).map_or(text, |(start, _)| &text[start..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the location of the first `@`.
    fn place(text: &str) -> SourceLocation {
        let at = text.find('@').unwrap();
        Source::new(text).place(&(at..at + 1))
    }

    fn line_and_column(text: &str) -> (usize, usize) {
        let place = place(text);
        (place.line, place.column)
    }

    #[test]
    fn lines_and_columns_count_from_one() {
        assert_eq!(line_and_column("@"), (1, 1));
        assert_eq!(line_and_column("ab@"), (1, 3));
        assert_eq!(line_and_column("\n@"), (2, 1));
        assert_eq!(line_and_column("a\nb\n c@\n"), (3, 3));
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(line_and_column("é漢😀@"), (1, 4));
        assert_eq!(line_and_column("\t\t@"), (1, 3));
        assert_eq!(line_and_column("\u{feff}a@"), (1, 2));
        assert_eq!(line_and_column("a\r\nb@\r\n"), (2, 2));
    }

    #[test]
    fn places_outside_the_text_are_at_its_end() {
        let source = Source::new("a = \n");
        assert_eq!((source.place(&(4..4)).line, source.place(&(4..4)).column), (1, 5));
        assert_eq!((source.place(&(5..5)).line, source.place(&(5..5)).column), (2, 1));
        assert_eq!((source.place(&(99..120)).line, source.place(&(99..120)).column), (2, 1));
        assert_eq!(Source::new("").place(&(0..0)).excerpt, "");
    }

    #[test]
    fn places_inside_a_character_are_at_its_beginning() {
        assert_eq!(Source::new("é").place(&(1..2)).column, 1);
    }

    #[test]
    fn tabs_are_expanded_to_four_spaces_in_excerpts() {
        let place = place("\ta\t@ = 1");
        assert_eq!((place.excerpt.as_str(), place.before, place.column), ("    a    @ = 1", 9, 4));
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let line = format!("{}@{}", "a".repeat(500), "b".repeat(500));
        let place = place(&line);
        assert_eq!(place.column, 501);
        assert_eq!(place.excerpt, format!("…{}@{}…", "a".repeat(60), "b".repeat(38)));
        assert_eq!(place.excerpt.chars().nth(place.before), Some('@'));
    }

    #[test]
    fn long_places_are_cut() {
        let line = format!("k = {}", "b".repeat(500));
        let place = Source::new(&line).place(&(4..504));
        assert_eq!(place.excerpt, format!("k = {}…", "b".repeat(96)));
        assert_eq!((place.before, place.marked), (4, 96));
    }

    #[test]
    fn places_end_with_their_line() {
        let place = Source::new("a = [\n1]").place(&(4..8));
        assert_eq!((place.excerpt.as_str(), place.before, place.marked), ("a = [", 4, 1));
    }

    #[test]
    fn masked_spans_are_not_shown() {
        let masked = |text, mask: Range<usize>, span| {
            let place = Source::new(text).masked(std::iter::once(mask).collect()).place(&span);
            (place.excerpt, place.before, place.marked)
        };
        let text = "a = \"secret\", b = 1\nmore";
        assert_eq!(masked(text, 4..12, 4..12), ("a = ***, b = 1".to_owned(), 4, 3));
        assert_eq!(masked(text, 4..12, 14..15), ("a = ***, b = 1".to_owned(), 9, 1));
        assert_eq!(masked(text, 4..12, 0..1), ("a = ***, b = 1".to_owned(), 0, 1));
        assert_eq!(masked(text, 4..12, 6..8), ("a = ***, b = 1".to_owned(), 7, 1));
        assert_eq!(masked(text, 4..22, 0..1), ("a = ***".to_owned(), 0, 1));
        assert_eq!(masked(text, 4..22, 22..23), ("***re".to_owned(), 3, 1));
        assert_eq!(masked("é = 'é'", 5..9, 5..9), ("é = ***".to_owned(), 4, 3));

        let source = Source::new(text).masked(std::iter::once(4..12).collect());
        assert_eq!(
            [source.sanitized(&(0..1)), source.sanitized(&(3..5)), source.sanitized(&(12..13))],
            ["a", "***", ","]
        );
    }

    #[test]
    fn control_characters_are_replaced_in_excerpts() {
        assert_eq!(place("\u{1b}[31m\u{202e}@").excerpt, "\u{fffd}[31m\u{fffd}@");
        assert_eq!(sanitized("\u{7}"), "\u{fffd}");
    }
}
