//! Values of a parsed file.

use std::ptr;

use toml::{Spanned, de::DeValue};

/// A value of the file and its span.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// Returns the address of a value, which identifies it.
pub(super) fn address(node: &Node<'_>) -> usize {
    ptr::from_ref(node).addr()
}
