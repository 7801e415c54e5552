//! Nested filters.

use mcp_composite::{
    filter::FilterLayer,
    functions::{FunctionsLayer, ToolSet, tool_fn},
    message::{Reply, Request},
    pattern::Selection,
    testing,
};
use proptest::prelude::*;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use serde_json::json;
use tower::{Layer, Service, ServiceBuilder};

use super::{is_refused, listed};
use crate::scripted::Server;

/// The patterns of a selection: allowed and denied.
type Patterns = (Option<Vec<String>>, Vec<String>);

fn name() -> impl Strategy<Value = String> {
    "[abc]{1,3}"
}

fn pattern() -> impl Strategy<Value = String> {
    "[abc*?]{1,3}"
}

fn patterns() -> impl Strategy<Value = Patterns> {
    let allowed = proptest::option::of(proptest::collection::vec(pattern(), 1..4));
    (allowed, proptest::collection::vec(pattern(), 0..3)).prop_map(|(allow, mut deny)| {
        // Allowing and denying the same pattern is an error.
        deny.retain(|pattern| !allow.iter().flatten().any(|allowed| allowed == pattern));
        (allow, deny)
    })
}

fn filter((allow, deny): &Patterns) -> FilterLayer {
    let mut selection = Selection::default();
    if let Some(allow) = allow {
        selection = selection.allow(allow).expect("good patterns");
    }
    FilterLayer::new().tools(selection.deny(deny).expect("good patterns"))
}

/// Returns the names that a filter lists and allows to call, which must be equal.
async fn passed<L>(layer: L, names: &[String]) -> Vec<String>
where
    L: Layer<Server>,
    L::Service: Service<Request, Response = Reply, Error: std::fmt::Debug> + Clone,
{
    let server = names.iter().fold(Server::new(), |server, name| server.echoes(name));
    let service = layer.layer(server);
    let listed = listed(&service).await;
    for name in names {
        assert_eq!(is_refused(&service, name).await, !listed.contains(name), "{name}");
    }
    listed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn stacked_filters_show_the_intersection(
        one in patterns(),
        other in patterns(),
        names in proptest::collection::btree_set(name(), 1..8),
    ) {
        let names: Vec<_> = names.into_iter().collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let first = passed(filter(&one), &names).await;
            let second = passed(filter(&other), &names).await;
            let both: Vec<_> = first.into_iter().filter(|name| second.contains(name)).collect();
            for (outer, inner) in [(&one, &other), (&other, &one)] {
                let layer = ServiceBuilder::new().layer(filter(outer)).layer(filter(inner));
                assert_eq!(passed(layer, &names).await, both);
            }
        });
    }
}

#[tokio::test]
async fn view_with_own_tools_does_not_affect_the_server() {
    let server = Server::new().says("search", "all").says("drop", "all");
    let scoped = FilterLayer::new().tools(Selection::default().allow(["search"]).unwrap());
    let own = ToolSet::new(["search", "drop"].map(|name| {
        let tool = Tool::new(name, "Its own", JsonObject::new());
        tool_fn(tool, async |_: JsonObject, _| "its own")
    }));
    let layer = FunctionsLayer::new(own.expect("different names"));
    let view = layer.layer(scoped.layer(server.clone()));

    for name in ["search", "drop"] {
        let said = |result: CallToolResult| result.content[0].as_text().unwrap().text.clone();
        assert_eq!(said(testing::call(&view, name, json!({})).await), "its own");
        assert_eq!(said(testing::call(&server, name, json!({})).await), "all");
    }
}
