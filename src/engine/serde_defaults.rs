//! Functions that test for default values, for `skip_serializing_if` of serde. They take
//! references, as serde requires.

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(super) const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
pub(super) const fn is_zero(number: &u64) -> bool {
    *number == 0
}
