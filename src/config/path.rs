use std::fmt;

use super::source::shown;
use crate::composite::Segment;

/// Prints a path as `composite_tools[1].arguments."odd key"`.
pub(super) struct DisplayPath<'p>(pub(super) &'p [Segment]);

// === impl DisplayPath ===

impl fmt::Display for DisplayPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    f.write_str(if place == 0 { "" } else { "." })?;
                    if is_bare(key) && key.len() <= 60 {
                        f.write_str(key)?;
                    } else {
                        write!(f, "{:?}", shown(key))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a key needs no quotes in TOML.
fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_keys_are_quoted() {
        let path = ["a".into(), 1.into(), "b-c".into(), "d e".into(), "".into(), "\u{7}".into()];
        assert_eq!(DisplayPath(&path).to_string(), "a[1].b-c.\"d e\".\"\".\"\u{fffd}\"");
    }
}
