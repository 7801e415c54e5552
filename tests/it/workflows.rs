//! One file of `tests/workflows` for each case: the scripted tools, the composites and a call, with
//! the expected calls, result and trace. The files `cookbook_*` are the workflows of the cookbook.
//!
//! A case has the keys of [`Case`](case::Case). Omitted expectations are not checked, except for
//! the
//! calls, which must be complete and in order.

mod case;
mod cookbook;

use std::collections::BTreeMap;

use mcp_composite::{
    config::Config,
    testing::{self, Server},
};
use tower::Layer;

use self::case::{Case, Exchange, InMemory, server};
use crate::config::is_supported;

#[test]
fn workflow_cases_meet_their_expectations() {
    let mut failures = Vec::new();
    for (name, text) in case::all() {
        if !is_supported(&text) {
            continue;
        }
        // A separate runtime, so that its time begins at zero.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        if let Err(differences) = runtime.block_on(case::run(&text, &InMemory)) {
            failures.push(format!("{name}: {}", differences.join("\n    ")));
        }
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
}

#[tokio::test(start_paused = true)]
async fn workflow_cases_have_previews_that_call_no_tool() {
    let mut failures = Vec::new();
    for (name, text) in case::all() {
        if !is_supported(&text) {
            continue;
        }
        let (case, exchanges) = Case::parse(&text).unwrap();
        // Some cases only have mistakes.
        let Ok(config) = Config::from_toml_str(&case.config(&InMemory).to_string()) else {
            continue;
        };
        let server: Server = server(&case.tools, &BTreeMap::new());
        let stack = config.stack_layer().layer(server.clone());
        testing::listed(&stack).await;
        let composites = config.composite_tools();
        for Exchange { tool, arguments, expect, .. } in exchanges {
            let composite = tool.unwrap_or_else(|| composites[0].name().to_owned());
            let is_called = expect.calls.is_some() && expect.refused.is_none();
            if is_called && composites.iter().any(|tool| tool.name() == composite) {
                let preview = stack.preview(&composite, arguments).await;
                failures.extend(preview.err().map(|error| format!("{name}: {}", error.message)));
            }
        }
        assert!(server.calls().is_empty(), "{name}");
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
