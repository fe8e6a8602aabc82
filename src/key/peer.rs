use std::net::{IpAddr, SocketAddr};

use http::Extensions;

/// The address at the other end of the connection, where the server left it in the extensions.
///
/// An IPv4 client of a socket that listens on both families has an IPv4-mapped address there.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let peer = connect_info(extensions)
        .or_else(|| extensions.get().map(SocketAddr::ip))
        .or_else(|| extensions.get().copied())?;
    Some(peer.to_canonical())
}

/// What axum's own extractor of that name finds.
#[cfg(feature = "axum")]
fn connect_info(extensions: &Extensions) -> Option<IpAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let connected = extensions
        .get()
        .map(|ConnectInfo::<SocketAddr>(peer)| peer.ip());
    connected.or_else(|| {
        extensions
            .get()
            .map(|MockConnectInfo::<SocketAddr>(peer)| peer.ip())
    })
}

#[cfg(not(feature = "axum"))]
fn connect_info(_: &Extensions) -> Option<IpAddr> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T: Clone + Send + Sync + 'static>(value: T) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(value);
        extensions
    }

    #[test]
    fn any_server_can_leave_the_address() {
        let address = IpAddr::from([203, 0, 113, 7]);
        assert_eq!(peer(&with(address)), Some(address));
        assert_eq!(peer(&with(SocketAddr::new(address, 80))), Some(address));
        assert_eq!(peer(&with("203.0.113.7")), None);
        assert_eq!(peer(&Extensions::new()), None);
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address() {
        let mapped: IpAddr = "::ffff:203.0.113.7".parse().unwrap();
        let address = Some(IpAddr::from([203, 0, 113, 7]));
        assert_eq!(peer(&with(mapped)), address);
        assert_eq!(peer(&with(SocketAddr::new(mapped, 80))), address);
    }

    #[cfg(feature = "axum")]
    #[test]
    fn the_connection_goes_before_what_was_added_by_hand() {
        use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

        let address = |last| IpAddr::from([203, 0, 113, last]);
        let mut extensions = with(address(1));
        extensions.insert(SocketAddr::new(address(2), 80));
        assert_eq!(peer(&extensions), Some(address(2)));
        extensions.insert(MockConnectInfo(SocketAddr::new(address(3), 80)));
        assert_eq!(peer(&extensions), Some(address(3)));
        extensions.insert(ConnectInfo(SocketAddr::new(address(4), 80)));
        assert_eq!(peer(&extensions), Some(address(4)));
    }
}
