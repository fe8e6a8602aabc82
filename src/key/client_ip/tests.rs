use http::{HeaderValue, Request};
use proptest::prelude::*;

use super::*;

const CHAIN: &str = "x-forwarded-for";

/// The client that is found by an extractor that trusts `10.0.0.0/8` and `2001:db8:ffff::/48`.
fn client(extractor: ClientIp, peer: &str, name: &str, lines: &[impl AsRef<[u8]>]) -> String {
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
fn only_the_chosen_header_of_a_trusted_peer_is_read() {
    let lines = [
        (CHAIN, "203.0.113.1"),
        ("forwarded", "for=203.0.113.2"),
        ("cf-connecting-ip", "203.0.113.3"),
    ];
    let extractors = [
        client_ip(),
        client_ip().forwarded(),
        client_ip().header("CF-Connecting-IP"),
    ];
    for (chosen, extractor) in extractors.into_iter().enumerate() {
        for (index, (name, line)) in lines.into_iter().enumerate() {
            let found = client(extractor.clone(), "10.0.0.1", name, &[line]);
            let is_read = found == format!("203.0.113.{}", index + 1);
            assert!(
                is_read == (index == chosen) && (is_read || found == "10.0.0.1"),
                "{found}"
            );
            let untrusting = key(&extractor, &request("10.0.0.1", name, &[line]));
            assert_eq!(untrusting, "10.0.0.1");
        }
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
        let found = client(extractor, "10.0.0.1", "x-real-ip", lines);
        assert_eq!(found, expected, "{lines:?}");
    }
}

#[test]
fn networks_and_peers_may_be_ipv4_mapped() {
    for (network, peer, is_trusted) in [
        ("10.0.0.0/8", "::ffff:10.0.0.1", true),
        ("::ffff:10.0.0.0/104", "10.0.0.1", true),
        ("::ffff:10.0.0.0/104", "::ffff:10.255.0.1", true),
        ("::ffff:10.0.0.0/104", "11.0.0.1", false),
        ("::ffff:10.0.0.1/128", "10.0.0.1", true),
        ("::ffff:10.0.0.1/128", "10.0.0.2", false),
    ] {
        let extractor = client_ip().trusted_proxies([network]).unwrap();
        let found = key(&extractor, &request(peer, CHAIN, &["203.0.113.7"]));
        assert_eq!(
            found == "203.0.113.7",
            is_trusted,
            "{network} {peer} {found}"
        );
    }
}

#[test]
fn the_addresses_of_one_network_share_a_quota_but_not_trust() {
    let one = || client_ip().trusted_proxies(["10.0.0.1/32"]).unwrap();
    for (extractor, chain, expected) in [
        (
            one(),
            "2001:db8:1:2:ffff:ffff:ffff:ffff",
            "2001:db8:1:2::/64",
        ),
        (
            one().ipv4_prefix(24),
            "2001:db8:1:2::3",
            "2001:db8:1:2::/64",
        ),
        (one().ipv4_prefix(24), "203.0.113.7", "203.0.113.0/24"),
        (one().ipv6_prefix(24), "203.0.113.7", "203.0.113.7"),
        (one(), "::ffff:203.0.113.7", "203.0.113.7"),
        (one().ipv4_prefix(8), "203.0.113.7, 10.0.0.2", "10.0.0.0/8"),
    ] {
        assert_eq!(
            key(&extractor, &request("10.0.0.1", CHAIN, &[chain])),
            expected
        );
    }
}

#[test]
fn without_a_peer_the_request_is_refused_unless_configured_otherwise() {
    let mut request = request("10.0.0.1", CHAIN, &["203.0.113.7"]);
    request.extensions_mut().clear();
    let trusting = || client_ip().trusted_proxies(["0.0.0.0/0"]).unwrap();
    let Extracted::Refused(reason) = trusting().extract(&request) else {
        panic!("not refused");
    };
    assert!(reason.contains("into_make_service_with_connect_info::<SocketAddr>()"));
    assert_eq!(trusting().or_exempt().extract(&request), Extracted::Exempt);
    let shared = trusting().or("local").extract(&request);
    assert_eq!(shared, Extracted::Key("local".into()));
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
fn a_text_that_is_no_network_is_an_error() {
    let error = client_ip()
        .trusted_proxies(["10.0.0.1", "10/8"])
        .unwrap_err();
    let text = "trusted_proxies: \"10/8\" is not a network, such as `10.0.0.0/8`";
    assert_eq!(error.to_string(), text);
}

#[test]
#[should_panic(expected = "not a valid header name")]
fn a_text_that_is_no_header_name_panics() {
    let _ = client_ip().header("x real ip");
}

/// Whether an address of the pool below is trusted, by another rule than that of the extractor.
fn is_trusted(address: &str) -> bool {
    address.starts_with("10.") || address.starts_with("2001:db8:ffff:")
}

/// An entry as a proxy may write it, and its address.
#[derive(Debug, Clone)]
struct Entry {
    text: String,
    address: Option<&'static str>,
}

const ADDRESSES: [&str; 8] = [
    "10.0.0.2",
    "10.255.255.255",
    "2001:db8:ffff::2",
    "2001:db8:ffff:1::3",
    "203.0.113.7",
    "9.255.255.255",
    "2001:db8::1",
    "2001:db8:fffe::2",
];

const NO_ADDRESSES: [&str; 6] = ["", "unknown", "_hidden", "10.0.0", "::g", "[10.0.0.3"];

fn entry() -> impl Strategy<Value = Entry> {
    let spelled =
        (prop::sample::select(&ADDRESSES[..]), 0..4_usize).prop_map(|(address, style)| {
            let text = match (style, address.contains(':')) {
                (0, _) => address.to_owned(),
                (1, true) => format!("[{address}]"),
                (1, false) => format!("::ffff:{address}"),
                (2, true) => format!("[{}]:4711", address.to_uppercase()),
                (2, false) => format!("[::FFFF:{address}]:4711"),
                (_, true) => format!("{address}%eth0"),
                (_, false) => format!("{address}:_port"),
            };
            Entry {
                text,
                address: Some(address),
            }
        });
    let hidden = prop::sample::select(&NO_ADDRESSES[..]).prop_map(|text| Entry {
        text: text.to_owned(),
        address: None,
    });
    prop_oneof![6 => spelled, 1 => hidden]
}

/// The entry on the farthest left with nothing but trusted addresses on its right, if there is any.
fn model(peer: &'static str, entries: &[Entry]) -> &'static str {
    let believed = |index: &usize| {
        let on_the_right = &entries[index + 1..];
        entries[*index].address.is_some()
            && is_trusted(peer)
            && on_the_right
                .iter()
                .all(|entry| entry.address.is_some_and(is_trusted))
    };
    let farthest = (0..entries.len()).find(believed);
    farthest
        .and_then(|index| entries[index].address)
        .unwrap_or(peer)
}

/// The header's lines: the list is cut at the places in `cuts`, and joined by commas at all others.
fn lines(texts: impl Iterator<Item = String>, cuts: &[bool]) -> Vec<String> {
    let mut lines = Vec::<String>::new();
    for (text, cut) in texts.zip(cuts) {
        match lines.last_mut() {
            Some(line) if !cut => *line += &format!(", {text}"),
            _ => lines.push(text),
        }
    }
    lines
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

fn in_forwarded(entry: &Entry) -> String {
    format!("proto=https;for=\"{}\";by=_self", entry.text)
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(&b"\"\\,;= \tfor:[]0123456789.%_"[..]),
        1 => 0x20..=0x7e_u8,
        1 => 0x80..=0xff_u8,
    ];
    prop::collection::vec(byte, 0..40)
}

fn header_and_extractor() -> impl Strategy<Value = (&'static str, ClientIp)> {
    prop::sample::select(vec![
        (CHAIN, client_ip()),
        ("forwarded", client_ip().forwarded()),
        ("x-real-ip", client_ip().header("x-real-ip")),
    ])
}

proptest! {
    #[test]
    fn the_walk_ends_where_trust_does(
        peer in prop::sample::select(&ADDRESSES[..]),
        entries in prop::collection::vec(entry(), 0..6),
        cuts: [bool; 6],
    ) {
        let expected = model(peer, &entries);
        let chain = lines(entries.iter().map(|entry| entry.text.clone()), &cuts);
        prop_assert_eq!(client(client_ip(), peer, CHAIN, &chain), expected);
        let chain = lines(entries.iter().map(in_forwarded), &cuts);
        let extractor = client_ip().forwarded();
        prop_assert_eq!(client(extractor, peer, "forwarded", &chain), expected);
    }

    #[test]
    fn nothing_that_a_client_sends_changes_its_address(
        sent in prop::collection::vec(any_bytes(), 0..3),
        address in prop::sample::select(&ADDRESSES[4..]),
        proxies in prop::collection::vec(prop::sample::select(&ADDRESSES[..4]), 0..3),
        joined: bool,
    ) {
        // The proxies, of which the first sees the client, add what they see.
        let quoted = |seen: &str| match seen.contains(':') {
            true => format!("for=\"[{seen}]:80\""),
            false => format!("for={seen}"),
        };
        let chain = add(&sent, joined, [address].iter().chain(&proxies).map(|&seen| seen.to_owned()));
        prop_assert_eq!(client(client_ip(), "10.0.0.1", CHAIN, &chain), address);
        let chain = add(&sent, joined, [address].iter().chain(&proxies).map(|&seen| quoted(seen)));
        let extractor = client_ip().forwarded();
        prop_assert_eq!(client(extractor, "10.0.0.1", "forwarded", &chain), address);
    }

    #[test]
    fn only_trusted_peers_are_believed(
        (name, extractor) in header_and_extractor(),
        sent in prop::collection::vec(any_bytes(), 0..3),
        peer in prop::sample::select(&ADDRESSES[..]),
    ) {
        let found = client(extractor, peer, name, &sent);
        prop_assert!(found == peer || (is_trusted(peer) && found.parse::<IpAddr>().is_ok()));
    }
}
