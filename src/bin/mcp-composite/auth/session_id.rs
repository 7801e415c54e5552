//! Session ids that only their caller can use.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The length of the key in bytes.
const KEY: usize = 32;
/// The length of the tag of a session id in bytes, half of the MAC.
const TAG: usize = 16;

/// Binds the ids of MCP sessions to callers.
///
/// rmcp answers everybody who knows the id of a session. So clients receive the id with a
/// tag, which is a MAC of the id and the caller. A request whose tag is not that of its caller does
/// not reach the session.
pub(super) struct SessionIds(Hmac<Sha256>);

// === impl SessionIds ===

impl SessionIds {
    /// Creates a random key. Sessions end with this process, and so does the key.
    pub(super) fn new() -> Result<Self, String> {
        let mut key = [0; KEY];
        let failed = |error| format!("the system has no random numbers: {error}");
        getrandom::fill(&mut key).map_err(failed)?;
        Hmac::new_from_slice(&key).map(Self).map_err(|error| error.to_string())
    }

    /// Returns the id that the client receives for a session of this caller.
    pub(super) fn bind(&self, session: &str, caller: &str) -> String {
        let tag = self.mac(session, caller).finalize().into_bytes();
        format!("{session}.{}", BASE64_URL_SAFE_NO_PAD.encode(&tag[..TAG]))
    }

    /// Returns the id of the session, or `None` if the client's id is not one of this caller.
    pub(super) fn unbind<'i>(&self, bound: &'i str, caller: &str) -> Option<&'i str> {
        let (session, tag) = bound.rsplit_once('.')?;
        let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).ok().filter(|tag| tag.len() == TAG)?;
        self.mac(session, caller).verify_truncated_left(&tag).ok()?;
        Some(session)
    }

    fn mac(&self, session: &str, caller: &str) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        // With its length, so that no other pair of id and caller gives the same bytes.
        mac.update(&(session.len() as u64).to_be_bytes());
        mac.update(session.as_bytes());
        mac.update(caller.as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_id_is_valid_only_for_its_caller() {
        let ids = SessionIds::new().unwrap();
        let bound = ids.bind("session-1", "alice");
        assert_eq!(ids.unbind(&bound, "alice"), Some("session-1"));
        assert_eq!(ids.unbind(&bound, "bob"), None);
        assert_eq!(ids.unbind("session-1", "alice"), None);
        assert_eq!(ids.unbind(&bound.replace("session-1", "session-2"), "alice"), None);
        assert_eq!(ids.unbind(&bound[..bound.len() - 1], "alice"), None);
        // The same bytes in a row are another pair.
        assert_eq!(ids.unbind(&ids.bind("session-1a", "lice"), "alice"), None);
        assert_eq!(SessionIds::new().unwrap().unbind(&bound, "alice"), None);
    }
}
