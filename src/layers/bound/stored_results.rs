//! Whole results that clients can read.

use std::sync::Arc;

use rmcp::model::{
    CallToolResult, ClientRequest, ContentBlock, ReadResourceResult, Resource, ResourceContents,
    ServerCapabilities, ServerResult,
};

use crate::{
    message::{ItemKind, Reply, Request},
    results::{PutError, ResultStore, TakeError},
};

/// What the URIs of kept results begin with; a handle follows.
pub const RESULTS: &str = "mcp-composite://results/";

/// What kept results are.
const JSON: &str = "application/json";

/// The handle of the kept result that a request reads, if it reads one.
pub(super) fn read_handle(request: &Request) -> Option<&str> {
    match request.message() {
        ClientRequest::ReadResourceRequest(read) => read.params.uri.strip_prefix(RESULTS),
        _ => None,
    }
}

/// Keeps a result, and makes a link to it; makes none if it cannot be kept.
pub(super) async fn keep(
    store: &Arc<dyn ResultStore>,
    result: &CallToolResult,
    owner: &[u8],
) -> Option<Resource> {
    let json = serde_json::to_vec(result).ok()?;
    let bytes = json.len();
    match store.put(json, owner).await {
        Ok(handle) => Some(
            Resource::new(format!("{RESULTS}{handle}"), "result")
                .with_title("The whole result")
                .with_mime_type(JSON)
                .with_size(bytes as u64),
        ),
        Err(error) => {
            tracing::warn!(
                bytes,
                why = put_error_message(&error),
                "a result that was shortened is not kept"
            );
            None
        }
    }
}

/// Answers a request for a kept result.
///
/// Whatever is wrong with the handle, the answer is the same: nobody learns what is
/// kept for others.
pub(super) async fn read(store: &Arc<dyn ResultStore>, handle: &str, owner: &[u8]) -> Reply {
    let uri = format!("{RESULTS}{handle}");
    let json = match store.get(handle, owner).await {
        Ok(result) => String::from_utf8(result).ok(),
        Err(TakeError::Invalid(_)) => None,
        Err(TakeError::Unavailable(why)) => {
            tracing::warn!(%why, "kept results cannot be read");
            None
        }
    };
    let Some(json) = json else { return Reply::unknown(ItemKind::Resource, uri) };
    let contents = ResourceContents::text(json, uri).with_mime_type(JSON);
    ServerResult::ReadResourceResult(ReadResourceResult::new(vec![contents])).into()
}

/// The block that links to a kept result.
pub(super) const fn link(resource: Resource) -> ContentBlock {
    ContentBlock::ResourceLink(resource)
}

/// Says that there are resources to read.
pub(super) fn declare(capabilities: &mut ServerCapabilities) {
    capabilities.resources.get_or_insert_default();
}

/// Says so in the answer to whoever asks what the server can do.
pub(super) fn declare_in(reply: &mut Reply) {
    if let Some(capabilities) = reply.capabilities_mut() {
        declare(capabilities);
    }
}

/// Why a result is not kept, in the words of its settings.
fn put_error_message(error: &PutError) -> String {
    match error {
        PutError::TooLarge { max, .. } => format!("it has more than {max} bytes"),
        PutError::Full { max, .. } => format!("there is no room for it in {max} bytes"),
        PutError::CallerFull { max, .. } => {
            format!("the results of its caller may take {max} bytes (`max_caller_bytes`)")
        }
        PutError::Unavailable(why) => why.clone().into_owned(),
    }
}
