//! Parses the URLs of web servers, and finds the secrets in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::uri::unescaped;

/// The URL of a web server, split into its parts. Some parts may contain secrets, such as a
/// password.
#[derive(Debug)]
pub(crate) struct Url<'t> {
    #[cfg_attr(not(feature = "config"), expect(dead_code, reason = "checked in files"))]
    is_https: bool,
    /// The host name or IP address of the server, without the brackets of an IPv6 address.
    #[cfg_attr(not(feature = "config"), expect(dead_code, reason = "checked in files"))]
    host: &'t str,
    /// The user name and password: the part before the `@`. `None` if the URL contains neither.
    pub(crate) user: Option<&'t str>,
    path: &'t str,
    /// The query: the part after the `?`. `None` if the URL has no query.
    pub(crate) query: Option<&'t str>,
    /// The fragment: the part after the `#`. `None` if the URL has no fragment.
    pub(crate) fragment: Option<&'t str>,
}

/// A path segment with a digit counts as a secret token if it has at least this many characters.
const MIN_TOKEN: usize = 8;
/// A path segment without digits counts as a secret token if it has at least this many characters.
const MIN_TOKEN_OF_LETTERS: usize = 20;

/// The IPv4 addresses of cloud metadata services (Alibaba, Oracle and Azure) that are not
/// link-local.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];
/// The IPv6 addresses of cloud metadata services (Amazon and Google) that are not link-local.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
/// The description of a [metadata address](is_metadata_address) in error messages.
pub(crate) const REASON_OF_METADATA_ADDRESS: &str =
    "a link-local or metadata address, where cloud providers serve credentials";

// === impl Url ===

impl<'t> Url<'t> {
    /// Parses an absolute URL with the scheme `http` or `https`. Returns `None` if `text` is not
    /// such a URL.
    pub(crate) fn parse(text: &'t str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        if !["http", "https"].iter().any(|name| scheme.eq_ignore_ascii_case(name))
            || text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\')
        {
            return None;
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, server) = match authority.rsplit_once('@') {
            Some((user, server)) => (Some(user), server),
            None => (None, authority),
        };
        let (host, port) = match server.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once(']')?;
                host.parse::<Ipv6Addr>().ok()?;
                (host, port)
            }
            None => server.split_at(server.find(':').unwrap_or(server.len())),
        };
        let legal_host = !host.is_empty()
            && !host.contains(['<', '>', '"', '^', '|', '`', '{', '}', '@', '[', ']']);
        let legal_port = match port.strip_prefix(':') {
            Some(digits) => {
                digits.bytes().all(|b| b.is_ascii_digit()) && digits.parse::<u16>().is_ok()
            }
            None => port.is_empty(),
        };
        let (path, fragment) = split(path, '#');
        let (path, query) = split(path, '?');
        let is_https = scheme.eq_ignore_ascii_case("https");
        (legal_host && legal_port).then_some(Self { is_https, host, user, path, query, fragment })
    }

    /// Parses the URL of a server to which secrets are sent, and checks that requests to it are
    /// secure.
    ///
    /// # Errors
    ///
    /// Returns an error message if `text` is not a URL, if requests to the URL would be sent
    /// without encryption to another machine, or if the host is a literal
    /// [metadata address](is_metadata_address).
    #[cfg(feature = "config")]
    pub(crate) fn parse_secure(text: &'t str) -> Result<Self, String> {
        let url = Self::parse(text).ok_or("not a URL: expected `https://` and a host")?;
        let insecure = "insecure URL: expected `https://`, or `http://` and a loopback host such \
                        as `localhost`";
        if !url.is_secure() {
            return Err(insecure.to_owned());
        }
        url.metadata_address().map_or(Ok(url), Err)
    }

    /// Returns an error message if the host is an IP address that is a [metadata
    /// address](is_metadata_address). Returns `None` for other addresses and for host names.
    #[cfg(feature = "config")]
    pub(crate) fn metadata_address(&self) -> Option<String> {
        let address = literal_address(self.host).filter(|address| is_metadata_address(*address))?;
        Some(format!("{address} is {REASON_OF_METADATA_ADDRESS}: expected another host"))
    }

    /// Returns `true` if requests to the URL are encrypted with TLS or stay on this machine.
    #[cfg(feature = "config")]
    pub(crate) fn is_secure(&self) -> bool {
        let is_loopback = |address: IpAddr| address.is_loopback();
        self.is_https
            || self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse().is_ok_and(is_loopback)
    }

    /// Returns the parts of the URL that may be secret. If a part contains percent-escapes, the
    /// result contains both the original part and the decoded part.
    ///
    /// Secret parts are the user information, the query and the fragment, each as a whole string.
    /// The user name, the password, each value in the query, and each path segment that may be a
    /// token are also secret by themselves.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut secrets = Vec::new();
        if let Some(user) = self.user {
            secrets.push(user);
            secrets.extend(user.split(':'));
        }
        if let Some(query) = self.query {
            secrets.push(query);
            secrets.extend(query.split('&').map(|pair| pair.split_once('=').map_or(pair, |p| p.1)));
        }
        // Path segments are included because the URLs of hosted servers often have a token in the
        // path. Other segments, such as `mcp`, are not secret, and occur in many texts.
        secrets.extend(self.path.split('/').filter(|part| may_be_token(part)));
        secrets.extend(self.fragment);
        let mut secrets: Vec<_> = secrets.into_iter().map(str::to_owned).collect();
        for index in 0..secrets.len() {
            let decoded = unescaped(&secrets[index]);
            if decoded != secrets[index] {
                secrets.push(decoded);
            }
        }
        secrets
    }
}

/// Parses the host of a URL as an IP address. An IPv6 address may be in brackets. Returns `None` if
/// the host is a name.
pub(crate) fn literal_address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

/// Returns `true` if an address is link-local, or belongs to the metadata service of a cloud
/// provider. MCP servers do not have such addresses. A metadata service would return the
/// credentials of the machine.
///
/// Also returns `true` for IPv6 addresses that contain such an IPv4 address: IPv4-mapped addresses,
/// and addresses of NAT64 (RFC 6052) and 6to4 (RFC 3056).
pub(crate) fn is_metadata_address(address: IpAddr) -> bool {
    let is_v4 = |v4: Ipv4Addr| v4.is_link_local() || METADATA_V4.contains(&v4);
    match address {
        IpAddr::V4(v4) => is_v4(v4),
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local()
                || METADATA_V6.contains(&v6)
                || embedded_address(v6).is_some_and(is_v4)
        }
    }
}

/// Returns the IPv4 address that is embedded in an IPv6 address (IPv4-mapped, NAT64 or 6to4).
/// Returns `None` for other addresses.
fn embedded_address(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let address_of =
        |[high, low]: [u16; 2]| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(address_of([high, low]))
        }
        _ => address.to_ipv4_mapped(),
    }
}

/// Splits a string at the first `mark`. Returns the text before and after it. The second part is
/// `None` if the string does not contain `mark`.
fn split(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.split_once(mark) {
        Some((before, behind)) => (before, Some(behind)),
        None => (text, None),
    }
}

fn may_be_token(part: &str) -> bool {
    let has_digit = part.contains(|c: char| c.is_ascii_digit());
    part.chars().count() >= if has_digit { MIN_TOKEN } else { MIN_TOKEN_OF_LETTERS }
}

/// Returns `true` if a URL has the scheme `https`.
#[cfg(feature = "config")]
pub(crate) fn is_https(url: &str) -> bool {
    url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
}

/// Returns a URL for logs and error messages. Keeps the scheme and the host, which are never
/// secret, and replaces other parts by `…`.
///
/// `written` is the URL from the configuration file, in which variables such as `${HOST}` are not
/// expanded yet.
pub(crate) fn displayed(written: &str) -> String {
    let Some((scheme, rest)) = written.split_once("://") else {
        return "…".to_owned();
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, server) = match authority.rsplit_once('@') {
        Some((_, server)) => ("…@", server),
        None => ("", authority),
    };
    // If the rest contains an `@`, the apparent host may be a part of a password that contains a
    // `/`.
    if path.contains('@') {
        return format!("{scheme}://…");
    }
    let path = if path.len() > 1 { "/…" } else { path };
    format!("{scheme}://{user}{server}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_urls_are_parsed() {
        for url in [
            "http://localhost",
            "HTTPS://example.com:8443/mcp?a=b#c",
            "http://user:pass@[::1]:80/mcp",
            "https://bücher.example/",
            "http://127.0.0.1:65535",
            "http://a:/",
        ] {
            let legal = Url::parse(url).is_some();
            assert_eq!(legal, url != "http://a:/", "{url}");
        }
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for url in [
            "",
            "http",
            "http:",
            "http://",
            "http:///mcp",
            "http://:80",
            "http://user@",
            "ws://host",
            "/mcp",
            "host:80",
            "http:host",
            "http://host:99999",
            "http://host:80:80",
            "http://host:x",
            "http://host:+80",
            "http://[::1",
            "http://[host]",
            "http://[::1]80",
            "http://a b",
            "http://a\n",
            " http://a",
            "http://a\\b",
            "http://${HOST}",
            "http://h/\u{0}",
        ] {
            assert!(Url::parse(url).is_none(), "{url}");
        }
    }

    #[test]
    fn url_parts_other_than_the_server_are_secret() {
        let url = Url::parse("https://me:p%40ss@host/mcp?key=a%20b&flag#top").unwrap();
        assert_eq!(
            url.secrets(),
            [
                "me:p%40ss",
                "me",
                "p%40ss",
                "key=a%20b&flag",
                "a%20b",
                "flag",
                "top",
                "me:p@ss",
                "p@ss",
                "key=a b&flag",
                "a b"
            ]
        );
        let secrets = |url| Url::parse(url).unwrap().secrets();
        assert_eq!(
            secrets("https://host/api/t0kens/t0ken12/12345678%2f/to-k-ens"),
            ["12345678%2f", "12345678/"]
        );
        let letters = "https://host/abcdefghijklmnopqrst/abcdefghijklmnopqrs";
        assert_eq!(secrets(letters), ["abcdefghijklmnopqrst"]);
        assert!(secrets("https://host").is_empty());
        assert_eq!(unescaped("%%41%4%zz%+1"), "%A%4%zz%+1");
    }

    #[cfg(feature = "config")]
    #[test]
    fn displayed_url_shows_only_the_server() {
        for (written, seen) in [
            ("https://host:80", "https://host:80"),
            ("https://host/", "https://host/"),
            ("https://host/mcp?key=1", "https://host/…"),
            ("https://me:pass@host/mcp", "https://…@host/…"),
            ("https://${USER}:pa/ss@host/", "https://…"),
            ("https://${HOST}/mcp", "https://${HOST}/…"),
            ("${URL}", "…"),
            ("host?key=1", "…"),
        ] {
            assert_eq!(displayed(written), seen, "{written}");
        }
    }

    #[test]
    fn metadata_addresses_are_recognized_also_within_ipv6() {
        for address in [
            "169.254.0.1",
            "100.100.100.200",
            "fe80::1",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
        ] {
            assert!(is_metadata_address(address.parse().unwrap()), "{address}");
        }
        for address in
            ["127.0.0.1", "0.0.0.0", "10.0.0.1", "169.253.0.1", "::1", "fd00::1", "2003::"]
        {
            assert!(!is_metadata_address(address.parse().unwrap()), "{address}");
        }
    }
}
