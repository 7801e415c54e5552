//! The checks that a setup does not pass, with the reason of each.

use std::{fs, path::Path};

use serde::Deserialize;

use crate::{
    setups::SetUp,
    suite::{Check, Revision},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Excluded {
    excluded: Vec<Exclusion>,
}

/// Some checks of one scenario.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exclusion {
    set_ups: Vec<SetUp>,
    revisions: Vec<Revision>,
    scenario: String,
    checks: Vec<String>,
    reason: String,
}

/// One check of one revision in one setup.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Index {
    exclusion: usize,
    revision: Revision,
    check: usize,
}

// === impl Excluded ===

impl Excluded {
    pub(crate) fn load() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/excluded.toml");
        let excluded: Self = toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        for exclusion in &excluded.excluded {
            assert!(!exclusion.reason.trim().is_empty(), "{} has no reason", exclusion.scenario);
        }
        excluded
    }

    pub(crate) fn find(&self, set_up: SetUp, revision: Revision, check: &Check) -> Option<Index> {
        self.of(set_up).find(|index| {
            let exclusion = &self.excluded[index.exclusion];
            index.revision == revision
                && exclusion.scenario == check.scenario
                && exclusion.checks[index.check] == check.id
        })
    }

    /// Returns all exclusions of a setup.
    pub(crate) fn of(&self, set_up: SetUp) -> impl Iterator<Item = Index> {
        let exclusions = self.excluded.iter().enumerate();
        exclusions.filter(move |(_, one)| one.set_ups.contains(&set_up)).flat_map(
            |(exclusion, one)| {
                one.revisions.iter().flat_map(move |&revision| {
                    (0..one.checks.len()).map(move |check| Index { exclusion, revision, check })
                })
            },
        )
    }

    pub(crate) fn describe(&self, index: Index) -> String {
        let exclusion = &self.excluded[index.exclusion];
        format!("{} {}/{}", index.revision, exclusion.scenario, exclusion.checks[index.check])
    }
}
