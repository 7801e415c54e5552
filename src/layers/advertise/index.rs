//! The search index of the advertised tools.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    ops::Bound,
};

use rmcp::model::Tool;

use super::terms::{beginning, plain, words};
use crate::catalog::Tools;

/// Limits on the length of a search query. A search ignores everything after the first `MAX_QUERY`
/// bytes of the query, and after the first `MAX_QUERY_WORDS` distinct words.
const MAX_QUERY: usize = 1_024;
const MAX_QUERY_WORDS: usize = 32;
/// Limits on the indexed text of a tool. Only the first `MAX_INDEXED_TEXT` bytes and the first
/// `MAX_TEXT_WORDS` words of each name, title or description are indexed.
const MAX_INDEXED_TEXT: usize = 8_192;
const MAX_TEXT_WORDS: usize = 512;
/// Maximum number of words in the search index, counted over all tools. Once the index contains
/// this many words, further tools are found only by their full names.
const MAX_WORDS: usize = 1_000_000;
/// Minimum number of characters of a word that matches as a prefix. For example, `iss` matches
/// `issues`, but `is` does not.
const MIN_BEGINNING: usize = 3;

/// Base weight of a match in a tool's name. The weight of a word in a name of *n* words is
/// `IN_NAME + 2/n`, so a match in a short name weighs more.
const IN_NAME: f32 = 3.0;
const IN_TITLE: f32 = 2.0;
const IN_DESCRIPTION: f32 = 1.0;
/// Maximum closeness of a prefix match. The closeness decreases with the ratio of the lengths: that
/// of `iss` and `issues` is `BEGINNING * 3 / 6`. Equal words have a closeness of 1.
const BEGINNING: f32 = 0.5;

/// A search index of the advertised tools.
#[doc(hidden)]
#[derive(Default)]
pub struct Index {
    /// Indices of the advertised tools in the list of all tools, in ascending order.
    tools: Vec<usize>,
    /// Maps each indexed word to the advertised tools whose name, title or description contains it.
    words: BTreeMap<String, Vec<Posting>>,
    /// Maps each normalized tool name to indices into `tools`. [`plain`] normalizes names, so that
    /// `create_issue` and `createIssue` have the same key.
    names: HashMap<String, Vec<u32>>,
    /// The number of words indexed so far, including repetitions. At most [`MAX_WORDS`].
    read: usize,
}

/// An entry of the search index: a tool that contains the indexed word, and the weight of the word
/// in that tool.
#[derive(Clone, Copy)]
struct Posting {
    /// The index of the tool in [`Index::tools`].
    tool: u32,
    weight: f32,
}

/// The tools that match a search query.
pub(super) struct SearchResult {
    /// The best matches, best first, as indices into the list of all tools.
    pub(super) positions: Vec<usize>,
    /// The number of all matching tools. Can be larger than `positions.len()`, because a search
    /// returns at most `limit` tools.
    pub(super) total: usize,
}

/// Computes the scores of all advertised tools for one search query.
struct Scores {
    /// The total score of each tool for the query words added so far. Zero if no word matches the
    /// tool.
    scores: Vec<f32>,
    /// For each tool, the weight of its best match with the current query word. Zero if the tool
    /// does not match.
    weights: Vec<f32>,
    /// The tools that match the current query word, as indices into [`Index::tools`].
    matched: Vec<u32>,
}

/// The quality of the match between a tool's name and the whole query. The variants are ordered
/// from the worst match to the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NameFits {
    NotAtAll,
    InItsWords,
    Exactly,
}

// === impl Index ===

impl Index {
    pub(super) fn new(tools: &Tools, is_advertised: impl Fn(&str) -> bool) -> Self {
        let mut index = Self::default();
        for (position, tool) in tools.iter().enumerate() {
            if is_advertised(&tool.name) {
                index.add(position, tool);
            }
        }
        index
    }

    fn add(&mut self, position: usize, tool: &Tool) {
        // The conversion never fails, because a catalog contains far fewer tools.
        let Ok(number) = u32::try_from(self.tools.len()) else { return };
        self.tools.push(position);

        let name = beginning(&tool.name, MAX_INDEXED_TEXT);
        self.names.entry(plain(name)).or_default().push(number);
        let name: HashSet<String> = words(name).take(MAX_TEXT_WORDS).collect();
        let in_name = IN_NAME + 2.0 / name.len().max(1) as f32;
        self.add_words(number, in_name, name);
        let annotated =
            tool.annotations.as_ref().and_then(|annotations| annotations.title.as_ref());
        for title in tool.title.iter().chain(annotated) {
            self.add_words(number, IN_TITLE, words(beginning(title, MAX_INDEXED_TEXT)));
        }
        if let Some(description) = &tool.description {
            self.add_words(number, IN_DESCRIPTION, words(beginning(description, MAX_INDEXED_TEXT)));
        }
    }

    /// Adds the words of one field of a tool, such as its title, to the index. If an earlier field
    /// of the tool contains the same word, the word keeps the weight of the earlier field. Callers
    /// must therefore add the field with the highest weight first.
    fn add_words(&mut self, tool: u32, weight: f32, words: impl IntoIterator<Item = String>) {
        let room = MAX_WORDS - self.read;
        for word in words.into_iter().take(MAX_TEXT_WORDS.min(room)) {
            self.read += 1;
            let postings = self.words.entry(word).or_default();
            if postings.last().is_none_or(|last| last.tool != tool) {
                postings.push(Posting { tool, weight });
            }
        }
    }

    /// Returns the best matches for a query, at most `limit`. `exact` is the index of the tool
    /// whose name equals the query, in the list of all tools. It is `None` if no tool has this
    /// name.
    pub(super) fn search(&self, query: &str, exact: Option<usize>, limit: usize) -> SearchResult {
        let query = beginning(query, MAX_QUERY);
        let wanted = wanted(query);
        let fits = self.names_that_fit(query, exact);
        let mut scores = Scores::new(self.tools.len());
        for word in &wanted {
            scores.add(word, self);
        }
        let mut best: Vec<u32> = (0..)
            .zip(&scores.scores)
            .filter(|(tool, score)| wanted.is_empty() || **score > 0.0 || fits.contains_key(tool))
            .map(|(tool, _)| tool)
            .collect();
        let total = best.len();

        let fit = |tool: u32| fits.get(&tool).copied().unwrap_or(NameFits::NotAtAll);
        let order = |one: &u32, other: &u32| {
            let score = |tool: u32| scores.scores[tool as usize];
            Reverse(fit(*one))
                .cmp(&Reverse(fit(*other)))
                .then_with(|| score(*other).total_cmp(&score(*one)))
                .then_with(|| one.cmp(other))
        };
        if limit < total {
            best.select_nth_unstable_by(limit, order);
            best.truncate(limit);
        }
        best.sort_unstable_by(order);
        SearchResult {
            positions: best.into_iter().map(|tool| self.tools[tool as usize]).collect(),
            total,
        }
    }

    /// Returns the tools whose names match the whole query, and the quality of each match. `exact`
    /// is the index of the tool whose name equals the query, or `None` if no tool has this name.
    fn names_that_fit(&self, query: &str, exact: Option<usize>) -> HashMap<u32, NameFits> {
        let words = plain(query);
        let in_words = self.names.get(&words).filter(|_| !words.is_empty());
        let in_words = in_words.into_iter().flatten().map(|tool| (*tool, NameFits::InItsWords));
        let exact = exact.and_then(|position| self.number(position));
        // If a tool occurs twice, the map contains the last entry, which is the exact match.
        in_words.chain(exact.map(|tool| (tool, NameFits::Exactly))).collect()
    }

    /// Converts `position`, an index in the list of all tools, to an index in the list of
    /// advertised tools. Returns `None` if the tool is not advertised.
    fn number(&self, position: usize) -> Option<u32> {
        self.tools.binary_search(&position).ok().and_then(|number| number.try_into().ok())
    }

    /// Returns the indexed words that match a query word: the word itself, its prefixes, and longer
    /// words that begin with it. Each item contains the closeness of the two words, and the tools
    /// that contain the indexed word.
    fn like<'i>(&'i self, word: &'i str) -> impl Iterator<Item = (f32, &'i [Posting])> {
        let same = self.words.get(word).map(|postings| (1.0, postings.as_slice()));
        let ends = word.char_indices().map(|(end, _)| end).skip(MIN_BEGINNING);
        let shorter = ends.filter_map(move |end| {
            let beginning = &word[..end];
            self.words.get(beginning).map(|found| (closeness(beginning, word), found.as_slice()))
        });
        let is_long_enough = word.chars().nth(MIN_BEGINNING - 1).is_some();
        let from_here = (Bound::Included(word), Bound::Unbounded);
        let longer = is_long_enough.then(|| self.words.range::<str, _>(from_here));
        let longer = longer
            .into_iter()
            .flatten()
            .take_while(move |(found, _)| found.starts_with(word))
            .filter(move |(found, _)| *found != word)
            .map(move |(found, postings)| (closeness(word, found), postings.as_slice()));
        same.into_iter().chain(shorter).chain(longer)
    }
}

/// Returns the distinct words of a query, up to [`MAX_QUERY_WORDS`].
fn wanted(query: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    words(query).filter(|word| seen.insert(word.clone())).take(MAX_QUERY_WORDS).collect()
}

/// Returns the closeness of `word` and its prefix `beginning`: half the ratio of their lengths. For
/// example, the closeness of `iss` and `issues` is 0.25.
fn closeness(beginning: &str, word: &str) -> f32 {
    BEGINNING * beginning.len() as f32 / word.len() as f32
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("tools", &self.tools.len())
            .field("words", &self.words.len())
            .finish_non_exhaustive()
    }
}

// === impl Scores ===

impl Scores {
    fn new(tools: usize) -> Self {
        Self { scores: vec![0.0; tools], weights: vec![0.0; tools], matched: Vec::new() }
    }

    /// Increases the score of every tool that matches a query word. The increase is larger if only
    /// a few tools match the word.
    fn add(&mut self, word: &str, index: &Index) {
        for (counts, postings) in index.like(word) {
            for Posting { tool, weight } in postings {
                let best = &mut self.weights[*tool as usize];
                if *best == 0.0 {
                    self.matched.push(*tool);
                }
                *best = best.max(counts * weight);
            }
        }
        let rarity = rarity(self.matched.len(), self.scores.len());
        for tool in self.matched.drain(..) {
            let tool = tool as usize;
            self.scores[tool] += rarity * self.weights[tool];
            self.weights[tool] = 0.0;
        }
    }
}

/// Returns the factor with which a query word increases the scores of the tools that match it. The
/// word matches `matched` of `all` tools. The factor is always positive, and larger for rare words.
fn rarity(matched: usize, all: usize) -> f32 {
    let (matched, all) = (matched as f32, all as f32);
    (1.0 + (all - matched + 0.5) / (matched + 0.5)).ln()
}
