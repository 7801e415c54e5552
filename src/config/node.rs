//! The values of a parsed TOML file.

use std::ptr;

use toml::{Spanned, de::DeValue};

/// A value of a parsed TOML file, with its span in the text.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// Returns the memory address of a value. The address identifies the value while the file is read.
pub(super) fn address(node: &Node<'_>) -> usize {
    ptr::from_ref(node).addr()
}
