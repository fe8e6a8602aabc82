use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;

const CHAIN: &str = "x-forwarded-for";

/// The client that is found by an extractor that trusts `10.0.0.0/8` and `2001:db8:ffff::/48`.
fn found_by(extractor: ClientIp, peer: &str, name: &str, lines: &[impl AsRef<[u8]>]) -> String {
    let trusted = ["10.0.0.0/8", "2001:db8:ffff::/48"];
    let extractor = extractor.trusted_proxies(trusted).unwrap().ipv6_prefix(128);
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
fn only_the_chosen_header_is_read() {
    let choices = [
        (CHAIN, client_ip(), "203.0.113.1"),
        ("forwarded", client_ip().forwarded(), "for=203.0.113.1"),
        ("x-name", client_ip().header("X-Name"), "203.0.113.1"),
    ];
    for (chosen, extractor, _) in &choices {
        for (name, _, line) in &choices {
            let found = found_by(extractor.clone(), "10.0.0.1", name, &[line]);
            assert_eq!(found == "203.0.113.1", name == chosen, "{name}");
            assert!(name == chosen || found == "10.0.0.1");
        }
    }
}

#[test]
fn networks_and_peers_may_be_ipv4_mapped() {
    for (network, peer, is_trusted) in [
        ("10.0.0.0/8", "::ffff:10.0.0.1", true),
        ("::ffff:10.0.0.0/104", "10.0.0.1", true),
        ("::ffff:10.0.0.0/104", "11.0.0.1", false),
    ] {
        let extractor = client_ip().trusted_proxies([network]).unwrap();
        let found = key(&extractor, &request(peer, CHAIN, &["203.0.113.7"]));
        assert_eq!(found == "203.0.113.7", is_trusted, "{network} {peer}");
    }
}

#[test]
fn a_header_of_one_address_is_that_address_alone() {
    for (lines, expected) in [
        (&[" 203.0.113.7:80\t"][..], "203.0.113.7"),
        (&["2001:db8::1"], "2001:db8::1"),
        (&["10.0.0.9"], "10.0.0.9"),
        (&["unknown"], "10.0.0.1"),
        (&["203.0.113.7, 203.0.113.8"], "10.0.0.1"),
        (&["203.0.113.7", "203.0.113.7"], "10.0.0.1"),
        (&["203.0.113.7", ""], "10.0.0.1"),
    ] {
        let extractor = client_ip().header("x-real-ip");
        let found = found_by(extractor, "10.0.0.1", "x-real-ip", lines);
        assert_eq!(found, expected, "{lines:?}");
    }
}

#[test]
fn the_addresses_of_one_network_share_a_quota_but_not_trust() {
    let one = || client_ip().trusted_proxies(["10.0.0.1/32"]).unwrap();
    let (by_24, by_56) = (|| one().ipv4_prefix(24), || one().ipv6_prefix(56));
    for (extractor, chain, expected) in [
        (one(), "2001:db8:1:2:ffff:ffff:ffff:1", "2001:db8:1:2::/64"),
        (by_24(), "2001:db8:1:2::3", "2001:db8:1:2::/64"),
        (by_24(), "203.0.113.7", "203.0.113.0/24"),
        (one().ipv4_prefix(31), "203.0.113.7", "203.0.113.6/31"),
        (one().ipv4_prefix(0), "203.0.113.7", "0.0.0.0/0"),
        (by_56(), "2001:db8:1:2ff::1", "2001:db8:1:200::/56"),
        (one().ipv6_prefix(128), "2001:DB8:1::6", "2001:db8:1::6"),
        (one().ipv6_prefix(24), "203.0.113.7", "203.0.113.7"),
        (one(), "::ffff:203.0.113.7", "203.0.113.7"),
        (one().ipv4_prefix(8), "203.0.113.7, 10.0.0.2", "10.0.0.0/8"),
    ] {
        let request = request("10.0.0.1", CHAIN, &[chain]);
        assert_eq!(key(&extractor, &request), expected);
    }
}

#[test]
fn without_a_peer_the_request_is_refused_unless_configured_otherwise() {
    let mut request = request("10.0.0.1", CHAIN, &["203.0.113.7"]);
    request.extensions_mut().clear();
    let trusting = || client_ip().trusted_proxies(["0.0.0.0/0"]).unwrap();
    let Extracted::Refused(no_key) = trusting().extract(&request) else {
        panic!("not refused");
    };
    let advice = "into_make_service_with_connect_info::<SocketAddr>()";
    assert!(no_key.reason.contains(advice));
    assert_eq!(trusting().or_exempt().extract(&request), Extracted::Exempt);
    let shared = trusting().or("local").extract(&request);
    assert_eq!(shared, Extracted::Key("local".into()));
}

#[test]
fn a_text_that_is_no_network_is_an_error() {
    let networks = ["10.0.0.1", "10/8"];
    let error = client_ip().trusted_proxies(networks).unwrap_err();
    let text = "trusted_proxies: \"10/8\" is not a network, such as `10.0.0.0/8`";
    assert_eq!(error.to_string(), text);
}

const TRUSTED: &str = "10.0.0.2 10.255.255.255 2001:db8:ffff::2 2001:db8:ffff:1::3";
const OTHERS: &str = "203.0.113.7 9.255.255.255 2001:db8::1 2001:db8:fffe::2";

fn one_of(words: &'static str) -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(words.split(' ').collect::<Vec<_>>())
}

/// An entry as a proxy may write it, and its address.
fn entry() -> impl Strategy<Value = (String, Option<&'static str>)> {
    let address = prop_oneof![one_of(TRUSTED), one_of(OTHERS)];
    let spelled = (address, 0..5).prop_map(|(address, style)| {
        let text = match (style, address.contains(':')) {
            (0, _) => address.to_owned(),
            (1, true) => format!("[{address}]"),
            (1, false) => format!("::ffff:{address}"),
            (2, true) => format!("[{}]:4711", address.to_uppercase()),
            (2, false) => format!("[::FFFF:{address}]:4711"),
            (3, true) => format!("{address}%eth0"),
            (_, true) => format!("[{address}%25eth0.1]:_http-1"),
            (_, false) => format!("{address}:_port"),
        };
        (text, Some(address))
    });
    let hidden = one_of(" unknown _hidden 10.0.0 ::g [10.0.0.3");
    prop_oneof![6 => spelled, 1 => hidden.prop_map(|text| (text.to_owned(), None))]
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(&b"\"\\,;= \tfor:[]0123456789.%_"[..]),
        1 => 0x20..=0x7e_u8,
        1 => 0x80..=0xff_u8,
    ];
    prop::collection::vec(byte, 0..40)
}

/// The lines that were sent and what proxies add: to the last line, or lines of their own.
fn add(sent: &[Vec<u8>], joined: bool, entries: impl Iterator<Item = String>) -> Vec<Vec<u8>> {
    let mut lines = sent.to_vec();
    for entry in entries {
        match lines.last_mut() {
            Some(line) if joined => line.extend(format!(", {entry}").bytes()),
            _ => lines.push(entry.into_bytes()),
        }
    }
    lines
}

proptest! {
    /// The proxies append the addresses of the client and of each other to the lines that the client sends.
    #[test]
    fn the_client_is_the_leftmost_address_with_only_trusted_ones_on_its_right(
        peer in prop_oneof![3 => one_of(TRUSTED), 1 => one_of(OTHERS)],
        client in prop::option::of(one_of(OTHERS)),
        sent in prop::collection::vec(any_bytes(), 0..3),
        entries in prop::collection::vec(entry(), 0..6),
        joined: bool,
    ) {
        let sent = if client.is_some() { &sent[..] } else { &[] };
        let seen = client.map(|address| (address.to_owned(), Some(address)));
        let entries: Vec<_> = seen.into_iter().chain(entries).collect();
        let is_trusted = |address: &str| TRUSTED.contains(address);
        let mut expected = peer;
        for (_, address) in entries.iter().rev() {
            match address {
                Some(address) if is_trusted(expected) => expected = address,
                _ => break,
            }
        }
        let chain = add(sent, joined, entries.iter().map(|entry| entry.0.clone()));
        prop_assert_eq!(found_by(client_ip(), peer, CHAIN, &chain), expected);
        let quoted = |(text, _): &(String, _)| format!("proto=https;for=\"{text}\";by=_self");
        let chain = add(sent, joined, entries.iter().map(quoted));
        let found = found_by(client_ip().forwarded(), peer, "forwarded", &chain);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn only_trusted_peers_are_believed(
        sent in prop::collection::vec(any_bytes(), 0..3),
        (trusted, other) in (one_of(TRUSTED), one_of(OTHERS)),
    ) {
        for (name, extractor) in [
            (CHAIN, client_ip()),
            ("forwarded", client_ip().forwarded()),
            ("x-real-ip", client_ip().header("x-real-ip")),
        ] {
            prop_assert_eq!(found_by(extractor.clone(), other, name, &sent), other);
            prop_assert!(found_by(extractor, trusted, name, &sent).parse::<IpAddr>().is_ok());
        }
    }
}
