//! Access tokens that are JWTs, as defined in [RFC 9068].
//!
//! [RFC 9068]: https://www.rfc-editor.org/rfc/rfc9068

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use jsonwebtoken::{Header, Validation, decode, decode_header, errors::ErrorKind};
use mcp_composite::config::{JwtConfig, View};
use serde::Deserialize;
use serde_json::Value;

use super::{
    key_set::{Key, KeySet},
    metadata::url_of_view,
    verification::{Rejection, Verified},
};

/// The maximum length of the claim `sub` in bytes. Budgets and stores keep it.
const MAX_SUBJECT: usize = 256;

/// Verifies the tokens of one authorization server.
pub(super) struct JwtVerifier {
    /// The public URL of the endpoint of the file itself.
    resource: String,
    config: JwtConfig,
    keys: KeySet,
}

/// The claims that are checked here. They are of any type, so that the reason of a rejection is not
/// only that the token cannot be decoded.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    iss: Value,
    #[serde(default)]
    sub: Value,
    #[serde(default)]
    exp: Value,
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
    pub(super) async fn new(resource: &str, config: &JwtConfig) -> Result<Self, String> {
        let keys = KeySet::new(config.jwks().clone()).await?;
        Ok(Self { resource: resource.to_owned(), config: config.clone(), keys })
    }

    /// Reads the keys again at intervals, and when a token has an unknown key.
    pub(super) async fn keep_fresh(&self) -> Infallible {
        self.keys.keep_fresh().await
    }

    /// Reads the keys again. If that fails, the known keys stay in use.
    pub(super) async fn refresh(&self) {
        self.keys.refresh().await;
    }

    /// Returns the subject of a token, and the time at which the token expires. `view` is the view
    /// of the request; `None` for `/mcp`.
    pub(super) async fn verify(
        &self,
        token: &str,
        view: Option<&View>,
    ) -> Result<Verified, Rejection> {
        let header = decode_header(token)
            .map_err(|_| invalid("it is not a JWT with a supported algorithm"))?;
        check_header(&header)?;
        let id = header.kid.as_deref();
        let mut keys = self.keys.find(id, header.alg);
        let audiences = self.audiences(view);
        let mut decoded = self.decode(token, &header, &audiences, &keys);
        // A new key may have signed the token, unless a key with this id was tried.
        if matches!(&decoded, Err(error) if is_unsigned(error))
            && !keys.iter().any(|key| key.is(id))
            && self.keys.reread().await
        {
            keys = self.keys.find(id, header.alg);
            decoded = self.decode(token, &header, &audiences, &keys);
        }
        match decoded {
            Ok(claims) => self.check(&claims, view),
            Err(_) if keys.is_empty() => Err(invalid("the key set has no key for it")),
            Err(error) => Err(Rejection::InvalidToken(reason_of(error.kind()))),
        }
    }

    /// Returns the accepted audiences. A view also accepts tokens for its own URL, unless the file
    /// sets another audience than the URL of the file itself.
    fn audiences(&self, view: Option<&View>) -> Vec<String> {
        let own = view.filter(|_| self.config.audience() == self.resource);
        let own = own.and_then(|view| url_of_view(&self.resource, view));
        [self.config.audience().to_owned()].into_iter().chain(own).collect()
    }

    /// Verifies the signature of a token and the claims `iss`, `aud`, `exp` and `nbf`.
    fn decode(
        &self,
        token: &str,
        header: &Header,
        audiences: &[String],
        keys: &[Arc<Key>],
    ) -> Result<Claims, jsonwebtoken::errors::Error> {
        let mut validation = Validation::new(header.alg);
        validation.leeway = self.config.leeway().as_secs();
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[self.config.issuer()]);
        validation.set_audience(audiences);
        for key in keys {
            match decode::<Claims>(token, key.decoding(), &validation) {
                Err(error) if is_unsigned(&error) => (),
                decoded => return decoded.map(|token| token.claims),
            }
        }
        Err(ErrorKind::InvalidSignature.into())
    }

    fn check(&self, claims: &Claims, view: Option<&View>) -> Result<Verified, Rejection> {
        // The library also accepts a list that contains the issuer.
        if claims.iss != self.config.issuer() {
            return Err(invalid("the claim `iss` is wrong"));
        }
        let is_name = |sub: &String| {
            !sub.is_empty() && sub.len() <= MAX_SUBJECT && !sub.contains(char::is_control)
        };
        let Some(sub) = claims.sub.as_str().map(str::to_owned).filter(is_name) else {
            let reason = format!("the claim `sub` is not a text of 1 to {MAX_SUBJECT} bytes");
            return Err(Rejection::InvalidToken(reason));
        };
        let granted = [&claims.scope, &claims.scp];
        let has = |scope: &String| granted.into_iter().flatten().any(|it| it.contains(scope));
        // Those of the running file, which may have been reloaded while keys were read.
        let of_view = view.map(View::scopes).unwrap_or_default();
        if !self.config.scopes().iter().chain(&*of_view).all(has) {
            return Err(Rejection::InsufficientScope(sub));
        }
        // A number, which was compared with the clock.
        let expires = claims.exp.as_f64().and_then(|exp| Duration::try_from_secs_f64(exp).ok());
        let expires = expires.and_then(|exp| UNIX_EPOCH.checked_add(exp));
        Ok(Verified { caller: sub, expires })
    }
}

/// Rejects a JWT that is no access token. RFC 9068 requires the type `at+jwt`, but many servers
/// write `JWT` or nothing.
fn check_header(header: &Header) -> Result<(), Rejection> {
    // A critical header changes the meaning of the token, and none is known here.
    if header.crit.is_some() {
        return Err(invalid("it has a critical header"));
    }
    let is_access_token = header.typ.as_deref().is_none_or(|typ| {
        let typ = typ.to_ascii_lowercase();
        matches!(typ.strip_prefix("application/").unwrap_or(&typ), "jwt" | "at+jwt")
    });
    if is_access_token { Ok(()) } else { Err(invalid("its type is not that of an access token")) }
}

fn invalid(reason: &str) -> Rejection {
    Rejection::InvalidToken(reason.to_owned())
}

fn is_unsigned(error: &jsonwebtoken::errors::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidSignature)
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
