//! Stores the full versions of shortened tool results, and answers the requests that read them as
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

/// The URI prefix of stored results. The rest of the URI is the handle that the store returned for
/// the result.
pub const RESULTS: &str = "mcp-composite://results/";

/// The MIME type of stored results.
const JSON: &str = "application/json";

/// Returns the handle in a request that reads a stored result, or `None` for all other requests.
pub(super) fn read_handle(request: &Request) -> Option<&str> {
    match request.message() {
        ClientRequest::ReadResourceRequest(read) => read.params.uri.strip_prefix(RESULTS),
        _ => None,
    }
}

/// Stores a result and returns a link to it. Returns `None` if the result cannot be stored.
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
/// The reply is the same for all handles that the caller cannot read. A caller can therefore not
/// find out whether another caller's result exists.
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

/// Adds the resources capability to a reply that declares the server's capabilities.
pub(super) fn declare_in(reply: &mut Reply) {
    if let Some(capabilities) = reply.capabilities_mut() {
        declare(capabilities);
    }
}

/// Returns a message that explains why a result was not stored, and that names the exceeded limit.
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
