//! The labels of values, each with the path on which data with this label reaches the value.

use std::{collections::BTreeMap, sync::Arc};

/// A label of data that some calls must not depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Private,
    Untrusted,
}

/// The labels of a value. The labels of the composite's input are not known. A value that depends
/// on the input therefore has symbolic labels, which stand for the labels of an input property.
#[derive(Clone, Debug, Default)]
pub(super) struct Taint {
    private: Option<Trace>,
    untrusted: Option<Trace>,
    /// The properties of the composite's input on which the value depends. `None` stands for the
    /// whole input.
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

/// A place on the path of a value, such as a step.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    /// The name of the composite that contains the place.
    pub(super) composite: Arc<str>,
    /// A description of the place, such as the name of a tool or argument.
    pub(super) what: String,
    /// The step or target that contains the place, such as ``step `read` ``.
    pub(super) place: Option<String>,
}

// === impl Taint ===

impl Taint {
    /// Returns the labels of data that comes from `source` at `hop`.
    pub(super) fn of(source: Source, hop: &Hop) -> Self {
        let mut taint = Self::default();
        *taint.label(source) = Some(Trace::start(hop));
        taint
    }

    /// Returns the symbolic labels of a property of the input.
    pub(super) fn of_input(input: InputName, hop: &Hop) -> Self {
        Self { inputs: [(input, Trace::start(hop))].into(), ..Self::default() }
    }

    /// Returns all labels, for a value whose labels are not known.
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

    /// Returns the path on which data from `source` reaches the value. Returns `None` if no such
    /// data reaches it.
    pub(super) const fn get(&self, source: Source) -> Option<&Trace> {
        match source {
            Source::Private => self.private.as_ref(),
            Source::Untrusted => self.untrusted.as_ref(),
        }
    }

    /// Iterates over the input properties on which the value depends.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (&InputName, &Trace)> {
        self.inputs.iter()
    }

    /// Adds the labels of `other`. If both have a label, its path is not changed.
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

    /// Returns `true` if this value has all labels of `other`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let has = |source| self.get(source).is_some() || other.get(source).is_none();
        has(Source::Private)
            && has(Source::Untrusted)
            && other.inputs.keys().all(|input| self.inputs.contains_key(input))
    }

    /// Returns the labels of a value that is computed from this value at `hop`.
    pub(super) fn through(&self, hop: &Hop) -> Self {
        let then = |trace: &Trace| trace.then(hop);
        let inputs = self.inputs.iter().map(|(input, trace)| (input.clone(), trace.then(hop)));
        Self {
            private: self.private.as_ref().map(then),
            untrusted: self.untrusted.as_ref().map(then),
            inputs: inputs.collect(),
        }
    }

    /// Returns the labels without the symbolic ones.
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

    /// Returns all places on the path, from the source to the end.
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

// === impl Hop ===

impl Hop {
    /// Returns a description of the place for readers of the composite with the name `composite`.
    pub(super) fn described(&self, composite: &str) -> String {
        let Self { composite: own, what, place } = self;
        match place {
            Some(place) if **own == *composite => format!("{what} ({place})"),
            Some(place) => format!("{what} ({place} of `{own}`)"),
            None => what.clone(),
        }
    }
}
