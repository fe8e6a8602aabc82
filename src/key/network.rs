use std::{io::Write as _, net::IpAddr};

use ipnet::IpNet;
use smol_str::{SmolStr, ToSmolStr};

/// The longest is an IPv6 address of eight groups and a prefix of three digits.
const LONGEST: usize = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/127".len();

/// The one spelling of the network of an address, which is the address itself if all of its bits count.
pub(super) fn text(address: IpAddr, bits: u8) -> SmolStr {
    match IpNet::new(address, bits) {
        Ok(network) if bits < network.max_prefix_len() => formatted(network.trunc()),
        _ => address.to_smolstr(),
    }
}

/// Formats on the stack: many a network is longer than what a `SmolStr` holds without an allocation, and
/// growing towards that would take some more.
fn formatted(network: IpNet) -> SmolStr {
    let mut space = [0; LONGEST];
    let mut left = &mut space[..];
    let written = write!(left, "{network}").map(|()| LONGEST - left.len());
    let text = written.map(|length| str::from_utf8(&space[..length]));
    match text {
        Ok(Ok(text)) => text.into(),
        _ => network.to_smolstr(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_network_has_its_shortest_text() {
        for (address, bits, expected) in [
            ("203.0.113.7", 32, "203.0.113.7"),
            ("203.0.113.7", 31, "203.0.113.6/31"),
            ("203.0.113.7", 24, "203.0.113.0/24"),
            ("203.0.113.7", 0, "0.0.0.0/0"),
            ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"),
            ("2001:db8:0:2:3:4:5:6", 64, "2001:db8:0:2::/64"),
            ("2001:DB8:0:0:0:0:5:6", 64, "2001:db8::/64"),
            ("2001:db8:1:2ff::1", 56, "2001:db8:1:200::/56"),
            ("::1", 64, "::/64"),
            ("::1", 0, "::/0"),
        ] {
            assert_eq!(text(address.parse().unwrap(), bits), expected);
        }
    }

    #[test]
    fn the_longest_text_fits() {
        let all_ones = IpAddr::from([0xffff_u16; 8]);
        assert_eq!(text(all_ones, 127).len(), LONGEST);
        assert!(text(all_ones, 127).ends_with(":fffe/127"));
    }

    proptest! {
        #[test]
        fn two_addresses_share_a_text_if_and_only_if_they_share_the_prefix(
            address: u128,
            flipped in 0..128_u8,
            bits in 0..=128_u8,
        ) {
            // The bits are counted from the left.
            let other = address ^ (1 << (127 - flipped));
            let [one, other] = [address, other].map(|a| text(IpAddr::from(a.to_be_bytes()), bits));
            prop_assert_eq!(one == other, flipped >= bits);
        }
    }
}
