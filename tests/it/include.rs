//! Files that include other files.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use mcp_composite::config::Config;
use tempfile::tempdir;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs/include")
}

/// Returns the errors of a file, without the path of this checkout.
fn report(file: &Path) -> String {
    let error = Config::load(file).unwrap_err();
    let folder = file.parent().unwrap().to_str().unwrap();
    let mut report = format!("{error}\n").replace(folder, "…");
    for mistake in error.mistakes() {
        let file = mistake.file().and_then(Path::file_name).unwrap().to_str().unwrap();
        write!(report, "\n{file}:{} at `{}`", mistake.line(), mistake.path()).unwrap();
    }
    report
}

fn composite(name: &str) -> String {
    format!("[[composite_tools]]\nname = {name:?}\ndescription = \"d\"\ntools = [\"x\"]\n")
}

#[test]
fn included_composites_follow_those_of_the_main_file() {
    let config = Config::load(folder().join("valid.toml")).unwrap();
    let names: Vec<_> = config.composite_tools().iter().map(|tool| tool.name()).collect();
    assert_eq!(names, ["first", "a", "b"]);
    // Their targets refer to the backends of the file.
    assert!(format!("{:?}", config.composite_tools()[1]).contains("docs_search"));
}

#[test]
fn errors_of_included_files_have_their_own_lines() {
    insta::with_settings!({
        snapshot_path => "../configs/snapshots",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        for file in ["mistaken", "syntax"] {
            let report = report(&folder().join(file).with_extension("toml"));
            insta::assert_snapshot!(format!("include_{file}"), report);
        }
    });
}

#[test]
fn secrets_in_included_files_do_not_appear() {
    assert!(!report(&folder().join("mistaken.toml")).contains("t0k3n"));

    let folder = tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("main.toml"), "include = [\"more.toml\"]").unwrap();
    for more in [
        "[[backends]]\nenv = { TOKEN = \"t0k3n\" }",
        "\"TOKEN=t0k3n\" = 1",
        "t0k3n = \"x\"\n\"t0k3n!\" = 1",
        "[[backends]]\nargs = [\"t0k3n\"\n",
    ] {
        fs::write(folder.join("more.toml"), more).unwrap();
        let error = Config::load(folder.join("main.toml")).unwrap_err().to_string();
        // A bare word is a misspelled key.
        assert!(!error.replace("t0k3n = ***", "").contains("t0k3n"), "{error}");
    }
}

#[test]
fn config_text_cannot_include_files() {
    let error = Config::from_toml_str("include = [\"a.toml\", \"b.toml\"]").unwrap_err();
    let paths: Vec<_> = error.mistakes().iter().map(|mistake| mistake.path()).collect();
    assert_eq!(paths, ["include[0]", "include[1]"]);
    assert_eq!(
        error.mistakes()[0].message(),
        "only a file can include others: load it by its path"
    );
}

#[test]
fn included_file_cannot_include_others() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("main.toml"), "include = [\"more.toml\"]").unwrap();
    fs::write(folder.join("more.toml"), "include = [\"main.toml\"]").unwrap();
    let error = Config::load(folder.join("main.toml")).unwrap_err();
    assert_eq!(error.mistakes().len(), 1, "{error}");
    assert!(error.mistakes()[0].file().unwrap().ends_with("more.toml"));
}

#[test]
fn special_characters_in_a_folder_name_are_literal() {
    let folder = tempfile::Builder::new().prefix("[a]*").tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("main.toml"), "include = [\"*.more\"]").unwrap();
    fs::write(folder.join("x.more"), composite("x1")).unwrap();
    let config = Config::load(folder.join("main.toml")).unwrap();
    assert_eq!(config.composite_tools().len(), 1);
}

#[test]
fn stamp_changes_when_a_file_changes() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let main = folder.join("main.toml");
    fs::write(&main, "include = [\"more/*.toml\", \"one.toml\"]").unwrap();
    fs::create_dir(folder.join("more")).unwrap();
    fs::write(folder.join("one.toml"), composite("one")).unwrap();
    let sources = Config::load(&main).unwrap().sources().clone();
    let mut stamps = vec![sources.stamp()];
    assert_eq!(sources.stamp(), stamps[0]);

    let steps: [&dyn Fn(); 5] = [
        &|| fs::write(folder.join("more/new.toml"), composite("new")).unwrap(),
        &|| fs::write(folder.join("more/new.toml"), composite("newer")).unwrap(),
        &|| fs::write(folder.join("one.toml"), "# nothing").unwrap(),
        &|| fs::remove_file(folder.join("one.toml")).unwrap(),
        &|| fs::write(&main, "").unwrap(),
    ];
    for (place, step) in steps.into_iter().enumerate() {
        step();
        let stamp = sources.stamp();
        assert!(!stamps.contains(&stamp), "after step {place}: {stamp:?}");
        stamps.push(stamp);
    }
}
