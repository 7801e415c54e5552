//! The structure of the crate, as `src/guide/architecture.md` describes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    iter::Peekable,
    path::{Path, PathBuf},
    sync::LazyLock,
    vec,
};

use regex::Regex;

/// A path used in code, such as `["rmcp", "service", "Peer"]`; a path within the crate begins with
/// `crate`, however it is written.
type Named = Vec<String>;

/// A file of the crate.
struct Source {
    /// Relative to `src`.
    path: PathBuf,
    /// The top-level module it belongs to; `None` for `lib.rs`.
    top: Option<String>,
    named: BTreeSet<Named>,
}

/// Reads the code of a file and collects all paths in it.
struct Reader {
    tokens: Peekable<vec::IntoIter<String>>,
    /// The current module, and for each inline module its brace depth.
    module: Named,
    inner: Vec<usize>,
    depth: usize,
    named: BTreeSet<Named>,
}

/// Comments, strings and characters first, so that their content is ignored.
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r##"(?s)//[^\n]*|/\*.*?\*/|b?r#"(.*?)"#|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\])'|(?:r#)?\w+|::|\S"##,
    )
    .unwrap()
});

/// All files of the crate except those with only tests.
static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(sources);

// === impl Reader ===

impl Reader {
    fn new(code: &str, module: Named) -> Self {
        let is_code = |token: &&str| {
            let mut chars = token.chars();
            chars.next().is_some_and(|c| c.is_alphanumeric() || c == '_')
                && !token.ends_with(['"', '#', '\''])
                || *token == "::"
                || token.len() == 1
        };
        let tokens = TOKEN.find_iter(code).map(|found| found.as_str());
        let tokens: Vec<_> = tokens.filter(is_code).map(str::to_owned).collect();
        let tokens = tokens.into_iter().peekable();
        Self { tokens, module, inner: Vec::new(), depth: 0, named: BTreeSet::new() }
    }

    fn read(mut self) -> BTreeSet<Named> {
        while let Some(token) = self.tokens.next() {
            match token.as_str() {
                "#" => self.attribute(),
                "mod" => self.begin_module(),
                "{" => self.depth += 1,
                "}" => {
                    self.depth -= 1;
                    if self.inner.last() == Some(&self.depth) {
                        self.inner.pop();
                        self.module.pop();
                    }
                }
                _ if is_word(&token) => self.path(vec![token]),
                _ => (),
            }
        }
        self.named
    }

    /// Skips an attribute, and its item if that is only for tests.
    fn attribute(&mut self) {
        let mut attribute = String::new();
        for token in self.tokens.by_ref() {
            attribute.push_str(&token);
            if token == "]" {
                break;
            }
        }
        if attribute == "[cfg(test)]" {
            let mut depth = 0;
            for token in self.tokens.by_ref() {
                match token.as_str() {
                    "{" => depth += 1,
                    "}" if depth == 1 => break,
                    "}" => depth -= 1,
                    ";" if depth == 0 => break,
                    _ => (),
                }
            }
        }
    }

    fn begin_module(&mut self) {
        let Some(name) = self.tokens.next() else { return };
        if self.tokens.next_if(|token| token == "{").is_some() {
            self.module.push(name);
            self.inner.push(self.depth);
            self.depth += 1;
        }
    }

    /// Records the path that begins here, and all paths of a group.
    fn path(&mut self, mut path: Named) {
        while self.tokens.next_if(|token| token == "::").is_some() {
            if let Some(word) = self.tokens.next_if(|token| is_word(token)) {
                path.push(word);
            } else if self.tokens.next_if(|token| token == "{").is_some() {
                while let Some(token) = self.tokens.next_if(|token| token != "}") {
                    if is_word(&token) {
                        self.path([&path[..], &[token]].concat());
                    }
                }
                self.tokens.next();
                return;
            }
        }
        self.note(&path);
    }

    fn note(&mut self, path: &[String]) {
        let mut module = self.module.clone();
        let rest = match path[0].as_str() {
            "crate" => {
                module.truncate(1);
                &path[1..]
            }
            "self" | "super" => {
                let own = usize::from(path[0] == "self");
                let ups = path[own..].iter().take_while(|word| *word == "super").count();
                module.truncate(module.len() - ups);
                &path[own + ups..]
            }
            _ => {
                module.clear();
                path
            }
        };
        self.named.insert([&module, rest].concat());
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let src = package().join("src");
    let mut sources = Vec::new();
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap();
            if name == "tests" {
            } else if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(source(path.strip_prefix(&src).unwrap(), &path));
            }
        }
    }
    sources
}

fn source(path: &Path, file: &Path) -> Source {
    let mut module = vec!["crate".to_owned()];
    let segments = path.with_extension("");
    module.extend(segments.iter().map(|segment| segment.to_str().unwrap().to_owned()));
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    let top = module.get(1).cloned();
    let code = fs::read_to_string(file).unwrap();
    Source { path: path.to_owned(), top, named: Reader::new(&code, module).read() }
}

/// Returns the folders of the crate in the order of the architecture, the lowest last.
fn folders() -> Vec<String> {
    let page = fs::read_to_string(package().join("src/guide/architecture.md")).unwrap();
    let row = Regex::new(r"(?m)^\| `(\w+)` \|").unwrap();
    row.captures_iter(&page).map(|found| found[1].to_owned()).collect()
}

/// The private folders whose modules are exported at the root of the crate.
const GROUPS: [&str; 6] = ["hosts", "layers", "telemetry", "middleware", "stores", "support"];

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
        .filter(|source| is_meant(source.top.as_deref().unwrap_or("lib")))
        .flat_map(|source| source.named.iter().map(move |named| (source, named)))
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
    for Source { path, top, named } in &*SOURCES {
        let Some(own) = top else { continue };
        for used in named.iter().filter(|named| named[0] == "crate" && named.len() > 1) {
            let Some(folder) = folder(&used[1]).filter(|folder| folder != own) else { continue };
            let (path, used) = (path.display(), used.join("::"));
            assert!(place(own) < place(folder), "{path} of `{own}` uses {used} of `{folder}`");
            arrows.insert((own.clone(), folder));
        }
    }
    assert!((40..=70).contains(&arrows.len()), "{}", arrows.len());
}

#[test]
fn file_has_at_most_500_lines_of_code() {
    let tests = Regex::new(r"(?m)^#\[cfg\((?:all\()?test.*\]\n(?:pub\(\w+\) )?mod \w+ \{").unwrap();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let mut longest = 0;
    for Source { path, .. } in &*SOURCES {
        let text = fs::read_to_string(package().join("src").join(path)).unwrap();
        let code = tests.split(&text).next().unwrap();
        let lines = code.lines().filter(is_code).count();
        assert!(lines <= 500, "{} has {lines} lines of code", path.display());
        longest = longest.max(lines);
    }
    assert!(longest > 400, "{longest}");
}

#[test]
fn the_engine_knows_neither_tower_nor_a_service_nor_toml() {
    let foreign = ["tower", "tower_service", "tower_layer", "toml"];
    let is_foreign = |named: &Named| foreign.contains(&named[0].as_str());
    let is_engine = |top: &str| top == "engine";
    assert!(named_in(is_engine, |_| true).len() > 300);
    assert_eq!(named_in(is_engine, is_foreign), [""; 0]);
}

#[test]
fn few_modules_tell_kinds_of_messages_apart() {
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
fn only_adapters_know_how_rmcp_serves() {
    let serves =
        |named: &Named| named[0] == "rmcp" && named.get(1).is_some_and(|name| name == "service");
    assert_eq!(named_in(|top| !["adapter", "message"].contains(&top), serves), [""; 0]);
}

#[test]
fn no_layer_knows_the_file_it_was_made_of() {
    let config =
        |named: &Named| named[0] == "crate" && named.get(1).is_some_and(|name| name == "config");
    assert_eq!(named_in(|top| !["config", "testing"].contains(&top), config), [""; 0]);
}
