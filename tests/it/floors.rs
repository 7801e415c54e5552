//! The structure of the crate, as `src/guide/architecture.md` describes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

use regex::Regex;

mod cycles;
mod modules;
mod source;

pub(crate) use self::modules::files;
use self::source::{Named, Source};

const PROGRAM_FOLDER: &str = "src/bin/mcp-composite";

/// All files of the library except those with only tests.
static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| source::read_all(&package().join("src")));

/// All files of the program except those with only tests.
static PROGRAM: LazyLock<Vec<Source>> =
    LazyLock::new(|| source::read_all(&package().join(PROGRAM_FOLDER)));

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folders of the crate in the order of the architecture, the lowest last.
fn folders() -> Vec<String> {
    let page = fs::read_to_string(package().join("src/guide/architecture.md")).unwrap();
    let row = Regex::new(r"(?m)^\| `(\w+)` \|").unwrap();
    row.captures_iter(&page).map(|found| found[1].to_owned()).collect()
}

/// The private folders whose modules are exported at the root of the crate.
const GROUPS: [&str; 6] = ["hosts", "durable", "layers", "telemetry", "middleware", "support"];

/// Returns the folder of a name at the root of the crate.
fn folder(name: &str) -> Option<&'static str> {
    static FOLDERS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        let module = Regex::new(r"(?m)^(?:pub(?:\(crate\))? )?mod (\w+);$").unwrap();
        let modules = |file: &str| -> Vec<String> {
            let code = fs::read_to_string(package().join("src").join(file)).unwrap();
            module.captures_iter(&code).map(|found| found[1].to_owned()).collect()
        };
        let mut folders: BTreeMap<_, _> =
            modules("lib.rs").into_iter().map(|name| (name.clone(), name)).collect();
        for group in GROUPS {
            let inner = modules(&format!("{group}/mod.rs"));
            folders.extend(inner.into_iter().map(|name| (name, group.to_owned())));
        }
        folders
    });
    FOLDERS.get(name).map(String::as_str)
}

/// Returns the matching paths in the code of some modules, with their files.
fn named_in(is_meant: impl Fn(&str) -> bool, what: impl Fn(&Named) -> bool) -> Vec<String> {
    SOURCES
        .iter()
        .filter(|source| is_meant(source.top().unwrap_or("lib")))
        .flat_map(|source| source.code.named.iter().map(move |named| (source, named)))
        .filter(|(_, named)| what(named))
        .map(|(source, named)| format!("{} names {}", source.path.display(), named.join("::")))
        .collect()
}

#[test]
fn architecture_lists_each_folder() {
    let library = fs::read_to_string(package().join("src/lib.rs")).unwrap();
    let module = Regex::new(r"(?m)^(?:pub )?mod (\w+);$").unwrap();
    let modules: BTreeSet<_> =
        module.captures_iter(&library).map(|found| found[1].to_owned()).collect();
    assert_eq!(folders().into_iter().collect::<BTreeSet<_>>(), modules);
    assert!(modules.len() <= 17, "{modules:?}");
}

#[test]
fn folder_uses_only_folders_below_it() {
    let folders = folders();
    let place = |folder: &str| folders.iter().position(|other| other == folder).unwrap();
    let mut arrows = BTreeSet::new();
    for source in &*SOURCES {
        let Some(own) = source.top() else { continue };
        for used in source.code.named.iter().filter(|named| named[0] == "crate" && named.len() > 1)
        {
            let Some(folder) = folder(&used[1]).filter(|folder| *folder != own) else { continue };
            let (path, used) = (source.path.display(), used.join("::"));
            assert!(place(own) < place(folder), "{path} of `{own}` uses {used} of `{folder}`");
            arrows.insert((own, folder));
        }
    }
    assert!((40..=70).contains(&arrows.len()), "{}", arrows.len());
}

#[test]
fn files_do_not_depend_on_each_other() {
    for (sources, at_least) in [(&SOURCES, 1000), (&PROGRAM, 100)] {
        let dependencies = cycles::dependencies(sources);
        assert!(dependencies.len() > at_least, "{}", dependencies.len());
        let cycle = cycles::first_cycle(&dependencies);
        assert!(cycle.is_empty(), "files depend on each other:\n{}", cycle.join("\n"));
    }
}

#[test]
fn architecture_names_existing_files() {
    let page = fs::read_to_string(package().join("src/guide/architecture.md")).unwrap();
    let file = Regex::new(r"`([\w/]+\.rs)`").unwrap();
    let files: Vec<_> = file.captures_iter(&page).map(|found| found[1].to_owned()).collect();
    assert!(files.len() > 20, "{}", files.len());
    for file in files {
        let is_file = ["src", ""].iter().any(|top| package().join(top).join(&file).is_file());
        assert!(is_file, "{file} does not exist");
    }
}

/// The compiler ignores a file that neither a module nor a manifest names, with the tests in it.
#[test]
fn file_is_compiled() {
    let folders = ["src", "tests", "benches", "examples"].map(|folder| package().join(folder));
    let files: Vec<_> = folders.iter().flat_map(|folder| files(folder, "rs")).collect();
    assert!(files.len() > 900, "{}", files.len());
    let roots = modules::crate_roots(package());
    let mut compiled = roots.clone();
    for file in &files {
        compiled.extend(modules::declared_files(file, roots.contains(file)));
    }
    let ignored: Vec<_> = files.iter().filter(|file| !compiled.contains(*file)).collect();
    assert!(ignored.is_empty(), "no module and no manifest names {ignored:?}");
}

#[test]
fn file_has_at_most_500_lines_of_code() {
    let tests = Regex::new(r"(?m)^#\[cfg\((?:all\()?test.*\]\n(?:pub\(\w+\) )?mod \w+ \{").unwrap();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let mut longest = 0;
    let library = SOURCES.iter().map(|source| Path::new("src").join(&source.path));
    let program = PROGRAM.iter().map(|source| Path::new(PROGRAM_FOLDER).join(&source.path));
    for path in library.chain(program) {
        let text = fs::read_to_string(package().join(&path)).unwrap();
        let code = tests.split(&text).next().unwrap();
        let lines = code.lines().filter(is_code).count();
        assert!(lines <= 500, "{} has {lines} lines of code", path.display());
        longest = longest.max(lines);
    }
    assert!(longest > 400, "{longest}");
}

#[test]
fn engine_uses_neither_tower_nor_toml() {
    let foreign = ["tower", "tower_service", "tower_layer", "toml"];
    let is_foreign = |named: &Named| foreign.contains(&named[0].as_str());
    let is_engine = |top: &str| top == "engine";
    assert!(named_in(is_engine, |_| true).len() > 300);
    assert_eq!(named_in(is_engine, is_foreign), [""; 0]);
}

#[test]
fn scheduler_uses_neither_tokio_nor_a_clock() {
    let parts = ["scheduler", "scheduler.rs", "attempts.rs", "running_loop.rs"];
    let parts = parts.map(|part| Path::new("engine").join(part));
    let sources =
        SOURCES.iter().filter(|source| parts.iter().any(|part| source.path.starts_with(part)));
    let named: Vec<_> = sources.flat_map(|source| &source.code.named).collect();
    assert!(named.len() > 50, "{}", named.len());
    let foreign = ["tokio", "futures", "Instant", "SystemTime", "unix_ms", "run"];
    let is_foreign = |named: &Named| {
        named.len() > 1 && named.iter().any(|name| foreign.contains(&name.as_str()))
    };
    let used: Vec<_> = named.into_iter().filter(|named| is_foreign(named)).collect();
    assert!(used.is_empty(), "{used:?}");
}

#[test]
fn few_modules_match_on_message_kinds() {
    let kinds = ["ClientRequest", "ServerResult"];
    let is_kind = |named: &Named| {
        let [before @ .., _] = &**named else { return false };
        before.last().is_some_and(|segment| kinds.contains(&segment.as_str()))
    };
    let answer_some = ["composite", "hosts", "layers", "testing"];
    let may = |top: &str| ["message", "adapter"].contains(&top) || answer_some.contains(&top);
    assert_eq!(named_in(|top| !may(top), is_kind), [""; 0]);
    for module in answer_some {
        assert!(!named_in(|top| top == module, is_kind).is_empty(), "{module} does so no longer");
    }
}

#[test]
fn rmcp_service_is_used_in_adapter_and_message_only() {
    let serves =
        |named: &Named| named[0] == "rmcp" && named.get(1).is_some_and(|name| name == "service");
    assert_eq!(named_in(|top| !["adapter", "message"].contains(&top), serves), [""; 0]);
}

#[test]
fn layers_do_not_depend_on_the_config_module() {
    let config =
        |named: &Named| named[0] == "crate" && named.get(1).is_some_and(|name| name == "config");
    // The root re-exports types of `config`.
    let may = ["config", "lib", "testing"];
    assert_eq!(named_in(|top| !may.contains(&top), config), [""; 0]);
}
