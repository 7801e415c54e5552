//! Values of a parsed file.

use std::ptr;

use toml::{Spanned, de::DeValue};

/// A value in the tree of a parsed file, with its span in the text.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// Returns the memory address of a value, which identifies the value.
pub(super) fn address(node: &Node<'_>) -> usize {
    ptr::from_ref(node).addr()
}
