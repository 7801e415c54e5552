//! Checks the tables in the guide to expressions: the examples must have the documented values.

use std::sync::LazyLock;

use super::*;
use crate::expr::{
    Variables,
    template::{filters::FILTERS, predicates::TESTS},
};

const GUIDE: &str = include_str!("../../../guide/expressions.md");

/// The data of the run to which the examples in the guide refer.
#[derive(Debug)]
struct Run(Value);

static RUN: LazyLock<Run> = LazyLock::new(|| {
    let json = GUIDE.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    Run(serde_json::from_str(json).unwrap())
});

static VARIABLES: LazyLock<Variables> = LazyLock::new(|| {
    let variables = RUN.0["vars"].as_object().unwrap();
    variables.iter().fold(Variables::new(), |all, (name, value)| all.with(name, value.clone()))
});

const RUN_NAMES: ScopeNames<'_> = ScopeNames {
    steps: &["search", "get-logs"],
    previous: Previous::Step(1),
    before: Some(2),
    item: Some("item"),
    run: true,
    variables: None,
    allows_secrets: false,
    lenient: false,
};

impl Data for Run {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        let Self(run) = self;
        let value = match root {
            Root::Input => run.get("input"),
            Root::Item => run.get("item"),
            Root::Index => run.get("index"),
            Root::WorkflowId => run.pointer("/workflow/id"),
            Root::WorkflowName => run.pointer("/workflow/name"),
            Root::WorkflowStartedAt => run.pointer("/workflow/started_at"),
            Root::Step { step, field } => {
                run["steps"].get(RUN_NAMES.steps[step])?.get(field.name())
            }
        };
        value.map(Cow::Borrowed)
    }
}

/// Returns the rows of the table under a heading, as lists of cells.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let section = GUIDE.split(&format!("# {heading}\n")).nth(1).unwrap();
    let section = section.split("\n# ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    let rows = lines.map(|line| {
        let line = line.trim_start_matches("| ").trim_end_matches('|').replace("\\|", "\0");
        line.split(" | ").map(|cell| cell.trim().replace('\0', "|")).collect()
    });
    rows.collect()
}

/// Returns the text between the backticks of a cell.
fn code(cell: &str) -> &str {
    let code = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
    code.unwrap_or_else(|| panic!("no code: {cell}"))
}

fn gives(written: &str) -> Option<Value> {
    let names = ScopeNames { variables: Some(&VARIABLES), ..RUN_NAMES };
    let expression = Expression::parse_in(&json!(written), &names)
        .unwrap_or_else(|errors| panic!("{written}: {errors}"));
    expression.evaluate_in(&*RUN).unwrap_or_else(|error| panic!("{written}: {error}"))
}

fn expected(cell: &str) -> Option<Value> {
    (cell != "left out").then(|| serde_json::from_str(code(cell)).unwrap())
}

#[test]
fn every_form_in_the_guide_returns_its_documented_value() {
    let mut count = 0;
    for heading in ["References", "Templates"] {
        for row in rows(heading) {
            assert_eq!(gives(code(&row[0])), expected(&row[1]), "{}", row[0]);
            count += 1;
        }
    }
    assert!(count > 40, "the tables were not read: {count}");
}

#[test]
fn every_filter_and_test_is_documented_with_its_result() {
    let mut filters: Vec<_> = FILTERS.iter().map(|filter| filter.name).collect();
    let mut tests = TESTS.each_ref().map(|test| test.name);
    filters.sort_unstable();
    tests.sort_unstable();
    for (heading, known) in [("Filters", &*filters), ("Tests", &tests)] {
        let rows = rows(heading);
        let documented: Vec<_> = rows.iter().map(|row| code(&row[0])).collect();
        assert_eq!(documented, known);
        for row in &rows {
            let (name, written) = (code(&row[0]), code(&row[1]));
            assert!(written.contains(name), "{written} does not show `{name}`");
            assert_eq!(gives(written), expected(&row[2]), "{written}");
        }
    }
}

#[test]
fn every_error_in_the_guide_is_reported() {
    let rows = rows("Errors before a run");
    assert_eq!(rows.len(), 9);
    for row in rows {
        let written = code(&row[0]);
        let names = ScopeNames { variables: Some(&VARIABLES), ..RUN_NAMES };
        let errors = Expression::parse_in(&json!(written), &names).unwrap_err().to_string();
        if let Some((_, near)) = row[1].split_once("did you mean ") {
            assert!(errors.contains(&format!("did you mean {near}")), "{written}: {errors}");
        }
    }
}
