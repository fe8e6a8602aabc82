use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address in one entry of a header, in any of the spellings that are in use: with or without a port,
/// and an IPv6 address with or without brackets and a zone.
///
/// Ports and zones are checked and left away, and an IPv4-mapped address is the IPv4 address.
pub(super) fn address(entry: &[u8]) -> Option<IpAddr> {
    let entry = str::from_utf8(entry).ok()?;
    let address = match entry.strip_prefix('[') {
        Some(literal) => {
            let (literal, rest) = literal.split_once(']')?;
            let port_is_valid = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
            port_is_valid.then(|| zoned(literal))?
        }
        None => unbracketed(entry),
    };
    address.map(|address| address.to_canonical())
}

fn unbracketed(entry: &str) -> Option<IpAddr> {
    match entry.split_once(':') {
        None => v4(entry),
        // More colons than one are no port's.
        Some((_, rest)) if rest.contains(':') => zoned(entry),
        Some((address, port)) => v4(address).filter(|_| is_port(port)),
    }
}

fn v4(text: &str) -> Option<IpAddr> {
    text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// A zone follows a `%` (RFC 4007, section 11), or a `%25`, as in URIs.
fn zoned(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((address, zone)) if is_name(zone) => address,
        Some(_) => return None,
        None => text,
    };
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// RFC 7239 (section 6) lets a port be obfuscated where the address is not.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(obfuscated) => is_name(obfuscated),
        // `parse` alone would take `+80`.
        None => text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}

fn is_name(text: &str) -> bool {
    let in_name = |b: u8| b.is_ascii_alphanumeric() || b"._~-".contains(&b);
    !text.is_empty() && text.bytes().all(in_name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_address_is_read_from_every_spelling() {
        for (entry, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            ("203.0.113.7:0", "203.0.113.7"),
            ("203.0.113.7:65535", "203.0.113.7"),
            ("203.0.113.7:_port-1.a", "203.0.113.7"),
            ("2001:db8::17", "2001:db8::17"),
            ("2001:DB8:0:0:0:0:0:17", "2001:db8::17"),
            ("2001:db8::17:4711", "2001:db8::17:4711"),
            ("[2001:db8::17]", "2001:db8::17"),
            ("[2001:Db8::17]:4711", "2001:db8::17"),
            ("[2001:db8::17]:_http", "2001:db8::17"),
            ("::", "::"),
            ("fe80::1%eth0", "fe80::1"),
            ("fe80::1%25", "fe80::1"),
            ("[fe80::1%25eth0.1]:80", "fe80::1"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("::FFFF:cb00:7107", "203.0.113.7"),
            ("[::ffff:203.0.113.7]:80", "203.0.113.7"),
            ("::203.0.113.7", "::203.0.113.7"),
            ("64:ff9b::203.0.113.7", "64:ff9b::203.0.113.7"),
        ] {
            let expected = Some(expected.parse().unwrap());
            assert_eq!(address(entry.as_bytes()), expected, "{entry}");
        }
    }

    #[test]
    fn what_is_no_address_is_not_read_as_one() {
        for entry in [
            "",
            "unknown",
            "UNKNOWN",
            "_hidden",
            "localhost",
            "203.0.113",
            "203.0.113.256",
            "203.0.113.07",
            "0xcb.0.113.7",
            "3405803783",
            " 203.0.113.7",
            "203.0.113.7 ",
            "203.0.113.7/32",
            "203.0.113.7%eth0",
            "203.0.113.7:",
            "203.0.113.7:+80",
            "203.0.113.7:-80",
            "203.0.113.7:65536",
            "203.0.113.7:80:80",
            "203.0.113.7:_",
            "203.0.113.7:_a b",
            "203.0.113.7:unknown",
            "unknown:80",
            "[203.0.113.7]",
            "[203.0.113.7]:80",
            ":",
            "[]",
            "[",
            "]",
            "[::1",
            "::1]",
            "[[::1]]",
            "[::1]80",
            "[::1]:",
            "[::1]]",
            "[ ::1]",
            "1::2::3",
            "12345::1",
            "::1%",
            "::1%a%b",
            "::1%/",
            "\"203.0.113.7\"",
            "203.0.113.7, 203.0.113.8",
            "203.0.113.7\0",
            "203.0.113.7\u{e9}",
        ] {
            assert_eq!(address(entry.as_bytes()), None, "{entry}");
        }
        assert_eq!(address(b"203.0.113.7\xff"), None);
    }

    proptest! {
        #[test]
        fn every_address_is_read_as_itself(address: IpAddr, port: u16) {
            let socket = std::net::SocketAddr::new(address, port).to_string();
            for entry in [address.to_string(), socket] {
                prop_assert_eq!(super::address(entry.as_bytes()), Some(address.to_canonical()));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(entry: Vec<u8>, near in "[0-9a-f:.%\\[\\]_]{0,24}") {
            let _ = address(&entry);
            let _ = address(near.as_bytes());
        }
    }
}
