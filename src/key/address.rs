//! Addresses of peers, in header entries and as keys.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ecow::{EcoString, eco_format};
use http::Extensions;
use ipnet::IpNet;

use super::host::port;

/// Reads the address in one entry of a header in every spelling that is in use: with or without a port,
/// and an IPv6 address with or without brackets and a zone.
///
/// Ports and zones are checked and dropped. An IPv4-mapped address becomes the IPv4 address.
pub(super) fn parse(entry: &[u8]) -> Option<IpAddr> {
    let entry = str::from_utf8(entry).ok()?;
    let address = match entry.strip_prefix('[') {
        Some(literal) => {
            let (literal, rest) = literal.split_once(']')?;
            let is_valid = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
            is_valid.then(|| parse_v6(literal))?
        }
        None => match entry.split_once(':') {
            None => parse_v4(entry),
            Some((address, port)) if !port.contains(':') => {
                parse_v4(address).filter(|_| is_port(port))
            }
            Some(_) => parse_v6(entry),
        },
    };
    address.map(|address| address.to_canonical())
}

fn parse_v4(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|address: Ipv4Addr| address.into())
}

/// A zone follows a `%` (RFC 4007, section 11), or a `%25`, as in URIs.
fn parse_v6(text: &str) -> Option<IpAddr> {
    let (address, zone) = text.split_once('%').unwrap_or((text, "none"));
    let address: Ipv6Addr = address.parse().ok()?;
    is_name(zone).then_some(address.into())
}

/// RFC 7239 (section 6) lets a port be obfuscated although the address is not.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(obfuscated) => is_name(obfuscated),
        None => port(text).is_some(),
    }
}

fn is_name(text: &str) -> bool {
    let in_name = |b: u8| b.is_ascii_alphanumeric() || b"._~-".contains(&b);
    !text.is_empty() && text.bytes().all(in_name)
}

/// The address at the other end of the connection, if the server stored it in the extensions.
///
/// On a socket for both families, the address of an IPv4 client is IPv4-mapped.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let peer = connect_info(extensions)
        .or_else(|| extensions.get().map(SocketAddr::ip))
        .or_else(|| extensions.get().copied())?;
    Some(peer.to_canonical())
}

/// The address that axum's extractor of that name returns.
#[cfg(feature = "axum")]
fn connect_info(extensions: &Extensions) -> Option<IpAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let connected = extensions.get().map(|ConnectInfo::<SocketAddr>(peer)| peer);
    let peer = connected.or_else(|| extensions.get().map(|MockConnectInfo(peer)| peer));
    peer.map(SocketAddr::ip)
}

#[cfg(not(feature = "axum"))]
fn connect_info(_: &Extensions) -> Option<IpAddr> {
    None
}

/// Reads a network such as `10.0.0.0/8`, or a single address.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse().map(|address: IpAddr| address.into());
    let problem = "is not a network, such as `10.0.0.0/8`";
    (text.parse().or_else(|_| address())).map_err(|_| format!("{text:?} {problem}"))
}

/// The one spelling of the network with this prefix; of the address itself if all of its bits count.
pub(super) fn network(address: IpAddr, bits: u8) -> EcoString {
    match IpNet::new(address, bits) {
        Ok(network) if bits < network.max_prefix_len() => eco_format!("{}", network.trunc()),
        _ => eco_format!("{address}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_text_is_no_address() {
        let entries = "unknown _hidden localhost 203.0.113 203.0.113.256 203.0.113.07 0xcb.0.113.7 \
            3405803783 203.0.113.7/32 203.0.113.7%eth0 203.0.113.7: 203.0.113.7:+80 203.0.113.7:-80 \
            203.0.113.7:65536 203.0.113.7:80:80 203.0.113.7:_ 203.0.113.7:unknown unknown:80 \
            [203.0.113.7] [203.0.113.7]:80 : [] [ ] [::1 ::1] [[::1]] [::1]80 [::1]: [::1]] 1::2::3 \
            12345::1 ::1% ::1%a%b ::1%/ \"203.0.113.7\" 203.0.113.7\0 203.0.113.7\u{e9}";
        let spaced = "| 203.0.113.7|203.0.113.7 |203.0.113.7:_a b|[ ::1]";
        for entry in entries.split_ascii_whitespace().chain(spaced.split('|')) {
            assert_eq!(parse(entry.as_bytes()), None, "{entry}");
        }
        assert_eq!(parse(b"203.0.113.7\xff"), None);
    }

    proptest! {
        #[test]
        fn every_address_is_read_as_itself(address: IpAddr, port: u16) {
            let socket = SocketAddr::new(address, port).to_string();
            for entry in [address.to_string(), socket] {
                prop_assert_eq!(parse(entry.as_bytes()), Some(address.to_canonical()));
            }
        }

        #[test]
        fn two_addresses_share_a_text_if_and_only_if_they_share_the_prefix(
            address: u128,
            flipped in 0..128_u8,
            bits in 0..=128_u8,
        ) {
            // The bits are counted from the left.
            let other = address ^ (1 << (127 - flipped));
            let [one, other] = [address, other].map(|a| network(IpAddr::from(a.to_be_bytes()), bits));
            prop_assert_eq!(one == other, flipped >= bits);
        }
    }

    /// The most specific address counts.
    #[test]
    fn the_peer_is_the_address_that_the_server_stored() {
        let mut extensions = Extensions::new();
        assert_eq!(peer(&extensions), None);
        extensions.insert("::ffff:203.0.113.1".parse::<IpAddr>().unwrap());
        assert_eq!(peer(&extensions), Some([203, 0, 113, 1].into()));
        extensions.insert(SocketAddr::from(([203, 0, 113, 2], 80)));
        assert_eq!(peer(&extensions), Some([203, 0, 113, 2].into()));
        #[cfg(feature = "axum")]
        {
            use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

            let address = |last| SocketAddr::from(([203, 0, 113, last], 80));
            extensions.insert(MockConnectInfo(address(3)));
            assert_eq!(peer(&extensions), Some(address(3).ip()));
            extensions.insert(ConnectInfo(address(4)));
            assert_eq!(peer(&extensions), Some(address(4).ip()));
        }
    }
}
