//! The labels of values. Each label has the path on which labeled data reaches the value.

use std::{collections::BTreeMap, fmt, sync::Arc};

/// A label of data, which restricts the uses of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Private,
    Untrusted,
}

/// The labels of a value in a composite. The labels of the composite's input are unknown until the
/// composite is called. A value that depends on the input therefore stores the names of the input
/// properties.
#[derive(Clone, Debug, Default)]
pub(super) struct Taint {
    private: Option<Trace>,
    untrusted: Option<Trace>,
    /// The input properties on which the value depends, each with the path from the property to the
    /// value. The key `None` stands for the whole input.
    inputs: BTreeMap<InputName, Trace>,
}

/// The name of an input property, or `None` for the whole input.
pub(super) type InputName = Option<Arc<str>>;

/// The path of a value through a composite, from its source to the place where it is used.
#[derive(Clone, Debug)]
pub(super) struct Trace(Arc<Link>);

#[derive(Debug)]
struct Link {
    before: Option<Trace>,
    hop: Hop,
}

/// A stage on the path of a value through a composite, for example a tool that returns the value,
/// or an argument that contains it.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    /// The name of the composite to which this stage belongs.
    pub(super) composite: Arc<str>,
    /// A description of this stage, such as the name of a tool or argument.
    pub(super) what: String,
    /// The step or target to which this stage belongs. `None` if it belongs to no step or target.
    pub(super) place: Option<StepPlace>,
}

/// A step or target of a composite. `Display` prints it for messages, such as ``step `read` ``.
#[derive(Clone, Debug)]
pub(super) struct StepPlace {
    /// `step` or `target`.
    pub(super) kind: &'static str,
    pub(super) id: Arc<str>,
}

// === impl Source ===

impl Source {
    /// Returns a name for data with this label, such as `private data`.
    pub(super) const fn data(self) -> &'static str {
        match self {
            Self::Private => "private data",
            Self::Untrusted => "untrusted data",
        }
    }
}

// === impl Taint ===

impl Taint {
    /// Returns the label `source`, with a path that starts at `hop`.
    pub(super) fn of(source: Source, hop: &Hop) -> Self {
        let mut taint = Self::default();
        *taint.label(source) = Some(Trace::start(hop));
        taint
    }

    /// Returns the labels of an input property, or of the whole input if `input` is `None`. Their
    /// path starts at `hop`.
    pub(super) fn of_input(input: InputName, hop: &Hop) -> Self {
        Self { inputs: [(input, Trace::start(hop))].into(), ..Self::default() }
    }

    /// Returns all labels, and a dependency on the whole input, for a value about which nothing is
    /// known. Their paths start at `hop`.
    pub(super) fn unknown(hop: &Hop) -> Self {
        let mut taint = Self::of(Source::Private, hop);
        taint.untrusted = Some(Trace::start(hop));
        taint.inputs.insert(None, Trace::start(hop));
        taint
    }

    const fn label(&mut self, source: Source) -> &mut Option<Trace> {
        match source {
            Source::Private => &mut self.private,
            Source::Untrusted => &mut self.untrusted,
        }
    }

    /// Returns the path on which data with the label `source` reaches the value. Returns `None` if
    /// the value does not have this label.
    pub(super) const fn get(&self, source: Source) -> Option<&Trace> {
        match source {
            Source::Private => self.private.as_ref(),
            Source::Untrusted => self.untrusted.as_ref(),
        }
    }

    /// Iterates over the input properties on which the value depends. Each item contains the path
    /// from the property to the value.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (&InputName, &Trace)> {
        self.inputs.iter()
    }

    /// Adds the labels and input properties of `other`. A label that this value already has keeps
    /// its path.
    pub(super) fn join(&mut self, other: &Self) {
        for source in [Source::Private, Source::Untrusted] {
            let label = self.label(source);
            if label.is_none() {
                *label = other.get(source).cloned();
            }
        }
        for (input, trace) in &other.inputs {
            self.inputs.entry(input.clone()).or_insert_with(|| trace.clone());
        }
    }

    /// Returns `true` if this value has all labels of `other`, and depends on all input properties
    /// on which `other` depends.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let has = |source| self.get(source).is_some() || other.get(source).is_none();
        has(Source::Private)
            && has(Source::Untrusted)
            && other.inputs.keys().all(|input| self.inputs.contains_key(input))
    }

    /// Returns the labels of a value that is computed from this value at `hop`. The labels do not
    /// change, but their paths are extended by `hop`.
    pub(super) fn through(&self, hop: &Hop) -> Self {
        let then = |trace: &Trace| trace.then(hop);
        let inputs = self.inputs.iter().map(|(input, trace)| (input.clone(), trace.then(hop)));
        Self {
            private: self.private.as_ref().map(then),
            untrusted: self.untrusted.as_ref().map(then),
            inputs: inputs.collect(),
        }
    }

    /// Returns the private and untrusted labels, without the input properties.
    pub(super) fn without_inputs(&self) -> Self {
        Self { inputs: BTreeMap::new(), ..self.clone() }
    }
}

// === impl Trace ===

impl Trace {
    fn start(hop: &Hop) -> Self {
        Self(Arc::new(Link { before: None, hop: hop.clone() }))
    }

    fn then(&self, hop: &Hop) -> Self {
        Self(Arc::new(Link { before: Some(self.clone()), hop: hop.clone() }))
    }

    /// Returns all stages of the path, from the source of the value to the place where it is used.
    pub(super) fn hops(&self) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut next = Some(self);
        while let Some(Self(link)) = next {
            hops.push(link.hop.clone());
            next = link.before.as_ref();
        }
        hops.reverse();
        hops
    }
}

// === impl Hop, StepPlace ===

impl Hop {
    /// Returns a description of this stage for a message about `composite`. If the stage belongs to
    /// a step of another composite, the description names that composite.
    pub(super) fn described(&self, composite: &str) -> String {
        let Self { composite: own, what, place } = self;
        match place {
            Some(place) if **own == *composite => format!("{what} ({place})"),
            Some(place) => format!("{what} ({place} of `{own}`)"),
            None => what.clone(),
        }
    }
}

impl fmt::Display for StepPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind, self.id)
    }
}
