//! Nested requests, which tools make while they answer other requests.

use std::{borrow::Cow, mem, sync::Arc};

use serde_json::{Map, Value};

use super::{
    Context, Refusal, Request, Subject, context::CLIENT_CAPABILITIES, delegation::Delegation,
};

// === impl Request ===

impl Request {
    /// Nests this request in the request with the context `outer`. Use it in a tool that calls
    /// other tools while it answers a request, such as an agent. The called tools can be behind the
    /// same layers or in another server.
    ///
    /// The nested request inherits the `_meta`, extensions, cancellation token and progress
    /// reporter of the outer request. Values that are already set in its own context are kept. If
    /// the outer request belongs to a run of a composite, the costs of the nested request are
    /// charged to this run.
    ///
    /// The nested request can ask the client questions only if the outer request can. Otherwise,
    /// the client capabilities for questions are removed from it.
    ///
    /// Tools that call each other endlessly are stopped by two limits. A call is rejected if it is
    /// nested in more than eight others, or if tools have already made 10 000 calls during one
    /// request.
    ///
    /// # Examples
    ///
    /// ```
    /// use mcp_composite::message::{Context, Request};
    ///
    /// let mut outer = Context::default();
    /// outer.extensions_mut().insert("ada");
    ///
    /// let inner = Request::call_tool("search").within(&outer);
    /// assert_eq!(inner.context().extensions().get(), Some(&"ada"));
    /// assert_eq!(inner.context().id().to_string(), "0#search");
    /// assert_eq!(inner.context().depth(), 1);
    /// ```
    #[must_use]
    pub fn within(mut self, outer: &Context) -> Self {
        let name = match self.subject() {
            Subject::Item(_, name) => name.into(),
            Subject::List(..) | Subject::Other => self.method().into(),
        };
        let mut inner = outer.delegated(name);
        let own = self.context_mut();
        inner.meta.extend(mem::take(&mut own.meta).into_owned());
        inner.extensions.extend(mem::take(&mut own.extensions).into_owned());
        inner.cancellation = own.cancellation.take().or(inner.cancellation);
        inner.progress = own.progress.take().or(inner.progress);
        *own = inner;
        self
    }

    /// Counts a tool call, and checks the limits on nested calls. A call is nested in the request
    /// that the current task is answering, even without [`within`](Self::within).
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::Endless`] if the call is nested too deeply, or if there are too many
    /// nested calls.
    pub(crate) fn enter(&mut self) -> Result<(), Refusal> {
        let delegation = &mut self.context_mut().delegation;
        delegation.follow_task();
        if delegation.depth > 0 {
            delegation.begin_run();
        }
        let Err((limit, unit)) = delegation.count() else { return Ok(()) };
        let tool = self.tool_call().map_or(Cow::Borrowed("?"), |call| call.name.clone());
        Err(Refusal::Endless { tool, unit, limit })
    }
}

// === impl Context ===

impl Context {
    /// Returns the number of requests in which this request is [nested](Request::within). Returns
    /// zero for a client's request, and for the requests of a composite that a client called.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.delegation.depth
    }

    /// Returns `true` if a tool makes this request while it answers another one.
    #[cfg(feature = "cache")]
    pub(crate) fn is_nested(&self) -> bool {
        self.delegation.is_nested()
    }

    /// Returns the [`Delegation`] for creating nested requests, which all share one call counter
    /// and one account.
    pub(crate) fn delegation(&mut self) -> Delegation {
        self.delegation.share()
    }

    /// Assigns an account to this request if it has none. The costs of this request and of its
    /// nested requests are charged to this account.
    pub(crate) fn begin_run(&mut self) {
        let delegation = &mut self.delegation;
        if delegation.account.is_none() {
            delegation.follow_task();
            delegation.begin_run();
        }
    }

    /// Creates the context of a request that a tool makes while it answers this one. `name`
    /// identifies the new request.
    fn delegated(&self, name: Arc<str>) -> Self {
        let mut inner = self.branch(name, self.progress.clone());
        inner.delegation = self.delegation.within();
        inner.live_client = self.live_client();
        // Without a client that can be asked during the request, answers could not be delivered.
        if let Some(client) = &inner.live_client {
            let able = Value::Object(client.capabilities().clone());
            inner.meta.insert(CLIENT_CAPABILITIES.to_owned(), able);
        } else if let Some(able) = inner.meta.get_mut(CLIENT_CAPABILITIES) {
            *able = Value::Object(Map::new());
        }
        inner
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rmcp::model::{NumberOrString, ProgressToken, RequestMetaObject};
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::{CLIENT_CAPABILITIES, Context, Delegation, Refusal, Request};
    use crate::message::{
        Account, Charged,
        delegation::{MAX_CALL_DEPTH, MAX_NESTED_CALLS},
    };

    #[test]
    fn nested_request_inherits_the_context_of_the_caller() {
        let mut outer = Context::default();
        let token = CancellationToken::new();
        outer.set_cancellation(token.clone());
        outer.set_account(Account::new(None, None, Charged::default()).into());
        outer.extensions_mut().insert("ada");
        outer.meta_mut().set_traceparent("00-1");
        outer.meta_mut().set_progress_token(ProgressToken(NumberOrString::Number(1)));

        let inner = Request::call_tool("search").within(&outer);
        let inner = inner.context();
        assert_eq!(inner.extensions().get(), Some(&"ada"));
        assert_eq!(inner.meta().get_traceparent(), Some("00-1"));
        assert_eq!(inner.meta().get_progress_token(), None, "it is the client's");
        assert!(inner.account().is_some());
        token.cancel();
        assert!(inner.cancellation().is_some_and(CancellationToken::is_cancelled));
    }

    #[test]
    fn own_values_of_a_request_override_inherited_ones() {
        let mut outer = Context::default();
        outer.meta_mut().set_traceparent("00-1");
        outer.extensions_mut().insert("ada");
        let mut request = Request::call_tool("search");
        request.context_mut().meta_mut().set_traceparent("00-2");
        request.context_mut().extensions_mut().insert(7);

        let inner = request.within(&outer);
        assert_eq!(inner.context().meta().get_traceparent(), Some("00-2"));
        assert_eq!(inner.context().extensions().get(), Some(&7));
        assert_eq!(inner.context().extensions().get(), Some(&"ada"));
    }

    #[test]
    fn nested_request_declares_no_client_capabilities() {
        let mut meta = RequestMetaObject::default();
        meta.insert(CLIENT_CAPABILITIES.to_owned(), json!({ "elicitation": {} }));
        let mut outer = Context::default();
        *outer.meta_mut() = meta;
        let inner = Request::call_tool("search").within(&outer);
        assert_eq!(inner.context().meta().get(CLIENT_CAPABILITIES), Some(&json!({})));
    }

    fn is_too_deep(entered: Result<(), Refusal>) -> bool {
        let text = "tool `ask` seems to call itself: there are more than 8 nested calls";
        entered.is_err_and(|refusal| refusal.to_string() == text)
    }

    #[test]
    fn call_over_the_depth_limit_is_rejected() {
        let mut request = Request::call_tool("ask");
        for depth in 0..=MAX_CALL_DEPTH {
            assert_eq!(request.context().depth(), depth);
            assert_eq!(request.enter(), Ok(()));
            request = Request::call_tool("ask").within(request.context());
        }
        assert!(is_too_deep(request.enter()));
    }

    #[tokio::test]
    async fn request_inherits_the_depth_of_the_answering_task() {
        let answered = |depth| Delegation { depth, ..Delegation::default() };
        let entered = answered(2).answer(async {
            let mut request = Request::call_tool("ask");
            assert_eq!(request.enter(), Ok(()));
            request.context().depth()
        });
        assert_eq!(entered.await, 3);
        let entered = answered(MAX_CALL_DEPTH).answer(async { Request::call_tool("ask").enter() });
        assert!(is_too_deep(entered.await));
    }

    #[test]
    fn branches_of_a_run_share_the_nested_call_limit() {
        let mut client = Context::default();
        let run = Arc::new(Account::default());
        let nested = Arc::new(Account::new(None, Some(run.clone()), Charged::default()));
        client.set_account(run);
        let mut branches = [client.branch("a".into(), None), client.branch("b".into(), None)];
        branches[1].set_account(nested);
        for branch in &mut branches {
            branch.delegation();
            for _ in 0..MAX_NESTED_CALLS / 2 {
                assert_eq!(Request::call_tool("ask").within(branch).enter(), Ok(()));
            }
        }
        for branch in &branches {
            let refusal = Request::call_tool("ask").within(branch).enter();
            assert!(matches!(refusal, Err(Refusal::Endless { .. })), "{refusal:?}");
        }
    }

    #[tokio::test]
    async fn calls_within_a_request_belong_to_the_same_run() {
        let mut outer = Context::default();
        let delegation = outer.delegation();
        assert!(outer.account().is_none(), "nobody has charged it");
        let runs = delegation.answer(async {
            let said = Request::call_tool("ask").within(&outer);
            let not_said = Request::call_tool("ask");
            let further = Request::call_tool("ask").within(said.context());
            [said, not_said, further].map(|mut request| {
                request.context_mut().begin_run();
                request.context().account().unwrap().clone()
            })
        });
        let [said, not_said, further] = runs.await;
        assert!(Arc::ptr_eq(&said, &not_said) && Arc::ptr_eq(&said, &further));
        let mut other = Context::default();
        other.begin_run();
        assert!(!Arc::ptr_eq(&said, other.account().unwrap()));
    }

    #[tokio::test]
    async fn calls_made_within_a_call_are_limited() {
        let mut outer = Context::default();
        let delegation = outer.delegation();
        let calls = delegation.answer(async {
            // Half of the calls are nested explicitly, and the other half only because of the
            // current task.
            for _ in 0..MAX_NESTED_CALLS / 2 {
                assert_eq!(Request::call_tool("ask").within(&outer).enter(), Ok(()));
                assert_eq!(Request::call_tool("ask").enter(), Ok(()));
            }
            Request::call_tool("ask").enter()
        });
        let refusal = calls.await.expect_err("too many");
        let text = "tool `ask` seems to call itself: there are more than 10000 calls made by tools";
        assert_eq!(refusal.to_string(), text);
        assert_eq!(Request::call_tool("ask").enter(), Ok(()), "of another request");
    }
}
