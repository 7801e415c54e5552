use std::fmt;

use serde_json::Value;

/// What stands for what was taken out.
pub(super) const MARK: &str = "[redacted]";

/// A JSON Pointer, in which a step may be any.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pointer(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// The member of this name, or the element at this place.
    Named(String),
    /// Any one member or element.
    Any,
    /// Any number of steps, also none.
    Deep,
}

/// A text that is no pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointerError {
    pointer: String,
    /// Of the first byte that is wrong.
    position: usize,
    reason: &'static str,
}

/// Places in a value.
#[derive(Clone, Debug)]
pub(super) struct Pointers(Vec<Pointer>);

/// How far the pointers have come on the way to some place.
///
/// Of each that still can point there or below it: which one, and its next step.
#[derive(Clone, Debug)]
struct Positions(Vec<(usize, usize)>);

// === impl Pointers ===

impl Pointers {
    pub(super) fn parse<P: AsRef<str>>(
        pointers: impl IntoIterator<Item = P>,
    ) -> Result<Self, PointerError> {
        let pointers = pointers.into_iter().map(|pointer| Pointer::parse(pointer.as_ref()));
        pointers.collect::<Result<_, _>>().map(Self)
    }

    /// Puts the mark in the place of all that is pointed to.
    pub(super) fn redact(&self, value: &mut Value) {
        let way = self.begin();
        if self.is_there(&way) {
            take_all(value);
        } else {
            self.redact_from(value, &way);
        }
    }

    /// Leaves what is pointed to and what is on the way there: other members are gone,
    /// and other elements are marks.
    pub(super) fn keep_only(&self, value: &mut Value) {
        if !self.keep_from(value, &self.begin()) {
            take_all(value);
        }
    }

    fn redact_from(&self, value: &mut Value, way: &Positions) {
        if self.is_there(way) {
            *value = MARK.into();
            return;
        }
        if way.0.is_empty() {
            return;
        }
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    self.redact_from(member, &self.step(way, name));
                }
            }
            Value::Array(elements) => {
                for (place, element) in elements.iter_mut().enumerate() {
                    self.redact_from(element, &self.step(way, &place.to_string()));
                }
            }
            _ => (),
        }
    }

    /// Whether there is something in it that is pointed to; if not, it must go.
    fn keep_from(&self, value: &mut Value, way: &Positions) -> bool {
        if self.is_there(way) {
            return true;
        }
        if way.0.is_empty() {
            return false;
        }
        match value {
            Value::Object(members) => {
                // A name may say too much as well.
                members.retain(|name, member| self.keep_from(member, &self.step(way, name)));
                !members.is_empty()
            }
            Value::Array(elements) => {
                let mut keeps_any = false;
                for (place, element) in elements.iter_mut().enumerate() {
                    if self.keep_from(element, &self.step(way, &place.to_string())) {
                        keeps_any = true;
                    } else {
                        *element = MARK.into();
                    }
                }
                keeps_any
            }
            _ => false,
        }
    }

    fn begin(&self) -> Positions {
        let mut way = Positions(Vec::with_capacity(self.0.len()));
        for pointer in 0..self.0.len() {
            self.reach(&mut way, pointer, 0);
        }
        way
    }

    fn step(&self, way: &Positions, name: &str) -> Positions {
        let mut next = Positions(Vec::new());
        for &(pointer, step) in &way.0 {
            match &self.0[pointer].0[step..] {
                [Segment::Deep, ..] => self.reach(&mut next, pointer, step),
                [Segment::Any, ..] => self.reach(&mut next, pointer, step + 1),
                [Segment::Named(named), ..] if named == name => {
                    self.reach(&mut next, pointer, step + 1);
                }
                _ => (),
            }
        }
        next
    }

    /// Adds that a pointer has come so far; further, if it may skip what is next.
    fn reach(&self, way: &mut Positions, pointer: usize, step: usize) {
        let mut step = step;
        loop {
            if !way.0.contains(&(pointer, step)) {
                way.0.push((pointer, step));
            }
            match self.0[pointer].0.get(step) {
                Some(Segment::Deep) => step += 1,
                _ => return,
            }
        }
    }

    /// Whether something points to where the way has led.
    fn is_there(&self, way: &Positions) -> bool {
        way.0.iter().any(|(pointer, step)| *step == self.0[*pointer].0.len())
    }
}

/// Takes out all of a value. An object stays one: older clients know no other
/// structured content.
fn take_all(value: &mut Value) {
    match value {
        Value::Object(members) => members.clear(),
        other => *other = MARK.into(),
    }
}

// === impl Pointer ===

impl Pointer {
    fn parse(pointer: &str) -> Result<Self, PointerError> {
        let error =
            |position, reason| Err(PointerError { pointer: pointer.to_owned(), position, reason });
        let Some(steps) = pointer.strip_prefix('/') else {
            return match pointer {
                "" => Ok(Self(Vec::new())),
                _ => error(0, "expected `/`"),
            };
        };
        for (tilde, _) in pointer.match_indices('~') {
            if !matches!(pointer.as_bytes().get(tilde + 1), Some(b'0' | b'1')) {
                return error(tilde, "expected `0` or `1` after `~`");
            }
        }
        let steps = steps.split('/').map(|step| match step {
            "*" => Segment::Any,
            "**" => Segment::Deep,
            named => Segment::Named(named.replace("~1", "/").replace("~0", "~")),
        });
        Ok(Self(steps.collect()))
    }
}

// === impl PointerError ===

impl PointerError {
    /// The text that is no pointer.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Where it is wrong, in bytes from its beginning.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }
}

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, position, reason } = self;
        write!(f, "`{pointer}` is no JSON Pointer: {reason} at byte {position}")
    }
}

impl std::error::Error for PointerError {}
