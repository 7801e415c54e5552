//! The section `[flow_session]` of a file.

use mcp_composite::{
    config::Config,
    stack::Stack,
    testing::{Server, request},
};
use serde_json::json;
use tower::Layer;

use super::{call, denies, is_denied, labels, reply, server};

/// The labels of the tools of [`server`].
const LABELS: &str = r#"
[[flow]]
tools = ["mail", "inbox"]
labels = ["private"]

[[flow]]
tools = ["page", "inbox"]
labels = ["untrusted"]

[[flow]]
tools = ["send"]
labels = ["egress"]
"#;

const DENY: &str = "[flow_session]\nmode = \"deny\"\n";

fn stack(sections: &str) -> Stack<Server> {
    let config = Config::from_toml_str(&format!("{LABELS}{sections}")).unwrap();
    config.stack_layer().layer(server())
}

#[tokio::test(start_paused = true)]
async fn file_without_the_section_only_labels_results() {
    for section in ["", "[flow_session]\nmode = \"off\""] {
        let service = stack(section);
        assert_eq!(labels(&call(&service, "inbox").await), json!(["private", "untrusted"]));
        assert!(!denies(&service, "send").await);
    }
}

#[tokio::test(start_paused = true)]
async fn mode_ask_asks_the_user() {
    use mcp_composite::testing::Person;

    let service = stack("[flow_session]\nmode = \"ask\"\n");
    assert_eq!(labels(&call(&service, "inbox").await), json!(["private", "untrusted"]));
    let mut person = Person::new().accepts("mcp-composite/flow", json!({}));
    person.call(&service, "send", json!({ "text": "hello" })).await;
    assert_eq!(person.rounds(), 1);
    assert!(denies(&service, "send").await, "the client cannot ask its user");
}

#[tokio::test(start_paused = true)]
async fn labels_apply_to_the_names_before_aliases() {
    let aliases = r#"
[[aliases]]
tool = "inbox"
name = "plain_inbox"

[[aliases]]
tool = "send"
name = "post"

[[composite_tools]]
name = "read"
description = "Reads"
tools = ["plain_inbox"]

[advertise]
mode = "search"
"#;
    let service = stack(&format!("{DENY}{aliases}"));
    let through = |tool: &str| request("call_tool", json!({ "name": tool, "arguments": {} }));
    assert!(!is_denied(&reply(&service, through("post")).await));
    let inbox = reply(&service, through("plain_inbox")).await;
    assert_eq!(labels(&inbox), json!(["private", "untrusted"]));
    assert_eq!(labels(&call(&service, "read").await), json!(["private", "untrusted"]));

    let denied = reply(&service, through("post")).await;
    let message = denied.error().unwrap().message.clone();
    assert!(message.starts_with("tool `post` is denied: "), "{message}");
}

#[cfg(feature = "http")]
#[tokio::test(start_paused = true)]
async fn callers_have_separate_sessions() {
    let service = stack(&format!("[caller]\nheader = \"x-user\"\n{DENY}"));
    let denies = async |tool, caller: &'static str| {
        let mut call = request(tool, json!({}));
        let mut parts = http::Request::new(()).into_parts().0;
        parts.headers.insert("x-user", http::HeaderValue::from_static(caller));
        call.context_mut().extensions_mut().insert(parts);
        is_denied(&reply(&service, call).await)
    };
    assert!(!denies("inbox", "ada").await);
    assert!(!denies("send", "bob").await);
    assert!(denies("send", "ada").await);
    assert!(!self::denies(&service, "send").await);
}

#[test]
fn mistakes_of_the_section_are_reported() {
    let mistake = |file: &str| {
        let error = Config::from_toml_str(file).unwrap_err();
        let [mistake] = error.mistakes() else { panic!("{error}") };
        format!("{}: {}", mistake.path(), mistake.message())
    };
    let labeled = |section: &str| format!("{LABELS}[flow_session]\n{section}");
    assert_eq!(
        mistake("[flow_session]\nmode = \"deny\""),
        "flow_session: no tool has a label: expected `[[flow]]`"
    );
    assert_eq!(mistake(&labeled("")), "flow_session.mode: missing key `mode`");
    assert_eq!(
        mistake(&labeled("mode = \"warn\"\nexpires_after = \"0s\"")),
        "flow_session.expires_after: `expires_after` is zero: expected more, or `mode = \"off\"`"
    );
    let view = labeled("mode = \"warn\"\n[[views]]\npath = \"/a\"\nflow_session = {}");
    assert!(mistake(&view).contains("all views share it"), "{}", mistake(&view));
}

#[cfg(feature = "stdio")]
#[tokio::test]
async fn reload_and_views_keep_the_labels_of_sessions() {
    use mcp_composite::config::Gateway;

    use crate::{
        backends::{backend, file},
        support::soon,
    };

    let config = |mode: &str, hidden: &str| {
        let labels = "[[flow]]\ntools = ['shop_pid']\nlabels = ['private', 'untrusted']\n\
                      [[flow]]\ntools = ['shop_echo']\nlabels = ['egress']\n";
        let hidden = format!("[[views]]\npath = '/a'\nfilter.hide_tools = ['{hidden}']\n");
        let session = format!("[flow_session]\nmode = '{mode}'\nexpires_after = '10m'\n");
        file(&[labels.to_owned(), session, backend("shop", "good", ""), hidden])
    };
    let is_denied = async |gateway: &Gateway, path: Option<&str>| {
        let view = path.map_or_else(|| gateway.main(), |path| gateway.view(path).unwrap());
        let echo = request("shop_echo", json!({ "text": "hello" }));
        is_denied(&soon(reply(&view.service(), echo)).await)
    };
    let gateway = Gateway::connect(&config("deny", "none")).unwrap();
    assert!(!is_denied(&gateway, None).await && !is_denied(&gateway, Some("/a")).await);
    soon(call(&gateway.view("/a").unwrap().service(), "shop_pid")).await;
    assert!(is_denied(&gateway, None).await && is_denied(&gateway, Some("/a")).await);

    for (mode, expected) in [("warn", false), ("deny", true)] {
        soon(gateway.reload(&config(mode, mode))).await.unwrap();
        assert_eq!(is_denied(&gateway, None).await, expected, "{mode}");
        assert_eq!(is_denied(&gateway, Some("/a")).await, expected, "{mode}");
    }
    gateway.close().await;
}
