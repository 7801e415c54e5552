//! A common trait for the items that backends list: tools, prompts, resources and resource
//! templates.

use rmcp::model::{
    CacheScope, ClientRequest, Extensions, ListPromptsRequest, ListPromptsResult,
    ListResourceTemplatesRequest, ListResourceTemplatesResult, ListResourcesRequest,
    ListResourcesResult, ListToolsRequest, ListToolsResult, PaginatedRequestParams, Prompt,
    Resource, ResourceTemplate, ServerCapabilities, ServerResult, Tool,
};
use serde::Serialize;

use crate::{
    changes::{Changes, Epoch},
    message::{ItemKind, Reply},
};

/// An item of an MCP list: a tool, prompt, resource or resource template.
pub(super) trait Item: Clone + PartialEq + Serialize + Send + Sync + 'static {
    const KIND: ItemKind;

    /// Returns the name or URI that identifies the item in requests.
    fn key(&self) -> &str;
    fn set_key(&mut self, key: String);
    fn request(cursor: Option<String>) -> ClientRequest;
    fn page(reply: Reply) -> Option<Page<Self>>;
    fn reply(page: Page<Self>) -> Reply;
    fn is_offered(capabilities: &ServerCapabilities) -> bool;
    fn epoch(changes: &Changes) -> &Epoch;

    /// Returns the literal prefix of a resource template: the text before its first expression.
    /// Returns `None` if the prefix is empty, because a template such as `{+uri}` would match every
    /// URI. Also returns `None` for all other items.
    fn literal(&self) -> Option<&str> {
        None
    }
}

pub(super) struct Page<I> {
    pub(super) items: Vec<I>,
    pub(super) next_cursor: Option<String>,
    pub(super) ttl_ms: Option<u64>,
    pub(super) cache_scope: Option<CacheScope>,
}

macro_rules! item {
    (
        $Item:ident, by $key:ident, request $Request:ident, result $Result:ident.$items:ident,
        offered as $capability:ident, changes with $epoch:ident
        $(, $literal:item)?
    ) => {
        impl Item for $Item {
            const KIND: ItemKind = ItemKind::$Item;

            fn key(&self) -> &str {
                &self.$key
            }

            fn set_key(&mut self, key: String) {
                self.$key = key.into();
            }

            fn request(cursor: Option<String>) -> ClientRequest {
                let params = cursor
                    .map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
                let (method, extensions) = (Default::default(), Extensions::default());
                ClientRequest::$Request($Request { method, params, extensions })
            }

            fn page(reply: Reply) -> Option<Page<Self>> {
                match reply.into_result() {
                    Ok(ServerResult::$Result(list)) => Some(Page {
                        items: list.$items,
                        next_cursor: list.next_cursor,
                        ttl_ms: list.ttl_ms,
                        cache_scope: list.cache_scope,
                    }),
                    _ => None,
                }
            }

            fn reply(page: Page<Self>) -> Reply {
                let mut list = $Result::with_all_items(page.items);
                list.next_cursor = page.next_cursor;
                list.ttl_ms = page.ttl_ms;
                list.cache_scope = page.cache_scope;
                ServerResult::$Result(list).into()
            }

            fn is_offered(capabilities: &ServerCapabilities) -> bool {
                capabilities.$capability.is_some()
            }

            fn epoch(changes: &Changes) -> &Epoch {
                changes.$epoch()
            }

            $($literal)?
        }
    };
}

item!(
    Tool, by name, request ListToolsRequest, result ListToolsResult.tools,
    offered as tools, changes with tools
);
item!(
    Prompt, by name, request ListPromptsRequest, result ListPromptsResult.prompts,
    offered as prompts, changes with prompts
);
item!(
    Resource, by uri, request ListResourcesRequest, result ListResourcesResult.resources,
    offered as resources, changes with resources
);
item!(
    ResourceTemplate, by uri_template,
    request ListResourceTemplatesRequest,
    result ListResourceTemplatesResult.resource_templates,
    offered as resources, changes with resources,
    fn literal(&self) -> Option<&str> {
        self.uri_template.split('{').next().filter(|literal| !literal.is_empty())
    }
);
