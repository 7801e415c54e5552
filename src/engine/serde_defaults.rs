//! A function that tests for default values, for `skip_serializing_if` of serde.

/// Returns `true` for the default value of a type, such as `false` or zero.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
