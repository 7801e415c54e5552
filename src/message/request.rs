//! A request: an MCP message and its context.

use std::borrow::Cow;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ListToolsRequest,
    ListToolsRequestMethod, PaginatedRequestParams,
};

use super::Context;

/// The MCP methods for which rmcp defines a request type, such as `tools/call`.
const METHODS: [&str; 21] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/directory/read",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "skills/get",
    "skills/list",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// An MCP request: an MCP message with its [`Context`]. A request passes through Tower layers on
/// its way to a server.
///
/// # Examples
///
/// ```
/// use mcp_composite::message::Request;
/// use rmcp::model::CallToolRequestParams;
///
/// let arguments = serde_json::Map::from_iter([("q".to_owned(), "tea".into())]);
/// let params = CallToolRequestParams::new("search").with_arguments(arguments);
/// let mut request = Request::call_tool_with(params);
/// assert_eq!(request.method(), "tools/call");
///
/// let call = request.tool_call_mut().unwrap();
/// call.name = "docs_search".into();
/// assert_eq!(request.tool_call().unwrap().name, "docs_search");
/// ```
#[derive(Clone, Debug)]
pub struct Request(
    // Boxed because every layer moves the request, and its two parts have about 450 bytes.
    Box<Parts>,
);

/// Returns `true` if rmcp defines a request type for the MCP method `method`. Returns `false` for
/// custom methods.
pub(crate) fn is_of_protocol(method: &str) -> bool {
    known_method(method).is_some()
}

/// Returns the MCP method as a `'static` string. Returns `None` if rmcp defines no request type for
/// it.
pub(crate) fn known_method(method: &str) -> Option<&'static str> {
    METHODS.into_iter().find(|known| *known == method)
}

#[derive(Clone, Debug)]
struct Parts {
    message: ClientRequest,
    context: Context,
}

// === impl Request ===

impl Request {
    /// Creates a request from an MCP message and its context.
    pub fn new(message: impl Into<ClientRequest>, context: impl Into<Context>) -> Self {
        Self(Box::new(Parts { message: message.into(), context: context.into() }))
    }

    /// Creates a `tools/call` request.
    #[inline]
    pub(crate) fn of_tool_call(params: CallToolRequestParams, context: Context) -> Self {
        let message = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        Self(Box::new(Parts { message, context }))
    }

    /// Creates a `tools/call` request for the tool `name` without arguments.
    pub fn call_tool(name: impl Into<Cow<'static, str>>) -> Self {
        Self::call_tool_with(CallToolRequestParams::new(name))
    }

    /// Creates a `tools/call` request. Except for `_meta`, its context is empty.
    ///
    /// The `_meta` of `params` moves to the [context](Self::context) of the request, where layers
    /// and services read it.
    #[must_use]
    pub fn call_tool_with(mut params: CallToolRequestParams) -> Self {
        let meta = params.meta.take().unwrap_or_default();
        let mut request = Self::new(CallToolRequest::new(params), Context::default());
        *request.context_mut().meta_mut() = meta;
        request
    }

    /// Creates a `tools/list` request for the first page of the tool list.
    #[must_use]
    pub fn list_tools() -> Self {
        Self::list_tools_from(None)
    }

    /// Creates a `tools/list` request for the page at `cursor`. `None` requests the first page.
    #[must_use]
    pub fn list_tools_from(cursor: Option<String>) -> Self {
        let params =
            cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let request = ListToolsRequest {
            method: ListToolsRequestMethod,
            params,
            extensions: rmcp::model::Extensions::default(),
        };
        Self::new(request, Context::default())
    }

    /// Replaces the context of the request.
    #[must_use]
    pub fn with_context(mut self, context: impl Into<Context>) -> Self {
        self.0.context = context.into();
        self
    }

    /// Returns the MCP method of the request, such as `tools/call`.
    #[must_use]
    pub fn method(&self) -> &str {
        self.0.message.method()
    }

    /// Returns the context of the request.
    #[must_use]
    #[inline]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Returns a mutable reference to the context of the request.
    #[inline]
    pub fn context_mut(&mut self) -> &mut Context {
        &mut self.0.context
    }

    /// Returns the MCP message of the request, without its context.
    #[must_use]
    #[inline]
    pub fn message(&self) -> &ClientRequest {
        &self.0.message
    }

    /// Returns a mutable reference to the MCP message of the request.
    pub fn message_mut(&mut self) -> &mut ClientRequest {
        &mut self.0.message
    }

    /// Splits the request into its message and its context.
    #[must_use]
    pub fn into_parts(self) -> (ClientRequest, Context) {
        (self.0.message, self.0.context)
    }

    /// Returns the parameters of a `tools/call` request. Returns `None` for other requests.
    #[must_use]
    #[inline]
    pub fn tool_call(&self) -> Option<&CallToolRequestParams> {
        match &self.0.message {
            ClientRequest::CallToolRequest(call) => Some(&call.params),
            _ => None,
        }
    }

    /// Returns a mutable reference to the parameters of a `tools/call` request. Returns `None` for
    /// other requests.
    pub fn tool_call_mut(&mut self) -> Option<&mut CallToolRequestParams> {
        match &mut self.0.message {
            ClientRequest::CallToolRequest(call) => Some(&mut call.params),
            _ => None,
        }
    }

    /// Returns `true` if the request is `resources/unsubscribe`, which ends the client's
    /// subscription to a resource. Layers that hide resources should allow it, because a client may
    /// always end its own subscriptions.
    #[must_use]
    pub fn unsubscribes(&self) -> bool {
        matches!(&self.0.message, ClientRequest::UnsubscribeRequest(_))
    }

    /// Returns `true` if MCP defines the method of the request, but rmcp could not parse its
    /// parameters.
    ///
    /// For example, rmcp parses a `tools/call` request with a field of the wrong type as a custom
    /// request. Layers that restrict tool calls would not recognize it, although a server might
    /// still call the tool. Such layers should reject malformed requests with an
    /// [error](super::Reply::malformed).
    ///
    /// ```
    /// use mcp_composite::message::{Context, Request};
    /// use rmcp::model::CustomRequest;
    ///
    /// let custom = |method| Request::new(CustomRequest::new(method, None), Context::default());
    /// assert!(custom("tools/call").is_malformed());
    /// assert!(!custom("example/status").is_malformed());
    /// ```
    #[must_use]
    #[inline]
    pub fn is_malformed(&self) -> bool {
        match &self.0.message {
            ClientRequest::CustomRequest(custom) => is_of_protocol(&custom.method),
            _ => false,
        }
    }

    /// Returns `true` if this is a `tools/list` request.
    #[must_use]
    #[inline]
    pub fn lists_tools(&self) -> bool {
        matches!(&self.0.message, ClientRequest::ListToolsRequest(_))
    }

    /// Returns `true` if the request is `initialize` or `server/discover`, whose reply contains the
    /// capabilities of the server.
    pub(crate) const fn asks_for_capabilities(&self) -> bool {
        matches!(
            &self.0.message,
            ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_)
        )
    }

    /// Returns `true` if this is a `tools/list` request for the first page of the list.
    ///
    /// The first page has no cursor. A request with an empty string as the cursor is for another
    /// page.
    #[must_use]
    pub fn lists_first_tools(&self) -> bool {
        match &self.0.message {
            ClientRequest::ListToolsRequest(list) => {
                list.params.as_ref().is_none_or(|params| params.cursor.is_none())
            }
            _ => false,
        }
    }
}

impl From<CallToolRequestParams> for Request {
    fn from(params: CallToolRequestParams) -> Self {
        Self::call_tool_with(params)
    }
}
