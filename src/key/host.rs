use std::fmt;
use std::net::Ipv6Addr;

use ecow::{EcoString, eco_format};
use http::{HeaderMap, header::HOST};

use super::{Extracted, Key, KeyExtractor, RequestHead};

/// Takes the host that a request goes to as its key, so that each upstream has a quota of its own.
///
/// The key is the URI's host and port, or those of the `Host` header where the URI has none, in one
/// spelling for all requests to the same place:
///
/// - in lower case, and without the dot that ends a fully qualified name;
/// - without the port if it is the scheme's own: 80 for `http` and `ws`, 443 for `https` and `wss`, and
///   either of them where the scheme is not known, as with a `Host` header alone. So `example.com`,
///   `http://example.com` and `https://example.com:443` are one key, and `example.com:8443` is another;
/// - an IPv6 address keeps its brackets and is written in its short form: `[::1]`;
/// - userinfo never enters the key.
///
/// A host that is malformed or longer than 255 bytes, and a second `Host` header, count as no host.
/// A request without a host is refused unless [`or_exempt`](Host::or_exempt) says otherwise.
/// Requests of a tonic client have no host unless the client is made `with_origin`: the channel adds it later.
///
/// ```
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// let request = http::Request::get("https://Api.Example.com:443/users").body(()).unwrap();
/// assert_eq!(key::host().extract(&request), Extracted::Key("api.example.com".into()));
/// ```
///
/// # Not for callers you do not trust
///
/// In a server, the caller chooses the host, and every new host is a new quota. Limit callers by
/// something that they cannot choose.
pub fn host() -> Host {
    let without = Extracted::Refused("the request has no host".into());
    Host { without }
}

/// Takes the host that a request goes to as its key; made by [`host`].
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct Host {
    /// The result for requests without a host.
    without: Extracted,
}

impl Host {
    /// Leaves requests without a host unlimited. Default: they are refused.
    ///
    /// ```
    /// use tower_throttle::key::{self, Extracted, KeyExtractor};
    ///
    /// let request = http::Request::get("/health").body(()).unwrap();
    /// assert_eq!(key::host().extract(&request), Extracted::Refused("the request has no host".into()));
    /// assert_eq!(key::host().or_exempt().extract(&request), Extracted::Exempt);
    /// ```
    pub fn or_exempt(mut self) -> Self {
        self.without = Extracted::Exempt;
        self
    }

    pub(crate) fn key_of(&self, authority: Option<&Authority<'_>>) -> Extracted {
        authority.map_or_else(|| self.without.clone(), |it| it.key().into())
    }
}

impl<R: RequestHead> KeyExtractor<R> for Host {
    fn extract(&self, request: &R) -> Extracted {
        self.key_of(Authority::of(request).as_ref())
    }
}

/// The host and port that a request goes to, in one spelling.
#[derive(Debug, Clone)]
pub(crate) struct Authority<'a> {
    /// In lower case and without a dot at the end; an IPv6 address in brackets and in its short form.
    pub(crate) host: EcoString,
    pub(crate) port: Option<u16>,
    scheme: Option<&'a str>,
}

impl<'a> Authority<'a> {
    /// `None` if the request has no host or a malformed one.
    pub(crate) fn of<R: RequestHead>(request: &'a R) -> Option<Self> {
        let (host, port) = match request.host() {
            Some(host) => (host, request.port()),
            None => split_port(host_header(request.headers())?)?,
        };
        Self::new(host, port, request.scheme())
    }

    /// Reads a host with or without a port.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = split_port(text)?;
        Self::new(host, port, None)
    }

    fn new(host: &str, port: Option<u16>, scheme: Option<&'a str>) -> Option<Self> {
        let host = canonical(host)?;
        Some(Self { host, port, scheme })
    }

    /// True if the request goes to this port. Without a port, it goes to the one of its scheme, and without a scheme to
    /// either of the default ports.
    pub(crate) fn is_at(&self, port: u16) -> bool {
        match self.port {
            Some(named) => named == port,
            None => is_default(port, self.scheme),
        }
    }

    fn key(&self) -> Key {
        match self.port {
            Some(port) if !is_default(port, self.scheme) => Key(eco_format!("{self}")),
            _ => Key(self.host.clone()),
        }
    }
}

impl fmt::Display for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn lowercase(host: &str) -> EcoString {
    let mut lower = EcoString::from(host);
    lower.make_mut().make_ascii_lowercase();
    lower
}

/// The host in its one spelling, or `None` if it is malformed.
fn canonical(host: &str) -> Option<EcoString> {
    // A fully qualified name has at most 253 bytes. Longer texts would only fill the store.
    const LONGEST: usize = 255;
    if host.len() > LONGEST {
        return None;
    }
    if let Some(literal) = host.strip_prefix('[') {
        let literal = literal.strip_suffix(']')?;
        if let Ok(address) = literal.parse::<Ipv6Addr>() {
            return Some(eco_format!("[{address}]"));
        }
        // An address with a zone, or of a future version.
        let is_valid = !literal.is_empty() && literal.bytes().all(|b| b == b':' || in_host(b));
        return is_valid.then(|| lowercase(host));
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_valid = !name.is_empty() && name.bytes().all(in_host);
    is_valid.then(|| lowercase(name))
}

/// True for the bytes of a host name in RFC 3986 (section 3.2.2).
fn in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte)
}

fn is_default(port: u16, scheme: Option<&str>) -> bool {
    let schemes = match port {
        80 => ["http", "ws"],
        443 => ["https", "wss"],
        _ => return false,
    };
    scheme.is_none_or(|scheme| schemes.iter().any(|it| it.eq_ignore_ascii_case(scheme)))
}

/// The only `Host` header. RFC 9112 (section 3.2) requires that a request with several is rejected.
fn host_header(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(HOST).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The host and the port of an authority without userinfo.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let end = match authority.starts_with('[') {
        true => authority.find(']')? + 1,
        false => authority.find(':').unwrap_or(authority.len()),
    };
    match authority.split_at(end) {
        (host, "" | ":") => Some((host, None)),
        (host, rest) => Some((host, Some(port(rest.strip_prefix(':')?)?))),
    }
}

/// Reads digits alone; `parse` would accept `+80`.
fn port(text: &str) -> Option<u16> {
    let are_digits = text.bytes().all(|b| b.is_ascii_digit());
    are_digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    fn of_uri(uri: &str) -> String {
        let request = Request::get(uri).header("host", "other.example");
        key(&request.body(()).unwrap())
    }

    fn of_header(value: impl AsRef<[u8]>) -> String {
        let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
        key(&Request::get("/").header("host", value).body(()).unwrap())
    }

    fn key(request: &Request<()>) -> String {
        match host().extract(request) {
            Extracted::Key(key) => key.to_string(),
            Extracted::Refused(no_key) => {
                assert_eq!(host().or_exempt().extract(request), Extracted::Exempt);
                no_key.reason.into()
            }
            other => panic!("{other:?}"),
        }
    }

    const NONE: &str = "the request has no host";

    /// Lines of a key and the texts that have it.
    fn table(lines: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
        let lines = lines.lines().filter_map(|it| it.trim().split_once(" <= "));
        lines.flat_map(|(key, texts)| texts.split(' ').map(move |text| (key, text)))
    }

    #[test]
    fn one_place_has_one_key_however_it_is_spelled() {
        for (expected, uri) in table(
            "example.com <= http://example.com/ https://example.com/a?b HTTPS://EXAMPLE.com.:443
             example.com <= http://example.com:80 http://example.com: wss://example.com:443
             example.com <= https://me:secret@example.com https://443:80@example.com example.com:443
             example.com:443 <= http://example.com:443 grpc://example.com:443
             example.com:80 <= https://example.com:80
             example.com:8080 <= http://Example.com.:08080
             [::1] <= http://[::1]/ http://[0:0:0:0:0:0:0:1]:80/
             [2001:db8::a]:8080 <= http://[2001:DB8::A]:8080/
             [fe80::1%25eth0] <= http://[fe80::1%25Eth0]/
             127.0.0.1:3000 <= http://127.0.0.1:3000
             the request has no host <= http://./ http://[]/ http://:80/",
        ) {
            assert_eq!(of_uri(uri), expected, "{uri}");
        }
        assert_eq!(of_uri(&format!("http://{}/", "a".repeat(256))), NONE);
    }

    #[test]
    fn the_host_header_serves_where_the_uri_has_no_host() {
        for (expected, value) in table(
            "example.com <= Example.COM example.com. example.com: example.com:80 example.com:443
             example.com:8080 <= example.com:8080
             [::1] <= [::1] [0::1]:443
             my_service <= my_service
             the request has no host <= . :80 a/b a?b a#b a{b} a|b a\\b me@a me:pw@a a:+80 a:-1 a:80a
             the request has no host <= a:65536 a:80:80 ::1 [ ] [] [::1 [::1]80 [::1]:x [a]b] [me@a]
             the request has no host <= caf\u{e9}",
        ) {
            assert_eq!(of_header(value), expected, "{value}");
        }
        let long = "a".repeat(100 * 1024);
        for value in ["", "a b", " a", "a, b", "a\tb", &long] {
            assert_eq!(of_header(value), NONE, "{value:.40}");
        }
        assert_eq!(of_header(b"a\xff"), NONE);
        assert_eq!(canonical("a\0b").or(canonical("a\nb")), None);
        let two = Request::get("/").header("host", "a").header("host", "a");
        assert_eq!(key(&two.body(()).unwrap()), NONE);
        assert_eq!(key(&Request::options("*").body(()).unwrap()), NONE);
    }
}
