//! The names that patterns match.

use std::collections::BTreeSet;

use mcp_composite::pattern::{Patterns, Selection};
use proptest::prelude::*;

/// A part of a glob, in a simple model.
#[derive(Clone, Debug)]
enum Piece {
    Text(char),
    Any,
    Run,
    Class { is_negated: bool, ranges: Vec<(char, char)> },
    Either(Vec<Vec<Self>>),
}

/// Returns the error of a pattern.
fn mistake(pattern: &str) -> String {
    Patterns::new([pattern]).expect_err(pattern).to_string()
}

// === impl Piece ===

impl Piece {
    fn write(&self, glob: &mut String) {
        let escape = |character: &char, glob: &mut String| {
            if "*?[]{}\\,!^-".contains(*character) {
                glob.push('\\');
            }
            glob.push(*character);
        };
        match self {
            Self::Text(character) => escape(character, glob),
            Self::Any => glob.push('?'),
            Self::Run => glob.push('*'),
            Self::Class { is_negated, ranges } => {
                glob.push_str(if *is_negated { "[!" } else { "[" });
                for (first, last) in ranges {
                    escape(first, glob);
                    glob.push('-');
                    escape(last, glob);
                }
                glob.push(']');
            }
            Self::Either(branches) => {
                for (place, branch) in branches.iter().enumerate() {
                    glob.push(if place == 0 { '{' } else { ',' });
                    branch.iter().for_each(|piece| piece.write(glob));
                }
                glob.push('}');
            }
        }
    }

    /// Returns the positions in the name at which a match can end that began at one of `starts`.
    fn ends(&self, name: &[char], starts: &BTreeSet<usize>) -> BTreeSet<usize> {
        let one = |fits: &dyn Fn(char) -> bool| {
            let fitting = starts.iter().filter(|start| name.get(**start).is_some_and(|c| fits(*c)));
            fitting.map(|start| start + 1).collect()
        };
        match self {
            Self::Text(text) => one(&|character| character == *text),
            Self::Any => one(&|_| true),
            Self::Run => starts.first().map_or_else(BTreeSet::new, |s| (*s..=name.len()).collect()),
            Self::Class { is_negated, ranges } => one(&|character| {
                ranges.iter().any(|(a, z)| (*a..=*z).contains(&character)) != *is_negated
            }),
            Self::Either(branches) => {
                branches.iter().flat_map(|branch| ends(branch, name, starts)).collect()
            }
        }
    }
}

fn ends(pieces: &[Piece], name: &[char], starts: &BTreeSet<usize>) -> BTreeSet<usize> {
    pieces.iter().fold(starts.clone(), |starts, piece| piece.ends(name, &starts))
}

fn character() -> impl Strategy<Value = char> {
    prop::sample::select("ab/é\n*]{-,".chars().collect::<Vec<_>>())
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let range = (character(), character()).prop_map(|(a, z)| (a.min(z), a.max(z)));
    let piece = prop_oneof![
        4 => character().prop_map(Piece::Text),
        1 => Just(Piece::Any),
        2 => Just(Piece::Run),
        1 => (any::<bool>(), prop::collection::vec(range, 1..3))
            .prop_map(|(is_negated, ranges)| Piece::Class { is_negated, ranges }),
    ];
    let piece = piece.prop_recursive(2, 8, 3, |piece| {
        let branch = prop::collection::vec(piece, 0..3);
        prop::collection::vec(branch, 1..4).prop_map(Piece::Either)
    });
    prop::collection::vec(piece, 1..6)
}

proptest! {
    #[test]
    fn glob_matches_like_a_reference_matcher(
        pieces in pieces(),
        names in prop::collection::vec(prop::collection::vec(character(), 0..6), 8),
    ) {
        let mut glob = String::new();
        pieces.iter().for_each(|piece| piece.write(&mut glob));
        let Ok(patterns) = Patterns::new([glob.clone()]) else {
            prop_assert!(glob.trim().is_empty(), "{glob:?}");
            return Ok(());
        };
        for name in names {
            let text: String = name.iter().collect();
            let expected = ends(&pieces, &name, &[0].into()).contains(&name.len());
            prop_assert_eq!(patterns.matches(&text), expected || text == glob, "{} {}", glob, text);
        }
    }

    #[test]
    fn any_pattern_is_handled_without_panic(pattern in any::<String>(), name in any::<String>()) {
        if let Ok(patterns) = Patterns::new([pattern.clone()]) {
            let _ = patterns.matches(&name);
            prop_assert!(pattern.starts_with("re:") || patterns.matches(&pattern));
        }
        if let Ok(patterns) = Patterns::new([format!("re:{pattern}")]) {
            let _ = patterns.matches(&name);
        }
    }
}

#[test]
fn patterns_match_the_whole_name() {
    for (pattern, matched, not_matched) in [
        ("get", &["get"][..], &["gets", "forget", "Get", "get\n", ""][..]),
        ("get_*", &["get_", "get_a/b", "get_a\nb", "get_é"], &["get", "forget_it"]),
        ("delete_*", &["delete_user/all"], &["undelete_user"]),
        ("file://*", &["file:///etc/passwd", "file://"], &["file:/"]),
        ("*", &["admin/reset", "", "\n"], &[]),
        ("a/**/b", &["a//b", "a/x/y/b"], &["a/b"]),
        ("**/b", &["/b", "a/b"], &["b"]),
        ("?", &["a", "é", "\n"], &["", "ab"]),
        ("[à-é]!", &["é!", "à!"], &["e!", "\u{fffd}!"]),
        ("[!a-c]", &["d", "é"], &["a", ""]),
        ("[^a]", &["b"], &["a"]),
        ("[]-]", &["]", "-"], &["a"]),
        ("[a-]", &["a", "-"], &["b"]),
        ("[\\]\\\\]", &["]", "\\"], &["a"]),
        ("[&&a~~]", &["&", "a", "~"], &["b"]),
        ("{a,}x", &["ax", "x"], &[",x", "a,x"]),
        ("{,}", &["", "{,}"], &[","]),
        ("a{b,{c,d}e}", &["ab", "ace", "ade"], &["ae"]),
        ("a,b", &["a,b"], &["a", "b"]),
        ("\\*\\{", &["*{"], &["a{"]),
        ("!keep", &["!keep"], &["keep", "other"]),
        ("a.c$", &["a.c$"], &["abc"]),
        ("db://{table}/rows", &["db://{table}/rows", "db://table/rows"], &["db://users/rows"]),
        ("http://[::1]/", &["http://[::1]/"], &["http://[::2]/"]),
        ("http://\\[::1\\]/*", &["http://[::1]/x"], &["http://:/x"]),
        ("re:delete", &["delete"], &["undelete", "deleted", "delete\n"]),
        ("re:a|b", &["a", "b"], &["ab", "xb", "ax"]),
        ("re:get_.*", &["get_a\nb"], &[]),
        ("re:(?i)get", &["GET"], &["gets"]),
        ("re:(?x) get _ \\d+ # by number", &["get_1"], &["get_", "get_1 "]),
        ("re:(?x) a # one\n| b # other", &["a", "b"], &["ab", ""]),
        ("re:(?m)^a$", &["a"], &["a\nb", "b\na"]),
        ("re:é?", &["é", ""], &["e"]),
    ] {
        let patterns = Patterns::new([pattern]).expect(pattern);
        for name in matched {
            assert!(patterns.matches(name), "{pattern:?} matches {name:?}");
        }
        for name in not_matched {
            assert!(!patterns.matches(name), "{pattern:?} does not match {name:?}");
        }
    }
}

#[test]
fn set_matches_if_any_of_its_patterns_does() {
    let patterns = Patterns::new(["a", "re:b+", "c*", "a"]).unwrap();
    for (name, expected) in
        [("a", true), ("bb", true), ("cc", true), ("d", false), ("re:b+", false)]
    {
        assert_eq!(patterns.matches(name), expected, "{name}");
    }
    assert!(!Patterns::default().matches(""));
    assert_eq!(patterns.iter().collect::<Vec<_>>(), ["a", "re:b+", "c*", "a"]);
}

#[test]
fn invalid_pattern_is_rejected_with_the_reason() {
    for (pattern, reason) in [
        ("", "it is blank"),
        (" \t", "it is blank"),
        ("re:", "it is blank"),
        ("tool[1", "`[` is never closed"),
        ("[]", "`[` is never closed"),
        ("[a-", "`[` is never closed"),
        ("[z-a]", "`z-a` is not a valid range"),
        ("{a", "`{` is never closed"),
        ("a}", "`}` closes nothing"),
        ("a\\", "nothing comes after `\\`"),
        ("[\\", "nothing comes after `\\`"),
        ("re:[unclosed", "unclosed character class"),
        ("re:a)|(b", "unopened group"),
        ("re:(?=a)", "look-around, including look-ahead and look-behind, is not supported"),
        ("{{{{{{{{{a}}}}}}}}}", "`{` is nested more than 8 levels deep"),
    ] {
        assert_eq!(mistake(pattern), format!("`{pattern}` is not a valid pattern: {reason}"));
    }
}

#[test]
fn all_errors_are_reported_at_once_with_their_positions() {
    let error = Selection::default().allow(["ok", "re:(", "", "fine"]).unwrap_err();
    let places: Vec<_> = error.mistakes().iter().map(|m| (m.index(), m.pattern())).collect();
    assert_eq!(places, [(1, "re:("), (2, "")]);
}

#[test]
fn size_of_a_pattern_set_is_limited() {
    let many = Patterns::new((0..500).map(|number| format!("tool_{number}_*"))).unwrap();
    assert!(many.matches("tool_499_x") && !many.matches("tool_500_x"));
    let deep = "{".repeat(1_000_000);
    assert!(mistake(&deep).ends_with("more than 8 levels deep"));
    let huge = Patterns::new(vec!["re:a{1000}{40}"; 12]).unwrap_err();
    let reason = huge.mistakes()[0].reason();
    assert!(reason.starts_with("all patterns together are too large: "), "{reason}");
}

#[test]
fn deny_overrides_allow() {
    let selection = Selection::default().allow(["get_*"]).unwrap().deny(["get_secret"]).unwrap();
    assert!(selection.selects("get_a") && !selection.selects_all());
    assert!(!selection.selects("get_secret") && !selection.selects("a"));
    assert!(Selection::default().selects("a") && Selection::default().selects_all());
}

#[test]
fn empty_allow_list_selects_nothing() {
    let nothing = Selection::default().allow([""; 0]).unwrap();
    assert!(!nothing.selects("a") && !nothing.selects_all());
}

#[test]
fn pattern_both_allowed_and_denied_is_rejected() {
    let get = || Selection::default().allow(["get_x", "a*"]).unwrap();
    let error = get().deny(["b", "get_x", "[", "a*"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`get_x` is both allowed and denied\n\
         `[` is not a valid pattern: `[` is never closed\n\
         `a*` is both allowed and denied"
    );
    assert_eq!((error.mistakes()[0].index(), error.mistakes()[0].pattern()), (1, "get_x"));
    assert_eq!(error.mistakes()[0].reason(), "it is both allowed and denied");
    let error = Selection::default().deny(["get_x"]).unwrap().allow(["get_x"]).unwrap_err();
    assert_eq!(error.to_string(), "`get_x` is both allowed and denied");
    assert!(get().deny(["get_*", "x"]).is_ok());
    assert!(get().deny(["x"]).unwrap().deny(["y"]).unwrap().allow(["x"]).is_ok());
}

#[test]
fn comma_outside_braces_is_literal() {
    let patterns = Patterns::new(["a,b*"]).unwrap();
    assert!(patterns.matches("a,bc"));
    assert!(!patterns.matches("a") && !patterns.matches("bc"));
}
