//! Escapes text in the labels of Mermaid charts.
//!
//! Names, conditions and questions can contain any characters. Examples are the quote that ends a
//! label, keywords, and markup that runs as a script if a page allows scripts. In a Mermaid label,
//! all characters except letters, digits and spaces may have a special meaning to the parser, to
//! the Markdown rendering of labels, or to the embedding page. These characters are therefore
//! written as [entity codes][codes], which Mermaid decodes last.
//!
//! [codes]: https://mermaid.js.org/syntax/flowchart.html#entity-codes-to-escape-characters

use std::fmt::{self, Write};

/// The maximum number of characters in a line of a label. Longer lines are truncated.
const MAX_CHARS: usize = 80;

/// The character that replaces unsafe characters. Unsafe are characters that change the text
/// direction, which could be used to disguise a text, and characters that are invalid in XML.
const REPLACEMENT: char = '\u{fffd}';

/// An invisible character that is inserted between two characters that have a special meaning as a
/// pair, even if they are written as entity codes. Examples are two dollar signs (a formula), `:f`
/// (an icon) and `\n` (a line break). Other pairs are Mermaid's internal encodings of `&` and `;`.
const WORD_JOINER: char = '\u{2060}';

/// The label of a flowchart node, as lines of text. `Display` escapes and quotes the lines for
/// Mermaid.
pub(super) struct Label<'l, T>(pub(super) &'l [T]);

impl<T: AsRef<str>> fmt::Display for Label<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for (at, line) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("<br/>")?;
            }
            write_line(line.as_ref(), f)?;
        }
        f.write_char('"')
    }
}

/// Writes a string as one line of a label. Special characters are escaped.
fn write_line(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let text = printable(text);
    let mut before = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_within = before.is_some_and(char::is_alphanumeric)
            && chars.peek().is_some_and(|c| c.is_alphanumeric());
        if matches!(
            (before, c),
            (Some('$'), '$')
                | (Some(':'), 'f')
                | (Some('\\'), 'n')
                | (Some('ﬂ'), '°')
                | (Some('¶'), 'ß')
        ) {
            f.write_char(WORD_JOINER)?;
        }
        match c {
            ' ' | ',' => f.write_char(c)?,
            // These characters have a meaning in Markdown only at the edge of a word.
            '_' | '-' if is_within => f.write_char(c)?,
            c if c.is_alphanumeric() => f.write_char(c)?,
            c => write!(f, "#{};", u32::from(c))?,
        }
        before = Some(c);
    }
    Ok(())
}

/// Returns the part of a string that labels show, at most 80 characters. Replaces unsafe
/// characters, and each sequence of whitespace by one space.
fn printable(text: &str) -> String {
    // The rest of a longer string would be truncated anyway, so it is not processed.
    let start: String = text.chars().take(4 * MAX_CHARS).collect();
    let is_blank = |c: char| c.is_whitespace() || c.is_control();
    let words: Vec<&str> = start.split(is_blank).filter(|word| !word.is_empty()).collect();
    let words = words.join(" ").replace(is_no_text, &REPLACEMENT.to_string());
    let mut chars = words.chars();
    let mut line: String = chars.by_ref().take(MAX_CHARS).collect();
    if chars.next().is_some() || start.len() < text.len() {
        line.push('…');
    }
    if line.is_empty() {
        // Mermaid does not support empty labels.
        line.push(REPLACEMENT);
    }
    line
}

/// Returns `true` if a character changes the text direction (Unicode Standard Annex #9) or is
/// invalid in XML.
const fn is_no_text(c: char) -> bool {
    matches!(
        c,
        '\u{061c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{fffe}'
            | '\u{ffff}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn label(text: &str) -> String {
        Label(&[text]).to_string()
    }

    #[test]
    fn plain_name_is_quoted_unchanged() {
        for name in ["search", "github_search", "fetch-logs", "prix du thé", "価格", "b10, b11"]
        {
            assert_eq!(label(name), format!("\"{name}\""));
        }
    }

    #[test]
    fn special_characters_become_entity_codes() {
        for (text, expected) in [
            (r#"say "no""#, "say #34;no#34;"),
            ("a]b", "a#93;b"),
            ("<b>", "#60;b#62;"),
            ("#lt;", "#35;lt#59;"),
            ("`a`", "#96;a#96;"),
            ("_a_", "#95;a#95;"),
            ("- a", "#45; a"),
            ("1. a", "1#46; a"),
            ("%%{init}%%", "#37;#37;#123;init#125;#37;#37;"),
            ("style:#a;", "style#58;#35;a#59;"),
            ("ﬂ°36¶ß", "ﬂ\u{2060}#176;36#182;\u{2060}ß"),
            ("fa:fa-ban", "fa#58;\u{2060}fa-ban"),
            ("$$x$$", "#36;\u{2060}#36;x#36;\u{2060}#36;"),
        ] {
            assert_eq!(label(text), format!("\"{expected}\""), "{text}");
        }
    }

    #[test]
    fn line_breaks_become_spaces() {
        assert_eq!(label(" a\n\n  b\tc\u{2028}d\0e\r\n"), "\"a b c d e\"");
        assert_eq!(Label(&["a\nb", "c"]).to_string(), "\"a b<br/>c\"");
    }

    #[test]
    fn blank_text_becomes_a_replacement_character() {
        for text in ["", " ", "\0\n"] {
            assert_eq!(label(text), "\"#65533;\"");
        }
    }

    #[test]
    fn bidi_override_is_replaced() {
        assert_eq!(label("a\u{202e}b"), "\"a#65533;b\"");
    }

    #[test]
    fn long_text_is_truncated() {
        let long = "a".repeat(MAX_CHARS);
        assert_eq!(label(&long), format!("\"{long}\""));
        assert_eq!(label(&format!("{long}b")), format!("\"{long}#8230;\""));
        assert_eq!(label(&format!("{}b", " ".repeat(10_000))), "\"#8230;\"");
    }

    proptest! {
        #[test]
        fn label_has_only_plain_characters_and_entity_codes(text in any::<String>()) {
            let label = label(&text);
            let within = label.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap();
            let mut rest = within;
            while let Some(c) = rest.chars().next() {
                let code = rest.strip_prefix('#').and_then(|rest| rest.split_once(';'));
                rest = match code {
                    Some((digits, rest)) => {
                        prop_assert!(digits.parse::<u32>().is_ok_and(|c| char::from_u32(c).is_some()));
                        rest
                    }
                    None => {
                        let is_plain = matches!(c, ' ' | ',' | '_' | '-' | WORD_JOINER);
                        prop_assert!(is_plain || c.is_alphanumeric(), "{c:?} in {within}");
                        &rest[c.len_utf8()..]
                    }
                };
            }
        }
    }
}
