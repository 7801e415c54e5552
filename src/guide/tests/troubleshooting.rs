//! `troubleshooting.md` quotes messages of the crate and the program.

use super::all_sources;

const TROUBLESHOOTING: &str = include_str!("../troubleshooting.md");

#[test]
fn troubleshooting_lists_only_messages_of_the_crate() {
    // Texts as compiled: without line ends in them.
    let texts: String = all_sources().into_iter().map(|(_, text)| text).collect();
    let texts = joined(&texts);
    let mut count = 0;
    for line in TROUBLESHOOTING.lines().filter(|line| line.starts_with("| `")) {
        let cell = line.trim_start_matches("| ").split(" | ").next().unwrap();
        let message = cell.trim_matches('`').trim_end();
        count += 1;
        for part in message.split('…').map(|part| part.trim_matches([' ', '`'])) {
            // Short text between two placeholders, such as `of`, is not searched.
            assert!(part.len() < 6 || texts.contains(part), "nothing says {part:?}: {line}");
        }
    }
    assert!(count > 25, "the tables were not read: {count}");
}

/// Joins lines that end with a `\` in a text.
fn joined(texts: &str) -> String {
    let mut parts = texts.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |joined, part| joined + part.trim_start())
}
