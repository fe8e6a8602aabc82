use http::{HeaderValue, Request};

use super::*;
use crate::key::{constant, header};

mod properties;

const CHAIN: &str = "x-forwarded-for";
const NO_LINES: &[&str] = &[];

/// The client that is found by an extractor that trusts `10.0.0.0/8` and `2001:db8:ffff::/48`.
fn client(extractor: ClientIp, peer: &str, name: &str, lines: &[impl AsRef<[u8]>]) -> String {
    let trusted = ["10.0.0.0/8", "2001:db8:ffff::/48"].map(|network| network.parse().unwrap());
    let extractor = extractor.trusted_proxies(trusted).ipv6_prefix(128);
    key(&extractor, &request(peer, name, lines))
}

fn key(extractor: &ClientIp, request: &Request<()>) -> String {
    match extractor.extract(request) {
        Extracted::Key(key) => key.to_string(),
        other => panic!("{other:?}"),
    }
}

fn request(peer: &str, name: &str, lines: &[impl AsRef<[u8]>]) -> Request<()> {
    let mut request = Request::new(());
    let peer: IpAddr = peer.parse().unwrap();
    request.extensions_mut().insert(peer);
    let name: HeaderName = name.parse().unwrap();
    for line in lines {
        let line = HeaderValue::from_bytes(line.as_ref()).unwrap();
        request.headers_mut().append(&name, line);
    }
    request
}

#[test]
fn the_first_address_from_the_right_that_is_not_trusted_is_the_client() {
    for (line, expected) in [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("203.0.113.7,10.0.0.3,\t10.0.0.2 ", "203.0.113.7"),
        ("8.8.8.8, 203.0.113.7", "203.0.113.7"),
        ("10.0.0.9, 203.0.113.7, 10.0.0.2", "203.0.113.7"),
        ("203.0.113.7, 203.0.113.7", "203.0.113.7"),
        ("2001:db8::1, 2001:db8:ffff::2", "2001:db8::1"),
        (
            "\"[2001:db8::1]:80\", [2001:DB8:FFFF::2]:443",
            "2001:db8::1",
        ),
        ("203.0.113.7:50000, ::ffff:10.0.0.2", "203.0.113.7"),
        ("::ffff:203.0.113.7, 10.0.0.2:80", "203.0.113.7"),
        ("fe80::1%eth0, 10.0.0.2", "fe80::1"),
    ] {
        let found = client(client_ip(), "10.0.0.1", CHAIN, &[line]);
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn if_all_are_trusted_the_leftmost_is_the_client() {
    let line = "10.0.0.4, 2001:db8:ffff::3, 10.0.0.2";
    assert_eq!(client(client_ip(), "10.0.0.1", CHAIN, &[line]), "10.0.0.4");
}

#[test]
fn without_the_header_the_peer_is_the_client() {
    assert_eq!(client(client_ip(), "10.0.0.1", CHAIN, NO_LINES), "10.0.0.1");
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client_whatever_it_sends() {
    for (name, line) in [
        (CHAIN, "8.8.8.8"),
        (CHAIN, "8.8.8.8, 10.0.0.2"),
        ("forwarded", "for=8.8.8.8"),
        ("cf-connecting-ip", "8.8.8.8"),
    ] {
        for extractor in [
            client_ip(),
            client_ip().forwarded(),
            client_ip().header("cf-connecting-ip"),
        ] {
            for peer in ["203.0.113.7", "2001:db8::1", "11.0.0.1", "::1"] {
                assert_eq!(client(extractor.clone(), peer, name, &[line]), peer);
            }
            let untrusting = key(&extractor, &request("10.0.0.1", name, &[line]));
            assert_eq!(untrusting, "10.0.0.1");
        }
    }
}

#[test]
fn only_the_chosen_header_is_read() {
    let all = [
        (CHAIN, "203.0.113.1"),
        ("forwarded", "for=203.0.113.2"),
        ("cf-connecting-ip", "203.0.113.3"),
    ];
    for (chosen, extractor, expected) in [
        (0, client_ip(), "203.0.113.1"),
        (1, client_ip().forwarded(), "203.0.113.2"),
        (2, client_ip().header("CF-Connecting-IP"), "203.0.113.3"),
    ] {
        for (index, (name, line)) in all.into_iter().enumerate() {
            let found = client(extractor.clone(), "10.0.0.1", name, &[line]);
            let expected = if index == chosen {
                expected
            } else {
                "10.0.0.1"
            };
            assert_eq!(found, expected, "{name} by {extractor:?}");
        }
    }
}

#[test]
fn an_entry_that_is_no_address_hides_all_on_its_left() {
    for entry in [
        "",
        "unknown",
        "_hidden",
        "garbage",
        "10.0.0",
        "10.0.0.256",
        "10.0.0.9:",
        "[10.0.0.9]",
        "10.0.0.9 10.0.0.8",
        "\"10.0.0.9",
        "caf\u{e9}",
    ] {
        for (line, expected) in [
            (format!("203.0.113.7, {entry}"), "10.0.0.1"),
            (format!("203.0.113.7, {entry}, 10.0.0.2"), "10.0.0.2"),
            (
                format!("8.8.8.8, {entry}, 203.0.113.7, 10.0.0.2"),
                "203.0.113.7",
            ),
            (format!("{entry}, 10.0.0.3, 10.0.0.2"), "10.0.0.3"),
        ] {
            let found = client(client_ip(), "10.0.0.1", CHAIN, &[&line]);
            assert_eq!(found, expected, "{line}");
        }
    }
    let bytes = [&b"8.8.8.8, \xff\xfe, 203.0.113.7"[..]];
    assert_eq!(
        client(client_ip(), "10.0.0.1", CHAIN, &bytes),
        "203.0.113.7"
    );
}

#[test]
fn lines_are_one_chain_in_their_order() {
    for (lines, expected) in [
        (["203.0.113.7", "10.0.0.2"], "203.0.113.7"),
        (["8.8.8.8", "203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        (["203.0.113.7, unknown", "10.0.0.2"], "10.0.0.2"),
        (["203.0.113.7", ""], "10.0.0.1"),
    ] {
        assert_eq!(client(client_ip(), "10.0.0.1", CHAIN, &lines), expected);
    }
}

#[test]
fn the_standard_header_is_walked_alike() {
    let extractor = || client_ip().forwarded();
    for (lines, expected) in [
        (&["for=203.0.113.7"][..], "203.0.113.7"),
        (
            &["for=8.8.8.8, for=203.0.113.7, for=10.0.0.2;by=10.0.0.1"],
            "203.0.113.7",
        ),
        (
            &["for=203.0.113.7", "For=\"[2001:db8:ffff::2]:80\""],
            "203.0.113.7",
        ),
        (&["for=203.0.113.7, for=unknown, for=10.0.0.2"], "10.0.0.2"),
        (&["for=203.0.113.7, for=_a, for=10.0.0.2"], "10.0.0.2"),
        (&["for=203.0.113.7, proto=https, for=10.0.0.2"], "10.0.0.2"),
        (&["for=8.8.8.8, for=\", for=203.0.113.7"], "203.0.113.7"),
        (
            &["for=8.8.8.8;a=\"", "for=\"203.0.113.7:80\""],
            "203.0.113.7",
        ),
        (
            &["for=8.8.8.8;a=\", for=\"203.0.113.7:80\", for=10.0.0.2"],
            "203.0.113.7",
        ),
    ] {
        let found = client(extractor(), "10.0.0.1", "forwarded", lines);
        assert_eq!(found, expected, "{lines:?}");
    }
}

#[test]
fn a_header_of_one_address_has_to_be_just_that() {
    let extractor = || client_ip().header("x-real-ip");
    for (lines, expected) in [
        (&["203.0.113.7"][..], "203.0.113.7"),
        (&[" 203.0.113.7:80\t"], "203.0.113.7"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["::ffff:203.0.113.7"], "203.0.113.7"),
        (&["10.0.0.9"], "10.0.0.9"),
        (&[""], "10.0.0.1"),
        (&["unknown"], "10.0.0.1"),
        (&["203.0.113.7, 203.0.113.8"], "10.0.0.1"),
        (&["203.0.113.7", "203.0.113.7"], "10.0.0.1"),
        (&["203.0.113.7", ""], "10.0.0.1"),
    ] {
        let found = client(extractor(), "10.0.0.1", "x-real-ip", lines);
        assert_eq!(found, expected, "{lines:?}");
    }
}

#[test]
fn a_mapped_address_is_the_ipv4_address_in_peers_and_networks_too() {
    let line = ["203.0.113.7"];
    assert_eq!(
        client(client_ip(), "::ffff:10.0.0.1", CHAIN, &line),
        "203.0.113.7"
    );
    let direct = client(client_ip(), "::ffff:203.0.113.7", CHAIN, &["8.8.8.8"]);
    assert_eq!(direct, "203.0.113.7");
    let mapped = client_ip().trusted_proxies(["::ffff:10.0.0.0/104".parse().unwrap()]);
    for (peer, expected) in [
        ("10.0.0.1", "203.0.113.7"),
        ("::ffff:10.255.0.1", "203.0.113.7"),
        ("11.0.0.1", "11.0.0.1"),
    ] {
        assert_eq!(key(&mapped, &request(peer, CHAIN, &line)), expected);
    }
    let one = client_ip().trusted_proxies(["::ffff:10.0.0.1/128".parse().unwrap()]);
    for (peer, expected) in [("10.0.0.1", "203.0.113.7"), ("10.0.0.2", "10.0.0.2")] {
        assert_eq!(key(&one, &request(peer, CHAIN, &line)), expected);
    }
}

#[test]
fn an_ipv6_client_has_one_quota_for_all_its_addresses() {
    let all_trusted = client_ip().trusted_proxies(["10.0.0.1/32".parse().unwrap()]);
    for (chain, expected) in [
        ("2001:db8:1:2::3", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::3", "2001:db8:1:3::/64"),
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
    ] {
        let request = request("10.0.0.1", CHAIN, &[chain]);
        assert_eq!(key(&all_trusted, &request), expected);
    }
    let request = request("203.0.113.7", CHAIN, NO_LINES);
    assert_eq!(
        key(&client_ip().ipv4_prefix(24), &request),
        "203.0.113.0/24"
    );
    assert_eq!(key(&client_ip().ipv6_prefix(24), &request), "203.0.113.7");
}

#[test]
fn trust_is_in_addresses_and_not_in_their_prefixes() {
    let one = client_ip()
        .ipv4_prefix(8)
        .trusted_proxies(["10.0.0.1/32".parse().unwrap()]);
    let chain = request("10.0.0.1", CHAIN, &["203.0.113.7, 10.0.0.2"]);
    assert_eq!(key(&one, &chain), "10.0.0.0/8");
}

#[test]
fn without_a_peer_the_request_is_refused_unless_told_otherwise() {
    let mut request = request("10.0.0.1", CHAIN, &["203.0.113.7"]);
    request.extensions_mut().clear();
    let Extracted::Refused(reason) = client_ip().extract(&request) else {
        panic!("not refused");
    };
    assert!(reason.contains("into_make_service_with_connect_info::<SocketAddr>()"));
    assert!(!reason.contains("  "), "{reason}");
    let networks = || ["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap());
    let exempt = client_ip().trusted_proxies(networks()).or_exempt();
    assert_eq!(exempt.extract(&request), Extracted::Exempt);
    let shared = client_ip().trusted_proxies(networks()).or("local");
    assert_eq!(shared.extract(&request), Extracted::Key("local".into()));
}

#[test]
fn the_parts_of_a_request_have_the_same_key() {
    let parts = request("203.0.113.7", CHAIN, NO_LINES).into_parts().0;
    assert_eq!(
        client_ip().extract(&parts),
        Extracted::Key("203.0.113.7".into())
    );
}

#[test]
fn an_address_is_joined_with_other_keys() {
    let request = request("2001:db8::1", "x-tenant", &["acme"]);
    let extractor = (client_ip(), header("x-tenant"), constant("login"));
    let joined = Extracted::Key("2001:db8::/64|acme|login".into());
    assert_eq!(extractor.extract(&request), joined);
}

#[test]
#[should_panic(expected = "an IPv4 address has 32 bits, not 33")]
fn more_bits_than_an_ipv4_address_has_panic() {
    let _ = client_ip().ipv4_prefix(33);
}

#[test]
#[should_panic(expected = "an IPv6 address has 128 bits, not 129")]
fn more_bits_than_an_ipv6_address_has_panic() {
    let _ = client_ip().ipv6_prefix(129);
}

#[test]
#[should_panic(expected = "not a valid header name")]
fn a_text_that_is_no_header_name_panics() {
    let _ = client_ip().header("x real ip");
}
