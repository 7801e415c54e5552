use std::convert::Infallible;

use rmcp::model::{JsonObject, ListToolsResult, Tool};
use tower::service_fn;

use super::*;
use crate::{
    message::{Reply, Request},
    pagination::{MAX_LIST_BYTES, MAX_PAGES},
};

fn tool(name: &'static str, description: &'static str) -> Tool {
    Tool::new(name, description, JsonObject::new())
}

#[test]
fn first_of_two_tools_with_the_same_name_is_used() {
    let tools: Tools = [("a", "1"), ("b", "2"), ("a", "3"), ("a", "1")]
        .into_iter()
        .map(|(name, description)| tool(name, description))
        .collect();
    assert_eq!(tools.len(), 2);
    assert_eq!(tools.get("a").and_then(|tool| tool.description.as_deref()), Some("1"));
    assert!(tools.get("c").is_none());
    let shadowed: Vec<_> = tools.shadowed().map(|tool| tool.description.as_deref()).collect();
    assert_eq!(shadowed, [Some("3")]);
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn least_recently_used_catalog_is_evicted() {
    let by: ContextKey =
        Arc::new(|context| context.extensions().get::<usize>().map(usize::to_string));
    let catalogs =
        Catalogs::<()>::new(CatalogSettings { vary_by: Some(by), ..CatalogSettings::default() });
    let of = |caller: usize| {
        let mut context = Context::default();
        context.extensions_mut().insert(caller);
        catalogs.lookup(&context).catalog
    };
    of(0).store(0, Ok((Tools::default(), ()))).unwrap();
    for caller in 1..MAX_VARIED {
        tokio::time::advance(Duration::from_millis(1)).await;
        of(caller);
    }
    assert!(lock(&of(0).state).known.is_some(), "there is room for so many");
    of(MAX_VARIED);
    assert!(lock(&of(0).state).known.is_some(), "it was used a moment ago");
    let varied = catalogs.varied.as_ref().unwrap().catalogs.lock().unwrap();
    assert_eq!(varied.len(), MAX_VARIED);
    assert!(!varied.contains_key("1"));
}

#[tokio::test(start_paused = true)]
async fn catalogs_of_callers_are_bounded_in_bytes() {
    let by: ContextKey =
        Arc::new(|context| context.extensions().get::<usize>().map(usize::to_string));
    let catalogs =
        Catalogs::<()>::new(CatalogSettings { vary_by: Some(by), ..CatalogSettings::default() });
    let list = async |caller: usize| {
        tokio::time::advance(Duration::from_millis(1)).await;
        let mut context = Context::default();
        context.extensions_mut().insert(caller);
        let mut tools = Tools::default();
        tools.bytes = MAX_LIST_BYTES;
        catalogs.lookup(&context).catalog.store(0, Ok((tools, ()))).unwrap();
    };
    let varied = catalogs.varied.as_ref().unwrap();
    let kept = || {
        let mut kept: Vec<_> = varied.catalogs.lock().unwrap().keys().cloned().collect();
        kept.sort();
        kept
    };
    for caller in 0..5 {
        list(caller).await;
    }
    list(1).await;
    assert_eq!(kept(), ["1", "2", "3", "4"]);
    assert_eq!(varied.holding.bytes(), MAX_VARIED_BYTES);
    list(9).await;
    list(1).await;
    assert_eq!(kept(), ["1", "3", "4", "9"]);
    // A large catalog that a request still uses does not prevent other callers from getting their
    // catalogs.
    let in_use = varied.holding.hold(2 * MAX_VARIED_BYTES);
    list(5).await;
    assert_eq!(kept(), ["5"]);
    drop(in_use);
    assert_eq!(varied.holding.bytes(), MAX_LIST_BYTES);
}

#[tokio::test(start_paused = true)]
async fn background_refresh_ends_with_its_catalog() {
    let catalog = Catalog::<()>::new(Epoch::default(), Holding::default());
    let alive = Arc::new(());
    let held = alive.clone();
    catalog.refresh(|| async move {
        let _held = held;
        std::future::pending().await
    });
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&alive), 2);

    drop(catalog);
    tokio::task::yield_now().await;

    assert_eq!(Arc::strong_count(&alive), 1);
}

#[tokio::test(start_paused = true)]
async fn list_that_changes_while_loading_is_outdated() {
    let epoch = Epoch::default();
    let catalog = Catalog::<()>::new(epoch.clone(), Holding::default());
    let bump = epoch.clone();
    let load = |_| async move {
        bump.bump();
        Ok((Tools::default(), ()))
    };
    let lookup = Lookup { catalog: catalog.clone(), context: None };
    lookup.wait(Needs::AllTools, |_| true, load).await.unwrap();
    assert!(matches!(catalog.at_hand(Needs::AllTools, Instant::now(), |_| true), AtHand::Unknown));
    assert!(matches!(
        catalog.at_hand(Needs::Tool("a"), Instant::now(), |_| true),
        AtHand::Stale(_)
    ));
    assert!(matches!(
        catalog.at_hand(Needs::CurrentTool("a"), Instant::now(), |_| true),
        AtHand::Unknown
    ));
}

#[test]
fn expired_list_is_not_reused_without_a_runtime() {
    let catalog = Catalog::<()>::new(Epoch::default(), Holding::default());
    let known = |age: Duration| {
        let since = Instant::now().checked_sub(age).unwrap();
        let _held = Holding::default().hold(0);
        Known { tools: Tools::default(), derived: (), epoch: 0, since, _held }
    };
    lock(&catalog.state).known = Some(Arc::new(known(Duration::ZERO)));
    assert!(matches!(
        catalog.at_hand(Needs::Tool("a"), Instant::now(), |_| true),
        AtHand::Known(_)
    ));
    lock(&catalog.state).known = Some(Arc::new(known(MAX_AGE)));
    assert!(matches!(catalog.at_hand(Needs::Tool("a"), Instant::now(), |_| true), AtHand::Unknown));
}

/// Lists the tools of a server whose pages never end.
async fn list_forever(
    page: impl Fn(usize) -> (Vec<Tool>, String) + Clone,
) -> (Result<Tools, ListError>, usize) {
    let requests = Arc::new(Mutex::new(0));
    let count = requests.clone();
    let server = service_fn(move |_: Request| {
        let mut requests = count.lock().unwrap();
        *requests += 1;
        let (tools, next) = page(*requests);
        let mut list = ListToolsResult::with_all_items(tools);
        list.next_cursor = Some(next);
        std::future::ready(Ok::<Reply, Infallible>(list.into()))
    });
    let listed = list_all(server, Context::default()).await;
    let requests = *requests.lock().unwrap();
    (listed, requests)
}

#[tokio::test(start_paused = true)]
async fn endless_list_is_abandoned_with_an_error() {
    let one = || vec![tool("a", "1")];
    let (listed, requests) = list_forever(|_| (one(), "again".into())).await;
    assert_eq!((listed.unwrap_err(), requests), (ListError::Circular, 2));

    let (listed, requests) = list_forever(|page| (one(), page.to_string())).await;
    assert_eq!((listed.unwrap_err(), requests), (ListError::Endless, MAX_PAGES));

    let half = || vec![Tool::new("a", "x".repeat(MAX_LIST_BYTES / 2), JsonObject::new())];
    let (listed, requests) = list_forever(|page| (half(), page.to_string())).await;
    assert_eq!((listed.unwrap_err(), requests), (ListError::TooLarge, 2));
}
