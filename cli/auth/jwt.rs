//! Access tokens that are JWTs, as defined in [RFC 9068].
//!
//! [RFC 9068]: https://www.rfc-editor.org/rfc/rfc9068

use jsonwebtoken::{Validation, decode, decode_header, errors::ErrorKind};
use mcp_composite::config::JwtConfig;
use serde::Deserialize;

use super::{Rejection, key_set::KeySet};

/// The maximum length of the claim `sub` in bytes. Budgets and stores keep it.
const MAX_SUBJECT: usize = 256;

/// Verifies the tokens of one authorization server.
pub(super) struct JwtVerifier {
    config: JwtConfig,
    keys: KeySet,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    scope: Option<Scopes>,
    /// The same in tokens of Microsoft and Okta.
    scp: Option<Scopes>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scopes {
    Separated(String),
    List(Vec<String>),
}

// === impl JwtVerifier ===

impl JwtVerifier {
    /// Reads the keys of the authorization server.
    ///
    /// # Errors
    ///
    /// Returns an error if the keys cannot be read.
    pub(super) async fn new(config: &JwtConfig) -> Result<Self, String> {
        let keys = KeySet::new(config.jwks().clone()).await?;
        Ok(Self { config: config.clone(), keys })
    }

    /// Reads the keys again. If that fails, the known keys stay in use.
    pub(super) async fn refresh(&self) {
        self.keys.refresh().await;
    }

    /// Returns the subject of a token.
    pub(super) async fn verify(&self, token: &str) -> Result<String, Rejection> {
        let invalid = |reason: &str| Rejection::InvalidToken(reason.to_owned());
        let header = decode_header(token).map_err(|_| invalid("it is not a signed JWT"))?;
        // A critical header changes the meaning of the token, and none is known here.
        if header.crit.is_some() {
            return Err(invalid("it has a critical header"));
        }
        let keys = self.keys.find(header.kid.as_deref(), header.alg).await;
        let mut validation = Validation::new(header.alg);
        validation.leeway = self.config.leeway().as_secs();
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[self.config.issuer()]);
        validation.set_audience(&[self.config.audience()]);
        let mut reason = "no key of the key set may have signed it".to_owned();
        for key in &*keys {
            match decode::<Claims>(token, key.decoding(), &validation) {
                Ok(data) => return self.check(data.claims),
                Err(error) => reason = reason_of(error.kind()),
            }
        }
        Err(Rejection::InvalidToken(reason))
    }

    fn check(&self, claims: Claims) -> Result<String, Rejection> {
        // A list of issuers would have been accepted if one of them is the required one.
        if claims.iss != self.config.issuer() {
            return Err(Rejection::InvalidToken("the claim `iss` is wrong".to_owned()));
        }
        let is_name = |sub: &str| !sub.is_empty() && sub.len() <= MAX_SUBJECT;
        if !is_name(&claims.sub) || claims.sub.contains(char::is_control) {
            let reason = format!("the claim `sub` is not a text of 1 to {MAX_SUBJECT} bytes");
            return Err(Rejection::InvalidToken(reason));
        }
        let granted = [&claims.scope, &claims.scp];
        let has = |scope: &String| granted.into_iter().flatten().any(|it| it.contains(scope));
        if !self.config.scopes().iter().all(has) {
            return Err(Rejection::InsufficientScope);
        }
        Ok(claims.sub)
    }
}

/// Returns the reason for the operator why a token is not valid.
fn reason_of(error: &ErrorKind) -> String {
    match error {
        ErrorKind::ExpiredSignature => "it has expired".to_owned(),
        ErrorKind::ImmatureSignature => "it is not valid yet".to_owned(),
        ErrorKind::InvalidSignature => "its signature is wrong".to_owned(),
        ErrorKind::InvalidIssuer => "the claim `iss` is wrong".to_owned(),
        ErrorKind::InvalidAudience => "the claim `aud` is wrong".to_owned(),
        ErrorKind::MissingRequiredClaim(claim) => format!("the claim `{claim}` is missing"),
        // The text of another error may quote the token.
        _ => "it cannot be decoded".to_owned(),
    }
}

// === impl Scopes ===

impl Scopes {
    fn contains(&self, scope: &str) -> bool {
        match self {
            Self::Separated(scopes) => scopes.split(' ').any(|it| it == scope),
            Self::List(scopes) => scopes.iter().any(|it| it == scope),
        }
    }
}
