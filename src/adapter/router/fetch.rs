use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::future::FutureExt;
use rmcp::model::{CacheScope, ErrorCode};
use tower::BoxError;

use super::{backend::BackendService, item::Item};
use crate::{
    message::{Context, Request},
    pagination::{NoEnd, Pages},
};

/// What a backend lists.
#[derive(Debug)]
pub(super) struct Listed<I> {
    /// In its own names, in its order.
    pub(super) items: Vec<I>,
    /// How long it may be kept: the least of all pages, unknown if one is silent.
    pub(super) ttl_ms: Option<u64>,
    /// Who may keep it.
    pub(super) cache_scope: Option<CacheScope>,
}

/// Why a backend does not list what it has.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("it knows no such method")]
    NoSuchMethod,
    #[error("it answered with an error: {0}")]
    Refused(String),
    #[error("it answered with something else")]
    Invalid,
    #[error("its list {0}")]
    NoEnd(#[from] NoEnd),
    #[error("{0}")]
    Service(String),
    #[error("it panicked")]
    Panicked,
}

/// Lists all that a backend has of one kind.
pub(super) async fn list_all<I: Item>(
    service: Arc<dyn BackendService>,
    context: Context,
) -> Result<Listed<I>, ListError> {
    // A panic of one backend must not take the lists of the others with it.
    let pages = AssertUnwindSafe(list_pages(service, context)).catch_unwind().await;
    // The hook of the process has told what the panic says.
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
        let reply = service.answer(request).await.map_err(|error| failure(&error))?;
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

/// What the operator reads of a service that could not answer.
fn failure(error: &BoxError) -> ListError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        // Many an error repeats what its source says.
        let told = error.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        source = error.source();
    }
    ListError::Service(text)
}

/// The shorter of two times for which something may be kept.
pub(super) fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    // Who says nothing promises nothing.
    Some(a?.min(b?))
}

/// The narrower of two scopes in which something may be kept.
pub(super) fn narrowest(a: Option<CacheScope>, b: Option<CacheScope>) -> Option<CacheScope> {
    match (a, b) {
        (Some(CacheScope::Public), Some(CacheScope::Public)) => Some(CacheScope::Public),
        (Some(CacheScope::Private), _) | (_, Some(CacheScope::Private)) => {
            Some(CacheScope::Private)
        }
        _ => None,
    }
}
