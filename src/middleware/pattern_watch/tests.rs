use super::*;

/// The names that have not been seen yet.
#[derive(Debug)]
struct Names(Vec<&'static str>);

impl WatchedNames for Names {
    fn see(&mut self, name: &str) {
        self.0.retain(|sought| *sought != name);
    }

    fn is_found(&self) -> bool {
        self.0.is_empty()
    }
}

fn pattern_watch<const N: usize>(names: [&'static str; N]) -> PatternWatch<Names> {
    PatternWatch::new(Names(names.into()))
}

/// A request for a page, and its response: the cursor of the page, the cursor of the next page, and
/// the names.
type Turn<'t> = (Option<&'t str>, Option<&'t str>, &'t [&'t str]);

/// Returns the unmatched names after each page.
fn turns(
    pattern_watch: &PatternWatch<Names>,
    turns: &[Turn<'_>],
) -> Vec<Option<Vec<&'static str>>> {
    let turn = |(cursor, next, names): &Turn<'_>| {
        let page = pattern_watch.page(*cursor)?;
        let names = names.iter().map(|name| (*name).to_owned());
        pattern_watch.see(&page, *next, names).map(|missed| missed.sought.0)
    };
    turns.iter().map(turn).collect()
}

#[test]
fn unmatched_pattern_of_a_complete_list_is_reported_once() {
    let pattern_watch = pattern_watch(["a", "x"]);
    let list: [Turn<'_>; 2] = [(None, Some("2"), &["a"]), (Some("2"), None, &["b"])];
    assert_eq!(turns(&pattern_watch, &list), [None, Some(vec!["x"])]);
    assert_eq!(turns(&pattern_watch, &list), [None, None]);
    assert!(pattern_watch.is_over());
}

#[test]
fn only_complete_lists_report_unmatched_patterns() {
    let cases: [(&str, &[Turn<'_>]); 4] = [
        ("a late page", &[(Some("2"), None, &["b"])]),
        ("a beginning", &[(None, Some("2"), &["a"])]),
        ("a page that is left out", &[(None, Some("2"), &["a"]), (Some("3"), None, &["c"])]),
        ("nothing at all", &[(None, Some("2"), &[]), (Some("2"), None, &[])]),
    ];
    for (seen, list) in cases {
        let pattern_watch = pattern_watch(["x"]);
        assert!(turns(&pattern_watch, list).iter().all(Option::is_none), "{seen}");
        assert!(!pattern_watch.is_over(), "{seen}");
    }
}

#[test]
fn empty_list_after_an_incomplete_one_reports_nothing() {
    let pattern_watch = pattern_watch(["x"]);
    assert_eq!(
        turns(&pattern_watch, &[(None, Some("2"), &["a"]), (None, None, &[])]),
        [None, None]
    );
    assert_eq!(turns(&pattern_watch, &[(Some("2"), None, &[])]), [Some(vec!["x"])]);
}

#[test]
fn concurrent_lists_of_clients_are_all_tracked() {
    let pattern_watch = pattern_watch(["x"]);
    let one_and_other: [Turn<'_>; 5] = [
        (None, Some("one 2"), &["a"]),
        (None, Some("other 2"), &["a"]),
        (Some("one 2"), Some("one 3"), &["b"]),
        (Some("other 2"), Some("other 3"), &["b"]),
        (Some("one 3"), None, &["c"]),
    ];
    assert_eq!(turns(&pattern_watch, &one_and_other).last(), Some(&Some(vec!["x"])));
}

#[test]
fn name_seen_in_an_earlier_list_is_not_reported() {
    let pattern_watch = pattern_watch(["a", "b"]);
    let changing: [Turn<'_>; 2] = [(None, Some("2"), &["a"]), (None, None, &["c"])];
    assert_eq!(turns(&pattern_watch, &changing), [None, Some(vec!["b"])]);
}

#[test]
fn watch_ends_when_all_patterns_have_matched() {
    assert!(pattern_watch([]).is_over());
    let pattern_watch = pattern_watch(["a"]);
    assert_eq!(turns(&pattern_watch, &[(None, Some("2"), &["a"])]), [None]);
    assert!(pattern_watch.is_over());
}

#[test]
fn abandoned_lists_are_dropped() {
    let pattern_watch = pattern_watch(["x"]);
    for number in 0..3 * MAX_CURSORS {
        let next = format!("left {number}");
        turns(&pattern_watch, &[(None, Some(&next), &["a"])]);
        assert!(lock(&pattern_watch.search).cursors.len() <= MAX_CURSORS);
    }
    let list: [Turn<'_>; 2] = [(None, Some("2"), &["a"]), (Some("2"), None, &["b"])];
    assert_eq!(turns(&pattern_watch, &list), [None, Some(vec!["x"])]);
}

#[test]
fn names_of_an_endless_list_are_limited() {
    let pattern_watch = pattern_watch(["x"]);
    let page = pattern_watch.page(None).expect("the first page counts");
    for number in 0..3 {
        let names = (0..MAX_WATCHED_NAMES).map(|name| format!("{number} {name}"));
        assert!(pattern_watch.see(&page, Some("next"), names).is_none());
    }
    assert_eq!(lock(&pattern_watch.search).names.len(), MAX_WATCHED_NAMES);
}

#[test]
fn oversized_names_and_cursors_are_not_kept() {
    let pattern_watch = pattern_watch(["x"]);
    let long = "n".repeat(MAX_WATCHED_TEXT + 1);
    let list: [Turn<'_>; 2] =
        [(None, Some("2"), &[&*long, "a"]), (Some("2"), Some(&*long), &["b"])];
    assert_eq!(turns(&pattern_watch, &list), [None, None]);
    let search = lock(&pattern_watch.search);
    assert!(search.names.iter().eq(["a", "b"]) && search.cursors.keys().eq(["2"]), "{search:?}");
    drop(search);
    assert!(pattern_watch.page(Some(&long)).is_none());
}
