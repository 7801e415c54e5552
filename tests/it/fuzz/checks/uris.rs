//! URIs: a client reaches no denied or renamed resource by a spelling that a URL parser or a path
//! normalizer considers the same URI.

use std::{convert::Infallible, future::ready};

use arbitrary::{Arbitrary, Result, Unstructured};
use fluent_uri::Uri;
use mcp_composite::{
    alias::{AliasLayer, ResourceAlias},
    filter::FilterLayer,
    message::{Context, Reply, Request},
    pattern::Selection,
};
use rmcp::model::{ReadResourceRequest, ReadResourceRequestParams, ServerResult};
use tower::{Layer, ServiceExt, service_fn};
use url::Url;

use super::run;

/// A protected resource, and how a client spells it.
#[derive(Debug)]
struct Attempt {
    target: String,
    requested: String,
}

const TARGETS: [&str; 12] = [
    "file:///secret",
    "file:///a/b/secret.txt",
    "file:///a%20b/",
    "docs://h/secret",
    "docs://h:8080/a/b?q=1",
    "docs://h",
    "urn:secret:1",
    "https://h/secret",
    "https://h/a/b?q=1",
    "https://h:8443/",
    "https://127.0.0.1/secret",
    "http://[::1]/secret",
];

/// Texts that URL parsers and file systems may ignore or rewrite.
const PARTS: [&str; 36] = [
    "/",
    "//",
    "/.",
    "/./",
    "/..",
    "/../",
    "/x/../",
    "\\",
    ".",
    "%2e",
    "%2E%2e",
    "%2f",
    "%5C",
    ":",
    ":443",
    ":0443",
    ":80",
    ":08443",
    "@",
    "me@",
    "#",
    "#x",
    "?",
    "%73",
    "%C3%A9",
    "é",
    "localhost",
    "localhost.",
    "127.1",
    "0x7f.1",
    "[0:0::1]",
    "%68",
    "\t",
    " ",
    "%",
    "%25",
];

impl<'a> Arbitrary<'a> for Attempt {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let target = (*bytes.choose(&TARGETS)?).to_owned();
        let mut requested: Vec<char> = target.chars().collect();
        for _ in 0..bytes.int_in_range(1..=5)? {
            let start = bytes.choose_index(requested.len() + 1)?;
            let removed = bytes.int_in_range(0..=3)?.min(requested.len() - start);
            let end = start + removed;
            if bytes.ratio(1, 6)? {
                requested[start..end].iter_mut().for_each(|c| *c = c.to_ascii_uppercase());
                continue;
            }
            let end = if bytes.arbitrary()? { end } else { start };
            let part = *bytes.choose(&PARTS)?;
            drop(requested.splice(start..end, part.chars()));
        }
        Ok(Self { target, requested: requested.into_iter().collect() })
    }
}

pub(super) fn check(data: &[u8]) {
    let Ok(attempt) = Attempt::arbitrary_take_rest(Unstructured::new(data)) else { return };
    run(attempt.check());
}

// === impl Attempt ===

impl Attempt {
    async fn check(&self) {
        let Self { target, requested } = self;
        if requested == target {
            return;
        }
        if let Some(parser) = taken_for_the_same(target, requested) {
            let denied = Selection::default().deny([target]).expect("a pattern");
            let filter = FilterLayer::new().resources(denied);
            assert!(!reaches(filter, requested).await, "{self:?}: not denied, but to {parser}");
            let alias = ResourceAlias::new(target).uri("x:renamed");
            let alias = AliasLayer::new().resources([alias]).expect("an alias");
            assert!(!reaches(alias, requested).await, "{self:?}: not renamed, but to {parser}");
        }
        // A list of allowed resources accepts them in their own spelling.
        let allowed = Selection::default().allow([target]).expect("a pattern");
        assert!(reaches(FilterLayer::new().resources(allowed), target).await, "{target}");
    }
}

/// Returns whether a read of the URI reaches the server below the layer.
async fn reaches<L>(layer: L, uri: &str) -> bool
where
    L: Layer<tower::util::BoxCloneService<Request, Reply, Infallible>>,
    L::Service: tower::Service<Request, Response = Reply, Error = Infallible>,
{
    let server =
        service_fn(|_: Request| ready(Ok::<Reply, Infallible>(ServerResult::empty(()).into())));
    let request = ReadResourceRequest::new(ReadResourceRequestParams::new(uri));
    let request = Request::new(request, Context::default());
    let service = layer.layer(tower::util::BoxCloneService::new(server));
    let Ok(reply) = service.oneshot(request).await;
    reply.error().is_none()
}

/// Returns the normal form of a URI; `None` if it is not valid.
type Parser = fn(&str) -> Option<String>;

/// Returns the parser that considers two URIs the same, without their fragments.
fn taken_for_the_same(one: &str, other: &str) -> Option<&'static str> {
    let parsers: [(&str, Parser); 3] = [
        ("the URL standard", by_url_standard),
        ("RFC 3986", by_rfc_3986),
        ("file systems", by_path),
    ];
    let same = |(_, parse): &(_, Parser)| parse(one).is_some_and(|one| parse(other) == Some(one));
    parsers.into_iter().find(same).map(|(name, _)| name)
}

fn by_url_standard(uri: &str) -> Option<String> {
    let mut url = Url::parse(uri).ok()?;
    url.set_fragment(None);
    Some(url.into())
}

fn by_rfc_3986(uri: &str) -> Option<String> {
    let uri = Uri::parse(uri).ok()?.strip_fragment().normalize();
    Some(uri.into_string())
}

/// Reads the path of a URI as a file system does.
fn by_path(uri: &str) -> Option<String> {
    let url = Url::parse(uri).ok()?;
    if !url.has_host() && url.scheme() != "file" || url.cannot_be_a_base() {
        return None;
    }
    let path = path_clean::clean(url.path());
    let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
    Some(format!("{}://{host}{}?{:?}", url.scheme(), path.display(), url.query()))
}
