//! The official conformance suite against a test server, bare and behind this crate.
//!
//! `cargo test --all-features --test conformance` installs the suite and runs it. Requires npm; see
//! `README.md` here.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

mod excluded;
#[expect(deprecated, reason = "clients of 2025-11-25 subscribe and set levels")]
mod server;
mod setups;
mod suite;
mod task_server;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use futures::future::join_all;
use tokio::sync::OnceCell;

use self::{
    excluded::Excluded,
    setups::SetUp,
    suite::{Check, Revision, Status},
};

/// The status of each check of each revision.
type Report = BTreeMap<(Revision, Check), Status>;

/// Runs all scenarios of the revisions of a setup.
async fn run(set_up: SetUp) -> Report {
    let server = set_up.serve().await;
    let run = async |&revision| {
        let outcomes = server.run(revision).await;
        outcomes.into_iter().map(move |(check, status)| ((revision, check), status))
    };
    join_all(set_up.revisions().iter().map(run)).await.into_iter().flatten().collect()
}

/// Returns the report for the bare server of a setup.
async fn bare(set_up: SetUp) -> &'static Report {
    static BARE: OnceCell<Report> = OnceCell::const_new();
    static BARE_TASKS: OnceCell<Report> = OnceCell::const_new();
    let set_up = set_up.bare();
    let report = if set_up == SetUp::BareTasks { &BARE_TASKS } else { &BARE };
    report.get_or_init(|| run(set_up)).await
}

/// Checks that each check passes, except those in `excluded.toml`, which must fail.
async fn passes_all_but_what_is_excluded(set_up: SetUp, report: &Report) {
    compare(set_up, report, |bare, here| match here {
        Status::Passed => false,
        Status::Failed => true,
        // A check that the bare server passes and that is missing counts as failed.
        Status::Skipped | Status::Absent => bare == Status::Passed,
    })
    .await;
}

/// Checks that each check has the same status as for the bare server, with the same exceptions.
async fn finds_what_it_finds_bare(set_up: SetUp, report: &Report) {
    compare(set_up, report, |bare, here| bare != here).await;
}

/// Reports each check that fails without being excluded, or the other way round.
async fn compare(set_up: SetUp, report: &Report, fails: impl Fn(Status, Status) -> bool) {
    let excluded = Excluded::load();
    let bare = bare(set_up).await;
    let mut wrong = String::new();
    let mut used = Vec::new();
    let keys: BTreeSet<_> = bare.keys().chain(report.keys()).collect();
    for key @ (revision, check) in keys {
        let status = |report: &Report| report.get(key).copied().unwrap_or(Status::Absent);
        let (bare, here) = (status(bare), status(report));
        match (fails(bare, here), excluded.find(set_up, *revision, check)) {
            (true, None) => {
                writeln!(wrong, "{revision} {check}: {here:?}, not excluded; bare {bare:?}")
                    .unwrap();
            }
            (true, Some(index)) => used.push(index),
            // Reported below.
            (false, _) => (),
        }
    }
    for unused in excluded.of(set_up).filter(|index| !used.contains(index)) {
        writeln!(wrong, "{}: excluded, and does not fail", excluded.describe(unused)).unwrap();
    }
    assert!(wrong.is_empty(), "{set_up:?}\n{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bare_server_passes() {
    let report = bare(SetUp::Bare).await;
    let passed = report.values().filter(|status| **status == Status::Passed).count();
    // A minimum that shows that the suite has run at all.
    assert!(passed > 150, "only {passed} checks have passed");
    passes_all_but_what_is_excluded(SetUp::Bare, report).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_stack_changes_nothing() {
    let (_, report) = tokio::join!(bare(SetUp::Bare), run(SetUp::EmptyStack));
    finds_what_it_finds_bare(SetUp::EmptyStack, &report).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_change_nothing() {
    let (_, report) = tokio::join!(bare(SetUp::Bare), run(SetUp::Rules));
    finds_what_it_finds_bare(SetUp::Rules, &report).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_passes() {
    let (_, report) = tokio::join!(bare(SetUp::Bare), run(SetUp::Gateway));
    passes_all_but_what_is_excluded(SetUp::Gateway, &report).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fan_outs_pass() {
    let (_, report) = tokio::join!(bare(SetUp::Bare), run(SetUp::FanOuts));
    passes_all_but_what_is_excluded(SetUp::FanOuts, &report).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_pass() {
    let (_, report) = tokio::join!(bare(SetUp::Bare), run(SetUp::Pipelines));
    passes_all_but_what_is_excluded(SetUp::Pipelines, &report).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bare_server_with_tasks_passes() {
    let report = bare(SetUp::BareTasks).await;
    let passed = report.values().filter(|status| **status == Status::Passed).count();
    // A minimum that shows that the scenarios have run at all.
    assert!(passed > 25, "only {passed} checks have passed");
    passes_all_but_what_is_excluded(SetUp::BareTasks, report).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_with_tasks_passes() {
    let (_, report) = tokio::join!(bare(SetUp::BareTasks), run(SetUp::GatewayTasks));
    passes_all_but_what_is_excluded(SetUp::GatewayTasks, &report).await;
}
