//! The subject of a request: an item, such as a tool, or a list of items.

use std::fmt;

use rmcp::model::{ClientRequest, PaginatedRequestParams, Reference};

use super::Request;

/// A kind of item that servers list and clients request by name or URI, such as tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ItemKind {
    /// Tools.
    Tool,
    /// Prompts.
    Prompt,
    /// Resources.
    Resource,
    /// Resource templates: URI templates, such as `file:///{path}`, from which clients build the
    /// URIs of resources.
    ResourceTemplate,
}

/// The item, such as a tool, or the list of items that a [`Request`] is about. Names and URIs are
/// those that the client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Subject<'r> {
    /// A single item with this name or URI. The client calls, gets or reads it, subscribes to it or
    /// unsubscribes from it, or requests completions for one of its arguments.
    Item(ItemKind, &'r str),
    /// A list of all items of one kind. Contains the cursor of the requested page, or `None` for
    /// the first page.
    List(ItemKind, Option<&'r str>),
    /// Neither an item nor a list, as for `initialize` and `ping`.
    Other,
}

// === impl ItemKind ===

impl ItemKind {
    /// Returns `true` for items that are requested by name, and `false` for items that are
    /// requested by URI.
    pub(crate) const fn is_named(self) -> bool {
        matches!(self, Self::Tool | Self::Prompt)
    }
}

impl fmt::Display for ItemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::ResourceTemplate => "resource template",
        })
    }
}

// === impl Subject ===

impl<'r> Subject<'r> {
    fn of(message: &'r ClientRequest) -> Self {
        use ClientRequest as Message;

        match message {
            Message::CallToolRequest(call) => Self::Item(ItemKind::Tool, &call.params.name),
            Message::GetPromptRequest(get) => Self::Item(ItemKind::Prompt, &get.params.name),
            Message::ReadResourceRequest(read) => Self::Item(ItemKind::Resource, &read.params.uri),
            Message::ReadResourceDirectoryRequest(read) => {
                Self::Item(ItemKind::Resource, &read.params.uri)
            }
            Message::GetSkillRequest(get) => Self::Item(ItemKind::Resource, &get.params.uri),
            Message::SubscribeRequest(subscribe) => {
                Self::Item(ItemKind::Resource, &subscribe.params.uri)
            }
            Message::UnsubscribeRequest(unsubscribe) => {
                Self::Item(ItemKind::Resource, &unsubscribe.params.uri)
            }
            Message::CompleteRequest(complete) => match &complete.params.r#ref {
                Reference::Prompt(prompt) => Self::Item(ItemKind::Prompt, &prompt.name),
                Reference::Resource(template) => {
                    Self::Item(ItemKind::ResourceTemplate, &template.uri)
                }
                _ => Self::Other,
            },
            Message::ListToolsRequest(list) => Self::list(ItemKind::Tool, list.params.as_ref()),
            Message::ListPromptsRequest(list) => Self::list(ItemKind::Prompt, list.params.as_ref()),
            Message::ListResourcesRequest(list) => {
                Self::list(ItemKind::Resource, list.params.as_ref())
            }
            Message::ListResourceTemplatesRequest(list) => {
                Self::list(ItemKind::ResourceTemplate, list.params.as_ref())
            }
            _ => Self::Other,
        }
    }

    fn list(kind: ItemKind, params: Option<&'r PaginatedRequestParams>) -> Self {
        Self::List(kind, params.and_then(|params| params.cursor.as_deref()))
    }
}

// === impl Request ===

impl Request {
    /// Returns the item, such as a tool, or the list of items that the request is about.
    #[must_use]
    pub fn subject(&self) -> Subject<'_> {
        Subject::of(self.message())
    }

    /// Replaces the name or URI of the requested item, such as a tool. Does nothing if the request
    /// is not about a single item.
    ///
    /// ```
    /// use mcp_composite::message::{ItemKind, Request, Subject};
    ///
    /// let mut request = Request::call_tool("search");
    /// request.set_subject("github_search");
    /// assert_eq!(request.subject(), Subject::Item(ItemKind::Tool, "github_search"));
    /// ```
    pub fn set_subject(&mut self, name: impl Into<String>) {
        use ClientRequest as Message;

        let subject = match self.message_mut() {
            Message::CallToolRequest(call) => {
                call.params.name = name.into().into();
                return;
            }
            Message::GetPromptRequest(get) => &mut get.params.name,
            Message::ReadResourceRequest(read) => &mut read.params.uri,
            Message::ReadResourceDirectoryRequest(read) => &mut read.params.uri,
            Message::GetSkillRequest(get) => &mut get.params.uri,
            Message::SubscribeRequest(subscribe) => &mut subscribe.params.uri,
            Message::UnsubscribeRequest(unsubscribe) => &mut unsubscribe.params.uri,
            Message::CompleteRequest(complete) => match &mut complete.params.r#ref {
                Reference::Prompt(prompt) => &mut prompt.name,
                Reference::Resource(template) => &mut template.uri,
                _ => return,
            },
            _ => return,
        };
        *subject = name.into();
    }
}
