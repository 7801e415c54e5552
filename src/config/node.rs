//! The values of a parsed TOML file.

use std::ptr;

use toml::{Spanned, de::DeValue};

/// A value of a parsed TOML file, with its position in the text.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// Returns the memory address of a TOML value, which identifies the value while the file is being
/// read.
pub(super) fn address(node: &Node<'_>) -> usize {
    ptr::from_ref(node).addr()
}
