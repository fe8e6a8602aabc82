use std::net::Ipv6Addr;

use http::{HeaderMap, header::HOST};
use smol_str::{SmolStr, SmolStrBuilder, format_smolstr};

use super::authority::{Authority, LONGEST};
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
/// Those of a tonic client have none unless the client is made `with_origin`: the channel adds it later.
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
/// In a server the host is whatever the caller wrote, and a new spelling is a new quota. Limit callers by
/// something that they cannot choose.
pub fn host() -> Host {
    Host { exempt: false }
}

/// Takes the host that a request goes to as its key; made by [`host`].
#[derive(Debug, Clone)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct Host {
    exempt: bool,
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
        self.exempt = true;
        self
    }
}

impl<R: RequestHead> KeyExtractor<R> for Host {
    fn extract(&self, request: &R) -> Extracted {
        match Authority::of(request).and_then(Authority::key) {
            Some(text) => Extracted::Key(Key(text)),
            None if self.exempt => Extracted::Exempt,
            None => Extracted::Refused("the request has no host".into()),
        }
    }
}

/// The one spelling of a host and port, or `None` if the host is malformed.
pub(super) fn canonical(host: &str, port: Option<u16>, scheme: Option<&str>) -> Option<SmolStr> {
    if host.len() > LONGEST {
        return None;
    }
    let host = match host.strip_prefix('[') {
        Some(literal) => ip_literal(literal.strip_suffix(']')?)?,
        None => name(host)?,
    };
    match port.filter(|&port| !is_default(port, scheme)) {
        Some(port) => Some(format_smolstr!("{host}:{port}")),
        None => Some(host),
    }
}

fn name(name: &str) -> Option<SmolStr> {
    reg_name(name).map(lower_case)
}

/// Without the dot at the end, if it is well-formed.
pub(super) fn reg_name(name: &str) -> Option<&str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    (!name.is_empty() && name.bytes().all(in_reg_name)).then_some(name)
}

fn ip_literal(address: &str) -> Option<SmolStr> {
    if let Ok(address) = address.parse::<Ipv6Addr>() {
        return Some(format_smolstr!("[{address}]"));
    }
    is_future(address).then(|| format_smolstr!("[{}]", lower_case(address)))
}

/// Whether it has a zone, or may be of a future version.
pub(super) fn is_future(address: &str) -> bool {
    !address.is_empty() && address.bytes().all(|b| b == b':' || in_reg_name(b))
}

/// Whether RFC 3986 (section 3.2.2) allows the byte in a host name.
fn in_reg_name(byte: u8) -> bool {
    // Looked up, as every byte of every request's host is.
    const ALLOWED: [bool; 256] = {
        let mut allowed = [false; 256];
        let mut byte = 0_u8;
        while byte.is_ascii() {
            allowed[byte as usize] = byte.is_ascii_alphanumeric();
            byte += 1;
        }
        let others = b"-._~!$&'()*+,;=%";
        let mut place = 0;
        while place < others.len() {
            allowed[others[place] as usize] = true;
            place += 1;
        }
        allowed
    };
    ALLOWED[usize::from(byte)]
}

fn lower_case(text: &str) -> SmolStr {
    if !text.bytes().any(|b| b.is_ascii_uppercase()) {
        return SmolStr::new(text);
    }
    let mut lower = SmolStrBuilder::new();
    for c in text.chars() {
        lower.push(c.to_ascii_lowercase());
    }
    lower.finish()
}

pub(super) fn is_default(port: u16, scheme: Option<&str>) -> bool {
    let is = |names: [&str; 2]| {
        scheme.is_none_or(|scheme| names.iter().any(|name| scheme.eq_ignore_ascii_case(name)))
    };
    match port {
        80 => is(["http", "ws"]),
        443 => is(["https", "wss"]),
        _ => false,
    }
}

/// The host and port of the only `Host` header. RFC 9112 (section 3.2) calls for a rejection of any
/// other number of them.
pub(super) fn host_header(headers: &HeaderMap) -> Option<(&str, Option<u16>)> {
    let mut values = headers.get_all(HOST).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    split(value)
}

/// The host and the port of an authority without userinfo.
pub(super) fn split(value: &str) -> Option<(&str, Option<u16>)> {
    let end = match value.starts_with('[') {
        true => value.find(']')? + 1,
        false => value.find(':').unwrap_or(value.len()),
    };
    let (host, rest) = value.split_at(end);
    let port = match rest {
        "" | ":" => None,
        _ => Some(digits(rest.strip_prefix(':')?)?),
    };
    Some((host, port))
}

fn digits(text: &str) -> Option<u16> {
    // `parse` alone would take `+80`.
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::super::authority::Spelling;
    use super::*;

    fn of_uri(uri: &str) -> Option<String> {
        key(Request::get(uri)
            .header("host", "other.example")
            .body(())
            .unwrap())
    }

    fn of_header(value: &[u8]) -> Option<String> {
        let value = HeaderValue::from_bytes(value).ok()?;
        key(Request::get("/").header("host", value).body(()).unwrap())
    }

    fn key(request: Request<()>) -> Option<String> {
        let mut spelling = Spelling::new();
        let authority = Authority::of(&request);
        let spelled = authority.and_then(|it| it.spell(&mut spelling).map(str::to_owned));
        match host().extract(&request) {
            Extracted::Key(key) => {
                // In every test, the two ways to spell a host are one.
                let spelled = spelled.expect("a host");
                let port = key.as_str().strip_prefix(&spelled).expect("the same");
                assert!(port.is_empty() || port.starts_with(':'), "{key}");
                Some(key.to_string())
            }
            Extracted::Refused(reason) => {
                assert_eq!(reason, "the request has no host");
                assert_eq!(spelled, None);
                assert_eq!(host().or_exempt().extract(&request), Extracted::Exempt);
                None
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_place_has_one_key_however_it_is_spelled() {
        for (uri, expected) in [
            ("http://example.com/", "example.com"),
            ("https://example.com/a?b", "example.com"),
            ("HTTPS://EXAMPLE.com.:443", "example.com"),
            ("http://example.com:80", "example.com"),
            ("http://example.com:", "example.com"),
            ("wss://example.com:443", "example.com"),
            ("https://me:secret@example.com", "example.com"),
            ("https://443:80@example.com", "example.com"),
            ("example.com:443", "example.com"),
            ("http://example.com:443", "example.com:443"),
            ("https://example.com:80", "example.com:80"),
            ("grpc://example.com:443", "example.com:443"),
            ("http://Example.com.:08080", "example.com:8080"),
            ("http://[::1]/", "[::1]"),
            ("http://[0:0:0:0:0:0:0:1]:80/", "[::1]"),
            ("http://[2001:DB8::A]:8080/", "[2001:db8::a]:8080"),
            ("http://[fe80::1%25Eth0]/", "[fe80::1%25eth0]"),
            ("http://127.0.0.1:3000", "127.0.0.1:3000"),
        ] {
            assert_eq!(of_uri(uri).as_deref(), Some(expected), "{uri}");
        }
    }

    #[test]
    fn the_host_header_serves_where_the_uri_has_no_host() {
        for (value, expected) in [
            ("Example.COM", "example.com"),
            ("example.com.", "example.com"),
            ("example.com:", "example.com"),
            ("example.com:80", "example.com"),
            ("example.com:443", "example.com"),
            ("example.com:8080", "example.com:8080"),
            ("[::1]", "[::1]"),
            ("[0::1]:443", "[::1]"),
            ("[::1]:3000", "[::1]:3000"),
            ("my_service", "my_service"),
        ] {
            assert_eq!(
                of_header(value.as_bytes()).as_deref(),
                Some(expected),
                "{value}"
            );
        }
    }

    #[test]
    fn a_malformed_host_is_no_host() {
        let long = "a".repeat(100 * 1024);
        for value in [
            "",
            ".",
            ":80",
            "a b",
            " a",
            "a, b",
            "a\tb",
            "a/b",
            "a?b",
            "a#b",
            "a{b}",
            "a|b",
            "a\\b",
            "me@a",
            "me:pw@a",
            "a:+80",
            "a:-1",
            "a:80a",
            "a:65536",
            "a:80:80",
            "::1",
            "[",
            "]",
            "[]",
            "[::1",
            "[::1]80",
            "[::1]:x",
            "[a]b]",
            "[me@a]",
            "caf\u{e9}",
            &long,
        ] {
            assert_eq!(of_header(value.as_bytes()), None, "{value:.40}");
        }
        assert_eq!(of_header(b"a\xff"), None);
        assert_eq!(of_uri("http://./"), None);
        assert_eq!(of_uri("http://[]/"), None);
        assert_eq!(of_uri("http://:80/"), None);
        assert_eq!(of_uri(&format!("http://{}/", "a".repeat(256))), None);
        assert_eq!(canonical("a\0b", None, None), None);
        assert_eq!(canonical("a\nb", None, None), None);
    }

    #[test]
    fn a_second_host_header_leaves_no_host() {
        let request = Request::get("/").header("host", "a").header("host", "a");
        assert_eq!(key(request.body(()).unwrap()), None);
    }

    #[test]
    fn without_a_host_the_request_is_refused() {
        assert_eq!(key(Request::get("/").body(()).unwrap()), None);
        assert_eq!(key(Request::options("*").body(()).unwrap()), None);
    }

    #[cfg(feature = "reqwest")]
    #[test]
    fn a_reqwest_request_has_the_same_key() {
        let url = "https://me:secret@API.example.com.:443/";
        let request = reqwest::Request::new(http::Method::GET, url.parse().unwrap());
        assert_eq!(
            host().extract(&request),
            Extracted::Key("api.example.com".into())
        );
    }
}
