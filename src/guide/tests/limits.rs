//! `limits.md` lists every constant that is a default or a limit, with its value.

use std::collections::BTreeMap;

use regex::Regex;
use rmcp::model::RequestStateCodec;

use super::sources;

pub(super) const LIMITS: &str = include_str!("../limits.md");

/// Constants that are neither: they have no effect visible to users.
const OTHERS: [(&str, &[&str]); 7] = [
    (
        "what something weighs or counts for beside others",
        &[
            "layers/advertise/index.rs IN_NAME",
            "layers/advertise/index.rs IN_TITLE",
            "layers/advertise/index.rs IN_DESCRIPTION",
            "layers/advertise/index.rs BEGINNING",
            "layers/alias/schema.rs BRACES",
            "expr/template/order.rs COMPARISONS",
            "expr/template/filters/search.rs BYTES_PER_STEP",
            "expr/template/filters/search.rs STEPS_PER_STATE",
            "expr/template/budget.rs BYTES_PER_STEP",
            "expr/template/evaluate.rs STEPS",
            "expr/template/value.rs MAP_BYTES",
            "engine/parsed_text.rs ELEMENT_BYTES",
            "engine/parsed_text.rs MEMBER_BYTES",
            "engine/parsed_text.rs OBJECT_BYTES",
            "layers/cache/entries.rs SLACK",
            "composite/input.rs BYTES_PER_VISIT",
            "schema/coerce.rs STEPS_PER_VISIT",
            "schema/coerce/shape.rs BYTES_PER_VISIT",
            "schema/coerce/shape.rs PARSED_BYTES_PER_VISIT",
            "schema/steps.rs MIN_HASHED",
            "schema/steps.rs NAMES_PER_STEP",
            "schema/steps/pattern.rs BYTES_PER_STEP",
            "schema/steps/cost.rs CONTENT",
            "schema/steps/cost.rs DIVISION",
            "schema/steps/cost.rs FORMAT",
            "schema/steps/cost.rs LONG_DIVISION",
            "schema/steps/cost.rs LOOKUP",
            "schema/steps/cost.rs NAME",
            "schema/steps/cost.rs UNIQUE",
            "schema/steps/pattern.rs CHEAP",
            "schema/steps/pattern.rs CLEARED_BYTES",
            "schema/steps/pattern.rs COSTLY",
            "schema/steps/pattern.rs FOLDED_PROPERTY",
            "schema/steps/pattern.rs POSITION",
            "schema/steps/pattern.rs PROPERTY",
            "schema/steps/pattern.rs TRANSITIONS",
            "schema/steps/pattern.rs TRANSLATED_CLASS",
            "schema/steps/pattern.rs WORD_BOUNDARY",
            "message/progress/client.rs NUDGE",
            "message/progress.rs MOST",
            "message/content_size.rs SMALL",
        ],
    ),
    (
        "how long a text is that the crate writes or reads",
        &[
            "layers/truncate/shorten.rs STRUCTURED",
            "layers/truncate/shorten.rs META",
            "hosts/normalize/text/mod.rs INDENT",
            "durable/redis/store.rs OWNER",
            "config/toolhive/write.rs MAX_LINE",
            "store/sealed.rs BLOCK",
            "store/sealed.rs HEADER",
            "store/sealed.rs KEY",
            "store/sealed.rs TAG",
        ],
    ),
    (
        "how many bytes are random",
        &[
            "hosts/normalize/names.rs HASH",
            "layers/tasks/id.rs ID",
            "layers/tasks/id.rs KEY",
            "durable/redis/budgets/mod.rs ID",
            "durable/redis/store.rs HANDLE",
            "durable/redis/store.rs TAKING",
            "store/memory.rs HANDLE",
            "store/sealed.rs NONCE",
            "store/stateless.rs RANDOM_ID",
        ],
    ),
    (
        "as good as for ever",
        &[
            "adapter/remote/oauth/access_token.rs A_LIFETIME",
            "engine/limits.rs A_LIFETIME",
            "durable/redis/budgets/settling.rs A_LIFETIME",
            "durable/redis/store.rs A_LIFETIME",
            "store/memory.rs A_LIFETIME",
        ],
    ),
    (
        "where numbers end",
        &[
            "engine/state.rs MAX_ATTEMPTS",
            "expr/number.rs MAX_EXACT",
            "expr/template/numeric.rs END",
            "durable/redis/budgets/account.rs MAX",
        ],
    ),
    (
        "how work is spread, and others have their turn",
        &[
            "layers/tasks/shared/mod.rs RENEWALS",
            "composite/journaled.rs NO_DEADLINE",
            "layers/budget/memory.rs LOOKS",
            "layers/budget/memory.rs LOOKS_FOR_ROOM",
            "layers/budget/memory.rs SHARDS",
            "layers/truncate/value.rs LONG",
            "middleware/changes/updates.rs FIRST_PURGE",
            "engine/branches.rs CALLS_AFTER_WAIT",
            "engine/branches.rs CALLS_IN_TASKS",
            "engine/branches.rs LONG",
            "engine/scheduler.rs EVALUATIONS",
            "engine/run/calls.rs LONG",
            "middleware/intercept/informed.rs LONG",
            "adapter/listed_tools.rs BUFFER",
            "message/client.rs ON_ITS_WAY",
        ],
    ),
    (
        "what others have defined",
        &[
            "adapter/remote/stdio/child.rs SIGTERM",
            "layers/budget/balance.rs SECOND",
            "message/trace.rs FLAGS",
            "config/lock_file.rs VERSION",
            "layers/tasks/shared/record.rs VERSION",
            "testing/replay.rs VERSION",
            "durable/restate/client.rs NOT_ENDED",
            "durable/restate/drive.rs CANCELLED",
        ],
    ),
];

#[test]
fn documented_limits_have_the_value_of_their_constant() {
    let constants = constants();
    let mut documented = BTreeMap::new();
    for row in rows() {
        let value = quantity(&row.value);
        for name in row.constants {
            let text = constants.get(&name).unwrap_or_else(|| panic!("there is no `{name}`"));
            assert_eq!(evaluated(text, &name, &constants), value, "`{name}`, which is {text}");
            assert!(documented.insert(name.clone(), ()).is_none(), "`{name}` is documented twice");
        }
    }
    let others: Vec<_> = OTHERS.iter().flat_map(|(_, names)| *names).collect();
    for name in &others {
        assert!(constants.contains_key(**name), "there is no `{name}`");
        assert!(!documented.contains_key(**name), "`{name}` is documented and among the others");
    }
    let missing: Vec<_> = constants
        .keys()
        .filter(|name| !documented.contains_key(*name) && !others.iter().any(|other| name == other))
        .collect();
    assert!(missing.is_empty(), "`src/guide/limits.md` says nothing of {missing:?}");
}

/// Durations in the middle of the code have no name, and would be missed.
#[test]
fn durations_are_named_constants() {
    let time = Regex::new(r"Duration::from_(secs|millis|micros|nanos)\((\d+)").unwrap();
    for (file, text) in sources() {
        for line in text.lines().filter(|line| !line.contains("const ")) {
            if line.trim_start().starts_with("//") {
                continue;
            }
            // One second, or one millisecond, is a unit.
            let found = time.captures(line).filter(|found| &found[2] != "1");
            assert!(found.is_none(), "{file}: {line}");
        }
    }
}

/// A row of the tables.
pub(super) struct Row {
    /// The value as written.
    value: String,
    /// The key that sets it in a file, if any.
    #[cfg_attr(
        not(all(feature = "config", feature = "redis", feature = "cache")),
        expect(dead_code, reason = "only `defaults` reads it, which needs files and all stores")
    )]
    set_with: String,
    /// The constants with this value.
    constants: Vec<String>,
}

#[cfg(all(feature = "config", feature = "redis", feature = "cache"))]
impl Row {
    /// Returns the keys of a file, with their sections.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.set_with.split('`').filter(|key| key.contains("] "))
    }

    /// Returns the value as written in a file.
    pub(super) fn in_toml(&self) -> String {
        let is_time = self.value.ends_with(['s', 'n', 'h']);
        if is_time { format!("\"{}\"", self.value) } else { quantity(&self.value).to_string() }
    }
}

/// Returns all rows.
pub(super) fn rows() -> Vec<Row> {
    let name = Regex::new(r"`([a-z_/]+\.rs)` `([A-Z_]+)`").unwrap();
    let rows = LIMITS.lines().filter_map(|line| {
        let cells: Vec<_> = line.split(" | ").collect();
        let names = name.captures_iter(cells.last()?);
        let constants: Vec<_> = names.map(|name| format!("{} {}", &name[1], &name[2])).collect();
        let (value, set_with) = ((*cells.get(1)?).to_owned(), (*cells.get(2)?).to_owned());
        (!constants.is_empty()).then_some(Row { value, set_with, constants })
    });
    rows.collect()
}

/// Parses a human-readable number, in bytes or nanoseconds if it has a unit.
fn quantity(text: &str) -> u128 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
    let scale = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60 * 1_000_000_000,
        "h" => 3_600 * 1_000_000_000,
        _ => panic!("what is `{text}`?"),
    };
    digits.parse::<u128>().unwrap() * scale
}

/// Returns the constants of the sources that are numbers or durations, with their values.
fn constants() -> BTreeMap<String, String> {
    let constant = Regex::new(
        r"(?m)^\s*(?:pub(?:\([^)]*\))? )?const ([A-Z_]+): (?:[iuf]\d+|usize|Duration) =\s*([^;]+);",
    )
    .unwrap();
    let mut constants = BTreeMap::new();
    for (file, text) in sources() {
        for found in constant.captures_iter(&text) {
            constants.insert(format!("{file} {}", &found[1]), found[2].to_owned());
        }
    }
    assert!(constants.len() > 200, "the sources were not read");
    constants
}

/// Returns the value of a constant, in nanoseconds if it is a duration.
fn evaluated(text: &str, name: &str, constants: &BTreeMap<String, String>) -> u128 {
    let file = name.split(' ').next().unwrap();
    if let Some(seconds) = text.strip_prefix("Duration::from_secs(") {
        return evaluated(seconds.trim_end_matches(')'), name, constants) * 1_000_000_000;
    }
    if let Some(millis) = text.strip_prefix("Duration::from_millis(") {
        return evaluated(millis.trim_end_matches(')'), name, constants) * 1_000_000;
    }
    if let Some((number, shift)) = text.split_once(" << ") {
        return evaluated(number, name, constants) << evaluated(shift, name, constants);
    }
    let factors = text.split(" * ").map(|factor| match factor {
        "RequestStateCodec::MIN_KEY_LENGTH" => RequestStateCodec::MIN_KEY_LENGTH as u128,
        number if number.starts_with(|c: char| c.is_ascii_digit()) => {
            number.replace('_', "").parse().unwrap_or_else(|_| panic!("`{name}` is {text}"))
        }
        other => {
            let other = format!("{file} {other}");
            let text = constants.get(&other).unwrap_or_else(|| panic!("what is `{other}`?"));
            evaluated(text, &other, constants)
        }
    });
    factors.product()
}
