//! The `[auth]` section, which configures how callers over HTTP are authenticated.

use std::{fmt, path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{duration, read::Reader, secret::Secret, text_reader::TextReader};
use crate::{
    adapter::Secrets,
    url::{Url, displayed},
};

pub(super) const SECTION: &str = "auth";
/// Minimum number of bytes in a static token.
const MIN_TOKEN: usize = 16;
/// Maximum number of bytes in the name of a caller.
const MAX_CALLER: usize = 256;
/// Default tolerance for the difference between the clocks of the authorization server and this
/// machine.
const LEEWAY: Duration = Duration::from_secs(60);
/// Maximum tolerance for the difference between the clocks of the authorization server and this
/// machine.
const MAX_LEEWAY: Duration = Duration::from_secs(600);

/// How callers over HTTP are authenticated. Contains either `jwt` or `tokens`.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct AuthTable {
    /// Public URL of the MCP endpoint, such as `https://tools.example.com/mcp`. Required with
    /// `jwt`.
    resource: Option<String>,
    /// Verifies access tokens that an OAuth authorization server has issued to callers. The tokens
    /// are JWTs.
    jwt: Option<JwtTable>,
    /// Verifies static bearer tokens, each of which belongs to one caller.
    tokens: Option<Vec<TokenTable>>,
}

/// How the access tokens of callers are verified.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["issuer", "jwks"])))]
#[serde(default, deny_unknown_fields)]
struct JwtTable {
    /// Required value of the `iss` claim of tokens: the URL of the authorization server.
    issuer: Option<String>,
    /// URL or path of the JSON Web Key Set with which tokens are verified.
    jwks: Option<Secret<String>>,
    /// Required value of the `aud` claim of tokens. Defaults to the value of `resource`, the public
    /// URL of the MCP endpoint.
    audience: Option<String>,
    /// Scopes that each token must have. By default, tokens need no scopes.
    scopes: Vec<String>,
    /// Tolerance for the difference between the clocks of the authorization server and this
    /// machine. At most 10 minutes. Defaults to 1 minute.
    leeway: Option<duration::Duration>,
}

/// A static bearer token, which belongs to one caller.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["caller", "token"])))]
#[serde(default, deny_unknown_fields)]
struct TokenTable {
    /// Name of the token's caller. Several tokens may belong to the same caller.
    caller: Option<String>,
    /// The bearer token, at least 16 bytes long. Each `${VAR}` is replaced by the value of an
    /// environment variable.
    token: Option<Secret<String>>,
}

/// The `[auth]` settings of a configuration file, which define how a server must authenticate
/// callers over HTTP.
///
/// This crate does not verify bearer tokens. A server that uses an `AuthConfig` must verify the
/// token of each HTTP request, and insert an
/// [`AuthenticatedCaller`](crate::adapter::AuthenticatedCaller) into the extensions of the request.
/// See [`Config::take_auth`](super::Config::take_auth).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    resource: Option<String>,
    method: AuthMethod,
    needs_caller_tokens: bool,
}

/// How a server verifies the bearer token of an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthMethod {
    /// The bearer token of a request must be a JWT that the configured authorization server has
    /// issued.
    Jwt(JwtConfig),
    /// The bearer token of a request must be equal to one of these static tokens. The list contains
    /// at least one token.
    Tokens(Vec<StaticToken>),
}

/// The required properties of a JWT access token, such as its issuer and audience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtConfig {
    issuer: String,
    jwks: JwksSource,
    audience: String,
    scopes: Vec<String>,
    leeway: Duration,
}

/// The location of the JSON Web Key Set (JWKS) of an authorization server. Its keys verify the
/// signatures of JWT access tokens. The `Debug` output of a URL contains only the scheme and the
/// host, because the other parts may be secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JwksSource {
    /// The server downloads the JSON Web Key Set from this URL.
    Url(String),
    /// The server reads the JSON Web Key Set from this file.
    File(PathBuf),
}

/// A static bearer token, and the name of the caller that it identifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticToken {
    caller: String,
    token: Secret<String>,
}

/// Converts the `[auth]` section to an [`AuthConfig`], and reports errors in the section to
/// `reader`. `needs_caller_tokens` is `true` if a backend exchanges the access tokens of callers.
pub(super) fn build(
    table: Option<AuthTable>,
    needs_caller_tokens: bool,
    reader: &mut Reader<'_, '_>,
) -> Option<AuthConfig> {
    let AuthTable { resource, jwt, tokens } = table?;
    if cfg!(not(feature = "http")) {
        reader.report(&[SECTION.into()], "`[auth]` needs a build with the feature `http`");
    }
    let mut texts = TextReader { path: vec![SECTION.into()], secrets: Vec::new(), reader };
    let resource = resource.and_then(|url| texts.identifier(&["resource"], url));
    let method = match (jwt, tokens) {
        (Some(jwt), None) => AuthMethod::Jwt(texts.jwt(jwt, resource.as_deref())),
        (None, Some(tokens)) => AuthMethod::Tokens(texts.tokens(tokens)),
        (Some(_), Some(_)) => {
            texts.report(&["tokens"], "`[auth]` has both `jwt` and `tokens`: remove one of them");
            return None;
        }
        (None, None) => {
            texts.report::<&str>(&[], "missing key `jwt` or `tokens`: expected one of them");
            return None;
        }
    };
    Some(AuthConfig { resource, method, needs_caller_tokens })
}

// === impl TextReader ===

impl TextReader<'_, '_, '_> {
    /// Expands the `${VAR}` variables in `url`. Returns the result if it is an HTTPS URL, or an
    /// HTTP URL of this machine. Otherwise, reports an error and returns `None`. `keys` is the path
    /// of the URL in the `[auth]` section.
    fn web_url(&mut self, keys: &[&str], url: String) -> Option<String> {
        let url = self.text(keys, url)?.value;
        self.secure_url(keys, url)
    }

    /// Checks a URL like [`web_url`](Self::web_url), after its variables were expanded.
    fn secure_url(&mut self, keys: &[&str], url: String) -> Option<String> {
        match Url::parse_secure(&url) {
            Ok(_) => Some(url),
            Err(message) => {
                self.report(keys, message);
                None
            }
        }
    }

    /// Checks a URL that identifies a server, such as the issuer of tokens. Clients receive the URL
    /// in HTTP headers, so it must contain no user, query or fragment, and no characters that are
    /// illegal in these headers. Reports an error and returns `None` if the URL is invalid.
    fn identifier(&mut self, keys: &[&str], url: String) -> Option<String> {
        let url = self.web_url(keys, url)?;
        let parts = Url::parse(&url)?;
        if parts.user.is_some() || parts.query.is_some() || parts.fragment.is_some() {
            self.report(keys, "illegal URL: expected no user, and no `?` or `#`");
            return None;
        }
        if !url.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\') {
            self.report(keys, "illegal URL: expected ASCII, with the host in Punycode");
            return None;
        }
        Some(url)
    }

    fn jwt(&mut self, table: JwtTable, resource: Option<&str>) -> JwtConfig {
        let JwtTable { issuer, jwks, audience, scopes, leeway } = table;
        // `resource` is required because clients read it in the metadata of the MCP endpoint.
        if resource.is_none() && !self.reader.has_fault_in(&[SECTION.into(), "resource".into()]) {
            self.report(&["resource"], "missing key `resource`, which `[auth.jwt]` needs");
        }
        let issuer = self.required(&["jwt", "issuer"], issuer);
        let issuer = issuer.and_then(|issuer| self.identifier(&["jwt", "issuer"], issuer));
        let audience = match audience {
            Some(audience) => self.text(&["jwt", "audience"], audience).map(|text| text.value),
            None => resource.map(str::to_owned),
        };
        if let Err(message) = check_scopes(&scopes) {
            self.report(&["jwt", "scopes"], message);
        }
        let leeway = leeway.map_or(LEEWAY, |duration::Duration(leeway)| leeway);
        if leeway > MAX_LEEWAY || leeway.subsec_nanos() != 0 {
            let message = "illegal `leeway`: expected whole seconds, and at most `10m`";
            self.report(&["jwt", "leeway"], message);
        }
        JwtConfig {
            issuer: issuer.unwrap_or_default(),
            jwks: self.jwks(jwks),
            audience: audience.unwrap_or_default(),
            scopes,
            leeway,
        }
    }

    fn jwks(&mut self, jwks: Option<Secret<String>>) -> JwksSource {
        let keys = ["jwt", "jwks"];
        let jwks = self.required(&keys, jwks.map(Secret::into_exposed));
        let jwks = jwks.and_then(|jwks| self.text(&keys, jwks));
        let jwks = jwks.map(|jwks| jwks.value).unwrap_or_default();
        if !jwks.contains("://") {
            return JwksSource::File(jwks.into());
        }
        JwksSource::Url(self.secure_url(&keys, jwks).unwrap_or_default())
    }

    fn tokens(&mut self, tables: Vec<TokenTable>) -> Vec<StaticToken> {
        if tables.is_empty() {
            self.report(&["tokens"], "`tokens` is empty: add a token, or remove `[auth]`");
        }
        let mut tokens: Vec<StaticToken> = Vec::with_capacity(tables.len());
        for (index, TokenTable { caller, token }) in tables.into_iter().enumerate() {
            let at = |key: &str| [SECTION.into(), "tokens".into(), index.into(), key.into()];
            let caller = self.reader.required(caller, "caller", &at("")[..3]);
            if caller.is_empty() || caller.len() > MAX_CALLER || caller.contains(char::is_control) {
                let message = format!("illegal name: expected 1 to {MAX_CALLER} bytes of text");
                self.reader.report(&at("caller"), message);
            }
            let token =
                self.reader.required(token.map(Secret::into_exposed), "token", &at("")[..3]);
            let Some(text) = self.reader.expand(&at("token"), token) else { continue };
            let token = text.value;
            let mistake = if token.len() < MIN_TOKEN {
                format!("the token is too short: expected at least {MIN_TOKEN} bytes")
            } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                "illegal token: expected letters, digits and ASCII punctuation".to_owned()
            } else if tokens.iter().any(|other| *other.token.expose() == token) {
                "duplicate token: each token needs a value of its own".to_owned()
            } else {
                tokens.push(StaticToken { caller, token: Secret::new(token) });
                continue;
            };
            if !self.reader.has_fault_in(&at("token")) {
                self.reader.report(&at("token"), mistake);
            }
        }
        tokens
    }
}

/// Returns an error message if a string is not a valid scope, as defined in [RFC 6749, section
/// 3.3].
///
/// [RFC 6749, section 3.3]: https://www.rfc-editor.org/rfc/rfc6749#section-3.3
pub(super) fn check_scopes(scopes: &[String]) -> Result<(), &'static str> {
    let is_visible = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
    let is_scope = |scope: &String| !scope.is_empty() && scope.bytes().all(is_visible);
    match scopes.iter().all(is_scope) {
        true => Ok(()),
        false => Err("illegal scope: expected visible characters without `\"` and `\\`"),
    }
}

// === impl AuthConfig ===

impl AuthConfig {
    /// Returns the public URL of the MCP endpoint. It is always present if the method is
    /// [`Jwt`](AuthMethod::Jwt).
    #[must_use]
    pub fn resource(&self) -> Option<&str> {
        self.resource.as_deref()
    }

    /// Returns how the server must verify the bearer tokens of requests.
    #[must_use]
    pub const fn method(&self) -> &AuthMethod {
        &self.method
    }

    /// Returns `true` if the gateway exchanges the access tokens of callers for tokens for a
    /// backend. In this case, the server must also insert a `CallerToken` into the extensions of
    /// each HTTP request.
    #[must_use]
    pub const fn needs_caller_tokens(&self) -> bool {
        self.needs_caller_tokens
    }

    /// Returns the secrets of the `[auth]` section: the static tokens, and the parts of the JWKS
    /// URL that may be secret. They must not appear in logs.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        match &self.method {
            AuthMethod::Tokens(tokens) => {
                Secrets::new(tokens.iter().map(|token| token.token().to_owned()))
            }
            AuthMethod::Jwt(JwtConfig { jwks: JwksSource::Url(url), .. }) => {
                Secrets::new(Url::parse(url).map(|url| url.secrets()).unwrap_or_default())
            }
            AuthMethod::Jwt(_) => Secrets::default(),
        }
    }
}

// === impl JwksSource ===

impl fmt::Debug for JwksSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.debug_tuple("Url").field(&displayed(url)).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

// === impl JwtConfig ===

impl JwtConfig {
    /// Returns the required value of the `iss` claim, which is the URL of the authorization server.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns the location of the JSON Web Key Set, whose keys verify the tokens.
    #[must_use]
    pub const fn jwks(&self) -> &JwksSource {
        &self.jwks
    }

    /// Returns the required value of the `aud` claim. If the claim is a list, it must contain the
    /// value.
    #[must_use]
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// Returns the scopes that each access token must have.
    #[must_use]
    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// Returns the leeway for the `exp` and `nbf` claims of a token, in whole seconds. The leeway
    /// compensates for differences between the clocks of the authorization server and this machine.
    #[must_use]
    pub const fn leeway(&self) -> Duration {
        self.leeway
    }
}

// === impl StaticToken ===

impl StaticToken {
    /// Returns the name of the caller that the token identifies.
    #[must_use]
    pub fn caller(&self) -> &str {
        &self.caller
    }

    /// Returns the bearer token. It must not be displayed or logged.
    #[must_use]
    pub fn token(&self) -> &str {
        self.token.expose()
    }
}
