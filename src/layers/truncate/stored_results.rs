//! Stores the full versions of shortened tool results, and answers requests to read them as
//! resources.

use std::sync::Arc;

use rmcp::model::{
    CallToolResult, ClientRequest, ContentBlock, ReadResourceResult, Resource, ResourceContents,
    ServerCapabilities, ServerResult,
};

use crate::{
    message::{ItemKind, Reply, Request},
    store::{PutError, Store, TakeError},
};

/// The URI prefix of stored results. It is followed by the handle under which the store keeps the
/// result.
pub const RESULTS: &str = "mcp-composite://results/";

/// The MIME type of stored results.
const JSON: &str = "application/json";

/// Returns the handle of the stored result that a request reads. Returns `None` for all other
/// requests.
pub(super) fn read_handle(request: &Request) -> Option<&str> {
    match request.message() {
        ClientRequest::ReadResourceRequest(read) => read.params.uri.strip_prefix(RESULTS),
        _ => None,
    }
}

/// Stores a result, and returns a link to it. Returns `None` if storing the result fails.
pub(super) async fn keep(
    store: &Arc<dyn Store>,
    result: &CallToolResult,
    owner: &[u8],
) -> Option<Resource> {
    let json = serde_json::to_vec(result).ok()?;
    let bytes = json.len();
    match store.put(json, owner, Some(owner)).await {
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
                "failed to store the full version of a truncated result"
            );
            None
        }
    }
}

/// Answers a request that reads a stored result.
///
/// The reply does not depend on the reason why the caller cannot read the result. A caller can
/// therefore not find out whether other callers have stored a result under the handle.
pub(super) async fn read(store: &Arc<dyn Store>, handle: &str, owner: &[u8]) -> Reply {
    let uri = format!("{RESULTS}{handle}");
    let json = match store.get(handle, owner, Some(owner)).await {
        Ok(result) => String::from_utf8(result).ok(),
        Err(TakeError::Invalid(_)) => None,
        Err(TakeError::Unavailable(why)) => {
            tracing::warn!(%why, "failed to read a stored result");
            None
        }
    };
    let Some(json) = json else { return Reply::unknown(ItemKind::Resource, uri) };
    let contents = ResourceContents::text(json, uri).with_mime_type(JSON);
    ServerResult::ReadResourceResult(ReadResourceResult::new(vec![contents])).into()
}

pub(super) const fn link(resource: Resource) -> ContentBlock {
    ContentBlock::ResourceLink(resource)
}

/// Adds the resources capability to `capabilities`.
pub(super) fn declare(capabilities: &mut ServerCapabilities) {
    capabilities.resources.get_or_insert_default();
}

/// Adds the resources capability to a reply in which the server declares its capabilities.
pub(super) fn declare_in(reply: &mut Reply) {
    if let Some(capabilities) = reply.capabilities_mut() {
        declare(capabilities);
    }
}

/// Returns a message that explains why a result was not stored. If a limit was exceeded, the
/// message names it.
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
