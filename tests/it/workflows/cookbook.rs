//! The cookbook, `src/guide/cookbook.md`, and its workflows, the files `cookbook_*`.

use std::{collections::BTreeMap, fs, path::Path};

use mcp_composite::{
    composite::Preview,
    config::Config,
    testing::{self, Server},
};
use tower::Layer;

use super::case::{Case, Exchange, InMemory, server};
use crate::config::is_supported;

const GUIDE: &str = include_str!("../../../src/guide/cookbook.md");

/// Returns the texts of the workflows by the names of their files, without `cookbook_` and the
/// extension.
fn workflows() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workflows");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        Some(name.strip_prefix("cookbook_")?.strip_suffix(".toml")?.to_owned())
    };
    files.filter_map(|path| Some((named(&path)?, fs::read_to_string(&path).unwrap()))).collect()
}

/// Returns the name and the description of a workflow in a table row of the guide.
fn described(row: &str) -> Option<(String, String)> {
    let row = row.strip_prefix("| [`")?.strip_suffix(" |")?;
    let (name, rest) = row.split_once("`](../../tests/workflows/cookbook_")?;
    let about = rest.strip_prefix(name)?.strip_prefix(".toml) | ")?;
    Some((name.to_owned(), about.to_owned()))
}

#[test]
fn cookbook_lists_exactly_its_workflows() {
    let abouts = |(name, text): (String, String)| (name, Case::parse(&text).unwrap().0.about);
    let expected: Vec<_> = workflows().into_iter().map(abouts).collect();
    let mut listed: Vec<_> = GUIDE.lines().filter_map(described).collect();
    listed.sort();
    assert_eq!(listed, expected);
    assert!(listed.len() >= 40, "{}", listed.len());
}

#[test]
fn cookbook_shows_one_workflow_of_each_group() {
    let workflows = workflows();
    let groups = GUIDE.split("\n# ").skip(1);
    for group in groups {
        let (title, group) = group.split_once('\n').unwrap();
        let (start, rest) = group.split_once("\n```toml\n").unwrap();
        let (excerpt, end) = rest.split_once("```").unwrap();
        assert!(!end.contains("```"), "{title} shows several workflows");
        let name = start.rsplit('`').nth(1).unwrap();
        assert!(start.lines().filter_map(described).any(|(listed, _)| listed == name), "{title}");
        assert!(workflows[name].contains(excerpt), "{title}: `{name}` has another text");
        let (case, _) = Case::parse(&workflows[name]).unwrap();
        assert_eq!(
            toml::from_str::<toml::Table>(excerpt).unwrap(),
            case.config(&InMemory),
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn cookbook_workflows_have_previews_and_no_warnings() {
    for (name, text) in workflows() {
        if !is_supported(&text) {
            continue;
        }
        let (case, exchanges) = Case::parse(&text).unwrap();
        let config = Config::from_toml_str(&case.config(&InMemory).to_string()).unwrap();
        assert_eq!(config.composite_layer().remarks(), [""; 0], "{name}");

        let server: Server = server(&case.tools, &BTreeMap::new());
        let layer = config.stack_layer();
        let stack = layer.layer(server.clone());
        testing::listed(&stack).await;
        assert_eq!(layer.warnings(), [""; 0], "{name}");

        for Exchange { tool, arguments, expect, .. } in exchanges {
            let composite = tool.unwrap_or_else(|| config.composite_tools()[0].name().to_owned());
            // Cases can also call tools that are not composites.
            let Some(definition) = definition(&case, &composite) else { continue };
            match (stack.preview(&composite, arguments).await, expect.refused) {
                (Ok(preview), None) => {
                    let made = expect.calls.unwrap_or_default().into_iter().map(|call| call.tool);
                    // The calls of nested composites and the tools behind aliases are not shown.
                    let made = made.filter(|tool| definition.contains(&format!("\"{tool}\"")));
                    let missing: Vec<_> = made.filter(|tool| !shows(&preview, tool)).collect();
                    assert!(missing.is_empty(), "{name}: {missing:?} is not in\n{preview}");
                }
                (Err(error), Some(refused)) => assert_eq!(error.message, refused, "{name}"),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(server.calls().is_empty(), "{name}");
    }
}

/// Returns the definition of a composite as TOML.
fn definition(case: &Case, composite: &str) -> Option<String> {
    let named =
        |table: &&toml::Value| table.get("name").and_then(|name| name.as_str()) == Some(composite);
    case.composite_tools.as_array()?.iter().find(named).map(ToString::to_string)
}

/// Returns `true` if a preview shows a call of the tool, and no error.
fn shows(preview: &Preview, tool: &str) -> bool {
    let steps = || preview.waves.iter().flat_map(|wave| &wave.steps);
    let calls = || steps().flat_map(|step| &step.calls);
    let errors = steps().filter_map(|step| step.error.as_ref());
    let errors = errors.chain(calls().filter_map(|call| call.error.as_ref()));
    errors.count() == 0 && calls().any(|call| call.tool == tool)
}
