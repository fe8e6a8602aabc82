use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderName, header::FORWARDED};
use ipnet::IpNet;

use super::forwarded::hops;
use super::header::header_name;
use super::{Extracted, Key, KeyExtractor, NoKey, NoKeyCause, RequestHead, address};
use crate::error::BuildError;

#[cfg(test)]
mod tests;

/// Takes the address of the client as the key, so that each client of a server has a quota of its own.
///
/// Defaults: the client is the peer of the connection, whatever the headers contain. Each IPv4 address is a key,
/// and the IPv6 addresses of a /64 network share one.
///
/// ```
/// use std::net::SocketAddr;
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// let peer: SocketAddr = "203.0.113.7:50000".parse().unwrap();
/// let request = http::Request::get("/").extension(peer).body(()).unwrap();
/// assert_eq!(key::client_ip().extract(&request), Extracted::Key("203.0.113.7".into()));
/// ```
///
/// # The peer
///
/// The server stores the peer's address in the request's extensions. The first of these counts:
///
/// - `ConnectInfo<SocketAddr>` of axum, with the feature `axum`. Serve the router by
///   `into_make_service_with_connect_info::<SocketAddr>()` for that; in tests, `MockConnectInfo` will do.
/// - A [`SocketAddr`](std::net::SocketAddr) or an [`IpAddr`], for any other server. With tonic, which leaves a
///   `TcpConnectInfo`, let a layer outside add what its `remote_addr` says.
///
/// Without any of them the request is refused, unless [`or_exempt`](ClientIp::or_exempt) or
/// [`or`](ClientIp::or) says otherwise. On a Unix socket, peers have no address: let a layer add a made-up `IpAddr`.
///
/// # Behind proxies
///
/// Where the peer is a proxy, all clients would share its quota. Name the networks of your proxies, and
/// the extractor finds the client in the header that they write:
///
/// ```
/// use std::net::SocketAddr;
/// use tower_throttle::key::{self, Extracted, KeyExtractor};
///
/// let client_ip = key::client_ip().trusted_proxies(["10.0.0.0/8"])?;
///
/// let key = |peer: &str, chain: &str| {
///     let peer: SocketAddr = peer.parse().unwrap();
///     let request = http::Request::get("/").extension(peer).header("x-forwarded-for", chain);
///     match client_ip.extract(&request.body(()).unwrap()) {
///         Extracted::Key(key) => key.to_string(),
///         other => panic!("{other:?}"),
///     }
/// };
/// // Two proxies, the first of which saw the client.
/// assert_eq!(key("10.0.0.2:443", "203.0.113.7, 10.0.0.1"), "203.0.113.7");
/// // The client sent a header of its own. The proxy added to it what it saw.
/// assert_eq!(key("10.0.0.2:443", "8.8.8.8, 203.0.113.7"), "203.0.113.7");
/// // The client came by no proxy.
/// assert_eq!(key("203.0.113.7:50000", "8.8.8.8"), "203.0.113.7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The header counts only if the peer is in one of these networks. Then the chain is walked from the right,
/// where the peer wrote, past all addresses in these networks. The first other address is the client.
/// Entries on its left are ignored. If all addresses are trusted, the leftmost is the client.
///
/// An entry that is not an address, such as `unknown`, `_hidden` or an empty one, ends the walk: the key
/// is then the last address before it, that of a proxy or of the peer. So clients that a
/// proxy hides share its quota, and entries further left are not trusted. Several lines of the header
/// are one chain, in their order.
///
/// Only one header is read, because a proxy that writes one may forward the other as the client sent it:
/// `X-Forwarded-For` by default, [`Forwarded`](ClientIp::forwarded), or one for a
/// [single address](ClientIp::header). Use the one that *every* trusted proxy writes, and make sure that no
/// client can reach the server from within the networks.
///
/// # One spelling
///
/// Ports, zones, brackets and the abbreviation of an IPv6 address make no difference to the key, and
/// `::ffff:203.0.113.7` counts as `203.0.113.7`. The key of several addresses is their network:
/// `2001:db8:1:2::/64`.
pub fn client_ip() -> ClientIp {
    ClientIp {
        trusted: Arc::default(),
        header: HeaderName::from_static("x-forwarded-for"),
        is_single: false,
        ipv4_prefix: 32,
        ipv6_prefix: 64,
        without: None,
    }
}

/// Takes the address of the client as the key; made by [`client_ip`].
///
/// Clones are cheap.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an extractor does nothing until a request is given to it"]
pub struct ClientIp {
    trusted: Arc<[IpNet]>,
    header: HeaderName,
    /// The header has one address, and not a chain.
    is_single: bool,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    /// The result for requests without a peer, unless they are refused.
    without: Option<Extracted>,
}

impl ClientIp {
    /// Sets the networks of your proxies, whose headers are trusted. Default: none.
    ///
    /// See [Behind proxies](client_ip#behind-proxies). A network is written as `10.0.0.0/8`, or as a single address. One
    /// of IPv4-mapped addresses counts as the IPv4 network.
    ///
    /// # Errors
    ///
    /// Fails if a text is not a network.
    pub fn trusted_proxies(
        self,
        networks: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, BuildError> {
        let networks = networks.into_iter();
        let networks = networks.map(|network| address::parse_network(network.as_ref()));
        let trusted: Result<_, _> = networks.collect();
        let trusted = trusted.map_err(|problem| BuildError::new("trusted_proxies", problem))?;
        Ok(self.trusting(trusted))
    }

    pub(crate) fn trusting(self, trusted: Arc<[IpNet]>) -> Self {
        Self { trusted, ..self }
    }

    /// Finds the chain in `Forwarded` of [RFC 7239]. Default: in `X-Forwarded-For`.
    ///
    /// Without [trusted proxies](ClientIp::trusted_proxies) neither is read.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tower_throttle::key::{self, Extracted, KeyExtractor};
    ///
    /// let client_ip = key::client_ip().trusted_proxies(["10.0.0.0/8"])?.forwarded();
    ///
    /// let request = http::Request::get("/")
    ///     .extension(IpAddr::from([10, 0, 0, 1]))
    ///     .header("forwarded", r#"for="[2001:db8:1:2::3]:4711";proto=https"#)
    ///     .body(())?;
    /// assert_eq!(client_ip.extract(&request), Extracted::Key("2001:db8:1:2::/64".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [RFC 7239]: https://www.rfc-editor.org/rfc/rfc7239
    pub fn forwarded(mut self) -> Self {
        (self.header, self.is_single) = (FORWARDED, false);
        self
    }

    /// Finds the client in a header of one address, such as `CF-Connecting-IP` or `X-Real-IP`. Default: in
    /// the chain of `X-Forwarded-For`.
    ///
    /// Without [trusted proxies](ClientIp::trusted_proxies) it is not read. If the request has the header twice, or
    /// with anything but one address, the client is the peer. The proxy has to overwrite the client's
    /// value; a proxy that forwards it lets clients choose their key.
    ///
    /// # Panics
    ///
    /// Panics if the name is a text that is not a header name.
    #[track_caller]
    pub fn header<N>(mut self, name: N) -> Self
    where
        N: TryInto<HeaderName>,
    {
        (self.header, self.is_single) = (header_name(name), true);
        self
    }

    /// Sets how many leading bits of an IPv4 address make the key. Default: 32, all of it.
    ///
    /// # Panics
    ///
    /// Panics if there are more than 32.
    #[track_caller]
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        assert!(bits <= 32, "an IPv4 address has 32 bits, not {bits}");
        self.ipv4_prefix = bits;
        self
    }

    /// Sets how many leading bits of an IPv6 address make the key. Default: 64.
    ///
    /// That is one subnet, in which a host can use any number of addresses ([RFC 8981]). Sites often
    /// have a /56 or a /48 ([RFC 6177]), and so up to 256 or 65,536 quotas by default. A shorter prefix
    /// leaves them fewer, but neighbors with a /64 each then share one.
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tower_throttle::key::{self, Extracted, KeyExtractor};
    ///
    /// let peer: IpAddr = "2001:db8:1:2::3".parse().unwrap();
    /// let request = http::Request::get("/").extension(peer).body(()).unwrap();
    ///
    /// let site = key::client_ip().ipv6_prefix(48);
    /// assert_eq!(site.extract(&request), Extracted::Key("2001:db8:1::/48".into()));
    /// let address = key::client_ip().ipv6_prefix(128);
    /// assert_eq!(address.extract(&request), Extracted::Key("2001:db8:1:2::3".into()));
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if there are more than 128.
    ///
    /// [RFC 6177]: https://www.rfc-editor.org/rfc/rfc6177
    /// [RFC 8981]: https://www.rfc-editor.org/rfc/rfc8981
    #[track_caller]
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        assert!(bits <= 128, "an IPv6 address has 128 bits, not {bits}");
        self.ipv6_prefix = bits;
        self
    }

    /// Leaves requests without an address of the peer unlimited. Default: they are refused.
    ///
    /// The server decides whether there is an address, never the client.
    pub fn or_exempt(mut self) -> Self {
        self.without = Some(Extracted::Exempt);
        self
    }

    /// Lets all requests without an address of the peer share one key. Default: they are refused.
    pub fn or(mut self, key: impl Into<Key>) -> Self {
        self.without = Some(Extracted::Key(key.into()));
        self
    }

    /// Goes from proxy to proxy, away from the server, up to the first address that is not trusted.
    fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        // The client may have written one of two addresses.
        if self.is_single && hops(&self.header, headers).nth(1).is_some() {
            return peer;
        }
        let (mut client, mut hops) = (peer, hops(&self.header, headers));
        while self.trusts(client)
            && let Some(Some(hop)) = hops.next()
        {
            client = hop;
        }
        client
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusted
            .iter()
            .any(|network| network.contains(&address))
    }
}

impl<R: RequestHead> KeyExtractor<R> for ClientIp {
    fn extract(&self, request: &R) -> Extracted {
        let Some(peer) = request.extensions().and_then(address::peer) else {
            let (reason, cause) = (NO_PEER.into(), NoKeyCause::Server);
            let refused = Extracted::Refused(NoKey { reason, cause });
            return self.without.clone().unwrap_or(refused);
        };
        let client = self.client(peer, request.headers());
        let prefix = match client {
            IpAddr::V4(_) => self.ipv4_prefix,
            IpAddr::V6(_) => self.ipv6_prefix,
        };
        Extracted::Key(Key(address::network(client, prefix)))
    }
}

const NO_PEER: &str = "the request does not say which address it comes from: serve an axum router by \
    `into_make_service_with_connect_info::<SocketAddr>()`, with the feature `axum` of tower-throttle, and with \
    another server add a `SocketAddr` to the request's extensions";
