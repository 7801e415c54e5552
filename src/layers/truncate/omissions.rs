//! The omission notices of a shortened result.

use std::fmt::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::cost::MARK;
use crate::json_pointer;

/// Maximum number of omissions that the notices of one result describe. The notices also contain
/// the number of all omissions.
const MAX_DESCRIBED: usize = 32;
/// Maximum length, in bytes, of a JSON Pointer in a notice. Instead of a longer pointer, the notice
/// contains the pointer to the closest enclosing value whose pointer is short enough.
const MAX_POINTER: usize = 120;
/// Maximum length, in bytes, of the list of omissions in the text notice. The notice contains only
/// the number of the omissions that do not fit.
const MAX_NOTE: usize = 480;

/// The location of a value in a tool result, as a linked list of path segments from the value to
/// the root.
#[derive(Clone, Copy)]
pub(super) struct Location<'p> {
    parent: Option<&'p Self>,
    segment: Segment<'p>,
}

#[derive(Clone, Copy)]
enum Segment<'p> {
    Member(&'p str),
    Element(usize),
}

/// Collects the omissions of a shortened result: the first [`MAX_DESCRIBED`] omissions in detail,
/// and the number of all.
#[derive(Debug, Default)]
pub(super) struct Omissions {
    first: Vec<Omission>,
    count: usize,
}

#[derive(Debug, Serialize)]
struct Omission {
    pointer: String,
    reason: Reason,
    kept: usize,
    of: usize,
    unit: Unit,
}

/// The reason why a part of a result was omitted or cut.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// The part was larger than its share of the maximum size of the result.
    Size,
    /// The structured content was omitted, because no shortened version of it matched the
    /// `outputSchema` of the tool.
    Schema,
}

/// The unit in which the size of a shortened part is counted, such as the elements of an array.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    Bytes,
    Elements,
    Members,
    Blocks,
}

// === impl Location ===

impl<'p> Location<'p> {
    pub(super) const fn root(member: &'p str) -> Self {
        Self { parent: None, segment: Segment::Member(member) }
    }

    pub(super) const fn member<'q>(&'q self, name: &'q str) -> Location<'q>
    where
        'p: 'q,
    {
        Location { parent: Some(self), segment: Segment::Member(name) }
    }

    pub(super) const fn element<'q>(&'q self, index: usize) -> Location<'q>
    where
        'p: 'q,
    {
        Location { parent: Some(self), segment: Segment::Element(index) }
    }

    /// Returns the JSON Pointer to the location. If it is longer than [`MAX_POINTER`], returns the
    /// pointer to the closest enclosing value whose pointer is short enough.
    fn pointer(&self) -> String {
        let mut segments = Vec::new();
        let mut location = Some(self);
        while let Some(inner) = location {
            segments.push(inner.segment);
            location = inner.parent;
        }
        let mut pointer = String::new();
        for segment in segments.into_iter().rev() {
            let parent = pointer.len();
            pointer.push('/');
            match segment {
                Segment::Element(index) => {
                    // Writing to a string never fails.
                    let _ = write!(pointer, "{index}");
                }
                Segment::Member(name) if name.len() > MAX_POINTER => pointer.push_str(name),
                Segment::Member(name) => pointer.push_str(&json_pointer::escape(name)),
            }
            if pointer.len() > MAX_POINTER {
                pointer.truncate(parent);
                break;
            }
        }
        pointer
    }
}

// === impl Omissions ===

impl Omissions {
    pub(super) fn add(
        &mut self,
        location: &Location<'_>,
        reason: Reason,
        kept: usize,
        of: usize,
        unit: Unit,
    ) {
        self.count += 1;
        if self.first.len() < MAX_DESCRIBED {
            let pointer = location.pointer();
            self.first.push(Omission { pointer, reason, kept, of, unit });
        }
    }

    /// Returns `true` if no part of the result was omitted.
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds all omissions of `other`, which describes another part of the same result.
    pub(super) fn append(&mut self, other: Self) {
        self.count += other.count;
        self.first.extend(other.first);
        self.first.truncate(MAX_DESCRIBED);
    }

    /// Returns the text notice, which the layer adds to the content of the shortened result. It
    /// describes the omissions to the model.
    pub(super) fn note(&self) -> String {
        let mut note = "this result was truncated: ".to_owned();
        let mut described = 0;
        for omission in &self.first {
            let separator = if described == 0 { "" } else { "; " };
            let added = format!("{separator}{omission}");
            if note.len() + added.len() > MAX_NOTE {
                break;
            }
            note.push_str(&added);
            described += 1;
        }
        match self.count - described {
            0 => (),
            more => {
                let _ = write!(note, "{MARK} and {more} more");
            }
        }
        note
    }

    /// Returns the JSON notice, which the layer adds to the `_meta` of the shortened result. It
    /// describes the omissions to programs.
    pub(super) fn value(&self) -> Value {
        json!({ "omissions": self.first, "count": self.count })
    }
}

// === impl Omission ===

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, kept, of, unit, .. } = self;
        write!(f, "`{pointer}` has {kept} of {of} {unit}")?;
        match self.reason {
            Reason::Size => Ok(()),
            Reason::Schema => {
                f.write_str(", since a shorter value would violate the tool's schema")
            }
        }
    }
}

// === impl Unit ===

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Writes the name of the variant.
        self.serialize(f)
    }
}
