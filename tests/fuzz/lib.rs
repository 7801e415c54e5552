//! The checks of `tests/it/fuzz`, for the targets here.

#[path = "../it/fuzz/checks/mod.rs"]
mod checks;

/// Runs the check of a target.
pub fn check(target: &str, data: &[u8]) {
    let (_, check) = checks::TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
    check(data);
}
