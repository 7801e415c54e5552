//! Tests for default values, which are not serialized.
//!
//! Attributes of serde require functions that take references.

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(super) const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(super) const fn is_zero(number: &u64) -> bool {
    *number == 0
}
