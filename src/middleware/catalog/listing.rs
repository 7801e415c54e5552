//! Lists the tools of a service, page by page.

use std::time::Duration;

use tokio::runtime::Handle;
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use super::tools::Tools;
use crate::{
    message::{Context, Reply, Request},
    pagination::{MAX_ITEMS, MAX_LIST_BYTES, MAX_PAGES, NoEnd, Pages},
};

/// The maximum time for requesting all pages of a service's list of tools.
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why the tools of a service could not be listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// Listing all tools took longer than 10 seconds.
    #[error("listing tools took longer than {LISTING_TIMEOUT:?}")]
    TimedOut,
    /// The list has more than 1000 pages or more than 100 000 tools.
    #[error("listing tools did not end after {MAX_PAGES} pages or {MAX_ITEMS} tools")]
    Endless,
    /// The pages of the list are larger than 64 MiB in total, as JSON.
    #[error("the list of tools is larger than {MAX_LIST_BYTES} bytes")]
    TooLarge,
    /// A page of the list had the cursor of an earlier page as its next cursor, so that the list
    /// would never end.
    #[error("the list of tools repeats a cursor")]
    Circular,
    /// The service replied to `tools/list` with a JSON-RPC error. Contains the error message.
    #[error("`tools/list` failed: {0}")]
    Refused(String),
    /// The service replied to `tools/list` with a result that is not a list of tools.
    #[error("`tools/list` returned something other than a list of tools")]
    Invalid,
    /// The service failed to process `tools/list`. Contains the error message.
    #[error("the service could not answer `tools/list`: {0}")]
    Service(String),
}

/// Lists all tools of a service.
///
/// # Errors
///
/// Returns an error if the service fails, times out, or replies with a JSON-RPC error or a result
/// that is not a list of tools. Also returns an error if the list is endless or too large.
pub(crate) async fn list_all<S>(service: S, context: Context) -> Result<Tools, ListError>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    in_time(list_pages(service, context)).await.unwrap_or(Err(ListError::TimedOut))
}

/// Lists all tools of a service, and derives data from them.
///
/// # Errors
///
/// Returns the same errors as [`list_all`].
pub(crate) async fn load<S, D>(
    service: S,
    context: Context,
    derive: impl FnOnce(&Tools) -> D,
) -> Result<(Tools, D), ListError>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    let tools = list_all(service, context).await?;
    let derived = derive(&tools);
    Ok((tools, derived))
}

/// Waits for `work` for at most 10 seconds, the timeout for listing tools. Returns `None` if `work`
/// takes longer. Without a Tokio runtime, waits without a timeout.
pub(crate) async fn in_time<F: Future>(work: F) -> Option<F::Output> {
    // Rules work without a Tokio runtime, but its timers do not.
    if !has_runtime() {
        return Some(work.await);
    }
    tokio::time::timeout(LISTING_TIMEOUT, work).await.ok()
}

pub(super) fn has_runtime() -> bool {
    Handle::try_current().is_ok()
}

async fn list_pages<S>(service: S, context: Context) -> Result<Tools, ListError>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    let mut tools = Tools::default();
    let mut pages = Pages::new();
    let mut cursor = None;
    loop {
        let is_first = cursor.is_none();
        let request = Request::list_tools_from(cursor).with_context(context.clone());
        let mut reply = service
            .clone()
            .oneshot(request)
            .await
            .map_err(|error| ListError::Service(error.into().to_string()))?;
        // A server without the `tools` capability rejects `tools/list`, and has no tools.
        if is_first && reply.is_method_not_found() {
            return Ok(tools);
        }
        if let Some(error) = reply.error() {
            return Err(ListError::Refused(error.message.to_string()));
        }
        let page = reply.tools_mut().ok_or(ListError::Invalid)?;
        cursor = pages.turn(&page.tools, page.next_cursor.take())?;
        tools.extend(page.tools.drain(..));
        if cursor.is_none() {
            tools.bytes = pages.bytes();
            return Ok(tools);
        }
    }
}

// === impl ListError ===

impl From<NoEnd> for ListError {
    fn from(why: NoEnd) -> Self {
        match why {
            NoEnd::Endless => Self::Endless,
            NoEnd::TooLarge => Self::TooLarge,
            NoEnd::Circular => Self::Circular,
        }
    }
}
