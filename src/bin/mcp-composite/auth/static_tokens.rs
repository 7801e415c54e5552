//! Static bearer tokens.

use mcp_composite::config::StaticToken;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::verification::Rejection;

/// The static tokens of a file. Only their digests are kept.
pub(super) struct Tokens(Vec<Token>);

struct Token {
    digest: [u8; 32],
    caller: String,
}

// === impl Tokens ===

impl Tokens {
    pub(super) fn new(tokens: &[StaticToken]) -> Self {
        let token = |token: &StaticToken| Token {
            digest: Sha256::digest(token.token()).into(),
            caller: token.caller().to_owned(),
        };
        Self(tokens.iter().map(token).collect())
    }

    /// Returns the caller who has this token. The time that this takes does not depend on the
    /// token, and so says nothing about the valid ones.
    pub(super) fn caller(&self, token: &str) -> Result<String, Rejection> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let (mut found, mut index) = (Choice::from(0), 0);
        for (at, token) in (0u64..).zip(&self.0) {
            let is_same = token.digest.ct_eq(&digest);
            index = u64::conditional_select(&index, &at, is_same);
            found |= is_same;
        }
        let index = usize::try_from(index).unwrap_or_default();
        match self.0.get(index) {
            Some(token) if found.into() => Ok(token.caller.clone()),
            _ => Err(Rejection::InvalidToken("it is none of `[[auth.tokens]]`".to_owned())),
        }
    }
}
