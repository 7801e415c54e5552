//! Patterns that match names and URIs.
//!
//! A pattern selects tools, prompts or resources by name or URI. It is one of the following:
//!
//! - A plain text, which matches only the name or URI that equals it.
//! - A glob. `*` matches any sequence of characters, including `/`, and `?` matches any single
//!   character. `[a-z]` matches one character in the range, and `[!a-z]` one character outside the
//!   range. `{a,b}` matches either alternative, and `\*` matches a literal `*`.
//! - `re:` followed by a [regular expression](regex#syntax), which must match the whole name or
//!   URI. In the expression, `.` also matches line breaks.
//!
//! A glob also matches the name or URI that is written exactly like the glob. For example,
//! `db://{table}` matches the URI template `db://{table}`, and `http://[::1]/` matches the URI
//! `http://[::1]/`. In a pattern that also contains wildcards, escape literal brackets and braces
//! with `\`, as in `http://\[::1\]/*`. Matching is case-sensitive and does not decode URIs: `%41`
//! does not match `A`.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::pattern::Selection;
//!
//! let tools = Selection::default().allow(["get_*", "re:list_(all|some)"])?.deny(["get_secret"])?;
//! assert!(tools.selects("get_issue") && tools.selects("list_all"));
//! assert!(!tools.selects("get_secret") && !tools.selects("list_allowed") && !tools.selects("drop"));
//!
//! let error = Selection::default().deny(["ok", "re:(", "["]).unwrap_err();
//! assert_eq!(error.mistakes().len(), 2);
//! assert_eq!(error.mistakes()[1].to_string(), "`[` is not a valid pattern: `[` is never closed");
//! # Ok::<(), mcp_composite::pattern::PatternError>(())
//! ```

mod glob;
mod text_set;
mod unmatched;

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, OnceLock},
};

use regex::{Regex, RegexSet, RegexSetBuilder};

use self::text_set::{Automaton, Exhausted};
pub(crate) use self::{
    text_set::{Budget, Part, TextSet},
    unmatched::Unmatched,
};

/// The prefix that marks a pattern as a regular expression, as in `re:get_.*`.
const REGEX: &str = "re:";

/// A set of [patterns](crate::pattern) that match names and URIs. All patterns are compiled into a
/// single matcher. Plain texts are matched in constant time, regardless of their number.
#[derive(Clone, Default)]
pub struct Patterns(Arc<Compiled>);

#[derive(Default)]
struct Compiled {
    /// All patterns as they were written, in their original order.
    written: Vec<String>,
    exact: HashSet<String>,
    /// A matcher for all patterns that are globs or regular expressions. It contains one regular
    /// expression for each of them, in the order of the patterns.
    others: RegexSet,
    /// The indices in `written` of the patterns in `others`: the expression at index `i` in
    /// `others` belongs to the pattern `written[indices[i]]`.
    indices: Vec<usize>,
    /// An automaton that accepts exactly the names that the expressions in `others` match. Built
    /// when it is first used. `None` if the automaton would be too large.
    automaton: OnceLock<Option<Automaton>>,
}

/// An allow list and a deny list of [patterns](crate::pattern), which together select names. A name
/// is selected if the allow list matches it and the deny list does not. Without an allow list, all
/// names are selected except those that the deny list matches.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    allow: Option<Patterns>,
    deny: Patterns,
}

/// An error that contains all rejected patterns of a list. A pattern is rejected if it is invalid,
/// or if it is both allowed and denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(Vec<PatternMistake>);

/// A rejected pattern, which is invalid, or both allowed and denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternMistake {
    index: usize,
    pattern: String,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// The pattern is not a valid glob or regular expression, or too large. Contains the error
    /// message.
    Invalid(String),
    /// The pattern is both allowed and denied.
    Contradicts,
}

// === impl Patterns ===

impl Patterns {
    /// Compiles a list of patterns.
    ///
    /// # Errors
    ///
    /// Returns an error if some patterns are blank, or are not valid globs or regular expressions.
    /// The error lists all of them.
    pub fn new<P: Into<String>>(
        patterns: impl IntoIterator<Item = P>,
    ) -> Result<Self, PatternError> {
        let mut compiled = Compiled::default();
        let mut expressions = Vec::new();
        let mut mistakes = Vec::new();
        for (index, pattern) in patterns.into_iter().enumerate() {
            let pattern = pattern.into();
            match expression(&pattern) {
                Ok(None) => {
                    compiled.exact.insert(pattern.clone());
                }
                Ok(Some(expression)) => {
                    // A glob also matches its own text, because a URI template, for example,
                    // contains braces.
                    if !pattern.starts_with(REGEX) {
                        compiled.exact.insert(pattern.clone());
                    }
                    expressions.push(expression);
                    compiled.indices.push(index);
                }
                Err(reason) => {
                    let reason = Reason::Invalid(reason);
                    mistakes.push(PatternMistake { index, pattern: pattern.clone(), reason });
                }
            }
            compiled.written.push(pattern);
        }
        if !mistakes.is_empty() {
            return Err(PatternError(mistakes));
        }
        // Names may contain any character, including line breaks.
        compiled.others = RegexSetBuilder::new(expressions)
            .dot_matches_new_line(true)
            .build()
            .map_err(|error| PatternError::of_all(&compiled.written, &error))?;
        Ok(Self(Arc::new(compiled)))
    }

    /// Compiles a list of patterns. Rejects patterns that are invalid, and patterns that are also
    /// in the list `others`, because they would be both allowed and denied.
    fn beside<P: Into<String>>(
        others: &Self,
        patterns: impl IntoIterator<Item = P>,
    ) -> Result<Self, PatternError> {
        let patterns: Vec<String> = patterns.into_iter().map(Into::into).collect();
        let others: HashSet<&str> = others.iter().collect();
        let contradictions = patterns.iter().enumerate();
        let contradictions = contradictions.filter(|(_, pattern)| others.contains(&***pattern));
        let mut mistakes: Vec<_> = contradictions
            .map(|(index, pattern)| PatternMistake {
                index,
                pattern: pattern.clone(),
                reason: Reason::Contradicts,
            })
            .collect();
        match Self::new(patterns) {
            Ok(compiled) if mistakes.is_empty() => return Ok(compiled),
            Ok(_) => (),
            Err(PatternError(invalid)) => mistakes.extend(invalid),
        }
        mistakes.sort_by_key(PatternMistake::index);
        Err(PatternError(mistakes))
    }

    /// Returns `true` if one of the patterns matches the name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.exact.contains(name) || self.0.others.is_match(name)
    }

    /// Returns `true` if the set contains a pattern that is exactly the text `name`. Regular
    /// expressions are not compared with `name`.
    #[must_use]
    pub fn has_text(&self, name: &str) -> bool {
        self.0.exact.contains(name)
    }

    /// Returns `true` if the set contains no patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.written.is_empty()
    }

    /// Iterates over the patterns as they were written, in their original order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.written.iter().map(String::as_str)
    }

    /// Returns `true` if a pattern may match a string in `set`. Also returns `true` if the `budget`
    /// is exhausted before the result is certain.
    fn may_match(&self, set: &TextSet, budget: &mut Budget) -> bool {
        let mut decide = || {
            for exact in &self.0.exact {
                if set.contains(exact, budget)? {
                    return Ok(true);
                }
            }
            match (self.0.automaton(), set.automaton(budget)?) {
                (Some(patterns), Some(set)) => patterns.meets(&set, budget),
                _ => Err(Exhausted),
            }
        };
        !self.is_empty() && decide().unwrap_or(true)
    }

    /// Returns `true` if the globs and regular expressions are certain to match every string in
    /// `set`. Returns `false` if the `budget` is exhausted before the result is certain.
    fn match_all(&self, set: &TextSet, budget: &mut Budget) -> bool {
        let mut decide = || match (self.0.automaton(), set.automaton(budget)?) {
            (Some(patterns), Some(set)) => patterns.covers(&set, budget),
            _ => Err(Exhausted),
        };
        decide().unwrap_or(false)
    }

    /// Iterates over the indexes of all patterns that match the name.
    pub(crate) fn which<'p>(&'p self, name: &'p str) -> impl Iterator<Item = usize> + 'p {
        let compiled = &*self.0;
        let written = compiled.exact.contains(name).then_some(compiled.written.iter().enumerate());
        let exact = written.into_iter().flatten().filter(move |(_, pattern)| *pattern == name);
        let exact = exact.map(|(index, _)| index);
        let others = compiled.others.matches(name).into_iter();
        exact.chain(others.map(|index| compiled.indices[index]))
    }
}

impl Compiled {
    fn automaton(&self) -> Option<&Automaton> {
        let make = || {
            let written = self.written.iter();
            let expressions = written.filter_map(|pattern| expression(pattern).ok().flatten());
            Automaton::new(&expressions.collect::<Vec<_>>())
        };
        self.automaton.get_or_init(make).as_ref()
    }
}

/// Translates a pattern to a regular expression. Returns `None` if the pattern is plain text, and
/// an error message if the pattern is invalid.
fn expression(pattern: &str) -> Result<Option<String>, String> {
    let (regex, text) = match pattern.strip_prefix(REGEX) {
        Some(regex) => (true, regex),
        None => (false, pattern),
    };
    if text.trim().is_empty() {
        return Err("it is blank".to_owned());
    }
    if regex {
        anchored(text).map(Some)
    } else if glob::is_glob(text) {
        glob::expression(text).map(Some)
    } else {
        Ok(None)
    }
}

/// Anchors a regular expression, so that it matches a name only as a whole. Returns an error
/// message if the expression is invalid.
fn anchored(regex: &str) -> Result<String, String> {
    // First compiles the expression without the group, because an expression such as `)|(` would
    // otherwise close the group.
    Regex::new(regex).map_err(|error| last_line(&error))?;
    let anchored = format!("^(?:{regex})$");
    if Regex::new(&anchored).is_ok() {
        return Ok(anchored);
    }
    // With `(?x)`, the expression may end with a comment, which would extend over the closing
    // parenthesis.
    let anchored = format!("^(?:{regex}\n)$");
    Regex::new(&anchored).map_err(|error| last_line(&error))?;
    Ok(anchored)
}

/// Returns the last line of the error message for an invalid regular expression. This line contains
/// the cause of the error. The lines before it only quote the expression.
fn last_line(error: &regex::Error) -> String {
    let message = error.to_string();
    let last = message.lines().last().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

// === impl Selection ===

impl Selection {
    /// Sets the allow list: only names that match one of these patterns are selected. If the list
    /// is empty, no names are selected.
    ///
    /// # Errors
    ///
    /// Returns an error if some patterns are invalid or also denied. The error lists all of them.
    pub fn allow<P: Into<String>>(
        mut self,
        patterns: impl IntoIterator<Item = P>,
    ) -> Result<Self, PatternError> {
        self.allow = Some(Patterns::beside(&self.deny, patterns)?);
        Ok(self)
    }

    /// Sets the deny list: names that match one of these patterns are not selected, even if the
    /// allow list matches them.
    ///
    /// # Errors
    ///
    /// Returns an error if some patterns are invalid or also allowed. The error lists all of them.
    pub fn deny<P: Into<String>>(
        mut self,
        patterns: impl IntoIterator<Item = P>,
    ) -> Result<Self, PatternError> {
        let allow = self.allow.clone().unwrap_or_default();
        self.deny = Patterns::beside(&allow, patterns)?;
        Ok(self)
    }

    /// Returns `true` if the name is selected: it matches the allow list and does not match the
    /// deny list. If there is no allow list, all names match it.
    #[must_use]
    pub fn selects(&self, name: &str) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.matches(name))
            && (self.deny.is_empty() || !self.deny.matches(name))
    }

    /// Returns `true` if every string in the set `names` is certain to be selected. Returns `false`
    /// if the `budget` is exhausted before the result is certain.
    pub(crate) fn selects_each(&self, names: &TextSet, budget: &mut Budget) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.match_all(names, budget))
            && !self.may_deny(names, budget)
    }

    /// Returns `true` if at least one string in the set `names` may be denied. Also returns `true`
    /// if the `budget` is exhausted before the result is certain.
    pub(crate) fn may_deny(&self, names: &TextSet, budget: &mut Budget) -> bool {
        self.deny.may_match(names, budget)
    }

    /// Returns `true` if every name is selected, because there is no allow list and the deny list
    /// is empty.
    #[must_use]
    pub fn selects_all(&self) -> bool {
        self.allow.is_none() && self.deny.is_empty()
    }

    /// Returns the patterns of the allow list. Returns `None` if there is no allow list.
    #[must_use]
    pub const fn allowed(&self) -> Option<&Patterns> {
        self.allow.as_ref()
    }

    /// Returns the patterns of the deny list.
    #[must_use]
    pub const fn denied(&self) -> &Patterns {
        &self.deny
    }

    /// Iterates over the lists of patterns: first the allow list, if there is one, and then the
    /// deny list.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Patterns> {
        self.allow.iter().chain([&self.deny]).cloned()
    }
}

// === impl PatternError ===

impl PatternError {
    /// Creates an error for patterns that are valid individually, but too large when they are
    /// compiled together.
    fn of_all(written: &[String], error: &regex::Error) -> Self {
        let reason = format!("all patterns together are too large: {}", last_line(error));
        let reason = Reason::Invalid(reason);
        let pattern = written.last().cloned().unwrap_or_default();
        let index = written.len().saturating_sub(1);
        Self(vec![PatternMistake { index, pattern, reason }])
    }

    /// Returns the rejected patterns in their original order. There is at least one rejected
    /// pattern.
    #[must_use]
    pub fn mistakes(&self) -> &[PatternMistake] {
        &self.0
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for PatternError {}

// === impl PatternMistake ===

impl PatternMistake {
    /// Returns the position of the rejected pattern in the list, starting at zero.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns the rejected pattern as it was written.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns the reason why the pattern was rejected.
    #[must_use]
    pub fn reason(&self) -> &str {
        match &self.reason {
            Reason::Invalid(reason) => reason,
            Reason::Contradicts => "it is both allowed and denied",
        }
    }
}

impl fmt::Display for PatternMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = &self.pattern;
        match &self.reason {
            Reason::Invalid(reason) => write!(f, "`{pattern}` is not a valid pattern: {reason}"),
            Reason::Contradicts => write!(f, "`{pattern}` is both allowed and denied"),
        }
    }
}
