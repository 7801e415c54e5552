//! Views of a file: which sections they inherit, and the mistakes in them.

use mcp_composite::{
    config::{Config, ConfigError},
    testing::{self, Server},
};
use serde_json::{Value, json};

const BACKEND: &str = "[[backends]]\nname = 'shop'\ncommand = 'shop'\n";

fn shop() -> Server {
    Server::new().gives("price", json!({ "price": 8, "cost": 5 })).says("stock", "3")
}

fn config(file: &str) -> Config {
    Config::from_toml_str(&format!("{file}{BACKEND}")).unwrap()
}

fn mistakes(file: &str) -> ConfigError {
    Config::from_toml_str(&format!("{file}{BACKEND}")).unwrap_err()
}

/// Returns the path and the message of each mistake.
fn paths_and_messages(error: &ConfigError) -> Vec<(&str, &str)> {
    error.mistakes().iter().map(|mistake| (mistake.path(), mistake.message())).collect()
}

async fn listed(config: &Config) -> Vec<String> {
    let tools = testing::listed(&testing::stack(config, [("shop", shop())])).await;
    tools.into_iter().map(|tool| tool.name.into_owned()).collect()
}

async fn price(config: &Config, tool: &str) -> Value {
    let stack = testing::stack(config, [("shop", shop())]);
    testing::call(&stack, tool, json!({})).await.structured_content.unwrap()
}

#[tokio::test(start_paused = true)]
async fn view_replaces_its_own_sections_and_inherits_the_others() {
    let config = config(
        "filter.hide_tools = ['shop_stock']\n\
         redactions = [{ tools = ['shop_price'], remove = ['/cost'] }]\n\
         composite_tools = [{ name = 'all', description = 'All', tools = ['shop/price'] }]\n\
         [[views]]\npath = '/same'\n\
         [[views]]\npath = '/more'\nfilter = {}\ncomposite_tools = []\n\
         [[views]]\npath = '/named'\naliases = [{ tool = 'shop_price', name = 'price' }]\n\
         [[views]]\npath = '/open'\nredactions = []\n",
    );
    let view = |path: &str| config.view(path).unwrap();
    for (config, tools) in [
        (&config, &["shop_price", "all"][..]),
        (&view("/same"), &["shop_price", "all"]),
        (&view("/more"), &["shop_price", "shop_stock"]),
        (&view("/named"), &["price", "all"]),
        (&view("/open"), &["shop_price", "all"]),
    ] {
        assert_eq!(listed(config).await, tools);
    }
    let redacted = json!({ "price": 8, "cost": "[redacted]" });
    assert_eq!(price(&config, "shop_price").await, redacted);
    assert_eq!(price(&view("/more"), "shop_price").await, redacted);
    // The inherited composite calls the tool by its name in the view.
    assert_eq!(price(&view("/named"), "price").await, redacted);
    let all = price(&view("/named"), "all").await;
    assert_eq!(all["branches"]["price"]["output"], redacted, "{all}");
    assert_eq!(price(&view("/open"), "shop_price").await, json!({ "price": 8, "cost": 5 }));
    assert!(config.view("/other").is_none() && view("/same").views().is_empty());
}

#[test]
fn mistake_in_an_inherited_section_is_reported_once() {
    let error = mistakes(
        "filter.hide_tools = ['re:(']\n\
         composite_tools = [{ name = 'all', description = 'All', tools = ['shop/price', 'gone'] }]\n\
         [[views]]\npath = '/a'\n[[views]]\npath = '/b'\nadvertise = {}\n",
    );
    let paths: Vec<_> = paths_and_messages(&error).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["filter.hide_tools[0]", "composite_tools[0].tools[1]"], "{error}");
    assert!(!error.to_string().contains("in the view"), "{error}");
}

#[test]
fn mistake_that_only_a_view_causes_names_the_view() {
    let error = mistakes(
        "aliases = [{ tool = 'shop_price', name = 'price' }]\n\
         composite_tools = [{ name = 'all', description = 'All', tools = ['price'] }]\n\
         [[views]]\npath = '/a'\n[[views]]\npath = '/b'\naliases = []\n",
    );
    let [(path, message)] = paths_and_messages(&error)[..] else { panic!("{error}") };
    assert_eq!(path, "composite_tools[0].tools[0]");
    assert!(message.contains("`price`") && message.ends_with(" (in the view `/b`)"), "{message}");
}

#[test]
fn mistakes_after_an_invalid_view_have_their_own_paths() {
    let error = mistakes(
        "views = [1, { path = '/a', composite_tools = [{ name = 'b c', description = 'd', \
         tools = ['shop/price'], tols = [] }], filter = { hide_tools = ['re:('] } }]\n",
    );
    let paths: Vec<_> = paths_and_messages(&error).into_iter().map(|(path, _)| path).collect();
    let expected = [
        "views[0]",
        "views[1].composite_tools[0].name",
        "views[1].composite_tools[0].tols",
        "views[1].filter.hide_tools[0]",
    ];
    assert_eq!(paths, expected, "{error}");
}

#[test]
fn paths_of_views_are_distinct_and_safe() {
    let view = |path: &str| format!("[[views]]\npath = {path:?}\n");
    for path in ["/a", "/a/b", "/A", "/mcp-2", "/v1.0/_~-", "/metrics2", "/..."] {
        assert!(Config::from_toml_str(&view(path)).is_ok(), "{path}");
    }
    for path in [
        "",
        "/",
        "a",
        "/a/",
        "//a",
        "/a//b",
        "/.",
        "/a/../b",
        "/a b",
        "/a%2fb",
        "/a?b",
        "/a#b",
        "/ä",
        "/{a}",
        "/*",
        "/:a",
        "/a\n",
        "/mcp",
        "/MCP",
        "/mcp/a",
        "/healthz",
        "/readyz",
        "/metrics",
        "/.well-known",
        "/.well-known/oauth-protected-resource/a",
    ] {
        let error = Config::from_toml_str(&view(path)).unwrap_err();
        assert_eq!(error.mistakes().len(), 1, "{path}: {error}");
        assert_eq!(error.mistakes()[0].path(), "views[0].path", "{path}");
    }
    let error = Config::from_toml_str(&(view("/a") + &view("/b") + &view("/a"))).unwrap_err();
    assert_eq!(paths_and_messages(&error), [("views[2].path", "duplicate path `/a`")]);
    assert!(Config::from_toml_str(&many(100)).is_ok());
    let error = Config::from_toml_str(&many(101)).unwrap_err();
    assert_eq!(paths_and_messages(&error), [("views", "too many views: expected at most 100")]);
}

/// Returns a file with this number of views.
fn many(count: usize) -> String {
    (0..count).map(|view| format!("[[views]]\npath = '/{view}'\n")).collect()
}

#[test]
fn full_results_are_kept_only_while_results_are_truncated() {
    let file =
        "results = {}\ntruncate.max_result_bytes = 9\n[[views]]\npath = '/a'\ntruncate = {}\n";
    let view = config(file).view("/a").unwrap();
    assert!(!format!("{view:?}").contains("MemoryStore { ttl: 600s"), "{view:?}");
    let own = "[[views]]\npath = '/a'\nresults = {}\n";
    let error = mistakes(own);
    let [(path, _)] = paths_and_messages(&error)[..] else { panic!("{error}") };
    assert_eq!(path, "views[0].results");
}

#[test]
fn errors_in_views_contain_no_secrets() {
    for mistake in [
        "aliases = [{ tool = 'shop_price', arguments.key = { hide = true, value = 'hunter2' } }]",
        "aliases = [{ tool = 'shop_price', arguments = { key = { default = 'hunter2' } }, x = 1 }]",
        "backends = [{ name = 'a', env = { KEY = 'hunter2' } }]",
        "redis.url = 'redis://:hunter2@cache'",
        "\"hunter2 is secret\" = 1",
        "aliases = [{ arguments = { key = { default = 'hunter2' } } }",
    ] {
        let error = mistakes(&format!("[[views]]\npath = '/a'\n{mistake}\n"));
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert!(!error.mistakes().iter().any(|it| it.path().contains("hunter2")), "{error}");
    }
}
