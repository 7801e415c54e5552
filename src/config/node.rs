//! The values of a parsed TOML file.

use std::ptr;

use toml::{Spanned, de::DeValue};

/// A value of a parsed TOML file, with its position in the text.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// Returns the memory address of a TOML value. The reader uses it to identify the value.
pub(super) fn address(node: &Node<'_>) -> usize {
    ptr::from_ref(node).addr()
}
