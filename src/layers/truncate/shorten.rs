//! Shortens a tool result to a maximum size.

use std::collections::HashMap;

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value};

use super::{
    block::{Block, text_of},
    cost::{Cost, MARK},
    fair_share::{Chosen, Need, Part, choose, shares},
    json_eq::repeats,
    omissions::{Location, Omissions, Reason, Unit},
    schema_form::Forms,
    value::{Guide, Measured},
};
use crate::{
    flow::are_labels, json_size::json_bytes, message::branch::branch_of, schema::InputSchema,
};

/// The length of `,"structuredContent":`.
const STRUCTURED: usize = 21;
/// The length of `,"_meta":{}`.
const META: usize = 11;

/// A shortened result, and the omissions in it.
#[derive(Debug)]
pub(super) struct Shortened {
    pub(super) result: CallToolResult,
    pub(super) omissions: Omissions,
}

/// Shortens a result to `limit` bytes. Omits the structured content if the shortened content would
/// not match the output schema.
pub(super) fn shorten(
    result: &CallToolResult,
    limit: usize,
    schema: Option<&InputSchema>,
) -> Shortened {
    let survey = Survey::new(result, result.structured_content.as_ref());
    let Some(structured) = survey.structured else {
        return survey.cut(limit, None, Omissions::default());
    };
    let free = Forms::free();
    let fits = |cut: &Shortened| match (schema, &cut.result.structured_content) {
        (Some(schema), Some(value)) => value == structured || schema.allows(value),
        _ => true,
    };
    let Some(cut) = survey.cut_with(limit, &free, Cost::STANDING) else {
        return survey.without_structured(limit, Reason::Size);
    };
    if fits(&cut) {
        return cut;
    }
    // Measure with the schema only if the first attempt does not match, because looking up the
    // forms of the schema takes longer.
    let minded = schema.and_then(|schema| {
        let schema = Value::Object((**schema.schema()).clone());
        survey.cut_with(limit, &Forms::of(&schema), Cost::STANDING)
    });
    if let Some(cut) = minded
        && fits(&cut)
    {
        return cut;
    }
    survey.without_structured(limit, Reason::Schema)
}

/// The parts of a result, with their sizes.
struct Survey<'r> {
    result: &'r CallToolResult,
    structured: Option<&'r Value>,
    blocks: Vec<Block<'r>>,
    /// For each content block, the value that its text repeats as JSON. `None` if the text does not
    /// repeat a value.
    repeated: Vec<Option<Repeated<'r>>>,
    /// The indices of the content blocks, grouped by branch. Each block that belongs to no branch
    /// has a group of its own.
    units: Vec<Vec<usize>>,
    /// The number of text blocks that repeat the structured content as JSON.
    texts: usize,
    /// For each branch of a fan-out, the number of text blocks that repeat the branch's output as
    /// JSON.
    branches: HashMap<&'r str, usize>,
}

/// The value whose JSON text is the content of a text block: the whole structured content, or the
/// output of one branch of a fan-out.
#[derive(Clone, Copy, Debug)]
enum Repeated<'r> {
    All,
    Branch(&'r str),
}

// === impl Survey ===

impl<'r> Survey<'r> {
    fn new(result: &'r CallToolResult, structured: Option<&'r Value>) -> Self {
        let repeated: Vec<_> =
            result.content.iter().map(|block| repeated_by(block, structured?)).collect();
        let blocks = result.content.iter().zip(&repeated);
        let blocks = blocks.map(|(block, repeated)| Block::new(block, repeated.is_some()));
        let mut units: Vec<Vec<usize>> = Vec::new();
        let mut of_branch = HashMap::new();
        for (index, block) in result.content.iter().enumerate() {
            match branch_of(block) {
                Some(branch) => {
                    let unit = *of_branch.entry(branch).or_insert(units.len());
                    if unit == units.len() {
                        units.push(Vec::new());
                    }
                    units[unit].push(index);
                }
                None => units.push(vec![index]),
            }
        }
        let mut survey = Self {
            result,
            structured,
            blocks: blocks.collect(),
            repeated,
            units,
            texts: 0,
            branches: HashMap::new(),
        };
        for repeated in survey.repeated.iter().flatten() {
            match repeated {
                Repeated::All => survey.texts += 1,
                Repeated::Branch(branch) => *survey.branches.entry(branch).or_default() += 1,
            }
        }
        survey
    }

    /// Shortens the result and its structured content. Returns `None` if there is no structured
    /// content, or if the structured content would exceed the limit even at its minimum size.
    fn cut_with(&self, limit: usize, forms: &Forms<'_>, cost: Cost) -> Option<Shortened> {
        let structured = self.structured?;
        let guide = Guide { forms, cost: cost.and_texts(self.texts), branches: &self.branches };
        let measured = Measured::new(structured, guide);
        (measured.size.least <= self.room(limit))
            .then(|| self.cut(limit, Some(&measured), Omissions::default()))
    }

    /// Shortens the result and omits its structured content. Texts that repeat the structured
    /// content are rendered from a shortened version of it if this version fits the limit.
    /// Otherwise, they are cut like plain text.
    fn without_structured(&self, limit: usize, reason: Reason) -> Shortened {
        let mut omissions = Omissions::default();
        if let Some(structured) = self.structured {
            let location = Location::root("structuredContent");
            omissions.add(&location, reason, 0, json_bytes(structured), Unit::Bytes);
        }
        if self.texts == 0 {
            // Cut texts that only repeat the output of a branch like plain text.
            return Survey::new(self.result, None).cut(limit, None, omissions);
        }
        let free = Forms::free();
        match self.cut_with(limit, &free, Cost::TEXT_ONLY) {
            Some(mut cut) => {
                cut.result.structured_content = None;
                omissions.append(cut.omissions);
                Shortened { omissions, ..cut }
            }
            None => Survey::new(self.result, None).cut(limit, None, omissions),
        }
    }

    fn cut(
        &self,
        limit: usize,
        structured: Option<&Measured<'_>>,
        mut omissions: Omissions,
    ) -> Shortened {
        let meta = self.result.meta.iter().flat_map(|meta| meta.iter());
        // The size of an entry includes its colon and comma.
        let entries: Vec<_> = meta
            .map(|(key, value)| (key, value, json_bytes(key) + json_bytes(value) + 2))
            .collect();
        let content = self.blocks.iter().map(|block| block.whole + 1).sum();
        let structured_part =
            structured.map_or(Part::new(0, 0), |it| Part::new(it.size.least, it.size.whole));
        // If an entry is omitted, the other parts share its bytes.
        let entry_parts = entries.iter().map(|(key, value, size)| {
            // The labels of the result are always kept.
            let least = if are_labels(key, value) { *size } else { 0 };
            Part { least, whole: *size, all_or_least: true }
        });
        let parts = [structured_part, Part::new(0, content)].into_iter().chain(entry_parts);
        let shares = shares(self.room(limit), parts.collect());

        let mut result = self.bare();
        let cut = structured.map(|measured| {
            measured.cut(shares[0], &Location::root("structuredContent"), &mut omissions)
        });
        result.content = self.content(shares[1], cut.as_ref(), &mut omissions);
        result.structured_content = cut;
        let location = Location::root("_meta");
        let entries = entries.into_iter().zip(&shares[2..]);
        let entries = entries.filter_map(|((key, value, size), share)| {
            if *share < size {
                omissions.add(&location.member(key), Reason::Size, 0, size, Unit::Bytes);
                return None;
            }
            Some((key.clone(), value.clone()))
        });
        let entries: Map<_, _> = entries.collect();
        result.meta = self.result.meta.as_ref().map(|_| MetaObject(entries));
        Shortened { result, omissions }
    }

    /// Returns the number of bytes that `limit` leaves for structured content, content and
    /// metadata, after subtracting the size of the other fields.
    fn room(&self, limit: usize) -> usize {
        let beside = json_bytes(&self.bare())
            + self.structured.map_or(0, |_| STRUCTURED)
            + self.result.meta.as_ref().map_or(0, |_| META);
        limit.saturating_sub(beside)
    }

    fn bare(&self) -> CallToolResult {
        let mut bare = CallToolResult::success(Vec::new());
        bare.result_type.clone_from(&self.result.result_type);
        bare.is_error = self.result.is_error;
        bare
    }

    fn content(
        &self,
        share: usize,
        cut: Option<&Value>,
        omissions: &mut Omissions,
    ) -> Vec<ContentBlock> {
        let needs = self.units.iter().map(|unit| {
            let whole: usize = unit.iter().map(|index| self.blocks[*index].whole + 1).sum();
            let first = &self.blocks[unit[0]];
            let all_or_least = unit.len() == 1 && first.is_undivided();
            Need {
                beside: 0,
                part: Part { least: first.least + 1, whole, all_or_least },
                is_required: false,
            }
        });
        let chosen = choose(share, self.units.len(), 0, needs);
        let mut of_block = vec![None; self.blocks.len()];
        for (unit, share) in chosen.indices.into_iter().zip(chosen.shares) {
            let unit = &self.units[unit];
            let needs = unit.iter().map(|index| {
                let block = &self.blocks[*index];
                let all_or_least = block.is_undivided();
                let part = Part { least: block.least, whole: block.whole, all_or_least };
                Need { beside: 1, part, is_required: false }
            });
            let Chosen { indices, shares } = choose(share, unit.len(), 0, needs);
            for (index, share) in indices.into_iter().zip(shares) {
                of_block[unit[index]] = Some(share);
            }
        }

        let all = Location::root("content");
        let kept = of_block.iter().flatten().count();
        if kept < self.blocks.len() {
            omissions.add(&all, Reason::Size, kept, self.blocks.len(), Unit::Blocks);
        }
        let blocks = self.blocks.iter().zip(of_block).enumerate();
        let blocks = blocks.filter_map(|(index, (block, share))| {
            let repeated = || self.repeated[index].and_then(|it| it.rendered(cut?));
            let repeated = || repeated().unwrap_or_else(|| MARK.to_owned());
            Some(block.cut(share?, repeated, &all.element(index), omissions))
        });
        blocks.collect()
    }
}

/// Returns the value that the text of a block repeats as JSON. Returns `None` if there is no such
/// value.
fn repeated_by<'r>(block: &'r ContentBlock, structured: &'r Value) -> Option<Repeated<'r>> {
    let text = block.as_text().and_then(|_| text_of(block))?;
    let of_branch = branch_of(block).filter(|branch| {
        let output = output_of(structured, branch);
        output.is_some_and(|output| repeats(text, output))
    });
    match of_branch {
        Some(branch) => Some(Repeated::Branch(branch)),
        None => repeats(text, structured).then_some(Repeated::All),
    }
}

/// Returns the output of a branch. `report` is the report of a fan-out, which contains the outputs
/// of its branches.
fn output_of<'v>(report: &'v Value, branch: &str) -> Option<&'v Value> {
    report.get("branches")?.get(branch)?.get("output")
}

// === impl Repeated ===

impl Repeated<'_> {
    /// Renders the new text of a block from the shortened structured content. If the block repeats
    /// the output of a branch, renders only this output.
    fn rendered(self, cut: &Value) -> Option<String> {
        match self {
            Self::All => Some(cut.to_string()),
            Self::Branch(branch) => output_of(cut, branch).map(Value::to_string),
        }
    }
}
