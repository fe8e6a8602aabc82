//! Addresses of peers, in header entries and as keys.

use std::net::{IpAddr, SocketAddr};

use ecow::{EcoString, eco_format};
use http::Extensions;
use ipnet::{IpNet, Ipv4Net};

/// Reads the address in one entry of a header in every spelling that is in use: with or without a port,
/// and an IPv6 address with or without brackets and a zone.
///
/// Ports and zones are dropped, whatever they are. An IPv4-mapped address becomes the IPv4 address.
pub(super) fn parse(entry: &[u8]) -> Option<IpAddr> {
    let entry = str::from_utf8(entry).ok()?;
    let host = match (entry.strip_prefix('['), entry.split_once(':')) {
        (Some(literal), _) => {
            let (literal, rest) = literal.split_once(']')?;
            (rest.is_empty() || rest.starts_with(':')).then_some(literal)?
        }
        // An IPv6 address without brackets has no port.
        (None, Some((host, port))) if !port.contains(':') => host,
        _ => entry,
    };
    let address: IpAddr = host.split('%').next()?.parse().ok()?;
    Some(address.to_canonical())
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

/// Reads a network such as `10.0.0.0/8`, or a single address. A network of IPv4-mapped addresses becomes the IPv4 network.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse().map(|address: IpAddr| address.into());
    let network: Result<IpNet, _> = text.parse().or_else(|_| address());
    let network =
        network.map_err(|_| format!("{text:?} is not a network, such as `10.0.0.0/8`"))?;
    Ok(
        match (network.addr().to_canonical(), network.prefix_len()) {
            (IpAddr::V4(address), bits @ 96..) => {
                Ipv4Net::new(address, bits - 96).map_or(network, IpNet::V4)
            }
            _ => network,
        },
    )
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
            3405803783 203.0.113.7/32 203.0.113.7:80:80 unknown:80 : [] [ ] [::1 ::1] [[::1]] 1::2::3 \
            12345::1 \"203.0.113.7\" 203.0.113.7\0 203.0.113.7\u{e9}";
        let spaced = "| 203.0.113.7|203.0.113.7 |[ ::1]";
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
