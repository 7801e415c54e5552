//! Remembers which backend has returned the URI of a resource in a result, so that later requests
//! for the resource are sent to this backend.

use std::{collections::HashSet, mem, sync::Mutex};

use rmcp::model::{ContentBlock, ResourceContents, ServerResult};

use crate::mutex::lock;

/// The maximum number of resource URIs that are remembered for each backend.
const MAX_URIS: usize = 10_000;
/// The maximum total size in bytes of the remembered URIs per backend.
const MAX_URI_BYTES: usize = 4 * 1024 * 1024;
/// The maximum length in bytes of a URI that is remembered. Longer URIs are ignored.
const MAX_OWNED_URI: usize = 2_048;

/// The resource URIs that each backend has returned in the results of its tools and prompts.
///
/// A backend may link to resources that it does not list. Without this record, the router would not
/// know which backend can read them.
///
/// The limits on the number and size of the URIs apply to each backend separately. Otherwise, a
/// backend that returns many URIs could evict those of other backends.
pub(super) struct ResourceOwners(Box<[Mutex<Uris>]>);

/// The most recent resource URIs that a backend has returned, in two generations. When the recent
/// generation reaches half of a limit, it replaces the earlier generation. In this way, old URIs
/// are removed cheaply.
#[derive(Default)]
struct Uris {
    recent: Generation,
    earlier: Generation,
}

#[derive(Default)]
struct Generation {
    uris: HashSet<Box<str>>,
    bytes: usize,
}

// === impl ResourceOwners ===

impl ResourceOwners {
    pub(super) fn new(backends: usize) -> Self {
        Self(std::iter::repeat_with(Mutex::default).take(backends).collect())
    }

    /// Remembers the URIs of all resources in a tool or prompt result of a backend.
    pub(super) fn note(&self, place: usize, result: &ServerResult) {
        match result {
            ServerResult::CallToolResult(result) => {
                self.add(place, result.content.iter().filter_map(uri));
            }
            ServerResult::GetPromptResult(result) => {
                self.add(place, result.messages.iter().filter_map(|message| uri(&message.content)));
            }
            _ => (),
        }
    }

    /// Returns the first backend, in the order of the router, that has returned this URI in a
    /// result.
    pub(super) fn owner(&self, uri: &str) -> Option<usize> {
        self.0.iter().position(|uris| lock(uris).contains(uri))
    }

    fn add<'u>(&self, place: usize, uris: impl Iterator<Item = &'u str>) {
        // Most results contain no resource URIs, and need no lock.
        let mut uris = uris.filter(|uri| uri.len() <= MAX_OWNED_URI).peekable();
        if uris.peek().is_some() {
            let mut known = lock(&self.0[place]);
            uris.for_each(|uri| known.add(uri));
        }
    }
}

// === impl Uris ===

impl Uris {
    /// Adds a URI to the recent generation. If the recent generation is full, first replaces the
    /// earlier generation by it.
    fn add(&mut self, uri: &str) {
        if self.recent.uris.contains(uri) {
            return;
        }
        let Generation { uris, bytes } = &self.recent;
        if uris.len() == MAX_URIS / 2 || bytes + uri.len() > MAX_URI_BYTES / 2 {
            self.earlier = mem::take(&mut self.recent);
        }
        self.recent.bytes += uri.len();
        self.recent.uris.insert(uri.into());
    }

    fn contains(&self, uri: &str) -> bool {
        self.recent.uris.contains(uri) || self.earlier.uris.contains(uri)
    }
}

fn uri(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::ResourceLink(link) => Some(&link.uri),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, .. }
            | ResourceContents::BlobResourceContents { uri, .. } => Some(uri),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolResult, Resource};

    use super::*;

    fn links(uris: impl IntoIterator<Item = String>) -> ServerResult {
        let link = |uri| ContentBlock::ResourceLink(Resource::new(uri, "x"));
        let content = uris.into_iter().map(link).collect();
        ServerResult::CallToolResult(CallToolResult::success(content))
    }

    fn numbered(numbers: std::ops::Range<usize>) -> ServerResult {
        links(numbers.map(|n| format!("x:{n}")))
    }

    #[test]
    fn first_backend_that_handed_out_a_resource_owns_it() {
        let uris = ResourceOwners::new(3);
        uris.note(2, &numbered(0..1));
        assert_eq!(uris.owner("x:0"), Some(2));
        uris.note(1, &numbered(0..1));
        assert_eq!(uris.owner("x:0"), Some(1));
        assert_eq!(uris.owner("x:1"), None);
    }

    #[test]
    fn backend_evicts_only_resources_of_its_own() {
        let uris = ResourceOwners::new(2);
        uris.note(0, &numbered(0..1));
        uris.note(1, &numbered(0..3 * MAX_URIS));
        assert_eq!(uris.owner("x:0"), Some(0));
        assert_eq!(uris.owner("x:1"), None, "evicted");
        assert_eq!(uris.owner(&format!("x:{}", 3 * MAX_URIS - 1)), Some(1));
    }

    #[test]
    fn resource_that_is_handed_out_again_is_not_evicted() {
        let uris = ResourceOwners::new(1);
        for round in 1..10 {
            uris.note(0, &links(["x:again".into()]));
            uris.note(0, &numbered(round * MAX_URIS / 2..(round + 1) * MAX_URIS / 2 - 1));
            assert_eq!(uris.owner("x:again"), Some(0));
        }
    }

    #[test]
    fn uris_of_a_backend_are_bounded_in_number_and_bytes() {
        let uris = ResourceOwners::new(1);
        let long = |n| format!("x:{n}:{}", "y".repeat(MAX_OWNED_URI - 20));
        for urls in [numbered(0..3 * MAX_URIS), links((0..3 * MAX_URIS).map(long))] {
            uris.note(0, &urls);
            let Uris { recent, earlier } = &*lock(&uris.0[0]);
            assert!(recent.uris.len() + earlier.uris.len() <= MAX_URIS);
            let bytes = |kept: &Generation| kept.uris.iter().map(|uri| uri.len()).sum::<usize>();
            assert_eq!((recent.bytes, earlier.bytes), (bytes(recent), bytes(earlier)));
            assert!(recent.bytes + earlier.bytes <= MAX_URI_BYTES);
        }
        let too_long = format!("x:{}", "y".repeat(MAX_OWNED_URI));
        uris.note(0, &links([too_long.clone()]));
        assert_eq!(uris.owner(&too_long), None);
    }
}
