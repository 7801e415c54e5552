//! A reader of source files, which collects the paths and imports in their code.

use std::{
    collections::BTreeSet,
    fs,
    iter::Peekable,
    path::{Path, PathBuf},
    sync::LazyLock,
    vec,
};

use regex::Regex;

use super::modules;

/// A path used in code, such as `["rmcp", "service", "Peer"]`; a path within the crate begins with
/// `crate`, however it is written.
pub(super) type Named = Vec<String>;

/// A file of the crate.
pub(super) struct Source {
    /// Relative to the folder of the crate root, such as `src`.
    pub(super) path: PathBuf,
    /// The path of its module, such as `["crate", "filter", "layer"]`.
    pub(super) module: Named,
    pub(super) code: Code,
}

/// The paths in the code of a file, without code that is only for tests.
#[derive(Default)]
pub(super) struct Code {
    /// All paths, with those of imports.
    pub(super) named: BTreeSet<Named>,
    pub(super) imports: Vec<Import>,
    /// The paths outside imports, as they are written, with the module of their code.
    pub(super) used: BTreeSet<(Named, Named)>,
    /// The inline modules.
    pub(super) inline: BTreeSet<Named>,
}

/// A path of a `use` declaration.
pub(super) struct Import {
    /// The module that contains the declaration.
    pub(super) module: Named,
    /// The imported path, from `crate` or from an external crate or child module.
    pub(super) path: Named,
    /// The name in the module; `*` for all names of the path.
    pub(super) name: String,
    /// Whether the declaration exports the name.
    pub(super) is_export: bool,
}

/// Reads the code of a file and collects all paths in it.
struct Reader {
    tokens: Peekable<vec::IntoIter<String>>,
    /// The current module, and for each inline module its brace depth.
    module: Named,
    inner: Vec<usize>,
    depth: usize,
    /// Whether `pub` stands before the next token.
    is_public: bool,
    code: Code,
}

/// Comments, strings and characters first, so that their content is ignored.
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r##"(?s)//[^\n]*|/\*.*?\*/|b?r#"(.*?)"#|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\])'|(?:r#)?\w+|::|\S"##,
    )
    .unwrap()
});

// === impl Source ===

impl Source {
    /// Returns the folder or file of `src` that it belongs to; `None` for `lib.rs`.
    pub(super) fn top(&self) -> Option<&str> {
        self.module.get(1).map(String::as_str)
    }
}

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
        Self {
            tokens,
            module,
            inner: Vec::new(),
            depth: 0,
            is_public: false,
            code: Code::default(),
        }
    }

    fn read(mut self) -> Code {
        while let Some(token) = self.tokens.next() {
            match token.as_str() {
                "#" => self.attribute(),
                "mod" => self.begin_module(),
                // `use<'a>` in a type captures lifetimes.
                "use" if self.tokens.peek().is_some_and(|token| token != "<") => self.imports(&[]),
                "pub" => self.public(),
                "{" => self.depth += 1,
                "}" => {
                    self.depth -= 1;
                    if self.inner.last() == Some(&self.depth) {
                        self.inner.pop();
                        self.module.pop();
                    }
                }
                _ if is_word(&token) => self.path(&token),
                _ => (),
            }
            self.is_public = token == "pub";
        }
        self.code
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
        if attribute.starts_with("[cfg(test") || attribute.starts_with("[cfg(all(test") {
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
            self.code.inline.insert(self.module.clone());
            self.inner.push(self.depth);
            self.depth += 1;
        }
    }

    /// Skips the scope of `pub(crate)` and the like.
    fn public(&mut self) {
        if self.tokens.next_if(|token| token == "(").is_some() {
            self.tokens.by_ref().find(|token| token == ")");
        }
    }

    /// Records a path that begins with a word.
    fn path(&mut self, word: &str) {
        let mut path = vec![word.to_owned()];
        while self.tokens.next_if(|token| token == "::").is_some() {
            let Some(word) = self.tokens.next_if(|token| is_word(token)) else { break };
            path.push(word);
        }
        let absolute = self.absolute(&path);
        self.code.named.insert(absolute);
        self.code.used.insert((self.module.clone(), path));
    }

    /// Records the imports of a `use` declaration, or of a group in it with a prefix.
    fn imports(&mut self, prefix: &[String]) {
        let mut path = prefix.to_vec();
        let mut name = None;
        while let Some(token) = self.tokens.next_if(|token| ![",", "}", ";"].contains(&&**token)) {
            match token.as_str() {
                "::" => (),
                "{" => {
                    while self.tokens.next_if(|token| token == "}").is_none() {
                        self.imports(&path);
                        self.tokens.next_if(|token| token == ",");
                    }
                    return;
                }
                "as" => name = self.tokens.next(),
                "self" if !path.is_empty() => (),
                _ => path.push(token),
            }
        }
        let Some(last) = path.last() else { return };
        let name = name.unwrap_or_else(|| last.clone());
        let path = self.absolute(&path);
        self.code.named.insert(path.clone());
        let module = self.module.clone();
        self.code.imports.push(Import { module, path, name, is_export: self.is_public });
    }

    fn absolute(&self, path: &[String]) -> Named {
        absolute(&self.module, path)
    }
}

/// Returns a path of a module from `crate`; a path that begins with any other name as it is.
pub(super) fn absolute(module: &[String], path: &[String]) -> Named {
    match path[0].as_str() {
        "self" | "super" => {
            let own = usize::from(path[0] == "self");
            let ups = path[own..].iter().take_while(|word| *word == "super").count();
            [&module[..module.len() - ups], &path[own + ups..]].concat()
        }
        _ => path.to_vec(),
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads all files of a crate, whose root is in the folder, except those with only tests. The
/// folder `bin` contains other crates.
pub(super) fn read_all(src: &Path) -> Vec<Source> {
    let is_test = |path: &Path| path.iter().any(|part| part == "tests" || part == "tests.rs");
    let files = modules::files(src, "rs").into_iter().filter_map(|file| {
        let path = file.strip_prefix(src).unwrap();
        (!is_test(path) && !path.starts_with("bin")).then(|| source(path, &file))
    });
    files.collect()
}

fn source(path: &Path, file: &Path) -> Source {
    let mut module = vec!["crate".to_owned()];
    let segments = path.with_extension("");
    module.extend(segments.iter().map(|segment| segment.to_str().unwrap().to_owned()));
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    let code = fs::read_to_string(file).unwrap();
    let code = Reader::new(&code, module.clone()).read();
    Source { path: path.to_owned(), module, code }
}
