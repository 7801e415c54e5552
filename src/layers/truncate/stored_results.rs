//! Stores the full versions of shortened tool results, and answers requests to read them as
//! resources.

use std::sync::Arc;

use rmcp::model::{
    CallToolResult, ClientRequest, ReadResourceResult, Resource, ResourceContents,
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

/// Returns the handle if the request reads a stored result. Returns `None` for all other requests.
pub(super) fn read_handle(request: &Request) -> Option<&str> {
    match request.message() {
        ClientRequest::ReadResourceRequest(read) => read.params.uri.strip_prefix(RESULTS),
        _ => None,
    }
}

/// Stores the whole result for its owner, and returns a link to the stored result. Returns `None`
/// if the store rejects the result or fails.
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

/// Returns the reply to a request that reads a stored result: the result, or an error that the
/// resource is unknown.
///
/// A caller receives the same error for all reasons why it cannot read a result. It can therefore
/// not find out whether another caller has stored a result under the handle.
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

/// Adds the `resources` capability to the capabilities of the server.
pub(super) fn declare(capabilities: &mut ServerCapabilities) {
    capabilities.resources.get_or_insert_default();
}

/// Returns the reason why the store rejected a result, for a log message. If the result exceeded a
/// limit, the reason contains this limit.
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
