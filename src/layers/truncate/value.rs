//! Shortens a JSON value in two passes.
//!
//! The first pass measures all parts of the value. The second pass uses these sizes to cut the
//! parts.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    cost::Cost,
    fair_share::{Chosen, Need, Part, choose, shares},
    omissions::{Location, Omissions, Reason, Unit},
    schema_form::{FormId, Forms},
};

/// Minimum length, in bytes, of a string whose size is stored in a [`Node`]. A shorter string is
/// measured again when the value is cut, because this is cheaper than storing its size.
const LONG: usize = 256;

/// The settings with which a value is measured and cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guide<'g> {
    pub(super) forms: &'g Forms<'g>,
    /// Computes the number of bytes that a part of the value takes in the tool result.
    pub(super) cost: Cost,
    /// Maps the name of each branch to the number of text blocks that repeat the output of the
    /// branch. Empty if the value is not the report of a fan-out.
    pub(super) branches: &'g HashMap<&'g str, usize>,
}

/// The context of one part of a JSON value: what its schema requires ([`FormId`]), how its cost is
/// computed, and its position in the report of a fan-out.
#[derive(Clone, Copy)]
struct Here {
    form: FormId,
    cost: Cost,
    spot: Spot,
}

/// The position of a part in the report of a fan-out. Determines which text blocks repeat the part,
/// which increases its cost.
#[derive(Clone, Copy)]
enum Spot {
    Report,
    Branches,
    /// The report of a single branch. Contains the number of text blocks that repeat the output of
    /// the branch.
    Branch(usize),
    Elsewhere,
}

/// The possible costs of a part of a JSON value, in bytes: the minimum costs if it is cut, and the
/// cost if it is kept whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// The cost if the part is cut as much as its schema allows.
    pub(super) least: usize,
    /// The cost if all object members are kept, and everything else is cut as much as possible.
    lean: usize,
    pub(super) whole: usize,
}

/// A JSON value whose parts were measured, so that it can be cut.
pub(super) struct Measured<'g> {
    value: &'g Value,
    guide: Guide<'g>,
    root: Here,
    pub(super) size: Size,
    /// The sizes of all arrays, objects and long strings in the value, in depth-first order. A
    /// parent comes before its children. Other parts have no node, because measuring them again is
    /// cheaper.
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    size: Size,
    /// The index of the first node that is neither this part nor contained in it.
    next: usize,
}

// === impl Measured ===

impl<'g> Measured<'g> {
    pub(super) fn new(value: &'g Value, guide: Guide<'g>) -> Self {
        let spot = if guide.branches.is_empty() { Spot::Elsewhere } else { Spot::Report };
        let root = Here { form: guide.forms.root(), cost: guide.cost, spot };
        let mut measured = Self { value, guide, root, size: Size::default(), nodes: Vec::new() };
        measured.size = measured.measure(value, root);
        measured
    }

    /// Returns the value, cut so that it costs at most `budget`, which must be at least
    /// `size.least`. Records all omissions in the [`Omissions`]. `location` is the position of the
    /// value in the result.
    pub(super) fn cut(
        &self,
        budget: usize,
        location: &Location<'_>,
        omissions: &mut Omissions,
    ) -> Value {
        self.cut_at(self.value, 0, budget, self.root, location, omissions)
    }

    fn measure(&mut self, value: &Value, here: Here) -> Size {
        match value {
            Value::Array(elements) => self.measure_array(elements, here),
            Value::Object(members) => self.measure_object(members, here),
            leaf if is_node(leaf) => {
                let size = self.leaf(leaf, here);
                self.nodes.push(Node { size, next: self.nodes.len() + 1 });
                size
            }
            leaf => self.leaf(leaf, here),
        }
    }

    fn measure_array(&mut self, elements: &[Value], here: Here) -> Size {
        let node = self.begin();
        let min_items = self.guide.forms.get(here.form).min_items;
        let mark = here.cost.mark();
        let mut size = Size { least: here.cost.brackets(), lean: 0, whole: here.cost.brackets() };
        for (index, element) in elements.iter().enumerate() {
            let of = self.measure(element, self.guide.element(here, index));
            let comma = if index == 0 { 0 } else { mark };
            size.whole += comma + of.whole;
            if index < min_items {
                size.least += comma + of.least;
            }
        }
        size.lean = size.least;
        self.end(node, size, here)
    }

    fn measure_object(&mut self, members: &Map<String, Value>, here: Here) -> Size {
        let node = self.begin();
        let form = self.guide.forms.get(here.form);
        let (brackets, mark) = (here.cost.brackets(), here.cost.mark());
        let mut size = Size { least: brackets, lean: brackets, whole: brackets };
        let mut required = 0;
        for (index, (name, member)) in members.iter().enumerate() {
            let of = self.measure(member, self.guide.member(here, name));
            let key = here.cost.key(name);
            let comma = if index == 0 { 0 } else { mark };
            size.whole += comma + key + of.whole;
            size.lean += comma + key + of.lean;
            if form.requires(name) {
                size.least += if required == 0 { 0 } else { mark } + key + of.least;
                required += 1;
            }
        }
        self.end(node, size, here)
    }

    fn leaf(&self, value: &Value, here: Here) -> Size {
        let Value::String(text) = value else {
            let cost = here.cost.scalar(value);
            return Size { least: cost, lean: cost, whole: cost };
        };
        let form = self.guide.forms.get(here.form);
        let whole = here.cost.text(text);
        let least = if form.is_fixed {
            whole
        } else {
            // The mark `…` counts as one of the characters that the schema requires.
            let kept = form.min_length.saturating_sub(1);
            let end = match kept {
                0 => 0,
                kept => text.char_indices().nth(kept).map_or(text.len(), |(at, _)| at),
            };
            let beginning = here.cost.text(&text[..end]) - here.cost.text("");
            whole.min(here.cost.cut_text() + beginning)
        };
        Size { least, lean: least, whole }
    }

    fn begin(&mut self) -> usize {
        self.nodes.push(Node::default());
        self.nodes.len() - 1
    }

    fn end(&mut self, node: usize, mut size: Size, here: Here) -> Size {
        if self.guide.forms.get(here.form).is_fixed {
            size = Size { least: size.whole, lean: size.whole, whole: size.whole };
        }
        self.nodes[node] = Node { size, next: self.nodes.len() };
        size
    }

    /// Returns a part of the value, cut so that it costs at most `budget`. `node` is the index of
    /// the part's node. It is ignored for parts that have no node.
    fn cut_at(
        &self,
        value: &Value,
        node: usize,
        budget: usize,
        here: Here,
        location: &Location<'_>,
        omissions: &mut Omissions,
    ) -> Value {
        match value {
            Value::Array(elements) if self.nodes[node].size.whole > budget => {
                self.cut_array(elements, node, budget, here, location, omissions)
            }
            Value::Object(members) if self.nodes[node].size.whole > budget => {
                self.cut_object(members, node, budget, here, location, omissions)
            }
            Value::String(text) if self.size_of(value, &mut { node }, here).whole > budget => {
                let (cut, kept) = here.cost.cut(text, budget);
                omissions.add(location, Reason::Size, kept, text.len(), Unit::Bytes);
                cut.into()
            }
            whole => whole.clone(),
        }
    }

    fn cut_array(
        &self,
        elements: &[Value],
        node: usize,
        budget: usize,
        here: Here,
        location: &Location<'_>,
        omissions: &mut Omissions,
    ) -> Value {
        let (brackets, mark) = (here.cost.brackets(), here.cost.mark());
        let min_items = self.guide.forms.get(here.form).min_items;
        let reserved =
            if min_items == 0 { 0 } else { self.nodes[node].size.least - brackets + mark };
        // The first element has no comma.
        let budget = (budget + mark).saturating_sub(brackets);
        let mut nodes = Vec::new();
        let mut next = node + 1;
        let needs = elements.iter().enumerate().map(|(index, element)| {
            nodes.push(next);
            let size = self.size_of(element, &mut next, self.guide.element(here, index));
            Need {
                beside: mark,
                part: Part::new(size.least, size.whole),
                is_required: index < min_items,
            }
        });
        let Chosen { indices, shares } = choose(budget, elements.len(), reserved, needs);
        if indices.len() < elements.len() {
            omissions.add(location, Reason::Size, indices.len(), elements.len(), Unit::Elements);
        }
        let cut = indices.into_iter().zip(shares).map(|(at, share)| {
            let here = self.guide.element(here, at);
            self.cut_at(&elements[at], nodes[at], share, here, &location.element(at), omissions)
        });
        Value::Array(cut.collect())
    }

    fn cut_object(
        &self,
        members: &Map<String, Value>,
        node: usize,
        budget: usize,
        here: Here,
        location: &Location<'_>,
        omissions: &mut Omissions,
    ) -> Value {
        let size = self.nodes[node].size;
        let (brackets, mark) = (here.cost.brackets(), here.cost.mark());
        let form = self.guide.forms.get(here.form);
        let keeps_all = size.lean <= budget;
        let reserved = if form.requires_any() { size.least - brackets + mark } else { 0 };
        let budget = (budget + mark).saturating_sub(brackets);
        let mut nodes = Vec::new();
        let mut next = node + 1;
        let needs = members.iter().map(|(name, member)| {
            nodes.push(next);
            let size = self.size_of(member, &mut next, self.guide.member(here, name));
            Need {
                beside: here.cost.key(name) + mark,
                part: Part::new(if keeps_all { size.lean } else { size.least }, size.whole),
                is_required: form.requires(name),
            }
        });
        let Chosen { indices, shares } = if keeps_all {
            let needs: Vec<_> = needs.collect();
            let beside: usize = needs.iter().map(|need| need.beside).sum();
            let parts = needs.into_iter().map(|need| need.part).collect();
            let shares = shares(budget.saturating_sub(beside), parts);
            Chosen { indices: (0..members.len()).collect(), shares }
        } else {
            choose(budget, members.len(), reserved, needs)
        };
        if indices.len() < members.len() {
            omissions.add(location, Reason::Size, indices.len(), members.len(), Unit::Members);
        }
        let end = indices.last().map_or(0, |last| last + 1);
        let mut chosen = indices.into_iter().zip(shares).peekable();
        let cut = members.iter().take(end).enumerate().filter_map(|(at, (name, member))| {
            let (_, share) = chosen.next_if(|(index, _)| *index == at)?;
            let here = self.guide.member(here, name);
            let location = location.member(name);
            Some((name.clone(), self.cut_at(member, nodes[at], share, here, &location, omissions)))
        });
        // Collecting the members is faster than inserting them one by one.
        Value::Object(cut.collect())
    }

    /// Returns the size of a part of the value. `next` is the index of the part's node, if it has
    /// one. The method then sets `next` to the index of the first node after the part.
    fn size_of(&self, value: &Value, next: &mut usize, here: Here) -> Size {
        if !is_node(value) {
            return self.leaf(value, here);
        }
        let node = &self.nodes[*next];
        *next = node.next;
        node.size
    }
}

/// Returns `true` if the size of this part is stored in a [`Node`]: for arrays, objects and long
/// strings. Other parts are measured again when the value is cut.
fn is_node(value: &Value) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) => true,
        Value::String(text) => text.len() >= LONG,
        _ => false,
    }
}

// === impl Guide ===

impl Guide<'_> {
    fn member(&self, here: Here, name: &str) -> Here {
        let form = self.forms.member(here.form, name);
        let (spot, texts) = match here.spot {
            Spot::Report if name == "branches" => (Spot::Branches, 0),
            Spot::Branches => {
                (Spot::Branch(self.branches.get(name).copied().unwrap_or_default()), 0)
            }
            Spot::Branch(texts) if name == "output" => (Spot::Elsewhere, texts),
            _ => (Spot::Elsewhere, 0),
        };
        Here { form, cost: here.cost.and_texts(texts), spot }
    }

    fn element(&self, here: Here, index: usize) -> Here {
        Here { form: self.forms.element(here.form, index), spot: Spot::Elsewhere, ..here }
    }
}
