//! The files that belong to a crate: its root, and the files of its modules.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use regex::Regex;

/// A module that another file contains, with the path of its file, if the code states it.
static DECLARATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?m)(?:^#\[path = "(?<path>.+)"\]\s+)?^(?:pub(?:\(\w+\))? )?mod (?<name>\w+);"#)
        .unwrap()
});

/// Returns all files with an extension in a folder and in the folders within it.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let is_built = path.file_name().is_some_and(|name| name == "target");
            found.extend(if is_built { Vec::new() } else { files(&path, extension) });
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
    found
}

/// Returns the files of the crates of a package and of the packages within it.
pub(super) fn crate_roots(package: &Path) -> BTreeSet<PathBuf> {
    let root = Regex::new(r#"(?m)^path = "(.+\.rs)"|^\[\[bench\]\]\nname = "(\w+)"$"#).unwrap();
    let mut roots = BTreeSet::from([package.join("src/lib.rs")]);
    let manifests = files(package, "toml");
    for manifest in manifests.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let text = fs::read_to_string(manifest).unwrap();
        let folder = manifest.parent().unwrap();
        roots.extend(root.captures_iter(&text).map(|found| match (found.get(1), found.get(2)) {
            (Some(path), _) => folder.join(path.as_str()),
            (None, bench) => folder.join("benches").join(bench.unwrap().as_str()).join("main.rs"),
        }));
    }
    roots
}

/// Returns the files that may contain the modules that a file declares. The name of a module
/// without a stated path results in two files. `is_root` states whether the file is a crate root.
pub(super) fn declared_files(file: &Path, is_root: bool) -> Vec<PathBuf> {
    let own_folder = file.parent().unwrap();
    let module_folder = match is_root || file.ends_with("mod.rs") {
        true => own_folder.to_owned(),
        false => file.with_extension(""),
    };
    let code = fs::read_to_string(file).unwrap();
    let declarations = DECLARATION.captures_iter(&code);
    let files = declarations.flat_map(|found| match found.name("path") {
        Some(path) => vec![path_clean::clean(own_folder.join(path.as_str()))],
        None => {
            let module = module_folder.join(&found["name"]);
            vec![module.with_extension("rs"), module.join("mod.rs")]
        }
    });
    files.collect()
}
