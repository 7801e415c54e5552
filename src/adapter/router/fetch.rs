//! Lists all items of a backend, page by page.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::future::FutureExt;
use rmcp::model::{CacheScope, ErrorCode};

use super::{backend::BackendService, item::Item};
use crate::{
    error_chain::error_chain,
    message::{Context, Request},
    pagination::{NoEnd, Pages},
};

/// A complete list of a backend's tools, prompts, resources or resource templates, collected from
/// all pages.
#[derive(Debug, PartialEq)]
pub(super) struct Listed<I> {
    /// The cache lifetime (`ttlMs`) of the whole list: the shortest lifetime of all pages. `None`
    /// if a page has no lifetime, which means that the list must not be cached.
    pub(super) ttl_ms: Option<u64>,
    /// The cache scope (`cacheScope`) of the whole list: private if a page is private, and public
    /// if all pages are public. Otherwise `None`.
    pub(super) cache_scope: Option<CacheScope>,
    /// The items in the order in which the backend lists them. Their names are those of the
    /// backend, without a prefix.
    pub(super) items: Vec<I>,
}

/// The reason why a list request to a backend has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("it does not support the method")]
    NoSuchMethod,
    #[error("it answered with an error: {0}")]
    Refused(String),
    #[error("it answered with an unexpected result")]
    Invalid,
    #[error("its list {0}")]
    NoEnd(#[from] NoEnd),
    #[error("{0}")]
    Service(String),
    #[error("it panicked")]
    Panicked,
}

/// Requests all pages of one kind of item, such as tools, from a backend.
pub(super) async fn list_all<I: Item>(
    service: Arc<dyn BackendService>,
    context: Context,
) -> Result<Listed<I>, ListError> {
    // If one backend panics, the lists of other backends must still succeed.
    let pages = AssertUnwindSafe(list_pages(service, context)).catch_unwind().await;
    // The panic message is not needed, because the panic hook has already received it.
    pages.unwrap_or(Err(ListError::Panicked))
}

async fn list_pages<I: Item>(
    service: Arc<dyn BackendService>,
    context: Context,
) -> Result<Listed<I>, ListError> {
    let mut listed =
        Listed { items: Vec::new(), ttl_ms: Some(u64::MAX), cache_scope: Some(CacheScope::Public) };
    let mut pages = Pages::new();
    let mut cursor = None;
    loop {
        let request = Request::new(I::request(cursor), context.clone());
        let answered = service.answer(request).await;
        let reply = answered.map_err(|error| ListError::Service(error_chain(&*error)))?;
        if let Some(error) = reply.error() {
            return Err(match error.code {
                ErrorCode::METHOD_NOT_FOUND => ListError::NoSuchMethod,
                _ => ListError::Refused(error.message.to_string()),
            });
        }
        let page = I::page(reply).ok_or(ListError::Invalid)?;
        cursor = pages.turn(&page.items, page.next_cursor)?;
        listed.ttl_ms = least(listed.ttl_ms, page.ttl_ms);
        listed.cache_scope = narrowest(listed.cache_scope, page.cache_scope);
        listed.items.extend(page.items);
        if cursor.is_none() {
            return Ok(listed);
        }
    }
}

/// Returns the shorter of two cache lifetimes. Returns `None`, which means that the list must not
/// be cached, if one of them is `None`.
pub(super) fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    // `None` means that the list must not be cached.
    Some(a?.min(b?))
}

/// Returns the narrower of two cache scopes: private if one of them is private, and public if both
/// are public. Otherwise returns `None`.
pub(super) fn narrowest(a: Option<CacheScope>, b: Option<CacheScope>) -> Option<CacheScope> {
    match (a, b) {
        (Some(CacheScope::Public), Some(CacheScope::Public)) => Some(CacheScope::Public),
        (Some(CacheScope::Private), _) | (_, Some(CacheScope::Private)) => {
            Some(CacheScope::Private)
        }
        _ => None,
    }
}
