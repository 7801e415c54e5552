//! The files shown in the README, the guides and the docs of modules.

use std::{fs, path::Path};

use mcp_composite::{
    config::Config,
    testing::{self, Server},
};
use serde_json::json;

use super::is_supported;

/// Returns every file in a document, with the name of the document.
pub(crate) fn files() -> Vec<(String, String)> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = vec![package.join("README.md"), package.join("src/config/mod.rs")];
    let guides = fs::read_dir(package.join("src/guide")).unwrap();
    let guides = guides.map(|entry| entry.unwrap().path());
    documents.extend(guides.filter(|path| path.extension().is_some_and(|name| name == "md")));
    documents.sort();
    let mut files = Vec::new();
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        let text: String = text
            .lines()
            .map(|line| format!("{}\n", line.strip_prefix("//!").unwrap_or(line)))
            .collect();
        let text = text.replace("\n ```", "\n```");
        for block in text.split("```toml\n").skip(1) {
            let name = document.strip_prefix(package).unwrap().display().to_string();
            files.push((name, block.split_once("```").unwrap().0.to_owned()));
        }
    }
    for (name, count) in
        [("README.md", 2), ("src/config/mod.rs", 17), ("src/guide/composites.md", 3)]
    {
        assert_eq!(files.iter().filter(|file| file.0 == name).count(), count, "{name}");
    }
    files
}

#[test]
fn config_files_in_documents_are_valid_without_remarks() {
    // The docs of `config` show all keys of a section, including exclusive ones.
    let files = files().into_iter().filter(|(name, _)| name != "src/config/mod.rs");
    for (name, file) in files.filter(|(_, file)| is_supported(file)) {
        // As long as a key must be.
        let config = Config::from_toml_str_with_env(&file, |name| {
            Some(format!("{name}{}", "value".repeat(8)))
        })
        .unwrap_or_else(|error| panic!("{name}: {error}"));
        let layer = config.composite_layer();
        assert_eq!(layer.remarks(), [""; 0], "{name}");
    }
}

#[test]
fn readme_shows_the_main_function_of_wrap_server() {
    let readme = include_str!("../../../README.md");
    let excerpt = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(include_str!("../../../examples/wrap_server.rs").contains(excerpt), "{excerpt}");
}

#[test]
fn links_of_readme_and_changelog_point_to_existing_files() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    for document in ["README.md", "CHANGELOG.md"] {
        let text = fs::read_to_string(package.join(document)).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let links = links.map(|(link, _)| link).filter(|link| !link.contains("://"));
        for link in links {
            assert!(package.join(link).is_file(), "{document}: {link}");
        }
    }
}

/// The error shown in the README is the reported one.
#[test]
fn readme_shows_the_reported_error() {
    let readme = include_str!("../../../README.md");
    let excerpt = readme.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let file = "[[composite_tools]]\nname = \"offer\"\ndescription = \"d\"\n\
                tols = [\"price\", \"stock\"]\n";
    let error = Config::from_toml_str(file).unwrap_err().to_string();
    let mut error = error.replace("<string>", "tools.toml");
    // The list of other keys is omitted there.
    let (from, to) = (error.find("`title`").unwrap(), error.find("\n -->").unwrap());
    error.replace_range(from..to, "…");
    assert_eq!(error.trim_end(), excerpt.trim_end());
}

/// A tool that vMCP's `filter` excludes can still be called by composites.
#[tokio::test(start_paused = true)]
async fn toolhive_filter_hides_from_clients_only() {
    let guide = include_str!("../../../src/guide/from_toolhive.md");
    let row = guide.lines().find(|row| row.contains("aggregation.tools[].filter")).unwrap();
    let here = row.split('|').nth(2).unwrap();
    let key = here.split('`').nth(1).unwrap();
    let (section, key) = key.split_once(' ').unwrap();

    let file = format!(
        r#"
{section}
{key} = ["shop_stock"]

[[backends]]
name = "shop"
command = "shop"

[[composite_tools]]
name = "offer"
description = "An offer"
tools = ["shop/price"]
"#
    );
    let config = Config::from_toml_str(&file).unwrap();
    let shop = Server::new().says("price", "8").says("stock", "3");
    let service = testing::stack(&config, [("shop", shop)]);
    let tools = testing::listed(&service).await;
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["shop_stock", "offer"]);
    assert_eq!(testing::call(&service, "offer", json!({})).await.is_error, Some(false));
    testing::refused(&service, "shop_price", json!({})).await;
}
