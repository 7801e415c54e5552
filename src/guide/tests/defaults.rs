//! Setting a key to its default of `limits.md` changes nothing.

use super::limits::{LIMITS, rows};
use crate::config::Config;

const STEPS: &str = "name = 'c'\ndescription = 'd'\nstrategy = 'workflow'\n";

/// Returns the file around a key that is required for it to be valid.
fn besides(section: &str, key: &str) -> (String, &'static str) {
    let composite = |rest: &str| format!("[[composite_tools]]\n{rest}");
    let step =
        |rest: &str| composite(&format!("{STEPS}[[composite_tools.steps]]\nid = 's'\n{rest}"));
    match (section, key) {
        ("[[composite_tools]]", "max_parallel") => {
            (composite(STEPS), "[[composite_tools.steps]]\nid = 's'\ntool = 'a'\n")
        }
        ("[[composite_tools]]", "strict" | "on_limit") => {
            let limited = format!("{STEPS}max_calls = 1\n");
            (composite(&limited), "[[composite_tools.steps]]\nid = 's'\ntool = 'a'\n")
        }
        ("[[composite_tools]]", _) => {
            (composite("name = 'c'\ndescription = 'd'\ntools = ['a', 'b']\n"), "")
        }
        ("[[composite_tools.targets]]", _) => {
            let target = "name = 'c'\ndescription = 'd'\n[[composite_tools.targets]]\ntool = 'a'\n";
            (composite(target), "")
        }
        ("[[composite_tools.steps]]", "item_var" | "max_iterations" | "max_parallel") => {
            (step("type = 'for_each'\ncollection = '$input.l'\ntool = 'a'\n"), "")
        }
        ("[[composite_tools.steps]]", "max_delay") => (
            step("type = 'repeat'\ntool = 'a'\nuntil = '$last.ok'\ndelay = '1s'\nbackoff = 2\n"),
            "",
        ),
        ("[[composite_tools.steps]]", "on_decline" | "on_cancel") => {
            (step("type = 'elicitation'\nmessage = 'Yes?'\n"), "")
        }
        ("[[composite_tools.steps]]", "is_error") => {
            (step("type = 'stop'\nmessage = 'Ends'\n"), "")
        }
        ("[[composite_tools.steps]]", _) => (step("tool = 'a'\n"), ""),
        ("[[backends]]", _) => ("[[backends]]\nname = 'b'\ncommand = 'b'\n".to_owned(), ""),
        ("[router]", _) => ("[[backends]]\nname = 'b'\ncommand = 'b'\n[router]\n".to_owned(), ""),
        ("[state]", "max_total_bytes") => ("[state]\nstore = 'memory'\n".to_owned(), ""),
        ("[budget]", "lease" | "when_away") => {
            let redis = "[redis]\nurl = 'redis://r'\n[budget]\nstore = 'redis'\n";
            (redis.to_owned(), "[[budget.limits]]\nname = 'n'\nlimit = 1\n")
        }
        ("[budget]", _) => ("[budget]\n".to_owned(), "[[budget.limits]]\nname = 'n'\nlimit = 1\n"),
        ("[[budget.limits]]", _) => ("[[budget.limits]]\nname = 'n'\nlimit = 1\n".to_owned(), ""),
        ("[results]", _) => ("[truncate]\nmax_result_bytes = 1000\n[results]\n".to_owned(), ""),
        ("[redis]", _) => ("[redis]\nurl = 'redis://r'\n".to_owned(), "[state]\nstore = 'redis'\n"),
        ("[[cache]]", _) => {
            let cache = "[caller]\nheader = 'h'\n[[cache]]\ntools = ['a']\nttl = '1m'\n";
            (cache.to_owned(), "")
        }
        ("[flow_session]", _) => {
            let flow = "[[flow]]\ntools = ['a']\nlabels = ['private']\n";
            (format!("{flow}[flow_session]\nmode = 'warn'\n"), "")
        }
        ("[[redactions]]", _) => {
            ("[[redactions]]\ntools = ['a']\nremove = ['/a']\n".to_owned(), "")
        }
        (section, _) => (format!("{section}\n"), ""),
    }
}

/// Returns the effective configuration of a file, including its layers.
fn configured(file: &str) -> String {
    let config = Config::from_toml_str(file).unwrap_or_else(|error| panic!("{error}"));
    let (composites, stack) = (config.composite_layer(), config.stack_layer());
    let backends: Vec<_> = config
        .backends()
        .iter()
        .map(|b| (b.timeout(), b.connect_timeout(), b.elicitation(), b.prefix(), b.layer()))
        .collect();
    format!("{:#?}\n{stack:#?}\n{backends:#?}", composites.compiled())
}

#[test]
fn documented_default_equals_the_omitted_value() {
    let numbers = rows().into_iter().flat_map(|row| {
        let places: Vec<_> = row.keys().map(str::to_owned).collect();
        places.into_iter().map(move |place| (place, row.in_toml()))
    });
    let words = LIMITS.split("## Other defaults").nth(1).unwrap();
    let words = words.lines().filter(|line| line.starts_with("| `")).map(|line| {
        let cells: Vec<_> = line.split(" | ").collect();
        (cells[0].trim_matches(['|', ' ', '`']).to_owned(), cells[1].trim_matches('`').to_owned())
    });
    let (mut count, mut wrong) = (0, Vec::new());
    for (place, value) in numbers.chain(words) {
        let (section, key) = place.split_once(' ').unwrap();
        let (before, after) = besides(section, key);
        let said = format!("{before}{key} = {value}\n{after}");
        let unsaid = format!("{before}{after}");
        if configured(&said) != configured(&unsaid) {
            wrong.push(format!("{place} = {value}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "not the defaults: {wrong:#?}");
    assert!(count > 40, "the tables were not read: {count}");
}
