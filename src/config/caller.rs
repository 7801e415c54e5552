//! The `[caller]` section, which configures how callers are identified.

#[cfg(any(feature = "stdio", feature = "http"))]
use std::sync::Arc;

use serde::Deserialize;
#[cfg(feature = "http")]
use sha2::{Digest, Sha256};

use super::{header, read::Reader, source::sanitized};
#[cfg(any(feature = "stdio", feature = "http"))]
use crate::adapter::account;
#[cfg(feature = "http")]
use crate::{adapter::AuthenticatedCaller, random};
use crate::{
    composite::Segment,
    message::{Context, identified_by},
};

const SECTION: &str = "caller";
/// Maximum length in bytes of a caller name. A longer name is replaced by its hash.
#[cfg(feature = "http")]
const MAX_CALLER: usize = 256;

/// Configures how callers are identified, for example for limits per caller.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct CallerTable {
    /// The HTTP header that contains the name of the caller. A proxy in front of this program must
    /// set the header.
    header: Option<String>,
}

/// How the caller of a request is identified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum CallerConfig {
    /// Callers are not identified.
    #[default]
    Unknown,
    /// The caller is identified by the value of this HTTP header.
    Header(String),
    /// The caller is identified by the [`AuthenticatedCaller`] in the extensions of the HTTP
    /// request.
    Authenticated,
}

/// Converts the `[caller]` section to a [`CallerConfig`], and reports errors in the section to
/// `reader`. `is_authenticated` is `true` if the file has an `[auth]` section.
pub(super) fn build(
    table: CallerTable,
    is_authenticated: bool,
    reader: &mut Reader<'_, '_>,
) -> CallerConfig {
    let header = table.header.filter(|name| {
        let mistake = if !header::is_name(name) {
            format!(
                "illegal name of a header {:?}: expected letters, digits and `-`",
                sanitized(name)
            )
        } else if is_authenticated {
            "`[auth]` already identifies callers: remove `header`".to_owned()
        } else if cfg!(not(feature = "http")) {
            "`header` needs a build with the feature `http`".to_owned()
        } else {
            return true;
        };
        reader.report(&[SECTION.into(), Segment::from("header")], mistake);
        false
    });
    match header {
        _ if is_authenticated => CallerConfig::Authenticated,
        Some(header) => CallerConfig::Header(header),
        None => CallerConfig::Unknown,
    }
}

// === impl CallerConfig ===

impl CallerConfig {
    /// Returns `true` if callers are identified.
    const fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Reports an error at `path` if the configuration does not identify callers, although the
    /// value at `path` needs identified callers. The error message suggests `[auth]`, `[caller]`,
    /// or the alternative `instead`, such as `per = "all"`.
    pub(super) fn required(&self, path: &[Segment], instead: &str, reader: &mut Reader<'_, '_>) {
        if !self.is_known() && !reader.has_fault_in(&[SECTION.into()]) {
            let message = format!(
                "callers are not identified: expected `[auth]`, `[caller]` with a `header`, or {instead}"
            );
            reader.report(path, message);
        }
    }

    /// Returns the name under which limits per caller count an MCP request. All requests without a
    /// caller share one name. Returns `None` if the configuration does not identify callers.
    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(super) fn account(&self, context: &Context) -> Option<Arc<str>> {
        self.is_known().then(|| account(self.caller(context)))
    }

    /// Returns the name under which limits per caller count an HTTP request. All requests without a
    /// caller share one name. Returns `None` if the configuration does not identify callers.
    #[cfg(feature = "http")]
    pub(super) fn account_in(&self, parts: &http::request::Parts) -> Option<Arc<str>> {
        self.is_known().then(|| account(self.caller_in(parts)))
    }

    /// Returns a function that gets the caller's name from the context of an MCP request. Returns
    /// `None` if the configuration does not identify callers.
    pub(super) fn key(
        &self,
    ) -> Option<impl Fn(&Context) -> Option<String> + Clone + Send + Sync + 'static> {
        let this = self.is_known().then(|| self.clone())?;
        Some(move |context: &Context| this.caller(context))
    }

    /// Returns a function that derives a session key from an MCP request. The key consists of the
    /// HTTP session id and the name of the caller. The function returns `None` if the request has
    /// neither.
    pub(super) fn session_key(
        &self,
    ) -> impl Fn(&Context) -> Option<String> + Send + Sync + use<> + 'static {
        let this = self.clone();
        let caller = identified_by(move |context| this.caller(context));
        move |context| match (http_session(context), caller(context)) {
            (None, None) => None,
            (Some(session), None) => Some(session.to_owned()),
            // Headers contain no line break, so the key of a session with a caller differs from all
            // others.
            (session, Some(caller)) => Some(format!("{}\n{caller}", session.unwrap_or_default())),
        }
    }

    /// Returns the name of the caller of an MCP request. Returns `None` if the HTTP request does
    /// not contain a caller.
    #[cfg(feature = "http")]
    fn caller(&self, context: &Context) -> Option<String> {
        self.caller_in(context.extensions().get::<http::request::Parts>()?)
    }

    #[cfg(feature = "http")]
    fn caller_in(&self, parts: &http::request::Parts) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Header(header) => named_by(parts, header),
            Self::Authenticated => {
                parts.extensions.get::<AuthenticatedCaller>().map(|it| it.name().to_owned())
            }
        }
    }

    #[cfg(not(feature = "http"))]
    #[expect(clippy::unused_self, reason = "there is no HTTP")]
    const fn caller(&self, _: &Context) -> Option<String> {
        None
    }
}

/// Returns the `mcp-session-id` of a request. Returns `None` for newer protocol versions: they have
/// no sessions, so a client could send any id.
#[cfg(feature = "http")]
fn http_session(context: &Context) -> Option<&str> {
    let parts = context.extensions().get::<http::request::Parts>()?;
    let is_old = context.meta().protocol_version().is_none();
    is_old.then(|| parts.headers.get("mcp-session-id")?.to_str().ok()).flatten()
}

#[cfg(not(feature = "http"))]
const fn http_session(_: &Context) -> Option<&str> {
    None
}

/// Returns the caller's name from the HTTP header `header`. Returns `None` if the request does not
/// have the header.
#[cfg(feature = "http")]
fn named_by(parts: &http::request::Parts, header: &str) -> Option<String> {
    // All values of the header together form the name, so that a request with an additional value
    // does not have the same caller. A name that is not UTF-8 is also valid.
    let values = parts.headers.get_all(header).iter();
    let values = values.map(|value| value.as_bytes().iter().copied().map(char::from).collect());
    let caller = values.reduce(|all: String, value: String| format!("{all}\n{value}"))?;
    // The name is stored together with the state of the caller, so its length must be limited. A
    // digest contains a NUL character and headers do not, so a digest is never equal to a short
    // name.
    let is_short = caller.len() <= MAX_CALLER;
    let digest = || format!("\0{}", random::hex(&Sha256::digest(&caller)));
    Some(if is_short { caller } else { digest() })
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn caller_is_derived_from_the_header() {
        let of = |headers: &[(&str, &[u8])]| {
            let mut request = http::Request::new(());
            for (name, value) in headers {
                let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
                request.headers_mut().append(name, http::HeaderValue::from_bytes(value).unwrap());
            }
            let mut context = Context::default();
            context.extensions_mut().insert(request.into_parts().0);
            CallerConfig::Header("X-Forwarded-User".to_owned()).caller(&context)
        };
        let alice = of(&[("x-forwarded-user", b"alice"), ("other", b"x")]);
        assert_eq!(alice.as_deref(), Some("alice"));
        let config = CallerConfig::Header("X-Forwarded-User".to_owned());
        assert_eq!(config.caller(&Context::default()), None);
        assert_eq!(of(&[("other", b"alice")]), None);

        // The callers of all these requests are different.
        let values: [&[(&str, &[u8])]; 6] = [
            &[("x-forwarded-user", b"alice")],
            &[("x-forwarded-user", b"")],
            &[("x-forwarded-user", b"\xc3\xa9")],
            &[("x-forwarded-user", b"\xe9")],
            &[("x-forwarded-user", b"alice"), ("x-forwarded-user", b"bob")],
            &[("x-forwarded-user", b"alice, bob")],
        ];
        // A long name is replaced by its digest, which differs from the digests of other names.
        let long = [b'a'; 100_000];
        let [one, other] = [&long[..], &long[1..]].map(|name| of(&[("x-forwarded-user", name)]));
        assert!(one != other && one.is_some_and(|name| name.len() == 65));

        let mut callers: Vec<_> = values.into_iter().map(|headers| of(headers).unwrap()).collect();
        callers.sort();
        callers.dedup();
        assert_eq!(callers.len(), values.len());
    }

    #[test]
    fn session_key_consists_of_caller_and_http_session() {
        let key = |headers: &[(&'static str, &'static str)], is_modern: bool| {
            let mut request = http::Request::new(());
            for (name, value) in headers {
                request.headers_mut().append(*name, value.parse().unwrap());
            }
            let mut context = Context::default();
            context.extensions_mut().insert(request.into_parts().0);
            if is_modern {
                let version = rmcp::model::ProtocolVersion::V_2026_07_28.to_string();
                let key = "io.modelcontextprotocol/protocolVersion".to_owned();
                context.meta_mut().insert(key, version.into());
            }
            CallerConfig::Header("x-user".to_owned()).session_key()(&context)
        };
        let (session, user) = (("mcp-session-id", "1"), ("x-user", "alice"));
        assert_eq!(key(&[], false), None);
        assert_eq!(key(&[session], true), None, "any client could send it");
        let keys = [
            key(&[session], false),
            key(&[user], false),
            key(&[session, user], false),
            key(&[("mcp-session-id", "2"), user], false),
            key(&[session, ("x-user", "bob")], false),
        ];
        let different: std::collections::BTreeSet<_> = keys.iter().flatten().collect();
        assert_eq!(different.len(), keys.len(), "{keys:?}");
        assert_eq!(key(&[session, user], true), keys[1]);
    }

    #[test]
    fn authenticated_caller_ignores_headers() {
        let mut parts = http::Request::new(()).into_parts().0;
        parts.headers.insert("x-forwarded-user", http::HeaderValue::from_static("mallory"));
        assert_eq!(CallerConfig::Authenticated.caller_in(&parts), None);
        parts.extensions.insert(AuthenticatedCaller::new("alice"));
        assert_eq!(CallerConfig::Authenticated.caller_in(&parts).as_deref(), Some("alice"));
    }
}
