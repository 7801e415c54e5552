//! Redacts the values that JSON Pointers with wildcards select.

use std::fmt;

use serde_json::Value;

use crate::json_pointer;

/// The text that replaces a redacted value.
pub(super) const MARK: &str = "[redacted]";

/// A JSON Pointer that may contain wildcard segments.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pointer(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// Selects the object member with this name, or the array element with this index.
    Named(String),
    /// The wildcard `*`, which selects any member of an object or element of an array.
    Any,
    /// The wildcard `**`, which matches any number of segments, including none.
    Deep,
}

/// The error of an invalid JSON Pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointerError {
    pointer: String,
    /// The byte offset in `pointer` at which the error occurred.
    position: usize,
    reason: &'static str,
}

/// The JSON Pointers of one redaction, which together select the values of a result.
#[derive(Clone, Debug)]
pub(super) struct Pointers(Vec<Pointer>);

/// The state of matching several pointers against the path to a value. Contains only those pointers
/// that match the path so far, and that can select the value or a value inside it.
///
/// Each entry consists of the index of a pointer and the index of the segment that is matched next.
/// A pointer with a `**` segment may have several entries.
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

    /// Replaces all selected values with [`MARK`]. If `value` itself is selected and is an object,
    /// it becomes `{}`.
    pub(super) fn redact(&self, value: &mut Value) {
        let positions = self.begin();
        if self.is_there(&positions) {
            take_all(value);
        } else {
            self.redact_from(value, &positions);
        }
    }

    /// Keeps only the selected values, and the arrays and objects that contain them. Other members
    /// of objects are removed, and other elements of arrays are replaced with [`MARK`].
    pub(super) fn keep_only(&self, value: &mut Value) {
        if !self.keep_from(value, &self.begin()) {
            take_all(value);
        }
    }

    fn redact_from(&self, value: &mut Value, positions: &Positions) {
        if self.is_there(positions) {
            *value = MARK.into();
            return;
        }
        if positions.0.is_empty() {
            return;
        }
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    self.redact_from(member, &self.step(positions, name));
                }
            }
            Value::Array(elements) => {
                for (index, element) in elements.iter_mut().enumerate() {
                    self.redact_from(element, &self.step(positions, &index.to_string()));
                }
            }
            _ => (),
        }
    }

    /// Redacts everything in `value` that no pointer selects. Returns `false` if no pointer selects
    /// anything in it. The caller must then redact the whole value.
    fn keep_from(&self, value: &mut Value, positions: &Positions) -> bool {
        if self.is_there(positions) {
            return true;
        }
        if positions.0.is_empty() {
            return false;
        }
        match value {
            Value::Object(members) => {
                // Remove each member together with its name, because the name may be secret, too.
                members.retain(|name, member| self.keep_from(member, &self.step(positions, name)));
                !members.is_empty()
            }
            Value::Array(elements) => {
                let mut keeps_any = false;
                for (index, element) in elements.iter_mut().enumerate() {
                    if self.keep_from(element, &self.step(positions, &index.to_string())) {
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
        let mut positions = Positions(Vec::with_capacity(self.0.len()));
        for pointer in 0..self.0.len() {
            self.reach(&mut positions, pointer, 0);
        }
        positions
    }

    fn step(&self, positions: &Positions, name: &str) -> Positions {
        let mut next = Positions(Vec::new());
        for &(pointer, step) in &positions.0 {
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

    /// Adds an entry to `positions`: the segment `step` of `pointer` is matched next. If this
    /// segment is `**`, also adds an entry for the segment after it, because `**` can match zero
    /// segments.
    fn reach(&self, positions: &mut Positions, pointer: usize, step: usize) {
        let mut step = step;
        loop {
            if !positions.0.contains(&(pointer, step)) {
                positions.0.push((pointer, step));
            }
            match self.0[pointer].0.get(step) {
                Some(Segment::Deep) => step += 1,
                _ => return,
            }
        }
    }

    /// Returns `true` if a pointer selects the current value, because all of its segments match the
    /// path.
    fn is_there(&self, positions: &Positions) -> bool {
        positions.0.iter().any(|(pointer, step)| *step == self.0[*pointer].0.len())
    }
}

/// Redacts a whole value. Objects become `{}`, because clients of protocol versions before
/// 2026-07-28 accept only objects as structured content. All other values become [`MARK`].
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
        if let Some(position) = json_pointer::invalid_escape(pointer) {
            return error(position, "expected `0` or `1` after `~`");
        }
        let steps = steps.split('/').map(|step| match step {
            "*" => Segment::Any,
            "**" => Segment::Deep,
            named => Segment::Named(json_pointer::unescape(named).into_owned()),
        });
        Ok(Self(steps.collect()))
    }
}

// === impl PointerError ===

impl PointerError {
    /// Returns the invalid pointer.
    #[must_use]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Returns the byte offset in the pointer at which the error occurred.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }
}

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, position, reason } = self;
        write!(f, "`{pointer}` is not a JSON Pointer: {reason} at byte {position}")
    }
}

impl std::error::Error for PointerError {}
