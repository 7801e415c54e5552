//! The access tokens that were recently sent to a server.

#[cfg(feature = "http")]
use std::collections::VecDeque;
use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use crate::adapter::Secrets;

/// The number of recently sent tokens that are redacted. Older tokens need no redaction, because a
/// server only quotes tokens that are still in use.
#[cfg(feature = "http")]
const KEPT: usize = 8;

/// The access tokens that were recently sent to a server. They are redacted in the server's errors
/// and logs.
///
/// Clones share the tokens. The `Debug` output does not contain them.
#[derive(Clone, Default)]
pub(super) struct SentTokens(Arc<RwLock<Sent>>);

#[derive(Default)]
struct Sent {
    #[cfg(feature = "http")]
    tokens: VecDeque<String>,
    secrets: Secrets,
}

// === impl SentTokens ===

impl SentTokens {
    /// Adds a token that is sent to the server. If the maximum number of tokens is reached, removes
    /// the oldest token.
    #[cfg(feature = "http")]
    pub(super) fn add(&self, token: &str) {
        let mut sent = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if sent.tokens.len() == KEPT {
            sent.tokens.pop_front();
        }
        sent.tokens.push_back(token.to_owned());
        sent.secrets = Secrets::new(sent.tokens.iter().cloned());
    }

    /// Replaces every recently sent token in `text` by `***`.
    pub(super) fn redact<'t>(&self, text: Cow<'t, str>) -> Cow<'t, str> {
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner).secrets.clone();
        match secrets.redact(&text) {
            Cow::Owned(redacted) => Cow::Owned(redacted),
            Cow::Borrowed(_) => text,
        }
    }
}

impl fmt::Debug for SentTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentTokens").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn sent_tokens_are_redacted_while_they_are_in_use() {
        let sent = SentTokens::default();
        let text = |text| sent.redact(Cow::Borrowed(text)).into_owned();
        assert_eq!(text("token-0 and token-8"), "token-0 and token-8");
        (0..=KEPT).for_each(|n| sent.add(&format!("token-{n}")));
        assert_eq!(text("token-0 and token-8"), "token-0 and ***");
        assert_eq!(format!("{sent:?}"), "SentTokens { .. }");
    }
}
