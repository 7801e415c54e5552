//! Checks of the guides against the crate.

#[cfg(all(feature = "config", feature = "redis", feature = "cache"))]
mod defaults;
mod limits;
mod troubleshooting;

use std::{fs, path::Path};

/// Returns the files of the library, without their tests.
fn sources() -> Vec<(String, String)> {
    let mut files = all_sources();
    files.retain(|(name, _)| !name.starts_with("bin/"));
    files
}

/// Returns the files of the library and the program, without their tests.
fn all_sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("tests") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("tests.rs")
            {
                let text = fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
                files.push((name, text));
            }
        }
    }
    files
}
