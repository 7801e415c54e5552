use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    ops::Bound,
};

use rmcp::model::Tool;

use super::terms::{beginning, plain, words};
use crate::catalog::Tools;

/// How much of a query is read, in bytes and in words.
const MAX_QUERY: usize = 1_024;
const MAX_QUERY_WORDS: usize = 32;
/// How much of a name, a title or a description is read, in bytes and in words.
const MAX_TEXT: usize = 8_192;
const MAX_TEXT_WORDS: usize = 512;
/// How many words of all tools together are read. Tools beyond that are found by their
/// names as wholes.
const MAX_WORDS: usize = 1_000_000;
/// How many characters a word must have to be found by, or find, a longer one.
const MIN_BEGINNING: usize = 3;

/// What a word weighs in a name, at least; alone in it, it weighs two more.
const IN_NAME: f32 = 3.0;
const IN_TITLE: f32 = 2.0;
const IN_DESCRIPTION: f32 = 1.0;
/// What counts of a word that only begins like the one that is looked for, were
/// it as long.
const BEGINNING: f32 = 0.5;

/// The tools that are advertised, by the words that find them.
#[derive(Default)]
pub struct Index {
    /// The places of tools among all that there are, in listing order.
    tools: Vec<usize>,
    /// In which tools a word stands.
    words: BTreeMap<String, Vec<Posting>>,
    /// Which tools have a name of these words.
    names: HashMap<String, Vec<u32>>,
    /// How many words were read.
    read: usize,
}

/// That a word stands in a tool.
#[derive(Clone, Copy)]
struct Posting {
    /// Which of the advertised tools it is.
    tool: u32,
    weight: f32,
}

/// What a query has found.
pub(super) struct SearchResult {
    /// The places of the best tools, best first.
    pub(super) places: Vec<usize>,
    /// How many tools there are that match.
    pub(super) total: usize,
}

/// How well tools match a query.
struct Scores {
    /// Of each tool; zero if it does not match.
    scores: Vec<f32>,
    /// Of each tool, for one word of the query.
    weights: Vec<f32>,
    /// The tools that one word of the query was found in.
    matched: Vec<u32>,
}

/// How well the name of a tool fits a query as a whole.
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
        for (place, tool) in tools.iter().enumerate() {
            if is_advertised(&tool.name) {
                index.add(place, tool);
            }
        }
        index
    }

    fn add(&mut self, place: usize, tool: &Tool) {
        // A catalog ends long before.
        let Ok(number) = u32::try_from(self.tools.len()) else { return };
        self.tools.push(place);

        let name = beginning(&tool.name, MAX_TEXT);
        self.names.entry(plain(name)).or_default().push(number);
        let name: HashSet<String> = words(name).take(MAX_TEXT_WORDS).collect();
        let in_name = IN_NAME + 2.0 / name.len().max(1) as f32;
        self.add_words(number, in_name, name);
        let annotated =
            tool.annotations.as_ref().and_then(|annotations| annotations.title.as_ref());
        for title in tool.title.iter().chain(annotated) {
            self.add_words(number, IN_TITLE, words(beginning(title, MAX_TEXT)));
        }
        if let Some(description) = &tool.description {
            self.add_words(number, IN_DESCRIPTION, words(beginning(description, MAX_TEXT)));
        }
    }

    /// Adds words that weigh no more than those which were added before.
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

    /// Looks for tools; `exact` is the place of the one whose name is the query.
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
            places: best.into_iter().map(|tool| self.tools[tool as usize]).collect(),
            total,
        }
    }

    /// The tools whose names fit the query as a whole.
    fn names_that_fit(&self, query: &str, exact: Option<usize>) -> HashMap<u32, NameFits> {
        let words = plain(query);
        let in_words = self.names.get(&words).filter(|_| !words.is_empty());
        let in_words = in_words.into_iter().flatten().map(|tool| (*tool, NameFits::InItsWords));
        let exact = exact.and_then(|place| self.number(place));
        // The last word on a tool counts.
        in_words.chain(exact.map(|tool| (tool, NameFits::Exactly))).collect()
    }

    /// Which of the advertised tools stands at this place, if any does.
    fn number(&self, place: usize) -> Option<u32> {
        self.tools.binary_search(&place).ok().and_then(|number| number.try_into().ok())
    }

    /// What the index has of a word, and of words that one is the beginning of the
    /// other, with what counts of them.
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

/// The different words of a query.
fn wanted(query: &str) -> Vec<String> {
    let mut wanted = Vec::new();
    for word in words(query) {
        if wanted.len() == MAX_QUERY_WORDS {
            break;
        }
        if !wanted.contains(&word) {
            wanted.push(word);
        }
    }
    wanted
}

/// What counts of a word that another is only the beginning of.
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

    /// Adds what a word of the query counts, which is more the fewer tools have it.
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

/// How much it says that `matched` of `all` tools have a word; more than zero.
fn rarity(matched: usize, all: usize) -> f32 {
    let (matched, all) = (matched as f32, all as f32);
    (1.0 + (all - matched + 0.5) / (matched + 0.5)).ln()
}
