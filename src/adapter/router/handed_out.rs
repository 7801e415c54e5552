use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use rmcp::model::{ContentBlock, ResourceContents, ServerResult};

/// How many URIs are remembered.
const MAX_URIS: usize = 10_000;
/// How long a URI may be to be remembered.
const MAX_URI: usize = 2_048;

/// Which backend handed out which resource in the results of its tools and
/// prompts: it need not list what it links to.
#[derive(Default)]
pub(super) struct HandedOut(Mutex<Uris>);

#[derive(Default)]
struct Uris {
    owners: HashMap<Arc<str>, usize>,
    /// The oldest first.
    order: VecDeque<Arc<str>>,
}

// === impl HandedOut ===

impl HandedOut {
    /// Remembers the resources in a result.
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

    /// The first backend, in the order of the router, that has handed out the URI.
    pub(super) fn owner(&self, uri: &str) -> Option<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).owners.get(uri).copied()
    }

    fn add<'u>(&self, place: usize, uris: impl Iterator<Item = &'u str>) {
        // Most results have none, and nothing is locked for them.
        let mut uris = uris.filter(|uri| uri.len() <= MAX_URI).peekable();
        if uris.peek().is_none() {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for uri in uris {
            if let Some(owner) = known.owners.get_mut(uri) {
                // A later backend takes no resource by repeating its link.
                *owner = place.min(*owner);
                continue;
            }
            if known.order.len() == MAX_URIS
                && let Some(oldest) = known.order.pop_front()
            {
                known.owners.remove(&oldest);
            }
            let uri: Arc<str> = uri.into();
            known.order.push_back(uri.clone());
            known.owners.insert(uri, place);
        }
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

    #[test]
    fn the_oldest_makes_room_and_what_is_too_long_is_not_kept() {
        let uris = HandedOut::default();
        uris.note(0, &links((0..MAX_URIS).map(|n| format!("x:{n}"))));
        uris.note(1, &links(["x:0".into(), format!("x:{}", "y".repeat(MAX_URI))]));
        assert_eq!(uris.owner("x:0"), Some(0), "the first backend counts");
        assert_eq!(uris.0.lock().unwrap().owners.len(), MAX_URIS);

        uris.note(1, &links(["x:new".into()]));
        assert_eq!(uris.owner("x:new"), Some(1));
        assert_eq!(uris.owner("x:0"), None);
        assert_eq!(uris.owner("x:1"), Some(0));
        let kept = uris.0.lock().unwrap();
        assert_eq!((kept.owners.len(), kept.order.len()), (MAX_URIS, MAX_URIS));
    }
}
