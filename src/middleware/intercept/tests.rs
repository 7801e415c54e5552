//! Tests of the data that rules receive, and of the state that is kept for rules.

use std::{
    convert::Infallible,
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rmcp::model::{CallToolResult, ListToolsResult};
use tower::{Service, ServiceExt, service_fn};

use super::*;
use crate::{
    catalog::{Known, Needs, Tools},
    changes::Epoch,
    message::{Context, Reply, Request},
};

/// A rule that awaits the replies to calls of the tool `awaited`. Counts its clones and the replies
/// that it receives.
#[derive(Debug, Default)]
struct Counting(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    clones: AtomicUsize,
    replies: AtomicUsize,
}

impl Counting {
    fn counts(&self) -> [usize; 2] {
        [&self.0.clones, &self.0.replies].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Clone for Counting {
    fn clone(&self) -> Self {
        self.0.clones.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl Intercept for Counting {
    type Memo = bool;

    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, bool> {
        ControlFlow::Continue(request.tool_call().is_some_and(|call| call.name == "awaited"))
    }

    fn awaits_reply(&self, memo: &bool) -> bool {
        *memo
    }

    fn on_reply(&self, _: bool, _: &mut Reply) {
        self.0.replies.fetch_add(1, Ordering::Relaxed);
    }
}

impl InterceptInformed for Counting {
    type Derived = ();
    type Memo = bool;

    fn derive(&self, _: &Tools) {}

    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        match request.tool_call() {
            Some(call) if call.name == "informed" => Needs::AllTools,
            _ => Needs::Nothing,
        }
    }

    fn on_request(
        &self,
        request: &mut Request,
        _: Option<&Arc<Known<()>>>,
    ) -> ControlFlow<Reply, bool> {
        Intercept::on_request(self, request)
    }

    fn awaits_reply(&self, memo: &bool) -> bool {
        *memo
    }

    fn on_reply(&self, memo: bool, _: Option<&Arc<Known<()>>>, reply: &mut Reply) {
        Intercept::on_reply(self, memo, reply);
    }
}

async fn server(request: Request) -> Result<Reply, Infallible> {
    Ok(match request.lists_tools() {
        true => ListToolsResult::default().into(),
        false => CallToolResult::success(Vec::new()).into(),
    })
}

#[tokio::test]
async fn rule_is_neither_cloned_nor_shown_an_unawaited_reply() {
    let rule = Counting::default();
    let counts = rule.0.clone();
    let mut service = Intercepted::new(rule, service_fn(server));
    for (tool, expected) in [("other", [0, 0]), ("awaited", [1, 1])] {
        service.ready().await.unwrap().call(Request::call_tool(tool)).await.unwrap();
        assert_eq!(Counting(counts.clone()).counts(), expected, "{tool}");
    }
}

#[tokio::test]
async fn informed_rule_is_neither_cloned_nor_shown_an_unawaited_reply() {
    let rule = Counting::default();
    let counts = rule.0.clone();
    let mut service = Informed::new(rule, service_fn(server));
    for (tool, expected) in [("other", [0, 0]), ("awaited", [1, 1])] {
        service.ready().await.unwrap().call(Request::call_tool(tool)).await.unwrap();
        assert_eq!(Counting(counts.clone()).counts(), expected, "{tool}");
    }
}

#[tokio::test]
async fn rule_is_not_shown_an_unawaited_reply_after_listing_tools() {
    let rule = Counting::default();
    let counts = rule.0.clone();
    let service = Informed::new(rule, service_fn(server));
    service.oneshot(Request::call_tool("informed")).await.unwrap();
    assert_eq!(counts.replies.load(Ordering::Relaxed), 0);
}

/// A rule that takes long to decide about tool calls.
#[derive(Clone)]
struct Slow;

impl InterceptInformed for Slow {
    type Derived = ();
    type Memo = ();

    fn derive(&self, _: &Tools) {}

    fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
        match request.tool_call() {
            Some(_) => Needs::AllTools,
            None => Needs::Nothing,
        }
    }

    fn on_request(&self, _: &mut Request, _: Option<&Arc<Known<()>>>) -> ControlFlow<Reply> {
        thread::sleep(Duration::from_millis(2));
        ControlFlow::Continue(())
    }
}

/// The future yields without a runtime.
#[test]
fn long_rule_lets_other_tasks_run_before_the_call() {
    let called = Arc::new(AtomicUsize::new(0));
    let counted = called.clone();
    let mut service = Informed::new(
        Slow,
        service_fn(move |request: Request| {
            counted.fetch_add(usize::from(request.tool_call().is_some()), Ordering::Relaxed);
            server(request)
        }),
    );
    // The first call lists the tools, and the second call uses the cached list.
    for expected in [1, 2] {
        assert!(tokio_test::task::spawn(service.ready()).poll().is_ready());
        let mut call = tokio_test::task::spawn(service.call(Request::call_tool("any")));
        assert!(call.poll().is_pending());
        assert!(call.is_woken());
        assert_eq!(called.load(Ordering::Relaxed), expected - 1);
        assert!(call.poll().is_ready());
        assert_eq!(called.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test]
async fn informed_rule_lists_tools_once_per_key_and_epoch() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = lists.clone();
    let epoch = Epoch::default();
    let key = |context: &Context| context.extensions().get::<&str>().map(|&key| key.to_owned());
    let inner = service_fn(move |request: Request| {
        counted.fetch_add(usize::from(request.lists_tools()), Ordering::Relaxed);
        server(request)
    });
    // Each setter keeps the setting of the other.
    for service in [
        Informed::new(Counting::default(), inner.clone()).epoch(epoch.clone()).vary_by(key),
        Informed::new(Counting::default(), inner).vary_by(key).epoch(epoch.clone()),
    ] {
        let before = lists.load(Ordering::Relaxed);
        for (caller, expected) in [("a", 1), ("b", 2), ("a", 2), ("b", 2)] {
            let mut request = Request::call_tool("informed");
            request.context_mut().extensions_mut().insert(caller);
            service.clone().oneshot(request).await.unwrap();
            assert_eq!(lists.load(Ordering::Relaxed) - before, expected, "{caller}");
        }
        epoch.bump();
        let mut request = Request::call_tool("informed");
        request.context_mut().extensions_mut().insert("a");
        service.oneshot(request).await.unwrap();
        assert_eq!(lists.load(Ordering::Relaxed) - before, 3);
    }
}
